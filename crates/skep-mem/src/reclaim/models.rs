//! Models of the end of a cache, whatever waits where: nothing goes while a reader of either flavour may look at it, all of it
//! goes in the end, and once.

use std::ptr::NonNull;
use std::sync::Mutex;

use super::*;
use crate::model::domain::Domain;
use crate::model::{Model, memory};
use crate::sync::{Arc, AtomicPtr};
use crate::{Cache, CacheOptions};

const RACE: &str = "Causality violation";

/// Four objects, of which readers find the first; the owner's CPU is the first, a reader's the second.
struct World {
    domain: Domain,
    cache: Mutex<Option<Cache>>,
    objects: Vec<*mut u8>,
    linked: AtomicPtr<u8>,
}

// SAFETY: objects go from thread to thread.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    fn new(policy: Policy) -> Self {
        memory::begin();
        let domain = Domain::new(2);
        let cache = Cache::new(&domain, &CacheOptions::new(8, 4).policy(policy)).unwrap();
        // SAFETY: the only thread.
        let objects: Vec<_> = (0..4).map(|_| unsafe { cache.alloc(0) }.unwrap().as_ptr()).collect();
        let linked = AtomicPtr::new(objects[0]);
        Self { domain, cache: Mutex::new(Some(cache)), objects, linked }
    }

    /// The keeper's first turn collects all there is.
    fn under_pressure(self) -> Self {
        if let Some(cache) = &*self.cache.lock().unwrap() {
            cache.inner.depot.under_pressure.store(1, Ordering::Relaxed);
        }
        self
    }

    /// Unlinks and frees all: the first two make a batch, one waits for more, and one was freed aside.
    fn free(&self) -> Cache {
        let cache = self.cache.lock().unwrap().take().unwrap();
        self.unlink_and_free(&cache, 3);
        cache.inner.store.cpu(0).free_slow(self.objects[3]);
        cache
    }

    fn unlink_and_free(&self, cache: &Cache, count: usize) {
        self.linked.store(ptr::null_mut(), Ordering::Relaxed);
        for object in &self.objects[..count] {
            // SAFETY: freed once, by the thread that has the CPU.
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

    /// When all threads are done: nobody reads, so a few turns are enough.
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

/// An end as it should not be.
fn ends(end: fn(&World), reader: fn(&World)) -> Model<World> {
    Model { begin: POLICIES[0], parts: vec![end, reader, turns], end: World::end }
}

fn holds(begin: fn() -> World) {
    for reader in [reads, sleeps] {
        Model { begin, parts: vec![|world| drop(world.free()), reader, turns], end: World::end }.explore();
    }
}

#[test]
fn loom_what_waits_for_readers_when_a_cache_ends_goes_to_the_allocator_after_them() {
    holds(POLICIES[0]);
}

#[test]
fn loom_memory_that_is_reused_goes_after_the_readers_of_both_flavours() {
    holds(POLICIES[1]);
}

#[test]
fn loom_memory_that_goes_back_by_itself_goes_once() {
    holds(POLICIES[2]);
}

#[test]
fn loom_a_slab_that_nobody_needs_goes_to_the_system_after_sleepable_readers() {
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

/// A cache that ends without what `drop` does, but for what is called after a grace period.
fn end_by(cache: Cache, grace: Grace, first: fn(&Inner)) {
    let inner = Arc::clone(&cache.inner);
    inner.domain.clone().call(grace, move || {
        first(&inner);
        drop(inner);
    });
    // SAFETY: that is for the model to find out.
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
fn loom_rejects_waiting_for_nobody() {
    // SAFETY: that is for the model to find out.
    ends(|world| unsafe { world.free().close() }, reads).must_fail(RACE);
}

#[test]
fn loom_rejects_draining_what_was_handed_over_at_once() {
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
fn loom_rejects_a_batch_with_a_cookie_from_before_the_unlinking() {
    let wrong = |world: &World| {
        let cookie = world.domain.cookie();
        let cache = world.free();
        // Unless the keeper has it already.
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
fn loom_rejects_forgetting_what_was_handed_over() {
    let end = |world: &World| {
        let forget = |inner: &Inner| {
            inner.depot.handed_over.take();
        };
        end_by(world.free(), Grace::Both, forget);
    };
    ends(end, reads).must_fail("lost");
}

#[test]
fn loom_rejects_forgetting_what_lies_aside() {
    let end = |world: &World| {
        let forget =
            |inner: &Inner| inner.store.cpu(0).shared_freed.store(ptr::null_mut(), Ordering::Relaxed);
        end_by(world.free(), Grace::Both, forget);
    };
    ends(end, reads).must_fail("lost");
}
