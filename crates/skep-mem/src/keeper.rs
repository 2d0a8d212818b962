//! What the domain's keeper does for a cache.
//!
//! ```text
//!   handed over ──┐
//!   idle CPUs ────┴─> waiting ──(grace period)──> ready        or, by policy, the system's allocator
//!                                                   | what was of no use for a while, and with free-after-gp all of it
//!                                                   v
//!                             sorted by slab ─> whole slabs rest ──(sleepable grace period)──> the system
//!                                     └─> the others' objects are ready again
//! ```
//!
//! It looks at CPUs that did nothing since the last time, so that what a thread left behind when it went idle comes home; those
//! that are at work look after themselves. When there is nothing to do any more it sleeps until a free wakes it.

use std::ptr;
use std::time::Duration;

use crate::Policy;
use crate::cache::Inner;
use crate::cpu::Cpu;
use crate::eras::{ActiveEras, cookie};
use crate::object;
use crate::store::{Batch, Queue, SlabLinks, Store};
use crate::sync::{BackgroundTask, Cookie, Grace, Instant, Ordering, fence, raw};
use crate::system;

/// How long batches that were handed over wait before the keeper looks at the readers again.
const LOOK: Duration = Duration::from_micros(200);
/// How often it visits CPUs.
const VISIT: Duration = Duration::from_millis(10);
/// How often it gives back what was of no use.
const TRIM: Duration = Duration::from_millis(100);
/// Batches that stay ready whatever happens.
const STAY: u64 = 8;

/// The keeper's own.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// What was handed over.
    pub(crate) waiting: Queue,
    /// What was collected, too little for a batch, and a cookie after the last of it, if nothing was added for a while.
    pub(crate) rest: object::List,
    rest_cookie: Option<Cookie>,
    /// Slabs of which the keeper has some objects.
    touched: Slabs,
    /// How many objects no reader holds any more that are still said to wait: until they are where they can be had.
    ripe: usize,
    visited: Option<Instant>,
    trimmed: Option<Instant>,
    /// How long until the next look at readers who hold up what was handed over: longer each time.
    look: Duration,
    /// Since when slabs rest because readers hold them up.
    resting: Option<Instant>,
}

/// A list of slabs, by the links that they have for stacks which they are not in.
#[derive(Debug, Default)]
struct Slabs {
    /// The number of the first, + 1.
    first: u32,
}

impl BackgroundTask for Inner {
    fn poll(&self) -> Option<Duration> {
        let Ok(mut keeping) = self.keeping.try_lock() else { return Some(VISIT) };
        // AcqRel: pairs with `Cache::press`.
        let pressed = self.depot.pressed.swap(0, Ordering::AcqRel) != 0;
        let now = Instant::now();
        let over = |since: Option<Instant>, time| pressed || since.is_none_or(|since| now - since >= time);

        keeping.take_over(self);
        let visit = over(keeping.visited, VISIT);
        let mut at_work = false;
        if visit {
            keeping.visited = Some(now);
            at_work = keeping.visit(self, pressed);
        }
        keeping.release(self, pressed);
        keeping.bring(self);
        if over(keeping.trimmed, TRIM) {
            keeping.trimmed = Some(now);
            keeping.trim(self);
        }
        keeping.give_back(self);
        self.counts.ripened(std::mem::take(&mut keeping.ripe));
        keeping.next(self, at_work || !visit)
    }
}

impl Keeping {
    /// When there is something to do again. The keeper sleeps when there is not.
    fn next(&self, inner: &Inner, at_work: bool) -> Option<Duration> {
        if self.waiting.len() > 0 {
            return Some(self.look);
        }
        let idle = !at_work && inner.depot.resting.is_empty();
        if !idle || inner.counts.is_waiting() {
            return Some(VISIT);
        }
        // Relaxed: a hint.
        if inner.depot.in_ready.load(Ordering::Relaxed) > STAY {
            return Some(TRIM);
        }
        // SeqCst fence: pairs with the one in `Cache::wake`. Who frees after this wakes the keeper; who did before is seen below.
        inner.depot.awake.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let left = inner.counts.is_waiting()
            || !inner.depot.handed.is_empty()
            || inner.store.cpus().any(has_anything);
        if left {
            inner.depot.awake.store(1, Ordering::Relaxed);
            return Some(VISIT);
        }
        None
    }

    /// Takes what was handed over.
    fn take_over(&mut self, inner: &Inner) {
        let mut next = inner.depot.handed.take();
        while let Some(number) = next {
            next = inner.store.batch(number).link.load(Ordering::Relaxed).checked_sub(1);
            self.waiting.push(&inner.store, number);
        }
    }

    /// Collects from CPUs that did nothing since the last time, or from all. Says whether any did.
    pub(crate) fn visit(&mut self, inner: &Inner, all: bool) -> bool {
        let mut at_work = false;
        let mut asked = false;
        for cpu in inner.store.cpus() {
            let done = cpu.done();
            // Relaxed: the keeper's own.
            let idle = cpu.last_done.swap(done, Ordering::Relaxed) == done;
            at_work |= !idle;
            if (all && (done != 0 || has_anything(cpu) || has_aside(cpu))) || (idle && has_anything(cpu)) {
                cpu.gate.ask();
                asked = true;
            }
        }
        if !asked {
            return at_work;
        }
        let fenced = raw::heavy_fence(&inner.domain);
        for cpu in inner.store.cpus().filter(|cpu| cpu.gate.is_asked()) {
            if fenced && cpu.gate.is_idle() {
                self.collect(inner, cpu, all);
            }
            cpu.gate.hand_back();
        }
        at_work
    }

    /// Takes what a CPU has that waits; where `all`, also what is ready there. The gate is ours.
    fn collect(&mut self, inner: &Inner, cpu: &Cpu, all: bool) {
        inner.absorb(cpu);
        while let Some(batch) = cpu.queue.pop(&inner.store) {
            self.waiting.push(&inner.store, batch);
        }
        cpu.next_look.store(0, Ordering::Relaxed);
        let (mut next, _) = cpu.filling.take();
        cpu.oldest.store(0, Ordering::Relaxed);
        while !next.is_null() {
            let object = next;
            // SAFETY: a list of free objects that is ours.
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
        // Acquire: pairs with the Release in `push_aside`.
        let aside = cpu.aside_ready.swap(ptr::null_mut(), Ordering::Acquire);
        for list in [full, ready, aside] {
            self.sort(inner, list);
        }
        while let Some(object) = cpu.take_fresh(inner.store.shape.stride) {
            // SAFETY: an object of the cache, and ours.
            unsafe { object::link(object, ptr::null_mut()) };
            self.sort(inner, object);
        }
        self.gather(inner);
    }

    /// One more object that was freed, and waits.
    ///
    /// # Safety
    ///
    /// The object is free, and the cache's.
    unsafe fn add(&mut self, inner: &Inner, object: *mut u8) {
        // SAFETY: by contract.
        unsafe { self.rest.push(object) };
        inner.counts.wait(1);
        self.rest_cookie = None;
        if self.rest.len() == inner.store.shape.per_slab {
            self.seal(inner);
        }
    }

    fn seal(&mut self, inner: &Inner) {
        let number = inner.pop_empty();
        let (list, _) = self.rest.take();
        let batch = inner.store.batch(number);
        batch.head.store(list, Ordering::Relaxed);
        // What was collected from many is taken for old.
        batch.oldest.store(0, Ordering::Relaxed);
        batch.cookie.store(inner.domain.cookie().number(), Ordering::Relaxed);
        self.waiting.push(&inner.store, number);
    }

    /// Lets go what no reader holds any more.
    fn release(&mut self, inner: &Inner, pressed: bool) {
        if self.waiting.len() == 0 && self.rest.is_empty() {
            return;
        }
        let both = matches!(inner.policy, Policy::None | Policy::FreeAfterGp);
        if !self.rest.is_empty() {
            self.rest_cookie.get_or_insert_with(|| inner.domain.cookie());
        }
        raw::scan(&inner.domain);
        self.release_rest(inner, if both { Grace::Both } else { Grace::Normal });
        // After the look of `hurry`, whose fence serves here as well.
        let eras = (!both).then(|| ActiveEras::of(&inner.domain));
        let frees = |batch: &Batch| match &eras {
            Some(eras) => eras.frees(batch),
            None => inner.domain.passed(cookie(batch), Grace::Both),
        };
        let free = Queue::default();
        self.waiting.take_if(&inner.store, frees, |batch| free.push(&inner.store, batch));
        self.look = if free.len() > 0 { LOOK } else { VISIT.min(self.look.max(LOOK / 2) * 2) };
        while let Some(number) = free.pop(&inner.store) {
            let list = inner.store.batch(number).head.load(Ordering::Relaxed);
            self.ripe += inner.store.shape.per_slab;
            match inner.policy {
                Policy::None => {
                    inner.depot.empty.push(&inner.store, number);
                    inner.free_to_system(list);
                }
                Policy::FreeAfterGp => {
                    inner.depot.empty.push(&inner.store, number);
                    self.sort(inner, list);
                }
                _ => inner.push_ready(number),
            }
        }
        if inner.policy == Policy::FreeAfterGp || pressed {
            self.gather(inner);
        }
    }

    /// Lets go what is too little for a batch, once nothing comes any more.
    fn release_rest(&mut self, inner: &Inner, grace: Grace) {
        if !self.rest_cookie.is_some_and(|cookie| inner.domain.passed(cookie, grace)) {
            return;
        }
        let (list, len) = self.rest.take();
        self.rest_cookie = None;
        self.ripe += len;
        if inner.policy == Policy::None {
            inner.free_to_system(list);
        } else {
            self.sort(inner, list);
            self.gather(inner);
        }
    }

    /// Brings what is too little for a batch to a CPU that found no memory, as soon as there is any.
    pub(crate) fn bring(&mut self, inner: &Inner) {
        if self.touched.first == 0 {
            return;
        }
        // Relaxed: whoever asked has said so before it made us look; which one it is, is all the same.
        let Some(cpu) = inner.store.cpus().find(|cpu| cpu.wants.load(Ordering::Relaxed) != 0) else { return };
        while let Some(slab) = self.touched.pop(&inner.store) {
            cpu.lay_aside(inner.store.slab(slab).free.take().0);
        }
        // The others ask again.
        inner.store.cpus().for_each(|cpu| cpu.wants.store(0, Ordering::Relaxed));
    }

    /// How many batches were ready for a while, and nobody needed them.
    fn surplus(&self, inner: &Inner) -> u64 {
        // Relaxed: a hint.
        inner.depot.fewest.load(Ordering::Relaxed).saturating_sub(STAY)
    }

    /// Takes out of the depot what was of no use since the last time: half of it, so that it goes slowly.
    fn trim(&mut self, inner: &Inner) {
        let surplus = self.surplus(inner).div_ceil(2);
        for _ in 0..surplus {
            let Some(number) = inner.pop_ready() else { break };
            let list = inner.store.batch(number).head.load(Ordering::Relaxed);
            inner.depot.empty.push(&inner.store, number);
            self.sort(inner, list);
        }
        self.gather(inner);
        // Relaxed: a hint. From here on the fewest are counted anew.
        let ready = inner.depot.in_ready.load(Ordering::Relaxed);
        inner.depot.fewest.store(if ready > u64::MAX / 2 { 0 } else { ready }, Ordering::Relaxed);
    }

    /// Puts free objects to their slabs.
    fn sort(&mut self, inner: &Inner, list: *mut u8) {
        let mut next = list;
        while !next.is_null() {
            let object = next;
            // SAFETY: a list of free objects that is ours.
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

    /// Lets slabs rest of which all objects are here, and makes the other objects ready again.
    fn gather(&mut self, inner: &Inner) {
        let per_slab = inner.store.shape.per_slab;
        let (mut touched, mut parts) = (std::mem::take(&mut self.touched), Slabs::default());
        // Of those of which only a part is here, as many as make batches; what is left stays with its slabs.
        let (mut cookie, mut left) = (None, 0);
        while let Some(number) = touched.pop(&inner.store) {
            let slab = inner.store.slab(number);
            if slab.free.len() == per_slab {
                let cookie = *cookie.get_or_insert_with(|| inner.domain.cookie().number());
                slab.free.take();
                slab.cookie.store(cookie, Ordering::Relaxed);
                inner.depot.resting.push(&SlabLinks(&inner.store), number);
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
                // SAFETY: a free object that is ours.
                unsafe { batch.push(object) };
                if batch.len() == per_slab {
                    let number = inner.pop_empty();
                    inner.store.batch(number).head.store(batch.take().0, Ordering::Relaxed);
                    inner.push_ready(number);
                }
            }
            if !slab.free.is_empty() {
                self.touched.push(&inner.store, number);
            }
        }
        self.sort(inner, batch.take().0);
    }

    /// Gives the pages of slabs that rest to the system, once no reader of either flavour can look at them.
    fn give_back(&mut self, inner: &Inner) {
        // Readers who stay for long: not to be asked each time, for what rests cannot be used meanwhile.
        if self.resting.is_some_and(|since| since.elapsed() < TRIM) {
            return;
        }
        let Some(first) = inner.depot.resting.take() else { return };
        raw::scan(&inner.domain);
        self.resting = None;
        let (mut next, mut free) = (Some(first), Vec::new());
        while let Some(number) = next {
            let slab = inner.store.slab(number);
            next = slab.link.load(Ordering::Relaxed).checked_sub(1);
            let cookie = Cookie::from_number(slab.cookie.load(Ordering::Relaxed));
            if !inner.domain.passed(cookie, Grace::Both) {
                // To be used again until then.
                self.resting = Some(Instant::now());
                inner.depot.resting.push(&SlabLinks(&inner.store), number);
            } else if free.try_reserve(1).is_ok() {
                free.push(number);
            } else {
                self.give_back_run(inner, &[number]);
            }
        }
        free.sort_unstable();
        // Neighbours go together.
        for run in free.chunk_by(|before, after| before + 1 == *after) {
            self.give_back_run(inner, run);
        }
    }

    /// Gives back slabs that follow each other.
    fn give_back_run(&mut self, inner: &Inner, run: &[u32]) {
        let bytes = run.len() * inner.store.shape.slab_bytes;
        // SAFETY: whole slabs, which are whole pages, in which all objects are free and none is in a list.
        let given = unsafe { inner.store.region.give_back(inner.store.slab_at(run[0]), bytes) };
        for &number in run {
            if given {
                inner.counts.slab_returned();
                inner.depot.returned.push(&SlabLinks(&inner.store), number);
            } else {
                inner.depot.resting.push(&SlabLinks(&inner.store), number);
            }
        }
    }
}

impl Slabs {
    fn push(&mut self, store: &Store, number: u32) {
        // Relaxed, both: the keeper's.
        store.slab(number).link.store(self.first, Ordering::Relaxed);
        self.first = number + 1;
    }

    fn pop(&mut self, store: &Store) -> Option<u32> {
        let number = self.first.checked_sub(1)?;
        self.first = store.slab(number).link.load(Ordering::Relaxed);
        Some(number)
    }
}

impl Inner {
    /// Gives a list of objects back to the allocator.
    pub(crate) fn free_to_system(&self, list: *mut u8) {
        let mut next = list;
        while !next.is_null() {
            let object = next;
            // SAFETY: a list of free objects that is ours, allocated with this shape; nobody can look at them.
            unsafe {
                next = object::next(object);
                system::free(&self.store.shape, object);
            }
            self.counts.system_given();
        }
    }
}

impl Drop for Inner {
    /// What waits is freed, not reused. Objects in use are lost where they came from the allocator.
    fn drop(&mut self) {
        if self.policy != Policy::None {
            return; // all of it is the region's
        }
        let mut keeping =
            std::mem::take(&mut *self.keeping.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        keeping.take_over(self);
        for number in 0..self.store.shape.cpus {
            let cpu = self.store.cpu(number);
            keeping.collect(self, cpu, false);
        }
        keeping.take_over(self); // what `collect` sealed
        while let Some(number) = keeping.waiting.pop(&self.store) {
            self.free_to_system(self.store.batch(number).head.load(Ordering::Relaxed));
        }
        self.free_to_system(keeping.rest.take().0);
    }
}

/// Whether the keeper should collect there.
fn has_anything(cpu: &Cpu) -> bool {
    // Relaxed: it looks again behind the gate.
    !cpu.filling.is_empty() || cpu.queue.len() > 0 || !cpu.aside_freed.load(Ordering::Relaxed).is_null()
}

fn has_aside(cpu: &Cpu) -> bool {
    // Relaxed: as above.
    !cpu.aside_ready.load(Ordering::Relaxed).is_null()
}

#[cfg(all(test, loom))]
mod models;
