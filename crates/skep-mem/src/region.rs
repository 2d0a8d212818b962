//! A range of addresses that stays mapped as long as its owner lives.
//!
//! ```text
//!   base                                                        base + len
//!   | touched pages | never touched | touched | returned, zero again |
//! ```
//!
//! The system commits zeroed pages as they are touched. A returned page is zero at its next touch: a stale pointer
//! into it reads zeroes and never faults.
//!
//! A region may be the memory of a file, so that other processes can map it too. Once these may not write to it any
//! more, the system takes no pages back: it would have to punch holes into the file.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::Error;
use crate::file::FileMemory;

#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// The owner of the mapping, if the memory is a file's.
    file: Option<FileMemory>,
    /// Whether large pages were requested for some part.
    large: AtomicBool,
}

// SAFETY: a region is plain memory that belongs to no thread; it is reached only through raw pointers, and their
// users guarantee that accesses are valid.
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
        // NORESERVE: untouched memory should not count.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address that the system chooses, affects no other memory.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let base =
            base.ok().and_then(|base| NonNull::new(base.cast())).ok_or(Error::OutOfMemory { bytes: len })?;
        Ok(Self { base, len, file: None, large: AtomicBool::new(false) })
    }

    /// The same in a file of its own. `name` is for people: `/proc` shows it.
    pub(crate) fn in_file(name: &str, len: usize) -> Result<Self, Error> {
        let memory = FileMemory::new(name, len)?;
        let (base, len) = (memory.base(), memory.len());
        Ok(Self { base, len, file: Some(memory), large: AtomicBool::new(false) })
    }

    pub(crate) fn file(&self) -> Option<&FileMemory> {
        self.file.as_ref()
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Asks the system for large pages in a part of the region, if it has 4 MiB or more: random look-ups in a large
    /// table mostly wait for address translation (TLB misses). If the system has none, nothing changes.
    pub(crate) fn prefer_large_pages(&self, at: usize, len: usize) {
        debug_assert!(at + len <= self.len);
        if len >= LARGE {
            // Relaxed, here and below: a hint.
            self.large.store(true, Ordering::Relaxed);
            self.advise(at, len, Advice::LinuxHugepage);
        }
    }

    /// Gives advice that has no visible effect on contents, for the whole pages of a part of the region.
    fn advise(&self, at: usize, len: usize, advice: Advice) {
        let (start, end) = (at.next_multiple_of(page()), (at + len) / page() * page());
        if start < end {
            // SAFETY: whole pages of this mapping.
            let _ = unsafe { madvise(self.base.as_ptr().add(start).cast(), end - start, advice) };
        }
    }

    /// Returns pages to the system. They stay readable and writable, and are zero. Returns `false`, with nothing
    /// changed, if the system refuses.
    ///
    /// # Safety
    ///
    /// `at..at + len` are whole pages of the region, whose contents are not needed.
    pub(crate) unsafe fn return_to_system(&self, at: usize, len: usize) -> bool {
        debug_assert!(at.is_multiple_of(page()) && len.is_multiple_of(page()) && at + len <= self.len);
        let advice = if self.file.is_some() { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
        // SAFETY: whole pages of this mapping, by the caller's contract.
        let given = unsafe { madvise(self.base.as_ptr().add(at).cast(), len, advice).is_ok() };
        if given && self.large.load(Ordering::Relaxed) {
            // Otherwise the system may merge what is left into a large page again, which commits the returned pages.
            let base = self.base.as_ptr().addr();
            let (start, end) = ((base + at) / UNIT * UNIT, (base + at + len).next_multiple_of(UNIT));
            let (start, end) = (start.max(base) - base, end.min(base + self.len) - base);
            self.advise(start, end - start, Advice::LinuxNoHugepage);
        }
        given
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.file.is_some() {
            return; // the file's own
        }
        // SAFETY: mapped in `new` with this length, and unmapped only here. A failure leaks the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Parts with fewer bytes than this do not get large pages.
pub(crate) const LARGE: usize = 4 << 20;

/// Bytes of a large page on most machines.
const UNIT: usize = 2 << 20;

/// Bytes of a page.
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
        // SAFETY: all of it belongs to the region, and no other code has it.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(region.base().as_ptr(), region.len);
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
            assert!(region.return_to_system(page(), page()));
            assert!(bytes[..page()].iter().all(|&byte| byte == 7));
            assert!(bytes[page()..2 * page()].iter().all(|&byte| byte == 0));
            assert!(bytes[2 * page()..].iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn large_pages_do_not_come_back_where_pages_were_given_back() {
        let flags = |at: usize| {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut inside = false;
            for line in maps.lines() {
                let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
                let bound = |text| usize::from_str_radix(text, 16).ok();
                if let Some((from, to)) = range.and_then(|(from, to)| Some((bound(from)?, bound(to)?))) {
                    inside = (from..to).contains(&at);
                } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                    return flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                }
            }
            Vec::new()
        };
        let region = Region::new(4 * LARGE).unwrap();
        let at = |offset: usize| region.base().as_ptr().addr() + offset;
        region.prefer_large_pages(0, LARGE - 1);
        assert!(!flags(at(page())).iter().any(|flag| flag == "hg"), "for too little");
        region.prefer_large_pages(0, 4 * LARGE);
        let all = flags(at(page()));
        if std::env::var_os("SKEP_EMULATED").is_some() {
            eprintln!("HIDDEN BY EMULATION: advice for mappings: what smaps says of them is made up");
            return;
        }
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("SKIPPED: advice for mappings: this system has no large pages");
            return;
        }
        assert!(all.iter().any(|flag| flag == "hg"), "{all:?}");
        // SAFETY: the contents are not needed.
        assert!(unsafe { region.return_to_system(2 * LARGE, page()) });
        assert!(flags(at(2 * LARGE)).iter().any(|flag| flag == "nh"));
        assert!(flags(at(0)).iter().any(|flag| flag == "hg"), "elsewhere nothing has changed");
    }

    #[test]
    fn sizes_that_no_memory_has_are_refused() {
        assert_eq!(Region::new(usize::MAX).unwrap_err(), Error::TooLarge { count: 1, size: usize::MAX });
        let half = isize::MAX as usize - page();
        assert!(matches!(Region::new(half), Err(Error::OutOfMemory { .. })));
    }
}
