//! How often each block is reached, as far as its place in the program tells.

use skep_isa::{Cond, Insn, Operand};

use super::{Block, Input};

/// Rounds of each loop.
const ROUNDS: f32 = 8.0;
/// No block counts more.
const MOST: f32 = 1e6;
/// How often one of two ways is taken that stays in the loop while the other leaves it.
const STAYS: f32 = 1.0 - 1.0 / ROUNDS;
/// How often a number equals a constant.
const EQUAL: f32 = 0.35;
/// Steps for each block that the search for what is in loops may take.
const STEPS: usize = 16;

/// How often each block is reached, and how often its jump is taken then.
#[derive(Debug)]
pub(super) struct Guess {
    times: Vec<f32>,
    taken: Vec<f32>,
    /// The place of each block in reverse postorder.
    place: Vec<usize>,
}

/// The place of a block without a path to it.
const NOWHERE: usize = usize::MAX;

impl Guess {
    /// Guesses; `None` if there is no loop, or if that would take too long.
    pub(super) fn new(input: &Input<'_>, blocks: &[Block]) -> Option<Self> {
        let order = order(blocks);
        let mut place = vec![NOWHERE; blocks.len()];
        for (at, &block) in order.iter().enumerate() {
            place[block] = at;
        }
        let depth = depths(blocks, &order, &place)?;
        if depth.iter().all(|loops| *loops == 0) {
            return None;
        }
        let mut guess = Self { times: vec![0.0; blocks.len()], taken: vec![0.0; blocks.len()], place };
        let place = &guess.place;
        guess.times[0] = 1.0;
        let mut rounds = vec![1.0; blocks.len()];
        for &at in &order {
            for to in blocks[at].successors().filter(|to| place[*to] <= place[at]) {
                rounds[to] = ROUNDS;
            }
        }
        for &at in &order {
            guess.times[at] = (guess.times[at] * rounds[at]).min(MOST);
            let super::End::If(one, other) = blocks[at].ends else {
                for to in blocks[at].successors().filter(|to| place[*to] > place[at]) {
                    guess.times[to] += guess.times[at];
                }
                continue;
            };
            let back = |to: usize| place[to] <= place[at];
            let share = match (depth[one] < depth[at], depth[other] < depth[at]) {
                (true, false) => 1.0 - STAYS,
                (false, true) => STAYS,
                _ if back(one) && !back(other) => STAYS,
                _ if back(other) && !back(one) => 1.0 - STAYS,
                _ => by_condition(&input.insns[blocks[at].end - 1]),
            };
            guess.taken[at] = share;
            for (to, share) in [(one, share), (other, 1.0 - share)] {
                if !back(to) {
                    guess.times[to] += guess.times[at] * share;
                }
            }
        }
        Some(guess)
    }

    /// Whether there is a path to the block.
    pub(super) fn is_reached(&self, block: usize) -> bool {
        self.place[block] != NOWHERE
    }

    /// How often the block is reached.
    pub(super) fn times(&self, block: usize) -> f32 {
        self.times[block]
    }

    /// The share of times in which the block's condition holds.
    pub(super) fn taken(&self, block: usize) -> f32 {
        self.taken[block]
    }
}

fn by_condition(insn: &Insn) -> f32 {
    match insn {
        Insn::JumpIf { cond: Cond::Eq, src: Operand::Imm(_), .. } => EQUAL,
        Insn::JumpIf { cond: Cond::Ne, src: Operand::Imm(_), .. } => 1.0 - EQUAL,
        Insn::MayGoto { .. } => 1.0 - STAYS,
        _ => 0.5,
    }
}

/// The blocks with a path to them, in reverse postorder: each before its successors, but for those of a loop.
fn order(blocks: &[Block]) -> Vec<usize> {
    let mut seen = vec![false; blocks.len()];
    let mut order = Vec::with_capacity(blocks.len());
    seen[0] = true;
    let mut open = vec![(0, blocks[0].successors())];
    while let Some((at, successors)) = open.last_mut() {
        match successors.next() {
            Some(to) if !seen[to] => {
                seen[to] = true;
                open.push((to, blocks[to].successors()));
            }
            Some(_) => {}
            None => {
                order.push(*at);
                open.pop();
            }
        }
    }
    order.reverse();
    order
}

/// By block: how many loops it is in. `None` if the search takes too long.
fn depths(blocks: &[Block], order: &[usize], place: &[usize]) -> Option<Vec<u32>> {
    let mut before = vec![Vec::new(); blocks.len()];
    for &at in order {
        for to in blocks[at].successors() {
            before[to].push(at);
        }
    }
    let mut left = STEPS * blocks.len();
    let mut depth = vec![0; blocks.len()];
    let mut of = vec![usize::MAX; blocks.len()];
    for &head in order {
        let mut open: Vec<usize> =
            before[head].iter().copied().filter(|at| place[*at] >= place[head]).collect();
        if open.is_empty() {
            continue;
        }
        of[head] = head;
        depth[head] += 1;
        while let Some(at) = open.pop() {
            left = left.checked_sub(1)?;
            // What comes before the head does not belong to a loop that is entered there only.
            if of[at] != head && place[at] > place[head] {
                of[at] = head;
                depth[at] += 1;
                open.extend(&before[at]);
            }
        }
    }
    Some(depth)
}
