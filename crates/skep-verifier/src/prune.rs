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
//! To find candidates without comparing with all, each remembered state is filed under a key made of its
//! constants: only a state with the same constants in the same registers can be covered. So a loop that
//! counts to a thousand costs one comparison a round, not five hundred.
//!
//! Forgetting is always sound, and happens when the limit on memory is reached.

use crate::flow::{Flow, Live};
use crate::stack::{ByteSet, Cell, Found, Stack};
use crate::state::State;
use crate::value::{Kind, Value};
use skep_isa::Size;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// The most states that are kept under one key.
const MAX_CHAIN: usize = 48;
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
    ids: Ids,
    bytes: usize,
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
    shot: Option<Box<Snapshot>>,
}

/// The sets of constant registers by which states of one slot are filed.
#[derive(Default)]
struct Point {
    masks: [u16; MAX_MASKS],
    count: usize,
}

/// What is kept of a state.
struct Snapshot {
    frames: Vec<FrameShot>,
    /// The registers that matter, then nothing else; frame by frame.
    values: Vec<Value>,
    cells: Vec<Cell>,
}

struct FrameShot {
    call_slot: u32,
    /// Registers whose values are kept.
    kept: u16,
    /// Registers that hold a number of which nothing matters.
    numbers: u16,
    cells: u32,
    init: ByteSet,
    zero: ByteSet,
    pointers: ByteSet,
}

impl Memory {
    pub(crate) fn new(slots: usize, max_bytes: usize) -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            point_of: vec![0; slots],
            points: Vec::new(),
            filed: HashMap::default(),
            ids: Ids::default(),
            bytes: 0,
            max_bytes,
            remembered: 0,
        }
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
    /// remembers it if that says nothing.
    pub(crate) fn visit(&mut self, state: &State, slot: usize, parent: u32, flow: &Flow) -> Visit {
        let live = flow.before(slot);
        let constants = constants(state, live);
        let mut mask = constants;
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
            if mask & !constants != 0 {
                continue;
            }
            let mut node = self.filed.get(&key(state, slot, mask)).copied().unwrap_or(NONE);
            while node != NONE {
                let candidate = &self.nodes[node as usize];
                let next = candidate.next;
                if candidate.slot == slot as u32
                    && let Some(shot) = &candidate.shot
                    && let Some(equal) = shot.covers(state, flow, &mut self.ids)
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
        Visit::New(self.remember(state, slot, mask, parent, flow))
    }

    fn remember(&mut self, state: &State, slot: usize, mask: u16, parent: u32, flow: &Flow) -> u32 {
        let shot = Box::new(Snapshot::of(state, slot, flow));
        self.bytes += shot.bytes();
        if self.bytes > self.max_bytes {
            self.forget_all();
            self.bytes += shot.bytes();
        }
        self.remembered += 1;
        let key = key(state, slot, mask);
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
        if let Some(shot) = node.shot.take() {
            self.bytes -= shot.bytes();
            self.remembered -= 1;
            if node.open == 0 {
                self.free.push(at);
            }
        }
    }

    fn forget_all(&mut self) {
        self.filed.clear();
        for point in &mut self.points {
            point.count = 0;
        }
        for at in 0..self.nodes.len() {
            self.nodes[at].next = NONE;
            self.forget(at as u32);
        }
        self.bytes = 0;
    }
}

/// The registers of the innermost frame that hold constants that matter.
fn constants(state: &State, live: &Live) -> u16 {
    let mut mask = 0;
    for (at, value) in state.top().regs.0.iter().enumerate() {
        if live.matter & 1 << at != 0 && value.as_constant().is_some() {
            mask |= 1 << at;
        }
    }
    mask
}

/// What a state with these constants is filed under.
fn key(state: &State, slot: usize, mask: u16) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut key = (slot as u64) << 16 | u64::from(mask);
    let mut add = |part: u64| key = (key.rotate_left(23) ^ part).wrapping_mul(MIX);
    add(0);
    for frame in &state.frames()[1..] {
        add(frame.call_slot.into());
    }
    let mut left = mask;
    while left != 0 {
        add(state.top().regs.0[left.trailing_zeros() as usize].num.umin);
        left &= left - 1;
    }
    key ^ key >> 32
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// What is live in frame `at` of a state that stands before `slot`.
fn live_in(state: &State, at: usize, slot: usize, flow: &Flow) -> Live {
    match state.frames().get(at + 1) {
        Some(callee) => flow.during_call(callee.call_slot as usize),
        None => *flow.before(slot),
    }
}

impl Snapshot {
    fn of(state: &State, slot: usize, flow: &Flow) -> Self {
        let mut shot =
            Self { frames: Vec::with_capacity(state.frames().len()), values: Vec::new(), cells: Vec::new() };
        for (at, frame) in state.frames().iter().enumerate() {
            let live = live_in(state, at, slot, flow);
            let (mut kept, mut numbers) = (0, 0);
            for (reg, value) in frame.regs.0[..10].iter().enumerate() {
                let bit = 1 << reg;
                if live.regs & bit == 0 || !value.is_readable() {
                    continue;
                }
                if value.is_scalar() && (live.matter & bit == 0 || (value.id == 0 && value.num.is_unknown()))
                {
                    numbers |= bit;
                } else {
                    kept |= bit;
                    shot.values.push(*value);
                }
            }
            let mut frame_shot = FrameShot {
                call_slot: frame.call_slot,
                kept,
                numbers,
                cells: 0,
                init: ByteSet::EMPTY,
                zero: ByteSet::EMPTY,
                pointers: ByteSet::EMPTY,
            };
            if live.stack != 0 {
                frame_shot.keep_stack(&frame.stack, &live, &mut shot.cells);
            }
            shot.frames.push(frame_shot);
        }
        shot
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of::<Node>()
            + self.frames.capacity() * size_of::<FrameShot>()
            + self.values.capacity() * size_of::<Value>()
            + self.cells.capacity() * size_of::<Cell>()
    }

    /// Whether it covers `state`, and if so whether the two are equal. Both stand before the same slot.
    fn covers(&self, state: &State, flow: &Flow, ids: &mut Ids) -> Option<bool> {
        let _ = flow;
        if self.frames.len() != state.frames().len() {
            return None;
        }
        ids.clear();
        let (mut values, mut cells) = (self.values.iter(), self.cells.iter());
        for (at, (shot, frame)) in self.frames.iter().zip(state.frames()).enumerate() {
            if at > 0 && shot.call_slot != frame.call_slot {
                return None;
            }
            let mut left = shot.kept;
            while left != 0 {
                let reg = left.trailing_zeros() as usize;
                left &= left - 1;
                if !ids.cover(values.next()?, &frame.regs.0[reg]) {
                    return None;
                }
            }
            let mut left = shot.numbers;
            while left != 0 {
                let reg = left.trailing_zeros() as usize;
                left &= left - 1;
                if !frame.regs.0[reg].is_scalar() {
                    return None;
                }
            }
            if !shot.covers_stack(&frame.stack, &mut cells, ids) {
                return None;
            }
        }
        Some(ids.equal)
    }
}

impl FrameShot {
    fn keep_stack(&mut self, stack: &Stack, live: &Live, cells: &mut Vec<Cell>) {
        let bytes = ByteSet::from_units(live.stack);
        let matter = ByteSet::from_units(live.stack_matters);
        self.init = stack.init.and(&bytes);
        self.pointers = stack.pointers.and(&bytes);
        self.zero = stack.zero.and(&matter);
        for cell in &stack.cells {
            let wanted = if cell.value.is_pointer() { &bytes } else { &matter };
            if wanted.has_any(cell.start.into(), cell.end()) {
                cells.push(*cell);
                self.cells += 1;
            }
        }
    }

    fn covers_stack<'a>(
        &self,
        stack: &Stack,
        cells: &mut impl Iterator<Item = &'a Cell>,
        ids: &mut Ids,
    ) -> bool {
        if !self.init.and_not(&stack.init).is_empty()
            || !self.zero.and_not(&stack.zero).is_empty()
            || !self.init.and_not(&self.pointers).and(&stack.pointers).is_empty()
        {
            return false;
        }
        for _ in 0..self.cells {
            let Some(cell) = cells.next() else { return false };
            let Some(size) = Size::from_bytes(cell.size.into()) else { return false };
            let Found::Value(value) = stack.read(cell.start.into(), size) else { return false };
            if !ids.cover(&cell.value, &value) {
                return false;
            }
        }
        true
    }
}

/// Which ids of the remembered state stand for which of the new one, while two states are compared.
#[derive(Default)]
struct Ids {
    pairs: Vec<Pair>,
    equal: bool,
    /// Names for values that are tied to nothing, from the top down.
    unique: u32,
}

struct Pair {
    old: u32,
    new: u32,
    /// How much more was added to the new value than to the old one.
    shift: i32,
}

impl Ids {
    fn clear(&mut self) {
        self.pairs.clear();
        self.equal = true;
        self.unique = u32::MAX;
    }

    /// Whether `old` covers `new`, given the values compared before.
    fn cover(&mut self, old: &Value, new: &Value) -> bool {
        match (old.kind, new.kind) {
            (Kind::Scalar, Kind::Scalar) => {
                self.equal &= old.num == new.num;
                old.num.includes(&new.num) && (old.id == 0 || old.num.is_constant() || self.tied(old, new))
            }
            (Kind::MapValue { map, maybe_null: true }, Kind::MapValue { map: other, maybe_null: false }) => {
                self.equal = false;
                map == other && self.offsets(old, new) && self.pair(old.id, 0, 0)
            }
            (kind, other) if kind == other => {
                self.equal &= old.range == new.range && old.num == new.num;
                old.range <= new.range
                    && self.offsets(old, new)
                    && (old.id == 0 || self.pair(old.id, new.id, 0))
            }
            _ => false,
        }
    }

    fn offsets(&self, old: &Value, new: &Value) -> bool {
        old.offset == new.offset && old.num.includes(&new.num)
    }

    fn tied(&mut self, old: &Value, new: &Value) -> bool {
        let id = if new.id == 0 {
            self.unique -= 1;
            self.unique
        } else {
            new.id
        };
        self.pair(old.id, id, new.offset.wrapping_sub(old.offset))
    }

    fn pair(&mut self, old: u32, new: u32, shift: i32) -> bool {
        for pair in &self.pairs {
            if pair.old == old {
                return pair.new == new && pair.shift == shift;
            }
            if pair.new == new {
                self.equal = false;
            }
        }
        self.pairs.push(Pair { old, new, shift });
        true
    }
}
