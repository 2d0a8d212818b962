//! Eviction in LRU tables, which are never full.
//!
//! A clock algorithm: a hand goes round the buckets. Each element has a mark, which programs' look-ups and updates
//! set; the hand clears marks as it passes and evicts the first unmarked element. So elements used since the hand's
//! last pass stay, and others are evicted, roughly the oldest first. A look-up writes only if the mark is not set
//! yet, so elements in constant use cause no cache misses.
//!
//! ```text
//!     hand ──> bucket 5 [marked] ──> bucket 6 [unmarked: evicted]        marks are cleared behind the hand
//! ```
//!
//! The order of use is approximate, as in Linux; details of the order differ.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Hash;
use super::element::Element;
use crate::caller::Caller;
use crate::op_error::OpError;
use crate::update::UpdateFlags;
use crate::values::Source;

/// The hand, and the offset of the mark in an element.
#[derive(Debug)]
pub(super) struct Clock {
    hand: AtomicU64,
    mark_at: usize,
}

/// After this many marked elements in a row a marked one is evicted: an insertion must not take a whole round.
const MARKED: u32 = 64;

/// How often an insertion retries when others take the room that it made.
const TRIES: u32 = 64;

impl Clock {
    pub(super) fn new(mark_at: usize) -> Self {
        Self { hand: AtomicU64::new(0), mark_at }
    }

    fn mark(&self, element: Element) -> &AtomicU64 {
        // SAFETY: elements of LRU tables have a word there, which is only accessed as an atomic; as for
        // `Element::next`.
        unsafe { element.0.byte_add(self.mark_at).cast::<AtomicU64>().as_ref() }
    }

    /// Marks the element as used.
    #[inline]
    pub(super) fn used(&self, element: Element) {
        let mark = self.mark(element);
        // Relaxed, all: a hint that orders nothing.
        if mark.load(Ordering::Relaxed) == 0 {
            mark.store(1, Ordering::Relaxed);
        }
    }

    /// Sets the mark of an element that is new or replaces another.
    pub(super) fn set(&self, element: Element, used: bool) {
        self.mark(element).store(u64::from(used), Ordering::Relaxed);
    }
}

impl Hash {
    /// Inserts or changes; if there is no room, evicts another element.
    ///
    /// # Safety
    ///
    /// `source` is as [`Values::write`](crate::values::Values::write) demands; `caller` is the calling thread.
    pub(super) unsafe fn update_or_evict(
        &self,
        key: &[u64],
        source: Source,
        mode: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        let Some(clock) = &self.clock else { return Err(OpError::Full) };
        for _ in 0..TRIES {
            // Check first: an insertion that will find no room should not allocate an element and take the lock.
            if self.len() >= self.max_entries && !self.is_there(key, caller) {
                if mode == UpdateFlags::Exist {
                    return Err(OpError::Missing);
                }
                // Evict nothing for an insertion that cannot succeed or finds no memory. A freed element can be used
                // again.
                drop(self.bucket_of(key).version.lock(caller)?);
                // SAFETY: by the caller's contract.
                drop(unsafe { self.spare(caller) }.map_err(OpError::NoMemory)?);
                // SAFETY: by the caller's contract.
                unsafe { self.evict(clock, caller)? };
            }
            // SAFETY: by the caller's contract.
            let result = unsafe {
                match self.values.is_per_cpu() {
                    true => self.update_in_place(key, source, mode, caller),
                    false => self.replace(key, source, mode, caller),
                }
            };
            // Another insertion has taken the room: retry.
            if result != Err(OpError::Full) {
                return result;
            }
        }
        Err(OpError::Full)
    }

    fn is_there(&self, key: &[u64], caller: Caller) -> bool {
        if caller == Caller::Host {
            let bucket = self.bucket_of(key);
            let _lock = bucket.version.lock_or_own(caller);
            return self.find_locked(bucket, key).1.is_some();
        }
        self.find(key, caller).is_some()
    }

    /// Evicts an element that was not used since the hand's last pass.
    ///
    /// Skips a bucket in whose change this thread was interrupted. [`OpError::Busy`] if all elements are in such
    /// buckets.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread, which holds no bucket's lock.
    #[cold]
    unsafe fn evict(&self, clock: &Clock, caller: Caller) -> Result<(), OpError> {
        let (mut marked, mut result) = (0, Ok(()));
        // Two rounds: the first may only clear marks.
        for _ in 0..2 * (self.mask + 1) {
            // Relaxed: any starting point will do.
            let index = clock.hand.fetch_add(1, Ordering::Relaxed) & self.mask;
            let Some(bucket) = self.if_used(index) else { continue };
            let lock = match bucket.version.lock(caller) {
                Ok(lock) => lock,
                Err(error) => {
                    result = Err(error);
                    continue;
                }
            };
            let mut link = &bucket.head;
            // Relaxed: as in `find_locked`.
            while let Some(element) = std::ptr::NonNull::new(link.load(Ordering::Relaxed)).map(Element) {
                if clock.mark(element).load(Ordering::Relaxed) != 0 && marked < MARKED {
                    marked += 1;
                    clock.set(element, false);
                    link = element.next();
                    continue;
                }
                self.unlink(lock, link, element);
                // SAFETY: this thread unlinked it under the lock, and the version shows it.
                unsafe { self.retire(caller, element) };
                return Ok(());
            }
        }
        result
    }
}
