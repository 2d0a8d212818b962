//! Which element makes room for another, in tables that are never full.
//!
//! A clock: a hand goes round the buckets. Each element has a mark, which look-ups and updates of programs set; the hand clears it as it
//! passes, and takes out the first element that it finds without. So what was used since the hand came by last stays, and
//! what was not goes, oldest first by and large. A look-up writes only where the mark is not set yet, so that
//! elements in constant use cost no cache line its owner.
//!
//! ```text
//!     hand ──> bucket 5 [marked] ──> bucket 6 [unmarked: out]        marks are cleared behind the hand
//! ```
//!
//! It is no exact order of use, as Linux's is none: how new elements and old ones go differs in detail.

use std::sync::atomic::{AtomicU64, Ordering};

use super::element::Element;
use super::{Hash, Spare};
use crate::caller::Caller;
use crate::op_error::OpError;
use crate::update::UpdateFlags;
use crate::values::Source;

/// The hand, and where elements have their mark.
#[derive(Debug)]
pub(super) struct Clock {
    hand: AtomicU64,
    mark_at: usize,
}

/// After so many marked elements the next one goes though it is marked: an insertion must not take as long as a whole round.
const MARKED: u32 = 64;

/// How often an insertion makes room that others take.
const TRIES: u32 = 64;

impl Clock {
    pub(super) fn new(mark_at: usize) -> Self {
        Self { hand: AtomicU64::new(0), mark_at }
    }

    fn mark(&self, element: Element) -> &AtomicU64 {
        // SAFETY: elements of such tables have a word there, which is only ever accessed so; as for `Element::next`.
        unsafe { element.0.byte_add(self.mark_at).cast::<AtomicU64>().as_ref() }
    }

    /// The element was used.
    #[inline]
    pub(super) fn used(&self, element: Element) {
        let mark = self.mark(element);
        // Relaxed, all: a hint, which orders nothing.
        if mark.load(Ordering::Relaxed) == 0 {
            mark.store(1, Ordering::Relaxed);
        }
    }

    /// The element is new, or in the place of one that was replaced.
    pub(super) fn set(&self, element: Element, used: bool) {
        self.mark(element).store(u64::from(used), Ordering::Relaxed);
    }
}

impl Hash {
    /// Inserts or changes; where there is no room, something else goes.
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
            // An insertion that is going to find no room should not take an element and the lock for nothing.
            if self.len() >= self.max_entries && !self.is_there(key, caller) {
                if mode == UpdateFlags::Exist {
                    return Err(OpError::Missing);
                }
                // Nothing goes for an insertion that cannot be made, or finds no memory. What is given back is there for it.
                drop(self.bucket_of(key).version.lock(caller)?);
                // SAFETY: by contract.
                drop(unsafe { Spare::take(&self.elements, caller) }.map_err(OpError::NoMemory)?);
                // SAFETY: by contract.
                unsafe { self.evict(clock, caller)? };
            }
            // SAFETY: by contract.
            let result = unsafe {
                match self.values.is_per_cpu() {
                    true => self.update_in_place(key, source, mode, caller),
                    false => self.replace(key, source, mode, caller),
                }
            };
            // Another insertion has taken the room: try again.
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

    /// Takes out an element that was not used since the hand came by last.
    ///
    /// A bucket in whose change this thread was interrupted is passed over. [`OpError::Busy`] where all elements are in such.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread, which holds no bucket.
    #[cold]
    unsafe fn evict(&self, clock: &Clock, caller: Caller) -> Result<(), OpError> {
        let (mut marked, mut result) = (0, Ok(()));
        // Twice round: the first may do no more than clear marks.
        for _ in 0..2 * (self.mask + 1) {
            // Relaxed: a place to begin.
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
                // SAFETY: unlinked under the lock, hence by nobody else, and the version says so.
                unsafe { self.elements.free(caller, element.0) };
                return Ok(());
            }
        }
        result
    }
}
