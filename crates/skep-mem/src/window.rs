//! Memory that every address of 32 bits reaches, of which only some pages are there.
//!
//! Code that nobody has checked may load from any offset in the window, and a little before and behind it, without a
//! fault: a page that is not there reads as zero. Before a store it looks up whether the page is there:
//!
//! ```text
//!   start                                   base                  base + 4 GiB
//!   | table: a byte for each page | guard |  | read-write | read-only |  | guard |
//!                                             ^ first      ^ first + pages
//! ```
//!
//! All of it is anonymous memory that was never written, which the system takes from one page of zeroes, so a scan of
//! the whole window commits no memory. Only the pages between `first` and `first + pages` can be written at all.
//!
//! A page is removed while others may store into it:
//!
//! ```text
//!   remove:   its byte = 0;  zero the page               a store that found the byte set may still come
//!   discard:  no store that found it set is left         the memory goes back to the system, and what such a store wrote
//!   add:      zero the page, unless it is discarded;  its byte = 1
//! ```
//!
//! A window may be in a [file](Window::in_file) for another process: [`shared`].
//!
//! A removed page may be added again at once: a late store then hits the new page, exactly as if it had come after the
//! addition. What would break this: a page that is added before it is zeroed, and one that is discarded while it is
//! there. The caller makes changes of one page one by one.

mod shared;

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

use crate::error::Error;
use crate::region::page;

/// Bytes of the table and what fills it up to whole pages of any system.
const TABLE_BYTES: usize = (1 << 20) + (64 << 10);
/// The offset in the table of the byte for page 0. Those before it are for pages of the guard, and stay 0.
const TABLE_START: usize = 4096;
const GUARD: usize = 64 << 10;
const SPAN: usize = 1 << 32;
/// The system zeroes so many pages faster than a loop over their words.
const MANY: u32 = 16;
const RESERVED: usize = TABLE_BYTES + GUARD + SPAN + GUARD;

/// A window of 4 GiB, its table and its guards.
#[derive(Debug)]
pub struct Window {
    start: NonNull<u8>,
    /// Set once, before any page is added.
    first: OnceLock<u32>,
    pages: u32,
    shared: Option<shared::Shared>,
}

// SAFETY: a window is plain memory that belongs to no thread; it is accessed by atomic operations, and by the code
// that gets its address.
unsafe impl Send for Window {}
// SAFETY: as above; the methods read the window's own fields only, which are immutable,
// set once, or atomic.
unsafe impl Sync for Window {}

impl Window {
    /// Bytes in a page of a window, on every system.
    pub const PAGE: usize = 4096;
    /// Pages in a window.
    pub const PAGES: u32 = 1 << 20;
    /// Distance from the base to the byte of the table for page 0, which is not 0 if the page is there. The bytes from
    /// 16 pages before the window to 16 pages behind it exist.
    pub const TABLE: i32 = TABLE_START as i32 - (TABLE_BYTES + GUARD) as i32;

    /// A window whose pages from `first` on can be added, `pages` of them. None is there yet.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if there are no such pages, [`Error::OutOfMemory`] if the system refuses 4 GiB of addresses.
    pub fn new(first: u32, pages: u32) -> Result<Self, Error> {
        if first.checked_add(pages).is_none_or(|end| end > Self::PAGES) || pages == 0 {
            return Err(Error::TooLarge { count: pages as usize, size: Self::PAGE });
        }
        let window = Self::reserve(pages)?;
        window.place(first);
        // The system's pages may be larger.
        let from = first as usize * Self::PAGE / page() * page();
        let to = ((first + pages) as usize * Self::PAGE).next_multiple_of(page());
        let inside = TABLE_BYTES + GUARD + from;
        window.make_writable(inside, to - from)?;
        // A large page would commit 2 MiB for a page that is there. Where the system has none, nothing changes.
        // SAFETY: as above.
        let _ = unsafe {
            madvise(window.start.as_ptr().wrapping_add(inside).cast(), to - from, Advice::LinuxNoHugepage)
        };
        Ok(window)
    }

    /// Addresses for a window of so many pages, and its table.
    fn reserve(pages: u32) -> Result<Self, Error> {
        // NORESERVE: untouched memory should not count.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address that the system chooses, affects no other memory.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), RESERVED, ProtFlags::READ, flags) };
        let start = start.ok().and_then(|start| NonNull::new(start.cast::<u8>()));
        let start = start.ok_or(Error::OutOfMemory { bytes: RESERVED })?;
        let window = Self { start, first: OnceLock::new(), pages, shared: None };
        window.make_writable(0, TABLE_BYTES)?;
        // Programs find it by its address.
        window.start.as_ptr().expose_provenance();
        Ok(window)
    }

    fn make_writable(&self, offset: usize, len: usize) -> Result<(), Error> {
        let at = self.start.as_ptr().wrapping_add(offset).cast();
        // SAFETY: whole pages of this mapping, which nobody has seen yet.
        unsafe { mprotect(at, len, MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(|_| Error::OutOfMemory { bytes: RESERVED })
    }

    /// Says which is the first page that can be added, unless that was said before.
    ///
    /// # Panics
    ///
    /// If the window has not as many pages from there on as can be added. Those of a window in a
    /// [file](Self::in_file) go on at the beginning: the page of number [`PAGES`](Self::PAGES) is page 0.
    pub fn place(&self, first: u32) {
        let fits = first < Self::PAGES && (self.shared.is_some() || first + self.pages <= Self::PAGES);
        assert!(fits, "no page {first}");
        let _placed = self.first.set(first);
    }

    /// The first page that can be added: 0 until it is said.
    pub fn first(&self) -> u32 {
        self.first.get().copied().unwrap_or(0)
    }

    /// The address of offset 0. It may be read from 64 KiB before it until 4 GiB and 64 KiB behind it, and written
    /// where pages are there, until the window is dropped.
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: inside the mapping.
        unsafe { self.start.add(TABLE_BYTES + GUARD) }
    }

    /// Whether a page is there.
    ///
    /// # Panics
    ///
    /// If the window has no such page.
    pub fn is_there(&self, page: u32) -> bool {
        // Acquire: pairs with the Release in `add`: who finds the page there, finds it zeroed.
        self.byte(page).load(Ordering::Acquire) != 0
    }

    /// Makes pages of zeroes be there that are not. `clean`: whether one was never there, or is discarded since it was.
    /// Returns whether they are there now: a window in a file may lack memory.
    ///
    /// # Panics
    ///
    /// If a page is not between the first and the last one that can be added.
    #[must_use]
    pub fn add(&self, from: u32, count: u32, clean: impl Fn(u32) -> bool) -> bool {
        if count == 0 {
            return true;
        }
        self.check(from);
        self.check(from + (count - 1));
        if let Some(shared) = &self.shared {
            if !shared.map_new(self, from, count) {
                return false;
            }
        } else {
            (from..from + count).filter(|page| !clean(*page)).for_each(|page| self.zero(page));
        }
        self.say_there(from, count);
        true
    }

    fn say_there(&self, from: u32, count: u32) {
        for page in from..from + count {
            // Release: pairs with the Acquire in `is_there`. In programs the look at the byte decides a branch around
            // the store, which the supported processors never make before it.
            self.byte(page).store(1, Ordering::Release);
        }
    }

    /// Makes pages be no longer there, and read as zero. Stores that have found them there may still come until
    /// everybody who might make one has left; then they should be [discarded](Self::discard).
    ///
    /// # Panics
    ///
    /// As for [`add`](Self::add).
    pub fn remove(&self, from: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.check(from);
        self.check(from + (count - 1));
        for page in from..from + count {
            // Relaxed: stores that do not see it yet hit the old page, as the caller knows.
            self.byte(page).store(0, Ordering::Relaxed);
        }
        if let Some(shared) = &self.shared {
            return shared.unmap(self, from, count);
        }
        if count >= MANY {
            return self.discard(from, count);
        }
        (from..from + count).for_each(|page| self.zero(page));
    }

    /// Returns the memory of pages that are not there to the system. They read as zero.
    ///
    /// # Panics
    ///
    /// As for [`add`](Self::add).
    pub fn discard(&self, from: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.check(from);
        self.check(from + (count - 1));
        if let Some(shared) = &self.shared {
            return shared.discard(self, from, count);
        }
        let (start, end) = (from as usize * Self::PAGE, (from as usize + count as usize) * Self::PAGE);
        let whole = start.next_multiple_of(page())..end / page() * page();
        let returned = !whole.is_empty() && {
            let at = self.base().as_ptr().wrapping_add(whole.start).cast();
            // SAFETY: whole pages of this mapping; by the caller's contract all of them are pages that are not there.
            unsafe { madvise(at, whole.len(), Advice::LinuxDontNeed) }.is_ok()
        };
        for page in from..from + count {
            if !(returned && whole.contains(&(page as usize * Self::PAGE))) {
                self.zero(page);
            }
        }
    }

    /// Zeroes a page. Words that are zero are not written: a page that was never written stays uncommitted.
    fn zero(&self, page: u32) {
        // SAFETY: `check` was called: the page is inside the part that can be written, and aligned.
        let words = unsafe {
            let at = self.base().as_ptr().add(page as usize * Self::PAGE).cast::<AtomicU64>();
            std::slice::from_raw_parts(at, Self::PAGE / size_of::<AtomicU64>())
        };
        for word in words {
            // Relaxed, both: races with programs' stores, one of which may come later.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    fn check(&self, page: u32) {
        let first = self.first();
        assert!(page >= first && page - first < self.pages, "page {page} cannot be there");
    }

    fn byte(&self, page: u32) -> &AtomicU8 {
        let page = if self.shared.is_some() { page % Self::PAGES } else { page };
        assert!(page < Self::PAGES, "page {page} is outside of the window");
        // SAFETY: inside the table, which is accessed by atomic operations and by programs.
        unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(TABLE_START + page as usize)) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and unmapped only here. A failure leaks the mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), RESERVED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the window that are committed.
    fn committed(window: &Window) -> usize {
        let (from, to) = (window.start.as_ptr().addr(), window.start.as_ptr().addr() + RESERVED);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut inside, mut sum) = (false, 0);
        for line in maps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let bound = |text| usize::from_str_radix(text, 16).ok();
            if let Some((start, _)) = range.and_then(|(from, to)| Some((bound(from)?, bound(to)?))) {
                inside = (from..to).contains(&start);
            } else if inside && let Some(rest) = line.strip_prefix("Anonymous:") {
                sum += rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
            }
        }
        sum
    }

    fn add(window: &Window, page: u32, clean: bool) {
        assert!(window.add(page, 1, |_| clean));
    }

    fn at(window: &Window, offset: i64) -> *mut u8 {
        window.base().as_ptr().wrapping_offset(offset as isize)
    }

    fn read(window: &Window, offset: i64) -> u64 {
        // SAFETY: inside the window and its guards, which tests access from one thread at a time.
        unsafe { at(window, offset).cast::<u64>().read_unaligned() }
    }

    fn write(window: &Window, offset: i64, value: u64) {
        // SAFETY: inside the pages that can be written; as above.
        unsafe { at(window, offset).cast::<u64>().write_unaligned(value) }
    }

    #[test]
    fn the_guards_read_as_zero_and_have_bytes_that_say_so() {
        let window = Window::new(0, 1).unwrap();
        for offset in [-(GUARD as i64), -32768, -1, 4096, (1 << 32) - 8, (1 << 32) + 32767, (1 << 32) + 65528]
        {
            assert_eq!(read(&window, offset), 0, "{offset}");
            let byte = i64::from(Window::TABLE) + (offset >> 12);
            // SAFETY: inside the table.
            assert_eq!(unsafe { at(&window, byte).read() }, 0, "{offset}");
        }
    }

    #[test]
    fn a_page_is_there_from_addition_to_removal_and_zero_each_time() {
        let window = Window::new(3, 4).unwrap();
        assert!((0..10).all(|page| !window.is_there(page)));
        add(&window, 5, true);
        assert!(window.is_there(5) && !window.is_there(4) && !window.is_there(6));
        let place = 5 * 4096 + 16;
        write(&window, place, 7);
        window.remove(5, 1);
        assert!(!window.is_there(5));
        assert_eq!(read(&window, place), 0, "at once");
        write(&window, place, 8); // a store that had found it there
        add(&window, 5, false);
        assert_eq!(read(&window, place), 0);
        write(&window, place, 9);
        window.remove(5, 1);
        write(&window, place, 8);
        window.discard(5, 1);
        assert_eq!(read(&window, place), 0);
        add(&window, 5, true);
        assert_eq!(read(&window, place), 0);
    }

    #[test]
    fn many_pages_are_removed_at_once() {
        let window = Window::new(0, 300).unwrap();
        for count in [1, MANY - 1, MANY, 200] {
            for page in 0..300 {
                add(&window, page, false);
                write(&window, i64::from(page) * 4096 + 8, 1);
            }
            window.remove(50, count);
            for page in 0..300 {
                let gone = (50..50 + count).contains(&page);
                assert_eq!(window.is_there(page), !gone);
                assert_eq!(read(&window, i64::from(page) * 4096 + 8), u64::from(!gone), "{page} {count}");
            }
        }
    }

    #[test]
    fn a_discard_leaves_the_pages_around_it_alone() {
        let window = Window::new(0, 64).unwrap();
        for page in 0..64 {
            add(&window, page, true);
            write(&window, i64::from(page) * 4096 + 8, 1 + u64::from(page));
        }
        window.remove(20, 1);
        window.remove(21, 1);
        window.discard(20, 2);
        for page in 0..64 {
            let expected = if page == 20 || page == 21 { 0 } else { 1 + page as u64 };
            assert_eq!(read(&window, page * 4096 + 8), expected);
        }
    }

    #[test]
    fn scans_and_pages_without_contents_commit_no_memory() {
        if std::env::var_os("SKEP_EMULATED").is_some() {
            eprintln!("HIDDEN BY EMULATION: committed memory: what smaps says of it is made up");
            return;
        }
        let window = Window::new(0, Window::PAGES).unwrap();
        let mut sum = 0;
        for offset in (-(GUARD as i64)..(1 << 32) + GUARD as i64).step_by(16 << 10) {
            sum += read(&window, offset);
        }
        assert_eq!(sum, 0);
        assert_eq!(committed(&window), 0);
        for page in 1000..2000 {
            add(&window, page, false);
            window.remove(page, 1);
        }
        assert!(committed(&window) <= 2 * page(), "the table at most");
        add(&window, 1000, true);
        write(&window, 1000 * 4096, 1);
        assert!(committed(&window) <= 3 * page());
        window.remove(1000, 1);
        window.discard(1000, 1);
        assert!(committed(&window) <= 2 * page());
    }

    #[test]
    fn pages_that_no_window_has_are_refused() {
        let refused = |first, pages| Window::new(first, pages).unwrap_err();
        assert_eq!(refused(0, 0), Error::TooLarge { count: 0, size: 4096 });
        assert_eq!(refused(1, Window::PAGES), Error::TooLarge { count: 1 << 20, size: 4096 });
        assert_eq!(refused(u32::MAX, 2), Error::TooLarge { count: 2, size: 4096 });
        assert!(Window::new(0, Window::PAGES).is_ok());
    }

    #[test]
    #[should_panic(expected = "page 7 cannot be there")]
    fn a_page_that_cannot_be_written_is_never_there() {
        let _there = Window::new(3, 4).unwrap().add(7, 1, |_| true);
    }
}
