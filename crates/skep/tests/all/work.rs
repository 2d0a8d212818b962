//! Work queues in values of maps: functions that are called as soon as nothing else runs, and may sleep.

use skep::abi::{MapDef, MapFlags, MapKind, RAW, SpecialField, SpecialKind, own_kfunc_number};
use skep::function::Caller;
use skep::isa::{assemble, encode_bytes};
use skep::world::{Clock, Machine, Random};
use skep::{Engine, Map, Module, Object, Runtime, UpdateFlags, World};
use skep_rcu::Grace;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const KINDS: [MapKind; 3] = [MapKind::Array, MapKind::Hash, MapKind::LruHash];

const INIT: u64 = 1;
const SET: u64 = 2;
const START: u64 = 4;
const ALL: u64 = INIT | SET | START;
const EBUSY: i64 = -16;
const EINVAL: i64 = -22;

/// Counts the calls in the first word of the value.
const COUNT: &str = "r1 = *(u64 *)(r3 + 0)\nr1 += 1\n*(u64 *)(r3 + 0) = r1\nr0 = 0\nexit";

/// The same, and asks to be called again.
const AGAIN: &str = "r1 = *(u64 *)(r3 + 0)\nr1 += 1\n*(u64 *)(r3 + 0) = r1\nr1 = r3\nr1 += 8\nr2 = 0\n\
                     call bpf_wq_start\nr0 = 0\nexit";

/// Allocates a page of the arena, for which a program must be allowed to sleep, and asks the host in which sections it
/// is.
const SLEEPS: &str = "r6 = r3\nr1 = map[1] ll\nr2 = 0\nr3 = 1\nr4 = -1\nr5 = 0\ncall bpf_arena_alloc_pages\n\
                      *(u64 *)(r6 + 0) = r0\ncall 1000\n*(u64 *)(r6 + 24) = r0\nr0 = 0\nexit";

/// A program that is given key, flags and which calls to make, and returns the result of the last one.
fn text(callback: &str) -> String {
    let text = format!(
        "
        r6 = r1
        r1 = *(u64 *)(r6 + 0)
        *(u64 *)(r10 - 8) = r1
        r1 = map[0] ll
        r2 = r10
        r2 += -8
        call 1
        if r0 == 0 goto end
        r7 = r0
        r7 += 8
        r8 = *(u64 *)(r6 + 16)
        r0 = 0
        r9 = r8
        r9 &= {INIT}
        if r9 == 0 goto set
        r1 = r7
        r2 = map[0] ll
        r3 = *(u64 *)(r6 + 8)
        call bpf_wq_init
   set: r9 = r8
        r9 &= {SET}
        if r9 == 0 goto start
        r1 = r7
        r2 = func[fire] ll
        r3 = *(u64 *)(r6 + 8)
        r4 = 0
        call bpf_wq_set_callback_impl
 start: r9 = r8
        r9 &= {START}
        if r9 == 0 goto end
        r1 = r7
        r2 = *(u64 *)(r6 + 8)
        call bpf_wq_start
   end: exit
  fire: {callback}"
    );
    numbered(&text)
}

fn numbered(text: &str) -> String {
    let names = ["bpf_wq_init", "bpf_wq_set_callback_impl", "bpf_wq_start", "bpf_arena_alloc_pages"];
    names.into_iter().fold(text.to_owned(), |text, name| {
        text.replace(&format!("call {name}\n"), &format!("call kfunc[{}]\n", own_kfunc_number(name).unwrap()))
    })
}

struct Queues {
    module: Module,
    map: Arc<Map>,
    engine: Engine,
}

fn load(runtime: &Runtime, kind: MapKind, text: &str) -> Result<Module, skep::Error> {
    let fields = vec![SpecialField { kind: SpecialKind::Workqueue, offset: 8, size: 16 }];
    let def = MapDef { fields, ..MapDef::new("queues", kind, 4, 32, 64) };
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let flags = MapFlags::MMAPABLE;
    let arena = MapDef { flags, ..MapDef::new("arena", MapKind::Arena, 0, 0, 4) };
    let object = Object::from_bytecode_and_maps("queues", &RAW, &bytes, [def, arena]).unwrap();
    runtime.linker(&object).buffer_len(24).load()
}

impl Queues {
    fn load(runtime: &Runtime, kind: MapKind, engine: Engine, callback: &str) -> Self {
        let module = load(runtime, kind, &text(callback)).unwrap_or_else(|error| panic!("{error}"));
        let map = Arc::clone(module.map("queues").unwrap());
        let queues = Self { module, map, engine };
        (0..8).for_each(|key| queues.fresh(key));
        queues
    }

    fn fresh(&self, key: u32) {
        self.map.update(&key.to_ne_bytes(), &[0; 32], UpdateFlags::Any).unwrap();
    }

    fn run(&self, key: u32, flags: u64, calls: u64) -> i64 {
        let mut buffer = [0; 24];
        buffer[..4].copy_from_slice(&key.to_ne_bytes());
        buffer[8..16].copy_from_slice(&flags.to_ne_bytes());
        buffer[16..].copy_from_slice(&calls.to_ne_bytes());
        self.module.programs()[0].run_raw_with(self.engine, &mut buffer).unwrap() as i64
    }

    fn word(&self, key: u32, at: usize) -> u64 {
        let value = self.map.lookup(&key.to_ne_bytes()).unwrap().unwrap();
        u64::from_ne_bytes(value[at..at + 8].try_into().unwrap())
    }
}

fn stepped() -> (World, Runtime) {
    let world = World::with(Machine::new(), Clock::stepped(Duration::from_nanos(1000)), Random::seeded(1));
    let runtime = Runtime::builder().world(&world).build().unwrap();
    (world, runtime)
}

/// Every kind of map in both engines, with a clock of its own.
fn each(callback: &str, test: impl Fn(&World, &Queues)) {
    for kind in KINDS {
        for engine in ENGINES {
            let (world, runtime) = stepped();
            test(&world, &Queues::load(&runtime, kind, engine, callback));
        }
    }
}

#[test]
fn work_is_done_at_the_next_step_and_once_however_often_it_was_asked_for() {
    each(COUNT, |world, queues| {
        assert_eq!((queues.run(1, 0, ALL), queues.run(1, 0, START), queues.run(2, 0, ALL)), (0, 0, 0));
        assert_eq!(queues.word(1, 0), 0);
        assert_eq!(world.step(Duration::ZERO), Some(2));
        assert_eq!((queues.word(1, 0), queues.word(2, 0), queues.word(3, 0)), (1, 1, 0));
        assert_eq!(queues.run(1, 0, START), 0);
        assert_eq!(world.step(Duration::from_nanos(5)), Some(1));
        assert_eq!((queues.word(1, 0), world.clock().now()), (2, 1005));
    });
}

#[test]
fn work_that_asks_for_itself_is_done_in_the_next_step() {
    each(AGAIN, |world, queues| {
        assert_eq!(queues.run(1, 0, ALL), 0);
        assert_eq!([1, 2, 3].map(|_| world.step(Duration::ZERO)), [Some(1); 3]);
        assert_eq!(queues.word(1, 0), 3);
    });
}

#[test]
fn wrong_orders_and_flags_are_refused() {
    each(COUNT, |world, queues| {
        assert_eq!((queues.run(1, 0, SET), queues.run(1, 0, START)), (EINVAL, EINVAL), "not initialised");
        assert_eq!((queues.run(1, 0, INIT), queues.run(1, 0, INIT)), (0, EBUSY));
        assert_eq!(queues.run(1, 0, START), EINVAL, "no callback");
        assert_eq!([INIT, SET, START].map(|call| queues.run(2, 1, call)), [EINVAL; 3], "unknown flags");
        assert_eq!(world.step(Duration::from_nanos(100)), Some(0));
    });
}

#[test]
fn work_of_an_element_that_was_deleted_or_replaced_is_not_done() {
    each(COUNT, |world, queues| {
        assert_eq!((queues.run(1, 0, ALL), queues.run(2, 0, ALL)), (0, 0));
        if queues.map.kind() != MapKind::Array {
            queues.map.delete(&1u32.to_ne_bytes()).unwrap();
        }
        queues.fresh(1);
        queues.fresh(2);
        assert_eq!(world.step(Duration::from_nanos(1)), Some(0));
        assert_eq!(queues.run(1, 0, ALL), 0, "a new element has a new queue");
        assert_eq!(world.step(Duration::ZERO), Some(1));
    });
}

thread_local! {
    /// The runtime of this thread's test, for `observe`.
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

const NORMAL: u64 = 1;
const SLEEPABLE: u64 = 2;

/// Which grace periods the caller delays.
fn observe(_: Caller<'_>) -> u64 {
    let runtime = RUNTIME.with_borrow(|runtime| runtime.clone()).unwrap();
    let domain = runtime.arena().domain();
    let holds_up = |grace| !domain.try_pass(domain.cookie(), grace);
    let normal = if holds_up(Grace::Normal) { NORMAL } else { 0 };
    normal | if holds_up(Grace::Sleepable) { SLEEPABLE } else { 0 }
}

#[test]
fn work_may_sleep_although_the_program_may_not_and_then_nobody_waits_for_it() {
    for kind in KINDS {
        for engine in ENGINES {
            let clock = Clock::stepped(Duration::ZERO);
            let world = World::with(Machine::new(), clock, Random::seeded(1));
            let runtime =
                Runtime::builder().world(&world).function(1000, "observe", observe).build().unwrap();
            RUNTIME.set(Some(runtime.clone()));
            let queues = Queues::load(&runtime, kind, engine, SLEEPS);
            assert_eq!(queues.run(1, 0, ALL), 0);
            assert_eq!(world.step(Duration::ZERO), Some(1));
            assert_ne!(queues.word(1, 0), 0, "a page");
            assert_eq!(queues.word(1, 24), SLEEPABLE);
            RUNTIME.set(None);
        }
    }
    let (_, runtime) = stepped();
    let directly =
        "r1 = map[1] ll\nr2 = 0\nr3 = 1\nr4 = -1\nr5 = 0\ncall bpf_arena_alloc_pages\nr0 = 0\nexit";
    let error = load(&runtime, MapKind::Hash, &numbered(directly)).unwrap_err().to_string();
    assert!(error.contains("may sleep"), "{error}");
}

#[test]
fn with_the_real_clock_the_background_thread_does_the_work() {
    for engine in ENGINES {
        let runtime = Runtime::new().unwrap();
        let queues = Queues::load(&runtime, MapKind::Hash, engine, COUNT);
        assert_eq!(queues.run(1, 0, ALL), 0);
        while queues.word(1, 0) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(queues.word(1, 0), 1);
    }
}

#[test]
fn what_is_no_work_queue_of_the_map_is_refused() {
    let (_, runtime) = stepped();
    let good = text(COUNT);
    for (from, to, expected) in [
        ("r1 = r7\n        r2 = map[0] ll", "r1 = r7\n r1 += 8\n        r2 = map[0] ll", "bpf_wq"),
        ("r1 = r7\n        r2 = map[0] ll", "r1 = r10\n        r2 = map[0] ll", "bpf_wq"),
        ("r1 = r7\n        r2 = map[0] ll", "r1 = r7\n        r2 = r7", "map"),
        ("r2 = func[fire] ll", "r2 = 4096", "a function"),
        ("r0 = 0\nexit", "r0 = 7\nexit", "callback"),
        ("*(u64 *)(r3 + 0) = r1", "*(u64 *)(r3 + 8) = r1", "bpf_wq"),
        ("*(u64 *)(r3 + 0) = r1", "*(u64 *)(r3 + 32) = r1", "value"),
    ] {
        assert!(good.contains(from), "{from}");
        let bad = good.replacen(from, to, 1);
        let bad = if from.starts_with("r0 = 0") { good.trim_end_matches(from).to_owned() + to } else { bad };
        let error = load(&runtime, MapKind::Hash, &bad).map(drop).expect_err(to).to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_program_counts_the_elements_of_its_map() {
    let (_, runtime) = stepped();
    let sum = own_kfunc_number("bpf_map_sum_elem_count").unwrap();
    for (kind, expected) in [(MapKind::Hash, 5), (MapKind::LruHash, 5), (MapKind::Array, 0)] {
        let module = load(&runtime, kind, &format!("r1 = map[0] ll\ncall kfunc[{sum}]\nexit")).unwrap();
        for key in 0..5u32 {
            module.maps()[0].update(&key.to_ne_bytes(), &[0; 32], UpdateFlags::Any).unwrap();
        }
        for engine in ENGINES {
            assert_eq!(module.programs()[0].run_raw_with(engine, &mut [0; 24]).unwrap(), expected);
        }
    }
}
