//! The order of basic blocks.
//!
//! LLVM's backend for BPF does not turn conditions round, so its loops have jumps that another order does not need. In
//! each function with a loop, blocks are put behind each other where control goes most often:
//!
//! ```text
//!   head: A; if x goto out                 goto head
//!         B; if y goto more          next: B; if y goto more
//!   join: C; goto head               join: C
//!   more: D; goto join               head: A; if not x goto next
//!   out:  E                          out:  E
//!                                    more: D; goto join
//! ```
//!
//! How often is a guess: a loop is done eight times and left once, constants are seldom equal, every other condition is
//! even. Pairs of blocks are joined to chains, those that save most first ([Pettis and
//! Hansen](https://doi.org/10.1145/93542.93550)); a jump that vanishes counts twice, since a condition is still there
//! when it falls through. The new order is taken only if the guess says that it saves a twentieth of all jumps.
//!
//! It assumes nothing of the program: each path has the same instructions in the same order but for jumps that
//! always go to the same place. A head of a loop is never skipped, because its round is charged there. A function
//! in which something is not understood stays as it is.

mod guess;

use skep_isa::Insn;
use skep_verifier::Fact;

use super::unroll::inverted;
use crate::parts::Origin;
use guess::Guess;

/// The most blocks of a function.
const MOST_BLOCKS: usize = 4096;
/// Of the cost of all jumps, the share that the new order may have.
const GAIN: f32 = 0.95;
/// What a pair is worth more that is in order already.
const STAY: f32 = 1.05;

/// What is put in order: instructions, where each comes from, and jumps with their targets as slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    pub(super) insns: &'a [Insn],
    pub(super) origins: &'a [Origin],
    /// By slot: the target of a jump.
    pub(super) targets: &'a [u32],
    /// By slot of the verified program.
    pub(super) facts: &'a [Fact],
    /// By slot of the verified program: whether a backward jump leads there.
    pub(super) heads: &'a [bool],
}

/// An instruction in the new order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) insn: Insn,
    pub(super) origin: Origin,
    /// The old slot, unless it was added.
    pub(super) from: Option<u32>,
    /// The old slot of its jump target.
    pub(super) target: Option<u32>,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Control leaves the function.
    Leaves,
    /// It goes to this block, by a jump if the last instruction is one.
    To(usize),
    /// To the first block if the last instruction's condition holds, else to the second.
    If(usize, usize),
}

#[derive(Clone, Copy, Debug)]
struct Block {
    start: usize,
    /// The slot after the last instruction.
    end: usize,
    ends: End,
}

impl Block {
    fn successors(&self) -> impl Iterator<Item = usize> + use<> {
        let (one, other) = match self.ends {
            End::Leaves => (None, None),
            End::To(to) => (Some(to), None),
            End::If(taken, next) => (Some(taken), Some(next)),
        };
        one.into_iter().chain(other)
    }
}

/// A function's instructions in a better order; `None` if it stays as it is.
pub(super) fn function(input: &Input<'_>, slots: std::ops::Range<usize>) -> Option<Vec<Placed>> {
    let blocks = blocks(input, slots)?;
    let guess = Guess::new(input, &blocks)?;
    let order = chains(input, &blocks, &guess);
    let stays: Vec<usize> = (0..blocks.len()).filter(|at| guess.is_reached(*at)).collect();
    let better = cost(input, &blocks, &guess, &order) < GAIN * cost(input, &blocks, &guess, &stays);
    better.then(|| write(input, &blocks, &order))
}

/// The basic blocks; `None` if control may run out of the function.
fn blocks(input: &Input<'_>, slots: std::ops::Range<usize>) -> Option<Vec<Block>> {
    let (start, end) = (slots.start, slots.end);
    let mut first = vec![false; slots.len() + 1];
    first[0] = true;
    first[slots.len()] = true;
    let mut loops = false;
    for slot in slots.clone() {
        let insn = &input.insns[slot];
        if insn.is_jump() {
            let target = input.targets[slot] as usize;
            *first.get_mut(target.checked_sub(start)?)? = true;
            loops |= target <= slot;
        }
        if insn.is_jump() || !falls(input, slot) {
            first[slot + 1 - start] = true;
        }
    }
    if !loops {
        return None;
    }
    // By slot: the block.
    let mut number = Vec::with_capacity(slots.len());
    let mut starts = Vec::new();
    for slot in slots.clone() {
        if first[slot - start] {
            starts.push(slot);
        }
        number.push(starts.len() - 1);
    }
    if starts.len() > MOST_BLOCKS {
        return None;
    }
    let ends = starts.iter().skip(1).copied().chain([end]);
    let blocks = starts.iter().zip(ends).enumerate().map(|(at, (&start_of, end_of))| {
        let last = end_of - 1;
        let target = || number.get(input.targets[last] as usize - start).copied();
        let next = || (at + 1 < starts.len()).then_some(at + 1);
        let ends = match input.insns[last] {
            Insn::Jump { .. } => End::To(target()?),
            _ if input.insns[last].is_jump() => End::If(target()?, next()?),
            _ if falls(input, last) => End::To(next()?),
            _ => End::Leaves,
        };
        Some(Block { start: start_of, end: end_of, ends })
    });
    let mut blocks = blocks.collect::<Option<Vec<Block>>>()?;
    for at in 0..blocks.len() {
        blocks[at].ends = match blocks[at].ends {
            End::Leaves => End::Leaves,
            End::To(to) => End::To(behind_jumps(input, &blocks, to)),
            End::If(a, b) => End::If(behind_jumps(input, &blocks, a), behind_jumps(input, &blocks, b)),
        };
    }
    Some(blocks)
}

/// Whether control may go on behind an instruction.
fn falls(input: &Input<'_>, slot: usize) -> bool {
    let origin = input.origins[slot];
    input.insns[slot].falls_through() && (origin.is_added() || !input.facts[origin.slot()].throws)
}

/// Where control gets from the start of a block that may only be a jump. No round is skipped that must be charged.
fn behind_jumps(input: &Input<'_>, blocks: &[Block], mut block: usize) -> usize {
    for _ in 0..4 {
        let Block { start, end, ends } = blocks[block];
        match ends {
            End::To(to) if end == start + 1 && is_only_a_jump(input, start) => block = to,
            _ => break,
        }
    }
    block
}

/// Whether the instruction always jumps, and nothing is charged there.
fn is_only_a_jump(input: &Input<'_>, slot: usize) -> bool {
    let origin = input.origins[slot];
    let reached = input.facts[origin.slot()].reached;
    matches!(input.insns[slot], Insn::Jump { .. })
        && reached
        && (origin.is_added() || !input.heads[origin.slot()])
}

/// Whether the last instruction's condition can be turned round.
fn turns(input: &Input<'_>, block: &Block) -> bool {
    matches!(input.insns[block.end - 1], Insn::JumpIf { .. })
}

/// The blocks in their new order, the function's first block first. Those without a path to them have no place.
fn chains(input: &Input<'_>, blocks: &[Block], guess: &Guess) -> Vec<usize> {
    let mut pairs = Vec::with_capacity(2 * blocks.len());
    for (at, block) in blocks.iter().enumerate().filter(|(at, _)| guess.is_reached(*at)) {
        let (times, share) = (guess.times(at), guess.taken(at));
        let stay = |to: usize| if to == at + 1 { STAY } else { 1.0 };
        match block.ends {
            End::Leaves => {}
            End::To(to) => pairs.push((2.0 * times * stay(to), at, to)),
            End::If(taken, next) if turns(input, block) => {
                pairs.push((times * (1.0 - share) * stay(next), at, next));
                pairs.push((times * share * stay(taken), at, taken));
            }
            End::If(_, next) => pairs.push((2.0 * times * stay(next), at, next)),
        }
    }
    // Stable: of pairs that are worth the same, the first stays first.
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    const NONE: usize = usize::MAX;
    let (mut next, mut before) = (vec![NONE; blocks.len()], vec![NONE; blocks.len()]);
    // At each end of a chain: its other end.
    let mut other: Vec<usize> = (0..blocks.len()).collect();
    for (_, from, to) in pairs {
        if to == 0 || next[from] != NONE || before[to] != NONE || other[from] == to {
            continue;
        }
        (next[from], before[to]) = (to, from);
        let (head, tail) = (other[from], other[to]);
        (other[head], other[tail]) = (tail, head);
    }
    let mut order = Vec::with_capacity(blocks.len());
    let mut placed = vec![false; blocks.len()];
    for block in (0..blocks.len()).filter(|at| guess.is_reached(*at)) {
        // The chain of the first block that has no place yet.
        let mut at = block;
        while !placed[at] && before[at] != NONE {
            at = before[at];
        }
        while at != NONE && !placed[at] {
            placed[at] = true;
            order.push(at);
            at = next[at];
        }
    }
    order
}

/// What jumps cost in an order: one that is taken, and one that is there for nothing else, count alike.
fn cost(input: &Input<'_>, blocks: &[Block], guess: &Guess, order: &[usize]) -> f32 {
    let followers = order.iter().skip(1).copied().chain([usize::MAX]);
    let of = |(&at, follower): (&usize, usize)| {
        let (times, share) = (guess.times(at), guess.taken(at));
        match blocks[at].ends {
            End::Leaves => 0.0,
            End::To(to) if to == follower => 0.0,
            End::To(_) => 2.0 * times,
            End::If(_, next) if next == follower => times * share,
            End::If(taken, _) if taken == follower && turns(input, &blocks[at]) => times * (1.0 - share),
            End::If(..) => times * (share + 2.0 * (1.0 - share)),
        }
    };
    order.iter().zip(followers).map(of).sum()
}

fn write(input: &Input<'_>, blocks: &[Block], order: &[usize]) -> Vec<Placed> {
    let mut code = Vec::new();
    let followers = order.iter().skip(1).copied().map(Some).chain([None]);
    for (&at, follower) in order.iter().zip(followers) {
        let block = &blocks[at];
        let last = block.end - 1;
        let copy = |slot: usize, target: Option<u32>| {
            let (insn, origin) = (input.insns[slot], input.origins[slot]);
            Placed { insn, origin, from: Some(slot as u32), target }
        };
        let start = |block: usize| blocks[block].start as u32;
        let added = |to: usize| {
            let insn = Insn::Jump { offset: 0, long: false };
            let origin = Origin::added(input.origins[last].slot());
            Placed { insn, origin, from: None, target: Some(start(to)) }
        };
        code.extend((block.start..last).map(|slot| copy(slot, None)));
        match block.ends {
            End::Leaves => code.push(copy(last, None)),
            End::To(to) if matches!(input.insns[last], Insn::Jump { .. }) => {
                if follower != Some(to) || !is_only_a_jump(input, last) {
                    code.push(copy(last, Some(start(to))));
                }
            }
            End::To(to) => {
                code.push(copy(last, None));
                if follower != Some(to) {
                    code.push(added(to));
                }
            }
            End::If(taken, next) if follower == Some(next) => {
                code.push(copy(last, Some(start(taken))));
            }
            End::If(taken, next) => {
                let turned = match input.insns[last] {
                    Insn::JumpIf { width, cond, dst, src, offset } if follower == Some(taken) => {
                        inverted(cond).map(|cond| Insn::JumpIf { width, cond, dst, src, offset })
                    }
                    _ => None,
                };
                match turned {
                    Some(insn) => code.push(Placed { insn, ..copy(last, Some(start(next))) }),
                    // Becomes one jump where the condition leads behind the other jump.
                    None => code.extend([copy(last, Some(start(taken))), added(next)]),
                }
            }
        }
    }
    code
}
