//! Without memory, creating a cache or allocating an object fails; nothing is lost, and everything works afterwards.
//!
//! The allocator of this test refuses one allocation of the test's thread or the keeper: the first, the second, and
//! so on until there are no more to refuse.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use skep_mem::{Cache, CacheOptions, Error, Policy};
use skep_rcu::Domain;
use skep_testkit::Refusal;

struct Refusing;

static REFUSAL: Refusal = Refusal::new();
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: requests that are not refused go to the system's allocator; an allocator refuses with null.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if REFUSAL.is_due() {
            return ptr::null_mut();
        }
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if REFUSAL.is_due() {
            return ptr::null_mut();
        }
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

const OBJECTS: usize = 2000;

/// Allocates and frees all objects; `objects` has room for them. Returns how many allocations failed.
fn work(cache: &Cache, objects: &mut Vec<NonNull<u8>>) -> usize {
    let mut refused = 0;
    let reader = cache.domain().enter().unwrap();
    for _ in 0..OBJECTS {
        // SAFETY: this thread's slot, inside a section.
        let object = unsafe { cache.alloc(reader.number()) };
        match object {
            Ok(object) => objects.push(object),
            Err(Error::OutOfMemory { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    for object in objects.drain(..) {
        // SAFETY: as above; no other thread knows the objects, and each is freed once.
        unsafe { cache.free(reader.number(), object) };
    }
    refused
}

/// Waits until no object waits, for which the keeper has work to do. Allocates nothing.
fn rest(cache: &Cache) {
    let begin = Instant::now();
    // Not only the objects: finally their memory is returned too.
    let mut last = usize::MAX;
    loop {
        let stats = cache.stats();
        if stats.in_flight == 0 && stats.bytes == last {
            return;
        }
        last = stats.bytes;
        assert!(begin.elapsed() < Duration::from_secs(30), "something waits for ever");
        std::thread::sleep(Duration::from_millis(150));
    }
}

#[test]
fn any_allocation_may_fail_and_caches_work_afterwards() {
    let domain = Domain::new(4).unwrap();
    // A thread's first entry needs memory as well.
    REFUSAL.arm(1);
    assert_eq!(domain.enter().err(), Some(skep_rcu::Error::NoMemory));
    assert!(!REFUSAL.disarm());
    drop(domain.enter().unwrap());
    let mut objects = Vec::with_capacity(OBJECTS);
    for policy in Policy::ALL {
        let options = CacheOptions::new(100, 3 * OBJECTS).policy(policy);
        drop(Cache::new(&domain, &options).unwrap());
        domain.barrier().unwrap();
        let before = LIVE.load(Ordering::Relaxed);
        let (mut n, mut refused) = (0, 0);
        loop {
            n += 1 + n / 2;
            let cache = Cache::new(&domain, &options).unwrap();
            // From here on: allocation, freeing, and all work of the keeper.
            REFUSAL.arm(n);
            refused += work(&cache, &mut objects);
            rest(&cache);
            let none_left = REFUSAL.disarm();
            assert_eq!(work(&cache, &mut objects), 0, "{policy}, after allocation {n} was refused");
            if none_left {
                break;
            }
        }
        // Only policies that call the allocator for each object can be refused one.
        assert_eq!(refused > 0, policy == Policy::None, "{policy}: {refused}");
        lost_nothing(&domain, before, policy);
    }
}

fn lost_nothing(domain: &Domain, before: isize, policy: Policy) {
    domain.barrier().unwrap();
    let begin = Instant::now();
    while LIVE.load(Ordering::Relaxed) > before {
        let lost = LIVE.load(Ordering::Relaxed) - before;
        assert!(begin.elapsed() < Duration::from_secs(30), "{policy}: {lost} bytes are lost");
        std::thread::sleep(Duration::from_millis(10));
    }
}
