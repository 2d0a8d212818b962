//! What only shows inside: walkers of hash tables that are disturbed at chosen moments.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

fn table(max_entries: u32) -> Hash {
    Hash::new(&plan(max_entries), usize::MAX).unwrap()
}

fn plan(max_entries: u32) -> Plan {
    Plan { key_size: 8, value_size: 24, max_entries, cpus: 1, per_cpu: false }
}

fn set(table: &Hash, key: u64, value: u64) -> Result<(), Fault> {
    let value = [value; 3];
    // SAFETY: key and value have the table's sizes.
    unsafe { table.update((&raw const key).cast(), Source::All(value.as_ptr().cast()), UpdateFlags::Any) }
}

fn delete(table: &Hash, key: u64) {
    // SAFETY: the key has the table's size.
    unsafe { table.delete((&raw const key).cast()) }.unwrap();
}

fn read(table: &Hash, key: u64) -> Option<[u64; 3]> {
    let mut value = [0; 3];
    // SAFETY: key and value have the table's sizes.
    unsafe { table.read((&raw const key).cast(), value.as_mut_ptr().cast()) }.then_some(value)
}

/// Keys of one bucket, and keys of another.
fn crowds(table: &Hash) -> (Vec<u64>, Vec<u64>) {
    let in_bucket = |bucket: u64| {
        (0_u64..).filter(move |&key| table.seed.hash(&[key]) & table.mask == bucket).take(8).collect()
    };
    (in_bucket(0), in_bucket(1))
}

/// Looks a key up and does something when the walk has passed so many elements; then the value's first word.
fn look_up_disturbed(table: &Hash, key: u64, hops: u32, disturbance: impl Fn()) -> Option<u64> {
    let mut passed = 0;
    let bucket = table.bucket_of(&[key]);
    let found = bucket.version.read(|walk| {
        table.walk(bucket, &[key], || {
            passed += 1;
            if passed == hops {
                disturbance();
            }
            walk.is_astray()
        })
    });
    assert!(passed >= hops, "the walk was over after {passed} hops");
    // SAFETY: values are words, and nobody writes them now.
    found.map(|element| unsafe { table.values_at(element).cast::<u64>().read() })
}

#[test]
fn a_walker_whose_element_moves_to_another_bucket_still_finds_what_was_behind_it() {
    let table = table(16);
    let (here, there) = crowds(&table);
    for &key in &here[..4] {
        set(&table, key, key).unwrap(); // the list is 3, 2, 1, 0
    }
    let found = look_up_disturbed(&table, here[0], 2, || {
        delete(&table, here[2]);
        set(&table, there[0], 0).unwrap(); // takes the memory that the walker stands on
    });
    assert_eq!(found, Some(here[0]));
}

#[test]
fn a_walker_whose_element_moves_further_back_still_finds_what_it_skipped() {
    let table = table(16);
    let (here, _) = crowds(&table);
    for &key in &here[..6] {
        set(&table, key, key).unwrap(); // the list is 5, 4, 3, 2, 1, 0
    }
    let found = look_up_disturbed(&table, here[3], 1, || {
        delete(&table, here[5]);
        set(&table, here[1], 0).unwrap(); // 1 is now where 5 was, and in its old place between 2 and 0
    });
    assert_eq!(found, Some(here[3]));
}

#[test]
fn a_walker_finds_a_key_that_is_updated_under_it_and_another_that_takes_its_old_memory() {
    let table = table(16);
    let (here, _) = crowds(&table);
    for &key in &here[..6] {
        set(&table, key, key).unwrap(); // the list is 5, 4, 3, 2, 1, 0
    }
    let found = look_up_disturbed(&table, here[2], 2, || {
        set(&table, here[4], 44).unwrap(); // frees what the walker stands on
        set(&table, here[0], 100).unwrap(); // takes it, behind what the walker looks for
    });
    assert_eq!(found, Some(here[2]));
    assert_eq!(read(&table, here[4]), Some([44; 3]));
    assert_eq!(read(&table, here[0]), Some([100; 3]));
}

#[test]
fn a_walker_that_strays_into_the_list_of_free_elements_comes_back() {
    let table = table(1000);
    let (here, _) = crowds(&table);
    for key in 0..1000 {
        set(&table, key << 32, 0).unwrap();
    }
    for key in 0..1000 {
        delete(&table, key << 32);
    }
    set(&table, here[0], 7).unwrap();
    set(&table, here[1], 1).unwrap(); // the list is 1, 0
    let found = look_up_disturbed(&table, here[0], 1, || delete(&table, here[1]));
    assert_eq!(found, Some(7));
}

#[test]
fn updates_without_a_spare_element_write_in_place_and_readers_still_see_whole_values() {
    let table = table(2);
    set(&table, 1, 0).unwrap();
    let spares: Vec<_> = std::iter::from_fn(|| Spare::take(&table).ok()).collect();
    assert_eq!(spares.len(), table.pool.capacity() - 1);
    let (before, done) = (table.find(&[1]).unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..=20_000 {
                set(&table, 1, value).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let [first, second, third] = read(&table, 1).unwrap();
            assert_eq!((first, first), (second, third), "a mixture of two values");
        }
    });
    assert_eq!(read(&table, 1), Some([20_000; 3]));
    assert_eq!(table.find(&[1]).unwrap().0, before.0);
    drop(spares);
    set(&table, 1, 5).unwrap();
    assert_ne!(table.find(&[1]).unwrap().0, before.0);
}

/// Waits until so many threads have started, and gives them the time to come to where they wait. Should they
/// not get there in time, a test tests less, but does not fail.
fn let_run(started: &AtomicU32, threads: u32) {
    while started.load(Ordering::Relaxed) < threads {
        thread::yield_now();
    }
    thread::sleep(std::time::Duration::from_millis(5));
}

#[test]
fn an_insertion_waits_for_an_element_while_there_is_room() {
    for per_cpu in [false, true] {
        let table = Hash::new(&Plan { per_cpu, ..plan(2) }, usize::MAX).unwrap();
        set(&table, 1, 1).unwrap();
        // As if updates and deletions in flight had them all.
        let spares: Vec<_> = std::iter::from_fn(|| Spare::take(&table).ok()).collect();
        let (started, inserted) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let inserter = scope.spawn(|| {
                started.fetch_add(1, Ordering::Relaxed);
                let result = set(&table, 2, 2);
                inserted.store(true, Ordering::Relaxed);
                result
            });
            let_run(&started, 1);
            let early = inserted.load(Ordering::Relaxed);
            drop(spares);
            assert_eq!((inserter.join().unwrap(), early), (Ok(()), false));
        });
        assert_eq!((read(&table, 2), table.len()), (Some([2; 3]), 2));
        // Without room it does not wait.
        let _spares: Vec<_> = std::iter::from_fn(|| Spare::take(&table).ok()).collect();
        assert_eq!(set(&table, 3, 3), Err(Fault::Full));
    }
}

#[test]
fn of_two_that_find_a_key_missing_and_wait_for_the_lock_one_inserts_it() {
    for per_cpu in [false, true] {
        let table = Hash::new(&Plan { per_cpu, ..plan(4) }, usize::MAX).unwrap();
        let started = AtomicU32::new(0);
        let insert = || {
            let (key, value) = (7_u64, [7_u64; 3]);
            started.fetch_add(1, Ordering::Relaxed);
            // SAFETY: key and value have the table's sizes.
            unsafe {
                let (key, source) = ((&raw const key).cast(), Source::All(value.as_ptr().cast()));
                table.update(key, source, UpdateFlags::NoExist)
            }
        };
        let held = table.bucket_of(&[7]).version.lock();
        thread::scope(|scope| {
            let both = [scope.spawn(insert), scope.spawn(insert)];
            let_run(&started, 2);
            drop(held);
            let results = both.map(|one| one.join().unwrap());
            assert!(matches!(results, [Ok(()), Err(Fault::Exists)] | [Err(Fault::Exists), Ok(())]));
        });
        assert_eq!(table.len(), 1);
    }
}
