//! Tests of internals: walkers of hash tables that are disturbed at chosen moments.

use super::*;
use skep_mem::Policy;
use skep_rcu::Domain;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;
use std::time::{Duration, Instant};

/// Immediate reuse, so that a change can reuse the element on which a walker stands.
fn memory() -> Reclamation {
    Reclamation { policy: Policy::Immediate, ..Reclamation::new(Domain::new(1).unwrap()) }
}

fn table(max_entries: u32) -> Hash {
    Hash::new(&plan(max_entries), usize::MAX, &memory(), None).unwrap()
}

fn plan(max_entries: u32) -> Plan {
    Plan {
        key_size: 8,
        value_size: 24,
        max_entries,
        cpus: 1,
        per_cpu: false,
        lru: false,
        on_demand: false,
        owns: false,
        seed: crate::seed::Seed::random(),
    }
}

fn set(table: &Hash, key: u64, value: u64) -> Result<(), OpError> {
    let value = [value; 3];
    // SAFETY: key and value have the table's sizes.
    unsafe {
        table.update(
            (&raw const key).cast(),
            Source::All(value.as_ptr().cast()),
            UpdateFlags::Any,
            Caller::Host,
        )
    }
}

fn delete(table: &Hash, key: u64) {
    // SAFETY: the key has the table's size.
    unsafe { table.delete((&raw const key).cast(), Caller::Host) }.unwrap();
}

fn read(table: &Hash, key: u64) -> Option<[u64; 3]> {
    let mut value = [0; 3];
    // SAFETY: key and value have the table's sizes.
    unsafe { table.read((&raw const key).cast(), value.as_mut_ptr().cast(), Caller::Host) }
        .unwrap()
        .then_some(value)
}

/// Keys of one bucket, and keys of another.
fn crowds(table: &Hash) -> (Vec<u64>, Vec<u64>) {
    let in_bucket = |bucket: u64| {
        (0_u64..).filter(move |&key| table.seed.hash(&[key]) & table.mask == bucket).take(8).collect()
    };
    (in_bucket(0), in_bucket(1))
}

/// Looks a key up and runs `disturbance` when the walk has passed `hops` elements; returns the value's first word.
fn look_up_disturbed(table: &Hash, key: u64, hops: u32, disturbance: impl Fn()) -> Option<u64> {
    let mut passed = 0;
    let bucket = table.bucket_of(&[key]);
    let found = bucket.version.read(Caller::Host, |walk| {
        table.walk(bucket, &[key], || {
            passed += 1;
            if passed == hops {
                disturbance();
            }
            walk.is_astray()
        })
    });
    assert!(passed >= hops, "the walk was over after {passed} hops");
    // SAFETY: values are words, and no thread writes them now.
    found.map(|element| unsafe { table.values_at(element).cast::<u64>().read() })
}

#[test]
fn a_walker_finds_later_elements_after_its_element_changes_bucket() {
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
fn a_walker_finds_elements_skipped_by_a_reused_element() {
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
fn a_walker_finds_an_updated_key_and_its_memory_s_new_key() {
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
fn a_walker_recovers_from_the_list_of_free_elements() {
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
fn in_place_updates_show_readers_whole_values() {
    let table = table(2);
    set(&table, 1, 0).unwrap();
    // SAFETY: a thread without a slot.
    let spares: Vec<_> =
        std::iter::from_fn(|| unsafe { Spare::take(&table.elements, Caller::Host) }.ok()).collect();
    assert_eq!(table.elements.stats().in_use, spares.len() + 1);
    let (before, done) = (table.find(&[1], Caller::Host).unwrap(), AtomicBool::new(false));
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
    assert_eq!(table.find(&[1], Caller::Host).unwrap().0, before.0);
    drop(spares);
    // The keeper, under pressure, may hold the freed objects for a moment.
    let begin = Instant::now();
    while table.find(&[1], Caller::Host).unwrap().0 == before.0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "updates go on writing in place");
        set(&table, 1, 5).unwrap();
    }
    assert_eq!(read(&table, 1), Some([5; 3]));
}

/// Waits until `threads` threads have started, and gives them time to reach their wait. If they do not reach it in
/// time, the test checks less, but does not fail.
fn let_run(started: &AtomicU32, threads: u32) {
    while started.load(Ordering::Relaxed) < threads {
        thread::yield_now();
    }
    thread::sleep(std::time::Duration::from_millis(5));
}

#[test]
fn an_insertion_reports_no_memory_or_a_full_map() {
    for per_cpu in [false, true] {
        let table = Hash::new(&Plan { per_cpu, ..plan(2) }, usize::MAX, &memory(), None).unwrap();
        set(&table, 1, 1).unwrap();
        // As if updates in flight and objects that wait for readers used them all. SAFETY: a thread without a slot.
        let spares: Vec<_> =
            std::iter::from_fn(|| unsafe { Spare::take(&table.elements, Caller::Host) }.ok()).collect();
        assert!(matches!(set(&table, 2, 2), Err(OpError::NoMemory(Error::Exhausted { .. }))));
        assert_eq!(table.len(), 1);
        drop(spares);
        set(&table, 2, 2).unwrap();
        // SAFETY: a thread without a slot.
        let _spares: Vec<_> =
            std::iter::from_fn(|| unsafe { Spare::take(&table.elements, Caller::Host) }.ok()).collect();
        assert_eq!(set(&table, 3, 3), Err(OpError::Full));
    }
}

#[test]
fn one_of_two_waiting_inserters_inserts_the_key() {
    for per_cpu in [false, true] {
        let table = Hash::new(&Plan { per_cpu, ..plan(4) }, usize::MAX, &memory(), None).unwrap();
        let started = AtomicU32::new(0);
        let insert = || {
            let (key, value) = (7_u64, [7_u64; 3]);
            started.fetch_add(1, Ordering::Relaxed);
            // SAFETY: key and value have the table's sizes.
            unsafe {
                let (key, source) = ((&raw const key).cast(), Source::All(value.as_ptr().cast()));
                table.update(key, source, UpdateFlags::NoExist, Caller::Host)
            }
        };
        let held = table.bucket_of(&[7]).version.lock(Caller::Host).unwrap();
        thread::scope(|scope| {
            let both = [scope.spawn(insert), scope.spawn(insert)];
            let_run(&started, 2);
            drop(held);
            let results = both.map(|one| one.join().unwrap());
            assert!(matches!(results, [Ok(()), Err(OpError::Exists)] | [Err(OpError::Exists), Ok(())]));
        });
        assert_eq!(table.len(), 1);
    }
}

/// A signal handler that interrupts its own thread while that holds a bucket's lock.
#[test]
fn a_handler_inside_a_bucket_s_change_reads_but_cannot_change() {
    for (per_cpu, lru) in [(false, false), (true, false), (false, true), (true, true)] {
        let table = Hash::new(&Plan { per_cpu, lru, ..plan(8) }, usize::MAX, &memory(), None).unwrap();
        (0..8).for_each(|key| set(&table, key, key).unwrap());
        let section = table.elements.domain().enter().unwrap();
        let caller = Caller::Cpu(section.number());
        let (old, new, value) = (3_u64, 1_000_u64, [9_u64; 3]);
        let (at, source) = ((&raw const old).cast(), Source::All(value.as_ptr().cast()));
        let here = table.bucket_of(&[old]);
        let there: u64 = (2_000..).find(|key| !ptr::eq(table.bucket_of(&[*key]), here)).unwrap();
        let new = (new..).find(|key| ptr::eq(table.bucket_of(&[*key]), here)).unwrap();
        let used = table.elements.stats().in_use;
        let held = here.version.lock(caller).unwrap();
        // SAFETY: keys and values have the table's sizes, and the CPU is this thread's.
        unsafe {
            for mode in [UpdateFlags::Any, UpdateFlags::Exist] {
                assert_eq!(table.update(at, source, mode, caller), Err(OpError::Busy));
            }
            assert_eq!(
                table.update((&raw const new).cast(), source, UpdateFlags::Any, caller),
                Err(OpError::Busy)
            );
            assert_eq!(table.delete(at, caller), Err(OpError::Busy));
            let mut out = [0_u64; 3];
            assert_eq!(table.take(at, out.as_mut_ptr().cast(), caller), Err(OpError::Busy));
            assert_eq!(table.read(at, out.as_mut_ptr().cast(), caller), Err(OpError::Busy));
            assert!(!table.lookup(at, section.number()).is_null());
            assert!(table.lookup((&raw const new).cast(), section.number()).is_null());
            let mut met = 0;
            table.for_each(section.number(), 100, &mut |_, _| {
                met += 1;
                true
            });
            let (mut all, mut cursor) = (Batch::new(), Cursor::default());
            table.batch(&mut cursor, &mut all, caller);
            assert_eq!((met, all.len(), table.len(), table.elements.stats().in_use), (8, 8, 8, used));
            // Tables that evict take elements of other buckets.
            let there = table.update((&raw const there).cast(), source, UpdateFlags::Any, caller);
            assert_eq!((there, table.len()), if lru { (Ok(()), 8) } else { (Err(OpError::Full), 8) });
        }
        drop(held);
        // SAFETY: as above.
        assert_eq!(unsafe { table.delete(at, caller) }, Ok(()));
        assert_eq!((table.len(), table.elements.stats().in_use), (7, used - 1));
    }
}

#[test]
fn a_table_evicts_nothing_from_a_locked_bucket() {
    let table = Hash::new(&Plan { lru: true, ..plan(4) }, usize::MAX, &memory(), None).unwrap();
    let (here, there) = crowds(&table);
    here[..4].iter().for_each(|key| set(&table, *key, 0).unwrap());
    let section = table.elements.domain().enter().unwrap();
    let (caller, value) = (Caller::Cpu(section.number()), [0_u64; 3]);
    let insert = || {
        let (at, source) = (there.as_ptr().cast(), Source::All(value.as_ptr().cast()));
        // SAFETY: key and value have the table's sizes, and the CPU is this thread's.
        unsafe { table.update(at, source, UpdateFlags::Any, caller) }
    };
    let held = table.bucket(0).version.lock(caller).unwrap();
    assert_eq!(insert(), Err(OpError::Busy));
    assert_eq!((table.len(), table.elements.stats().in_use), (4, 4));
    drop(held);
    assert_eq!((insert(), table.len()), (Ok(()), 4));
}

#[test]
fn nothing_is_evicted_for_a_key_whose_bucket_is_locked() {
    let table = Hash::new(&Plan { lru: true, ..plan(4) }, usize::MAX, &memory(), None).unwrap();
    let (here, there) = crowds(&table);
    here[..4].iter().for_each(|key| set(&table, *key, 0).unwrap());
    let section = table.elements.domain().enter().unwrap();
    let (at, value) = (there.as_ptr().cast(), [0_u64; 3]);
    let held = table.bucket(1).version.lock(Caller::Cpu(section.number() + 1)).unwrap();
    // SAFETY: key and value have the table's sizes, and the CPU is this thread's.
    let refused = unsafe {
        table.update(at, Source::All(value.as_ptr().cast()), UpdateFlags::Any, Caller::Cpu(section.number()))
    };
    assert_eq!((refused, table.len()), (Err(OpError::Busy), 4));
    drop(held);
    assert!(here[..4].iter().all(|key| read(&table, *key).is_some()));
}

#[test]
fn a_walk_ends_though_each_visit_inserts_another_element() {
    let table = table(1); // one bucket
    set(&table, 1, 0).unwrap();
    let mut visits = 0;
    let mut visit = |key: *const u8, _: *mut u8| {
        // SAFETY: keys are words.
        let key = unsafe { key.cast::<u64>().read() };
        delete(&table, key);
        set(&table, key + 1, 0).unwrap();
        visits += 1;
        true
    };
    // SAFETY: there is one CPU.
    unsafe { table.for_each(0, 1000, &mut visit) };
    assert_eq!(visits, 1000);
}

#[test]
fn used_elements_stay_and_unused_ones_are_evicted() {
    let table = Hash::new(&Plan { lru: true, ..plan(100) }, usize::MAX, &memory(), None).unwrap();
    let section = table.elements.domain().enter().unwrap();
    // SAFETY: a key of the table's size, and the thread's slot.
    let used = |key: u64| !unsafe { table.lookup((&raw const key).cast(), section.number()) }.is_null();
    (0..100).for_each(|key| set(&table, key, key).unwrap());
    for new in 100..1000 {
        assert!((0..50).all(used), "before {new}");
        set(&table, new, new).unwrap();
        assert_eq!(table.len(), 100);
    }
    assert!((0..50).all(used));
    assert!((50..950).filter(|key| read(&table, *key).is_some()).count() <= 50);
}

#[test]
fn a_table_of_used_elements_still_evicts() {
    for per_cpu in [false, true] {
        let table = Hash::new(&Plan { lru: true, per_cpu, ..plan(8) }, usize::MAX, &memory(), None).unwrap();
        for key in 0..1000 {
            set(&table, key, key).unwrap();
            set(&table, key, key).unwrap(); // which marks it
            assert_eq!(table.len(), 8.min(key as u32 + 1));
            assert_eq!(read(&table, key), Some([key; 3]));
        }
    }
}

#[test]
fn concurrent_insertions_into_a_full_table_find_room() {
    let table = Hash::new(&Plan { lru: true, ..plan(16) }, usize::MAX, &memory(), None).unwrap();
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let table = &table;
            scope.spawn(move || (0..5_000).for_each(|key| set(table, worker << 32 | key, key).unwrap()));
        }
    });
    assert_eq!(table.len(), 16);
}
