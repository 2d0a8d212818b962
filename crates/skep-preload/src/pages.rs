//! Which memory the application may access.
//!
//! A system call answers `EFAULT` for wrong addresses; a copy in the process itself would end it. So each page is
//! looked at before the first copy from or to it, by a call that touches it as a copy would (madvise(2), Linux 5.14).
//! Pages that were right are remembered: arguments come from a few pages, of stacks above all.

use crate::arch::{self, MADVISE};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const POPULATE_READ: u64 = 22;
const POPULATE_WRITE: u64 = 23;
const REMEMBERED: usize = 64;
const SEEN: usize = 1;
const WRITABLE: usize = 2;

unsafe extern "C" {
    fn getauxval(kind: core::ffi::c_ulong) -> core::ffi::c_ulong;
}

/// `AT_PAGESZ` of `linux/auxvec.h`.
const PAGE_SIZE: core::ffi::c_ulong = 6;

/// The number of a page, and what was allowed. Each word is one fact, whole in itself.
static KNOWN: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];
/// The logarithm of a page's size; 0 until it is asked for.
static SHIFT: AtomicUsize = AtomicUsize::new(0);

/// Whether all these bytes may be read, or written.
#[inline]
pub(crate) fn may(address: u64, len: usize, write: bool) -> bool {
    let address = address as usize;
    let Some(end) = address.checked_add(len) else { return false };
    // Relaxed, here and below: no fact depends on another.
    let mut shift = SHIFT.load(Relaxed);
    if shift == 0 {
        // SAFETY: libc's function looks a number up in memory.
        shift = unsafe { getauxval(PAGE_SIZE) }.trailing_zeros() as usize;
        if !(12..=16).contains(&shift) {
            return false;
        }
        SHIFT.store(shift, Relaxed);
    }
    let mut page = address >> shift;
    while page << shift < end {
        if !may_page(page, shift, write) {
            return false;
        }
        page += 1;
    }
    true
}

/// Whether the kernel refuses what is not allowed; an emulator may say yes to everything.
pub(crate) fn can_tell() -> bool {
    static CONSTANT: [u8; 1] = [1];
    let at = CONSTANT.as_ptr() as u64;
    may(at, 1, false) && !may(at, 1, true)
}

#[inline]
fn may_page(page: usize, shift: usize, write: bool) -> bool {
    let known = &KNOWN[(page ^ page >> 6) % REMEMBERED];
    let wanted = page << 2 | SEEN | if write { WRITABLE } else { 0 };
    let found = known.load(Relaxed);
    // A page that may be written may be read: everywhere but in files that are opened for writing alone.
    found == wanted || found == wanted | WRITABLE || look(page, shift, write, known, wanted)
}

#[cold]
fn look(page: usize, shift: usize, write: bool, known: &AtomicUsize, wanted: usize) -> bool {
    let advice = if write { POPULATE_WRITE } else { POPULATE_READ };
    let arguments = [(page << shift) as u64, 1 << shift, advice, 0, 0, 0];
    // SAFETY: touches the page as a read or a write that changes nothing.
    let right = unsafe { arch::call(MADVISE, arguments) } == 0;
    if right {
        known.store(wanted, Relaxed);
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_testkit::Hidden;

    #[test]
    fn memory_is_known_to_be_readable_writable_or_neither() {
        static CONSTANT: [u8; 16] = [7; 16];
        if !can_tell() {
            return skep_testkit::hidden(Hidden::Advice, "memory that may not be accessed");
        }
        let mut local = [0u8; 16];
        for _ in 0..2 {
            assert!(may(local.as_mut_ptr() as u64, 16, true));
            assert!(may(local.as_ptr() as u64, 16, false));
            assert!(may(CONSTANT.as_ptr() as u64, 16, false));
            assert!(!may(CONSTANT.as_ptr() as u64, 16, true));
            for wild in [0, 8, 1 << 47, u64::MAX - 8, u64::MAX - 4095, 1 << 63] {
                assert!(!may(wild, 8, false) && !may(wild, 8, true), "{wild:#x}");
            }
        }
    }
}
