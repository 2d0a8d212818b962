//! Arenas: pages of memory that programs and the host allocate, and reach by addresses of 32 bits.
//!
//! [`skep_mem::Window`] has the memory. This file knows which pages are there:
//!
//! ```text
//!   free, clean --allocate--> used --free--> free, freed --(keeper takes a cookie)--> free, waiting
//!        ^                     ^                 |                                        |   |
//!        |                     '---- allocate: the page is zeroed ------------------------'   |
//!        '---------------- the cookie has passed: its memory is returned ---------------------'
//! ```
//!
//! A program may store into a page that another one frees at this moment. The page has no other owner than the arena,
//! so the store does no harm: it vanishes when the page is allocated again or its memory is returned, whichever is
//! first. Memory is returned once no program that ran at the time of the free is left. Page numbers do not wait for
//! that.
//!
//! The bits change under one lock. The keeper looks for work without it.
//!
//! An arena for another process is in a file, which that process maps. A page that it touches is allocated by that, as
//! by a fault in Linux: it is there for programs from their next run, allocation or free on ([`Arena::meet`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fd::BorrowedFd;
use skep_abi::{ArenaLink, MapDef, MapFlags};
use skep_mem::{Charge, Error, Window};
use skep_rcu::{BackgroundTask, Cookie, Domain, Grace, TaskHandle, raw};

use crate::elements::Reclamation;
use crate::leaf_lock::{LeafLock, Patience};
use crate::op_error::OpError;
use crate::racy;
use crate::values::Values;

/// Bytes in a page.
pub(crate) const PAGE: u64 = Window::PAGE as u64;

/// Where the host's addresses begin, unless the definition says so: no address of a process, and the same everywhere.
const USER_START: u64 = 1 << 44;
/// Pages before the first one, if they fit: the address 0 in a program is a null pointer then, and no page's.
const SPARE: u32 = 16;

const _: () = assert!(ArenaLink::PAGE as usize == Window::PAGE && ArenaLink::GUARD == 1 << 16);

/// The time between looks at the readers while pages wait.
const POLL: Duration = Duration::from_millis(1);

/// The table of an arena.
pub(crate) struct Arena {
    pages: Arc<Pages>,
    task: TaskHandle,
    values: Values,
    /// Where the host's addresses begin, once that is known: before the first program is linked.
    start: OnceLock<u64>,
    /// Where they begin if nobody says so.
    usual: u64,
    /// Whether casts to the host's address space keep its upper half.
    keeps: bool,
}

/// The pages.
struct Pages {
    window: Window,
    domain: Domain,
    /// Whether pages that another process touches are there.
    takes_touched: bool,
    count: u32,
    /// Most pages that may be used.
    limit: u32,
    lock: LeafLock,
    /// Under the lock, all of these. 64 pages each.
    words: Box<[Word]>,
    used: AtomicU32,
    /// No page below is free.
    lowest: AtomicU32,
    /// Whether some page may be `freed`. Hints the keeper.
    freed: AtomicBool,
    /// The keeper's own: since when pages are `waiting`; 0 if none is.
    since: AtomicU64,
    /// For the pages that are used, `freed` or `waiting`. Under the lock.
    charge: Charge,
}

/// 64 pages, a bit for each. Relaxed: changed under the lock, and read by the keeper, which looks again under it.
#[derive(Default)]
struct Word {
    /// The page is there.
    used: AtomicU64,
    /// It was freed and may not be clean.
    freed: AtomicU64,
    /// The same, before the keeper's cookie.
    waiting: AtomicU64,
}

impl Arena {
    /// Where the host's addresses of an arena begin; `None` if the definition's are invalid.
    fn start_of(def: &MapDef) -> Option<u64> {
        let pages = u64::from(def.max_entries);
        let start = match def.extra {
            0 if pages + u64::from(SPARE) <= u64::from(Window::PAGES) => USER_START + u64::from(SPARE) * PAGE,
            0 => USER_START,
            given => given,
        };
        Self::may_start(start, pages * PAGE).then_some(start)
    }

    /// Whether an arena of so many bytes may begin at that address: only the lower halves of addresses differ.
    fn may_start(start: u64, len: u64) -> bool {
        let last = start.checked_add(len - 1);
        start.is_multiple_of(PAGE) && last.is_some_and(|last| start >> 32 == last >> 32)
    }

    /// Whether the attribute `map_extra` is valid.
    pub(crate) fn takes_start(def: &MapDef) -> bool {
        Self::start_of(def).is_some()
    }

    /// An arena without pages. The definition is checked. `file`: the name of a file for another process, which says
    /// where its addresses begin unless the definition does.
    pub(crate) fn new(
        def: &MapDef,
        limit: usize,
        memory: &Reclamation,
        file: Option<&str>,
    ) -> Result<Self, Error> {
        let domain = &memory.domain;
        let count = def.max_entries;
        let too_large = Error::TooLarge { count: count as usize, size: Window::PAGE };
        let usual = Self::start_of(def).ok_or(too_large)?;
        let charge = Charge::new(memory.account.as_ref(), 0)?;
        let window = match file {
            Some(name) => Window::in_file(name, count)?,
            None => Window::new(first_page(usual), count)?,
        };
        let words: Box<[Word]> = (0..count.div_ceil(64)).map(|_| Word::default()).collect();
        if let Some(last) = words.last()
            && !count.is_multiple_of(64)
        {
            last.used.store(u64::MAX << (count % 64), Relaxed);
        }
        let pages = Arc::new(Pages {
            window,
            domain: raw::uncounted(domain),
            takes_touched: !def.flags.contains(MapFlags::SEGV_ON_FAULT),
            count,
            limit: u32::try_from(limit / Window::PAGE).unwrap_or(u32::MAX),
            lock: LeafLock::default(),
            words,
            used: AtomicU32::new(0),
            lowest: AtomicU32::new(0),
            freed: AtomicBool::new(false),
            since: AtomicU64::new(0),
            charge,
        });
        let task = domain.attach(Arc::clone(&pages) as _);
        let keeps = !def.flags.contains(MapFlags::NO_USER_CONV);
        let arena = Self { pages, task, values: Values::shared(0), start: OnceLock::new(), usual, keeps };
        if file.is_none() || def.extra != 0 {
            arena.start();
        }
        Ok(arena)
    }

    /// How engines reach it, if its addresses begin at `start`.
    pub(crate) fn link(&self, start: u64) -> ArenaLink {
        ArenaLink {
            base: self.pages.window.base().as_ptr().expose_provenance() as u64,
            table: Window::TABLE,
            user: if self.keeps { start & !u64::from(u32::MAX) } else { 0 },
            turn: if self.keeps && start >> 32 != (start + self.len() - 1) >> 32 { start as u32 } else { 0 },
        }
    }

    /// The host's address of the first page: the usual one if it is asked for before somebody has said another.
    pub(crate) fn start(&self) -> u64 {
        *self.start.get_or_init(|| self.placed(self.usual))
    }

    /// The same, if it is known.
    pub(crate) fn known_start(&self) -> Option<u64> {
        self.start.get().copied()
    }

    /// Says where the host's addresses begin, unless that is known. Returns whether they begin there.
    pub(crate) fn set_start(&self, start: u64) -> bool {
        let last = start.checked_add(self.len() - 1);
        let fits = match self.file() {
            // The system that maps it decides.
            Some(_) => start.is_multiple_of(PAGE) && last.is_some(),
            None => Self::may_start(start, self.len()),
        };
        fits && *self.start.get_or_init(|| self.placed(start)) == start
    }

    fn placed(&self, start: u64) -> u64 {
        self.pages.window.place(first_page(start));
        start
    }

    /// The file that another process maps.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.pages.window.file()
    }

    /// Before a run: pages that the other process has touched are there from now on. Programs may wait for the lock, so
    /// this gives up if it is held for long; the next run tries again.
    pub(crate) fn meet(&self) {
        self.start();
        if self.pages.has_touched()
            && let Ok(_held) = self.pages.lock.lock(Patience::Bounded)
        {
            self.pages.meet();
        }
    }

    /// Bytes that its pages take.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.pages.count) * PAGE
    }

    /// How many pages are there.
    pub(crate) fn used(&self) -> u32 {
        self.pages.used.load(Relaxed)
    }

    /// Bytes besides those of its pages.
    pub(crate) fn fixed(&self) -> usize {
        size_of_val(&*self.pages.words)
    }

    pub(crate) fn memory(&self) -> usize {
        self.used() as usize * Window::PAGE + size_of_val(&*self.pages.words)
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// Allocates pages that follow each other: at that address of the host's, or at the lowest with room if it is 0.
    /// Returns the host's address of the first; `None` if there is no room there.
    pub(crate) fn allocate(&self, at: u64, count: u32, patience: Patience) -> Result<Option<u64>, OpError> {
        let pages = &*self.pages;
        if count == 0 || count > pages.count {
            return Ok(None);
        }
        let wanted = match at {
            0 => None,
            at => {
                match self.page_of(at).filter(|page| at.is_multiple_of(PAGE) && *page <= pages.count - count)
                {
                    None => return Ok(None),
                    page => page,
                }
            }
        };
        let _held = pages.lock.lock(patience)?;
        pages.meet();
        Ok(pages.allocate(wanted, count)?.map(|page| self.start() + u64::from(page) * PAGE))
    }

    /// Copies bytes of one page to that address. If the page is not there, it is allocated, or nothing happens. Returns
    /// whether the page was there in the end.
    ///
    /// Under the lock: the copy is no store that could come after the page was freed, which nobody would wait for.
    pub(crate) fn write(&self, at: u64, from: &[u8], allocate: bool) -> Result<bool, OpError> {
        let Some(page) = self.page_of(at) else { return Ok(false) };
        let pages = &*self.pages;
        let _held = pages.lock.lock(Patience::Endless)?;
        pages.meet();
        let there = pages.is_used(page) || (allocate && pages.allocate(Some(page), 1)?.is_some());
        let left = PAGE - (at - self.start()) % PAGE;
        if there && from.len() as u64 <= left {
            // SAFETY: the bytes are in a page of the arena that is there.
            unsafe { racy::write_any(from.as_ptr(), self.place(at), from.len()) };
        }
        Ok(there)
    }

    /// Frees the pages from the one of that address on, as far as they are there. Only the lower half of the address
    /// counts. Returns how many were there.
    pub(crate) fn free(&self, at: u64, count: u32, patience: Patience) -> Result<u32, OpError> {
        let pages = &*self.pages;
        let Some(page) = self.page_of(at) else { return Ok(0) };
        let end = page.saturating_add(count).min(pages.count);
        let held = pages.lock.lock(patience)?;
        pages.meet();
        let (mut freed, mut at) = (0, page);
        while at < end {
            let run = (at..end).take_while(|page| pages.is_used(*page)).count() as u32;
            pages.window.remove(pages.window.first() + at, run);
            for page in at..at + run {
                let (word, bit) = pages.bit(page);
                word.used.store(word.used.load(Relaxed) & !bit, Relaxed);
                word.freed.store(word.freed.load(Relaxed) | bit, Relaxed);
            }
            freed += run;
            at += run.max(1);
        }
        if freed > 0 {
            pages.lowest.store(page.min(pages.lowest.load(Relaxed)), Relaxed);
            pages.used.store(pages.used.load(Relaxed) - freed, Relaxed);
            pages.freed.store(true, Relaxed);
            drop(held);
            self.task.wake();
        }
        Ok(freed)
    }

    /// The address of the first page of these bytes that is not there.
    pub(crate) fn missing(&self, at: u64, len: usize) -> Option<u64> {
        let missing = self
            .pages_of(at, len)
            .find(|page| !self.pages.window.is_there(self.pages.window.first() + page))?;
        Some(self.start() + u64::from(missing) * PAGE)
    }

    /// The address of a byte in this process.
    pub(crate) fn place(&self, at: u64) -> *mut u8 {
        self.pages.window.base().as_ptr().wrapping_add(at as u32 as usize)
    }

    /// The number of the page of the host's address, whose lower half counts.
    fn page_of(&self, at: u64) -> Option<u32> {
        let page = (at as u32).wrapping_sub(self.start() as u32) / Window::PAGE as u32;
        (page < self.pages.count).then_some(page)
    }

    /// The numbers of the pages of bytes that are in the arena.
    fn pages_of(&self, at: u64, len: usize) -> std::ops::Range<u32> {
        let offset = at - self.start();
        if len == 0 {
            return 0..0;
        }
        (offset / PAGE) as u32..((offset + len as u64 - 1) / PAGE) as u32 + 1
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("start", &self.start)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl Pages {
    /// Under the lock: makes free pages be there, these or the lowest in a row. Returns the number of the first. Fails
    /// if the account refuses them.
    fn allocate(&self, wanted: Option<u32>, count: u32) -> Result<Option<u32>, OpError> {
        let used = self.used.load(Relaxed);
        if used.checked_add(count).is_none_or(|sum| sum > self.limit) {
            return Ok(None);
        }
        let found = match wanted {
            Some(page) => (page..page + count).all(|page| !self.is_used(page)).then_some(page),
            None => self.find(count),
        };
        let Some(first) = found else { return Ok(None) };
        let paid = self.pay(first, count).map_err(OpError::NoMemory)?;
        let start = self.window.first();
        if !self.window.add(start + first, count, |page| self.is_clean(page - start)) {
            self.charge.shrink(paid);
            return Ok(None);
        }
        self.note_used(first, count);
        Ok(Some(first))
    }

    /// Charges what these pages take, and returns it. Those that are not clean have memory still, and are paid for.
    fn pay(&self, first: u32, count: u32) -> Result<u64, Error> {
        let clean = (first..first + count).filter(|page| self.is_clean(*page)).count();
        let bytes = clean as u64 * PAGE;
        self.charge.grow(bytes)?;
        Ok(bytes)
    }

    fn note_used(&self, first: u32, count: u32) {
        for page in first..first + count {
            let (word, bit) = self.bit(page);
            word.used.store(word.used.load(Relaxed) | bit, Relaxed);
        }
        if self.lowest.load(Relaxed) == first {
            self.lowest.store(first + count, Relaxed);
        }
        self.used.store(self.used.load(Relaxed) + count, Relaxed);
    }

    /// Whether the file may have pages that are not there.
    fn has_touched(&self) -> bool {
        self.takes_touched
            && self.window.file().is_some()
            && self.window.pages_in_file() != u64::from(self.used.load(Relaxed))
    }

    /// Under the lock: pages that the other process has touched are there from now on, as far as the limit and the
    /// account allow.
    fn meet(&self) {
        if !self.has_touched() {
            return;
        }
        let start = self.window.first();
        let mut from = start;
        while let Some((at, count)) = self.window.touched(from) {
            from = at + count;
            let (mut page, end) = (at - start, at - start + count);
            while page < end {
                let used = self.is_used(page);
                let run = (page..end).take_while(|page| self.is_used(*page) == used).count() as u32;
                let fits = self.used.load(Relaxed).checked_add(run).is_some_and(|sum| sum <= self.limit);
                if !used
                    && fits
                    && let Ok(paid) = self.pay(page, run)
                {
                    if self.window.accept(start + page, run) {
                        self.note_used(page, run);
                    } else {
                        self.charge.shrink(paid);
                    }
                }
                page += run;
            }
        }
    }

    fn bit(&self, page: u32) -> (&Word, u64) {
        (&self.words[(page / 64) as usize], 1 << (page % 64))
    }

    fn is_clean(&self, page: u32) -> bool {
        let (word, bit) = self.bit(page);
        (word.freed.load(Relaxed) | word.waiting.load(Relaxed)) & bit == 0
    }

    fn is_used(&self, page: u32) -> bool {
        let (word, bit) = self.bit(page);
        word.used.load(Relaxed) & bit != 0
    }

    /// The first of so many free pages in a row, the lowest.
    fn find(&self, count: u32) -> Option<u32> {
        let (mut page, mut run) = (self.lowest.load(Relaxed), 0);
        while page < self.count {
            let used = self.words[(page / 64) as usize].used.load(Relaxed);
            let (step, free) = match (page % 64, used) {
                (0, 0) => (64, true),
                (0, u64::MAX) => (64, false),
                (at, used) => (1, used >> at & 1 == 0),
            };
            run = if free { run + step } else { 0 };
            page += step;
            if run >= count {
                return Some(page - run);
            }
        }
        None
    }

    /// Returns the memory of the waiting pages.
    fn discard(&self, patience: Patience) -> Result<(), OpError> {
        for (at, word) in (0..).step_by(64).zip(&self.words) {
            if word.waiting.load(Relaxed) == 0 {
                continue;
            }
            // For 64 pages at a time: programs may wait for the lock.
            let _held = self.lock.lock(patience)?;
            let mut gone = word.waiting.swap(0, Relaxed) & !word.used.load(Relaxed);
            let paid = gone & !word.freed.load(Relaxed);
            self.charge.shrink(u64::from(paid.count_ones()) * PAGE);
            while gone != 0 {
                let from = gone.trailing_zeros();
                let count = (gone >> from).trailing_ones();
                self.window.discard(self.window.first() + at + from, count);
                gone &= !(u64::MAX >> (64 - count) << from);
            }
        }
        Ok(())
    }

    /// Makes all freed pages wait.
    fn collect(&self, patience: Patience) -> Result<(), OpError> {
        let _held = self.lock.lock(patience)?;
        self.freed.store(false, Relaxed);
        for word in &self.words {
            let freed = word.freed.load(Relaxed);
            if freed != 0 {
                word.waiting.store(word.waiting.load(Relaxed) | freed, Relaxed);
                word.freed.store(0, Relaxed);
            }
        }
        Ok(())
    }
}

/// The number in the window of the page at an address.
fn first_page(start: u64) -> u32 {
    start as u32 / Window::PAGE as u32
}

impl BackgroundTask for Pages {
    fn poll(&self) -> Option<Duration> {
        let since = self.since.load(Relaxed);
        if since != 0 {
            raw::scan(&self.domain);
            if !self.domain.passed(Cookie::from_number(since), Grace::Both)
                || self.discard(Patience::Bounded).is_err()
            {
                return Some(POLL);
            }
            self.since.store(0, Relaxed);
        }
        if !self.freed.load(Relaxed) {
            return None;
        }
        if self.collect(Patience::Bounded).is_ok() {
            // After the lock was released: what was freed under it happened before.
            self.since.store(self.domain.cookie().number().max(1), Relaxed);
        }
        Some(POLL)
    }
}
