//! Timers in values of maps: under a virtual clock, which calls while the host steps it, and by the real one.

use skep::abi::{MapDef, MapKind, RAW, SpecialField, SpecialKind};
use skep::isa::{assemble, encode_bytes};
use skep::world::{Clock, Machine, Random};
use skep::{Engine, Map, Module, Object, Runtime, UpdateFlags, World};
use std::sync::Arc;
use std::time::Duration;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const KINDS: [MapKind; 3] = [MapKind::Array, MapKind::Hash, MapKind::LruHash];

const INIT: u64 = 1;
const SET: u64 = 2;
const START: u64 = 4;
const CANCEL: u64 = 8;
const ALL: u64 = INIT | SET | START;

const EBUSY: i64 = -16;
const EINVAL: i64 = -22;
const EDEADLK: i64 = -35;

/// Counts the calls in the first word of the value, and keeps the time of the last.
const COUNT: &str = "
        r1 = *(u64 *)(r3 + 0)
        r1 += 1
        *(u64 *)(r3 + 0) = r1
        r6 = r3
        call 5
        *(u64 *)(r6 + 24) = r0
        r0 = 0
        exit";

/// The same, and starts the timer again, for ten nanoseconds later.
const AGAIN: &str = "
        r1 = *(u64 *)(r3 + 0)
        r1 += 1
        *(u64 *)(r3 + 0) = r1
        r1 = r3
        r1 += 8
        r2 = 10
        r3 = 0
        call 171
        r0 = 0
        exit";

/// Cancels itself, and keeps the result.
const CANCELS_ITSELF: &str = "
        r6 = r3
        r1 = r3
        r1 += 8
        call 172
        *(u64 *)(r6 + 24) = r0
        r0 = 0
        exit";

/// Deletes its element, and writes to it afterwards.
const DELETES: &str = "
        r6 = r3
        call 3
        r1 = 7
        *(u64 *)(r6 + 24) = r1
        r0 = 0
        exit";

/// A program that is given key, nanoseconds and which calls to make, and returns the result of the last one.
fn text(callback: &str, flags: u64) -> String {
    format!(
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
        r8 = *(u64 *)(r6 + 16)
        r0 = 0
        r9 = r8
        r9 &= {INIT}
        if r9 == 0 goto set
        r1 = r7
        r1 += 8
        r2 = map[0] ll
        r3 = 1
        call 169
   set: r9 = r8
        r9 &= {SET}
        if r9 == 0 goto start
        r1 = r7
        r1 += 8
        r2 = func[fire] ll
        call 170
 start: r9 = r8
        r9 &= {START}
        if r9 == 0 goto cancel
        r1 = r7
        r1 += 8
        r2 = *(u64 *)(r6 + 8)
        r3 = {flags}
        call 171
cancel: r9 = r8
        r9 &= {CANCEL}
        if r9 == 0 goto end
        r1 = r7
        r1 += 8
        call 172
   end: exit
  fire: {callback}"
    )
}

struct Timers {
    module: Module,
    map: Arc<Map>,
    engine: Engine,
}

impl Timers {
    fn load(runtime: &Runtime, kind: MapKind, engine: Engine, callback: &str, flags: u64) -> Self {
        let fields = vec![SpecialField { kind: SpecialKind::Timer, offset: 8, size: 16 }];
        let def = MapDef { fields, ..MapDef::new("timers", kind, 4, 32, 64) };
        let bytes = encode_bytes(&assemble(&text(callback, flags)).unwrap()).unwrap();
        let object = Object::from_bytecode_and_maps("timers", &RAW, &bytes, [def]).unwrap();
        let module = runtime.linker(&object).buffer_len(24).load().unwrap();
        let map = Arc::clone(module.map("timers").unwrap());
        for key in 0..8 {
            let timers = Self { module: module.clone(), map: Arc::clone(&map), engine };
            timers.fresh(key);
        }
        Self { module, map, engine }
    }

    fn fresh(&self, key: u32) {
        self.map.update(&key.to_ne_bytes(), &[0; 32], UpdateFlags::Any).unwrap();
    }

    fn run(&self, key: u32, nanoseconds: u64, calls: u64) -> i64 {
        let mut buffer = [0; 24];
        buffer[..4].copy_from_slice(&key.to_ne_bytes());
        buffer[8..16].copy_from_slice(&nanoseconds.to_ne_bytes());
        buffer[16..].copy_from_slice(&calls.to_ne_bytes());
        self.module.programs()[0].run_raw_with(self.engine, &mut buffer).unwrap() as i64
    }

    /// How often the callback was called, and its last word.
    fn seen(&self, key: u32) -> (u64, u64) {
        let value = self.map.lookup(&key.to_ne_bytes()).unwrap().unwrap();
        let word = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().unwrap());
        (word(0), word(24))
    }
}

fn stepped() -> (World, Runtime) {
    let world = World::with(Machine::new(), Clock::stepped(Duration::from_nanos(1000)), Random::seeded(1));
    let runtime = Runtime::builder().world(&world).build().unwrap();
    (world, runtime)
}

/// Every kind of map in both engines, with a clock of its own.
fn each(callback: &str, flags: u64, test: impl Fn(&World, &Timers)) {
    for kind in KINDS {
        for engine in ENGINES {
            let (world, runtime) = stepped();
            test(&world, &Timers::load(&runtime, kind, engine, callback, flags));
        }
    }
}

fn nanos(count: u64) -> Duration {
    Duration::from_nanos(count)
}

#[test]
fn callbacks_are_called_at_their_time_while_the_clock_is_stepped() {
    each(COUNT, 0, |world, timers| {
        for (key, after) in [(1, 300), (2, 100), (3, 200)] {
            assert_eq!(timers.run(key, after, ALL), 0);
        }
        assert_eq!(world.step(nanos(99)), Some(0));
        assert_eq!(world.step(nanos(151)), Some(2));
        let seen = [1, 2, 3].map(|key| timers.seen(key));
        assert_eq!(seen, [(0, 0), (1, 1100), (1, 1200)]);
        assert_eq!(world.step(nanos(1000)), Some(1));
        assert_eq!((timers.seen(1), world.clock().now()), ((1, 1300), 2250));
    });
}

#[test]
fn an_absolute_expiry_in_the_past_is_due_at_once() {
    each(COUNT, 1, |world, timers| {
        assert_eq!(timers.run(1, 10, ALL), 0);
        assert_eq!(timers.run(2, 1050, ALL), 0);
        assert_eq!(world.step(Duration::ZERO), Some(1));
        assert_eq!(world.step(nanos(50)), Some(1));
        assert_eq!((timers.seen(1), timers.seen(2)), ((1, 1000), (1, 1050)));
    });
}

#[test]
fn wrong_orders_and_flags_are_refused_as_linux_documents() {
    each(COUNT, 0, |world, timers| {
        assert_eq!(timers.run(1, 5, SET), EINVAL, "not initialised");
        assert_eq!(timers.run(1, 5, START), EINVAL);
        assert_eq!(timers.run(1, 5, CANCEL), EINVAL);
        assert_eq!(timers.run(1, 5, INIT), 0);
        assert_eq!(timers.run(1, 5, INIT), EBUSY);
        assert_eq!(timers.run(1, 5, START), EINVAL, "no callback");
        assert_eq!(timers.run(1, 5, CANCEL), 0, "not pending");
        assert_eq!(timers.run(1, 5, SET | START), 0);
        assert_eq!(timers.run(1, 5, CANCEL), 1);
        assert_eq!(timers.run(1, 5, START), EINVAL, "a cancelled timer has no callback");
        assert_eq!(world.step(nanos(100)), Some(0));
        assert_eq!(timers.seen(1), (0, 0));
    });
    each(COUNT, 4, |_, timers| assert_eq!(timers.run(1, 5, ALL), EINVAL, "an unknown flag"));
}

#[test]
fn a_timer_that_starts_itself_goes_on_and_one_that_cancels_itself_is_told_of_the_deadlock() {
    each(AGAIN, 0, |world, timers| {
        assert_eq!(timers.run(1, 10, ALL), 0);
        assert_eq!(world.step(nanos(95)), Some(9));
        assert_eq!(timers.seen(1).0, 9);
        assert_eq!(timers.run(1, 0, CANCEL), 1);
        assert_eq!(world.step(nanos(95)), Some(0));
    });
    each(CANCELS_ITSELF, 0, |world, timers| {
        assert_eq!(timers.run(1, 10, ALL), 0);
        assert_eq!(world.step(nanos(10)), Some(1));
        assert_eq!(timers.seen(1).1 as i64, EDEADLK);
    });
}

#[test]
fn the_timer_of_an_element_that_was_deleted_or_replaced_is_not_called() {
    each(COUNT, 0, |world, timers| {
        assert_eq!((timers.run(1, 10, ALL), timers.run(2, 10, ALL)), (0, 0));
        if timers.map.kind() != MapKind::Array {
            timers.map.delete(&1u32.to_ne_bytes()).unwrap(); // elements of arrays always exist
        }
        timers.fresh(1);
        timers.fresh(2);
        assert_eq!(world.step(nanos(50)), Some(0));
        assert_eq!((timers.seen(1), timers.seen(2)), ((0, 0), (0, 0)));
        assert_eq!(timers.run(1, 10, START), EINVAL, "the update ended it");
        assert_eq!(timers.run(1, 10, INIT), 0, "a new element has a new timer");
    });
}

#[test]
fn an_element_stays_valid_while_its_callback_deletes_it() {
    each(DELETES, 0, |world, timers| {
        assert_eq!(timers.run(1, 10, ALL), 0);
        assert_eq!(world.step(nanos(50)), Some(1));
        let deleted = timers.map.lookup(&1u32.to_ne_bytes()).unwrap().is_none();
        assert_eq!(deleted, timers.map.kind() != MapKind::Array);
    });
}

#[test]
fn a_timer_keeps_its_program_as_long_as_the_host_has_the_map() {
    for engine in ENGINES {
        let (world, runtime) = stepped();
        let Timers { module, map, engine } = Timers::load(&runtime, MapKind::Hash, engine, AGAIN, 0);
        let timers = Timers { module, map: Arc::clone(&map), engine };
        assert_eq!(timers.run(1, 10, ALL), 0);
        drop(timers);
        assert_eq!(world.step(nanos(20)), Some(2), "the host has the map");
        drop(map);
        assert_eq!(world.step(nanos(100)), Some(0), "nobody could notice");
    }
}

#[test]
fn the_real_clock_calls_on_the_background_thread() {
    for engine in ENGINES {
        let runtime = Runtime::new().unwrap();
        let timers = Timers::load(&runtime, MapKind::Hash, engine, COUNT, 0);
        assert_eq!(timers.run(1, 1_000_000, ALL), 0);
        while timers.seen(1).0 == 0 {
            std::thread::yield_now();
        }
        assert_eq!(timers.seen(1).0, 1);
    }
}

#[test]
fn of_many_elements_of_a_key_only_the_last_ones_timer_is_called() {
    for kind in KINDS {
        let (world, runtime) = stepped();
        let timers = Timers::load(&runtime, kind, Engine::Jit, COUNT, 0);
        for _ in 0..2_000 {
            timers.fresh(1);
            assert_eq!(timers.run(1, 10, ALL), 0);
        }
        assert_eq!(world.step(nanos(10)), Some(1));
        assert_eq!(timers.seen(1).0, 1);
    }
}
