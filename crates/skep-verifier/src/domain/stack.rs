//! The stack of one frame: its initialised bytes, and the values stored there.
//!
//! ```text
//!   offset  -512                                   -8        0 = r10
//!           |  one bit per byte: initialised, zero, pointer  |
//!           |        [ cell: u32 ]   [ cell: pointer ]       |
//! ```
//!
//! A *cell* remembers the value of the last store to its bytes. Cells never overlap: a store over a part of one removes
//! it. Initialised bytes outside of all cells hold some number. Invariants: a pointer is in a cell of 8 bytes, all
//! marked as pointer bytes; zero and pointer bytes are initialised.
//!
//! A read of a byte that was never written gives a number: the engines zero the frames of functions with such reads
//! ([`crate::FunctionFacts::zeroed`]). This does not hold for the remains of a pointer, or of an object that only calls
//! may touch, after an overwrite in part or an invalidation. Such bytes are *withheld*: no longer initialised, so that
//! no part of an address can be read as a number. Bytes that were forgotten because they are dead are withheld too.

use crate::domain::bytes::ByteSet;
use crate::domain::needs::touched;
use crate::domain::scalar::Scalar;
use crate::domain::value::{Kind, Value};
use skep_isa::{AluOp, Size, Width};

/// Bytes in a frame's stack.
pub(crate) const STACK_BYTES: u32 = 512;
/// Cells are found by the eight bytes that they begin in.
const SLOTS: usize = STACK_BYTES as usize / 8;

/// A value in the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// First byte, counted from the bottom of the frame.
    pub(crate) start: u16,
    /// Bytes: 1, 2, 4 or 8.
    pub(crate) size: u8,
    /// 1 + index of the next cell that begins in the same eight bytes, 0 for none; of no meaning outside of a stack.
    next: u16,
    pub(crate) value: Spilled,
}

/// The value of a cell, and where explored states keep it. To change the value is to forget the place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spilled {
    value: Value,
    /// A number of the snapshots' own choice; 0 for none.
    kept: u32,
}

impl Spilled {
    /// The number that [`Self::keep`] gave to this value, or 0.
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    pub(crate) fn keep(&mut self, number: u32) {
        self.kept = number;
    }
}

impl From<Value> for Spilled {
    fn from(value: Value) -> Self {
        Self { value, kept: 0 }
    }
}

impl std::ops::Deref for Spilled {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl Cell {
    fn new(start: u32, size: Size, value: Value) -> Self {
        Self { start: start as u16, size: size.bytes() as u8, next: 0, value: value.into() }
    }

    /// A cell outside of a stack.
    pub(crate) fn kept(start: u16, size: u8, value: Value) -> Self {
        Self { start, size, next: 0, value: value.into() }
    }

    /// The eight bytes that it begins in.
    fn slot(&self) -> usize {
        usize::from(self.start / 8)
    }

    fn overlaps(&self, start: u32, end: u32) -> bool {
        u32::from(self.start) < end && start < self.end()
    }

    pub(crate) fn end(&self) -> u32 {
        u32::from(self.start) + u32::from(self.size)
    }

    /// Whether some of it is in these units.
    fn touches(&self, units: u128) -> bool {
        touches(self.start, self.size, units)
    }
}

/// Whether some of so many bytes, eight at most, are in these units.
pub(crate) fn touches(start: u16, size: u8, units: u128) -> bool {
    let count = (start % 4 + u16::from(size)).div_ceil(4);
    (units >> (start / 4)) as u32 & ((1 << count) - 1) != 0
}

/// The stack of one frame.
pub(crate) struct Stack {
    pub(crate) init: ByteSet,
    pub(crate) zero: ByteSet,
    pub(crate) pointers: ByteSet,
    /// Not initialised, and may hold the remains of a pointer.
    withheld: ByteSet,
    /// The units of 4 bytes that were live when the state last forgot dead values.
    live: u128,
    /// The bytes of `withheld` in these.
    remains: ByteSet,
    /// In no particular order.
    pub(crate) cells: Vec<Cell>,
    /// By group of eight bytes: 1 + index of a cell that begins there, 0 for none.
    heads: [u16; SLOTS],
    /// Whether there ever was a cell across a boundary of eight bytes.
    crossing: bool,
}

impl Default for Stack {
    fn default() -> Self {
        let empty = ByteSet::EMPTY;
        Self {
            init: empty,
            zero: empty,
            pointers: empty,
            withheld: empty,
            live: u128::MAX,
            remains: empty,
            cells: Vec::new(),
            heads: [0; SLOTS],
            crossing: false,
        }
    }
}

impl Clone for Stack {
    fn clone(&self) -> Self {
        let mut made = Self::default();
        made.clone_from(self);
        made
    }

    fn clone_from(&mut self, source: &Self) {
        self.init = source.init;
        self.zero = source.zero;
        self.pointers = source.pointers;
        self.withheld = source.withheld;
        self.live = source.live;
        self.remains = source.remains;
        self.cells.clone_from(&source.cells);
        self.heads = source.heads;
        self.crossing = source.crossing;
    }
}

/// The result of a load from the stack.
pub(crate) enum Found {
    /// This value.
    Value(Value),
    /// Some number: at least one byte was never written.
    Unwritten,
    /// At least one byte may be of the remains of a pointer.
    Remains,
    /// A part of a pointer.
    PartOfPointer,
}

impl Stack {
    pub(crate) fn clear(&mut self) {
        self.init = ByteSet::EMPTY;
        self.zero = ByteSet::EMPTY;
        self.pointers = ByteSet::EMPTY;
        self.withheld = ByteSet::EMPTY;
        self.live = u128::MAX;
        self.remains = ByteSet::EMPTY;
        self.cells.clear();
        self.heads = [0; SLOTS];
        self.crossing = false;
    }

    /// The indices of the cells that may overlap `start..end`: those of all eight bytes that it touches.
    fn near(&self, start: u32, end: u32) -> impl Iterator<Item = usize> {
        let first = if self.crossing { start.saturating_sub(7) } else { start } / 8;
        let behind = (end.div_ceil(8) as usize).min(SLOTS);
        let slots = self.heads.get(first as usize..behind).unwrap_or_default();
        slots.iter().flat_map(move |head| {
            let mut next = usize::from(*head);
            std::iter::from_fn(move || {
                let at = next.checked_sub(1)?;
                next = self.cells[at].next.into();
                Some(at)
            })
        })
    }

    /// The cells that overlap `start..end`.
    pub(crate) fn overlapping(&self, start: u32, end: u32) -> impl Iterator<Item = &Cell> {
        let cells = self.near(start, end).map(|at| &self.cells[at]);
        cells.filter(move |cell| cell.overlaps(start, end))
    }

    /// The cell that begins there.
    pub(crate) fn cell_at(&self, start: u32) -> Option<&Cell> {
        self.overlapping(start, start + 1).find(|cell| u32::from(cell.start) == start)
    }

    /// The cell of exactly those bytes.
    #[inline]
    pub(crate) fn whole_cell(&self, start: u32, size: Size) -> Option<&Cell> {
        self.cell_of(start as u16, size.bytes() as u8)
    }

    /// The cell of that many bytes from there.
    #[inline]
    pub(crate) fn cell_of(&self, start: u16, size: u8) -> Option<&Cell> {
        let mut at = usize::from(*self.heads.get(usize::from(start) / 8)?);
        while let Some(cell) = self.cells.get(at.wrapping_sub(1)) {
            if cell.start == start && cell.size == size {
                return Some(cell);
            }
            at = cell.next.into();
        }
        None
    }

    fn add_cell(&mut self, mut cell: Cell) {
        let slot = cell.slot();
        self.crossing |= cell.end() as usize > 8 * (slot + 1);
        cell.next = self.heads[slot];
        self.cells.push(cell);
        self.heads[slot] = self.cells.len() as u16;
    }

    /// The link that leads to a cell.
    fn link_to(&mut self, index: usize) -> &mut u16 {
        let slot = self.cells[index].slot();
        let link = index as u16 + 1;
        let mut at = usize::from(self.heads[slot]);
        if at == index + 1 {
            return &mut self.heads[slot];
        }
        while at != 0 && self.cells[at - 1].next != link {
            at = self.cells[at - 1].next.into();
        }
        match at.checked_sub(1) {
            Some(before) => &mut self.cells[before].next,
            None => &mut self.heads[slot],
        }
    }

    /// Removes a cell; the last one takes its index.
    pub(crate) fn remove_cell(&mut self, index: usize) -> Cell {
        let next = self.cells[index].next;
        *self.link_to(index) = next;
        let last = self.cells.len() - 1;
        if last != index {
            *self.link_to(last) = index as u16 + 1;
        }
        self.cells.swap_remove(index)
    }

    /// The value of the `size` bytes from `start`.
    pub(crate) fn read(&self, start: u32, size: Size) -> Found {
        let end = start + size.bytes();
        if !self.init.has_all(start, end) {
            return if self.is_withheld(start, end) { Found::Remains } else { Found::Unwritten };
        }
        if let Some(cell) =
            self.overlapping(start, end).find(|cell| u32::from(cell.start) <= start && end <= cell.end())
        {
            let skipped = start - u32::from(cell.start);
            if skipped == 0 && u32::from(cell.size) == size.bytes() {
                return Found::Value(*cell.value);
            }
            if !cell.value.is_scalar() {
                return Found::PartOfPointer;
            }
            // A part of a wider number.
            let shift = Scalar::constant(u64::from(skipped * 8));
            if skipped == 0 {
                // Where all of the number is in those bytes, it is still the same one.
                let num = cell.value.num.low_bytes(size);
                return Found::Value(if num == cell.value.num { *cell.value } else { Value::scalar(num) });
            }
            let num = cell.value.num.alu(AluOp::Rsh, Width::W64, &shift);
            return Found::Value(Value::scalar(num.low_bytes(size)));
        }
        if self.pointers.has_any(start, end) {
            return Found::PartOfPointer;
        }
        if self.zero.has_all(start, end) {
            return Found::Value(Value::constant(0));
        }
        Found::Value(self.assembled(start, size))
    }

    /// The number that several constant cells or zeroes side by side make; otherwise any of that size.
    fn assembled(&self, start: u32, size: Size) -> Value {
        let end = start + size.bytes();
        let (mut number, mut known) = (0u64, 0);
        for cell in self.overlapping(start, end) {
            if u32::from(cell.start) < start || end < cell.end() {
                continue;
            }
            let Some(part) = cell.value.as_constant() else { return Value::scalar(Scalar::of_size(size)) };
            number |= part << (8 * (u32::from(cell.start) - start));
            known += u32::from(cell.size);
        }
        // Zero bytes lie in no cell.
        if self.zero.has_any(start, end) {
            known += (start..end).filter(|at| self.zero.has_all(*at, at + 1)).count() as u32;
        }
        if known < size.bytes() {
            return Value::scalar(Scalar::of_size(size));
        }
        Value::constant(number)
    }

    /// Stores `value`, whose lower `size` bytes are what is written.
    pub(crate) fn write(&mut self, start: u32, size: Size, value: &Value) {
        let end = start + size.bytes();
        self.forget(start, end);
        self.init.insert(start, end);
        self.give_back(start, end);
        if value.is_pointer() {
            self.pointers.insert(start, end);
            self.add_cell(Cell::new(start, size, *value));
            return;
        }
        let num = value.num.low_bytes(size);
        if num.as_constant() == Some(0) {
            self.zero.insert(start, end);
            return;
        }
        // The link holds only if the whole number is kept.
        let linked = num == value.num;
        if linked && value.id != 0 || num != Scalar::of_size(size) {
            let (id, offset) = if linked { (value.id, value.offset) } else { (0, 0) };
            let reference = if linked { value.reference } else { 0 };
            self.add_cell(Cell::new(start, size, Value { id, offset, reference, ..Value::scalar(num) }));
        }
    }

    /// Weak update: some unknown bytes of `start..end` are overwritten with numbers.
    pub(crate) fn weak_write(&mut self, start: u32, end: u32, zeroes: bool) {
        self.remove_cells(start, end);
        if !zeroes {
            self.zero.remove(start, end);
        }
    }

    /// All bytes of `start..end` are overwritten with numbers.
    pub(crate) fn fill(&mut self, start: u32, end: u32) {
        self.forget(start, end);
        self.init.insert(start, end);
        self.give_back(start, end);
    }

    /// A part of an object that only calls may touch, in `start..end`.
    pub(crate) fn opaque_in(&self, start: u32, end: u32) -> Option<&Cell> {
        self.overlapping(start, end).find(|cell| matches!(cell.value.kind, Kind::Opaque { .. }))
    }

    /// Removes what is known of `start..end`, which is about to be written.
    fn forget(&mut self, start: u32, end: u32) {
        self.remove_cells(start, end);
        self.zero.remove(start, end);
    }

    /// Removes the cells that overlap `start..end`; the bytes of pointers among them are remains.
    fn remove_cells(&mut self, start: u32, end: u32) {
        // A number's cell may include dead bytes, which are no longer initialised.
        loop {
            let found = self.near(start, end).find(|at| self.cells[*at].overlaps(start, end));
            let Some(at) = found else { return };
            let cell = self.remove_cell(at);
            if cell.value.is_pointer() {
                self.withhold(&cell);
            }
        }
    }

    /// Forgets the units outside of `live`, and the numbers in units outside of `precise`.
    pub(crate) fn forget_dead(&mut self, live: u128, precise: u128) {
        // What is withheld from now on counts as well.
        self.live = live;
        if !self.init.is_empty() {
            let written = self.init.units();
            if written & !precise != 0 {
                self.forget_numbers(precise);
            }
            if written & !live != 0 {
                self.forget_units(live);
            }
        } else if self.withheld.is_empty() {
            self.live = u128::MAX; // nothing is there
            return;
        }
        if !self.withheld.is_empty() {
            self.remains = self.withheld.and(&ByteSet::from_units(live, &self.withheld));
        }
    }

    /// The units with numbers of which something is known.
    pub(crate) fn known(&self) -> u128 {
        let numbers = self.cells.iter().filter(|cell| cell.value.is_scalar());
        numbers.fold(self.zero.units(), |known, cell| known | touched(cell.start.into(), cell.end()))
    }

    /// Whether some of these bytes are of an object that only calls may touch.
    pub(crate) fn has_opaque_in(&self, bytes: &ByteSet) -> bool {
        let opaque = self.cells.iter().filter(|cell| matches!(cell.value.kind, Kind::Opaque { .. }));
        opaque.into_iter().any(|cell| bytes.has_any(cell.start.into(), cell.end()))
    }

    /// Forgets all pointers outside of these units.
    pub(crate) fn forget_pointers(&mut self, read: u128) {
        let mut at = 0;
        while let Some(cell) = self.cells.get(at) {
            if cell.value.is_pointer() && !cell.touches(read) {
                self.remove_cell(at);
            } else {
                at += 1;
            }
        }
    }

    /// Withholds what was written outside of `live`. Pointers of which a part is live are kept.
    fn forget_units(&mut self, live: u128) {
        let mut kept = ByteSet::from_units(live, &self.init);
        let mut at = 0;
        while let Some(cell) = self.cells.get(at) {
            match (cell.touches(live), cell.value.is_pointer()) {
                (true, true) => kept.insert(cell.start.into(), cell.end()),
                (true, false) => {}
                (false, _) => {
                    self.remove_cell(at);
                    continue;
                }
            }
            at += 1;
        }
        self.withheld = self.withheld.or(&self.init.and_not(&kept));
        self.init = self.init.and(&kept);
        self.pointers = self.pointers.and(&kept);
        self.zero = self.zero.and(&kept);
    }

    /// Forgets all numbers outside of these units.
    pub(crate) fn forget_numbers(&mut self, needed: u128) {
        let mut at = 0;
        while let Some(cell) = self.cells.get(at) {
            if cell.value.is_scalar() && !cell.touches(needed) {
                self.remove_cell(at);
            } else {
                at += 1;
            }
        }
        if !self.zero.is_empty() {
            self.zero = self.zero.and(&ByteSet::from_units(needed, &self.zero));
        }
    }

    /// Forgets all zeroes but those of `model` in the units of `needed`, and those in the units of `but`. Returns the
    /// units in which some were forgotten.
    pub(crate) fn forget_zeroes(&mut self, model: &ByteSet, needed: u128, but: u128) -> u128 {
        let in_units = |units| ByteSet::from_units(units, &self.zero).and(&self.zero);
        let kept = in_units(needed).and(model).or(&in_units(but));
        let forgotten = self.zero.and_not(&kept).units();
        self.zero = kept;
        forgotten
    }

    /// Whether a part of `start..end` is a pointer, or may be the remains of one.
    pub(crate) fn is_withheld(&self, start: u32, end: u32) -> bool {
        self.withheld.has_any(start, end) || self.pointers.has_any(start, end)
    }

    /// The live bytes that may be remains of pointers.
    pub(crate) fn remains(&self) -> &ByteSet {
        &self.remains
    }

    /// Replaces the pointers that `dead` selects by the stale address `ended`, or withholds their bytes if there is
    /// none. Parts of objects that only calls may touch are always withheld.
    pub(crate) fn end_cells(&mut self, ended: &Value, dead: impl Fn(&Value) -> bool) {
        let mut at = 0;
        while at < self.cells.len() {
            let cell = &mut self.cells[at];
            if !dead(&cell.value) {
                at += 1;
            } else if ended.is_pointer() && !matches!(cell.value.kind, Kind::Opaque { .. }) {
                cell.value = (*ended).into();
                at += 1;
            } else {
                let cell = *cell;
                self.withhold(&cell);
                self.remove_cell(at);
            }
        }
    }

    /// Marks the bytes of a cell that became the constant 0: a null pointer, or a compared number.
    pub(crate) fn set_cell(&mut self, index: usize, value: Value) {
        let cell = &mut self.cells[index];
        if cell.value.is_pointer() && !value.is_pointer() {
            self.pointers.remove(cell.start.into(), cell.end());
        }
        cell.value = value.into();
    }

    /// Withholds the bytes of a pointer cell.
    fn withhold(&mut self, cell: &Cell) {
        let (start, end) = (cell.start.into(), cell.end());
        self.init.remove(start, end);
        self.pointers.remove(start, end);
        self.withheld.insert(start, end);
        self.remains.insert(start, end);
        if self.live != u128::MAX {
            self.remains = self.remains.and(&ByteSet::from_units(self.live, &self.remains));
        }
    }

    /// Bytes were overwritten: nothing is left of a pointer there.
    fn give_back(&mut self, start: u32, end: u32) {
        self.withheld.remove(start, end);
        self.remains.remove(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stack: &Stack, start: u32, size: Size) -> Option<Value> {
        match stack.read(start, size) {
            Found::Value(value) => Some(value),
            Found::Unwritten | Found::Remains | Found::PartOfPointer => None,
        }
    }

    #[test]
    fn a_narrow_fill_of_a_wide_spill_keeps_what_it_can() {
        let mut stack = Stack::default();
        stack.write(504, Size::B8, &Value::constant(0x1122_3344_5566_7788));
        assert_eq!(read(&stack, 504, Size::B4), Some(Value::constant(0x5566_7788)));
        assert_eq!(read(&stack, 508, Size::B2), Some(Value::constant(0x3344)));
        assert_eq!(read(&stack, 511, Size::B1), Some(Value::constant(0x11)));
    }

    #[test]
    fn a_partial_overwrite_forgets_the_spilled_range() {
        let mut stack = Stack::default();
        stack.write(504, Size::B8, &Value::constant(5));
        stack.write(504, Size::B1, &Value::UNKNOWN);
        let value = read(&stack, 504, Size::B8).expect("initialised");
        assert_eq!(value.num, Scalar::UNKNOWN);
    }

    #[test]
    fn a_spilled_half_keeps_only_the_half() {
        let mut stack = Stack::default();
        let mut wide = Value::scalar(Scalar::constant(0x1_0000_0007));
        wide.id = 9;
        stack.write(508, Size::B4, &wide);
        assert_eq!(read(&stack, 508, Size::B4), Some(Value::constant(7)));
        let mut linked = Value::scalar(Scalar::UNKNOWN);
        linked.id = 9;
        stack.write(508, Size::B4, &linked);
        assert_eq!(
            read(&stack, 508, Size::B4).map(|value| (value.id, value.num.umax)),
            Some((0, 0xffff_ffff))
        );
    }

    #[test]
    fn constants_side_by_side_are_read_as_one_number() {
        let mut stack = Stack::default();
        stack.write(504, Size::B4, &Value::constant(0x1234));
        stack.write(508, Size::B4, &Value::constant(0));
        assert_eq!(read(&stack, 504, Size::B8), Some(Value::constant(0x1234)));
        stack.write(508, Size::B2, &Value::constant(0xabcd));
        assert_eq!(read(&stack, 504, Size::B8), Some(Value::constant(0xabcd_0000_1234)));
        stack.write(510, Size::B1, &Value::UNKNOWN);
        assert_eq!(read(&stack, 504, Size::B8).map(|value| value.num), Some(Scalar::UNKNOWN));
    }

    #[test]
    fn no_part_of_a_pointer_is_ever_read_as_a_number() {
        let mut stack = Stack::default();
        stack.write(504, Size::B8, &Value::pointer(Kind::Packet, 0));
        assert!(matches!(stack.read(504, Size::B4), Found::PartOfPointer));
        assert!(matches!(stack.read(508, Size::B4), Found::PartOfPointer));
        stack.write(504, Size::B4, &Value::constant(1));
        assert!(matches!(stack.read(508, Size::B4), Found::Remains));
        assert_eq!(read(&stack, 504, Size::B4), Some(Value::constant(1)));
        stack.write(504, Size::B8, &Value::pointer(Kind::Packet, 0));
        stack.weak_write(506, 507, true);
        assert!(matches!(stack.read(504, Size::B8), Found::Remains));
    }

    #[test]
    fn a_store_at_an_unknown_place_initialises_nothing() {
        let mut stack = Stack::default();
        stack.write(504, Size::B8, &Value::constant(0));
        stack.weak_write(496, 512, false);
        assert!(matches!(stack.read(496, Size::B8), Found::Unwritten));
        assert_eq!(read(&stack, 504, Size::B8), Some(Value::UNKNOWN));
    }

    #[test]
    fn what_nobody_reads_is_withheld_and_not_compared() {
        let mut stack = Stack::default();
        stack.write(504, Size::B8, &Value::pointer(Kind::Packet, 0));
        stack.write(496, Size::B8, &Value::pointer(Kind::Packet, 0));
        stack.end_cells(&Value::UNKNOWN, |_| true);
        stack.write(488, Size::B8, &Value::UNKNOWN);
        let units = |start: u32, end: u32| u128::MAX >> (128 - (end - start) / 4) << (start / 4);
        stack.forget_dead(units(496, 504), u128::MAX);
        let mut remains = ByteSet::EMPTY;
        remains.insert(496, 504);
        assert!(*stack.remains() == remains);
        assert!(stack.is_withheld(504, 512) && stack.is_withheld(488, 496) && !stack.is_withheld(480, 488));
        stack.write(496, Size::B8, &Value::UNKNOWN);
        assert!(stack.remains().is_empty() && !stack.is_withheld(496, 504));
    }

    #[test]
    fn a_changed_value_is_not_the_one_that_was_kept() {
        let mut stack = Stack::default();
        stack.write(504, Size::B8, &Value::pointer(Kind::Packet, 0));
        let mut changed = |change: &dyn Fn(&mut Stack)| {
            stack.cells[0].value.keep(7);
            let mut other = stack.clone();
            assert_eq!(other.cells[0].value.kept(), 7);
            change(&mut other);
            other.cells[0].value.kept() == 0
        };
        assert!(changed(&|stack| stack.set_cell(0, Value::constant(1))));
        assert!(changed(&|stack| stack.end_cells(&Value::pointer(Kind::PacketHalf, 0), |_| true)));
        assert!(changed(&|stack| stack.write(504, Size::B8, &Value::constant(1))));
        assert!(!changed(&|stack| stack.write(496, Size::B8, &Value::constant(1))));
    }
}
