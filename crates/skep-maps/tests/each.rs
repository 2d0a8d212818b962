//! A program's visit of every element: each key that stays is visited once, whatever changes meanwhile, without
//! allocation.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::{CPUS, inside, map, program_delete, program_lookup, program_update};
use proptest::prelude::*;
use skep_abi::MapKind;
use skep_maps::{Map, UpdateFlags};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Visits all elements of a map with 4-byte values: keys and values in the order of the visit.
fn each(map: &Map, cpu: u32, mut visit: impl FnMut(&[u8], u32) -> bool) {
    let size = map.def().key_size as usize;
    let mut found = |key: *const u8, value: *mut u8| {
        // SAFETY: the key is readable for its size, and the value for 4 bytes; other threads may write it, atomically.
        unsafe {
            let value = (*value.cast::<AtomicU32>()).load(Ordering::Relaxed);
            visit(std::slice::from_raw_parts(key, size), value)
        }
    };
    // SAFETY: the CPU is the thread's.
    inside(map, cpu, |cpu| unsafe { map.for_each_ptr(cpu, &mut found) });
}

fn key(number: u32, size: u32) -> Vec<u8> {
    let mut bytes = vec![0x33; size as usize];
    let used = bytes.len().min(4);
    bytes[..used].copy_from_slice(&number.to_ne_bytes()[..used]);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_element_is_visited_once(
        keys in proptest::collection::btree_set(0_u32..250, 0..60),
        key_size in prop_oneof![Just(1_u32), Just(4), Just(8), Just(13), Just(16), Just(65), Just(512)],
        room in 60_u32..300,
        per_cpu: bool,
        cpu in 0..CPUS,
    ) {
        let map = map(if per_cpu { MapKind::PercpuHash } else { MapKind::Hash }, key_size, 4, room);
        let mut expected = BTreeMap::new();
        for &number in &keys {
            program_update(&map, &key(number, key_size), &number.to_ne_bytes(), 0, cpu);
            expected.insert(key(number, key_size), number);
        }
        let mut found = Vec::new();
        each(&map, cpu, |key, value| { found.push((key.to_vec(), value)); true });
        prop_assert_eq!(found.len(), expected.len());
        prop_assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected);
        if per_cpu {
            each(&map, (cpu + 1) % CPUS, |_, value| { assert_eq!(value, 0, "another CPU's"); true });
        }
    }

    #[test]
    fn what_stays_is_visited_once_whatever_the_visits_do(
        room in 24_u32..40,
        stays in 1_u32..12,
        changes in proptest::collection::vec((0_u32..24, 0_u8..3), 0..200),
    ) {
        // Keys below `stays` are only replaced; the others are inserted and deleted.
        let map = map(MapKind::Hash, 4, 4, room);
        for number in 0..stays + 6 {
            program_update(&map, &key(number, 4), &1u32.to_ne_bytes(), 0, 0);
        }
        let (mut changes, mut found) = (changes.into_iter(), Vec::new());
        each(&map, 0, |visited, _| {
            let visited = u32::from_ne_bytes(visited.try_into().unwrap());
            found.push(visited);
            let changed = changes.by_ref().take(3).collect::<Vec<_>>();
            for (number, what) in changed.into_iter().chain([(visited, 0), (visited, 2)]) {
                match what {
                    2 if number >= stays => { program_delete(&map, &key(number, 4)); }
                    _ => { program_update(&map, &key(number, 4), &2u32.to_ne_bytes(), 0, 0); }
                }
            }
            found.len() < 10_000
        });
        prop_assert!(found.len() < 10_000);
        for number in 0..stays {
            prop_assert_eq!(found.iter().filter(|visited| **visited == number).count(), 1, "{}", number);
        }
    }
}

#[test]
fn arrays_are_visited_by_index() {
    for kind in [MapKind::Array, MapKind::PercpuArray] {
        let map = map(kind, 4, 4, 20);
        for index in 0..20u32 {
            program_update(&map, &index.to_ne_bytes(), &(index * 3).to_ne_bytes(), 0, 2);
        }
        let mut next = 0u32;
        each(&map, 2, |key, value| {
            assert_eq!((key, value), (&next.to_ne_bytes()[..], next * 3));
            next += 1;
            next < 15
        });
        assert_eq!(next, 15, "it ends when it is told to");
    }
}

#[test]
fn nothing_is_allocated() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::Array, MapKind::PercpuArray] {
        let key_size = if kind.is_array() { 4 } else { 40 };
        let map = map(kind, key_size, 4, 500);
        for number in 0..500 {
            program_update(&map, &key(number, key_size), &number.to_ne_bytes(), 0, 0);
        }
        let (before, mut visits) = (ALLOCATED.get(), 0);
        each(&map, 0, |_, _| {
            visits += 1;
            true
        });
        assert_eq!((visits, ALLOCATED.get() - before), (500, 0), "{kind}");
    }
    assert!(ALLOCATED.get() > 0, "allocations are counted");
}

#[test]
fn an_element_that_stays_is_visited_once_during_changes() {
    let map = map(MapKind::Hash, 8, 4, 400);
    let stays: BTreeSet<Vec<u8>> = (0..100).map(|number| key(number, 8)).collect();
    for key in &stays {
        program_update(&map, key, &[1; 4], 0, 0);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                for round in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    program_update(map, &key(round % 100, 8), &[2; 4], 0, thread);
                    let other = key(100 + round % 100 + 100 * thread, 8);
                    program_update(map, &other, &[3; 4], 0, thread);
                    if round % 3 != 0 {
                        program_delete(map, &other);
                    }
                }
            });
        }
        for _ in 0..300 {
            let mut found = Vec::new();
            each(&map, 3, |key, _| {
                found.push(key.to_vec());
                true
            });
            found.retain(|key| stays.contains(key));
            assert_eq!(found.len(), stays.len());
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), stays);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn any_cpu_finds_each_cpu_s_value() {
    for kind in [MapKind::PercpuHash, MapKind::PercpuArray] {
        let map = map(kind, 4, 4, 4);
        let key = 2u32.to_ne_bytes();
        let values: Vec<u8> = (0..CPUS).flat_map(|cpu| u64::from(cpu + 10).to_ne_bytes()).collect();
        map.update(&key, &values, UpdateFlags::Any).unwrap();
        let at = |key: &[u8; 4], cpu| {
            inside(&map, 1, |own| {
                // SAFETY: the key has the map's size, and `own` is the thread's; values have 4 bytes.
                unsafe {
                    let at = map.lookup_percpu_ptr(key.as_ptr(), cpu, own);
                    (!at.is_null()).then(|| at.cast::<u32>().read())
                }
            })
        };
        for cpu in 0..CPUS {
            assert_eq!(at(&key, cpu), Some(cpu + 10));
            assert_eq!(program_lookup(&map, &key, cpu).unwrap(), (cpu + 10).to_ne_bytes());
        }
        assert_eq!((at(&key, CPUS), at(&key, u32::MAX)), (None, None));
        assert_eq!(at(&9u32.to_ne_bytes(), 0), None);
    }
    let shared = map(MapKind::Array, 4, 4, 4);
    // SAFETY: as above.
    assert!(inside(&shared, 0, |own| unsafe { shared.lookup_percpu_ptr([0; 4].as_ptr(), 0, own) }.is_null()));
}
