//! Values with a lock: programs and the host change two counters together, from many threads and from signal
//! handlers, in both engines.

use skep::{Engine, Error, Map, MapError, Module, Object, Program, Runtime, UpdateFlags};
use skep_testkit::while_interrupted;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("objects/sections/locks.bpf.o");
/// The element that the programs use.
const KEY: [u8; 4] = 1u32.to_ne_bytes();
const BUSY: i32 = 16;

fn load() -> Module {
    let object = Object::parse(OBJECT).unwrap();
    let module = Runtime::new().unwrap().linker(&object).buffer_len(8).load().unwrap();
    module.map("table").unwrap().update(&KEY, &value(0), UpdateFlags::Any).unwrap();
    module
}

/// `struct pair` with equal counters.
fn value(both: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&both.to_ne_bytes());
    bytes[16..].copy_from_slice(&both.to_ne_bytes());
    bytes
}

fn counters(value: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().unwrap());
    assert_eq!(word(8), 0, "neither the lock nor what is beside it");
    (word(0), word(16))
}

fn run(program: &Program, engine: Engine) -> i32 {
    program.run_raw_with(engine, &mut [0; 8]).unwrap() as i32
}

#[test]
fn changes_under_the_lock_are_never_seen_in_part() {
    for name in ["array", "table"] {
        let module = load();
        let (add, differ) =
            (format!("add_{name}"), module.program(&format!("differ_{name}")).unwrap().clone());
        let (add, map) = (module.program(&add).unwrap(), module.map(name).unwrap());
        const ROUNDS: u64 = 4_000;
        std::thread::scope(|scope| {
            for engine in ENGINES {
                let differ = &differ;
                scope.spawn(move || (0..ROUNDS).for_each(|_| assert_eq!(run(add, engine), 0)));
                scope.spawn(move || (0..ROUNDS).for_each(|_| assert_eq!(run(differ, engine), 0)));
            }
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let (first, second) = counters(&map.lookup_locked(&KEY).unwrap().unwrap());
                    assert_eq!(first, second);
                }
            });
        });
        let last = map.lookup(&KEY).unwrap().unwrap();
        assert_eq!(counters(&last), (2 * ROUNDS, 2 * ROUNDS), "{name}: no addition is lost");
    }
}

#[test]
fn updates_under_the_lock_are_atomic() {
    for name in ["array", "table"] {
        let module = load();
        let map = module.map(name).unwrap();
        let program = |what: &str| module.program(&format!("{what}_{name}")).unwrap();
        let (set, add, differ) = (program("set"), program("add"), program("differ"));
        const ROUNDS: u64 = 4_000;
        std::thread::scope(|scope| {
            for engine in ENGINES {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut buffer = (round << 32).to_ne_bytes();
                        assert_eq!(set.run_raw_with(engine, &mut buffer).unwrap(), 0);
                        assert_eq!(add.run_raw_with(engine, &mut buffer).unwrap(), 0);
                        assert_eq!(differ.run_raw_with(engine, &mut buffer).unwrap(), 0);
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    map.update(&KEY, &value(round << 32), UpdateFlags::Exist.locked()).unwrap();
                    let (first, second) = counters(&map.lookup_locked(&KEY).unwrap().unwrap());
                    assert_eq!(first, second);
                }
            });
        });
    }
}

#[test]
fn an_update_with_the_lock_creates_a_missing_element() {
    let module = load();
    let table = module.map("table").unwrap();
    for engine in ENGINES {
        table.delete(&KEY).unwrap();
        let set = module.program("set_table").unwrap();
        assert_eq!(set.run_raw_with(engine, &mut 5u64.to_ne_bytes()).unwrap(), 0);
        assert_eq!(counters(&table.lookup_locked(&KEY).unwrap().unwrap()), (5, 5));
    }
}

/// A handler that interrupts the holder of a lock must not wait for it: the test plays both.
#[test]
fn a_thread_that_holds_a_lock_runs_no_program_that_takes_one() {
    let module = load();
    let array: &Map = module.map("array").unwrap();
    let mut word = 0u32;
    let at = (&raw mut word).cast();
    // SAFETY: the word is this thread's own lock.
    unsafe { skep_maps::lock::acquire(at) };
    for engine in ENGINES {
        for name in ["add_array", "differ_table"] {
            let refused = module.program(name).unwrap().run_raw_with(engine, &mut [0; 8]).unwrap_err();
            assert!(matches!(refused, Error::LockHeld), "{refused}");
        }
        let set = module.program("set_array").unwrap();
        assert_eq!(set.run_raw_with(engine, &mut [0; 8]).unwrap() as i32, -BUSY);
        // This program takes no lock.
        let replace = module.program("replace_table").unwrap();
        assert_eq!(replace.run_raw_with(engine, &mut [0; 8]).unwrap(), 0);
    }
    let refused = array.update(&KEY, &value(1), UpdateFlags::Any.locked()).unwrap_err();
    assert!(matches!(refused, MapError::LockHeld { .. }) && refused.errno() == BUSY, "{refused}");
    assert!(matches!(array.lookup_locked(&KEY), Err(MapError::LockHeld { .. })));
    // SAFETY: taken above.
    unsafe { skep_maps::lock::release(at) };
    assert_eq!(module.program("add_array").unwrap().run_raw(&mut [0; 8]).unwrap(), 0);
}

static INTERRUPTING: OnceLock<Program> = OnceLock::new();
static RAN: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: libc::c_int) {
    let Some(program) = INTERRUPTING.get() else { return };
    match program.run_raw(&mut [0; 8]) {
        Ok(_) => RAN.fetch_add(1, Ordering::Relaxed),
        Err(_) => REFUSED.fetch_add(1, Ordering::Relaxed),
    };
}

#[test]
fn programs_in_signal_handlers_neither_deadlock_nor_tear_values() {
    let module = load();
    let add = module.program("add_array").unwrap();
    // Created outside of the handler.
    assert!(ENGINES.iter().all(|engine| run(add, *engine) == 0));
    INTERRUPTING.set(add.clone()).unwrap();
    // SAFETY: the handler does only what handlers may do.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let mut own = 2;
    let enough = || REFUSED.load(Ordering::Relaxed) >= 20;
    while_interrupted(libc::SIGUSR1, enough, || {
        for engine in ENGINES {
            assert_eq!(run(add, engine), 0);
            own += 1;
        }
    });
    let all = own + RAN.load(Ordering::Relaxed);
    let last = module.map("array").unwrap().lookup(&KEY).unwrap().unwrap();
    assert_eq!(counters(&last), (all, all));
    assert!(REFUSED.load(Ordering::Relaxed) > 0, "of {} signals", all - own);
}

#[test]
fn a_map_without_the_lock_cannot_replace_one_with_it() {
    let (object, runtime) = (Object::parse(OBJECT).unwrap(), Runtime::new().unwrap());
    let load = |fields: bool| {
        let first = runtime.linker(&object).buffer_len(8).load().unwrap();
        let mut def = first.map("table").unwrap().def().clone();
        if !fields {
            def.fields.clear();
        }
        let options = skep_maps::Options { cpus: runtime.cpus(), limit: 1 << 30 };
        let memory = first.map("table").unwrap().reuse().clone();
        let given = Arc::new(Map::create_in(&memory, &def, &options).unwrap());
        runtime.linker(&object).buffer_len(8).map("table", given).load()
    };
    load(true).unwrap();
    let error = load(false).unwrap_err();
    assert!(error.to_string().contains("a struct bpf_spin_lock of 4 bytes at 8"), "{error}");
}
