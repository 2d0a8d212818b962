//! Lending a context to a run, and taking it back.
//!
//! ```text
//!   word 0          1 ..                                  of one buffer on the stack of the run
//!   [what functions][the context's C structure][structures that it leads to, one after the other]
//!     work on            |  addresses of slices and of these structures
//!                        '-> r1
//! ```
//!
//! Programs never see Rust's structures: a host pushes field after field, and each is compared with the slot that the
//! description has for it. A push that does not fit ends the run before it begins. So the bytes always are what the
//! verifier assumed, also if [`HostStruct`](super::HostStruct) was implemented wrongly by hand.
//!
//! Slices are borrowed for `'r`, which covers the run: the addresses end before the borrows do. Padding, and structures
//! behind null pointers, are zero. A program cannot write an address, so only numbers are taken back.

use super::describe::HostStruct;
use super::fields::Number;
use skep_isa::Size;
use std::any::TypeId;
use std::marker::PhantomData;

/// A field of the description at its place, in the order in which fields are lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Its first byte, counted from the context's.
    pub(super) at: u32,
    pub(super) kind: SlotKind,
    /// Whether programs may write it, or what it leads to.
    pub(super) writable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Numbers {
        size: Size,
        signed: bool,
        count: u32,
    },
    /// Two addresses. The number is that of [`skep_abi::FieldKind::SliceData`].
    Slice(u8),
    Bytes {
        bytes: u32,
        nullable: bool,
    },
    /// The structure is at `home`, and its slots are those up to `end`.
    /// The number is that of [`skep_abi::StructKind::Host`].
    Struct {
        number: u8,
        home: u32,
        end: usize,
        nullable: bool,
    },
}

/// What a run's functions find in front of the context: the host's part of it.
pub(crate) struct RunPart {
    pub(crate) host: *mut (),
    /// Of what `host` points to.
    pub(crate) of: TypeId,
}

/// Words in front of the context.
const FRONT: usize = 1;

/// The memory of a run for contexts of common size; larger ones are allocated.
pub(crate) struct Space {
    small: [u64; 48],
    large: Vec<u64>,
}

impl Space {
    /// Zeroes, for a context of that many bytes.
    pub(crate) fn new(bytes: u32) -> Self {
        let words = FRONT + bytes.div_ceil(8) as usize;
        let small = [0; 48];
        let large = if words > small.len() { vec![0; words] } else { Vec::new() };
        Self { small, large }
    }

    pub(crate) fn words(&mut self) -> &mut [u64] {
        if self.large.is_empty() { &mut self.small } else { &mut self.large }
    }
}

/// A place for the fields of a context.
#[derive(Debug)]
pub struct Lending<'r> {
    slots: &'static [Slot],
    next: usize,
    words: &'r mut [u64],
    base: u64,
    fits: bool,
    #[cfg_attr(not(test), allow(dead_code))] // checking mode asks
    pub(super) lent: Lent,
    _borrows: PhantomData<&'r mut [u8]>,
}

/// The memory that was lent, for checking mode.
#[derive(Debug, Default)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) struct Lent {
    #[cfg(test)]
    pub(super) slices: Vec<(u8, u64, u64, bool)>,
    #[cfg(test)]
    pub(super) bytes: Vec<(u64, u64)>,
    #[cfg(test)]
    pub(super) structs: Vec<(u8, u64)>,
}

impl<'r> Lending<'r> {
    pub(crate) fn new(slots: &'static [Slot], words: &'r mut [u64]) -> Self {
        let base = words.as_mut_ptr().expose_provenance() as u64 + 8 * FRONT as u64;
        Self { slots, next: 0, words, base, fits: true, lent: Lent::default(), _borrows: PhantomData }
    }

    /// The address of the context, if everything was lent as described.
    pub(crate) fn finish(&mut self, part: &RunPart) -> Option<u64> {
        self.words[0] = std::ptr::from_ref(part).expose_provenance() as u64;
        (self.fits && self.next == self.slots.len()).then_some(self.base)
    }

    /// A number.
    pub fn number<N: Number>(&mut self, value: N) {
        self.numbers(&[value]);
    }

    /// An array of numbers.
    pub fn numbers<N: Number>(&mut self, values: &[N]) {
        let (size, signed, count) = (N::SIZE, N::SIGNED, values.len());
        let Some(slot) = self.slot(|slot| is_numbers(slot, size, signed, count)) else { return };
        for (at, value) in values.iter().enumerate() {
            self.set(slot.at + at as u32 * size.bytes(), size, value.to_bits());
        }
    }

    /// Bytes that programs may only read.
    pub fn slice(&mut self, bytes: &'r [u8]) {
        let Some(slot) = self.slot(|slot| matches!(slot.kind, SlotKind::Slice(_)) && !slot.writable) else {
            return;
        };
        self.set_slice(slot, bytes.as_ptr().expose_provenance() as u64, bytes.len());
    }

    /// Bytes that programs may write, if the description says so.
    pub fn slice_mut(&mut self, bytes: &'r mut [u8]) {
        let Some(slot) = self.slot(|slot| matches!(slot.kind, SlotKind::Slice(_))) else { return };
        self.set_slice(slot, bytes.as_mut_ptr().expose_provenance() as u64, bytes.len());
    }

    fn set_slice(&mut self, slot: &Slot, start: u64, bytes: usize) {
        self.set(slot.at, Size::B8, start);
        self.set(slot.at + 8, Size::B8, start + bytes as u64);
        #[cfg(test)]
        if let SlotKind::Slice(number) = slot.kind {
            self.lent.slices.push((number, start, bytes as u64, slot.writable));
        }
    }

    /// A pointer to bytes that programs may only read.
    pub fn bytes(&mut self, bytes: Option<&'r [u8]>) {
        let start = bytes.map(|bytes| (bytes.as_ptr().expose_provenance() as u64, bytes.len()));
        self.set_bytes(start, false);
    }

    /// A pointer to bytes that programs may write, if the description says so.
    pub fn bytes_mut(&mut self, bytes: Option<&'r mut [u8]>) {
        let start = bytes.map(|bytes| (bytes.as_mut_ptr().expose_provenance() as u64, bytes.len()));
        self.set_bytes(start, true);
    }

    fn set_bytes(&mut self, given: Option<(u64, usize)>, may_write: bool) {
        let fits = |slot: &Slot| match slot.kind {
            SlotKind::Bytes { bytes, nullable } => {
                given.map_or(nullable, |(_, len)| len == bytes as usize) && (may_write || !slot.writable)
            }
            _ => false,
        };
        let Some(slot) = self.slot(fits) else { return };
        let (start, _len) = given.unwrap_or_default();
        self.set(slot.at, Size::B8, start);
        #[cfg(test)]
        if start != 0 {
            self.lent.bytes.push((start, _len as u64));
        }
    }

    /// A pointer to another structure.
    pub fn structure<T: HostStruct>(&mut self, of: Option<&'r mut T>) {
        if let Some(end) = self.begin_struct(of.is_some(), true) {
            if let Some(of) = of {
                of.lend(self);
            }
            self.end_struct(end);
        }
    }

    /// A pointer to another structure, in which programs may write nothing.
    pub fn structure_shared<T: HostStruct>(&mut self, of: Option<&'r T>) {
        if let Some(end) = self.begin_struct(of.is_some(), false) {
            if let Some(of) = of {
                of.lend_shared(self);
            }
            self.end_struct(end);
        }
    }

    /// Sets the pointer. Returns the end of the structure's slots, if it is there.
    pub(super) fn begin_struct(&mut self, given: bool, may_write: bool) -> Option<usize> {
        let fits = |slot: &Slot| match slot.kind {
            SlotKind::Struct { nullable, .. } => (given || nullable) && (may_write || !slot.writable),
            _ => false,
        };
        let slot = self.slot(fits)?;
        let SlotKind::Struct { number: _number, home, end, .. } = slot.kind else { return None };
        if !given {
            self.next = end;
            return None;
        }
        self.set(slot.at, Size::B8, self.base + u64::from(home));
        #[cfg(test)]
        self.lent.structs.push((_number, self.base + u64::from(home)));
        Some(end)
    }

    pub(super) fn end_struct(&mut self, end: usize) {
        self.fits &= self.next == end;
    }

    /// The next slot, if it is one that fits.
    pub(super) fn slot(&mut self, fits: impl Fn(&Slot) -> bool) -> Option<&'static Slot> {
        let slot = self.slots.get(self.next).filter(|slot| self.fits && fits(slot));
        self.next += 1;
        self.fits &= slot.is_some();
        slot
    }

    pub(super) fn set(&mut self, at: u32, size: Size, value: u64) {
        // A field is aligned, so it is inside of a word.
        let word = &mut self.words[FRONT + at as usize / 8];
        let mut bytes = word.to_ne_bytes();
        let (start, count) = (at as usize % 8, size.bytes() as usize);
        bytes[start..start + count].copy_from_slice(significant(&value.to_ne_bytes(), count));
        *word = u64::from_ne_bytes(bytes);
    }
}

#[cfg(test)]
impl Lending<'_> {
    /// Allows a run in checking mode what was lent.
    pub(crate) fn allow(&self, kind: &skep_abi::ProgramType, regions: &mut skep_interp::Regions<'_>) {
        use skep_interp::Rights;
        for (number, start, bytes, write) in &self.lent.slices {
            regions.allow_slice(*number, *start, *bytes, Rights { read: true, write: *write });
        }
        for (start, bytes) in &self.lent.bytes {
            regions.allow_record(*start, *bytes);
        }
        for (number, start) in &self.lent.structs {
            for field in kind.structs[usize::from(*number)].fields {
                let rights = Rights { read: true, write: !field.writes.is_empty() };
                regions.allow(start + u64::from(field.offset), field.size.bytes().into(), rights);
            }
        }
    }
}

/// What a run has left of a context.
#[derive(Debug)]
pub struct TakingBack<'w> {
    pub(super) slots: &'static [Slot],
    pub(super) next: usize,
    words: &'w [u64],
}

impl<'w> TakingBack<'w> {
    pub(crate) fn new(slots: &'static [Slot], words: &'w [u64]) -> Self {
        Self { slots, next: 0, words }
    }

    /// A number, which is left as it is if programs may not write it.
    pub fn number<N: Number>(&mut self, value: &mut N) {
        self.numbers(std::slice::from_mut(value));
    }

    /// Numbers, likewise.
    pub fn numbers<N: Number>(&mut self, values: &mut [N]) {
        let slot = self.slots.get(self.next);
        self.next += 1;
        let fits = |slot: &&Slot| slot.writable && is_numbers(slot, N::SIZE, N::SIGNED, values.len());
        let Some(slot) = slot.filter(fits) else { return };
        for (index, value) in values.iter_mut().enumerate() {
            *value = N::from_bits(self.bits_at(slot.at, index, N::SIZE));
        }
    }

    /// The bits of a number of that size: the one with this index behind `at`.
    pub(super) fn bits_at(&self, at: u32, index: usize, size: Size) -> u64 {
        let count = size.bytes() as usize;
        let at = at as usize + index * count;
        let word = self.words[FRONT + at / 8].to_ne_bytes();
        let mut bytes = [0; 8];
        let place = if cfg!(target_endian = "big") { 8 - count } else { 0 };
        bytes[place..place + count].copy_from_slice(&word[at % 8..at % 8 + count]);
        u64::from_ne_bytes(bytes)
    }

    /// A field that is not taken back: programs have written where it leads to, or nothing.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    /// What a pointer leads to.
    pub fn structure<T: HostStruct>(&mut self, of: Option<&mut T>) {
        let slot = self.slots.get(self.next);
        self.next += 1;
        let Some(Slot { kind: SlotKind::Struct { end, .. }, writable, .. }) = slot else { return };
        if let Some(of) = of.filter(|_| *writable) {
            of.take_back(self);
        }
        self.next = *end;
    }
}

fn is_numbers(slot: &Slot, wanted: Size, sign: bool, numbers: usize) -> bool {
    matches!(slot.kind, SlotKind::Numbers { size, signed, count }
        if size == wanted && signed == sign && count as usize == numbers)
}

/// The bytes of a number that count.
fn significant(bytes: &[u8; 8], count: usize) -> &[u8] {
    if cfg!(target_endian = "big") { &bytes[8 - count..] } else { &bytes[..count] }
}
