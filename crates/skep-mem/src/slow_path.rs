//! How objects go round inside of a cache: from what is free to what is handed out, and from what was freed to what is free.
//!
//! All of it happens behind the gate of the virtual CPU whose record is given, but for what is shared by all.

use std::ptr;

use crate::cpu::Cpu;
use crate::eras::{ActiveEras, cookie};
use crate::inner::Inner;
use crate::object;
use crate::store::SlabLinks;
use crate::sync::{Grace, Ordering, raw};
use crate::{Error, Policy};

impl Inner {
    /// Finds an object where there is none ready. The gate was passed.
    #[cold]
    #[inline(never)]
    pub(crate) fn refill(&self, record: &Cpu) -> Result<*mut u8, Error> {
        self.restock(record);
        self.take_ready(record).ok_or_else(|| self.no_memory())
    }

    /// Looks for objects to be handed out, nearest first. The gate was passed.
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
        // The last resort: what waits here, whatever a look costs.
        self.reclaim_by_eras(record, usize::MAX);
        let _found = self.take_full(record) || self.open_if(record, self.depot.pop_ready(&self.store));
    }

    /// Takes what is in reserve. `false` where there is nothing. The gate was passed, and nothing is ready.
    fn take_full(&self, record: &Cpu) -> bool {
        // Relaxed: whoever has passed the gate.
        let full = record.full.swap(ptr::null_mut(), Ordering::Relaxed);
        if full.is_null() {
            return false;
        }
        record.ready.set(full, self.store.layout.per_slab);
        true
    }

    /// The same, of what lies ready aside.
    fn take_shared(&self, record: &Cpu) -> bool {
        // Acquire: pairs with the Release in `push_list`.
        let mut next = record.shared_ready.swap(ptr::null_mut(), Ordering::Acquire);
        if next.is_null() {
            return false;
        }
        while !next.is_null() {
            let object = next;
            // SAFETY: a list of free objects that is ours.
            unsafe {
                next = object::next(object);
                self.put_ready(record, object);
            }
        }
        !record.ready.is_empty() || self.take_full(record)
    }

    /// A list of objects from what all share, and the batch that it was.
    pub(crate) fn more(&self) -> Option<(*mut u8, Option<u32>)> {
        if let Some(batch) = self.depot.pop_ready(&self.store) {
            return Some((self.store.batch(batch).head.load(Ordering::Relaxed), Some(batch)));
        }
        let first = self.store.first(self.take_slab()?).as_ptr();
        let object = |index: usize| first.wrapping_add(index * self.store.layout.stride);
        let per_slab = self.store.layout.per_slab;
        for index in 0..per_slab {
            let next = if index + 1 < per_slab { object(index + 1) } else { ptr::null_mut() };
            // SAFETY: objects of a slab that we alone have.
            unsafe { object::link(object(index), next) };
        }
        Some((first, None))
    }

    /// Makes a batch's objects, if there is one, those that are handed out next. The gate was passed, and there are no others.
    fn open_if(&self, record: &Cpu, batch: Option<u32>) -> bool {
        let Some(batch) = batch else { return false };
        record.ready.set(self.store.batch(batch).head.load(Ordering::Relaxed), self.store.layout.per_slab);
        self.keep_empty(record, batch);
        true
    }

    fn keep_empty(&self, record: &Cpu, batch: u32) {
        // Relaxed: whoever has passed the gate.
        if record.spare.load(Ordering::Relaxed) == 0 {
            record.spare.store(batch + 1, Ordering::Relaxed);
        } else {
            self.depot.empty.push(&self.store, batch);
        }
    }

    /// The oldest batch of a CPU's own queue, if its grace period is known to have passed.
    fn pop_reclaimable(&self, record: &Cpu) -> Option<u32> {
        let front = self.store.batch(record.queue.front()?);
        if !self.domain.passed(cookie(front), Grace::Normal) {
            return None;
        }
        let batch = record.queue.pop(&self.store);
        self.counts.stopped_waiting(self.store.layout.per_slab);
        batch
    }

    /// Looks at the readers, and puts what none of them holds to where it is handed out; unless it seems to be less than that
    /// part of what waits. The gate was passed.
    #[cold]
    fn reclaim_by_eras(&self, record: &Cpu, part: usize) {
        let waiting = record.queue.len();
        if waiting == 0 {
            return;
        }
        // Without a fence first, which costs nothing: mostly it is seen that it would be of no use, or is not needed because
        // somebody else has just executed one.
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
                // Relaxed: whoever has passed the gate.
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

    /// How many batches a CPU lets wait before it looks at the readers, which takes about as long as to use up one.
    fn patience(&self) -> usize {
        (PATIENCE / self.store.layout.slab_bytes).max(1)
    }

    /// Puts an object to those that are handed out. `true` where some went to the depot. The gate was passed.
    ///
    /// # Safety
    ///
    /// The object is free, and the cache's.
    #[inline]
    pub(crate) unsafe fn put_ready(&self, record: &Cpu, object: *mut u8) -> bool {
        // SAFETY: by contract.
        unsafe { record.ready.push(object) };
        record.ready.len() == self.store.layout.per_slab && self.spill(record)
    }

    #[cold]
    fn spill(&self, record: &Cpu) -> bool {
        let (list, _) = record.ready.take();
        // Relaxed: whoever has passed the gate.
        let old = record.full.swap(list, Ordering::Relaxed);
        if !old.is_null() {
            let batch = self.empty(record);
            self.store.batch(batch).head.store(old, Ordering::Relaxed);
            self.depot.push_ready(&self.store, batch);
        }
        !old.is_null()
    }

    /// Puts an object to those that wait. `true` where it was the first or the last of a batch. The gate was passed.
    ///
    /// # Safety
    ///
    /// The object is free, and the cache's.
    #[inline]
    pub(crate) unsafe fn put_filling(&self, record: &Cpu, object: *mut u8, birth: u64) -> bool {
        // SAFETY: by contract.
        unsafe { record.filling.push(object) };
        // Relaxed, both: whoever has passed the gate. No time yet is 0, which is 2^64 - 1 after the subtraction.
        let oldest = record.oldest.load(Ordering::Relaxed);
        if birth < oldest.wrapping_sub(1) {
            record.oldest.store(birth + 1, Ordering::Relaxed);
        }
        match record.filling.len() {
            len if len >= self.store.layout.per_slab => self.seal(record),
            // The keeper sees to it should the others not come.
            1 => {}
            _ => return false,
        }
        true
    }

    /// Makes a batch of what was freed. The gate was passed.
    #[cold]
    #[inline(never)]
    fn seal(&self, record: &Cpu) {
        let (list, _) = record.filling.take();
        // Relaxed, all: whoever has passed the gate; handing the batch over publishes it.
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
        // What is ripe, and is not needed here, is for others.
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
        // Freed while the gate was closed.
        if !record.shared_freed.load(Ordering::Relaxed).is_null() {
            self.absorb_shared(record);
        }
    }

    /// Puts what was freed aside to what waits. The gate was passed.
    pub(crate) fn absorb_shared(&self, record: &Cpu) {
        // Acquire: pairs with the Release in `push_list`.
        let mut next = record.shared_freed.swap(ptr::null_mut(), Ordering::Acquire);
        while !next.is_null() {
            let object = next;
            // SAFETY: a list of free objects that is ours; when they were made is lost, so they count as old.
            unsafe {
                next = object::next(object);
                self.put_filling(record, object, 0);
            }
        }
    }

    /// An empty batch. There is one, for sealed ones are never more than slabs, and a CPU keeps at most one.
    fn empty(&self, record: &Cpu) -> u32 {
        // Relaxed: whoever has passed the gate.
        match record.spare.swap(0, Ordering::Relaxed).checked_sub(1) {
            Some(number) => number,
            None => self.depot.pop_empty(&self.store),
        }
    }

    /// A slab of free objects: one that rests, else one that the system got back, else one that was never used.
    fn take_slab(&self) -> Option<u32> {
        if let Some(slab) = self.depot.quarantined.pop(&SlabLinks(&self.store)) {
            return Some(slab);
        }
        let slab = self.depot.returned.pop(&SlabLinks(&self.store)).or_else(|| {
            let slabs = self.store.layout.slabs as u32;
            let more = |carved| (carved < slabs).then_some(carved + 1);
            // Relaxed: numbers, each given once.
            self.depot.carved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
        })?;
        self.counts.slab_taken();
        Some(slab)
    }
}

/// How many bytes a CPU lets wait before it looks at the readers. The fence of a look takes one to twenty microseconds, the longer
/// the more CPUs are at work; in that time a program frees some hundred objects.
const PATIENCE: usize = 160 << 10;
