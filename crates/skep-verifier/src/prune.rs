//! States that were walked before, so that what they cover need not be walked again.
//!
//! Where paths meet, the state is compared with the remembered ones of the same slot and the same calls. A
//! remembered state *covers* another if every value that is live is among what it stands for, up to the
//! names of ids: whatever can happen from the other can happen from the remembered one.
//!
//! ```text
//!   remembered, all paths from it walked to the end   -> the new path may stop: nothing new can happen
//!   remembered, still being walked: an ancestor       -> no reason to stop, but if the two are equal the
//!                                                        program can go round for ever
//! ```
//!
//! Remembered states form a tree, each under the one last remembered on its path. A node is *open* while a
//! path below it is unfinished; since paths are walked depth first, the open nodes are exactly the ancestors
//! of the current path.
//!
//! What the future does not read is not remembered, and the state itself forgets it there: a walk may not know
//! more than the state that stands for it. Forgetting is always sound, and happens also when the limit on
//! memory is reached.

use crate::flow::Flow;
use crate::outline::{AsIs, Outline};
use crate::snapshot::{Ids, Shots, Snapshot, bits};
use crate::stack::ByteSet;
use crate::state::State;
use crate::value::Value;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// The most states that are kept under one key.
const MAX_CHAIN: usize = 48;
/// Room is made at once for at most so many states.
const MANY_STATES: usize = 4096;
/// The most sets of constant registers that are told apart at one slot.
const MAX_MASKS: usize = 8;

/// What a visit to a meeting point found.
pub(crate) enum Visit {
    /// A finished state covers this one.
    Covered,
    /// An ancestor equals this one.
    Repeats,
    /// Nothing; the state is now remembered as this node.
    New(u32),
}

/// The remembered states.
pub(crate) struct Memory {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// By slot: 1 + index into `points`, 0 for none.
    point_of: Vec<u32>,
    points: Vec<Point>,
    filed: HashMap<u64, u32, BuildHasherDefault<AsIs>>,
    shots: Shots,
    ids: Ids,
    max_bytes: usize,
    remembered: u64,
}

struct Node {
    parent: u32,
    /// Unfinished paths and open children.
    open: u32,
    /// The next under the same key.
    next: u32,
    slot: u32,
    shot: Option<Snapshot>,
}

/// The sets of constant registers by which states of one slot are filed.
#[derive(Default)]
struct Point {
    masks: [u16; MAX_MASKS],
    count: usize,
}

impl Memory {
    /// For a program of so many slots, in so many of which paths meet.
    pub(crate) fn new(slots: usize, joins: usize, max_bytes: usize) -> Self {
        // As many states as most programs come to, so that little is moved while they grow.
        let states = (2 * joins).min(MANY_STATES);
        Self {
            nodes: Vec::with_capacity(states),
            free: Vec::new(),
            point_of: vec![0; slots],
            points: Vec::with_capacity(joins.min(MANY_STATES)),
            filed: HashMap::with_capacity_and_hasher(states, BuildHasherDefault::default()),
            shots: Shots::with_capacity(states),
            ids: Ids::default(),
            max_bytes,
            remembered: 0,
        }
    }

    /// How many values were compared or copied so far.
    pub(crate) fn work(&self) -> u64 {
        self.ids.work
    }

    /// How many states are remembered now.
    pub(crate) fn remembered(&self) -> u64 {
        self.remembered
    }

    /// A path begins below `node`.
    pub(crate) fn open(&mut self, node: u32) {
        if node != NONE {
            self.nodes[node as usize].open += 1;
        }
    }

    /// A path below `node` has ended.
    pub(crate) fn close(&mut self, mut node: u32) {
        while node != NONE {
            let at = &mut self.nodes[node as usize];
            at.open -= 1;
            if at.open > 0 {
                return;
            }
            let parent = at.parent;
            if at.shot.is_none() {
                self.free.push(node);
            }
            node = parent;
        }
    }

    /// Compares the state that a path below `parent` brings to `slot` with what is remembered there, and
    /// remembers it if that says nothing. The state forgets what nobody reads from here on.
    pub(crate) fn visit(&mut self, state: &mut State, slot: usize, parent: u32, flow: &Flow) -> Visit {
        self.ids.work += forget_dead(state, slot, flow);
        let outline = Outline::of(state, slot);
        let point = match self.point_of[slot] {
            0 => {
                self.points.push(Point::default());
                self.point_of[slot] = self.points.len() as u32;
                self.points.len() - 1
            }
            at => at as usize - 1,
        };
        for at in 0..self.points[point].count {
            let mask = self.points[point].masks[at];
            if mask & !outline.constants != 0 {
                continue;
            }
            let mut node = self.filed.get(&outline.key(mask)).copied().unwrap_or(NONE);
            while node != NONE {
                let candidate = &self.nodes[node as usize];
                let next = candidate.next;
                if candidate.slot == slot as u32
                    && let Some(shot) = &candidate.shot
                    && let Some(equal) = self.shots.covers(shot, state, &mut self.ids)
                {
                    if candidate.open == 0 {
                        return Visit::Covered;
                    }
                    if equal {
                        return Visit::Repeats;
                    }
                }
                node = next;
            }
        }
        let mut mask = outline.constants;
        let point = &mut self.points[point];
        if !point.masks[..point.count].contains(&mask) {
            if point.count == MAX_MASKS {
                mask = 0;
                point.masks[0] = 0; // states filed under the mask that was here are forgotten
            } else {
                point.masks[point.count] = mask;
                point.count += 1;
            }
        }
        Visit::New(self.remember(state, slot, outline.key(mask), parent))
    }

    fn remember(&mut self, state: &State, slot: usize, key: u64, parent: u32) -> u32 {
        if self.shots.bytes() > self.max_bytes {
            self.forget_all();
        }
        let shot = self.shots.take(state);
        self.ids.work += shot.work();
        self.remembered += 1;
        let head = self.filed.get(&key).copied().unwrap_or(NONE);
        let node = Node { parent, open: 1, next: head, slot: slot as u32, shot: Some(shot) };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.filed.insert(key, at);
        self.shorten(at);
        at
    }

    /// Forgets what is too far down under one key.
    fn shorten(&mut self, head: u32) {
        let mut at = head;
        for _ in 1..MAX_CHAIN {
            at = self.nodes[at as usize].next;
            if at == NONE {
                return;
            }
        }
        let mut rest = std::mem::replace(&mut self.nodes[at as usize].next, NONE);
        while rest != NONE {
            let next = std::mem::replace(&mut self.nodes[rest as usize].next, NONE);
            self.forget(rest);
            rest = next;
        }
    }

    fn forget(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        if node.shot.take().is_some() {
            self.remembered -= 1;
            if node.open == 0 {
                self.free.push(at);
            }
        }
    }

    fn forget_all(&mut self) {
        // Where open paths alone fill the memory this comes with every step: it must count against the limit.
        self.ids.work += self.nodes.len() as u64;
        self.filed.clear();
        for point in &mut self.points {
            point.count = 0;
        }
        for at in 0..self.nodes.len() {
            self.nodes[at].next = NONE;
            self.forget(at as u32);
        }
        self.shots.clear();
    }

    /// About how many bytes everything that is remembered takes.
    pub(crate) fn bytes(&self) -> usize {
        self.shots.bytes() + self.tree_bytes() + self.filed.len() * size_of::<(u64, u32)>()
    }

    /// About how many bytes the tree of open states takes, which cannot be forgotten.
    pub(crate) fn tree_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
    }
}

/// Makes the state know no more than what the future reads.
///
/// This is not for tidiness: what is dead must not have a say in what follows. Else a dead number that is tied
/// to a live one could rule out a branch, and the remembered state, in which it does not appear, would cover
/// states for which the branch is open.
///
/// Returns how many values that was about.
fn forget_dead(state: &mut State, slot: usize, flow: &Flow) -> u64 {
    let mut work = 0;
    for at in 0..state.frames().len() {
        let live = match state.frames().get(at + 1) {
            Some(callee) => flow.during_call(callee.call_slot as usize),
            None => *flow.before(slot),
        };
        let frame = &mut state.frames_mut()[at];
        // Why a register cannot be read is worth keeping.
        let readable = frame.regs.readable();
        for reg in bits(readable & !live.regs) {
            frame.regs.0[reg] = Value::UNINIT;
        }
        for reg in bits(readable & live.regs & !live.matter) {
            if frame.regs.0[reg].is_scalar() {
                frame.regs.0[reg] = Value::UNKNOWN;
            }
        }
        work += frame.stack.cells.len() as u64 + 1;
        if !frame.stack.init.is_empty() {
            // Cells hold initialised bytes only, so nothing else needs to be found out.
            let init = &frame.stack.init;
            let alive = ByteSet::from_units(live.stack, init);
            let matters = ByteSet::from_units(live.stack_matters, init);
            frame.stack.keep_only(alive, &matters);
        }
    }
    work
}
