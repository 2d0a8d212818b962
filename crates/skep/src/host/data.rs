//! Contexts of types that were described as data: what a host in another language lends.
//!
//! ```text
//!   HostType::new(description) ── Program::run_data(type, &mut context, part) ──> HostData::lend ── slots ──> r1
//! ```
//!
//! Invariant: as for Rust structures, each field that is lent is compared with its slot, and a context that does not
//! fit is an error before the run. Sizes and signs of numbers are the slots': a host gives bits.

use super::lend::{Lending, SlotKind, TakingBack};

/// A context of a type that was described as data ([`HostType::new`](super::HostType::new)).
///
/// An implementation cannot do harm: what it lends is compared with the description before each run.
///
/// ```
/// use skep::host::{FieldType, HostData, HostType, Lending, StructType, TakingBack, VerdictType};
/// use skep::{Object, Runtime, isa::Size};
///
/// struct Row([u64; 2]);
///
/// impl HostData for Row {
///     fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
///         to.bits(self.0[0]);
///         to.bits(self.0[1]);
///     }
///     fn take_back(&mut self, from: &mut TakingBack<'_>) {
///         for number in &mut self.0 {
///             *number = from.bits().unwrap_or(*number);
///         }
///     }
/// }
///
/// let number = FieldType::Number { size: Size::B4, signed: false, writable: false };
/// let row = StructType::new("row").field("age", number.clone()).field("rank", number.writable());
/// let kind = HostType::new(row, "row_rank", VerdictType::default())?;
/// let runtime = Runtime::builder().host_type(kind).build()?;
/// let insns = skep::isa::assemble("r2 = *(u32 *)(r1 + 0)\n*(u32 *)(r1 + 4) = r2\nr0 = 7\nexit").expect("right");
/// let module = runtime.load(&Object::from_insns("rank", kind.program_type(), insns))?;
/// let mut row = Row([33, 0]);
/// assert_eq!(module.programs()[0].run_data(kind, &mut row, &mut ())?, 7);
/// assert_eq!(row.0, [33, 33]);
/// # Ok::<(), skep::Error>(())
/// ```
pub trait HostData {
    /// Lends each field, in the order of the description.
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>);

    /// Takes over the numbers that the program has written, in the same order.
    fn take_back(&mut self, from: &mut TakingBack<'_>);
}

impl Lending<'_> {
    /// A number of the size that the description says: its lowest bits.
    pub fn bits(&mut self, value: u64) {
        self.bits_array(1, |_| value);
    }

    /// An array of as many numbers, by their indices.
    pub fn bits_array(&mut self, numbers: u32, value: impl Fn(usize) -> u64) {
        let fits = |kind: &SlotKind| matches!(kind, SlotKind::Numbers { count, .. } if *count == numbers);
        let Some(slot) = self.slot(|slot| fits(&slot.kind)) else { return };
        let SlotKind::Numbers { size, .. } = slot.kind else { return };
        for index in 0..numbers {
            self.set(slot.at + index * size.bytes(), size, value(index as usize));
        }
    }

    /// A pointer to another structure, whose fields `lend` lends; null if it is not `given`.
    pub fn nested(&mut self, given: bool, lend: impl FnOnce(&mut Self)) {
        if let Some(end) = self.begin_struct(given, true) {
            lend(self);
            self.end_struct(end);
        }
    }
}

impl TakingBack<'_> {
    /// A number, extended by zeroes; `None` if programs may not write it.
    pub fn bits(&mut self) -> Option<u64> {
        let mut found = None;
        self.bits_array(|_, bits| found = Some(bits));
        found
    }

    /// Passes the numbers of an array with their indices to `each`, unless programs may not write them.
    pub fn bits_array(&mut self, mut each: impl FnMut(usize, u64)) {
        let slot = self.slots.get(self.next).filter(|slot| slot.writable);
        self.next += 1;
        let Some(slot) = slot else { return };
        if let SlotKind::Numbers { size, count, .. } = slot.kind {
            for index in 0..count as usize {
                each(index, self.bits_at(slot.at, index, size));
            }
        }
    }

    /// The structure that a pointer leads to. `given`: whether it was lent.
    pub fn nested(&mut self, given: bool, take: impl FnOnce(&mut Self)) {
        let slot = self.slots.get(self.next);
        self.next += 1;
        let Some(SlotKind::Struct { end, .. }) = slot.map(|slot| &slot.kind) else { return };
        if given {
            take(self);
        }
        self.next = *end;
    }
}
