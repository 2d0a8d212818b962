//! The value of an element: one, or one for each CPU.
//!
//! ```text
//!   in the map     | CPU 0 ....pad | CPU 1 ....pad | ...      `cpu_stride` bytes apart, in whole words
//!   at the host    | CPU 0 .pad8   | CPU 1 .pad8   | ...      as in Linux's system call
//! ```
//!
//! A value may have special fields: locks, timers, kept pointers. Every copy of a value skips them:
//!
//! ```text
//!   from the source  | data | ////// | data |     the field's bytes are ignored
//!   in the map       | data | lock   | data |     unchanged; zero in a new element
//!   at the host      | data | 000000 | data |
//! ```

use skep_abi::{SpecialField, SpecialKind};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::caller::Caller;
use crate::lock::Guard;
use crate::objects::{Held, Owning};
use crate::racy;

/// The source of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// From the host: the values of all CPUs, each padded to 8 bytes, or the one shared value.
    All(*const u8),
    /// From a program that runs as this virtual CPU: the value for this CPU.
    Cpu(*const u8, u32),
}

/// The layout of a map's values.
#[derive(Debug)]
pub(crate) struct Values {
    /// Bytes in the value of one CPU.
    size: usize,
    /// Values of an element: 1 if all CPUs share it.
    copies: u32,
    /// Bytes from one CPU's value to the next; 0 if there is one value.
    cpu_stride: usize,
    /// The special fields, if any.
    special: Option<Box<Special>>,
}

/// The special fields of a value.
#[derive(Debug, Default)]
struct Special {
    /// Offset and length of each field, ascending. Both are multiples of 4.
    fields: Vec<(usize, usize)>,
    /// Offset and length of the data between them; the last may have any length.
    data: Vec<(usize, usize)>,
    /// The lock's offset.
    lock: Option<usize>,
    /// The offsets of timers and work queues.
    deferred: Vec<usize>,
    /// What owns objects.
    owning: Option<Owning>,
}

impl Values {
    pub(crate) fn shared(size: u32) -> Self {
        Self { size: size as usize, copies: 1, cpu_stride: 0, special: None }
    }

    /// `cpu_stride` is a multiple of 8 and at least `size`.
    pub(crate) fn per_cpu(size: u32, cpus: u32, cpu_stride: usize) -> Self {
        debug_assert!(cpu_stride.is_multiple_of(8) && cpu_stride >= size as usize);
        Self { size: size as usize, copies: cpus, cpu_stride, special: None }
    }

    /// Sets the special fields. They ascend, do not overlap, are inside the value, and begin and end at multiples of
    /// 4.
    pub(crate) fn set_fields(&mut self, fields: &[SpecialField]) {
        let mut special = Special::default();
        let mut end = 0;
        for field in fields {
            let (offset, size) = (field.offset as usize, field.size as usize);
            debug_assert!(offset >= end && offset.is_multiple_of(4) && size.is_multiple_of(4));
            special.fields.push((offset, size));
            special.data.extend((offset > end).then_some((end, offset - end)));
            special.lock = special.lock.or((field.kind == SpecialKind::SpinLock).then_some(offset));
            let deferred = matches!(field.kind, SpecialKind::Timer | SpecialKind::Workqueue);
            special.deferred.extend((deferred && offset.is_multiple_of(8) && size >= 8).then_some(offset));
            end = offset + size;
        }
        debug_assert!(end <= self.size);
        special.owning = Owning::of(fields);
        special.data.extend((self.size > end).then_some((end, self.size - end)));
        self.special = (!fields.is_empty()).then(|| Box::new(special));
    }

    /// Whether a value is shared by all CPUs and has no special fields.
    pub(crate) fn are_plain(&self) -> bool {
        !self.is_per_cpu() && self.special.is_none()
    }

    /// As [`fill`](Self::fill) by a program, for [plain](Self::are_plain) values.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write), of the value of one CPU.
    #[inline(always)]
    pub(crate) unsafe fn fill_plain(&self, at: *mut u8, from: *const u8) {
        debug_assert!(self.are_plain());
        // SAFETY: by the caller's contract.
        unsafe { racy::write_short(from, at, self.size) };
    }

    /// Whether values hold a lock.
    pub(crate) fn has_lock(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> Option<usize> {
        self.special.as_ref()?.lock
    }

    pub(crate) fn is_per_cpu(&self) -> bool {
        self.cpu_stride != 0
    }

    /// The number of values of an element.
    pub(crate) fn copies(&self) -> u32 {
        self.copies
    }

    pub(crate) fn cpu_stride(&self) -> usize {
        self.cpu_stride
    }

    /// The size of an element's values for the host, in bytes.
    pub(crate) fn host_size(&self) -> usize {
        if self.is_per_cpu() { self.padded() * self.copies as usize } else { self.size }
    }

    /// The address of one CPU's value.
    ///
    /// # Safety
    ///
    /// `at` is where an element's values begin; `cpu` is below the number of CPUs.
    #[inline(always)]
    pub(crate) unsafe fn of_cpu(&self, at: *mut u8, cpu: u32) -> *mut u8 {
        debug_assert!(cpu < self.copies || !self.is_per_cpu());
        // SAFETY: the caller's element has a value for each CPU; without per-CPU values the stride is 0.
        unsafe { at.add(cpu as usize * self.cpu_stride) }
    }

    /// The address of one CPU's value, given another's.
    pub(crate) fn of_other_cpu(&self, at: *mut u8, own: u32, cpu: u32) -> *mut u8 {
        let distance = (cpu as isize - own as isize) * self.cpu_stride as isize;
        at.wrapping_offset(distance)
    }

    /// Copies an element's values out for the host.
    ///
    /// # Safety
    ///
    /// `at` is where an element's values begin; `out` is writable for `host_size` bytes and the caller's own.
    pub(crate) unsafe fn read(&self, at: *mut u8, out: *mut u8) {
        for cpu in 0..self.copies {
            let to = cpu as usize * self.padded();
            // SAFETY: the element has `copies` values, and `out` room for as many; a per-CPU value takes whole
            // words on both sides.
            unsafe {
                let len = if self.is_per_cpu() { self.padded() } else { self.size };
                racy::read(self.of_cpu(at, cpu), out.add(to), len);
                for &(offset, len) in self.special.iter().flat_map(|special| &special.fields) {
                    out.add(to + offset).write_bytes(0, len);
                }
            }
        }
    }

    /// As [`read`](Self::read), under the value's lock.
    ///
    /// # Safety
    ///
    /// As for [`read`](Self::read), and this thread holds no lock.
    pub(crate) unsafe fn read_locked(&self, at: *mut u8, out: *mut u8) {
        // SAFETY: by the caller's contract; the lock is in the element.
        unsafe {
            let _guard = self.lock().map(|offset| Guard::take(at.add(offset)));
            self.read(at, out);
        }
    }

    /// As `read_locked`, if the lock is free. `false`, with nothing done, if not.
    ///
    /// # Safety
    ///
    /// As for the function without `try`.
    pub(crate) unsafe fn try_read_locked(&self, at: *mut u8, out: *mut u8) -> bool {
        // SAFETY: by the caller's contract; the lock is in the element.
        unsafe {
            let guard = self.lock().map(|offset| Guard::try_take(at.add(offset)));
            if matches!(guard, Some(None)) {
                return false;
            }
            self.read(at, out);
        }
        true
    }

    /// Overwrites an element's values: all of them, or the one of the program's CPU.
    ///
    /// # Safety
    ///
    /// `at` is where an element's values begin; `source` is readable for `host_size` bytes ([`Source::All`]) or
    /// the size of one value ([`Source::Cpu`]), and its CPU number is below the number of CPUs.
    pub(crate) unsafe fn write(&self, at: *mut u8, source: Source) {
        match source {
            // SAFETY: by the caller's contract; `of_cpu` is inside the element.
            Source::Cpu(from, cpu) => unsafe { self.write_one(from, self.of_cpu(at, cpu)) },
            Source::All(from) => {
                for cpu in 0..self.copies {
                    // SAFETY: the source's values follow each other, padded; `write` clears the padding.
                    unsafe {
                        let from = from.add(cpu as usize * self.padded());
                        self.write_one(from, self.of_cpu(at, cpu));
                    }
                }
            }
        }
    }

    /// As [`write`](Self::write), under the value's lock.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write), and this thread holds no lock.
    pub(crate) unsafe fn write_locked(&self, at: *mut u8, source: Source) {
        // SAFETY: by the caller's contract; the lock is in the element.
        unsafe {
            let _guard = self.lock().map(|offset| Guard::take(at.add(offset)));
            self.write(at, source);
        }
    }

    /// As `write_locked`, if the lock is free. `false`, with nothing done, if not.
    ///
    /// # Safety
    ///
    /// As for the function without `try`.
    pub(crate) unsafe fn try_write_locked(&self, at: *mut u8, source: Source) -> bool {
        // SAFETY: by the caller's contract; the lock is in the element.
        unsafe {
            let guard = self.lock().map(|offset| Guard::try_take(at.add(offset)));
            if matches!(guard, Some(None)) {
                return false;
            }
            self.write(at, source);
        }
        true
    }

    /// # Safety
    ///
    /// `from` is readable for the size of one value, `to` is one CPU's value.
    #[inline(always)]
    unsafe fn write_one(&self, from: *const u8, to: *mut u8) {
        // SAFETY: by the caller's contract.
        unsafe {
            match &self.special {
                None => racy::write(from, to, self.size),
                Some(special) => special.write_around(from, to),
            }
        }
    }

    /// Ends the timers and work queues of an element's values, and frees what they own: all of them, or those that
    /// `source` has overwritten.
    ///
    /// # Safety
    ///
    /// `at` is where an element's values begin, and stays mapped; `caller` is the calling thread.
    pub(crate) unsafe fn clear(&self, at: *mut u8, source: Option<Source>, held: Held, caller: Caller) {
        let Some(special) = &self.special else { return };
        for &offset in &special.deferred {
            // SAFETY: the field is in the value that all CPUs share (maps with a value for each have no such fields),
            // is longer than a word and aligned to one; its first word is accessed only atomically
            // (`Map::number_at`).
            unsafe { &*at.add(offset).cast::<AtomicU64>() }.store(0, Ordering::SeqCst);
        }
        let Some(owning) = &special.owning else { return };
        for cpu in 0..self.copies {
            let written = match source {
                Some(Source::Cpu(_, own)) => !self.is_per_cpu() || own == cpu,
                _ => true,
            };
            if written {
                // SAFETY: by the caller's contract; the element has a value for each CPU.
                unsafe { owning.clear(self.of_cpu(at, cpu), held, caller) };
            }
        }
    }

    /// Whether values own objects.
    pub(crate) fn own(&self) -> bool {
        self.special.as_ref().is_some_and(|special| special.owning.is_some())
    }

    /// Fills a new element's values; bytes that the source does not provide are zero.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    pub(crate) unsafe fn fill(&self, at: *mut u8, source: Source) {
        if self.special.is_some() {
            for cpu in 0..self.copies {
                // SAFETY: the element has a value for each CPU.
                unsafe { racy::zero(self.of_cpu(at, cpu), self.size) };
            }
        }
        if let (Source::Cpu(_, own), true) = (source, self.is_per_cpu()) {
            for cpu in (0..self.copies).filter(|&cpu| cpu != own) {
                // SAFETY: the element has a value for each CPU.
                unsafe { racy::zero(self.of_cpu(at, cpu), self.size) };
            }
        }
        // SAFETY: by the caller's contract.
        unsafe { self.write(at, source) };
    }

    /// Bytes in the value of one CPU, in whole words.
    fn padded(&self) -> usize {
        self.size.next_multiple_of(8)
    }
}

impl Special {
    /// # Safety
    ///
    /// `from` is readable for the size of one value, `to` is one CPU's value.
    #[cold]
    unsafe fn write_around(&self, from: *const u8, to: *mut u8) {
        for &(offset, len) in &self.data {
            // SAFETY: the data is inside the value.
            unsafe { racy::write_part(from.add(offset), to.add(offset), len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(8))]
    struct Aligned([u8; 40]);

    fn field(kind: SpecialKind, offset: u32, size: u32) -> SpecialField {
        SpecialField { kind, offset, size }
    }

    #[test]
    fn copies_go_around_special_fields_wherever_they_are() {
        let lock = |at| field(SpecialKind::SpinLock, at, 4);
        let timer = |at| field(SpecialKind::Timer, at, 16);
        let cases: [(u32, Vec<SpecialField>); 8] = [
            (40, vec![lock(0)]),
            (40, vec![lock(4)]),
            (40, vec![lock(36)]),
            (39, vec![lock(32)]),
            (37, vec![timer(8), lock(32)]),
            (33, vec![lock(4), timer(8)]),
            (34, vec![lock(24)]),
            (4, vec![lock(0)]),
        ];
        for (size, fields) in cases {
            let mut values = Values::shared(size);
            values.set_fields(&fields);
            let size = size as usize;
            let special =
                |at: usize| fields.iter().any(|f| (f.offset..f.offset + f.size).contains(&(at as u32)));
            let mut inside = Aligned([0xee; 40]);
            let from: [u8; 40] = std::array::from_fn(|at| at as u8 + 1);
            // SAFETY: all of them have the value's size.
            unsafe { values.write(inside.0.as_mut_ptr(), Source::All(from.as_ptr())) };
            for (at, byte) in inside.0.iter().enumerate().take(size) {
                assert_eq!(*byte, if special(at) { 0xee } else { from[at] }, "{size}, {fields:?}: {at}");
            }
            let mut out = vec![0x77; size];
            // SAFETY: as above.
            unsafe { values.read(inside.0.as_mut_ptr(), out.as_mut_ptr()) };
            for (at, byte) in out.iter().enumerate() {
                assert_eq!(*byte, if special(at) { 0 } else { from[at] }, "{size}, {fields:?}: {at}");
            }
            // SAFETY: as above.
            unsafe { values.fill(inside.0.as_mut_ptr(), Source::Cpu(from.as_ptr(), 0)) };
            for (at, byte) in inside.0.iter().enumerate().take(size.next_multiple_of(8)) {
                let expected = if at >= size || special(at) { 0 } else { from[at] };
                assert_eq!(*byte, expected, "{size}, {fields:?}: {at} of a new one");
            }
        }
    }
}
