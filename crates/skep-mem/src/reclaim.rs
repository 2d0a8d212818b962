//! The reclaimer: the cache's background task on the domain's keeper.
//!
//! ```text
//!   handed over ──┐
//!   idle CPUs ────┴─> waiting ──(grace period)──> ready         or, by policy, the system's allocator
//!                                                   | surplus, and with free-after-gp everything
//!                                                   v
//!                             sorted by slab ─> whole slabs quarantined ──(sleepable grace period)──> the system
//!                                     └─> objects of other slabs are ready again
//! ```
//!
//! It visits CPUs that did nothing since its last visit and collects what their threads left behind; busy CPUs
//! reclaim for themselves. When nothing is left to do it sleeps until a free wakes it.

use std::ptr;
use std::time::Duration;

use crate::batch::Queue;
use crate::cpu::Cpu;
use crate::eras::{ActiveEras, cookie};
use crate::inner::{Inner, ReclaimState, Slabs};
use crate::object;
use crate::policy::Policy;
use crate::store::SlabLinks;
use crate::sync::{BackgroundTask, Cookie, Grace, Instant, Ordering, fence, raw};

/// The time between scans while batches wait.
const SCAN_INTERVAL: Duration = Duration::from_micros(200);
/// The time between visits to the CPUs.
const VISIT_INTERVAL: Duration = Duration::from_millis(10);
/// The time between returns of surplus memory.
const TRIM_INTERVAL: Duration = Duration::from_millis(100);
/// Ready batches that are never surplus.
const KEEP_READY: u64 = 8;

impl BackgroundTask for Inner {
    fn poll(&self) -> Option<Duration> {
        let Ok(mut reclaim) = self.reclaim.try_lock() else { return Some(VISIT_INTERVAL) };
        // AcqRel: pairs with the Release in `Cache::report_pressure`.
        let under_pressure = self.depot.under_pressure.swap(0, Ordering::AcqRel) != 0;
        let now = Instant::now();
        let over =
            |since: Option<Instant>, time| under_pressure || since.is_none_or(|since| now - since >= time);

        reclaim.take_over(self);
        let visit = over(reclaim.visited, VISIT_INTERVAL);
        let mut at_work = false;
        if visit {
            reclaim.visited = Some(now);
            at_work = reclaim.visit(self, under_pressure);
        }
        reclaim.reclaim(self, under_pressure);
        reclaim.feed_starved(self);
        if over(reclaim.trimmed, TRIM_INTERVAL) {
            reclaim.trimmed = Some(now);
            reclaim.trim(self);
        }
        reclaim.return_quarantined(self);
        self.counts.stopped_waiting(std::mem::take(&mut reclaim.reclaimable));
        reclaim.next(self, at_work || !visit)
    }
}

impl ReclaimState {
    /// The time until the next poll; `None` if the task can sleep until it is woken.
    fn next(&self, inner: &Inner, at_work: bool) -> Option<Duration> {
        if self.waiting.len() > 0 {
            return Some(self.scan_interval);
        }
        let idle = !at_work && inner.depot.quarantined.is_empty();
        if !idle || inner.counts.is_waiting() {
            return Some(VISIT_INTERVAL);
        }
        // Relaxed: a hint.
        if inner.depot.in_ready.load(Ordering::Relaxed) > KEEP_READY {
            return Some(TRIM_INTERVAL);
        }
        // SeqCst fence: pairs with the one in `Cache::wake`. A free after this wakes the keeper; a free before this
        // is seen below.
        inner.depot.awake.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let left = inner.counts.is_waiting()
            || !inner.depot.handed_over.is_empty()
            || inner.store.cpus().any(has_anything);
        if left {
            inner.depot.awake.store(1, Ordering::Relaxed);
            return Some(VISIT_INTERVAL);
        }
        None
    }

    /// Takes the batches that were handed over.
    fn take_over(&mut self, inner: &Inner) {
        let mut next = inner.depot.handed_over.take();
        while let Some(number) = next {
            next = inner.store.batch(number).link.load(Ordering::Relaxed).checked_sub(1);
            self.waiting.push(&inner.store, number);
        }
    }

    /// Collects from CPUs that were idle since the last visit, or from all. Returns whether any was busy.
    pub(crate) fn visit(&mut self, inner: &Inner, all: bool) -> bool {
        let mut at_work = false;
        let mut asked = false;
        for cpu in inner.store.cpus() {
            let done = cpu.done();
            // Relaxed: only the keeper uses it.
            let idle = cpu.last_done.swap(done, Ordering::Relaxed) == done;
            at_work |= !idle;
            if (all && (done != 0 || has_anything(cpu) || has_shared_ready(cpu)))
                || (idle && has_anything(cpu))
            {
                cpu.gate.request();
                asked = true;
            }
        }
        if !asked {
            return at_work;
        }
        let fenced = raw::heavy_fence(&inner.domain);
        for cpu in inner.store.cpus().filter(|cpu| cpu.gate.is_requested()) {
            if fenced && cpu.gate.is_idle() {
                self.collect(inner, cpu, all);
            }
            cpu.gate.hand_back();
        }
        at_work
    }

    /// Collects the objects that wait on a CPU; if `all`, also the ready ones. The keeper owns the gate.
    fn collect(&mut self, inner: &Inner, cpu: &Cpu, all: bool) {
        inner.absorb_shared(cpu);
        while let Some(batch) = cpu.queue.pop(&inner.store) {
            self.waiting.push(&inner.store, batch);
        }
        cpu.next_scan.store(0, Ordering::Relaxed);
        let (mut next, _) = cpu.filling.take();
        cpu.oldest.store(0, Ordering::Relaxed);
        while !next.is_null() {
            let object = next;
            // SAFETY: the keeper owns the list, whose objects are free.
            unsafe {
                next = object::next(object);
                self.add(inner, object);
            }
        }
        if !all {
            return;
        }
        let full = cpu.full.swap(ptr::null_mut(), Ordering::Relaxed);
        let (ready, _) = cpu.ready.take();
        // Acquire: pairs with the Release in `push_list`.
        let aside = cpu.shared_ready.swap(ptr::null_mut(), Ordering::Acquire);
        for list in [full, ready, aside] {
            self.sort_by_slab(inner, list);
        }
        while let Some(object) = cpu.take_fresh(inner.store.layout.stride) {
            // SAFETY: an object of the cache that the keeper owns.
            unsafe { object::link(object, ptr::null_mut()) };
            self.sort_by_slab(inner, object);
        }
        self.gather_slabs(inner);
    }

    /// Adds a freed object that waits.
    ///
    /// # Safety
    ///
    /// The object is free, of this cache, and owned by the caller.
    unsafe fn add(&mut self, inner: &Inner, object: *mut u8) {
        // SAFETY: by the caller's contract.
        unsafe { self.partial.push(object) };
        inner.counts.began_waiting(1);
        self.partial_cookie = None;
        if self.partial.len() == inner.store.layout.per_slab {
            self.seal(inner);
        }
    }

    fn seal(&mut self, inner: &Inner) {
        let number = inner.depot.pop_empty(&inner.store);
        let (list, _) = self.partial.take();
        let batch = inner.store.batch(number);
        batch.head.store(list, Ordering::Relaxed);
        // The birth eras of collected objects are lost: count them as the oldest.
        batch.oldest.store(0, Ordering::Relaxed);
        batch.cookie.store(inner.domain.cookie().number(), Ordering::Relaxed);
        self.waiting.push(&inner.store, number);
    }

    /// Moves batches that no reader holds to where they can be allocated.
    fn reclaim(&mut self, inner: &Inner, under_pressure: bool) {
        if self.waiting.len() == 0 && self.partial.is_empty() {
            return;
        }
        let both = matches!(inner.policy, Policy::None | Policy::FreeAfterGp);
        if !self.partial.is_empty() {
            self.partial_cookie.get_or_insert_with(|| inner.domain.cookie());
        }
        raw::scan(&inner.domain);
        self.reclaim_partial(inner, if both { Grace::Both } else { Grace::Normal });
        // After the scan, whose heavy fence serves here as well.
        let eras = (!both).then(|| ActiveEras::of(&inner.domain));
        let frees = |number| match &eras {
            Some(eras) => eras.frees(inner.store.batch(number)),
            None => inner.domain.passed(cookie(inner.store.batch(number)), Grace::Both),
        };
        let free = Queue::default();
        self.waiting.take_if(&inner.store, frees, |batch| free.push(&inner.store, batch));
        self.scan_interval = if free.len() > 0 {
            SCAN_INTERVAL
        } else {
            VISIT_INTERVAL.min(self.scan_interval.max(SCAN_INTERVAL / 2) * 2)
        };
        while let Some(number) = free.pop(&inner.store) {
            let list = inner.store.batch(number).head.load(Ordering::Relaxed);
            self.reclaimable += inner.store.layout.per_slab;
            match inner.policy {
                Policy::None => {
                    inner.depot.empty.push(&inner.store, number);
                    inner.free_to_system(list);
                }
                Policy::FreeAfterGp => {
                    inner.depot.empty.push(&inner.store, number);
                    self.sort_by_slab(inner, list);
                }
                _ => inner.depot.push_ready(&inner.store, number),
            }
        }
        if inner.policy == Policy::FreeAfterGp || under_pressure {
            self.gather_slabs(inner);
        }
    }

    /// Moves the objects of the partial batch on, when none has been added and its grace period is over.
    fn reclaim_partial(&mut self, inner: &Inner, grace: Grace) {
        if !self.partial_cookie.is_some_and(|cookie| inner.domain.passed(cookie, grace)) {
            return;
        }
        let (list, len) = self.partial.take();
        self.partial_cookie = None;
        self.reclaimable += len;
        if inner.policy == Policy::None {
            inner.free_to_system(list);
        } else {
            self.sort_by_slab(inner, list);
            self.gather_slabs(inner);
        }
    }

    /// Gives collected objects to a CPU that found no memory, even fewer than a batch.
    pub(crate) fn feed_starved(&mut self, inner: &Inner) {
        if self.touched.first == 0 {
            return;
        }
        // Relaxed: the CPU stored it before it woke the keeper. If there are several, any will do.
        let Some(cpu) = inner.store.cpus().find(|cpu| cpu.starved.load(Ordering::Relaxed) != 0) else {
            return;
        };
        while let Some(slab) = self.touched.pop(&inner.store) {
            cpu.push_shared(inner.store.slab(slab).free.take().0);
        }
        // The others will ask again.
        inner.store.cpus().for_each(|cpu| cpu.starved.store(0, Ordering::Relaxed));
    }

    /// How many ready batches no CPU has needed for a while.
    fn surplus(&self, inner: &Inner) -> u64 {
        // Relaxed: a hint.
        inner.depot.fewest.load(Ordering::Relaxed).saturating_sub(KEEP_READY)
    }

    /// Removes half of the surplus from the depot, so that it shrinks slowly.
    fn trim(&mut self, inner: &Inner) {
        let surplus = self.surplus(inner).div_ceil(2);
        for _ in 0..surplus {
            let Some(number) = inner.depot.pop_ready(&inner.store) else { break };
            let list = inner.store.batch(number).head.load(Ordering::Relaxed);
            inner.depot.empty.push(&inner.store, number);
            self.sort_by_slab(inner, list);
        }
        self.gather_slabs(inner);
        // Relaxed: a hint. The minimum is counted anew from here on.
        let ready = inner.depot.in_ready.load(Ordering::Relaxed);
        inner.depot.fewest.store(if ready > u64::MAX / 2 { 0 } else { ready }, Ordering::Relaxed);
    }

    /// Sorts free objects into the lists of their slabs.
    fn sort_by_slab(&mut self, inner: &Inner, list: *mut u8) {
        let mut next = list;
        while !next.is_null() {
            let object = next;
            // SAFETY: the keeper owns the list, whose objects are free.
            next = unsafe { object::next(object) };
            let number = inner.store.slab_of(object);
            let slab = &inner.store.slab(number).free;
            if slab.is_empty() {
                self.touched.push(&inner.store, number);
            }
            // SAFETY: as above.
            unsafe { slab.push(object) };
        }
    }

    /// Quarantines slabs that are complete, and makes the objects of the others ready again.
    fn gather_slabs(&mut self, inner: &Inner) {
        let per_slab = inner.store.layout.per_slab;
        let (mut touched, mut parts) = (std::mem::take(&mut self.touched), Slabs::default());
        // Objects of incomplete slabs are made ready in whole batches; the remainder stays with its slabs.
        let (mut cookie, mut left) = (None, 0);
        while let Some(number) = touched.pop(&inner.store) {
            let slab = inner.store.slab(number);
            if slab.free.len() == per_slab {
                let cookie = *cookie.get_or_insert_with(|| inner.domain.cookie().number());
                slab.free.take();
                slab.cookie.store(cookie, Ordering::Relaxed);
                inner.depot.quarantined.push(&SlabLinks(&inner.store), number);
            } else {
                left += slab.free.len();
                parts.push(&inner.store, number);
            }
        }
        let batch = object::List::default();
        while let Some(number) = parts.pop(&inner.store) {
            let slab = inner.store.slab(number);
            while left + batch.len() >= per_slab
                && let Some(object) = slab.free.pop()
            {
                left -= 1;
                // SAFETY: a free object that the keeper owns.
                unsafe { batch.push(object) };
                if batch.len() == per_slab {
                    let number = inner.depot.pop_empty(&inner.store);
                    inner.store.batch(number).head.store(batch.take().0, Ordering::Relaxed);
                    inner.depot.push_ready(&inner.store, number);
                }
            }
            if !slab.free.is_empty() {
                self.touched.push(&inner.store, number);
            }
        }
        self.sort_by_slab(inner, batch.take().0);
    }

    /// Returns the pages of quarantined slabs to the system, once no reader of either flavour can access them.
    fn return_quarantined(&mut self, inner: &Inner) {
        // While long readers block them, do not take the slabs out of quarantine at each poll: nobody can reuse them
        // meanwhile.
        if self.quarantine_blocked.is_some_and(|since| since.elapsed() < TRIM_INTERVAL) {
            return;
        }
        let Some(first) = inner.depot.quarantined.take() else { return };
        raw::scan(&inner.domain);
        self.quarantine_blocked = None;
        let (mut next, mut free) = (Some(first), Vec::new());
        while let Some(number) = next {
            let slab = inner.store.slab(number);
            next = slab.link.load(Ordering::Relaxed).checked_sub(1);
            let cookie = Cookie::from_number(slab.cookie.load(Ordering::Relaxed));
            if !inner.domain.passed(cookie, Grace::Both) {
                // Reusable until then.
                self.quarantine_blocked = Some(Instant::now());
                inner.depot.quarantined.push(&SlabLinks(&inner.store), number);
            } else if free.try_reserve(1).is_ok() {
                free.push(number);
            } else {
                self.return_run(inner, &[number]);
            }
        }
        free.sort_unstable();
        // One system call for adjacent slabs.
        for run in free.chunk_by(|before, after| before + 1 == *after) {
            self.return_run(inner, run);
        }
    }

    /// Returns adjacent slabs to the system.
    fn return_run(&mut self, inner: &Inner, run: &[u32]) {
        let bytes = run.len() * inner.store.layout.slab_bytes;
        // SAFETY: whole slabs, which are whole pages; the keeper has removed their objects, all free, from every
        // list.
        let given = unsafe { inner.store.region.return_to_system(inner.store.slab_at(run[0]), bytes) };
        for &number in run {
            if given {
                inner.counts.slab_returned();
                inner.charge.shrink(inner.store.layout.per_slab_bytes());
                inner.depot.returned.push(&SlabLinks(&inner.store), number);
            } else {
                inner.depot.quarantined.push(&SlabLinks(&inner.store), number);
            }
        }
    }
}

impl Drop for Inner {
    /// Frees the objects that wait. Objects still in use leak if they came from the system's allocator.
    fn drop(&mut self) {
        if self.policy != Policy::None {
            return; // all of it is the region's
        }
        let mut reclaim =
            std::mem::take(&mut *self.reclaim.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        reclaim.take_over(self);
        for number in 0..self.store.layout.cpus {
            let cpu = self.store.cpu(number);
            reclaim.collect(self, cpu, false);
        }
        reclaim.take_over(self); // what `collect` sealed
        while let Some(number) = reclaim.waiting.pop(&self.store) {
            self.free_to_system(self.store.batch(number).head.load(Ordering::Relaxed));
        }
        self.free_to_system(reclaim.partial.take().0);
    }
}

/// Whether the keeper should collect from this CPU.
fn has_anything(cpu: &Cpu) -> bool {
    // Relaxed: a hint; the keeper checks again behind the gate.
    !cpu.filling.is_empty() || cpu.queue.len() > 0 || !cpu.shared_freed.load(Ordering::Relaxed).is_null()
}

fn has_shared_ready(cpu: &Cpu) -> bool {
    // Relaxed: as above.
    !cpu.shared_ready.load(Ordering::Relaxed).is_null()
}

#[cfg(all(test, loom))]
mod models;
