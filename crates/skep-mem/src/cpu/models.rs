//! Models of frees and allocations that interrupt each other on one virtual CPU, and of the keeper at the same time:
//! no object is lost or in two places.
//!
//! A signal handler that finds the gate closed is a thread of its own here, which always takes the slow path. In
//! reality its thread stands still meanwhile; the orders of two threads include all of those.

use std::ptr::NonNull;
use std::sync::Mutex;

use super::*;
use crate::inner::Inner;
use crate::model::census::{census, is_object};
use crate::model::domain::Domain;
use crate::model::{Model, memory};
use crate::sync::fence;
use crate::{Cache, CacheOptions, Policy};

/// A cache with one virtual CPU, whose objects are allocated and freed two at a time, and some allocated objects.
struct World {
    cache: Cache,
    domain: Domain,
    /// `held`: allocated before the model begins, to be freed; `taken`: allocated since. loom does not see these
    /// locks, which order nothing, and which must not be held over an operation that loom sees.
    held: Mutex<Vec<*mut u8>>,
    taken: Mutex<Vec<*mut u8>>,
}

// SAFETY: objects may move between threads.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    fn new(policy: Policy, objects: usize) -> Self {
        memory::begin();
        let domain = Domain::new(1);
        let cache = Cache::new(&domain, &CacheOptions::new(8, 4).policy(policy)).unwrap();
        let world = Self { cache, domain, held: Mutex::default(), taken: Mutex::default() };
        (0..objects).for_each(|_| world.alloc());
        world.held.lock().unwrap().append(&mut world.taken.lock().unwrap());
        world
    }

    /// Two objects are in the shared ready list; nothing else is ready except new memory.
    fn with_shared(self) -> Self {
        for _ in 0..2 {
            let object = self.one();
            // SAFETY: no other thread has it.
            unsafe { object::link(object, ptr::null_mut()) };
            self.cpu().push_shared(object);
        }
        self
    }

    /// When all threads are done.
    fn end(self) {
        let held = [&self.held, &self.taken].map(|held| held.lock().unwrap().clone()).concat();
        census(&self.cache.inner, &held);
        // SAFETY: there are no readers.
        unsafe { self.cache.close() };
    }

    fn inner(&self) -> &Inner {
        &self.cache.inner
    }

    fn cpu(&self) -> &Cpu {
        self.inner().store.cpu(0)
    }

    fn one(&self) -> *mut u8 {
        self.held.lock().unwrap().pop().unwrap()
    }

    /// Only one part does this, as below.
    fn alloc(&self) {
        // SAFETY: one thread at a time has the CPU.
        let object = unsafe { self.cache.alloc(0) }.unwrap();
        self.taken.lock().unwrap().push(object.as_ptr());
    }

    fn free(&self) {
        // SAFETY: each object is freed once, by the thread that has the CPU.
        unsafe { self.cache.free(0, NonNull::new(self.one()).unwrap()) };
    }
}

/// The handler frees while the gate is closed.
fn frees_slow(world: &World) {
    world.cpu().free_slow(world.one());
    world.cpu().free_slow(world.one());
}

/// The handler allocates.
fn takes_slow(world: &World) {
    let object = world.cache.alloc_slow(world.cpu()).unwrap();
    world.taken.lock().unwrap().push(object.as_ptr());
}

/// The owner frees: the second free seals a batch, and absorbs what the handler freed.
fn frees(world: &World) {
    world.free();
    world.free();
}

fn takes(world: &World) {
    world.alloc();
}

/// The keeper collects from a CPU that was idle since its last visit.
fn collects(world: &World) {
    world.domain.turn();
}

/// The keeper collects everything, and feeds a CPU that found nothing.
fn collects_all(world: &World) {
    let mut reclaim = world.inner().reclaim.try_lock().unwrap();
    reclaim.visit(world.inner(), true);
    world.cpu().starved.store(1, Ordering::Relaxed);
    reclaim.feed_starved(world.inner());
}

/// Four objects are allocated.
const POLICIES: [fn() -> World; 3] = [
    || World::new(Policy::Immediate, 4),
    || World::new(Policy::ReuseAfterGp, 4),
    || World::new(Policy::FreeAfterGp, 4),
];

/// Two more are in the shared ready list.
const READY: [fn() -> World; 3] = [
    || World::new(Policy::Immediate, 6).with_shared(),
    || World::new(Policy::ReuseAfterGp, 6).with_shared(),
    || World::new(Policy::FreeAfterGp, 6).with_shared(),
];

fn holds(worlds: [fn() -> World; 3], parts: &[fn(&World)]) {
    for begin in worlds {
        Model { begin, parts: parts.to_vec(), end: World::end }.explore();
    }
}

#[test]
fn loom_a_free_that_interrupts_a_free_loses_nothing() {
    holds(POLICIES, &[frees_slow, frees]);
}

#[test]
fn loom_a_free_that_interrupts_an_allocation_loses_nothing() {
    holds(POLICIES, &[frees_slow, takes]);
}

#[test]
fn loom_an_allocation_that_interrupts_an_allocation_takes_another_object() {
    holds(READY, &[takes_slow, takes]);
}

#[test]
fn loom_nothing_is_lost_when_the_keeper_collects_meanwhile() {
    holds(POLICIES, &[frees_slow, frees, collects]);
}

#[test]
fn loom_nothing_is_lost_when_the_keeper_collects_everything() {
    let parts: Vec<fn(&World)> = vec![|world| world.cpu().free_slow(world.one()), frees, collects_all];
    Model { begin: || World::new(Policy::ReuseAfterGp, 3), parts, end: World::end }.explore();
}

#[test]
fn loom_nothing_is_allocated_twice_when_the_keeper_collects_everything() {
    let parts: Vec<fn(&World)> = vec![takes_slow, takes, collects_all];
    Model { begin: READY[1], parts, end: World::end }.explore();
}

#[test]
fn loom_a_handler_in_the_middle_of_the_gate_takes_the_slow_path() {
    let interrupted: fn(&World) = |world| {
        let handler = || {
            fence(Ordering::SeqCst);
            world.free();
            assert_eq!(world.cpu().slow_freed.load(Ordering::Relaxed), 1, "not aside");
        };
        if world.cpu().gate.enter(handler) {
            world.inner().absorb_shared(world.cpu());
            world.cpu().gate.leave();
        }
    };
    let parts = vec![interrupted, collects_all];
    Model { begin: || World::new(Policy::ReuseAfterGp, 2), parts, end: World::end }.explore();
}

/// The owner absorbs the shared freed list, against a handler that frees two.
fn taken_in(absorb: fn(&World)) -> Model<World> {
    Model { begin: POLICIES[1], parts: vec![frees_slow, absorb], end: World::end }
}

fn behind_the_gate(world: &World, what: fn(&World)) {
    assert!(world.inner().enter(world.cpu()), "nobody else is there");
    what(world);
    world.cpu().gate.leave();
}

/// Adds a list to the waiting objects; wrong models do other things with it.
fn put_all(world: &World, list: *mut u8) {
    let mut next = list;
    while !next.is_null() {
        assert!(is_object(world.inner(), next), "lost or doubled: a link leads to no object");
        let object = next;
        // SAFETY: an object of a list that this thread owns.
        unsafe {
            next = object::next(object);
            world.inner().put_filling(world.cpu(), object, 0);
        }
    }
}

#[test]
fn loom_the_shared_freed_list_is_absorbed_as_a_whole() {
    taken_in(|world| behind_the_gate(world, |world| world.inner().absorb_shared(world.cpu()))).explore();
}

#[test]
fn loom_rejects_loading_the_list_before_clearing_it() {
    let wrong = |world: &World| {
        let list = world.cpu().shared_freed.load(Ordering::Acquire);
        world.cpu().shared_freed.store(ptr::null_mut(), Ordering::Relaxed);
        put_all(world, list);
    };
    taken_in(wrong).must_fail("lost or doubled");
}

#[test]
fn loom_rejects_taking_one_object_and_dropping_the_rest() {
    let wrong = |world: &World| {
        let list = world.cpu().shared_freed.swap(ptr::null_mut(), Ordering::Acquire);
        if !list.is_null() {
            // SAFETY: the first object of a list that this thread owns.
            unsafe { world.inner().put_filling(world.cpu(), list, 0) };
        }
    };
    taken_in(wrong).must_fail("lost or doubled: an object is in []");
}

#[test]
fn loom_rejects_storing_the_rest_over_newer_objects() {
    let wrong = |world: &World| {
        let list = world.cpu().shared_freed.swap(ptr::null_mut(), Ordering::Acquire);
        if !list.is_null() {
            // SAFETY: the first object of a list that this thread owns.
            let rest = unsafe { object::next(list) };
            world.cpu().shared_freed.store(rest, Ordering::Release);
            // SAFETY: as above.
            unsafe { world.inner().put_filling(world.cpu(), list, 0) };
        }
    };
    taken_in(wrong).must_fail("lost or doubled: an object is in []");
}

#[test]
fn loom_rejects_taking_without_acquire() {
    let wrong = |world: &World| {
        let list = world.cpu().shared_freed.swap(ptr::null_mut(), Ordering::Relaxed);
        put_all(world, list);
    };
    taken_in(wrong).must_fail("lost or doubled");
}

/// One allocation from the shared ready list, against another handler, or the keeper, which takes all and gives a
/// part back.
fn taken_out(take: fn(&World)) -> Model<World> {
    let other = |world: &World| {
        let all = world.cpu().shared_ready.swap(ptr::null_mut(), Ordering::Acquire);
        if all.is_null() {
            return;
        }
        // SAFETY: this thread owns the list of free objects.
        let rest = unsafe { object::next(all) };
        // SAFETY: as above.
        unsafe { object::link(all, ptr::null_mut()) };
        world.cpu().push_shared(all);
        let mut next = rest;
        while !next.is_null() {
            world.taken.lock().unwrap().push(next);
            // SAFETY: as above.
            next = unsafe { object::next(next) };
        }
    };
    Model { begin: READY[1], parts: vec![take, other], end: World::end }
}

#[test]
fn loom_a_shared_ready_object_is_taken_once() {
    let right = |world: &World| {
        let object = world.cpu().pop_shared();
        world.taken.lock().unwrap().extend(object);
    };
    taken_out(right).explore();
}

#[test]
fn loom_rejects_storing_the_rest_over_what_the_keeper_brought() {
    let wrong = |world: &World| {
        let all = world.cpu().shared_ready.swap(ptr::null_mut(), Ordering::Acquire);
        if !all.is_null() {
            // SAFETY: this thread owns the list of free objects.
            let rest = unsafe { object::next(all) };
            world.cpu().shared_ready.store(rest, Ordering::Release);
            world.taken.lock().unwrap().push(all);
        }
    };
    taken_out(wrong).must_fail("lost or doubled");
}

#[test]
fn loom_rejects_popping_single_objects_without_tags() {
    let wrong = |world: &World| {
        let mut head = world.cpu().shared_ready.load(Ordering::Acquire);
        while !head.is_null() {
            // SAFETY: an object's header is always readable.
            let rest = unsafe { object::next(head) };
            match world.cpu().shared_ready.compare_exchange(head, rest, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return world.taken.lock().unwrap().push(head),
                Err(now) => head = now,
            }
        }
    };
    taken_out(wrong).must_fail("lost or doubled");
}
