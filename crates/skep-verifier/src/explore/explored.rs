//! The explored states, so that states they subsume need not be walked again.
//!
//! Where paths meet, the state is compared with the explored ones of the same slot and the same calls. An explored
//! state *subsumes* another if it includes every live value of the other, up to the names of ids: whatever can happen
//! from the other can happen from the explored one. Once all paths from the explored one have ended, numbers on which
//! none of them relied are not compared any more ([`crate::explore::trail`]).
//!
//! Explored states form a tree, each below the last one kept on its path. A node is *open* while a path below it is
//! unfinished. Since the walk is depth first, the open nodes are exactly the ancestors of the current path.
//!
//! ```text
//!   closed: all paths from it were walked     -> the new path may stop: nothing new can happen
//!   open: an ancestor
//!     progress since then (crate::domain::loops)     -> the new path may stop, and all below it now *depends* on
//!                                                that ancestor: its `entry`
//!     no progress, and the two are equal      -> refused: the program can loop for ever
//!     else                                    -> no reason to stop
//!   closed, but depending on an open one      -> the new path may stop only if there was progress since
//!                                                then, or no construct was active; it then depends on it too
//! ```
//!
//! # Why an accepted program terminates
//!
//! A run follows walked paths; where one stopped, it goes on from the subsuming state. A run without end would go along
//! a cycle of these for ever. Take the state on the cycle that closed last. Only a stop at an ancestor leads there, and
//! such a stop demands that a construct made more iterations than in the ancestor. So a construct is active all along
//! the cycle. Take the outermost construct whose count changes there. No stop raises its count: a stop leads to a state
//! with the same list, or with one that is smaller at the first difference. Some stop lowers it, so walked steps raise
//! it, and each of these is an iteration of that one invocation at run time. The host bounds their number.
//!
//! A call with a callback ends for good after a known number of iterations. A walk from a state after that many says
//! nothing about a state after fewer, which may call once more: it does not subsume it.
//!
//! Dead values are not kept, and the state itself forgets them: a walk may not know more than the state that subsumes
//! it. Forgetting is always sound. It also happens when the limit on memory is reached.

use crate::domain::needs::Needs;
use crate::domain::state::{MAX_FRAMES, State};
use crate::domain::value::Value;
use crate::explore::fingerprint::{AsIs, Fingerprint, hash_of, key};
use crate::explore::snapshot::{Ids, Place, Snapshot, SnapshotArena, bits};
use crate::program::liveness::Liveness;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// The most states that are kept under one key.
const MAX_CHAIN: usize = 48;
/// How many of them are those that were kept first.
const FIRST_KEPT: usize = 8;
/// Room is made at once for at most so many states.
const MANY_STATES: usize = 4096;
/// The most earlier states of a slot that widening compares with.
const MAX_EARLIER: usize = 32;
/// So many explored states that differ from a new one in numbers alone make it general.
const ALIKE: usize = 3;
/// Among so many that were kept last.
const LOOK: usize = 8;
/// The most sets of constant registers that are told apart at one slot.
const MAX_MASKS: usize = 16;

/// What a state that no explored one subsumes may be made of, where paths meet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guess {
    /// The exact state alone.
    Exact,
    /// A widened one, if it is of a later iteration.
    Iteration,
    /// A general one ([`crate::explore::generalize`]).
    General,
}

/// The result of a visit where paths meet.
pub(crate) enum Visit {
    /// The state of this node subsumes this one.
    Subsumed(u32),
    /// An ancestor equals this one.
    Repeats,
    /// No explored state subsumes it; it is now kept as this node.
    New(u32),
    /// The same, but the state was widened speculatively, and is kept as this node.
    Speculative {
        node: u32,
        /// The state before widening.
        exact: Box<State>,
        /// The numbers that were widened.
        widened: Box<Needs>,
        /// Whether it was not widened for the sake of an iteration ([`crate::explore::generalize`]).
        general: bool,
    },
}

/// The explored states.
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
    /// Bytes of pending paths, which count against `max_bytes`.
    pub(crate) pending_bytes: usize,
    kept: u64,
    /// The nodes since the first speculation that is not confirmed yet.
    journal: Option<Vec<u32>>,
    /// By slot: numbers that are not widened there, since a speculation about them failed.
    exact: HashMap<u32, Box<Needs>>,
}

struct Node {
    parent: u32,
    /// Unfinished paths and open children.
    open: u32,
    /// The next under the same key.
    next: u32,
    slot: u32,
    /// The number of its ancestors.
    depth: u32,
    /// The one kept before it in this slot, unless that was forgotten.
    before: u32,
    /// The shallowest open node at which a path from here stopped; `NONE` if there was none. Once that node is closed,
    /// everything that can happen from here was walked.
    entry: u32,
    /// The hash of its fingerprint, and the constants by which it is filed.
    hash: u64,
    mask: u16,
    /// Where the last state that it was compared with differed, if that is known.
    differs: Option<Place>,
    snapshot: Option<Snapshot>,
}

/// The sets of constant registers by which states of one slot are filed.
struct Point {
    masks: [u16; MAX_MASKS],
    /// How many states are filed by each.
    filed: [u32; MAX_MASKS],
    count: usize,
    /// The constants that some settled state needs: by these alone, later ones are filed at once.
    needed: Option<u16>,
    /// The node that was kept last.
    latest: u32,
}

impl Point {
    const NEW: Self =
        Self { masks: [0; MAX_MASKS], filed: [0; MAX_MASKS], count: 0, needed: None, latest: NONE };

    /// A set to file by: the wanted one, or a part of it if there is no room for more sets.
    fn mask_for(&mut self, wanted: u16) -> Option<u16> {
        let known = &self.masks[..self.count];
        if known.contains(&wanted) {
            return Some(wanted);
        }
        if self.count == MAX_MASKS {
            return known
                .iter()
                .copied()
                .filter(|mask| mask & !wanted == 0)
                .max_by_key(|mask| mask.count_ones());
        }
        (self.masks[self.count], self.filed[self.count]) = (wanted, 0);
        self.count += 1;
        Some(wanted)
    }

    fn place(&self, mask: u16) -> Option<usize> {
        self.masks[..self.count].iter().position(|known| *known == mask)
    }

    /// One more state is filed by that set.
    fn add(&mut self, mask: u16) {
        if let Some(at) = self.place(mask) {
            self.filed[at] += 1;
        }
    }

    /// One less.
    fn remove(&mut self, mask: u16) {
        let Some(at) = self.place(mask) else { return };
        self.filed[at] = self.filed[at].saturating_sub(1);
        if self.filed[at] == 0 {
            self.count -= 1;
            self.masks[at] = self.masks[self.count];
            self.filed[at] = self.filed[self.count];
        }
    }
}

impl Explored {
    /// For a program of so many slots, in so many of which paths meet.
    pub(crate) fn new(slots: usize, joins: usize, max_bytes: usize) -> Self {
        // As many states as most programs have, so that growing moves little.
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
            kept: 0,
            journal: None,
            exact: HashMap::new(),
        }
    }

    /// How many values were compared or copied so far.
    pub(crate) fn work(&self) -> u64 {
        self.ids.work
    }

    /// Counts work that others did.
    pub(crate) fn charge(&mut self, work: u64) {
        self.ids.work += work;
    }

    /// How many states are kept now.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
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

    /// All paths from a node were walked, and need these numbers. Leaves out those of which it knows nothing.
    pub(crate) fn settle(&mut self, node: u32, needs: &mut Needs) {
        let Some(snapshot) = &mut self.nodes[node as usize].snapshot else { return };
        self.ids.work += 1;
        let needed = self.snapshots.settle(snapshot, needs);
        let Node { mask, slot, .. } = self.nodes[node as usize];
        if let Some(point) = self.point_at(slot) {
            point.needed = Some(point.needed.unwrap_or(0) | needed);
        }
        if mask & !needed != 0 {
            self.file_again(node, needed);
        }
    }

    fn point_at(&mut self, slot: u32) -> Option<&mut Point> {
        let at = (self.point_of[slot as usize] as usize).checked_sub(1)?;
        self.points.get_mut(at)
    }

    /// Files a settled node by its needed constants alone: it may subsume states with others.
    fn file_again(&mut self, at: u32, needed: u16) {
        let Node { slot, hash, mask, next, snapshot: Some(snapshot), .. } = &self.nodes[at as usize] else {
            return;
        };
        let (hash, mask, next) = (*hash, *mask, *next);
        let Some(point) = (self.point_of[*slot as usize] as usize).checked_sub(1) else { return };
        let Some(new) = self.points[point].mask_for(mask & needed) else { return };
        if new == mask {
            return;
        }
        let key_by = |by: u16| {
            let constants = self.snapshots.top_constants(snapshot).filter(|(reg, _)| by & 1 << reg != 0);
            key(hash, by, constants.map(|(reg, constant)| hash_of(reg, constant)))
        };
        let (old, new_key) = (key_by(mask), key_by(new));
        // Takes it out of its chain.
        match self.filed.get(&old).copied() {
            Some(head) if head == at && next == NONE => {
                self.filed.remove(&old);
            }
            Some(head) if head == at => {
                self.filed.insert(old, next);
            }
            Some(mut before) => {
                while before != NONE && self.nodes[before as usize].next != at {
                    before = self.nodes[before as usize].next;
                    self.ids.work += 1;
                }
                if before == NONE {
                    return;
                }
                self.nodes[before as usize].next = next;
            }
            None => return,
        }
        let head = self.filed.insert(new_key, at).unwrap_or(NONE);
        let node = &mut self.nodes[at as usize];
        (node.next, node.mask) = (head, new);
        self.points[point].remove(mask);
        self.points[point].add(new);
        self.shorten(at);
    }

    /// The numbers that a state needs which the node subsumes; `needs` is empty before. Returns how many frames have
    /// needs.
    pub(crate) fn needs(&self, node: u32, needs: &mut Needs) -> usize {
        match &self.nodes[node as usize].snapshot {
            Some(snapshot) => self.snapshots.needs(snapshot, needs),
            None => {
                *needs = Needs::ALL;
                MAX_FRAMES
            }
        }
    }

    /// Makes `node` depend on `entry`, one of its ancestors.
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
        // Path compression.
        if self.nodes[node as usize].entry != NONE {
            self.nodes[node as usize].entry = if open == NONE { node } else { open };
        }
        open
    }

    /// Compares the state of a path below `parent` with the explored ones of `slot`, and keeps it if none subsumes it.
    /// The state forgets dead values.
    pub(crate) fn visit(
        &mut self,
        state: &mut State,
        slot: usize,
        parent: u32,
        guess: Guess,
        liveness: &Liveness,
    ) -> Visit {
        let (work, made) = forget_dead(state, slot, liveness);
        self.ids.work += work;
        let point = match self.point_of[slot] {
            0 => {
                self.points.push(Point::NEW);
                self.point_of[slot] = self.points.len() as u32;
                self.points.len() - 1
            }
            at => at as usize - 1,
        };
        let fingerprint = Fingerprint::of(state, made, slot);
        if let Some(visit) = self.find(state, slot, parent, point, &fingerprint) {
            return visit;
        }
        let guessed = match guess {
            Guess::Exact => None,
            Guess::Iteration => self.widen(state, slot, point),
            Guess::General => self.generalize(state, slot, point, fingerprint.hash),
        };
        if let Some((widened, exact)) = guessed {
            // The general state may be an explored one.
            let fingerprint = Fingerprint::of(state, made, slot);
            match self.find(state, slot, parent, point, &fingerprint) {
                Some(Visit::Repeats) => state.copy_from(&exact),
                Some(visit) => return visit,
                None => {
                    let node = self.keep(state, slot, point, &fingerprint, parent);
                    let general = guess == Guess::General;
                    return Visit::Speculative { node, exact, widened, general };
                }
            }
        }
        Visit::New(self.keep(state, slot, point, &fingerprint, parent))
    }

    /// What the explored states say about this one.
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
                    && !candidate.differs.is_some_and(|place| {
                        self.snapshots.still_differs(snapshot, place, state, &mut self.ids)
                    })
                    && !self.snapshots.goes_on_longer(snapshot, state)
                {
                    let (open, snapshot) = (candidate.open > 0, *snapshot);
                    let entry = if open { node } else { self.open_entry(node) };
                    // Whether the path may stop here if the candidate subsumes it. Else it may not equal an open one.
                    let ends = entry == NONE || {
                        let progress = self.snapshots.progress(&snapshot, state);
                        progress == Some(Ordering::Greater) || !open && progress.is_some()
                    };
                    if ends || open {
                        if self.snapshots.subsumes(&snapshot, state, &mut self.ids, !ends) {
                            if !ends {
                                return Some(Visit::Repeats);
                            }
                            if entry != NONE {
                                self.depend(parent, entry);
                            }
                            return Some(Visit::Subsumed(node));
                        }
                        if self.ids.place.is_some() {
                            self.nodes[node as usize].differs = self.ids.place;
                        }
                    }
                }
                node = next;
            }
        }
        None
    }

    /// Widens the state if the path came back here with progress. Returns the widened numbers and the exact state.
    fn widen(&mut self, state: &mut State, slot: usize, point: usize) -> Option<(Box<Needs>, Box<State>)> {
        if state.loops.as_slice().is_empty() {
            return None;
        }
        let mut best: Option<(usize, Snapshot)> = None;
        let mut at = self.points[point].latest;
        for _ in 0..MAX_EARLIER {
            let Some(node) = self.nodes.get(at as usize) else { break };
            self.ids.work += 1;
            if node.slot == slot as u32
                && node.open > 0
                && let Some(snapshot) = node.snapshot
                && self.snapshots.progress(&snapshot, state) == Some(Ordering::Greater)
                && self.snapshots.differ_in_numbers(&snapshot, state, &mut self.ids)
            {
                let distance = self.snapshots.distance(&snapshot, state);
                if best.as_ref().is_none_or(|(least, ..)| distance < *least) {
                    best = Some((distance, snapshot));
                }
            }
            at = node.before;
        }
        let (_, snapshot) = best?;
        self.guess(state, slot, |snapshots, state, but, widened| {
            snapshots.widen(&snapshot, state, but, widened)
        })
    }

    /// Generalizes the state, whose fingerprint has that hash, if some explored states are like it. Returns the
    /// forgotten numbers and the exact state.
    fn generalize(
        &mut self,
        state: &mut State,
        slot: usize,
        point: usize,
        hash: u64,
    ) -> Option<(Box<Needs>, Box<State>)> {
        let mut alike = 0;
        let mut at = self.points[point].latest;
        for looked in 0..LOOK {
            if alike + LOOK - looked < ALIKE {
                return None;
            }
            let node = self.nodes.get_mut(at as usize)?;
            self.ids.work += 1;
            if node.slot == slot as u32
                && node.open == 0
                && node.entry == NONE
                && node.hash == hash
                && let Some(snapshot) = &node.snapshot
                && !node
                    .differs
                    .is_some_and(|place| self.snapshots.still_differs_in_more(place, state, &mut self.ids))
            {
                if self.snapshots.differ_in_numbers(snapshot, state, &mut self.ids) {
                    alike += 1;
                } else {
                    node.differs = self.ids.place;
                }
                if alike == ALIKE {
                    let snapshot = *snapshot;
                    return self.guess(state, slot, |snapshots, state, but, widened| {
                        snapshots.generalize(&snapshot, state, but, widened)
                    });
                }
            }
            at = node.before;
        }
        None
    }

    /// Changes a state by `make`, but for the numbers about which a guess failed at the slot. Returns the numbers that
    /// changed and the exact state.
    fn guess(
        &mut self,
        state: &mut State,
        slot: usize,
        make: impl FnOnce(&SnapshotArena, &mut State, &Needs, &mut Needs) -> bool,
    ) -> Option<(Box<Needs>, Box<State>)> {
        let mut exact = Box::new(State::default());
        exact.copy_from(state);
        self.ids.work += (exact.bytes() / size_of::<Value>()) as u64;
        let mut widened = Box::new(Needs::default());
        let but = self.exact.get(&(slot as u32)).map_or(&Needs::NONE, |but| but);
        make(&self.snapshots, state, but, &mut widened).then_some((widened, exact))
    }

    /// Numbers that are not to be widened at a slot from now on.
    pub(crate) fn never_widen(&mut self, slot: usize, numbers: &Needs) {
        self.exact.entry(slot as u32).or_default().join(numbers);
    }

    /// Begins to journal new nodes, `node` being the last one; returns how many there were before it.
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

    /// Forgets all nodes made since `mark`.
    pub(crate) fn roll_back(&mut self, mark: usize) {
        let Some(journal) = &mut self.journal else { return };
        for at in journal.drain(mark..) {
            let node = &mut self.nodes[at as usize];
            node.open = 0;
            let Node { slot, mask, .. } = *node;
            if node.snapshot.take().is_some() {
                self.kept -= 1;
                let point = (self.point_of[slot as usize] as usize).checked_sub(1);
                if let Some(point) = point.and_then(|at| self.points.get_mut(at)) {
                    point.remove(mask);
                }
            }
            self.ids.work += 1;
        }
    }

    /// Whether all paths from a node have ended.
    pub(crate) fn is_closed(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.open == 0)
    }

    fn keep(
        &mut self,
        state: &mut State,
        slot: usize,
        point: usize,
        fingerprint: &Fingerprint,
        parent: u32,
    ) -> u32 {
        let at = point;
        let point = &mut self.points[point];
        let mask =
            point.mask_for(fingerprint.constants & point.needed.unwrap_or(u16::MAX)).unwrap_or_else(|| {
                (point.masks[0], point.filed[0]) = (0, 0); // states filed under the mask that was here are forgotten
                0
            });
        let key = fingerprint.key(mask);
        let before = std::mem::replace(&mut point.latest, NONE);
        let point = at;
        if self.bytes() + self.pending_bytes > self.max_bytes {
            self.forget_all();
        }
        let snapshot = self.snapshots.take(state);
        self.ids.work += snapshot.work();
        self.kept += 1;
        let head = self.filed.get(&key).copied().unwrap_or(NONE);
        let depth = if parent == NONE { 0 } else { self.nodes[parent as usize].depth + 1 };
        let slot = slot as u32;
        let (hash, snapshot) = (fingerprint.hash, Some(snapshot));
        let node = Node {
            parent,
            open: 1,
            next: head,
            slot,
            depth,
            before,
            entry: NONE,
            hash,
            mask,
            differs: None,
            snapshot,
        };
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
        self.points[point].add(mask);
        if let Some(journal) = &mut self.journal {
            journal.push(at);
        }
        self.shorten(at);
        at
    }

    /// Forgets a state in the chain of one key if there are too many. The last ones are kept, and the first: a loop is
    /// entered with those, so a path that comes to the loop again is as they are.
    fn shorten(&mut self, head: u32) {
        let (mut at, mut last_kept, mut len) = (head, head, 0);
        while at != NONE && len <= MAX_CHAIN {
            len += 1;
            if len == MAX_CHAIN - FIRST_KEPT {
                last_kept = at;
            }
            at = self.nodes[at as usize].next;
        }
        if len <= MAX_CHAIN {
            return;
        }
        let gone = self.nodes[last_kept as usize].next;
        let next = std::mem::replace(&mut self.nodes[gone as usize].next, NONE);
        self.nodes[last_kept as usize].next = next;
        self.forget(gone);
    }

    fn forget(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        if node.snapshot.take().is_some() {
            self.kept -= 1;
            if node.open == 0 && node.entry == NONE {
                self.free.push(at);
            }
            let Node { slot, mask, .. } = *node;
            if let Some(point) = self.point_at(slot) {
                point.remove(mask);
            }
        }
    }

    fn forget_all(&mut self) {
        // If open paths alone fill the memory, this runs at every step: it must count against the limit.
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

    /// About how many bytes all kept states take.
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

/// Makes the state forget dead values.
///
/// Soundness needs this: a dead number that is linked to a live one could rule out a branch, and the kept state, which
/// lacks it, would subsume states for which the branch is open.
///
/// Returns how many values it looked at, and the registers of the innermost frame that have a value then.
fn forget_dead(state: &mut State, slot: usize, liveness: &Liveness) -> (u64, u16) {
    let (mut work, mut left) = (0, 0);
    for at in 0..state.frames().len() {
        let live = match state.frames().get(at + 1) {
            Some(callee) => liveness.during_call(callee.call_slot as usize),
            None => *liveness.before(slot),
        };
        let frame = &mut state.frames_mut()[at];
        // Keeps the reason why a register cannot be read.
        let made = frame.regs.made();
        for reg in bits(made & !live.regs) {
            frame.regs.0[reg] = Value::UNINIT;
        }
        for reg in bits(made & live.regs & !live.precise) {
            if frame.regs.0[reg].is_scalar() {
                frame.regs.0[reg] = Value::UNKNOWN;
            }
        }
        left = made & live.regs;
        work += frame.stack.cells.len() as u64 + 1;
        frame.stack.forget_dead(live.stack, live.stack_precise);
    }
    (work, left)
}
