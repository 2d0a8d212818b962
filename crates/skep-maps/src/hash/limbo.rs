//! Removed elements whose values own objects.
//!
//! What a removed element owns is freed at once. But a program that found the element before may still put objects into
//! its lists and pointers, until its section ends. So the element waits here for the readers, and is freed of what was
//! added before the cache gets it. Nothing waits for readers meanwhile: later changes of the table, and its end, look
//! whether a grace period has passed.
//!
//! ```text
//!   put ---> fresh ---one at a time: take all, with a cookie---> waiting ---cookie has passed---> freed for good
//! ```
//!
//! Both are lists, linked by a word of the element that readers do not use. `fresh` is a stack that anybody pushes
//! to and that is taken as a whole, so no element can be taken and come back meanwhile.

use skep_rcu::{Cookie, Domain, Grace};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::Element;

/// As many elements as wait before a change scans the readers.
const PATIENCE: u64 = 64;

/// The elements that wait.
#[derive(Debug, Default)]
pub(super) struct Limbo {
    /// Offset of the link in an element.
    link_at: usize,
    fresh: AtomicPtr<u8>,
    /// Whether a thread collects. It has `waiting` and `cookie`.
    collecting: AtomicBool,
    waiting: AtomicPtr<u8>,
    cookie: AtomicU64,
    /// Elements put in since the last scan of the readers.
    since: AtomicU64,
}

impl Limbo {
    pub(super) fn new(link_at: usize) -> Self {
        Self { link_at, ..Self::default() }
    }

    /// Adds an element that was unlinked from its bucket.
    pub(super) fn put(&self, element: Element) {
        let mut next = self.fresh.load(Ordering::Relaxed);
        loop {
            self.link(element).store(next, Ordering::Relaxed);
            // Release: pairs with the Acquire in `collect`, for the link and the clearing of the element.
            match self.fresh.compare_exchange_weak(
                next,
                element.0.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => next = found,
            }
        }
        // Relaxed: a hint.
        self.since.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `each` with elements that no reader has any more. `scan`: looks for readers even if few elements wait.
    pub(super) fn collect(&self, domain: &Domain, scan: bool, mut each: impl FnMut(Element)) {
        // Relaxed, both: hints.
        if self.fresh.load(Ordering::Relaxed).is_null() && self.waiting.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Never waits: a thread may have been interrupted in the middle. Acquire: pairs with the Release below.
        if self.collecting.swap(true, Ordering::Acquire) {
            return;
        }
        let scan = scan || self.since.load(Ordering::Relaxed) >= PATIENCE;
        // Relaxed from here: this thread has these words.
        let mut done = std::ptr::null_mut();
        if !self.waiting.load(Ordering::Relaxed).is_null() {
            let cookie = Cookie::from_number(self.cookie.load(Ordering::Relaxed));
            let passed = domain.passed(cookie, Grace::Normal)
                || scan && {
                    self.since.store(0, Ordering::Relaxed);
                    domain.try_pass(cookie, Grace::Normal)
                };
            if passed {
                done = self.waiting.swap(std::ptr::null_mut(), Ordering::Relaxed);
            }
        }
        if self.waiting.load(Ordering::Relaxed).is_null() {
            // Acquire: pairs with the Release in `put`.
            self.waiting.store(self.fresh.swap(std::ptr::null_mut(), Ordering::Acquire), Ordering::Relaxed);
            self.cookie.store(domain.cookie().number(), Ordering::Relaxed);
        }
        self.collecting.store(false, Ordering::Release);
        self.walk(done, &mut each);
    }

    /// Calls `each` with all elements. No other thread has the table any more.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Element)) {
        let lists = [*self.fresh.get_mut(), *self.waiting.get_mut()];
        lists.into_iter().for_each(|first| self.walk(first, &mut each));
    }

    fn walk(&self, first: *mut u8, each: &mut impl FnMut(Element)) {
        let mut next = NonNull::new(first);
        while let Some(element) = next.map(Element) {
            // Relaxed: the list is this thread's.
            next = NonNull::new(self.link(element).load(Ordering::Relaxed));
            each(element);
        }
    }

    fn link<'a>(&self, element: Element) -> &'a AtomicPtr<u8> {
        // SAFETY: elements of a table with a limbo have this word; their memory lives as long as the table.
        unsafe { element.0.add(self.link_at).cast().as_ref() }
    }
}
