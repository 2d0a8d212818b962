//! Models of the end of a cache with objects in every state: no memory is freed while a reader of either flavour may
//! access it, and all of it is freed, once.

use std::ptr::NonNull;
use std::sync::Mutex;

use super::*;
use crate::model::domain::Domain;
use crate::model::{Model, memory};
use crate::sync::{Arc, AtomicPtr};
use crate::{Cache, CacheOptions};

const RACE: &str = "Causality violation";

/// Four objects; readers find the first. The owner has CPU 0, a reader CPU 1.
struct World {
    domain: Domain,
    cache: Mutex<Option<Cache>>,
    objects: Vec<*mut u8>,
    linked: AtomicPtr<u8>,
}

// SAFETY: objects may move between threads.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    fn new(policy: Policy) -> Self {
        memory::begin();
        let domain = Domain::new(2);
        let cache = Cache::new(&domain, &CacheOptions::new(8, 4).policy(policy)).unwrap();
        // SAFETY: this is the only thread.
        let objects: Vec<_> = (0..4).map(|_| unsafe { cache.alloc(0) }.unwrap().as_ptr()).collect();
        let linked = AtomicPtr::new(objects[0]);
        Self { domain, cache: Mutex::new(Some(cache)), objects, linked }
    }

    /// The keeper's first turn collects everything.
    fn under_pressure(self) -> Self {
        if let Some(cache) = &*self.cache.lock().unwrap() {
            cache.inner.depot.under_pressure.store(1, Ordering::Relaxed);
        }
        self
    }

    /// Unlinks and frees all: the first two make a batch, one waits for more, and one is freed on the slow path.
    fn free(&self) -> Cache {
        let cache = self.cache.lock().unwrap().take().unwrap();
        self.unlink_and_free(&cache, 3);
        cache.inner.store.cpu(0).free_slow(self.objects[3]);
        cache
    }

    fn unlink_and_free(&self, cache: &Cache, count: usize) {
        self.linked.store(ptr::null_mut(), Ordering::Relaxed);
        for object in &self.objects[..count] {
            // SAFETY: freed once, by the thread that owns the CPU.
            unsafe { cache.free(0, NonNull::new(*object).unwrap()) };
        }
    }

    fn read(&self, grace: Grace) {
        self.domain.enter(1, grace);
        let object = self.linked.load(Ordering::Acquire);
        if !object.is_null() {
            memory::look_at(object);
        }
        self.domain.leave(1, grace);
    }

    /// All threads are done: no reader is left, so a few turns are enough.
    fn end(self) {
        (0..4).for_each(|_| self.domain.turn());
        assert_eq!(memory::left(&self.objects), 0, "lost");
    }
}

const POLICIES: [fn() -> World; 3] =
    [|| World::new(Policy::None), || World::new(Policy::ReuseAfterGp), || World::new(Policy::FreeAfterGp)];

fn turns(world: &World) {
    world.domain.turn();
}

fn reads(world: &World) {
    world.read(Grace::Normal);
}

fn sleeps(world: &World) {
    world.read(Grace::Sleepable);
}

/// A wrong way to end a cache.
fn ends(end: fn(&World), reader: fn(&World)) -> Model<World> {
    Model { begin: POLICIES[0], parts: vec![end, reader, turns], end: World::end }
}

fn holds(begin: fn() -> World) {
    for reader in [reads, sleeps] {
        Model { begin, parts: vec![|world| drop(world.free()), reader, turns], end: World::end }.explore();
    }
}

#[test]
fn loom_waiting_objects_of_an_ended_cache_outlive_readers() {
    holds(POLICIES[0]);
}

#[test]
fn loom_reused_memory_is_returned_after_readers_of_both_flavours() {
    holds(POLICIES[1]);
}

#[test]
fn loom_memory_is_returned_once() {
    holds(POLICIES[2]);
}

#[test]
fn loom_a_surplus_slab_is_returned_after_sleepable_readers() {
    // The first two are a slab.
    let owner = |world: &World| {
        let cache = world.cache.lock().unwrap().take().unwrap();
        world.unlink_and_free(&cache, 2);
        *world.cache.lock().unwrap() = Some(cache);
    };
    let end = |world: World| {
        let cache = world.cache.lock().unwrap().take();
        drop(cache);
        world.end();
    };
    Model {
        begin: || World::new(Policy::Immediate).under_pressure(),
        parts: vec![owner, sleeps, turns],
        end,
    }
    .explore();
}

/// Ends a cache without `Drop for Cache`: only what is called after a grace period.
fn end_by(cache: Cache, grace: Grace, first: fn(&Inner)) {
    let inner = Arc::clone(&cache.inner);
    inner.domain.clone().call(grace, move || {
        first(&inner);
        drop(inner);
    });
    // SAFETY: the model finds out.
    unsafe { cache.close() };
}

#[test]
fn loom_rejects_waiting_for_normal_readers_only() {
    ends(|world| end_by(world.free(), Grace::Normal, |_| ()), sleeps).must_fail(RACE);
}

#[test]
fn loom_rejects_waiting_for_sleepable_readers_only() {
    ends(|world| end_by(world.free(), Grace::Sleepable, |_| ()), reads).must_fail(RACE);
}

#[test]
fn loom_rejects_waiting_for_no_reader() {
    // SAFETY: the model finds out.
    ends(|world| unsafe { world.free().close() }, reads).must_fail(RACE);
}

#[test]
fn loom_rejects_freeing_handed_over_batches_at_once() {
    let wrong = |world: &World| {
        let cache = world.free();
        let mut reclaim = ReclaimState::default();
        reclaim.take_over(&cache.inner);
        while let Some(batch) = reclaim.waiting.pop(&cache.inner.store) {
            cache.inner.free_to_system(cache.inner.store.batch(batch).head.load(Ordering::Relaxed));
        }
    };
    ends(wrong, reads).must_fail(RACE);
}

#[test]
fn loom_rejects_a_batch_cookie_taken_before_the_unlinking() {
    let wrong = |world: &World| {
        let cookie = world.domain.cookie();
        let cache = world.free();
        // Unless the keeper already has it.
        if let Some(batch) = cache.inner.depot.handed_over.pop(&cache.inner.store) {
            cache.inner.store.batch(batch).cookie.store(cookie.number(), Ordering::Relaxed);
            cache.inner.depot.handed_over.push(&cache.inner.store, batch);
        }
        *world.cache.lock().unwrap() = Some(cache);
    };
    let end = |world: World| {
        let cache = world.cache.lock().unwrap().take();
        drop(cache);
        world.end();
    };
    Model { begin: POLICIES[0], parts: vec![wrong, sleeps, turns], end }.must_fail(RACE);
}

#[test]
fn loom_rejects_forgetting_handed_over_batches() {
    let end = |world: &World| {
        let forget = |inner: &Inner| {
            inner.depot.handed_over.take();
        };
        end_by(world.free(), Grace::Both, forget);
    };
    ends(end, reads).must_fail("lost");
}

#[test]
fn loom_rejects_forgetting_the_shared_freed_list() {
    let end = |world: &World| {
        let forget =
            |inner: &Inner| inner.store.cpu(0).shared_freed.store(ptr::null_mut(), Ordering::Relaxed);
        end_by(world.free(), Grace::Both, forget);
    };
    ends(end, reads).must_fail("lost");
}
