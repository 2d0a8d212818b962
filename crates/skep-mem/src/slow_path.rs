//! The slow paths behind the gate: finding objects where none is ready, and sealing and reclaiming batches.
//!
//! Every function with a `record` belongs to the thread that has passed that virtual CPU's gate.

use std::ptr;

use crate::cpu::Cpu;
use crate::eras::{ActiveEras, cookie};
use crate::error::Error;
use crate::inner::Inner;
use crate::object;
use crate::policy::Policy;
use crate::store::SlabLinks;
use crate::sync::{Grace, Ordering, raw};

impl Inner {
    /// Finds an object when none is ready.
    #[cold]
    #[inline(never)]
    pub(crate) fn refill(&self, record: &Cpu) -> Result<*mut u8, Error> {
        self.restock(record);
        self.take_ready(record).ok_or_else(|| self.no_memory())
    }

    /// Makes objects ready, from the nearest source that has any.
    fn restock(&self, record: &Cpu) {
        if self.take_full(record) || self.take_shared(record) {
            return;
        }
        if self.open_if(record, self.pop_reclaimable(record).or_else(|| self.depot.pop_ready(&self.store))) {
            return;
        }
        if record.queue.len() as u32 >= record.next_scan.load(Ordering::Relaxed) {
            self.reclaim_by_eras(record, 4);
        }
        if self.take_full(record) || self.open_if(record, self.depot.pop_ready(&self.store)) {
            return;
        }
        if let Some(slab) = self.take_slab() {
            record.run.store(self.store.first(slab).as_ptr(), Ordering::Relaxed);
            record.run_left.store(self.store.layout.per_slab as u64, Ordering::Relaxed);
            return;
        }
        // Last resort: scan for batches that wait on this CPU, at any cost.
        self.reclaim_by_eras(record, usize::MAX);
        let _found = self.take_full(record) || self.open_if(record, self.depot.pop_ready(&self.store));
    }

    /// Makes the reserve ready. `false` if it is empty. The caller has no ready objects.
    fn take_full(&self, record: &Cpu) -> bool {
        // Relaxed: only the thread behind the gate uses it.
        let full = record.full.swap(ptr::null_mut(), Ordering::Relaxed);
        if full.is_null() {
            return false;
        }
        record.ready.set(full, self.store.layout.per_slab);
        true
    }

    /// The same for the shared ready objects.
    fn take_shared(&self, record: &Cpu) -> bool {
        // Acquire: pairs with the Release in `push_list`.
        let mut next = record.shared_ready.swap(ptr::null_mut(), Ordering::Acquire);
        if next.is_null() {
            return false;
        }
        while !next.is_null() {
            let object = next;
            // SAFETY: the swap made the list of free objects ours.
            unsafe {
                next = object::next(object);
                self.put_ready(record, object);
            }
        }
        !record.ready.is_empty() || self.take_full(record)
    }

    /// A list of objects from the depot, and the number of its batch record if it has one.
    pub(crate) fn more(&self) -> Option<(*mut u8, Option<u32>)> {
        if let Some(batch) = self.depot.pop_ready(&self.store) {
            return Some((self.store.batch(batch).head.load(Ordering::Relaxed), Some(batch)));
        }
        let first = self.store.first(self.take_slab()?).as_ptr();
        let object = |index: usize| first.wrapping_add(index * self.store.layout.stride);
        let per_slab = self.store.layout.per_slab;
        for index in 0..per_slab {
            let next = if index + 1 < per_slab { object(index + 1) } else { ptr::null_mut() };
            // SAFETY: objects of a slab that only this thread has.
            unsafe { object::link(object(index), next) };
        }
        Some((first, None))
    }

    /// Makes the objects of a batch, if there is one, the ready ones. The caller has no others.
    fn open_if(&self, record: &Cpu, batch: Option<u32>) -> bool {
        let Some(batch) = batch else { return false };
        record.ready.set(self.store.batch(batch).head.load(Ordering::Relaxed), self.store.layout.per_slab);
        self.keep_empty(record, batch);
        true
    }

    fn keep_empty(&self, record: &Cpu, batch: u32) {
        // Relaxed: only the thread behind the gate uses it.
        if record.spare.load(Ordering::Relaxed) == 0 {
            record.spare.store(batch + 1, Ordering::Relaxed);
        } else {
            self.depot.empty.push(&self.store, batch);
        }
    }

    /// Removes the oldest batch from the CPU's queue, if its grace period is known to have passed.
    fn pop_reclaimable(&self, record: &Cpu) -> Option<u32> {
        let front = self.store.batch(record.queue.front()?);
        if !self.domain.passed(cookie(front), Grace::Normal) {
            return None;
        }
        let batch = record.queue.pop(&self.store);
        self.counts.stopped_waiting(self.store.layout.per_slab);
        batch
    }

    /// Reclaims batches that no reader holds, by the readers' active eras; gives up if fewer than `1 / part` of the
    /// waiting batches are reclaimable.
    #[cold]
    fn reclaim_by_eras(&self, record: &Cpu, part: usize) {
        let waiting = record.queue.len();
        if waiting == 0 {
            return;
        }
        // A hint without a fence comes first, and is free. Mostly it shows that a fence would not help, or that
        // another thread has just executed one.
        let hint = ActiveEras::of(&self.domain);
        let waits = || record.queue.iter(&self.store).map(|number| self.store.batch(number));
        let enough = |count: usize| count > 0 && count >= waiting / part;
        if enough(waits().filter(|batch| hint.frees(batch)).count())
            || (enough(waits().filter(|batch| hint.seems_to_free(batch)).count())
                && raw::heavy_fence(&self.domain))
        {
            let eras = ActiveEras::of(&self.domain);
            let wanted = |number| eras.frees(self.store.batch(number));
            record.queue.take_if(&self.store, wanted, |batch| {
                self.counts.stopped_waiting(self.store.layout.per_slab);
                // Relaxed: only the thread behind the gate uses it.
                if record.full.load(Ordering::Relaxed).is_null() {
                    record
                        .full
                        .store(self.store.batch(batch).head.load(Ordering::Relaxed), Ordering::Relaxed);
                    self.keep_empty(record, batch);
                } else {
                    self.depot.push_ready(&self.store, batch);
                }
            });
        }
        let left = record.queue.len();
        record.next_scan.store((left + self.patience().max(left / 2)) as u32, Ordering::Relaxed);
    }

    /// How many batches a CPU lets wait between scans: a scan should cost less than it takes to use up a batch.
    fn patience(&self) -> usize {
        (PATIENCE / self.store.layout.slab_bytes).max(1)
    }

    /// Adds an object to the ready ones. `true` if a batch went to the depot.
    ///
    /// # Safety
    ///
    /// The object is free, of this cache, and owned by the caller.
    #[inline]
    pub(crate) unsafe fn put_ready(&self, record: &Cpu, object: *mut u8) -> bool {
        // SAFETY: by the caller's contract.
        unsafe { record.ready.push(object) };
        record.ready.len() == self.store.layout.per_slab && self.spill(record)
    }

    #[cold]
    fn spill(&self, record: &Cpu) -> bool {
        let (list, _) = record.ready.take();
        // Relaxed: only the thread behind the gate uses it.
        let old = record.full.swap(list, Ordering::Relaxed);
        if !old.is_null() {
            let batch = self.empty(record);
            self.store.batch(batch).head.store(old, Ordering::Relaxed);
            self.depot.push_ready(&self.store, batch);
        }
        !old.is_null()
    }

    /// Adds an object to the waiting ones. `true` if it was the first or the last of a batch.
    ///
    /// # Safety
    ///
    /// The object is free, of this cache, and owned by the caller.
    #[inline]
    pub(crate) unsafe fn put_filling(&self, record: &Cpu, object: *mut u8, birth: u64) -> bool {
        // SAFETY: by the caller's contract.
        unsafe { record.filling.push(object) };
        // Relaxed, both: only the thread behind the gate uses it. 0 means none; the subtraction makes it 2^64 - 1.
        let oldest = record.oldest.load(Ordering::Relaxed);
        if birth < oldest.wrapping_sub(1) {
            record.oldest.store(birth + 1, Ordering::Relaxed);
        }
        match record.filling.len() {
            len if len >= self.store.layout.per_slab => self.seal(record),
            // The keeper collects it if no others follow.
            1 => {}
            _ => return false,
        }
        true
    }

    /// Seals the freed objects as a batch.
    #[cold]
    #[inline(never)]
    fn seal(&self, record: &Cpu) {
        let (list, _) = record.filling.take();
        // Relaxed, all: only the thread behind the gate uses them; the hand-over publishes the batch.
        let oldest = record.oldest.swap(0, Ordering::Relaxed).saturating_sub(1);
        let number = self.empty(record);
        let batch = self.store.batch(number);
        batch.head.store(list, Ordering::Relaxed);
        batch.oldest.store(oldest, Ordering::Relaxed);
        batch.cookie.store(self.domain.cookie().number(), Ordering::Relaxed);
        self.counts.began_waiting(self.store.layout.per_slab);
        if self.policy != Policy::ReuseAfterGp {
            return self.depot.handed_over.push(&self.store, number);
        }
        record.queue.push(&self.store, number);
        // Give reclaimable batches that are not needed here to the depot.
        for _ in 0..2 {
            if record.queue.len() > 2
                && let Some(batch) = self.pop_reclaimable(record)
            {
                self.depot.push_ready(&self.store, batch);
            }
        }
        if record.queue.len() as u32 >= record.next_scan.load(Ordering::Relaxed).max(1) {
            self.reclaim_by_eras(record, 4);
        }
        // Objects that were freed while the gate was closed.
        if !record.shared_freed.load(Ordering::Relaxed).is_null() {
            self.absorb_shared(record);
        }
    }

    /// Moves the shared freed objects to the waiting ones.
    pub(crate) fn absorb_shared(&self, record: &Cpu) {
        // Acquire: pairs with the Release in `push_list`.
        let mut next = record.shared_freed.swap(ptr::null_mut(), Ordering::Acquire);
        while !next.is_null() {
            let object = next;
            // SAFETY: the swap made the list of free objects ours. Their birth eras are lost, so they count as the
            // oldest.
            unsafe {
                next = object::next(object);
                self.put_filling(record, object, 0);
            }
        }
    }

    /// An empty batch record. One exists: there are no more sealed batches than slabs, and each CPU reserves at most
    /// one.
    fn empty(&self, record: &Cpu) -> u32 {
        // Relaxed: only the thread behind the gate uses it.
        match record.spare.swap(0, Ordering::Relaxed).checked_sub(1) {
            Some(number) => number,
            None => self.depot.pop_empty(&self.store),
        }
    }

    /// A slab of free objects: quarantined, else returned, else never used.
    fn take_slab(&self) -> Option<u32> {
        if let Some(slab) = self.depot.quarantined.pop(&SlabLinks(&self.store)) {
            return Some(slab);
        }
        let bytes = self.store.layout.per_slab_bytes();
        self.charge.grow(bytes).ok()?;
        let slab = self.depot.returned.pop(&SlabLinks(&self.store)).or_else(|| {
            let slabs = self.store.layout.slabs as u32;
            let more = |carved| (carved < slabs).then_some(carved + 1);
            // Relaxed: each number is given once; nothing else depends on it.
            self.depot.carved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
        });
        match slab {
            Some(_) => self.counts.slab_taken(),
            None => self.charge.shrink(bytes),
        }
        slab
    }
}

/// How many bytes of batches a CPU lets wait between scans. The fence of a scan takes 1 to 20 microseconds, more with
/// more busy CPUs; in that time a program frees some hundred objects.
const PATIENCE: usize = 160 << 10;
