//! Batches behave as Linux documents.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{create, def, map, prefix};
use proptest::prelude::*;
use skep_abi::MapKind;
use skep_maps::{BatchCursor, Map, MapError, UpdateFlags};

const KINDS: [MapKind; 5] =
    [MapKind::Array, MapKind::PercpuArray, MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie];

fn made(kind: MapKind, max_entries: u32) -> Map {
    map(kind, if kind == MapKind::LpmTrie { 8 } else { 4 }, 8, max_entries)
}

fn key(kind: MapKind, number: u32) -> Vec<u8> {
    if kind == MapKind::LpmTrie { prefix(32, &number.to_be_bytes()) } else { number.to_ne_bytes().to_vec() }
}

fn value(map: &Map, number: u32) -> Vec<u8> {
    let words = map.host_value_size() / 8;
    (0..words).flat_map(|cpu| (u64::from(number) << 8 | cpu as u64).to_ne_bytes()).collect()
}

/// Reads a map in batches; enlarges a batch that is too small, as the error says.
fn through(map: &Map, sizes: impl IntoIterator<Item = usize>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut cursor, mut found) = (BatchCursor::default(), Vec::new());
    let mut sizes = sizes.into_iter();
    while !cursor.is_at_end() {
        let mut count = sizes.next().unwrap_or(7);
        let batch = loop {
            match map.lookup_batch(&mut cursor, count) {
                // Other threads may need it larger still.
                Err(MapError::BucketLarger { needed, .. }) => {
                    assert!(needed > count);
                    count = needed;
                }
                batch => break batch.unwrap(),
            }
        };
        found.extend(batch);
    }
    assert_eq!(map.lookup_batch(&mut cursor, 10).unwrap(), [], "nothing follows the end");
    assert!(cursor.is_at_end());
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_what_single_operations_would_be(
        numbers in proptest::collection::vec(0_u32..60, 1..80),
        deleted in proptest::collection::vec(0_u32..60, 1..20),
        flags in prop_oneof![Just(UpdateFlags::Any), Just(UpdateFlags::NoExist), Just(UpdateFlags::Exist)],
        sizes in proptest::collection::vec(1_usize..20, 1..40),
        room in 20_u32..70,
    ) {
        for kind in KINDS {
            let (batched, single) = (made(kind, room), made(kind, room));
            for map in [&batched, &single] {
                map.update(&key(kind, 3), &value(map, 1), UpdateFlags::Any).unwrap();
            }
            // The first failure ends the batch.
            let entries = numbers.iter().map(|&number| (key(kind, number), value(&batched, number)));
            let expected = entries.clone().map(|(key, value)| single.update(&key, &value, flags));
            let expected: Vec<_> = expected.take(numbers.len()).collect();
            let ended = expected.iter().position(Result::is_err);
            // The batch must not do what the single operations did after the error.
            let single = made(kind, room);
            single.update(&key(kind, 3), &value(&single, 1), UpdateFlags::Any).unwrap();
            for (key, value) in entries.clone().take(ended.unwrap_or(numbers.len())) {
                single.update(&key, &value, flags).unwrap();
            }
            match (batched.update_batch(entries, flags), ended) {
                (Ok(done), None) => prop_assert_eq!(done, numbers.len()),
                (Err(error), Some(at)) => {
                    prop_assert_eq!(error.done, at);
                    prop_assert_eq!(error.errno(), expected[at].as_ref().unwrap_err().errno());
                }
                (result, ended) => prop_assert!(false, "{result:?} where {ended:?}"),
            }
            let all: Vec<_> = single.entries().collect();
            let found = through(&batched, sizes.iter().copied());
            prop_assert_eq!(found.len(), all.len());
            let sorted = |list: Vec<(Vec<u8>, Vec<u8>)>| list.into_iter().collect::<BTreeMap<_, _>>();
            prop_assert_eq!(sorted(found), sorted(all));

            let keys = deleted.iter().map(|&number| key(kind, number));
            let done = keys.clone().take_while(|key| single.delete(key).is_ok()).count();
            match batched.delete_batch(keys) {
                Ok(all) => prop_assert_eq!((all, done), (deleted.len(), deleted.len())),
                Err(error) => prop_assert_eq!(error.done, done),
            }
            prop_assert_eq!(batched.len(), single.len());

            if matches!(kind, MapKind::Hash | MapKind::PercpuHash) {
                let all: BTreeMap<_, _> = single.entries().collect();
                let mut one = all.clone();
                for number in 0..60 {
                    let key = key(kind, number);
                    prop_assert_eq!(single.lookup_and_delete(&key).unwrap(), one.remove(&key));
                }
                prop_assert_eq!(single.len(), 0);
                let (mut cursor, mut taken) = (BatchCursor::default(), BTreeMap::new());
                let mut sizes = sizes.iter().copied().chain(std::iter::repeat(60));
                while !cursor.is_at_end() {
                    match batched.lookup_and_delete_batch(&mut cursor, sizes.next().unwrap_or(60)) {
                        Ok(batch) => taken.extend(batch),
                        Err(error) => prop_assert_eq!(error.errno(), 28),
                    }
                }
                prop_assert_eq!((taken, batched.len()), (all, 0));
            }
        }
    }
}

#[test]
fn a_too_small_batch_names_the_required_size() {
    let table = made(MapKind::Hash, 1024);
    let all = (0..1024u32).map(|number| (number.to_ne_bytes(), u64::from(number).to_ne_bytes()));
    assert_eq!(table.update_batch(all, UpdateFlags::Any).unwrap(), 1024);
    let (mut cursor, mut found) = (BatchCursor::default(), 0);
    let error = loop {
        match table.lookup_batch(&mut cursor, 1) {
            Ok(batch) => found += batch.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), 28);
    let MapError::BucketLarger { needed, count: 1, .. } = error else { panic!("{error}") };
    // Nothing is lost: the next batch continues at the same place.
    let batch = table.lookup_batch(&mut cursor, needed).unwrap();
    assert_eq!(batch.len(), needed);
    found += needed;
    while !cursor.is_at_end() {
        found += table.lookup_batch(&mut cursor, 100).unwrap().len();
    }
    assert_eq!(found, 1024);
}

#[test]
fn errors_say_how_many_elements_were_processed() {
    let table = made(MapKind::Hash, 2);
    let entries = (0..5u32).map(|number| (number.to_ne_bytes(), [0; 8]));
    let error = table.update_batch(entries, UpdateFlags::Any).unwrap_err();
    assert_eq!((error.done, error.errno()), (2, 7));
    assert!(error.to_string().starts_with("map `m`: no room for key 02 00 00 00"), "{error}");
    assert!(error.to_string().ends_with("(element 2 of the batch; those before it are done)"), "{error}");
    let error = table.delete_batch([[0; 4], [9; 4]]).unwrap_err();
    assert_eq!((error.done, error.errno(), table.len()), (1, 2, 1));
    table.freeze().unwrap();
    let error = table.update_batch([([0; 4], [0; 8])], UpdateFlags::Any).unwrap_err();
    assert_eq!((error.done, error.errno()), (0, 1));
    let programs = create(&def(MapKind::ProgArray, 4, 4, 2)).unwrap();
    assert_eq!(programs.lookup_batch(&mut BatchCursor::default(), 5).unwrap_err().errno(), 22);
}

#[test]
fn elements_that_stay_are_returned_once_during_changes() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie] {
        let map = made(kind, 400);
        for number in 0..100 {
            map.update(&key(kind, number), &value(&map, number), UpdateFlags::Any).unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let other = key(kind, 100 + round % 200);
                    map.update(&other, &value(&map, 0), UpdateFlags::Any).unwrap();
                    map.update(&key(kind, round % 100), &value(&map, round % 100), UpdateFlags::Exist)
                        .unwrap();
                    if !round.is_multiple_of(3) {
                        map.delete(&other).unwrap();
                    }
                }
            });
            let _stop = Stop(&stop);
            for round in 0..60 {
                let found = through(&map, std::iter::repeat(5 + round));
                for number in 0..100 {
                    let key = key(kind, number);
                    assert_eq!(found.iter().filter(|(found, _)| *found == key).count(), 1, "{kind} {number}");
                }
            }
        });
    }
}

/// Stops the writers when it is dropped, also when a test fails: otherwise they would run for ever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn each_element_is_taken_by_one_thread() {
    const KEYS: u32 = 64;
    for kind in [MapKind::Hash, MapKind::PercpuHash] {
        let map = made(kind, KEYS);
        let added = AtomicU32::new(0);
        let taken = AtomicU32::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _done = Stop(&done);
                let end = Instant::now() + Duration::from_secs(60);
                for number in (0..KEYS).cycle() {
                    if added.load(Ordering::Relaxed) > 2000 || Instant::now() > end {
                        break;
                    }
                    match map.update(&key(kind, number), &value(&map, number), UpdateFlags::NoExist) {
                        Ok(()) => _ = added.fetch_add(1, Ordering::Relaxed),
                        Err(MapError::Exists { .. } | MapError::NoMemory { .. } | MapError::Full { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            scope.spawn(|| {
                for number in (0..KEYS).cycle() {
                    match map.lookup_and_delete(&key(kind, number)).unwrap() {
                        Some(found) => {
                            assert_eq!(found, value(&map, number));
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                        None if done.load(Ordering::Acquire) && map.len() == 0 => break,
                        None => {}
                    }
                }
            });
            scope.spawn(|| {
                loop {
                    let mut cursor = BatchCursor::default();
                    while !cursor.is_at_end() {
                        let batch = map.lookup_and_delete_batch(&mut cursor, KEYS as usize).unwrap();
                        taken.fetch_add(batch.len() as u32, Ordering::Relaxed);
                    }
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                }
            });
        });
        let (added, taken) = (added.into_inner(), taken.into_inner());
        assert_eq!(added - taken, map.len());
        assert!(added > 1000, "{added}");
    }
}

#[test]
fn only_elements_of_hash_tables_are_taken() {
    for kind in [MapKind::Array, MapKind::PercpuArray, MapKind::LpmTrie] {
        let map = made(kind, 4);
        let text = format!("map `m`: elements of a map of kind {kind} cannot be looked up and deleted");
        let error = map.lookup_and_delete(&key(kind, 0)).unwrap_err();
        assert_eq!((error.to_string(), error.errno()), (text.clone(), 524));
        let error = map.lookup_and_delete_batch(&mut BatchCursor::default(), 1).unwrap_err();
        assert_eq!((error.to_string(), error.errno()), (text, 524));
    }
    let table = made(MapKind::Hash, 4);
    table.freeze().unwrap();
    assert_eq!(table.lookup_and_delete(&[0; 4]).unwrap_err().errno(), 1);
    assert_eq!(table.lookup_and_delete_batch(&mut BatchCursor::default(), 4).unwrap_err().errno(), 1);
}
