//! What a pool promises.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use skep_mem::{Error, Pool, PoolOptions};

/// The object's word of that number.
fn word(object: NonNull<u8>, index: usize) -> &'static AtomicU64 {
    // SAFETY: the tests below pass objects of living pools, 8-byte aligned and longer than `index` words, and
    // do not use the word after the pool is gone.
    unsafe { AtomicU64::from_ptr(object.as_ptr().cast::<u64>().add(index)) }
}

#[test]
fn fresh_objects_are_zeroed_aligned_and_apart() {
    for (size, align) in [(1, 8), (8, 8), (24, 8), (40, 64), (100, 16), (5000, 4096), (300_000, 64)] {
        let pool = Pool::new(&PoolOptions::new(size, 50).align(align)).unwrap();
        let mut objects: Vec<_> = (0..50).map(|_| pool.alloc().unwrap()).collect();
        for &object in &objects {
            assert_eq!(object.as_ptr().addr() % align, 0);
            // SAFETY: the object is ours and `size` bytes long.
            let bytes = unsafe { std::slice::from_raw_parts_mut(object.as_ptr(), size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "size {size}: dirty, or it overlaps another");
            bytes.fill(0xff);
        }
        objects.sort();
        for pair in objects.windows(2) {
            assert!(pair[1].as_ptr().addr() - pair[0].as_ptr().addr() >= pool.object_size());
        }
    }
}

#[test]
fn recycled_objects_keep_what_their_last_owner_left_except_the_first_word() {
    let pool = Pool::new(&PoolOptions::new(32, 1)).unwrap();
    let object = pool.alloc().unwrap();
    for i in 0..4 {
        word(object, i).store(0x1111 * (i as u64 + 1), Ordering::Relaxed);
    }
    // SAFETY: allocated above, freed once.
    unsafe { pool.free(object) };
    // A stale reader may still look: the memory is there and typed.
    assert_eq!(word(object, 0).load(Ordering::Relaxed), 0); // no other object was free
    assert_eq!(word(object, 3).load(Ordering::Relaxed), 0x4444);

    assert_eq!(pool.alloc().unwrap(), object);
    assert_eq!(word(object, 1).load(Ordering::Relaxed), 0x2222);
    // SAFETY: allocated again on the line before last.
    unsafe { pool.free(object) };
    assert_eq!(pool.alloc_zeroed().unwrap(), object);
    assert!((0..4).all(|i| word(object, i).load(Ordering::Relaxed) == 0));
}

#[test]
fn the_first_word_of_a_free_object_leads_to_another_free_one() {
    let pool = Pool::new(&PoolOptions::new(16, 3)).unwrap();
    let objects: Vec<_> = (0..3).map(|_| pool.alloc().unwrap()).collect();
    for &object in &objects {
        // SAFETY: allocated above, freed once.
        unsafe { pool.free(object) };
    }
    let link = |i: usize| word(objects[i], 0).load(Ordering::Relaxed) as usize;
    assert_eq!([link(2), link(1), link(0)], [objects[1].as_ptr().addr(), objects[0].as_ptr().addr(), 0]);
}

#[test]
fn a_full_pool_says_so_and_serves_again_after_a_free() {
    let pool = Pool::new(&PoolOptions::new(8, 3)).unwrap();
    let objects: Vec<_> = (0..3).map(|_| pool.alloc().unwrap()).collect();
    let error = pool.alloc().unwrap_err();
    assert_eq!(error, Error::Exhausted { capacity: 3 });
    assert_eq!(
        error.to_string(),
        "all 3 objects of the pool are in use: free some, or make the pool with a larger capacity"
    );
    assert_eq!(pool.in_use(), 3);
    // SAFETY: allocated above, freed once.
    unsafe { pool.free(objects[1]) };
    assert_eq!(pool.alloc(), Ok(objects[1]));
}

#[test]
fn a_pool_never_takes_more_than_its_limit() {
    let options = PoolOptions::new(1024, 10_000); // 10 MB: chunks of 625 KiB
    let limit = options.max_bytes().unwrap() / 2;
    let pool = Pool::new(&options.clone().limit(limit)).unwrap();
    let mut taken = 0;
    let error = loop {
        match pool.alloc() {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    let Error::Limit { held, wanted, limit: named } = error else { panic!("{error}") };
    assert_eq!((held, named), (pool.bytes(), limit));
    assert!(held <= limit && held + wanted > limit);
    assert_eq!(wanted, 1024);
    assert!(taken > 4_990, "only {taken} of 10000 objects fit half of the memory");
    assert_eq!(pool.in_use(), taken);

    let error = Pool::new(&options.limit(1000)).unwrap_err();
    assert!(matches!(error, Error::Limit { held: 0, limit: 1000, .. }));
    assert!(error.to_string().contains("over its limit of 1000: raise the limit"), "{error}");
}

#[test]
fn a_pool_can_be_filled_to_exactly_its_announced_maximum() {
    for (size, capacity, align) in
        [(8, 1, 8), (24, 100_000, 8), (64, 12_345, 64), (3_000_000, 3, 4096), (7, 8192, 8)]
    {
        let options = PoolOptions::new(size, capacity).align(align);
        let max = options.max_bytes().unwrap();
        let pool = Pool::new(&options.limit(max)).unwrap();
        let before = pool.bytes();
        assert!(before < max);
        for _ in 0..capacity {
            pool.alloc().unwrap();
        }
        assert_eq!(pool.alloc(), Err(Error::Exhausted { capacity }));
        assert_eq!(pool.bytes(), max, "{capacity} objects of {size} bytes");
    }
}

#[test]
fn impossible_pools_are_refused() {
    let refused = |options: PoolOptions| Pool::new(&options).unwrap_err();
    assert_eq!(refused(PoolOptions::new(0, 5)), Error::Empty { capacity: 5, size: 0 });
    assert_eq!(refused(PoolOptions::new(5, 0)), Error::Empty { capacity: 0, size: 5 });
    assert_eq!(refused(PoolOptions::new(8, 8).align(12)), Error::Align { align: 12 });
    assert_eq!(refused(PoolOptions::new(8, 8).align(1 << 13)), Error::Align { align: 1 << 13 });
    for (size, capacity) in [(usize::MAX, 1), (8, usize::MAX / 8), (1 << 40, 1 << 40), (1, usize::MAX)] {
        assert_eq!(
            refused(PoolOptions::new(size, capacity)),
            Error::TooLarge { count: capacity, size },
            "{capacity} objects of {size} bytes"
        );
    }
}

#[test]
fn threads_never_share_an_object_and_none_is_lost() {
    const THREADS: u64 = 4;
    const OBJECTS: usize = 64;
    const ROUNDS: u64 = 20_000;

    let pool = Pool::new(&PoolOptions::new(24, OBJECTS)).unwrap();
    let refusals = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (pool, refusals) = (&pool, &refusals);
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..ROUNDS {
                    // A deterministic mixture in which the threads together want more than there is.
                    if (round * 7 + thread * 13) % 40 < 22 && held.len() < OBJECTS {
                        match pool.alloc() {
                            Ok(object) => {
                                // Whoever had it cleared the mark: nobody has it now.
                                assert_eq!(word(object, 1).swap(thread, Ordering::Relaxed), 0);
                                held.push(object);
                            }
                            Err(error) => {
                                assert_eq!(error, Error::Exhausted { capacity: OBJECTS });
                                refusals.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    } else if let Some(object) = held.pop() {
                        assert_eq!(word(object, 1).swap(0, Ordering::Relaxed), thread);
                        // SAFETY: this thread allocated it and has it no longer.
                        unsafe { pool.free(object) };
                    }
                }
                for object in held {
                    assert_eq!(word(object, 1).swap(0, Ordering::Relaxed), thread);
                    // SAFETY: as above.
                    unsafe { pool.free(object) };
                }
            });
        }
    });
    assert_eq!(pool.in_use(), 0);
    let all: HashSet<_> = (0..OBJECTS).map(|_| pool.alloc().unwrap()).collect();
    assert_eq!(all.len(), OBJECTS);
}
