//! States that were walked before, so that what they cover need not be walked again.
//!
//! Where paths meet, the state is compared with the remembered ones of the same slot and the same calls. A
//! remembered state *subsumes* another if every value that is live is among what it stands for, up to the
//! names of ids: whatever can happen from the other can happen from the remembered one.
//!
//! Remembered states form a tree, each under the one last remembered on its path. A node is *open* while a
//! path below it is unfinished; since paths are walked depth first, the open nodes are exactly the ancestors
//! of the current path.
//!
//! ```text
//!   closed: all paths from it were walked     -> the new path may stop: nothing new can happen
//!   open: an ancestor
//!     progress since then (crate::domain::loops)     -> the new path may stop, and all below it now *depends* on
//!                                                that ancestor: its `entry`
//!     no progress, and the two are equal      -> refused: the program can go round for ever
//!     else                                    -> no reason to stop
//!   closed, but depending on an open one      -> the new path may stop only if there was progress since
//!                                                then, or nothing went round at all; it then depends on it too
//! ```
//!
//! # Why a program that is accepted ends
//!
//! A run follows the walked paths, and where one stopped, goes on from the state that subsumed it. If a run did
//! not end it would go along some circle of these for ever. Of the states on it, take the one that closed last:
//! only a stop at an ancestor leads there, and such a stop demands that a construct went round more often than
//! in the ancestor. So a construct is active all around the circle. Take the outermost whose count changes
//! there. No stop raises its count, since a stop leads to a state with the same list, or with one that is
//! smaller at its first difference; some stop lowers it; so walked steps raise it, each of which is a round
//! of that one invocation at run time. Of those there are only so many: the host ends it.
//!
//! A call with a callback ends for good after a known number of rounds. What was walked from a state behind so
//! many rounds says nothing of a state with fewer behind it, which may call once more: it is not subsumed.
//!
//! What the future does not read is not remembered, and the state itself forgets it there: a walk may not know
//! more than the state that stands for it. Forgetting is always sound, and happens also when the limit on
//! memory is reached.

use crate::domain::state::State;
use crate::domain::value::Value;
use crate::explore::fingerprint::{AsIs, Fingerprint};
use crate::explore::snapshot::{Ids, Snapshot, SnapshotArena, bits};
use crate::program::liveness::Liveness;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// The most states that are kept under one key.
const MAX_CHAIN: usize = 48;
/// Room is made at once for at most so many states.
const MANY_STATES: usize = 4096;
/// The most earlier states of a slot that a speculation is made by.
const MAX_EARLIER: usize = 32;
/// The most sets of constant registers that are told apart at one slot.
const MAX_MASKS: usize = 8;

/// What a visit to a meeting point found.
pub(crate) enum Visit {
    /// A finished state subsumes this one.
    Subsumed,
    /// An ancestor equals this one.
    Repeats,
    /// Nothing; the state is now remembered as this node.
    New(u32),
    /// Nothing, but the state was made to know less, as a speculation, and is remembered as this node.
    Speculative {
        node: u32,
        /// What the state was.
        exact: Box<State>,
        /// The invocation that came on since the state that the speculation was made by.
        invocation: u32,
    },
}

/// The remembered states.
pub(crate) struct Explored {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// By slot: 1 + index into `points`, 0 for none.
    point_of: Vec<u32>,
    points: Vec<Point>,
    filed: HashMap<u64, u32, BuildHasherDefault<AsIs>>,
    snapshots: SnapshotArena,
    ids: Ids,
    max_bytes: usize,
    /// So many bytes are taken by paths that were put aside, out of `max_bytes`.
    pub(crate) pending_bytes: usize,
    remembered: u64,
    /// The nodes since the first speculation that is not confirmed yet.
    journal: Option<Vec<u32>>,
    /// Invocations in which a speculation was wrong, ascending.
    exact: Vec<u32>,
}

struct Node {
    parent: u32,
    /// Unfinished paths and open children.
    open: u32,
    /// The next under the same key.
    next: u32,
    slot: u32,
    /// How many are above it.
    depth: u32,
    /// The one that was remembered before it in this slot, if that was not forgotten since.
    before: u32,
    /// The shallowest node that was open when a path from here stopped at it; `NONE` if there was none. All that
    /// can happen from here was walked once that one is closed.
    entry: u32,
    snapshot: Option<Snapshot>,
}

/// The sets of constant registers by which states of one slot are filed.
struct Point {
    masks: [u16; MAX_MASKS],
    count: usize,
    /// The node that was remembered last.
    latest: u32,
}

impl Explored {
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
            snapshots: SnapshotArena::with_capacity(states),
            ids: Ids::default(),
            max_bytes,
            pending_bytes: 0,
            remembered: 0,
            journal: None,
            exact: Vec::new(),
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
            let Node { parent, entry, .. } = *at;
            if at.snapshot.is_none() && entry == NONE {
                self.free.push(node);
            }
            if entry != NONE && entry != node && parent != NONE {
                self.depend(parent, entry);
            }
            node = parent;
        }
    }

    /// What happens below `node` is known once `entry`, one of its ancestors, is closed.
    fn depend(&mut self, node: u32, entry: u32) {
        let depth = self.nodes[entry as usize].depth;
        let before = self.nodes[node as usize].entry;
        if before == NONE || depth < self.nodes[before as usize].depth {
            self.nodes[node as usize].entry = entry;
        }
    }

    /// The open node on which a closed one depends, or `NONE`.
    fn open_entry(&mut self, node: u32) -> u32 {
        let mut at = self.nodes[node as usize].entry;
        let mut last = node;
        while at != NONE && at != last && self.nodes[at as usize].open == 0 {
            last = at;
            at = self.nodes[at as usize].entry;
            self.ids.work += 1;
        }
        let open = if at != NONE && self.nodes[at as usize].open > 0 { at } else { NONE };
        // The next time it is one step.
        if self.nodes[node as usize].entry != NONE {
            self.nodes[node as usize].entry = if open == NONE { node } else { open };
        }
        open
    }

    /// Compares the state that a path below `parent` brings to `slot` with what is remembered there, and
    /// remembers it if that says nothing. The state forgets what nobody reads from here on.
    pub(crate) fn visit(
        &mut self,
        state: &mut State,
        slot: usize,
        parent: u32,
        liveness: &Liveness,
    ) -> Visit {
        self.ids.work += forget_dead(state, slot, liveness);
        let point = match self.point_of[slot] {
            0 => {
                self.points.push(Point { masks: [0; MAX_MASKS], count: 0, latest: NONE });
                self.point_of[slot] = self.points.len() as u32;
                self.points.len() - 1
            }
            at => at as usize - 1,
        };
        let fingerprint = Fingerprint::of(state, slot);
        if let Some(visit) = self.find(state, slot, parent, point, &fingerprint) {
            return visit;
        }
        if let Some((invocation, exact)) = self.widen(state, slot, point) {
            // The speculation may be an old one.
            let fingerprint = Fingerprint::of(state, slot);
            match self.find(state, slot, parent, point, &fingerprint) {
                Some(Visit::Repeats) => state.copy_from(&exact),
                Some(visit) => return visit,
                None => {
                    let node = self.remember(state, slot, point, &fingerprint, parent);
                    return Visit::Speculative { node, exact, invocation };
                }
            }
        }
        Visit::New(self.remember(state, slot, point, &fingerprint, parent))
    }

    /// What the remembered states say of this one.
    fn find(
        &mut self,
        state: &State,
        slot: usize,
        parent: u32,
        point: usize,
        fingerprint: &Fingerprint,
    ) -> Option<Visit> {
        for at in 0..self.points[point].count {
            let mask = self.points[point].masks[at];
            if mask & !fingerprint.constants != 0 {
                continue;
            }
            let mut node = self.filed.get(&fingerprint.key(mask)).copied().unwrap_or(NONE);
            while node != NONE {
                let candidate = &self.nodes[node as usize];
                let next = candidate.next;
                if candidate.slot == slot as u32
                    && let Some(snapshot) = &candidate.snapshot
                    && !self.snapshots.goes_on_longer(snapshot, state)
                    && let Some(equal) = self.snapshots.subsumes(snapshot, state, &mut self.ids)
                {
                    let (open, snapshot) = (candidate.open > 0, *snapshot);
                    let entry = if open { node } else { self.open_entry(node) };
                    if entry == NONE {
                        return Some(Visit::Subsumed);
                    }
                    let progress = self.snapshots.progress(&snapshot, state);
                    if progress == Some(Ordering::Greater) || !open && progress.is_some() {
                        self.depend(parent, entry);
                        return Some(Visit::Subsumed);
                    }
                    if open && equal {
                        return Some(Visit::Repeats);
                    }
                }
                node = next;
            }
        }
        None
    }

    /// Speculations what holds in all rounds, if the path has come round: makes the state know less. Returns the
    /// invocation that came on, and what the state was.
    fn widen(&mut self, state: &mut State, slot: usize, point: usize) -> Option<(u32, Box<State>)> {
        if state.loops.as_slice().is_empty() {
            return None;
        }
        let mut best: Option<(usize, Snapshot, u32)> = None;
        let mut at = self.points[point].latest;
        for _ in 0..MAX_EARLIER {
            let Some(node) = self.nodes.get(at as usize) else { break };
            self.ids.work += 1;
            if node.slot == slot as u32
                && node.open > 0
                && let Some(snapshot) = node.snapshot
                && self.snapshots.progress(&snapshot, state) == Some(Ordering::Greater)
                && let Some(invocation) = self.snapshots.differs_in(&snapshot, state)
                && self.exact.binary_search(&invocation).is_err()
            {
                let distance = self.snapshots.distance(&snapshot, state);
                if best.as_ref().is_none_or(|(least, ..)| distance < *least) {
                    best = Some((distance, snapshot, invocation));
                }
            }
            at = node.before;
        }
        let (_, snapshot, invocation) = best?;
        let mut exact = Box::new(State::default());
        exact.copy_from(state);
        self.ids.work += (exact.bytes() / size_of::<Value>()) as u64;
        self.snapshots.widen(&snapshot, state).then_some((invocation, exact))
    }

    /// Speculations nothing about that invocation any more.
    pub(crate) fn never_widen(&mut self, invocation: u32) {
        if let Err(at) = self.exact.binary_search(&invocation) {
            self.exact.insert(at, invocation);
        }
    }

    /// Remembers which nodes are made, the last one being `node`; returns how many there were before it.
    pub(crate) fn checkpoint(&mut self, node: u32) -> usize {
        let journal = self.journal.get_or_insert_default();
        match journal.last() {
            Some(last) if *last == node => journal.len() - 1,
            _ => {
                journal.push(node);
                journal.len() - 1
            }
        }
    }

    pub(crate) fn drop_journal(&mut self) {
        self.journal = None;
    }

    /// Forgets all nodes that were made since.
    pub(crate) fn roll_back(&mut self, mark: usize) {
        let Some(journal) = &mut self.journal else { return };
        for at in journal.drain(mark..) {
            let node = &mut self.nodes[at as usize];
            node.open = 0;
            if node.snapshot.take().is_some() {
                self.remembered -= 1;
            }
            self.ids.work += 1;
        }
    }

    /// Whether all paths from a node have ended.
    pub(crate) fn is_closed(&self, node: u32) -> bool {
        self.nodes[node as usize].open == 0
    }

    fn remember(
        &mut self,
        state: &State,
        slot: usize,
        point: usize,
        fingerprint: &Fingerprint,
        parent: u32,
    ) -> u32 {
        let mut mask = fingerprint.constants;
        let at = point;
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
        let key = fingerprint.key(mask);
        let before = std::mem::replace(&mut point.latest, NONE);
        let point = at;
        if self.bytes() + self.pending_bytes > self.max_bytes {
            self.forget_all();
        }
        let snapshot = self.snapshots.take(state);
        self.ids.work += snapshot.work();
        self.remembered += 1;
        let head = self.filed.get(&key).copied().unwrap_or(NONE);
        let depth = if parent == NONE { 0 } else { self.nodes[parent as usize].depth + 1 };
        let slot = slot as u32;
        let node =
            Node { parent, open: 1, next: head, slot, depth, before, entry: NONE, snapshot: Some(snapshot) };
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
        self.points[point].latest = at;
        if let Some(journal) = &mut self.journal {
            journal.push(at);
        }
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
        if node.snapshot.take().is_some() {
            self.remembered -= 1;
            if node.open == 0 && node.entry == NONE {
                self.free.push(at);
            }
        }
    }

    fn forget_all(&mut self) {
        // Where open paths alone fill the memory this comes with every step: it must count against the limit.
        self.ids.work += (self.nodes.len() + self.filed.len()) as u64;
        self.filed.clear();
        for point in &mut self.points {
            point.count = 0;
        }
        for at in 0..self.nodes.len() {
            self.nodes[at].next = NONE;
            self.forget(at as u32);
        }
        self.snapshots.clear();
    }

    /// About how many bytes everything that is remembered takes.
    pub(crate) fn bytes(&self) -> usize {
        self.snapshots.bytes() + self.tree_bytes() + self.filed.len() * size_of::<(u64, u32)>()
    }

    /// About how many bytes the tree of open states takes, which cannot be forgotten.
    fn tree_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
    }

    /// About how many bytes it takes to go on where each path was left, which cannot be forgotten.
    pub(crate) fn bytes_of_paths(&self) -> usize {
        self.pending_bytes + self.tree_bytes()
    }
}

/// Makes the state know no more than what the future reads.
///
/// This is not for tidiness: what is dead must not have a say in what follows. Else a dead number that is linked
/// to a live one could rule out a branch, and the remembered state, in which it does not appear, would cover
/// states for which the branch is open.
///
/// Returns how many values that was about.
fn forget_dead(state: &mut State, slot: usize, liveness: &Liveness) -> u64 {
    let mut work = 0;
    for at in 0..state.frames().len() {
        let live = match state.frames().get(at + 1) {
            Some(callee) => liveness.during_call(callee.call_slot as usize),
            None => *liveness.before(slot),
        };
        let frame = &mut state.frames_mut()[at];
        // Why a register cannot be read is worth keeping.
        let made = frame.regs.made();
        for reg in bits(made & !live.regs) {
            frame.regs.0[reg] = Value::UNINIT;
        }
        for reg in bits(made & live.regs & !live.precise) {
            if frame.regs.0[reg].is_scalar() {
                frame.regs.0[reg] = Value::UNKNOWN;
            }
        }
        work += frame.stack.cells.len() as u64 + 1;
        frame.stack.forget_dead(live.stack, live.stack_precise);
    }
    work
}
