//! Snapshots of explored states, and whether one subsumes another state.
//!
//! A snapshot *subsumes* a state if it includes every live value of it, up to the names of ids: whatever can happen
//! from the state can happen from the snapshot. Both must be of the same slot and know nothing that is dead there.
//!
//! All snapshots share a few arenas, one for each sort of part, so that taking one rarely allocates. From one
//! snapshot to the next little changes in a stack, so values in stacks, and what is known of their bytes, are shared
//! with the snapshot taken before.

use crate::domain::bytes::ByteSet;
use crate::domain::loops::{LoopCount, goes_on_longer, progress};
use crate::domain::needs::{FrameNeeds, Needs, touched};
use crate::domain::resources::{Depths, Resources};
use crate::domain::stack::{Cell, Found, Spilled, Stack, touches};
use crate::domain::state::{MAX_FRAMES, State};
use crate::domain::value::{Kind, Stale, Value, is_lent};
use skep_isa::Size;
use std::cmp::Ordering;
use std::num::NonZeroU32;
use std::ops::Range;

/// A snapshot: where its parts are in the [`SnapshotArena`].
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    pub(crate) frames: Part,
    pub(crate) constants: Part,
    pointers: Part,
    pub(crate) values: Part,
    cells: Part,
    loops: Part,
    /// What the path holds, most often nothing.
    resources: Part,
    /// The numbers that decided something on the paths from it, by frame, once all of them were walked: where they
    /// begin.
    needs: Option<NonZeroU32>,
}

impl Snapshot {
    /// How many values it holds.
    pub(crate) fn work(&self) -> u64 {
        u64::from(self.values.len) + u64::from(self.cells.len) + u64::from(self.frames.len)
    }
}

/// A part of an arena.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    start: u32,
    len: u32,
}

impl Part {
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// The elements of an arena from `before` on.
    fn since<T>(before: usize, arena: &[T]) -> Self {
        Self { start: before as u32, len: (arena.len() - before) as u32 }
    }
}

/// The parts of all snapshots, each kind in one arena. They are freed all at once.
#[derive(Default)]
pub(crate) struct SnapshotArena {
    pub(crate) frames: Vec<FrameSnapshot>,
    pub(crate) constants: Vec<u64>,
    pointers: Vec<Fixed>,
    pub(crate) values: Vec<Value>,
    stacks: Vec<StackSnapshot>,
    cells: Vec<KeptCell>,
    /// The values of cells.
    stored: Vec<Value>,
    /// How many values were stored before these, and forgotten.
    forgotten: u32,
    /// By frame: its stack in the last snapshot.
    last: [Option<NonZeroU32>; MAX_FRAMES],
    loops: Vec<LoopCount>,
    resources: Vec<Resources>,
    needs: Vec<FrameNeeds>,
    /// Bytes that the elements of `resources` have on the heap.
    held_bytes: usize,
}

/// A frame: which registers are kept, one bit each, by how. Their values follow in the arenas, frame by frame
/// and in the order of registers.
pub(crate) struct FrameSnapshot {
    pub(crate) call_slot: u32,
    /// The sections that it was called in.
    sections: Depths,
    /// Unknown numbers.
    pub(crate) numbers: u16,
    /// Known numbers.
    pub(crate) constants: u16,
    /// Pointers without a variable part.
    pointers: u16,
    /// Everything else.
    pub(crate) values: u16,
    /// Its stack if some of it is live: 1 + index.
    stack: Option<NonZeroU32>,
    /// How many cells that has.
    pub(crate) cells: u32,
}

/// A pointer without a variable part.
struct Fixed {
    kind: Kind,
    id: u32,
    offset: i32,
    range: u32,
    reference: u32,
}

/// A cell of a stack.
#[derive(Clone, Copy)]
struct KeptCell {
    start: u16,
    size: u8,
    is_scalar: bool,
    /// Where its value is among the stored ones.
    value: u32,
}

#[derive(PartialEq, Eq)]
pub(crate) struct StackSnapshot {
    init: ByteSet,
    pub(crate) zero: ByteSet,
    pointers: ByteSet,
    /// What may be left of pointers.
    remains: ByteSet,
}

impl SnapshotArena {
    /// Room for so many states of the usual kind.
    pub(crate) fn with_capacity(states: usize) -> Self {
        Self {
            frames: Vec::with_capacity(states),
            constants: Vec::with_capacity(2 * states),
            pointers: Vec::with_capacity(2 * states),
            values: Vec::with_capacity(2 * states),
            stacks: Vec::with_capacity(states),
            cells: Vec::with_capacity(2 * states),
            stored: Vec::with_capacity(states),
            forgotten: 0,
            last: [None; MAX_FRAMES],
            loops: Vec::new(),
            resources: Vec::new(),
            needs: Vec::with_capacity(states),
            held_bytes: 0,
        }
    }

    /// Keeps all of a state.
    pub(crate) fn take(&mut self, state: &mut State) -> Snapshot {
        let (frames, constants, pointers) = (self.frames.len(), self.constants.len(), self.pointers.len());
        let (values, cells) = (self.values.len(), self.cells.len());
        let (loops, resources) = (self.loops.len(), self.resources.len());
        if !state.resources.is_empty() {
            self.held_bytes += state.resources.bytes();
            self.resources.push(state.resources.clone());
        }
        self.loops.extend_from_slice(state.loops.as_slice());
        for (at, frame) in state.frames_mut().iter_mut().enumerate() {
            let mut snapshot = FrameSnapshot {
                call_slot: frame.call_slot,
                sections: frame.sections,
                numbers: 0,
                constants: 0,
                pointers: 0,
                values: 0,
                stack: None,
                cells: 0,
            };
            for (reg, value) in frame.regs.0[..10].iter().enumerate() {
                let bit = 1 << reg;
                match value.kind {
                    Kind::Uninit | Kind::Clobbered { .. } => {} // subsumes anything: no path from here reads it
                    Kind::Scalar if value.num.is_constant() => {
                        snapshot.constants |= bit;
                        self.constants.push(value.num.umin);
                    }
                    Kind::Scalar if value.id == 0 && value.num.is_unknown() => snapshot.numbers |= bit,
                    kind if kind != Kind::Scalar && value.is_fixed() => {
                        snapshot.pointers |= bit;
                        let Value { id, offset, range, reference, .. } = *value;
                        self.pointers.push(Fixed { kind, id, offset, range, reference });
                    }
                    _ => {
                        snapshot.values |= bit;
                        self.values.push(*value);
                    }
                }
            }
            if let Some((stack, cells)) = self.take_stack(at, &mut frame.stack) {
                (snapshot.stack, snapshot.cells) = (Some(stack), cells);
            }
            self.frames.push(snapshot);
        }
        Snapshot {
            frames: Part::since(frames, &self.frames),
            constants: Part::since(constants, &self.constants),
            pointers: Part::since(pointers, &self.pointers),
            values: Part::since(values, &self.values),
            cells: Part::since(cells, &self.cells),
            loops: Part::since(loops, &self.loops),
            resources: Part::since(resources, &self.resources),
            needs: None,
        }
    }

    /// Keeps the stack of a frame if some of it is live. Returns 1 + its index, and how many cells it has.
    fn take_stack(&mut self, frame: usize, stack: &mut Stack) -> Option<(NonZeroU32, u32)> {
        let Stack { init, zero, pointers, .. } = *stack;
        let remains = *stack.remains();
        if init.is_empty() && remains.is_empty() {
            return None;
        }
        let kept = StackSnapshot { init, zero, pointers, remains };
        let index = match self.last[frame] {
            Some(last) if self.stacks[last.get() as usize - 1] == kept => last,
            _ => {
                self.stacks.push(kept);
                NonZeroU32::new(self.stacks.len() as u32)?
            }
        };
        for cell in &mut stack.cells {
            // What did not change since another snapshot is there already.
            let value = self.stored_at(&cell.value).unwrap_or_else(|| {
                self.stored.push(*cell.value);
                let index = self.stored.len() as u32 - 1;
                cell.value.keep(self.forgotten.checked_add(index + 1).unwrap_or(0));
                index
            });
            let (start, size, is_scalar) = (cell.start, cell.size, cell.value.is_scalar());
            self.cells.push(KeptCell { start, size, is_scalar, value });
        }
        self.last[frame] = Some(index);
        Some((index, stack.cells.len() as u32))
    }

    /// Where the value of a cell is among the stored ones, if that is known.
    fn stored_at(&self, value: &Spilled) -> Option<u32> {
        let index = value.kept().checked_sub(self.forgotten)?.checked_sub(1)?;
        ((index as usize) < self.stored.len()).then_some(index)
    }

    /// What is known of the bytes of a frame's stack, if some of it is live.
    pub(crate) fn stack(&self, frame: &FrameSnapshot) -> Option<&StackSnapshot> {
        self.stacks.get(frame.stack?.get() as usize - 1)
    }

    /// The cells of all stacks, outermost first.
    pub(crate) fn cells(&self, snapshot: &Snapshot) -> impl Iterator<Item = Cell> {
        let whole = |cell: &KeptCell| Cell::kept(cell.start, cell.size, self.stored[cell.value as usize]);
        self.cells[snapshot.cells.range()].iter().map(whole)
    }

    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.constants.clear();
        self.pointers.clear();
        self.values.clear();
        self.stacks.clear();
        self.cells.clear();
        self.forgotten = self.forgotten.saturating_add(self.stored.len() as u32);
        self.stored.clear();
        self.last = [None; MAX_FRAMES];
        self.loops.clear();
        self.resources.clear();
        self.needs.clear();
        self.held_bytes = 0;
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.frames)
            + size_of_val(&*self.constants)
            + size_of_val(&*self.pointers)
            + size_of_val(&*self.values)
            + size_of_val(&*self.stacks)
            + size_of_val(&*self.cells)
            + size_of_val(&*self.stored)
            + size_of_val(&*self.loops)
            + size_of_val(&*self.resources)
            + size_of_val(&*self.needs)
            + self.held_bytes
    }

    /// Puts the numbers of which the snapshot knows something into `known`.
    fn known(&self, snapshot: &Snapshot, known: &mut Needs) {
        let mut cells = self.cells[snapshot.cells.range()].iter();
        for (known, frame) in known.0.iter_mut().zip(&self.frames[snapshot.frames.range()]) {
            known.regs = frame.constants | frame.values;
            if let Some(stack) = self.stack(frame) {
                known.stack = stack.known(cells.by_ref().take(frame.cells as usize));
            }
            known.read = u128::MAX;
        }
    }

    /// The needs of a settled snapshot, by frame.
    pub(crate) fn settled(&self, snapshot: &Snapshot) -> Option<&[FrameNeeds]> {
        let start = snapshot.needs?.get() as usize;
        self.needs.get(start..start + snapshot.frames.len as usize)
    }

    /// What a state needs that is subsumed by the snapshot: if that is not settled, all that it knows. Returns how many
    /// frames have needs; `needs` is empty before.
    pub(crate) fn needs(&self, snapshot: &Snapshot, needs: &mut Needs) -> usize {
        match self.settled(snapshot) {
            Some(settled) => needs.0[..settled.len()].copy_from_slice(settled),
            None => self.known(snapshot, needs),
        }
        snapshot.frames.len as usize
    }

    /// Settles a snapshot: all paths from it were walked, and need no other numbers. Removes from `needs` the numbers
    /// that the snapshot does not know. Returns the needed registers of the innermost frame.
    pub(crate) fn settle(&mut self, snapshot: &mut Snapshot, needs: &mut Needs) -> u16 {
        let mut cells = self.cells[snapshot.cells.range()].iter();
        for (needs, frame) in needs.0.iter_mut().zip(&self.frames[snapshot.frames.range()]) {
            needs.regs &= frame.constants | frame.values;
            let mut known = 0;
            if let Some(stack) = self.stack(frame) {
                let (here, rest) = cells.as_slice().split_at(frame.cells as usize);
                cells = rest.iter();
                if needs.stack != 0 {
                    known = stack.known(here.iter());
                }
            }
            needs.stack &= known;
        }
        if self.needs.is_empty() {
            self.needs.push(FrameNeeds::ALL); // none begin at 0
        }
        let needs = &needs.0[..snapshot.frames.len as usize];
        // Iterations of a loop often need the same.
        if !self.needs.ends_with(needs) {
            self.needs.extend_from_slice(needs);
        }
        snapshot.needs = NonZeroU32::new((self.needs.len() - needs.len()) as u32);
        needs.last().map_or(0, |top| top.regs)
    }

    /// The constants in registers of the innermost frame.
    pub(crate) fn top_constants(&self, snapshot: &Snapshot) -> impl Iterator<Item = (usize, u64)> {
        let mask = self.frames[snapshot.frames.range()].last().map_or(0, |frame| frame.constants);
        let constants = &self.constants[snapshot.constants.range()];
        let of_last = &constants[constants.len() - mask.count_ones() as usize..];
        bits(mask).zip(of_last.iter().copied())
    }

    /// The progress of `state` since `snapshot`.
    pub(crate) fn progress(&self, snapshot: &Snapshot, state: &State) -> Option<Ordering> {
        progress(state.loops.as_slice(), &self.loops[snapshot.loops.range()])
    }

    /// Whether some call with a callback has more iterations left in `state` than in `snapshot`.
    pub(crate) fn goes_on_longer(&self, snapshot: &Snapshot, state: &State) -> bool {
        goes_on_longer(state.loops.as_slice(), &self.loops[snapshot.loops.range()])
    }

    /// Whether `snapshot` does not subsume `state` because of the value in that place alone, where an earlier
    /// comparison with the snapshot failed. States of one slot often differ in the same place, so this spares looking
    /// for it again.
    pub(crate) fn still_differs(
        &self,
        snapshot: &Snapshot,
        place: Place,
        state: &State,
        ids: &mut Ids,
    ) -> bool {
        self.still_differs_but(place, state, ids, self.settled(snapshot))
    }

    /// Whether the two differ in more than numbers because of what is in that place alone, where
    /// [`Self::differ_in_numbers`] found it before.
    pub(crate) fn still_differs_in_more(&self, place: Place, state: &State, ids: &mut Ids) -> bool {
        self.still_differs_but(place, state, ids, Some(&Needs::POINTERS.0))
    }

    fn still_differs_but(
        &self,
        place: Place,
        state: &State,
        ids: &mut Ids,
        needed: Option<&[FrameNeeds]>,
    ) -> bool {
        let frame = usize::from(place.frame);
        let needs = needed.map_or(&FrameNeeds::ALL, |needs| &needs[frame]);
        let Some(frame) = state.frames().get(frame) else { return true };
        ids.clear(false);
        match place.part {
            InFrame::Constant(reg) => {
                let (old, new) = (self.constants[place.at as usize], &frame.regs.0[usize::from(reg)]);
                let free = needs.regs & 1 << reg == 0 && new.is_scalar();
                !free && new.as_constant() != Some(old)
            }
            InFrame::Pointer(reg) => {
                !ids.subsumes_fixed(&self.pointers[place.at as usize], &frame.regs.0[usize::from(reg)])
            }
            InFrame::Value(reg) => {
                let (old, new) = (&self.values[place.at as usize], &frame.regs.0[usize::from(reg)]);
                let free = needs.regs & 1 << reg == 0 && old.is_scalar() && new.is_scalar();
                !free && !ids.subsumes(old, new)
            }
            InFrame::Bytes => !self.stacks[place.at as usize].has_bytes_of(&frame.stack, needs),
            InFrame::Cell => {
                let cell = &self.cells[place.at as usize];
                self.is_compared(cell, &frame.stack, needs)
                    && !self.subsumes_cell(cell, &frame.stack, None, ids)
            }
        }
    }

    /// Whether `snapshot` subsumes `state`, or equals it if `equal`. Both must be of the same slot and know nothing
    /// that is dead there. Where the state is not subsumed, `ids.place` may say because of which place.
    pub(crate) fn subsumes(&self, snapshot: &Snapshot, state: &State, ids: &mut Ids, equal: bool) -> bool {
        self.subsumes_but(snapshot, state, ids, self.settled(snapshot), equal).is_some()
    }

    /// Whether only numbers keep `snapshot` from subsuming `state`.
    pub(crate) fn differ_in_numbers(&self, snapshot: &Snapshot, state: &State, ids: &mut Ids) -> bool {
        self.subsumes_but(snapshot, state, ids, Some(&Needs::POINTERS.0), false).is_some()
    }

    /// The same, where other numbers than `needed` may be any, if that is known.
    fn subsumes_but(
        &self,
        snapshot: &Snapshot,
        state: &State,
        ids: &mut Ids,
        needed: Option<&[FrameNeeds]>,
        equal: bool,
    ) -> Option<()> {
        ids.place = None;
        if snapshot.frames.len as usize != state.frames().len() {
            return None;
        }
        ids.clear(equal);
        let mut constants = self.constants[snapshot.constants.range()].iter();
        let mut pointers = self.pointers[snapshot.pointers.range()].iter();
        let mut values = self.values[snapshot.values.range()].iter();
        let mut cells = self.cells[snapshot.cells.range()].iter();
        let (constants_behind, pointers_behind) =
            (snapshot.constants.range().end, snapshot.pointers.range().end);
        let (values_behind, cells_behind) = (snapshot.values.range().end, snapshot.cells.range().end);
        for (at, (snapshot, frame)) in
            self.frames[snapshot.frames.range()].iter().zip(state.frames()).enumerate()
        {
            // Once settled, other numbers may be any.
            let needs = needed.map_or(&FrameNeeds::ALL, |needs| &needs[at]);
            let free = |reg: usize| needs.regs & 1 << reg == 0;
            if snapshot.call_slot != frame.call_slot || snapshot.sections != frame.sections {
                return None;
            }
            let regs = &frame.regs.0;
            for reg in bits(snapshot.constants) {
                let constant = Some(*constants.next()?);
                if regs[reg].as_constant() != constant && !(free(reg) && regs[reg].is_scalar()) {
                    let left = constants.len() + 1;
                    ids.place = Place::new(at, InFrame::Constant(reg as u8), constants_behind - left);
                    return None;
                }
            }
            for reg in bits(snapshot.numbers) {
                if !regs[reg].is_scalar() {
                    return None;
                }
                ids.equal = ids.equal && regs[reg].id == 0 && regs[reg].num.is_unknown();
            }
            let kept = snapshot.numbers | snapshot.constants | snapshot.values | snapshot.pointers;
            ids.equal = ids.equal && frame.regs.made() & !kept == 0;
            for reg in bits(snapshot.values) {
                let old = values.next()?;
                if free(reg) && old.is_scalar() && regs[reg].is_scalar() {
                    continue;
                }
                if !ids.subsumes(old, &regs[reg]) {
                    let left = values.len() + 1;
                    ids.place = Place::new(at, InFrame::Value(reg as u8), values_behind - left);
                    return None;
                }
            }
            for reg in bits(snapshot.pointers) {
                if !ids.subsumes_fixed(pointers.next()?, &regs[reg]) {
                    let left = pointers.len() + 1;
                    ids.place = Place::new(at, InFrame::Pointer(reg as u8), pointers_behind - left);
                    return None;
                }
            }
            if equal && !ids.equal {
                return None;
            }
            if let Some(old) = self.stack(snapshot) {
                if !old.has_bytes_of(&frame.stack, needs) {
                    ids.place =
                        Place::new(at, InFrame::Bytes, snapshot.stack.map_or(0, |at| at.get() as usize - 1));
                    return None;
                }
                old.compare(&frame.stack, snapshot.cells, ids);
                if equal && !ids.equal {
                    return None;
                }
                let (here, rest) = cells.as_slice().split_at(snapshot.cells as usize);
                for (guess, cell) in here.iter().enumerate() {
                    if !self.is_compared(cell, &frame.stack, needs) {
                        continue;
                    }
                    // The cells are often in the same order.
                    if !self.subsumes_cell(cell, &frame.stack, frame.stack.cells.get(guess), ids) {
                        let left = here.len() - guess + rest.len();
                        ids.place = Place::new(at, InFrame::Cell, cells_behind - left);
                        return None;
                    }
                }
                cells = rest.iter();
            } else {
                // A path from there may read any of it as a number.
                if !nobody_reads(&frame.stack, &ByteSet::EMPTY, needs) {
                    return None;
                }
                ids.equal &= frame.stack.init.is_empty();
            }
        }
        match self.resources[snapshot.resources.range()].first() {
            None if state.resources.is_empty() => {}
            Some(held) if held.subsumes(&state.resources, |old, new| ids.pair(old, new, 0)) => {}
            _ => return None,
        }
        (!equal || ids.equal).then_some(())
    }

    /// Whether what is in the place of a cell matters, given that the other bytes are as the snapshot says.
    fn is_compared(&self, cell: &KeptCell, stack: &Stack, needs: &FrameNeeds) -> bool {
        if cell.is_scalar {
            return cell.is_in(needs.stack); // else some number is there, or nobody reads it
        }
        // Parts of objects that only calls may touch matter even if none does.
        let opaque = |value: &Value| matches!(value.kind, Kind::Opaque { .. });
        cell.is_in(needs.read)
            || opaque(&self.stored[cell.value as usize])
            || stack.opaque_in(cell.start.into(), cell.end()).is_some()
    }

    /// Whether a cell includes what is in its place in that stack, given a guess which cell may be there.
    fn subsumes_cell(&self, kept: &KeptCell, stack: &Stack, guess: Option<&Cell>, ids: &mut Ids) -> bool {
        let old = &self.stored[kept.value as usize];
        let same = |other: &&Cell| other.start == kept.start && other.size == kept.size;
        if let Some(other) = guess.filter(same).or_else(|| stack.cell_of(kept.start, kept.size)) {
            if (old.id, old.reference) == (0, 0) && self.stored_at(&other.value) == Some(kept.value) {
                ids.work += 1;
                return true; // the same value
            }
            return ids.subsumes(old, &other.value);
        }
        let Some(size) = Size::from_bytes(kept.size.into()) else { return false };
        matches!(stack.read(kept.start.into(), size), Found::Value(value) if ids.subsumes(old, &value))
    }
}

/// The numbers of the bits that are set.
pub(crate) fn bits(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (at < 16).then_some(at)
    })
}

impl StackSnapshot {
    /// The units with numbers of which it knows something.
    fn known<'a>(&self, cells: impl Iterator<Item = &'a KeptCell>) -> u128 {
        cells.fold(self.zero.units(), |known, cell| known | touched(cell.start.into(), cell.end()))
    }

    /// Whether bytes of that stack are written, zero, pointers or withheld as the snapshot says.
    fn has_bytes_of(&self, stack: &Stack, needs: &FrameNeeds) -> bool {
        // Bytes that may be read as a number may not hold a pointer or its remains.
        let guarded = self.pointers.or(&self.remains);
        let lacks = |old: &ByteSet, new: &ByteSet, needed: u128| {
            let lacking = old.and_not(new);
            needed != 0 && !lacking.is_empty() && (needed == u128::MAX || lacking.units() & needed != 0)
        };
        !lacks(&self.init, &stack.init, needs.read)
            && !lacks(&self.zero, &stack.zero, needs.stack)
            && nobody_reads(stack, &guarded, needs)
    }

    /// Notes whether the bytes are equal.
    fn compare(&self, stack: &Stack, cells: u32, ids: &mut Ids) {
        ids.equal = ids.equal
            && cells as usize == stack.cells.len()
            && self.init == stack.init
            && self.zero == stack.zero
            && self.remains == *stack.remains();
    }
}

/// Whether nobody reads the pointers in that stack, or remains of them, but for those in `guarded` bytes.
fn nobody_reads(stack: &Stack, guarded: &ByteSet, needs: &FrameNeeds) -> bool {
    let found = stack.pointers.or(stack.remains()).and_not(guarded);
    found.is_empty() || found.units() & needs.read == 0 && !stack.has_opaque_in(&found)
}

impl KeptCell {
    /// Whether it touches one of these units.
    fn is_in(&self, units: u128) -> bool {
        touches(self.start, self.size, units)
    }

    fn end(&self) -> u32 {
        u32::from(self.start) + u32::from(self.size)
    }
}

/// A place in which a state differs from a snapshot: where the value is in the [`SnapshotArena`].
#[derive(Clone, Copy)]
pub(crate) struct Place {
    frame: u8,
    part: InFrame,
    at: u32,
}

#[derive(Clone, Copy)]
enum InFrame {
    /// The constant of that register.
    Constant(u8),
    /// The pointer in that register, which has no variable part.
    Pointer(u8),
    /// The value of that register.
    Value(u8),
    /// Which bytes of the stack are what.
    Bytes,
    Cell,
}

impl Place {
    fn new(frame: usize, part: InFrame, at: usize) -> Option<Self> {
        Some(Self { frame: frame as u8, part, at: at as u32 })
    }
}

/// Which ids of the snapshot correspond to which of the new state, during one comparison.
pub(crate) struct Ids {
    pairs: Vec<Pair>,
    equal: bool,
    /// How many values were compared so far, in all comparisons.
    pub(crate) work: u64,
    /// The last id given to an unlinked value, from the top down.
    last_unlinked: u32,
    /// Where the last comparison found a difference, if that can be looked at alone.
    pub(crate) place: Option<Place>,
}

impl Default for Ids {
    fn default() -> Self {
        Self { pairs: Vec::new(), equal: true, work: 0, last_unlinked: u32::MAX, place: None }
    }
}

struct Pair {
    old: u32,
    new: u32,
    /// How much more was added to the new value than to the old one; 32 bits would wrap.
    shift: i64,
}

impl Ids {
    /// Begins a comparison; if `equal`, one that finds whether the two are equal.
    pub(crate) fn clear(&mut self, equal: bool) {
        self.pairs.clear();
        self.equal = equal;
        self.last_unlinked = u32::MAX;
    }

    /// Whether `old` subsumes `new`, given the values compared before.
    fn subsumes(&mut self, old: &Value, new: &Value) -> bool {
        self.work += 1;
        if old.is_scalar() && new.is_scalar() {
            if !old.num.includes(&new.num) {
                return false;
            }
            self.equal = self.equal && old.num == new.num;
            return old.id == 0 || old.num.is_constant() || self.linked(old, new);
        }
        if old.kind != new.kind || old.is_stale() {
            return self.subsumes_other(old, new);
        }
        self.equal = self.equal && old.range == new.range && old.num == new.num;
        (old.range == new.range || (old.has_range() && old.range < new.range))
            && self.offsets(old, new)
            && self.references(old, new)
            && (old.id == 0 || self.pair(old.id, new.id, 0))
    }

    /// The same of stale addresses, and of values of different kinds.
    fn subsumes_other(&mut self, old: &Value, new: &Value) -> bool {
        match (old.kind, new.kind) {
            // Where and why it became stale matters to messages only.
            (Kind::Stale { of: Stale::Bits, .. }, Kind::Stale { of, .. }) => {
                self.equal &= of == Stale::Bits;
                true
            }
            (Kind::Stale { of, .. }, Kind::Stale { of: other, .. }) => {
                self.equal &= old.num == new.num;
                of == other && self.offsets(old, new) && (old.id == 0 || self.pair(old.id, new.id, 0))
            }
            (kind, other) if kind.is_maybe_null() && kind.not_null() == other => {
                self.equal = false;
                self.offsets(old, new) && self.references(old, new) && self.pair(old.id, new.id, 0)
            }
            _ => false,
        }
    }

    /// The same of a pointer without a variable part.
    fn subsumes_fixed(&mut self, old: &Fixed, new: &Value) -> bool {
        let Fixed { kind, id, offset, range, reference } = *old;
        // Fast path: most pointers are not linked and did not change.
        if id == 0
            && (reference, new.reference) == (0, 0)
            && (kind, offset, range) == (new.kind, new.offset, new.range)
            && new.is_fixed()
        {
            self.work += 1;
            return true;
        }
        self.subsumes(&Value { id, range, reference, ..Value::pointer(kind, offset) }, new)
    }

    fn offsets(&self, old: &Value, new: &Value) -> bool {
        old.offset == new.offset && old.num.includes(&new.num)
    }

    /// Whether both hold references, the same one or corresponding ones.
    fn references(&mut self, old: &Value, new: &Value) -> bool {
        match (old.reference, new.reference) {
            (0, 0) => true,
            (0, _) | (_, 0) => false,
            // It ends with the callback of its frame, whatever else has the same reference.
            (old, new) if is_lent(old) || is_lent(new) => old == new,
            (old, new) => self.pair(old, new, 0),
        }
    }

    fn linked(&mut self, old: &Value, new: &Value) -> bool {
        let id = if new.id == 0 {
            self.last_unlinked -= 1;
            self.last_unlinked
        } else {
            new.id
        };
        self.pair(old.id, id, i64::from(new.offset) - i64::from(old.offset))
    }

    fn pair(&mut self, old: u32, new: u32, shift: i64) -> bool {
        self.work += self.pairs.len() as u64 / 8; // it is looked for among all
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
