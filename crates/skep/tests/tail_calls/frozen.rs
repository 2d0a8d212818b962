//! Program arrays and tables of maps that the host has frozen.

use crate::keyed::{holding, load, numbers, table_of};
use crate::kit::{Kit, returns, run, to};
use skep::{Error, Map};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Two threads change a map while it is frozen; what is read after that does not change.
fn freeze_while<T: PartialEq>(
    map: &Map,
    change: impl Fn(usize) -> Result<bool, Error> + Sync,
    read: impl Fn() -> T,
) {
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let change = || {
        for round in 0.. {
            match change(round) {
                Ok(_) if done.load(Ordering::Relaxed) => return,
                Ok(_) => begun.store(true, Ordering::Relaxed),
                Err(error) => return assert!(error.to_string().contains("frozen"), "{error}"),
            }
        }
    };
    thread::scope(|scope| {
        let changing = [scope.spawn(change), scope.spawn(change)];
        while !begun.load(Ordering::Relaxed) {
            assert!(!changing.iter().all(|thread| thread.is_finished()), "no thread changes it");
            thread::yield_now();
        }
        map.freeze().unwrap();
        let now = read();
        let same = (0..200).all(|_| {
            thread::yield_now();
            read() == now
        });
        done.store(true, Ordering::Relaxed);
        assert!(same, "changed after freeze");
    });
}

#[test]
fn after_freezing_no_change_of_a_program_array_is_in_progress() {
    for kit in (0..20).flat_map(|_| [Kit::new(1), Kit::fixed(1)]) {
        let programs = [1, 2].map(|number| kit.load(&format!("returns_{number}"), &returns(number)));
        let main = kit.load("main", &format!("{}r0 = 7\nexit", to(0)));
        let change = |round: usize| match programs.get(round % 3) {
            Some(program) => kit.array.set(0, program).map(|old| old.is_some()),
            None => kit.array.remove(0).map(|old| old.is_some()),
        };
        let name = || kit.array.get(0).map(|program| program.name().to_owned());
        freeze_while(kit.array.map(), change, name);
        // In code, branches are patched too.
        kit.runtime.synchronize().unwrap();
        let expected = name().map_or(7, |name| if name == "returns_1" { 1 } else { 2 });
        assert_eq!(run(&main), expected);
        assert!(kit.array.remove(0).is_err());
    }
}

#[test]
fn after_freezing_no_change_of_a_table_of_maps_is_in_progress() {
    let kit = Kit::new(1);
    let maps = [1, 2].map(|number| holding(&kit, number));
    for _ in 0..20 {
        let module = load(&kit, "r0 = 0\nexit", table_of(numbers()));
        let table = module.map_hash("table").unwrap();
        let key = 5_u64.to_ne_bytes();
        let change = |round: usize| match maps.get(round % 3) {
            Some(map) => table.set(&key, map).map(|old| old.is_some()),
            None => table.remove(&key).map(|old| old.is_some()),
        };
        let found = || table.get(&key).and_then(|map| map.lookup(&[0; 4]).unwrap());
        freeze_while(table.map(), change, found);
    }
}

#[test]
fn later_programs_make_tail_calls_through_a_frozen_array() {
    for kit in [Kit::new(2), Kit::fixed(2)] {
        kit.install(0, &returns(5));
        kit.array.map().freeze().unwrap();
        let calls = |index| kit.load("main", &format!("{}r0 = 7\nexit", to(index)));
        assert_eq!([0, 1].map(|index| run(&calls(index))), [5, 7]);
        let late = kit.array.set(1, &kit.load("late", &returns(1)));
        assert!(late.is_err_and(|error| error.to_string().contains("frozen")));
    }
}
