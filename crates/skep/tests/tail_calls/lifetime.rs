//! Lifetimes of programs and arrays: as long as they are reachable, and no longer.

use crate::kit::{BYTES, ENGINES, Kit, counts_and_goes_to, returns, run, to};
use skep::function::Caller;
use skep::{Engine, ProgramArray, Runtime};
use skep_rcu::Domain;
use std::sync::{Arc, Barrier, Mutex};

/// The array from which the host's function removes an element.
static OWN: Mutex<Option<ProgramArray>> = Mutex::new(None);

fn remove_first(_: Caller<'_>) -> u32 {
    let array = OWN.lock().unwrap();
    array.as_ref().map_or(99, |array| u32::from(array.remove(0).unwrap().is_some()))
}

#[test]
fn a_program_removes_itself_and_goes_on() {
    let kit = Kit::with(Runtime::builder().function(1000, "remove_first", remove_first), 2);
    *OWN.lock().unwrap() = Some(kit.array.clone());
    let main = kit.load("main", &format!("{}r0 = 7\nexit", to(0)));
    for engine in ENGINES {
        // Only the array keeps it alive.
        drop(
            kit.install(
                0,
                &format!("r6 = r1\ncall 1000\nr7 = r0\nr1 = r6\n{}r0 = r7\nr0 += 40\nexit", to(0)),
            ),
        );
        let run = || main.run_raw_with(engine, &mut [0; BYTES]).unwrap();
        assert_eq!([run(), run()], [41, 7], "{engine:?}");
    }
    *OWN.lock().unwrap() = None;
}

static INSIDE: Barrier = Barrier::new(2);
static REMOVED: Barrier = Barrier::new(2);

fn wait_inside(_: Caller<'_>) -> u32 {
    INSIDE.wait();
    REMOVED.wait();
    0
}

#[test]
fn a_target_freed_while_it_runs_finishes() {
    let kit = Kit::with(Runtime::builder().function(1000, "wait_inside", wait_inside), 2);
    let main = kit.load("main", &format!("{}r0 = 7\nexit", to(0)));
    for engine in ENGINES {
        drop(kit.install(0, "r6 = 35\ncall 1000\nr0 = r6\nr0 += 7\nexit"));
        std::thread::scope(|scope| {
            let runner = scope.spawn(|| main.run_raw_with(engine, &mut [0; BYTES]).unwrap());
            INSIDE.wait();
            drop(kit.array.remove(0).unwrap());
            // Everything reclaimable is reclaimed and filled with other code.
            for number in 0..200 {
                drop(kit.install(0, &returns(number)));
            }
            kit.array.remove(0).unwrap();
            REMOVED.wait();
            assert_eq!(runner.join().unwrap(), 42, "{engine:?}");
        });
        kit.runtime.synchronize().unwrap();
    }
}

/// Drops everything that can be dropped.
fn settle(domain: &Domain) {
    for _ in 0..8 {
        // Objects that the keeper drops may own more objects.
        domain.barrier().unwrap();
    }
}

/// The number of texts after everything unreachable is gone.
pub(crate) fn settled(runtime: &Runtime) -> usize {
    settle(runtime.arena().domain());
    runtime.occupancy().texts
}

#[test]
fn an_array_keeps_its_programs_and_drops_them() {
    let kit = Kit::new(4);
    let before = settled(&kit.runtime);
    // With a frame to unwind, so that there is a stub.
    let main = kit.load("main", &format!("r6 = 7\n{}r0 = r6\nexit", to(1)));
    drop(kit.install(1, &returns(5)));
    assert_eq!((settled(&kit.runtime) - before, run(&main)), (3, 5), "two programs and a stub");
    drop(kit.install(1, &returns(6)));
    assert_eq!((settled(&kit.runtime) - before, run(&main)), (3, 6));
    kit.array.remove(1).unwrap();
    assert_eq!((settled(&kit.runtime) - before, run(&main)), (1, 7));
    drop(main);
    assert_eq!(settled(&kit.runtime), before);
}

#[test]
fn reference_cycles_unreachable_from_the_host_are_collected() {
    for size in [1, 2, 7] {
        let kit = Kit::new(8);
        let before = settled(&kit.runtime);
        // An array of its own, to which all its programs refer.
        let other = Kit::with(Runtime::builder(), 8);
        drop(other);
        let def = skep::abi::MapDef::new("ring", skep::abi::MapKind::ProgArray, 4, 4, 8);
        let text = counts_and_goes_to(0);
        let object = |name: &str| crate::kit::object(name, &text, &def);
        let first = kit.runtime.linker(&object("first")).buffer_len(BYTES as u32).load().unwrap();
        let ring = first.program_array("ring").unwrap().clone();
        for index in 1..size {
            let object = object("next");
            let linker = kit.runtime.linker(&object).buffer_len(BYTES as u32);
            let next = linker.map("ring", ring.map().clone()).load().unwrap();
            ring.set(index, &next.programs()[0]).unwrap();
        }
        ring.set(0, &first.programs()[0]).unwrap();
        let (module, program) = (first.clone(), first.programs()[0].clone());
        drop(first);
        drop(ring);
        assert_eq!(settled(&kit.runtime) - before, 2 * size as usize, "held by the module");
        drop(module);
        assert_eq!(settled(&kit.runtime) - before, 2 * size as usize, "held by a program");
        assert_eq!(run(&program), 34);
        drop(program);
        assert_eq!(settled(&kit.runtime), before, "a ring of {size}");
    }
}

#[test]
fn an_array_keeps_everything_reachable_from_it_alive() {
    let kit = Kit::new(4);
    let main = kit.load("main", &format!("{}r0 = 7\nexit", to(0)));
    let def = skep::abi::MapDef::new("second", skep::abi::MapKind::ProgArray, 4, 4, 4);
    {
        // main -> the kit's array -> between -> second -> last -> second
        let between = crate::kit::object("between", &format!("{}r0 = 8\nexit", to(2)), &def);
        let between = kit.runtime.linker(&between).buffer_len(BYTES as u32).load().unwrap();
        let second = between.program_array("second").unwrap();
        let last = crate::kit::object("last", &counts_and_goes_to(2), &def);
        let linker = kit.runtime.linker(&last).buffer_len(BYTES as u32);
        let last = linker.map("second", second.map().clone()).load().unwrap();
        second.set(2, &last.programs()[0]).unwrap();
        kit.array.set(0, &between.programs()[0]).unwrap();
    }
    let all = settled(&kit.runtime);
    assert_eq!(run(&main), 32, "two tail calls were made before the first count");
    kit.array.remove(0).unwrap();
    assert_eq!((run(&main), all - settled(&kit.runtime)), (7, 3), "two programs and a stub");
}

#[test]
fn a_reference_cycle_is_dropped_with_its_runtime() {
    // Its log is dropped with it.
    let witness = Arc::new(());
    let log = Arc::clone(&witness);
    let builder = Runtime::builder().log(move |_, _| assert_eq!(*log, ()));
    let kit = Kit::with(builder, 2);
    let domain = kit.runtime.arena().domain().clone();
    let program = kit.install(0, &counts_and_goes_to(0));
    drop(kit);
    settle(&domain);
    assert_eq!((Arc::strong_count(&witness), run(&program)), (2, 34), "held by a program");
    drop(program);
    settle(&domain);
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn loading_and_dropping_programs_does_not_grow_memory() {
    let kit = Kit::new(2);
    let main = kit.load("main", &format!("{}r0 = 7\nexit", to(0)));
    let mut after = Vec::new();
    for round in 0..6 {
        for number in 0..300 {
            drop(kit.install(0, &returns(number)));
            assert_eq!(main.run_raw_with(Engine::Jit, &mut [0; BYTES]).unwrap(), number as u64);
            if number % 7 == 0 {
                kit.array.remove(0).unwrap();
            }
        }
        kit.array.remove(0).unwrap();
        after.push(settled(&kit.runtime));
        assert_eq!(after[0], after[round], "texts after {round} rounds");
    }
}
