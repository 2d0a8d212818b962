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
//! calls, its pointers and its constants: only a state with the same ones in the same registers can be
//! covered. So a loop that counts to a thousand costs one comparison a round, not five hundred.
//!
//! What the future does not read is not remembered, and the state itself forgets it there: a walk may not know
//! more than the state that stands for it. Forgetting is always sound, and happens also when the limit on
//! memory is reached.

use crate::flow::Flow;
use crate::resources::Resources;
use crate::scalar::Scalar;
use crate::stack::{ByteSet, Cell, Found, Stack};
use crate::state::State;
use crate::value::{Kind, Value};
use skep_isa::Size;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

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

/// What is kept of a state: where its parts lie in [`Shots`].
#[derive(Clone, Copy)]
struct Snapshot {
    frames: Part,
    constants: Part,
    pointers: Part,
    values: Part,
    stacks: Part,
    cells: Part,
    /// What the path holds, most often nothing.
    resources: Part,
}

/// A part of an arena.
#[derive(Clone, Copy)]
struct Part {
    start: u32,
    len: u32,
}

impl Part {
    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// What was added to an arena since it had `before` elements.
    fn since<T>(before: usize, arena: &[T]) -> Self {
        Self { start: before as u32, len: (arena.len() - before) as u32 }
    }
}

/// The parts of all snapshots, each kind in one arena. They are given back all at once.
#[derive(Default)]
struct Shots {
    frames: Vec<FrameShot>,
    constants: Vec<u64>,
    pointers: Vec<Fixed>,
    values: Vec<Value>,
    stacks: Vec<StackShot>,
    cells: Vec<Cell>,
    resources: Vec<Resources>,
}

/// A frame: which registers are kept, one bit each, by how. Their values follow in the arenas, frame by frame
/// and in the order of registers.
struct FrameShot {
    call_slot: u32,
    /// Numbers of which nothing matters.
    numbers: u16,
    /// Known numbers.
    constants: u16,
    /// Pointers without a variable part.
    pointers: u16,
    /// Everything else.
    values: u16,
    /// Whether some of its stack is live.
    stack: bool,
}

/// A pointer without a variable part.
struct Fixed {
    kind: Kind,
    id: u32,
    offset: i32,
    range: u32,
    reference: u32,
}

struct StackShot {
    cells: u32,
    init: ByteSet,
    zero: ByteSet,
    pointers: ByteSet,
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
        self.ids.work += u64::from(shot.values.len) + u64::from(shot.cells.len) + u64::from(shot.frames.len);
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

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(key: u64, part: u64) -> u64 {
    (key.rotate_left(23) ^ part).wrapping_mul(MIX)
}

/// What states are filed by.
struct Outline {
    /// What must be the same in a state and one that covers it: the calls, and the pointers but for their
    /// variable parts.
    hash: u64,
    /// The registers of the innermost frame that hold constants.
    constants: u16,
    /// By register: a hash of its constant.
    hashes: [u64; 10],
}

impl Outline {
    fn of(state: &State, slot: usize) -> Self {
        let mut hash = mix(slot as u64, 0);
        for frame in &state.frames()[1..] {
            hash = mix(hash, frame.call_slot.into());
        }
        let (mut constants, mut hashes) = (0, [0; 10]);
        // Four bits for each register, so that numbers and what cannot be read cost no hashing of their own.
        let mut tags = 0;
        for (at, value) in state.top().regs.0[..10].iter().enumerate() {
            // A pointer that may be null covers one that is not.
            let (tag, object) = match value.kind {
                Kind::Uninit | Kind::Lost { .. } => continue,
                Kind::Scalar => {
                    tags |= 1 << (4 * at);
                    if let Some(constant) = value.num.as_constant() {
                        constants |= 1 << at;
                        // Rotated, so that numbers that change places make another sum.
                        hashes[at] = mix(0, constant).rotate_left(6 * at as u32);
                    }
                    continue;
                }
                Kind::Context => (2, 0),
                Kind::Stack { frame } => (3, frame.into()),
                Kind::Packet => (4, 0),
                Kind::PacketMeta => (5, 0),
                Kind::PacketEnd => (6, 0),
                Kind::Map { map } => (7, map),
                Kind::MapValue { map, .. } => (8, map),
                Kind::Buffer { bytes } => (9, bytes),
                Kind::PacketHalf => (10, 0),
                Kind::MapKey { map } => (11, map),
                Kind::Memory { bytes, .. } => (12, bytes),
                Kind::InnerMap { map, .. } => (13, map),
                Kind::Function { function } => (14, function),
                Kind::Struct { of, .. } => (15, of as u32),
                Kind::Object { ty, .. } => (15, ty + 16),
                Kind::Opaque { .. } => (15, u32::MAX),
            };
            tags |= tag << (4 * at);
            hash = mix(hash, u64::from(object) << 32 | u64::from(value.offset as u32));
        }
        Self { hash: mix(hash, tags), constants, hashes }
    }

    /// What a state is filed under by those of its constants.
    fn key(&self, mask: u16) -> u64 {
        // The hashes are summed up, so that none waits for another.
        let sum = bits(mask).fold(0, |sum: u64, reg| sum.wrapping_add(self.hashes[reg]));
        let key = mix(mix(self.hash, mask.into()), sum);
        key ^ key >> 32
    }
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

impl Shots {
    /// Room for so many states of the usual kind.
    fn with_capacity(states: usize) -> Self {
        Self {
            frames: Vec::with_capacity(states),
            constants: Vec::with_capacity(2 * states),
            pointers: Vec::with_capacity(2 * states),
            values: Vec::with_capacity(2 * states),
            stacks: Vec::with_capacity(states),
            cells: Vec::with_capacity(2 * states),
            resources: Vec::new(),
        }
    }

    /// Keeps all of a state.
    fn take(&mut self, state: &State) -> Snapshot {
        let (frames, constants, pointers) = (self.frames.len(), self.constants.len(), self.pointers.len());
        let (values, stacks, cells) = (self.values.len(), self.stacks.len(), self.cells.len());
        let resources = self.resources.len();
        if !state.resources.is_empty() {
            self.resources.push(state.resources.clone());
        }
        for frame in state.frames() {
            let mut shot = FrameShot {
                call_slot: frame.call_slot,
                numbers: 0,
                constants: 0,
                pointers: 0,
                values: 0,
                stack: !frame.stack.init.is_empty(),
            };
            for (reg, value) in frame.regs.0[..10].iter().enumerate() {
                let bit = 1 << reg;
                match value.kind {
                    Kind::Uninit | Kind::Lost { .. } => {} // covers anything: no path from here reads it
                    Kind::Scalar if value.num.is_constant() => {
                        shot.constants |= bit;
                        self.constants.push(value.num.umin);
                    }
                    Kind::Scalar if value.id == 0 && value.num.is_unknown() => shot.numbers |= bit,
                    kind if kind != Kind::Scalar && value.is_fixed() => {
                        shot.pointers |= bit;
                        let Value { id, offset, range, reference, .. } = *value;
                        self.pointers.push(Fixed { kind, id, offset, range, reference });
                    }
                    _ => {
                        shot.values |= bit;
                        self.values.push(*value);
                    }
                }
            }
            if shot.stack {
                let Stack { init, zero, pointers, ref cells } = frame.stack;
                self.stacks.push(StackShot { cells: cells.len() as u32, init, zero, pointers });
                self.cells.extend_from_slice(cells);
            }
            self.frames.push(shot);
        }
        Snapshot {
            frames: Part::since(frames, &self.frames),
            constants: Part::since(constants, &self.constants),
            pointers: Part::since(pointers, &self.pointers),
            values: Part::since(values, &self.values),
            stacks: Part::since(stacks, &self.stacks),
            cells: Part::since(cells, &self.cells),
            resources: Part::since(resources, &self.resources),
        }
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.constants.clear();
        self.pointers.clear();
        self.values.clear();
        self.stacks.clear();
        self.cells.clear();
        self.resources.clear();
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.frames)
            + size_of_val(&*self.constants)
            + size_of_val(&*self.pointers)
            + size_of_val(&*self.values)
            + size_of_val(&*self.stacks)
            + size_of_val(&*self.cells)
            + self.resources.iter().map(|held| size_of::<Resources>() + held.bytes()).sum::<usize>()
    }

    /// Whether `shot` covers `state`, and if so whether the two are equal. Both stand before the same slot and
    /// know nothing that is dead there.
    fn covers(&self, shot: &Snapshot, state: &State, ids: &mut Ids) -> Option<bool> {
        if shot.frames.len as usize != state.frames().len() {
            return None;
        }
        ids.clear();
        let mut constants = self.constants[shot.constants.range()].iter();
        let mut pointers = self.pointers[shot.pointers.range()].iter();
        let mut values = self.values[shot.values.range()].iter();
        let mut stacks = self.stacks[shot.stacks.range()].iter();
        let mut cells = self.cells[shot.cells.range()].iter();
        for (at, (shot, frame)) in self.frames[shot.frames.range()].iter().zip(state.frames()).enumerate() {
            if at > 0 && shot.call_slot != frame.call_slot {
                return None;
            }
            let regs = &frame.regs.0;
            for reg in bits(shot.constants) {
                if regs[reg].as_constant() != Some(*constants.next()?) {
                    return None;
                }
            }
            for reg in bits(shot.numbers) {
                if !regs[reg].is_scalar() {
                    return None;
                }
                ids.equal = ids.equal && regs[reg].id == 0 && regs[reg].num.is_unknown();
            }
            let kept = shot.numbers | shot.constants | shot.values | shot.pointers;
            ids.equal = ids.equal && frame.regs.readable() & !kept == 0;
            for reg in bits(shot.values) {
                if !ids.cover(values.next()?, &regs[reg]) {
                    return None;
                }
            }
            for reg in bits(shot.pointers) {
                let Fixed { kind, id, offset, range, reference } = *pointers.next()?;
                let new = &regs[reg];
                // Most pointers are tied to nothing and just as they were.
                if id == 0
                    && (reference, new.reference) == (0, 0)
                    && (kind, offset, range) == (new.kind, new.offset, new.range)
                    && new.num == Scalar::constant(0)
                {
                    ids.work += 1;
                    continue;
                }
                let old = Value { id, range, reference, ..Value::pointer(kind, offset) };
                if !ids.cover(&old, new) {
                    return None;
                }
            }
            if shot.stack {
                if !stacks.next()?.covers(&frame.stack, &mut cells, ids) {
                    return None;
                }
            } else {
                ids.equal &= frame.stack.init.is_empty();
            }
        }
        match self.resources[shot.resources.range()].first() {
            None if state.resources.is_empty() => {}
            Some(held) if held.covers(&state.resources, |old, new| ids.pair(old, new, 0)) => {}
            _ => return None,
        }
        Some(ids.equal)
    }
}

/// The numbers of the bits that are set.
fn bits(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (at < 16).then_some(at)
    })
}

impl StackShot {
    fn covers<'a>(&self, stack: &Stack, cells: &mut impl Iterator<Item = &'a Cell>, ids: &mut Ids) -> bool {
        if !self.init.and_not(&stack.init).is_empty()
            || !self.zero.and_not(&stack.zero).is_empty()
            || !self.init.and_not(&self.pointers).and(&stack.pointers).is_empty()
        {
            return false;
        }
        ids.equal &=
            self.cells as usize == stack.cells.len() && self.init == stack.init && self.zero == stack.zero;
        for at in 0..self.cells as usize {
            let Some(cell) = cells.next() else { return false };
            // Most often the cells are still in the order they had.
            let same = |other: &&Cell| other.start == cell.start && other.size == cell.size;
            let value = match stack.cells.get(at).filter(same) {
                Some(other) => other.value,
                None => {
                    ids.work += stack.cells.len() as u64 / 8; // it is looked for among all
                    let Some(size) = Size::from_bytes(cell.size.into()) else { return false };
                    let Found::Value(value) = stack.read(cell.start.into(), size) else { return false };
                    value
                }
            };
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
    /// How many values were compared so far, in all comparisons.
    work: u64,
    /// Names for values that are tied to nothing, from the top down.
    unique: u32,
}

struct Pair {
    old: u32,
    new: u32,
    /// How much more was added to the new value than to the old one; 32 bits would wrap.
    shift: i64,
}

impl Ids {
    fn clear(&mut self) {
        self.pairs.clear();
        self.equal = true;
        self.unique = u32::MAX;
    }

    /// Whether `old` covers `new`, given the values compared before.
    fn cover(&mut self, old: &Value, new: &Value) -> bool {
        self.work += 1;
        match (old.kind, new.kind) {
            (Kind::Scalar, Kind::Scalar) => {
                self.equal &= old.num == new.num;
                old.num.includes(&new.num) && (old.id == 0 || old.num.is_constant() || self.tied(old, new))
            }
            (kind, other) if kind == other => {
                self.equal &= old.range == new.range && old.num == new.num;
                (old.range == new.range || (old.is_packet() && old.range < new.range))
                    && self.offsets(old, new)
                    && self.references(old, new)
                    && (old.id == 0 || self.pair(old.id, new.id, 0))
            }
            (kind, other) if kind.is_maybe_null() && kind.not_null() == other => {
                self.equal = false;
                self.offsets(old, new) && self.references(old, new) && self.pair(old.id, new.id, 0)
            }
            _ => false,
        }
    }

    fn offsets(&self, old: &Value, new: &Value) -> bool {
        old.offset == new.offset && old.num.includes(&new.num)
    }

    /// Whether both hold references, the same one or corresponding ones.
    fn references(&mut self, old: &Value, new: &Value) -> bool {
        match (old.reference, new.reference) {
            (0, 0) => true,
            (0, _) | (_, 0) => false,
            (old, new) => self.pair(old, new, 0),
        }
    }

    fn tied(&mut self, old: &Value, new: &Value) -> bool {
        let id = if new.id == 0 {
            self.unique -= 1;
            self.unique
        } else {
            new.id
        };
        self.pair(old.id, id, i64::from(new.offset) - i64::from(old.offset))
    }

    fn pair(&mut self, old: u32, new: u32, shift: i64) -> bool {
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
