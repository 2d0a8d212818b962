//! What a cache holds now, and its peaks.

use crate::sync::{Ordering, Tally};

/// What a [`Cache`](crate::Cache) holds. Exact while no thread uses the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes of memory that the cache has from the system, bookkeeping included: slabs that were taken and not
    /// returned, touched or not.
    pub bytes: usize,
    /// The largest `bytes` so far.
    pub peak_bytes: usize,
    /// Objects that were allocated and not freed.
    pub in_use: usize,
    /// Objects that were freed and may not be reused yet.
    pub in_flight: usize,
    /// The largest `in_flight` so far, counted when batches are sealed.
    pub peak_in_flight: usize,
    /// Objects in a batch, which is sealed, waits and is reused as one.
    pub batch: usize,
    /// Bytes from one object to the next.
    pub stride: usize,
    /// Slabs returned to the system so far.
    pub slabs_returned: u64,
}

/// Running counts. Relaxed throughout: statistics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) waiting: Tally,
    pub(crate) peak_waiting: Tally,
    pub(crate) slabs: Tally,
    pub(crate) peak_slabs: Tally,
    pub(crate) returned: Tally,
    /// Objects under [`Policy::None`](crate::Policy::None) that have not been freed to the system's allocator.
    pub(crate) system: Tally,
    pub(crate) peak_system: Tally,
}

impl Counts {
    pub(crate) fn began_waiting(&self, objects: usize) {
        let waiting = self.waiting.fetch_add(objects as u64, Ordering::Relaxed) + objects as u64;
        if waiting > self.peak_waiting.load(Ordering::Relaxed) {
            self.peak_waiting.fetch_max(waiting, Ordering::Relaxed);
        }
    }

    pub(crate) fn stopped_waiting(&self, objects: usize) {
        self.waiting.fetch_sub(objects as u64, Ordering::Relaxed);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn slab_taken(&self) {
        let slabs = self.slabs.fetch_add(1, Ordering::Relaxed) + 1;
        if slabs > self.peak_slabs.load(Ordering::Relaxed) {
            self.peak_slabs.fetch_max(slabs, Ordering::Relaxed);
        }
    }

    pub(crate) fn slab_returned(&self) {
        self.slabs.fetch_sub(1, Ordering::Relaxed);
        self.returned.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more object of the system's allocator, unless there are `most` already.
    pub(crate) fn system_taken(&self, most: usize) -> bool {
        let more = |count| (count < most as u64).then_some(count + 1);
        let before = self.system.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        before.is_ok_and(|before| {
            self.peak_system.fetch_max(before + 1, Ordering::Relaxed);
            true
        })
    }

    pub(crate) fn system_given(&self) {
        self.system.fetch_sub(1, Ordering::Relaxed);
    }
}
