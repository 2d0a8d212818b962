//! Statistics of runs: exact for any number of threads, also while they are turned on and off and reset.

use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Error, Object, Program, RunStats, Runtime};
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const THREADS: usize = 4;

fn program(runtime: &Runtime, name: &str, text: &str) -> Program {
    let object = Object::from_insns(name, &RAW, assemble(text).unwrap());
    runtime.load(&object).unwrap().programs()[0].clone()
}

fn empty(runtime: &Runtime) -> Program {
    program(runtime, "empty", "r0 = 0\nexit")
}

fn consistent(stats: &RunStats) {
    assert_eq!(stats.run_cnt, stats.times.count());
    let (least, most) = stats.times.buckets().fold((0, 0_u64), |(least, most), bucket| {
        (least + bucket.from * bucket.count, most.saturating_add(bucket.to.saturating_mul(bucket.count)))
    });
    assert!((least..=most).contains(&stats.run_time_ns), "{stats:?}");
}

#[test]
fn nothing_is_counted_until_a_host_asks() {
    let runtime = Runtime::new().unwrap();
    let program = empty(&runtime);
    program.run_raw(&mut []).unwrap();
    assert!(!runtime.stats_enabled());
    assert_eq!(program.stats(), RunStats::default());
}

#[test]
fn runs_of_four_threads_are_counted_exactly() {
    const RUNS: u64 = 20_000;
    let runtime = Runtime::new().unwrap();
    let before = empty(&runtime);
    runtime.enable_stats(true);
    let after = empty(&runtime);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (before, after) = (&before, &after);
            scope.spawn(move || {
                for run in 0..RUNS {
                    before.run_raw(&mut []).unwrap();
                    let engine = if run % 16 == 0 { Engine::Interpreter } else { Engine::Jit };
                    if thread == 0 {
                        after.clone().run_raw_with(engine, &mut []).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!((before.stats().run_cnt, after.stats().run_cnt), (THREADS as u64 * RUNS, RUNS));
    [before, after].iter().for_each(|program| consistent(&program.stats()));
}

#[test]
fn turning_statistics_on_and_off_in_the_middle_of_runs_counts_exactly_those_in_between() {
    const RUNS: u64 = 2000;
    const ROUNDS: u64 = 6;
    let runtime = Runtime::new().unwrap();
    let program = empty(&runtime);
    let (turn, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    turn.wait();
                    (0..RUNS).for_each(|_| assert_eq!(program.run_raw(&mut []).unwrap(), 0));
                    done.wait();
                }
            });
        }
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        let mut sum = 0;
        for round in 0..ROUNDS {
            let on = round % 2 == 1;
            runtime.enable_stats(on);
            turn.wait();
            done.wait();
            sum += u64::from(on) * RUNS * THREADS as u64;
            expected.push(sum);
            found.push(program.stats());
            if round == 3 {
                program.reset_stats();
                sum = 0;
            }
        }
        // At the end, so that a failure leaves no thread waiting.
        assert_eq!(found.iter().map(|stats| stats.run_cnt).collect::<Vec<_>>(), expected);
        found.iter().for_each(consistent);
    });
}

#[test]
fn after_a_reset_only_later_runs_count_whatever_others_do() {
    let runtime = Runtime::new().unwrap();
    let program = empty(&runtime);
    let (stop, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    program.run_raw(&mut []).unwrap();
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (mut since, mut wrong) = (0, Vec::new());
        for turn in 0..300 {
            runtime.enable_stats(turn % 3 != 0);
            if turn % 7 == 0 {
                since = runs.load(Ordering::Relaxed);
                program.reset_stats();
            }
            let stats = program.stats();
            // Two may have run and not said so yet, and two may have said so late.
            let most = runs.load(Ordering::Relaxed) - since + 4;
            if stats.run_cnt > most || stats.run_cnt != stats.times.count() {
                wrong.push((most, stats));
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}

#[test]
fn links_count_the_runs_of_all_their_programs_and_only_their_own() {
    let runtime = Runtime::new().unwrap();
    runtime.enable_stats(true);
    let (one, two) = (empty(&runtime), empty(&runtime));
    let hook = runtime.hook();
    let links = [hook.attach(&one).unwrap(), hook.attach(&one).unwrap()];
    let run = |times: u64, stop: bool| {
        for _ in 0..times {
            let flow = if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            hook.run_raw(&mut [], |_, _| flow).unwrap();
        }
    };
    run(10, false);
    run(5, true);
    let old = links[0].replace(&two).unwrap();
    run(3, false);
    old.run_raw(&mut []).unwrap();
    hook.programs().unwrap()[1].run_raw(&mut []).unwrap();
    assert_eq!(links.each_ref().map(|link| link.stats().run_cnt), [18, 13]);
    assert_eq!([&one, &two].map(|program| program.stats().run_cnt), [15 + 10 + 3 + 2, 3]);
    links.iter().for_each(|link| consistent(&link.stats()));
    links[1].reset_stats();
    assert_eq!(links.each_ref().map(|link| link.stats().run_cnt), [18, 0]);
}

#[test]
fn a_tail_call_counts_for_the_program_that_the_host_runs() {
    let runtime = Runtime::new().unwrap();
    runtime.enable_stats(true);
    let def = MapDef::new("programs", MapKind::ProgArray, 4, 4, 1);
    let bytes = encode_bytes(&assemble("r2 = map[0] ll\nr3 = 0\ncall 12\nr0 = 7\nexit").unwrap()).unwrap();
    let object = Object::from_bytecode_and_maps("first", &RAW, &bytes, vec![def]).unwrap();
    let module = runtime.load(&object).unwrap();
    let target = program(&runtime, "target", "r0 = 9\nexit");
    module.program_array("programs").unwrap().set(0, &target).unwrap();
    for engine in [Engine::Jit, Engine::Interpreter] {
        assert_eq!(module.programs()[0].run_raw_with(engine, &mut []).unwrap(), 9);
    }
    assert_eq!((module.programs()[0].stats().run_cnt, target.stats().run_cnt), (2, 0));
}

#[test]
fn runs_that_a_held_lock_prevents_are_misses() {
    let runtime = Runtime::new().unwrap();
    runtime.enable_stats(true);
    let def = MapDef::new("programs", MapKind::ProgArray, 4, 4, 1);
    let bytes = encode_bytes(&assemble("r2 = map[0] ll\nr3 = 0\ncall 12\nr0 = 7\nexit").unwrap()).unwrap();
    let object = Object::from_bytecode_and_maps("calls", &RAW, &bytes, vec![def]).unwrap();
    let module = runtime.load(&object).unwrap();
    let mut word = 0_u32;
    // SAFETY: the word is this thread's own lock.
    unsafe { skep_maps::lock::acquire((&raw mut word).cast()) };
    assert!(matches!(module.programs()[0].run_raw(&mut []), Err(Error::LockHeld)));
    // SAFETY: taken above.
    unsafe { skep_maps::lock::release((&raw mut word).cast()) };
    module.programs()[0].run_raw(&mut []).unwrap();
    let stats = module.programs()[0].stats();
    assert_eq!((stats.run_cnt, stats.misses), (1, 1));
}
