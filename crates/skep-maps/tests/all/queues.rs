//! Queues, stacks and bloom filters: comparison with plain models, refusals, and many threads.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{create, def, map};
use proptest::prelude::*;
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, MapError, UpdateFlags};

fn queue(kind: MapKind, value_size: u32, max_entries: u32) -> Map {
    map(kind, 0, value_size, max_entries)
}

/// Pushes as a program does, from an unaligned address.
fn program_push(map: &Map, value: &[u8], flags: u64) -> i64 {
    assert_eq!(value.len(), map.def().value_size as usize);
    let shifted = [&[0], value].concat();
    // SAFETY: the value has the map's size.
    unsafe { map.push_ptr(shifted[1..].as_ptr(), flags) }
}

/// Pops or peeks as a program does; returns the result and the bytes written.
fn program_next(map: &Map, take: bool) -> (i64, Vec<u8>) {
    let mut value = vec![0xee; map.def().value_size as usize + 1];
    let out = value[1..].as_mut_ptr();
    // SAFETY: after its first byte `value` has the map's value size.
    let status = unsafe { if take { map.pop_ptr(out) } else { map.peek_ptr(out) } };
    (status, value.split_off(1))
}

fn errno<T>(result: Result<T, MapError>) -> i64 {
    result.map_or_else(|error| -i64::from(error.errno()), |_| 0)
}

#[derive(Clone, Debug)]
enum Op {
    Push { value: u8, flags: u64, program: bool },
    Next { take: bool, program: bool },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (any::<u8>(), prop_oneof![4 => 0..3_u64, 1 => 3..8_u64], any::<bool>())
            .prop_map(|(value, flags, program)| Op::Push { value, flags, program }),
        (any::<bool>(), any::<bool>()).prop_map(|(take, program)| Op::Next { take, program }),
    ];
    proptest::collection::vec(op, 1..200)
}

fn value(of: u8, size: usize) -> Vec<u8> {
    (0..size).map(|i| of.wrapping_add((i * 7) as u8)).collect()
}

proptest! {
    #[test]
    fn queues_and_stacks_are_what_their_models_are(
        stack in any::<bool>(), size in 1..40_usize, capacity in 1..9_u32, ops in ops()
    ) {
        let map = queue(if stack { MapKind::Stack } else { MapKind::Queue }, size as u32, capacity);
        let mut model = VecDeque::new();
        for op in ops {
            match op {
                Op::Push { value: of, flags, program } => {
                    let bytes = value(of, size);
                    let expected = match flags {
                        1 | 3.. => -22,
                        0 if model.len() == capacity as usize => -7,
                        _ => 0,
                    };
                    let pushed = match UpdateFlags::from_number(flags).filter(|_| !program) {
                        Some(flags) => errno(map.push(&bytes, flags)),
                        None => program_push(&map, &bytes, flags),
                    };
                    prop_assert_eq!(pushed, expected);
                    if expected == 0 {
                        if model.len() == capacity as usize {
                            model.pop_front();
                        }
                        model.push_back(bytes);
                    }
                }
                Op::Next { take, program } => {
                    let next = if stack { model.back() } else { model.front() }.cloned();
                    if program {
                        let status = if next.is_some() { 0 } else { -2 };
                        let left = next.unwrap_or_else(|| vec![0; size]);
                        prop_assert_eq!(program_next(&map, take), (status, left));
                    } else {
                        prop_assert_eq!(if take { map.pop() } else { map.peek() }, Ok(next));
                    }
                    if take && stack {
                        model.pop_back();
                    } else if take {
                        model.pop_front();
                    }
                }
            }
            prop_assert_eq!(map.len() as usize, model.len());
        }
    }

    #[test]
    fn what_was_pushed_is_in_the_filter(size in 1..80_usize, values in proptest::collection::vec(any::<u8>(), 1..50)) {
        let map = queue(MapKind::BloomFilter, size as u32, 50);
        let mut model = BTreeSet::new();
        for of in values {
            let bytes = value(of, size);
            if model.len().is_multiple_of(2) {
                prop_assert_eq!(map.push(&bytes, UpdateFlags::Any), Ok(()));
            } else {
                prop_assert_eq!(program_push(&map, &bytes, 0), 0);
            }
            model.insert(bytes);
            for bytes in &model {
                prop_assert_eq!(map.contains(bytes), Ok(true));
                let mut asked = bytes.clone();
                // SAFETY: it has the map's value size.
                prop_assert_eq!(unsafe { map.peek_ptr(asked.as_mut_ptr()) }, 0);
                prop_assert_eq!(&asked, bytes, "a peek only reads");
            }
        }
    }
}

#[test]
fn an_empty_filter_contains_nothing() {
    let map = queue(MapKind::BloomFilter, 8, 100);
    for number in 0..100_u64 {
        let mut bytes = number.to_ne_bytes();
        assert_eq!(map.contains(&bytes), Ok(false));
        // SAFETY: it has the map's value size.
        assert_eq!(unsafe { map.peek_ptr(bytes.as_mut_ptr()) }, -2);
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, MapError>, errno: i32, text: &str) {
    let error = result.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.errno()), (text, errno));
}

#[test]
fn refusals_say_what_is_wrong() {
    let any = UpdateFlags::Any;
    refused(
        create(&def(MapKind::Queue, 4, 8, 1)),
        22,
        "map `m`: key size 4 is invalid: kind queue requires 0",
    );
    refused(
        create(&def(MapKind::Stack, 0, 0, 1)),
        22,
        "map `m`: value size 0 is invalid: kind stack requires at least 1",
    );
    refused(
        create(&MapDef { extra: 16, ..def(MapKind::BloomFilter, 0, 8, 1) }),
        22,
        "map `m`: map_extra 0x10 is invalid: kind bloom_filter requires the number of hash functions, at most 15",
    );
    refused(
        create(&MapDef { extra: 1, ..def(MapKind::Queue, 0, 8, 1) }),
        22,
        "map `m`: map_extra 0x1 is invalid: kind queue requires 0",
    );
    refused(
        create(&MapDef { flags: MapFlags::NO_PREALLOC, ..def(MapKind::Queue, 0, 8, 1) }),
        22,
        "map `m`: flags 0x1 contain 0x1, which kind queue does not provide; it provides 0x180",
    );
    assert_eq!(create(&def(MapKind::Queue, 0, u32::MAX, u32::MAX)).unwrap_err().errno(), 7);

    let full = queue(MapKind::Queue, 1, 1);
    full.push(&[1], any).unwrap();
    refused(
        full.push(&[2], any),
        7,
        "map `m`: the map is full (1 elements): pop some, push with BPF_EXIST to drop the oldest, or raise max_entries",
    );
    refused(
        full.push(&[2], UpdateFlags::NoExist),
        22,
        "map `m`: invalid flags for a push to kind queue: use BPF_ANY or BPF_EXIST",
    );
    refused(full.push(&[2, 3], any), 22, "map `m`: the value has 2 bytes instead of 1");
    let keys = "map `m`: elements of kind queue have no keys: use `push`, `pop` and `peek`";
    refused(full.lookup(&[]), 22, keys);
    refused(full.lookup(&[0; 4]), 22, keys);
    refused(full.update(&[], &[1], any), 22, keys);
    refused(full.delete(&[]), 22, keys);
    refused(full.next_key(None), 22, keys);
    assert_eq!(full.entries().count(), 0);
    refused(full.contains(&[1]), 95, "map `m`: maps of kind queue have no `contains`");

    let filter = queue(MapKind::BloomFilter, 1, 10);
    refused(
        filter.push(&[1], UpdateFlags::Exist),
        22,
        "map `m`: invalid flags for a push to kind bloom_filter: use BPF_ANY",
    );
    refused(filter.pop(), 95, "map `m`: maps of kind bloom_filter have no `pop`");
    refused(filter.peek(), 95, "map `m`: maps of kind bloom_filter have no `peek`");
    refused(
        filter.delete(&[]),
        95,
        "map `m`: elements of kind bloom_filter have no keys: use `push` and `contains`",
    );
    assert_eq!((program_push(&filter, &[1], 2), program_next(&filter, true).0), (-22, -95));

    let array = map(MapKind::Array, 4, 1, 1);
    refused(array.push(&[1], any), 95, "map `m`: maps of kind array have no `push`");
    refused(array.pop(), 95, "map `m`: maps of kind array have no `pop`");
    assert_eq!((program_push(&array, &[1], 0), program_next(&array, true).0), (-95, -95));

    full.freeze().unwrap();
    refused(full.push(&[2], UpdateFlags::Exist), 1, "map `m` is frozen: the host can no longer change it");
    refused(full.pop(), 1, "map `m` is frozen: the host can no longer change it");
    assert_eq!(full.peek(), Ok(Some(vec![1])));
    assert_eq!(program_next(&full, true), (0, vec![1]), "programs still may");
}

#[test]
fn memory_is_that_of_the_elements() {
    assert_eq!(queue(MapKind::Queue, 12, 100).memory(), 1600);
    // 1000 * 5 / ln 2 bits, to the next power of two, plus the padding to a cache line.
    assert_eq!(queue(MapKind::BloomFilter, 12, 1000).memory(), 1024 + 48);
    let seven = MapDef { extra: 7, ..def(MapKind::BloomFilter, 0, 12, 1000) };
    assert_eq!(create(&seven).unwrap().memory(), 2048 + 48);
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

/// The result of a push to a full map, and of a pop from an empty one.
const FULL: i64 = -7;
const EMPTY: i64 = -2;
/// The result of both if the lock's holder was preempted for long: try again.
const BUSY: i64 = -16;

#[test]
fn every_element_is_popped_once_and_whole() {
    const EACH: u64 = 20_000;
    for kind in [MapKind::Queue, MapKind::Stack] {
        let map = queue(kind, 24, 64);
        let (left, seen) = (AtomicU64::new(4 * EACH), Mutex::new(Vec::new()));
        let alarm = AtomicBool::new(false);
        let again = |status: i64, reason| {
            assert!(status == reason || status == BUSY, "{kind}: {status}");
            assert!(!alarm.load(Ordering::Relaxed), "another thread failed");
            thread::yield_now();
        };
        thread::scope(|scope| {
            for producer in 0..4_u64 {
                let (map, alarm, again) = (&map, &alarm, &again);
                scope.spawn(move || {
                    let _alarm = Alarm(alarm);
                    for number in 0..EACH {
                        let words = [producer, number, producer ^ !number].map(u64::to_ne_bytes).concat();
                        loop {
                            match program_push(map, &words, 0) {
                                0 => break,
                                status => again(status, FULL),
                            }
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let _alarm = Alarm(&alarm);
                    let mut own = Vec::new();
                    while left.load(Ordering::Relaxed) > 0 {
                        let (status, bytes) = program_next(&map, true);
                        if status != 0 {
                            again(status, EMPTY);
                            continue;
                        }
                        left.fetch_sub(1, Ordering::Relaxed);
                        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
                        assert_eq!(word(16), word(0) ^ !word(8), "a mixture");
                        own.push((word(0), word(8)));
                    }
                    if kind == MapKind::Queue {
                        for producer in 0..4 {
                            let of = own.iter().filter(|(from, _)| *from == producer);
                            assert!(of.is_sorted_by_key(|(_, number)| *number), "out of order");
                        }
                    }
                    seen.lock().unwrap().extend(own);
                });
            }
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        let all = (0..4).flat_map(|producer| (0..EACH).map(move |number| (producer, number)));
        assert!(seen.into_iter().eq(all), "{kind}: some are missing or came twice");
    }
}

#[test]
fn a_filter_loses_nothing_that_threads_push_at_once() {
    let map = queue(MapKind::BloomFilter, 8, 40_000);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let map = &map;
            scope.spawn(move || {
                for number in 0..10_000_u64 {
                    let bytes = (number * 4 + thread).to_ne_bytes();
                    assert_eq!(program_push(map, &bytes, 0), 0);
                    assert_eq!(map.contains(&bytes), Ok(true));
                }
            });
        }
    });
    assert!((0..40_000_u64).all(|number| map.contains(&number.to_ne_bytes()).unwrap()));
}
