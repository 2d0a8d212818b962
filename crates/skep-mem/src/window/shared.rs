//! Windows in files, whose pages another process maps too.
//!
//! ```text
//!                first                                       the file is the pages from `first` on
//!   window  | .... | file | file | .... | own | .... |
//!   file           | data | data | hole | hole| DATA |  <- the other process has touched it, which allocates it there
//!
//!   ....  the anonymous memory that the window began with: read-only, zero, and no memory
//!   file  a page of the file, read-write: it is there
//!   own   anonymous memory, read-write: the page was removed, and late stores end here
//! ```
//!
//! Only pages that are there are mapped from the file: a load of a hole in a mapped file would allocate it, and nobody
//! could tell that page from one that the other process has touched ([`Window::touched`]). All changes of mappings
//! replace one by another in one step (`MAP_FIXED`), so loads and stores of other threads never fault meanwhile.
//!
//! Each page that differs from its neighbour in this takes one mapping more, and the system allows a process only some
//! ten thousand of them. They are counted over all windows. At the limit no pages can be added, and removed pages stay
//! mapped from the file: then a load from one makes it look as if the other process had touched it.
//!
//! The other process may write to its mapping at any time, and may free the file's pages (`FALLOC_FL_PUNCH_HOLE`): they
//! read as zero then. It cannot change the size. The caller makes changes one by one, as in [`Window`].

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, SealFlags, SeekFrom, fallocate, fcntl_add_seals, fstat, ftruncate, seek};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};

use super::Window;
use crate::error::Error;
use crate::file::memory_file;
use crate::region::page;

/// Neighbours in all windows of the process that differ. Relaxed: a bound, which threads may exceed by a few.
static BORDERS: AtomicUsize = AtomicUsize::new(0);
/// The most of them: a process may have 65,530 mappings unless its system says otherwise.
const MOST_BORDERS: usize = 16_384;

/// What a page of the window is mapped to.
const NOTHING: u8 = 0;
const FILE: u8 = 1;
const OWN: u8 = 2;

/// The file, and what each page is mapped to.
#[derive(Debug)]
pub(super) struct Shared {
    file: OwnedFd,
    /// From the first page that can be added on. Relaxed, all: the caller makes changes one by one.
    mapped: Box<[AtomicU8]>,
    /// Its own part of `BORDERS`.
    borders: AtomicUsize,
}

impl Window {
    /// A window whose pages are in a file of memory, so that another process can map them: from offset 0 on the
    /// `pages` pages that can be added, the first of which is to be [placed](Self::place). `name` is for people:
    /// `/proc` shows it.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new); [`Error::OutOfMemory`] also if there are too many open files, or pages of this system
    /// are larger than a window's.
    pub fn in_file(name: &str, pages: u32) -> Result<Self, Error> {
        let bytes = pages as usize * Self::PAGE;
        if pages == 0 || pages > Self::PAGES {
            return Err(Error::TooLarge { count: pages as usize, size: Self::PAGE });
        }
        let refused = Error::OutOfMemory { bytes };
        if page() != Self::PAGE {
            return Err(refused);
        }
        let file = memory_file(name)?;
        ftruncate(&file, bytes as u64).map_err(|_| refused)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(|_| refused)?;
        let mapped = (0..pages).map(|_| AtomicU8::new(NOTHING)).collect();
        let mut window = Self::reserve(pages)?;
        window.shared = Some(Shared { file, mapped, borders: AtomicUsize::new(0) });
        Ok(window)
    }

    /// The file of a window in one.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.shared.as_ref().map(|shared| shared.file.as_fd())
    }

    /// How many pages the file has, those that are there and those that the other process has touched; 0 without a
    /// file. If it is as many as are there, [`touched`](Self::touched) finds none.
    pub fn pages_in_file(&self) -> u64 {
        let status = self.shared.as_ref().and_then(|shared| fstat(&shared.file).ok());
        // In units of 512 bytes.
        status.map_or(0, |status| (status.st_blocks as u64) * 512 / Self::PAGE as u64)
    }

    /// The first run of pages from `from` on that somebody has touched, whether they are there or not: its first page,
    /// and how many. Pages are counted in the window.
    pub fn touched(&self, from: u32) -> Option<(u32, u32)> {
        let shared = self.shared.as_ref()?;
        let first = self.first();
        let at = u64::from(from.checked_sub(first)?) * Self::PAGE as u64;
        let start = seek(&shared.file, SeekFrom::Data(at)).ok()?;
        let end = seek(&shared.file, SeekFrom::Hole(start)).ok()?;
        let pages = |bytes: u64| u32::try_from(bytes / Self::PAGE as u64).ok();
        let (start, end) = (pages(start)?, pages(end)?.min(self.pages));
        (start < end).then(|| (first + start, end - start))
    }

    /// Makes pages that the other process has touched be there, with what it has written. Returns whether they are:
    /// see [`add`](Self::add).
    ///
    /// # Panics
    ///
    /// As for [`add`](Self::add).
    #[must_use]
    pub fn accept(&self, from: u32, count: u32) -> bool {
        let Some(shared) = &self.shared else { return false };
        if count == 0 {
            return true;
        }
        self.check(from);
        self.check(from + (count - 1));
        let done = shared.map_file(self, from, count);
        if done {
            self.say_there(from, count);
        }
        done
    }

    /// Forgets what the other process has written to pages that are not there.
    ///
    /// # Panics
    ///
    /// As for [`add`](Self::add).
    pub fn forget(&self, from: u32, count: u32) {
        if let Some(shared) = self.shared.as_ref().filter(|_| count != 0) {
            self.check(from);
            self.check(from + (count - 1));
            shared.punch(from - self.first(), count);
        }
    }
}

impl Shared {
    /// New pages of zeroes from the file.
    pub(super) fn map_new(&self, window: &Window, from: u32, count: u32) -> bool {
        let at = from - window.first();
        self.punch(at, count);
        let (offset, len) = bytes(at, count);
        // With its memory: no access to it can fail later.
        if fallocate(&self.file, FallocateFlags::empty(), offset, len).is_err() {
            self.punch(at, count);
            return false;
        }
        let done = self.map_file(window, from, count);
        if !done {
            self.punch(at, count);
        }
        done
    }

    /// Maps pages of the file.
    fn map_file(&self, window: &Window, from: u32, count: u32) -> bool {
        let at = from - window.first();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let (offset, _) = bytes(at, count);
        self.change(at, count, FILE, || {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // All parts, or those that were changed keep what they show: pages of the file are harmless.
            parts(from, count).into_iter().filter(|part| part.1 > 0).all(|(page, count)| {
                let (skipped, _) = bytes(page - from, 0);
                let (_, len) = bytes(0, count);
                // SAFETY: replaces pages of the window's own mapping, which stay readable and become writable.
                let done = unsafe {
                    mmap(place(window, page), len as usize, both, flags, &self.file, offset + skipped)
                };
                done.is_ok()
            })
        })
    }

    /// Takes removed pages out of the file; late stores get memory of their own.
    pub(super) fn unmap(&self, window: &Window, from: u32, count: u32) {
        let at = from - window.first();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // If the system refuses, the pages stay as they are, which is as safe.
        let _replaced = self.change(at, count, OWN, || anonymous(window, from, count, both));
        self.punch(at, count);
    }

    /// Returns memory of removed pages, after the late stores.
    pub(super) fn discard(&self, window: &Window, from: u32, count: u32) {
        let first = window.first();
        let mut at = from - first;
        let end = at + count;
        while at < end {
            let kind = self.mapped(at);
            let run = (at..end).take_while(|page| self.mapped(*page) == kind).count() as u32;
            match kind {
                OWN if !self
                    .change(at, run, NOTHING, || anonymous(window, first + at, run, ProtFlags::READ)) =>
                {
                    for (page, count) in parts(first + at, run) {
                        let (_, len) = bytes(0, count);
                        // SAFETY: pages of this window that are not there.
                        let _kept =
                            unsafe { madvise(place(window, page), len as usize, Advice::LinuxDontNeed) };
                    }
                }
                FILE => self.punch(at, run),
                _ => {}
            }
            at += run;
        }
    }

    /// Frees pages of the file: they are zero from now on, here and there.
    fn punch(&self, at: u32, count: u32) {
        let (offset, len) = bytes(at, count);
        let _done =
            fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len);
    }

    fn mapped(&self, page: u32) -> u8 {
        self.mapped.get(page as usize).map_or(NOTHING, |kind| kind.load(Relaxed))
    }

    /// Borders between the page before these pages and the one behind them.
    fn borders(&self, at: u32, count: u32) -> usize {
        let kind = |page: Option<u32>| page.map_or(NOTHING, |page| self.mapped(page));
        (at..=at + count).filter(|page| kind(page.checked_sub(1)) != self.mapped(*page)).count()
    }

    /// Changes what pages are mapped to, unless that takes too many mappings.
    fn change(&self, at: u32, count: u32, to: u8, change: impl FnOnce() -> bool) -> bool {
        let before = self.borders(at, count);
        let left = at.checked_sub(1).map_or(NOTHING, |page| self.mapped(page));
        let after = usize::from(left != to) + usize::from(self.mapped(at + count) != to);
        if after > before && BORDERS.load(Relaxed) + (after - before) > MOST_BORDERS {
            return false;
        }
        if !change() {
            return false;
        }
        for kind in &self.mapped[at as usize..(at + count) as usize] {
            kind.store(to, Relaxed);
        }
        // First up, so that it never falls below 0.
        BORDERS.fetch_add(after, Relaxed);
        BORDERS.fetch_sub(before, Relaxed);
        self.borders.store(self.borders.load(Relaxed) + after - before, Relaxed);
        true
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        BORDERS.fetch_sub(*self.borders.get_mut(), Relaxed);
    }
}

/// Replaces pages of the window by anonymous memory.
fn anonymous(window: &Window, from: u32, count: u32, protection: ProtFlags) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    parts(from, count).into_iter().filter(|part| part.1 > 0).all(|(page, count)| {
        let (_, len) = bytes(0, count);
        // SAFETY: replaces pages of the window's own mapping, by the caller's word such that are not there: nobody
        // stores into them once they are read-only.
        unsafe { mmap_anonymous(place(window, page), len as usize, protection, flags) }.is_ok()
    })
}

/// The pages before the end of the window, and those that go on at its beginning.
fn parts(from: u32, count: u32) -> [(u32, u32); 2] {
    let first = if from < Window::PAGES { count.min(Window::PAGES - from) } else { count };
    [(from, first), (from + first, count - first)]
}

fn place(window: &Window, page: u32) -> *mut c_void {
    window.base().as_ptr().wrapping_add((page % Window::PAGES) as usize * Window::PAGE).cast()
}

fn bytes(at: u32, count: u32) -> (u64, u64) {
    (u64::from(at) * Window::PAGE as u64, u64::from(count) * Window::PAGE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Another mapping of the file, as another process has it.
    struct Other(*mut c_void, usize);

    impl Other {
        fn of(window: &Window) -> Self {
            let len = window.pages as usize * Window::PAGE;
            let both = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping.
            let at =
                unsafe { mmap(std::ptr::null_mut(), len, both, MapFlags::SHARED, window.file().unwrap(), 0) };
            Self(at.unwrap(), len)
        }

        fn word(&self, at: usize) -> &AtomicU64 {
            assert!(at + 8 <= self.1);
            // SAFETY: within the mapping.
            unsafe { &*self.0.cast::<u8>().add(at).cast() }
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            // SAFETY: mapped above.
            unsafe { rustix::mm::munmap(self.0, self.1).unwrap() };
        }
    }

    /// A word of the window, as a program reaches it.
    fn word(window: &Window, page: u32) -> &AtomicU64 {
        // SAFETY: inside the window.
        unsafe { &*place(window, page).cast() }
    }

    #[test]
    fn both_sides_see_the_pages_that_are_there() {
        let window = Window::in_file("window", 8).unwrap();
        window.place(100);
        let other = Other::of(&window);
        assert!(window.add(101, 2, |_| false));
        assert_eq!(window.pages_in_file(), 2);
        word(&window, 101).store(7, Relaxed);
        assert_eq!(other.word(4096).load(Relaxed), 7);
        other.word(2 * 4096).store(8, Relaxed);
        assert_eq!(word(&window, 102).load(Relaxed), 8);
        // Loads of other pages allocate none.
        assert_eq!(word(&window, 103).load(Relaxed) + word(&window, 107).load(Relaxed), 0);
        assert_eq!(window.pages_in_file(), 2);
        window.remove(101, 1);
        assert_eq!((word(&window, 101).load(Relaxed), other.word(4096).load(Relaxed)), (0, 0));
    }

    #[test]
    fn pages_that_the_other_side_has_touched_are_found_and_accepted() {
        let window = Window::in_file("window", 8).unwrap();
        window.place(100);
        let other = Other::of(&window);
        other.word(3 * 4096 + 8).store(9, Relaxed);
        assert_eq!((window.pages_in_file(), window.is_there(103)), (1, false));
        assert_eq!(word(&window, 103).load(Relaxed), 0);
        assert_eq!((window.touched(100), window.touched(104)), (Some((103, 1)), None));
        assert!(window.accept(103, 1));
        assert!(window.is_there(103));
        // SAFETY: inside the window.
        assert_eq!(unsafe { (*place(&window, 103).cast::<[AtomicU64; 2]>())[1].load(Relaxed) }, 9);
        // A new page has nothing of what was written to it before.
        other.word(5 * 4096).store(9, Relaxed);
        assert!(window.add(105, 1, |_| true));
        assert_eq!((other.word(5 * 4096).load(Relaxed), word(&window, 105).load(Relaxed)), (0, 0));
    }

    #[test]
    fn late_stores_stay_here_and_vanish() {
        let window = Window::in_file("window", 8).unwrap();
        let other = Other::of(&window);
        assert!(window.add(2, 3, |_| true));
        window.remove(3, 1);
        word(&window, 3).store(1, Relaxed);
        assert_eq!((window.touched(3), window.pages_in_file()), (None, 2));
        assert_eq!(other.word(3 * 4096).load(Relaxed), 0);
        window.remove(3, 1);
        window.discard(3, 1);
        assert_eq!(word(&window, 3).load(Relaxed), 0);
        word(&window, 4).store(5, Relaxed);
        assert_eq!(other.word(4 * 4096).load(Relaxed), 5, "its neighbour is there");
    }

    #[test]
    fn a_window_goes_on_at_its_beginning() {
        let window = Window::in_file("window", 4).unwrap();
        window.place(Window::PAGES - 2);
        let other = Other::of(&window);
        let first = window.first();
        assert!(window.add(first, 4, |_| true));
        for page in 0..4 {
            word(&window, (first + page) % Window::PAGES).store(1 + u64::from(page), Relaxed);
            assert_eq!(other.word(page as usize * 4096).load(Relaxed), 1 + u64::from(page));
            assert!(window.is_there(first + page));
        }
        assert!(!window.is_there(2));
        window.remove(first + 1, 2);
        window.discard(first + 1, 2);
        let left: Vec<_> = (0..4).map(|page| other.word(page * 4096).load(Relaxed)).collect();
        assert_eq!(left, [1, 0, 0, 4]);
        assert_eq!((word(&window, 0).load(Relaxed), word(&window, 1).load(Relaxed)), (0, 4));
    }

    #[test]
    fn the_number_of_mappings_is_bounded() {
        let pages = 3 * MOST_BORDERS as u32;
        let window = Window::in_file("window", pages).unwrap();
        let added = (0..pages).step_by(2).filter(|page| window.add(*page, 1, |_| true)).count();
        assert!((1..=MOST_BORDERS / 2).contains(&added), "{added}");
        // What is removed stays readable, and what is next to others can be added.
        window.remove(0, pages);
        assert_eq!(word(&window, 0).load(Relaxed), 0);
        window.discard(0, pages);
        assert!(window.add(1, pages - 1, |_| true));
        drop(window);
        assert!(Window::in_file("window", 1).unwrap().add(0, 1, |_| true));
    }
}
