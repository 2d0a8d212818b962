//! The depot: batches and slabs that all virtual CPUs share, in lock-free stacks.

use crate::stack::Stack;
use crate::store::Store;
use crate::sync::{AtomicU32, Ordering, Tally};

/// Each stack has cache lines of its own, because all CPUs write to it.
#[derive(Debug, Default)]
pub(crate) struct Depot {
    /// Full batches that any CPU may take.
    pub(crate) ready: Padded<Stack>,
    /// Full batches for the keeper.
    pub(crate) handed_over: Padded<Stack>,
    /// Batch records without objects.
    pub(crate) empty: Padded<Stack>,
    /// Slabs whose objects are all free: reusable until the system has them back.
    pub(crate) quarantined: Padded<Stack>,
    /// Slabs that the system has back.
    pub(crate) returned: Padded<Stack>,
    /// Slabs, and batches, used so far: those from this number on are new.
    pub(crate) carved: Padded<AtomicU32>,
    pub(crate) batches: AtomicU32,
    /// The number of ready batches, and the smallest it has been since the keeper last looked.
    pub(crate) in_ready: Padded<Tally>,
    pub(crate) fewest: Tally,
    /// Whether the keeper polls by itself, without a wake.
    pub(crate) awake: AtomicU32,
    /// An allocation failed: the keeper reclaims all it can.
    pub(crate) under_pressure: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl Depot {
    pub(crate) fn pop_empty(&self, store: &Store) -> u32 {
        self.empty.pop(store).unwrap_or_else(|| {
            // Relaxed: each number is given once; nothing else depends on it.
            let number = self.batches.fetch_add(1, Ordering::Relaxed);
            assert!((number as usize) < store.layout.batches, "more batches than slabs");
            number
        })
    }

    pub(crate) fn push_ready(&self, store: &Store, batch: u32) {
        self.ready.push(store, batch);
        // Relaxed: a hint for the keeper.
        self.in_ready.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pop_ready(&self, store: &Store) -> Option<u32> {
        if self.ready.is_empty() {
            // Relaxed: a hint for the keeper.
            self.fewest.store(0, Ordering::Relaxed);
            return None;
        }
        let batch = self.ready.pop(store)?;
        // Relaxed: as above. A push counts after it has pushed, so the count may seem negative for a moment.
        let left = self.in_ready.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1);
        self.fewest.fetch_min(if left > u64::MAX / 2 { 0 } else { left }, Ordering::Relaxed);
        Some(batch)
    }
}
