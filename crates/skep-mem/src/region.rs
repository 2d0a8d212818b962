//! A range of addresses that stays mapped as long as its owner lives, whatever becomes of its pages.
//!
//! ```text
//!   base                                                        base + len
//!   | touched pages | never touched | touched | given back, zero again |
//! ```
//!
//! Memory comes page by page as it is touched, zeroed. A page that was given back is zero at its next touch; a stale pointer into
//! it reads zeroes and never faults.

use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::Error;

#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is plain memory without ties to a thread, reached only through raw pointers, whose users answer for
// their accesses.
unsafe impl Send for Region {}
// SAFETY: as above; the methods read the region's own immutable fields only.
unsafe impl Sync for Region {}

impl Region {
    /// `len` is rounded up to whole pages.
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: 1, size: len };
        let len = len
            .checked_next_multiple_of(page())
            .filter(|&len| len <= isize::MAX as usize)
            .ok_or(too_large)?;
        // NORESERVE: what is never touched should not count.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let base =
            base.ok().and_then(|base| NonNull::new(base.cast())).ok_or(Error::OutOfMemory { bytes: len })?;
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Gives pages back to the system; they stay readable and writable, and are zero. `false` where the system refuses, and
    /// nothing has changed then.
    ///
    /// # Safety
    ///
    /// `at..at + len` are whole pages of the region in which nobody keeps anything.
    pub(crate) unsafe fn give_back(&self, at: usize, len: usize) -> bool {
        debug_assert!(at.is_multiple_of(page()) && len.is_multiple_of(page()) && at + len <= self.len);
        // SAFETY: whole pages of this mapping by contract.
        unsafe { madvise(self.base.as_ptr().add(at).cast(), len, Advice::LinuxDontNeed).is_ok() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and unmapped only here. That it fails cannot be helped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Bytes in a page of the system.
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_given_back_are_zero_and_still_there() {
        let region = Region::new(3 * page() - 1).unwrap();
        assert_eq!(region.len, 3 * page());
        // SAFETY: all of it is the region's, and nobody else knows it.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(region.base().as_ptr(), region.len);
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
            assert!(region.give_back(page(), page()));
            assert!(bytes[..page()].iter().all(|&byte| byte == 7));
            assert!(bytes[page()..2 * page()].iter().all(|&byte| byte == 0));
            assert!(bytes[2 * page()..].iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn sizes_that_no_memory_has_are_refused() {
        assert_eq!(Region::new(usize::MAX).unwrap_err(), Error::TooLarge { count: 1, size: usize::MAX });
        let half = isize::MAX as usize - page();
        assert!(matches!(Region::new(half), Err(Error::OutOfMemory { .. })));
    }
}
