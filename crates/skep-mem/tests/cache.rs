//! The promises of a cache, policy by policy.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use skep_mem::{Account, Cache, CacheOptions, Error, Policy};
use skep_rcu::{Domain, Grace, raw};

fn cache(domain: &Domain, policy: Policy, capacity: usize) -> Cache {
    Cache::new(domain, &CacheOptions::new(24, capacity).policy(policy)).unwrap()
}

/// Allocates in a section of its own.
fn alloc(cache: &Cache) -> Result<NonNull<u8>, Error> {
    let section = cache.domain().enter().unwrap();
    // SAFETY: this thread's slot, inside a section.
    unsafe { cache.alloc(section.number()) }
}

fn free(cache: &Cache, object: NonNull<u8>) {
    let section = cache.domain().enter().unwrap();
    // SAFETY: as above; tests free what they have, once.
    unsafe { cache.free(section.number(), object) };
}

/// Waits until a condition holds, for which the keeper may have to do something.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(30), "not in half a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn objects_in_use_are_different_and_aligned_and_counted() {
    for policy in Policy::ALL {
        let domain = Domain::new(4).unwrap();
        let cache = cache(&domain, policy, 1000);
        let objects: Vec<_> = (0..1000).map(|_| alloc(&cache).unwrap()).collect();
        let distinct: HashSet<_> = objects.iter().map(|object| object.as_ptr().addr()).collect();
        assert_eq!(distinct.len(), 1000, "{policy}");
        assert!(distinct.iter().all(|address| address % 8 == 0));
        for object in &objects {
            // SAFETY: 24 bytes that this thread owns.
            unsafe { object.as_ptr().write_bytes(0xaa, 24) };
        }
        assert_eq!(cache.stats().in_use, 1000, "{policy}");
        objects.into_iter().for_each(|object| free(&cache, object));
        assert_eq!(cache.stats().in_use, 0, "{policy}");
        until("nothing waits", || cache.stats().in_flight == 0);
    }
}

#[test]
fn a_freed_object_stays_unchanged_while_a_reader_is_inside() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.waits_for_readers()) {
        let domain = Domain::new(4).unwrap();
        let cache = cache(&domain, policy, 10_000);
        let (tell, told) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        let objects: Vec<_> = (0..1000).map(|_| alloc(&cache).unwrap()).collect();
        for (number, object) in objects.iter().enumerate() {
            // SAFETY: 24 bytes that this thread owns.
            unsafe { object.as_ptr().cast::<[u64; 3]>().write([number as u64; 3]) };
        }
        std::thread::scope(|scope| {
            let domain = &domain;
            scope.spawn(move || {
                let section = domain.enter().unwrap();
                raw::announce_era(domain, section.number());
                tell.send(()).unwrap();
                left.recv().unwrap();
            });
            told.recv().unwrap();
            let old: HashSet<_> = objects.iter().map(|object| object.as_ptr().addr()).collect();
            objects.iter().for_each(|&object| free(&cache, object));
            std::thread::sleep(Duration::from_millis(30)); // for the keeper to do what it must not
            let new: Vec<_> = (0..1000).map(|_| alloc(&cache).unwrap()).collect();
            assert!(new.iter().all(|object| !old.contains(&object.as_ptr().addr())), "{policy}");
            for (number, object) in objects.iter().enumerate() {
                // SAFETY: memory of an object that waits.
                let bytes = unsafe { object.as_ptr().cast::<[u64; 3]>().read() };
                assert_eq!(bytes, [number as u64; 3], "{policy}");
            }
            leave.send(()).unwrap();
            new.into_iter().for_each(|object| free(&cache, object));
        });
        until("nothing waits", || cache.stats().in_flight == 0);
    }
}

#[test]
fn immediate_reuse_hands_out_a_freed_object_at_once() {
    let domain = Domain::new(2).unwrap();
    let cache = cache(&domain, Policy::Immediate, 100);
    let _inside = domain.enter().unwrap();
    let object = alloc(&cache).unwrap();
    free(&cache, object);
    assert_eq!(alloc(&cache), Ok(object));
    assert_eq!(cache.stats().in_flight, 0);
    free(&cache, object);
}

#[test]
fn an_unpublished_object_is_reused_at_once() {
    for policy in [Policy::ReuseAfterGp, Policy::FreeAfterGp, Policy::CallRcuFirst] {
        let domain = Domain::new(2).unwrap();
        let cache = cache(&domain, policy, 100);
        let section = domain.enter().unwrap();
        // SAFETY: this thread's slot; no reader has seen the object.
        unsafe {
            let object = cache.alloc(section.number()).unwrap();
            cache.free_unpublished(section.number(), object);
            assert_eq!(cache.alloc(section.number()), Ok(object), "{policy}");
        }
    }
}

#[test]
fn a_reader_blocks_objects_of_its_era_and_no_later_ones() {
    let domain = Domain::new(4).unwrap();
    let cache = cache(&domain, Policy::ReuseAfterGp, 100_000);
    let (tell, told) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let domain = &domain;
        scope.spawn(move || {
            let section = domain.enter().unwrap();
            raw::announce_era(domain, section.number());
            tell.send(()).unwrap();
            left.recv().unwrap();
        });
        told.recv().unwrap();
        // All of these are born and freed while the reader is inside.
        for _ in 0..200 {
            domain.cookie();
            let objects: Vec<_> = (0..1000).map(|_| alloc(&cache).unwrap()).collect();
            objects.into_iter().for_each(|object| free(&cache, object));
        }
        let stats = cache.stats();
        // The keeper's pace decides how many wait at a time; if the reader blocked them, all would.
        assert!(stats.peak_in_flight < 40_000, "{} wait of 200,000", stats.peak_in_flight);
        leave.send(()).unwrap();
    });
}

#[test]
fn objects_of_an_announced_era_wait_for_the_reader() {
    let domain = Domain::new(4).unwrap();
    let cache = cache(&domain, Policy::ReuseAfterGp, 100_000);
    let object = alloc(&cache).unwrap();
    domain.cookie();
    let young = alloc(&cache).unwrap();
    let section = domain.enter().unwrap();
    // SAFETY: this thread's slot, inside; objects of this cache.
    unsafe {
        let cpu = section.number();
        let first = cache.ensure_announced(cpu);
        assert_eq!(cache.ensure_announced(cpu), first, "announced once");
        assert!(cache.holds(object, first) && cache.holds(young, first));
        domain.cookie();
        let younger = cache.alloc(cpu).unwrap();
        assert!(!cache.holds(younger, first), "the reader had not announced it");
        let newer = cache.announce(cpu);
        assert!(
            cache.holds(younger, newer) && !cache.holds(younger, first),
            "what was said before the look counts"
        );
        cache.free(cpu, younger);
        assert!(!cache.holds(younger, newer), "free");
    }
}

#[test]
fn beyond_the_capacity_allocation_fails_and_later_succeeds() {
    for policy in Policy::ALL {
        let domain = Domain::new(2).unwrap();
        let cache = cache(&domain, policy, 500);
        let mut objects = Vec::new();
        let error = loop {
            match alloc(&cache) {
                Ok(object) => objects.push(object),
                Err(error) => break error,
            }
            assert!(objects.len() < 100_000, "{policy}: no end");
        };
        assert_eq!(error, Error::Exhausted { capacity: 500 }, "{policy}");
        assert!(objects.len() >= 500, "{policy}: {}", objects.len());
        let all = objects.len();
        objects.drain(..).for_each(|object| free(&cache, object));
        until("as many as before", || {
            while let Ok(object) = alloc(&cache) {
                // SAFETY: no reader has seen it.
                OBJECTS.with_borrow_mut(|objects| objects.push(object));
            }
            OBJECTS.with_borrow(Vec::len) + 200 >= all
        });
        OBJECTS.with_borrow_mut(|objects| objects.drain(..).for_each(|object| free(&cache, object)));
    }
}

thread_local! {
    static OBJECTS: std::cell::RefCell<Vec<NonNull<u8>>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[test]
fn the_limit_in_bytes_holds_and_names_itself() {
    let domain = Domain::new(2).unwrap();
    let options = CacheOptions::new(1000, 1 << 20).limit(1 << 20);
    let cache = Cache::new(&domain, &options).unwrap();
    let error = std::iter::repeat_with(|| alloc(&cache)).find_map(Result::err).unwrap();
    let Error::Limit { held, wanted, limit } = error else { panic!("{error}") };
    assert!(limit == 1 << 20 && held <= limit && held + wanted > limit, "{error}");
    assert!(cache.stats().peak_bytes <= 1 << 20);
    assert_eq!(options.max_bytes(2).unwrap(), held);
}

#[test]
fn an_account_is_charged_what_its_caches_hold_under_every_policy_and_empty_when_they_are_gone() {
    for policy in Policy::ALL {
        let domain = Domain::new(2).unwrap();
        let account = Arc::new(Account::new("t", "bytes", 1 << 20));
        let options = CacheOptions::new(1000, 1 << 20).policy(policy).account(Some(Arc::clone(&account)));
        let caches = [(); 2].map(|()| Cache::new(&domain, &options).unwrap());
        let held = || caches.iter().map(|cache| cache.stats().bytes as u64).sum::<u64>();
        assert_eq!(account.used(), held(), "{policy}");
        let mut objects = Vec::new();
        let error = loop {
            match alloc(&caches[objects.len() % 2]) {
                Ok(object) => objects.push(object),
                Err(error) => break error,
            }
        };
        let Error::Account { used, wanted, limit } = error else { panic!("{policy}: {error}") };
        assert!(used + wanted > limit && limit == 1 << 20, "{policy}: {error}");
        assert_eq!(account.used(), held(), "{policy}");
        assert!(account.peak() <= 1 << 20 && objects.len() > 500, "{policy}");
        objects.iter().enumerate().for_each(|(at, object)| free(&caches[at % 2], *object));
        until("it is charged what is held", || account.used() == held());
        let left = alloc(&caches[0]);
        left.into_iter().for_each(|object| free(&caches[0], object));
        drop(caches);
        until("the memory is returned", || account.used() == 0);
    }
}

#[test]
fn surplus_memory_is_returned_to_the_system() {
    for policy in Policy::ALL {
        let domain = Domain::new(2).unwrap();
        let cache = cache(&domain, policy, 200_000);
        let before = cache.stats().bytes;
        let objects: Vec<_> = (0..100_000).map(|_| alloc(&cache).unwrap()).collect();
        let full = cache.stats().bytes;
        assert!(full > before + 100_000 * 24, "{policy}");
        objects.into_iter().for_each(|object| free(&cache, object));
        until(&format!("{policy} gives back"), || cache.stats().bytes < before + (full - before) / 8);
    }
}

#[test]
fn objects_freed_on_one_thread_are_reused_on_another() {
    for policy in Policy::ALL {
        let domain = Domain::new(4).unwrap();
        // With the policies that go through the keeper, the number of waiting objects depends on how often it runs.
        // Their number is bounded, and a thread that finds none waits for some.
        let by_keeper = !matches!(policy, Policy::Immediate | Policy::ReuseAfterGp);
        let cache = cache(&domain, policy, if by_keeper { 100_000 } else { 1 << 20 });
        let (send, receive) = mpsc::sync_channel::<usize>(1000);
        std::thread::scope(|scope| {
            let cache = &cache;
            scope.spawn(move || {
                for object in receive {
                    free(cache, NonNull::new(std::ptr::with_exposed_provenance_mut(object)).unwrap());
                }
            });
            for _ in 0..300_000 {
                let mut object = alloc(cache);
                if by_keeper && object.is_err() {
                    until("an object comes home", || {
                        object = alloc(cache);
                        object.is_ok()
                    });
                }
                send.send(object.unwrap().as_ptr().expose_provenance()).unwrap();
            }
            drop(send);
        });
        let peak = cache.stats().peak_bytes;
        assert!(peak < 150_000 * 32 + (1 << 20), "{policy}: {peak} bytes for a thousand objects at a time");
        assert_eq!(cache.stats().in_use, 0);
    }
}

/// Readers follow a pointer to the current object while others replace it all the time; canaries identify the object.
fn canaries(policy: Policy, time: Duration) -> u64 {
    let domain = Domain::new(8).unwrap();
    let cache = cache(&domain, policy, 1 << 16);
    let current: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    let (over, recycled) = (AtomicBool::new(false), AtomicU64::new(0));
    let words = |object: u64| {
        // SAFETY: objects of 24 bytes, whose words are only accessed as atomics.
        unsafe { &*std::ptr::with_exposed_provenance::<[AtomicU64; 3]>(object as usize) }
    };
    let make = |cpu: u32, place: u64| {
        // SAFETY: the callers are inside with that slot.
        let object = unsafe { cache.alloc(cpu) }.ok()?.as_ptr().expose_provenance() as u64;
        words(object)[0].store(place, Ordering::Relaxed);
        Some(object)
    };
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (domain, cache, current, over) = (&domain, &cache, &current, &over);
            scope.spawn(move || {
                let mut random = writer as u64 + 1;
                while !over.load(Ordering::Relaxed) {
                    let section = domain.enter().unwrap();
                    for _ in 0..200 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let place = random >> 58;
                        let Some(object) = make(section.number(), place) else { continue };
                        let old = current[place as usize].swap(object, Ordering::AcqRel);
                        if let Some(old) = NonNull::new(std::ptr::with_exposed_provenance_mut(old as usize)) {
                            // SAFETY: swapped out by this thread, so freed only here.
                            unsafe { cache.free(section.number(), old) };
                        }
                    }
                }
            });
        }
        for reader in 0..2 {
            let (domain, cache, current, over, recycled) = (&domain, &cache, &current, &over, &recycled);
            scope.spawn(move || {
                let mut random = reader as u64 + 77;
                while !over.load(Ordering::Relaxed) {
                    let section = domain.enter().unwrap();
                    for _ in 0..50 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let place = random >> 58;
                        // SAFETY: this thread's slot, inside a section.
                        let mut era = unsafe { cache.ensure_announced(section.number()) };
                        let found = loop {
                            let found = current[place as usize].load(Ordering::Acquire);
                            let object = NonNull::new(std::ptr::with_exposed_provenance_mut(found as usize));
                            let Some(object) = object else { break None };
                            // SAFETY: an object of the cache.
                            if unsafe { cache.holds(object, era) }
                                && current[place as usize].load(Ordering::Acquire) == found
                            {
                                break Some(found);
                            }
                            // SAFETY: as above.
                            era = unsafe { cache.announce(section.number()) };
                        };
                        let Some(object) = found else { continue };
                        for _ in 0..20 {
                            let seen = words(object)[0].load(Ordering::Relaxed);
                            if seen != place {
                                recycled.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
    });
    // Objects of the system's allocator do not end with the cache.
    for object in current {
        if let Some(object) =
            NonNull::new(std::ptr::with_exposed_provenance_mut(object.into_inner() as usize))
        {
            free(&cache, object);
        }
    }
    recycled.load(Ordering::Relaxed)
}

#[test]
fn readers_never_see_an_object_become_another() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.waits_for_readers()) {
        assert_eq!(canaries(policy, Duration::from_millis(400)), 0, "{policy}");
    }
}

#[test]
fn with_immediate_reuse_the_same_readers_see_objects_become_others() {
    // Proof that the test above can fail.
    until("an object is recycled under a reader", || {
        canaries(Policy::Immediate, Duration::from_millis(200)) > 0
    });
}

#[test]
fn dropping_a_cache_defers_its_memory_past_readers() {
    let domain = Domain::new(2).unwrap();
    for policy in Policy::ALL {
        let cache = cache(&domain, policy, 1000);
        let section = domain.enter().unwrap();
        // SAFETY: this thread's slot; freed once, below, where the policy has no region.
        let object = unsafe { cache.alloc(section.number()).unwrap() };
        // SAFETY: 24 bytes that this thread owns.
        unsafe { object.as_ptr().cast::<[u64; 3]>().write([7; 3]) };
        free(&cache, object);
        drop(cache);
        std::thread::sleep(Duration::from_millis(5));
        // SAFETY: this thread is still inside.
        assert_eq!(unsafe { object.as_ptr().cast::<[u64; 3]>().read() }, [7; 3], "{policy}");
        drop(section);
        domain.barrier().unwrap();
    }
    domain.synchronize(Grace::Both).unwrap();
}

#[test]
fn objects_of_every_size_are_reused_and_none_is_lost() {
    for size in [1, 8, 500, 513, 5_000, 9_000, 70_000, 300_000] {
        for policy in Policy::ALL {
            let domain = Domain::new(2).unwrap();
            let cache = Cache::new(&domain, &CacheOptions::new(size, 20).policy(policy)).unwrap();
            for round in 0..50 {
                let objects: Vec<_> = (0..20).map_while(|_| alloc(&cache).ok()).collect();
                let distinct: HashSet<_> = objects.iter().map(|object| object.as_ptr().addr()).collect();
                assert_eq!(distinct.len(), objects.len(), "{policy}, {size} bytes");
                for object in &objects {
                    // SAFETY: an object of that size, which this thread owns.
                    unsafe { object.as_ptr().write_bytes(round, size) };
                }
                objects.into_iter().for_each(|object| free(&cache, object));
            }
            until(&format!("{policy}, {size} bytes: nothing waits"), || cache.stats().in_flight == 0);
            assert_eq!(cache.stats().in_use, 0, "{policy}, {size} bytes");
        }
    }
}

#[test]
fn invalid_options_are_refused() {
    let domain = Domain::new(2).unwrap();
    let refused = |options: CacheOptions| Cache::new(&domain, &options).unwrap_err();
    assert_eq!(refused(CacheOptions::new(0, 5)), Error::Empty { capacity: 5, size: 0 });
    assert_eq!(refused(CacheOptions::new(5, 0)), Error::Empty { capacity: 0, size: 5 });
    assert_eq!(refused(CacheOptions::new(5, 5).align(24)), Error::Align { align: 24 });
    assert_eq!(refused(CacheOptions::new(5, 5).align(8192)), Error::Align { align: 8192 });
    assert!(matches!(refused(CacheOptions::new(5, 5).limit(100)), Error::Limit { held: 0, limit: 100, .. }));
    assert!(matches!(refused(CacheOptions::new(usize::MAX - 7, 5)), Error::TooLarge { .. }));
    assert!(matches!(refused(CacheOptions::new(8, usize::MAX)), Error::TooLarge { .. }));
}
