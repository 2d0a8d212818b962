//! Runs that end early: by budgets, by other threads, by panics in functions of the host. Whatever a program holds
//! there is released, in both engines: `early.bpf.c` holds each kind of thing while it loops and calls the host.

use skep::abi::{RAW, XDP};
use skep::function::Caller;
use skep::isa::assemble;
use skep::world::{Cgroup, Machine, Task, World};
use skep::{
    Budget, Context, Engine, Error, Exhausted, Map, Module, Object, Packet, Program, RingBuffer, Runtime,
    RuntimeBuilder, UpdateFlags,
};
use skep_rcu::Grace;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/early/early.bpf.o");
/// Those that return after a bounded number of rounds.
const HOLDING: [&str; 12] = [
    "lock",
    "owners",
    "kept",
    "records",
    "callbacks",
    "iterators",
    "frames",
    "throws",
    "calls",
    "masks",
    "machine",
    "sections",
];

thread_local! {
    /// Calls of the host's function until it panics; 0 for never.
    static PANIC_AT: Cell<u32> = const { Cell::new(0) };
    /// What the host's function runs, inside of the run that calls it.
    static NESTED: RefCell<Option<Program>> = const { RefCell::new(None) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// The host's function.
fn host(place: u32) -> u32 {
    CALLS.set(CALLS.get() + 1);
    // Only one level: the inner run's calls find none.
    if let Some(nested) = NESTED.take() {
        let result = nested.run(&mut Packet::new(&[0; 64]));
        let ended = matches!(result, Ok(_) | Err(Error::BudgetExhausted { .. } | Error::HostPanicked { .. }));
        NESTED.set(Some(nested));
        if !ended {
            PANIC_AT.set(1);
        }
    }
    match PANIC_AT.get() {
        0 => {}
        1 => {
            PANIC_AT.set(0);
            panic!("at place {place}");
        }
        more => PANIC_AT.set(more - 1),
    }
    0
}

/// Panics of these tests are expected: they are not printed.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let owned = info.payload().downcast_ref::<String>().map(String::as_str);
            let text = owned.or_else(|| info.payload().downcast_ref::<&str>().copied()).unwrap_or_default();
            if !text.starts_with("at place") && !text.starts_with("the log") {
                before(info);
            }
        }));
    });
}

fn world() -> World {
    let mut machine = Machine::new();
    for (id, path, parent) in [(1, "/", None), (2, "/shop", Some(1))] {
        machine.cgroups.insert(id, Cgroup { id, path: path.to_owned(), parent, ..Cgroup::default() });
    }
    let task = |pid| Task { pid, tgid: pid, cgroup: 2, comm: format!("task-{pid}"), ..Task::default() };
    machine.task = Some(task(7));
    machine.tasks = [(8, task(8))].into();
    World::new(machine)
}

struct Loaded {
    runtime: Runtime,
    module: Module,
    /// The tasks and cgroups of the world that programs look up.
    objects: usize,
}

impl Loaded {
    fn new(builder: RuntimeBuilder) -> Self {
        quiet();
        let runtime =
            builder.world(&world()).cpus(8).function(1000, "host", host).build().expect("a runtime");
        let module = runtime.load(&Object::parse(OBJECT).expect("an object")).expect("it loads");
        let array = module.program_array("programs").expect("an array");
        array.set(0, module.program("records").expect("a program")).expect("an element");
        let mut loaded = Self { objects: 0, runtime, module };
        loaded.run(loaded.program("machine"), Engine::Jit).expect("it returns");
        loaded.objects = loaded.runtime.objects();
        loaded
    }

    fn charged() -> Self {
        Self::new(Runtime::builder().budget(Budget::UNLIMITED))
    }

    /// The same where compiled code also notes mistaken jumps in a register, hides its constants and waits before
    /// calls.
    fn untrusted() -> Self {
        Self::new(Runtime::builder().budget(Budget::UNLIMITED).untrusted())
    }

    fn program(&self, name: &str) -> &Program {
        self.module.program(name).unwrap_or_else(|| panic!("{name}"))
    }

    fn run(&self, program: &Program, engine: Engine) -> Result<u64, Error> {
        match program.program_type().name {
            "syscall" => program.run_context_with(engine, &mut Context::of(program).expect("a context")),
            _ => program.run_with(engine, &mut Packet::new(&[0; 64])),
        }
    }

    /// Asserts that this thread holds nothing of the runtime: no lock, record or section, and no object but those that
    /// maps own.
    #[track_caller]
    fn holds_nothing(&self, what: &str) {
        // A program that takes locks would be refused on a thread that holds one, and wait for ever for that of
        // another.
        CALLS.set(0);
        let again = self.run(self.program("lock"), Engine::Jit);
        assert!(matches!(again, Ok(0)), "{what}: {again:?}");
        let domain = self.runtime.arena().domain();
        assert!(domain.try_pass(domain.cookie(), Grace::Both), "{what}: in a section");
        // A record that is still reserved keeps those behind it from readers.
        let mut ring = RingBuffer::new(self.map("ring")).expect("a ring buffer");
        ring.for_each(|_| ());
        assert_eq!(ring.available(), 0, "{what}: a record is reserved");
    }

    fn map(&self, name: &str) -> &Arc<Map> {
        self.module.map(name).expect("a map")
    }

    /// Drops the maps; returns how many objects are left beside the world's.
    fn end(self) -> isize {
        let Self { runtime, module, objects } = self;
        drop(module);
        runtime.synchronize().expect("a grace period");
        runtime.objects() as isize - objects as isize
    }
}

/// In both engines with charged programs, or with panics only.
fn in_each(loaded: impl Fn() -> Loaded, test: impl Fn(&Loaded, Engine)) {
    for engine in ENGINES {
        let loaded = loaded();
        test(&loaded, engine);
        assert_eq!(loaded.end(), 0, "{engine:?}: objects are left");
    }
}

fn is_exhausted(result: &Result<u64, Error>) -> bool {
    matches!(result, Err(Error::BudgetExhausted { of: Exhausted::Units, .. }))
}

#[test]
fn whatever_a_program_holds_is_released_wherever_its_budget_ends() {
    for loaded in [Loaded::charged, Loaded::untrusted] {
        in_each(loaded, |loaded, engine| {
            for name in HOLDING {
                let program = loaded.program(name);
                let mut ended = 0;
                for units in 0.. {
                    let what = format!("{name} with {units} units, {engine:?}");
                    let short = program.with_budget(Budget::units(units)).expect("a budget");
                    let result = loaded.run(&short, engine);
                    loaded.holds_nothing(&what);
                    if !is_exhausted(&result) {
                        assert!(result.is_ok(), "{what}: {result:?}");
                        break;
                    }
                    ended += 1;
                }
                assert!(ended > 5, "{name} ended at {ended} budgets");
            }
        });
    }
}

#[test]
fn whatever_a_program_holds_is_released_wherever_the_host_panics() {
    for loaded in [Loaded::charged, Loaded::untrusted, || Loaded::new(Runtime::builder())] {
        in_each(loaded, |loaded, engine| {
            for name in HOLDING {
                for at in 1.. {
                    PANIC_AT.set(at);
                    CALLS.set(0);
                    let result = loaded.run(loaded.program(name), engine);
                    let (rest, calls) = (PANIC_AT.replace(0), CALLS.get());
                    let what = format!("{name}, call {at}, {engine:?}");
                    loaded.holds_nothing(&what);
                    match result {
                        Err(Error::HostPanicked { program, function, message }) => {
                            assert_eq!((&*program, &*function), (name, "host"), "{what}");
                            assert!(message.starts_with("at place "), "{what}: {message}");
                            assert_eq!(calls, at, "{what}: the program went on");
                        }
                        Ok(_) if rest > 0 => {
                            assert!(at > 1, "{what} panicked never");
                            break;
                        }
                        other => panic!("{what}: {other:?}"),
                    }
                }
            }
        });
    }
}

#[test]
fn runs_inside_of_runs_end_alone() {
    in_each(Loaded::charged, |loaded, engine| {
        for name in ["owners", "records", "callbacks", "frames"] {
            for inner in ["records", "owners", "kept"] {
                // The inner run ends by its budget, the outer one goes on, or ends later by its own.
                let short = loaded.program(inner).with_budget(Budget::units(9)).expect("a budget");
                for outer in [Budget::UNLIMITED, Budget::units(20)] {
                    let program = loaded.program(name).with_budget(outer).expect("a budget");
                    NESTED.set(Some(short.clone()));
                    let result = loaded.run(&program, engine);
                    NESTED.set(None);
                    let what = format!("{inner} in {name} with {outer:?}, {engine:?}");
                    loaded.holds_nothing(&what);
                    assert!(result.is_ok() || is_exhausted(&result), "{what}: {result:?}");
                }
            }
        }
    });
}

#[test]
fn a_panic_inside_of_a_run_inside_of_a_run_ends_the_inner_one() {
    in_each(Loaded::charged, |loaded, engine| {
        for (outer, inner) in [("records", "owners"), ("owners", "frames"), ("callbacks", "records")] {
            NESTED.set(Some(loaded.program(inner).clone()));
            PANIC_AT.set(2);
            let result = loaded.run(loaded.program(outer), engine);
            NESTED.set(None);
            PANIC_AT.set(0);
            loaded.holds_nothing(&format!("{inner} in {outer}, {engine:?}"));
            assert!(result.is_ok(), "{outer}: {result:?}");
        }
    });
}

#[test]
fn calls_that_multiply_end_as_loops_do() {
    in_each(Loaded::charged, |loaded, engine| {
        let short = loaded.program("product").with_budget(Budget::units(50_000)).expect("a budget");
        let result = loaded.run(&short, engine);
        assert!(is_exhausted(&result), "{result:?}");
        let late = loaded.program("product").with_budget(Budget::time(Duration::from_millis(1)));
        let result = loaded.run(&late.expect("a budget"), engine);
        assert!(matches!(result, Err(Error::BudgetExhausted { of: Exhausted::Time, .. })), "{result:?}");
    });
}

#[test]
fn another_thread_ends_the_runs_in_progress_and_no_later_ones() {
    in_each(Loaded::charged, |loaded, engine| {
        for of_program in [true, false] {
            let (program, over) = (loaded.program("product").clone(), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // The run may not have begun at the first try.
                    // Relaxed: the scope's end orders the rest.
                    while !over.load(Ordering::Relaxed) {
                        match of_program {
                            true => program.interrupt().expect("it is charged"),
                            false => loaded.runtime.interrupt(),
                        }
                        std::thread::yield_now();
                    }
                });
                // The other thread may not have begun: then the run returns.
                let result = (0..).map(|_| loaded.run(&program, engine)).find(Result::is_err);
                over.store(true, Ordering::Relaxed); // alone, as above
                assert!(matches!(result, Some(Err(Error::Interrupted { .. }))), "{result:?}");
            });
            loaded.holds_nothing("interrupted");
        }
    });
}

#[test]
fn a_budget_that_is_not_used_up_changes_nothing() {
    let traces = [
        None,
        Some(Budget::units(u64::MAX - 1)),
        Some(Budget::UNLIMITED.and_time(Duration::from_secs(9999))),
    ]
    .map(|budget| {
        ENGINES.map(|engine| {
            let builder = Runtime::builder();
            let loaded = Loaded::new(match budget {
                Some(budget) => builder.budget(budget),
                None => builder,
            });
            let mut trace = Vec::new();
            for name in HOLDING.repeat(3) {
                trace.push(loaded.run(loaded.program(name), engine).expect("it returns"));
                trace.push(CALLS.replace(0).into());
                trace.push(u64::from_ne_bytes(
                    loaded.module.variable("steps").expect("a variable").try_into().expect("8 bytes"),
                ));
            }
            trace
        })
    });
    let [[first, ..], ..] = &traces;
    assert!(traces.iter().flatten().all(|trace| trace == first), "{traces:?}");
}

#[test]
fn programs_without_checks_take_no_budget() {
    quiet();
    let loaded = Loaded::new(Runtime::builder());
    let program = loaded.program("lock");
    assert!(
        matches!(program.with_budget(Budget::units(1)), Err(Error::NoBudgets { program }) if program == "lock")
    );
    assert!(matches!(program.interrupt(), Err(Error::NoBudgets { .. })));
}

#[test]
fn a_panic_of_the_log_reaches_the_host() {
    quiet();
    for (budget, prints) in [(None, 2), (Some(Budget::UNLIMITED), 1)] {
        for engine in ENGINES {
            let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
            let seen = Arc::clone(&count);
            let mut builder = Runtime::builder().log(move |_, _| {
                // Relaxed: one thread.
                seen.fetch_add(1, Ordering::Relaxed);
                panic!("the log is full");
            });
            if let Some(budget) = budget {
                builder = builder.budget(budget);
            }
            let runtime = builder.build().expect("a runtime");
            // Prints, then loops, then prints.
            let print = "r1 = r10
                 r1 += -8
                 r2 = 3
                 call trace_printk#6
                 ";
            let text = format!(
                "*(u64 *)(r10 - 8) = 0
                 *(u8 *)(r10 - 8) = 104
                 {print}
                 r6 = 5
                 again: r6 += -1
                 if r6 != 0 goto again
                 {print}
                 r0 = 3
                 exit"
            );
            let object = Object::from_insns("talks", &XDP, assemble(&text).expect("assembles"));
            let module = runtime.load(&object).expect("it loads");
            let result = module.programs()[0].run_with(engine, &mut Packet::new(&[0; 64]));
            match result {
                Err(Error::HostPanicked { program, function, message }) => {
                    assert_eq!((&*program, &*function, &*message), ("talks", "the log", "the log is full"));
                }
                other => panic!("{other:?}"),
            }
            // Relaxed: as above.
            assert_eq!(count.load(Ordering::Relaxed), prints, "{budget:?} {engine:?}");
        }
    }
}

#[test]
fn a_packet_is_left_as_the_program_left_it() {
    quiet();
    let text = "r6 = r1
         r2 = 4
         call xdp_adjust_head#44
         r1 = *(u32 *)(r6 + 0)
         r2 = *(u32 *)(r6 + 4)
         r3 = r1
         r3 += 2
         if r3 > r2 goto out
         *(u8 *)(r1 + 0) = 77
         call nowhere#1001
         out: r0 = 2
         exit";
    fn nowhere(_: Caller<'_>) {
        panic!("at place 0");
    }
    let runtime = Runtime::builder().function(1001, "nowhere", nowhere).build().expect("a runtime");
    let object = Object::from_insns("cuts", &XDP, assemble(text).expect("assembles"));
    let module = runtime.load(&object).expect("it loads");
    for engine in ENGINES {
        let mut packet = Packet::new(&[1; 64]);
        let result = module.programs()[0].run_with(engine, &mut packet);
        assert!(matches!(result, Err(Error::HostPanicked { .. })), "{result:?}");
        assert_eq!((packet.bytes().len(), packet.bytes()[0]), (60, 77));
    }
}

#[test]
fn budgets_bound_loops_that_the_verifier_does_not() {
    let runtime = Runtime::builder().budget(Budget::units(1000)).build().expect("a runtime");
    let text = "r0 = 0
         again: may_goto out
         r0 += 1
         goto again
         out: exit";
    let object = Object::from_insns("may", &RAW, assemble(text).expect("assembles"));
    let module = runtime.linker(&object).buffer_len(0).load().expect("it loads");
    for engine in ENGINES {
        let result = module.programs()[0].run_raw_with(engine, &mut []);
        assert!(is_exhausted(&result), "{result:?}");
    }
}

/// Runs that end at random points by either cause, on several threads at once, as many as `SKEP_CASES`.
#[test]
fn many_ended_runs_leave_no_lock_reference_or_memory() {
    let cases = std::env::var("SKEP_CASES").ok().and_then(|text| text.parse().ok());
    let cases = cases.unwrap_or(skep_testkit::fewer_if_emulated(8_000));
    let loaded = Loaded::charged();
    let run_some = |thread: u64, cases: u64| {
        let mut random = 0x9e37 + thread;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut ended = 0u64;
        for _ in 0..cases {
            let name = HOLDING[next(HOLDING.len() as u64) as usize];
            let units = if next(4) == 0 { u64::MAX } else { next(250) };
            PANIC_AT.set(if next(2) == 0 { 0 } else { 1 + next(8) as u32 });
            let program = loaded.program(name).with_budget(Budget::units(units)).expect("a budget");
            let engine = if next(8) == 0 { Engine::Interpreter } else { Engine::Jit };
            ended += u64::from(loaded.run(&program, engine).is_err());
        }
        PANIC_AT.set(0);
        ended
    };
    let ended: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || run_some(thread, cases / 4))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic leaves a run")).sum()
    });
    println!("{ended} of {cases} runs ended early");
    assert!(ended * 3 > cases, "{ended} of {cases}");
    loaded.holds_nothing("at the end");
    let item = loaded.map("shelves").lookup(&[0; 4]).expect("a look-up").expect("a value");
    assert_eq!(item[..4], [0; 4], "the lock is free");
    loaded.map("keeps").update(&[0; 4], &[0; 16], UpdateFlags::Any).expect("an update");
    assert_eq!(loaded.end(), 0, "objects are left");
}
