//! Properties that hold while many threads use a map at once.
//!
//! Every test runs writers for a number of rounds, and readers until the writers end.

mod common;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{CPUS, OWN, map, prefix, program_delete, program_lookup, program_update};
use skep_abi::MapKind;
use skep_maps::{Map, MapError, UpdateFlags};

/// A value of 48 bytes that names its key and shows if it is torn.
fn sealed(key: u64, round: u64) -> Vec<u8> {
    [key, round, key ^ round, !key, !round, key.wrapping_add(round)].map(u64::to_ne_bytes).concat()
}

/// The round of a value; asserts that it is whole and belongs to that key.
fn unseal(key: u64, value: &[u8]) -> u64 {
    let round = u64::from_ne_bytes(value[8..16].try_into().unwrap());
    assert_eq!(value, sealed(key, round), "not a whole value of key {key}");
    round
}

/// A key of that size for a number below 65536; both its first and its last bytes differ.
fn key(number: u64, size: usize) -> Vec<u8> {
    let mut key = vec![0x77; size];
    let bytes = (number as u16).to_ne_bytes();
    key[..2].copy_from_slice(&bytes);
    key[size - 2..].copy_from_slice(&bytes);
    key
}

/// Runs writers to their end, and readers repeatedly until then.
fn race(writers: &[&(dyn Fn() + Sync)], readers: &[&(dyn Fn() + Sync)]) {
    let done = AtomicBool::new(false);
    let start = Barrier::new(writers.len() + readers.len());
    thread::scope(|scope| {
        for reader in readers {
            scope.spawn(|| {
                start.wait();
                while !done.load(Ordering::Relaxed) {
                    reader();
                }
            });
        }
        let writers: Vec<_> = writers
            .iter()
            .map(|writer| {
                scope.spawn(|| {
                    start.wait();
                    writer();
                })
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

#[test]
fn a_key_that_stays_is_always_found_and_always_whole() {
    for key_size in [4, 8, 16, 37, 100] {
        // Few buckets and elements: long lists, and immediate reuse of elements.
        let map = map(MapKind::Hash, key_size as u32, 48, 8);
        let key = |number| key(number, key_size);
        let update =
            |number, round| map.update(&key(number), &sealed(number, round), UpdateFlags::Any).unwrap();
        for number in 0..4 {
            update(number, 0);
        }
        let stay = || {
            for round in 1..6_000 {
                update(round % 4, round);
            }
        };
        let come_and_go = || {
            for round in 0..6_000 {
                let number = 4 + round % 4;
                let bytes = sealed(number, round);
                assert_eq!(program_update(&map, &key(number), &bytes, 0, 0), 0);
                if round % 3 != 0 {
                    assert_eq!(program_delete(&map, &key(number)), 0);
                }
            }
        };
        let lasts = [const { AtomicU64::new(0) }; 4];
        let read = || {
            for number in 0..4 {
                let value = map.lookup(&key(number)).unwrap().expect("a key that stays was missed");
                // Nor does one reader see an older round after a newer one.
                let round = unseal(number, &value);
                assert!(lasts[number as usize].fetch_max(round, Ordering::Relaxed) <= round);
                assert!(program_lookup(&map, &key(number), 1).is_some(), "a program missed a key that stays");
            }
            for number in 4..8 {
                if let Some(value) = map.lookup(&key(number)).unwrap() {
                    unseal(number, &value);
                }
            }
            for number in 8..12 {
                assert_eq!(map.lookup(&key(number)).unwrap(), None, "a key that never was");
                assert_eq!(program_lookup(&map, &key(number), 1), None, "a key that never was");
            }
        };
        race(&[&stay, &come_and_go], &[&read]);
    }
}

#[test]
fn no_element_is_lost_or_counted_twice() {
    for kind in [MapKind::Hash, MapKind::PercpuHash] {
        let map = map(kind, 8, 8, 3_000);
        let worker = |worker: u64| {
            let map = &map;
            move || {
                // Each worker has keys of its own, and knows which of them are there.
                let mut present = BTreeMap::new();
                let own = map.reuse().domain.reader().unwrap();
                let cpu = own.number();
                for round in 0..30_000_u64 {
                    let number = (worker << 32) | (round.wrapping_mul(0x9e37_79b9) % 900);
                    let key = number.to_ne_bytes();
                    if round % 5 < 3 {
                        assert_eq!(program_update(map, &key, &round.to_ne_bytes(), 0, cpu), 0);
                        present.insert(number, round);
                    } else {
                        let expected = if present.remove(&number).is_some() { 0 } else { -2 };
                        assert_eq!(program_delete(map, &key), expected);
                    }
                    let found = program_lookup(map, &key, cpu);
                    let expected = present.get(&number).map(|round| round.to_ne_bytes().to_vec());
                    assert_eq!(found, expected, "key {number:x} in round {round}");
                }
                present
            }
        };
        let present: BTreeMap<_, _> = thread::scope(|scope| {
            let workers: Vec<_> = (0..3).map(|number| scope.spawn(worker(number))).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(map.len() as usize, present.len());
        let found: BTreeMap<_, _> = map
            .entries()
            .map(|(key, value)| {
                let number = u64::from_ne_bytes(key.try_into().unwrap());
                // Of a per-CPU element's values only that of the worker's CPU is not zero.
                let values = value.as_chunks::<8>().0;
                (number, values.iter().copied().map(u64::from_ne_bytes).sum())
            })
            .collect();
        assert_eq!(found, present);
    }
}

#[test]
fn a_table_is_full_exactly_at_its_capacity() {
    const ROOM: u32 = 20;
    for kind in [MapKind::Hash, MapKind::PercpuHash] {
        let map = map(kind, 4, 8, ROOM);
        for round in 0..300_u32 {
            let inserted = AtomicU32::new(0);
            let insert = |worker: u32| {
                let (map, inserted) = (&map, &inserted);
                move || {
                    for i in 0..10 {
                        let key = (round << 8 | worker << 4 | i).to_ne_bytes();
                        match program_update(map, &key, &[1; 8], 1, OWN) {
                            0 => _ = inserted.fetch_add(1, Ordering::Relaxed),
                            error => assert_eq!(error, -7),
                        }
                        assert!(map.len() <= ROOM);
                    }
                }
            };
            thread::scope(|scope| {
                for worker in 0..3 {
                    scope.spawn(insert(worker));
                }
            });
            // Of thirty insertions exactly as many succeeded as there is room for.
            assert_eq!((inserted.into_inner(), map.len()), (ROOM, ROOM));

            // Each thread deletes some: a thread that sees a deletion finds room for another element.
            let keys: Vec<_> = map.entries().map(|(key, _)| key).collect();
            assert_eq!(keys.len(), ROOM as usize);
            thread::scope(|scope| {
                for part in keys.chunks(7) {
                    let map = &map;
                    scope.spawn(move || {
                        for (i, key) in part.iter().enumerate() {
                            assert_eq!(program_delete(map, key), 0);
                            if i % 2 == 0 {
                                assert_eq!(program_update(map, key, &[2; 8], 0, OWN), 0);
                                assert_eq!(program_delete(map, key), 0);
                            }
                        }
                    });
                }
            });
            assert_eq!(map.len(), 0);
        }
    }
}

#[test]
fn insertions_and_deletions_of_one_key_alternate() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie] {
        let map = map(kind, 8, 8, 4);
        let key = prefix(32, &[10, 1, 2, 3]);
        let worker = |()| {
            let (map, key) = (&map, &key);
            move || {
                let own = map.reuse().domain.reader().unwrap();
                let cpu = own.number();
                let (mut inserted, mut deleted) = (0, 0);
                for _ in 0..30_000 {
                    match program_update(map, key, &[cpu as u8; 8], 1, cpu) {
                        0 => inserted += 1,
                        error => assert_eq!(error, -17),
                    }
                    match program_delete(map, key) {
                        0 => deleted += 1,
                        error => assert_eq!(error, -2),
                    }
                }
                (inserted, deleted)
            }
        };
        let (inserted, deleted) = thread::scope(|scope| {
            let workers = [(); 3].map(|()| scope.spawn(worker(())));
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap())
                .fold((0, 0), |sum: (u32, u32), counts| (sum.0 + counts.0, sum.1 + counts.1))
        });
        assert_eq!(
            inserted - deleted,
            map.len(),
            "{kind}: one of two that inserted the key at once was told so"
        );
        assert!(map.len() <= 1);
    }
}

#[test]
fn a_thread_that_sees_a_key_gone_finds_room_for_another() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie] {
        let map = map(kind, 8, 8, 1);
        let key = |number: u64| prefix(32, &(number as u32).to_be_bytes());
        map.update(&key(0), &vec![1; map.host_value_size()], UpdateFlags::Any).unwrap();
        let alarm = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _alarm = Alarm(&alarm);
                for round in 0..500 {
                    wait_until(&alarm, || program_lookup(&map, &key(round), OWN).is_some());
                    assert_eq!(program_delete(&map, &key(round)), 0);
                }
            });
            scope.spawn(|| {
                let _alarm = Alarm(&alarm);
                for round in 0..499 {
                    wait_until(&alarm, || program_lookup(&map, &key(round), OWN).is_none());
                    let done = program_update(&map, &key(round + 1), &[1; 8], 1, OWN);
                    assert_eq!(done, 0, "{kind} in round {round}");
                }
            });
        });
        assert_eq!(map.len(), 0);
    }
}

/// Tells waiting threads when its owner panics, so that they do not wait for ever.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Spins for a while, then lets others run: there may be fewer CPUs than threads.
fn wait_until(alarm: &AtomicBool, condition: impl Fn() -> bool) {
    for turn in 0_u32.. {
        if condition() {
            return;
        }
        assert!(!alarm.load(Ordering::Relaxed), "the other side failed");
        if turn > 100 {
            thread::yield_now();
        }
    }
}

#[test]
fn a_trie_always_answers_with_a_prefix_of_the_address() {
    let map = map(MapKind::LpmTrie, 8, 48, 64);
    // An element as one number.
    let number = |len: u32, address: u32| u64::from(len) << 32 | u64::from(address);
    let set = |len: u32, address: u32, round| {
        let key = prefix(len, &address.to_be_bytes());
        map.update(&key, &sealed(number(len, address), round), UpdateFlags::Any).unwrap();
    };
    let covers = |len: u32, prefix: u32, address: u32| len == 0 || (prefix ^ address) >> (32 - len) == 0;
    let stays = [(8, 0x0a00_0000), (16, 0x0a01_0000), (24, 0x0a01_0100)];
    for (len, address) in stays {
        set(len, address, 0);
    }
    let stay = || {
        for round in 1..8_000_u64 {
            let (len, address) = stays[(round % 3) as usize];
            set(len, address, round);
        }
    };
    // Prefixes all around those that stay: shorter, between, longer, and siblings.
    let guests = [
        (0, 0),
        (7, 0x0a00_0000),
        (12, 0x0a00_0000),
        (15, 0x0a00_0000),
        (20, 0x0a01_0000),
        (24, 0x0a01_0200),
        (25, 0x0a01_0180),
        (32, 0x0a01_0107),
        (32, 0x0a01_0106),
        (9, 0x0a80_0000),
    ];
    let come_and_go = || {
        for round in 0..8_000_usize {
            let (len, address) = guests[round * 7 % 10];
            set(len, address, round as u64);
            let (len, address) = guests[round * 3 % 10];
            program_delete(&map, &prefix(len, &address.to_be_bytes()));
        }
    };
    let read = || {
        for (address, at_least) in
            [(0x0a01_0107_u32, 24), (0x0a01_01ff, 24), (0x0a01_4000, 16), (0x0aff_0000, 8), (0x0b00_0000, 0)]
        {
            let key = prefix(32, &address.to_be_bytes());
            let Some(value) = map.lookup(&key).unwrap() else {
                assert_eq!(at_least, 0, "missed what stays above {address:#x}");
                continue;
            };
            let number = u64::from_ne_bytes(value[..8].try_into().unwrap());
            unseal(number, &value);
            let (len, found) = ((number >> 32) as u32, number as u32);
            assert!(covers(len, found, address), "{found:#x}/{len} for {address:#x}");
            assert!(len >= at_least, "{found:#x}/{len} for {address:#x}, but /{at_least} stays");
            assert!(at_least == 0 || program_lookup(&map, &key, 0).is_some());
        }
    };
    race(&[&stay, &come_and_go], &[&read]);

    for (len, address) in guests {
        let _ = map.delete(&prefix(len, &address.to_be_bytes()));
    }
    assert_eq!(map.len(), 3);
    let keys: Vec<_> = map.entries().map(|(key, _)| key).collect();
    assert_eq!(keys, [24, 16, 8].map(|len| prefix(len, &[10, (len > 8).into(), (len > 16).into(), 0])));
}

#[test]
fn a_walk_returns_elements_that_stay_exactly_once() {
    for kind in [MapKind::Hash, MapKind::LpmTrie] {
        let map = map(kind, 8, 48, 400);
        let key = |number: u64| prefix(32, &(number as u32 * 0x0101).to_be_bytes());
        for number in 0..200 {
            map.update(&key(number), &sealed(number, 0), UpdateFlags::Any).unwrap();
        }
        let change = || {
            for round in 0..30_000_u64 {
                // Elements that stay are updated; the others are inserted and deleted around them.
                let number = round * 7 % 200;
                map.update(&key(number), &sealed(number, round), UpdateFlags::Exist).unwrap();
                let guest = 200 + round * 11 % 200;
                map.update(&key(guest), &sealed(guest, round), UpdateFlags::Any).unwrap();
                if round % 4 != 0 {
                    map.delete(&key(guest)).unwrap();
                }
            }
        };
        let walk = || {
            let mut seen = [0; 400];
            for (found, value) in map.entries() {
                let number = u64::from_ne_bytes(value[..8].try_into().unwrap());
                unseal(number, &value);
                assert_eq!(found, key(number), "a key with another's value");
                seen[number as usize] += 1;
            }
            assert_eq!(seen[..200], [1; 200]);
        };
        race(&[&change], &[&walk]);
    }
}

#[test]
fn programs_on_different_cpus_count_without_losing_anything() {
    for kind in [MapKind::PercpuArray, MapKind::PercpuHash] {
        let map = map(kind, 4, 8, 2);
        let key = 1_u32.to_ne_bytes();
        map.update(&key, &[0; 8 * CPUS as usize], UpdateFlags::Any).unwrap();
        map.reuse().domain.release(); // the slots of the four threads above, for the four below
        let start = &Barrier::new(CPUS as usize);
        thread::scope(|scope| {
            for _ in 0..CPUS {
                let (map, key) = (&map, &key);
                scope.spawn(move || {
                    let own = map.reuse().domain.reader().unwrap();
                    let cpu = own.number();
                    start.wait();
                    for _ in 0..50_000 {
                        // SAFETY: a key of 4 bytes, a CPU that the map was made for, values of 8 aligned bytes;
                        // atomic because the other threads read them through the host's interface.
                        let count = own.read(|| unsafe {
                            AtomicU64::from_ptr(map.lookup_ptr(key.as_ptr(), cpu).cast())
                        });
                        // A program's plain increment: only this thread writes this CPU's value.
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        let counts = map.lookup(&key).unwrap().unwrap();
        assert_eq!(counts, 50_000_u64.to_ne_bytes().repeat(CPUS as usize));
    }
}

/// Two threads write while the map is frozen; values read after the freeze stay the same.
fn freeze_while(
    map: &Map,
    write: impl Fn(u64) -> Result<(), MapError> + Sync,
    read: impl Fn() -> u64 + Copy,
) {
    let done = AtomicBool::new(false);
    let write = || {
        for round in 1.. {
            match write(round) {
                Ok(()) if done.load(Ordering::Relaxed) => return,
                Ok(()) => {}
                Err(error) => return assert_eq!(error.errno(), 1),
            }
        }
    };
    thread::scope(|scope| {
        let writers = [scope.spawn(write), scope.spawn(write)];
        while read() == 0 {
            assert!(!writers.iter().all(|writer| writer.is_finished()), "nobody writes");
            thread::yield_now();
        }
        map.freeze().unwrap();
        let now = read();
        let same = (0..100).all(|_| read() == now);
        done.store(true, Ordering::Relaxed);
        assert!(same, "the host wrote to the {} after freeze", map.kind());
    });
}

#[test]
fn after_freezing_no_write_of_the_host_is_under_way() {
    for _ in 0..50 {
        let map = map(MapKind::Array, 4, 8, 1);
        let write = |round: u64| map.update(&[0; 4], &round.to_ne_bytes(), UpdateFlags::Any);
        let read = || u64::from_ne_bytes(map.lookup(&[0; 4]).unwrap().unwrap().try_into().unwrap());
        freeze_while(&map, write, read);
    }
}

#[test]
fn no_host_change_of_references_outlasts_freezing() {
    for kind in [MapKind::ProgArray, MapKind::ArrayOfMaps, MapKind::HashOfMaps] {
        for _ in 0..50 {
            let map = map(kind, 4, 4, 2);
            // SAFETY: these references are never followed.
            let write = |round| unsafe { map.set_reference(&[0; 4], round) };
            let table = map.references().unwrap();
            let read = || match kind {
                MapKind::HashOfMaps => {
                    let section = map.reuse().domain.enter().unwrap();
                    // SAFETY: the key has the map's size, and the CPU is the thread's.
                    unsafe { map.lookup_ptr([0; 4].as_ptr(), section.number()) }.addr() as u64
                }
                _ => table.entry(0),
            };
            freeze_while(&map, write, read);
            // SAFETY: no assumptions on this map are registered.
            let cleared = unsafe { map.clear_reference(&[0; 4]) };
            assert!(cleared.is_ok_and(|()| read() == 0), "the host is not asked");
        }
    }
}

#[test]
fn a_freeze_waits_while_the_map_is_held_unfrozen() {
    let map = map(MapKind::ProgArray, 4, 4, 1);
    let unfrozen = map.hold_unfrozen().unwrap();
    thread::scope(|scope| {
        let frozen = scope.spawn(|| map.freeze().unwrap());
        // A change that meets the freeze is refused without waiting.
        while map.hold_unfrozen().is_ok() {
            thread::yield_now();
        }
        // SAFETY: the reference is never followed.
        let met = unsafe { map.set_reference(&[0; 4], 1) };
        assert_eq!(met.map_err(|error| error.errno()), Err(1));
        thread::sleep(Duration::from_millis(20));
        assert!(!frozen.is_finished());
        drop(unfrozen);
    });
    assert!(map.is_frozen() && map.hold_unfrozen().is_err());
}
