//! Threads run, load, replace, poke and free programs for a long time: every result is right, memory is bounded, no
//! memory is reused under a reader, and no thread blocks for ever.
//!
//! Six seconds unless `SKEP_SOAK_SECONDS` says otherwise; `cargo xtask soak` runs it for minutes.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use skep_text::{Arena, BRANCH_BYTES, BRANCH_OFFSET, Backing, Branch, Config, Error, PACK_BYTES, Text};

/// So long without any progress is a deadlock, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

const LIMIT: usize = 32 << 20;
const WAITING: usize = 6 << 20;
const LONGEST: usize = PACK_BYTES + 5000;

/// Functions that loaders replace, and switches that pokers change, each with one owner.
const PLACES: usize = 96;
const LOADERS: usize = 3;
const POKERS: usize = 1;
const RUNNERS: usize = 3;

fn load(arena: &Arena, value: u32, len: usize) -> Result<Text, Error> {
    let code = guarded(value, len);
    // Most compilers ask for more than they need.
    let mut draft = arena.draft(code.len() + (value as usize % 3) * 40)?;
    draft.bytes_mut()[..code.len()].copy_from_slice(&code);
    draft.truncate(code.len())?;
    draft.finalize()
}

/// A branch that can be poked, to `target`.
fn switch(arena: &Arena, target: &Text) -> Result<Text, Error> {
    let mut draft = arena.draft(BRANCH_OFFSET + BRANCH_BYTES)?;
    let site = Branch::To(target.address()).encode(draft.address() + BRANCH_OFFSET)?;
    draft.bytes_mut().copy_from_slice(&[&NOP.repeat(BRANCH_OFFSET / NOP.len())[..], &site].concat());
    draft.finalize()
}

/// Where runners find a function, and which versions of it they may meet.
#[derive(Default)]
struct Place {
    /// Released by its owner, acquired by runners; 0 before the first.
    address: AtomicUsize,
    /// The version that the owner is about to publish. Sequentially consistent, as `finished`: what bounds a version
    /// must be in one order with it.
    begun: AtomicU32,
    /// The version that every caller gets from now on, or a later one.
    finished: AtomicU32,
}

impl Place {
    /// What version `version` of place number `place` returns.
    fn value(place: usize, version: u32) -> u32 {
        (place as u32) << 24 | version & 0xff_ffff
    }
}

#[derive(Default)]
struct Counts {
    loads: AtomicU64,
    pokes: AtomicU64,
    calls: AtomicU64,
    long_stays: AtomicU64,
    refused: AtomicU64,
    peak_mapped: AtomicUsize,
    peak_waiting: AtomicUsize,
}

impl Counts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn progress(&self) -> u64 {
        [&self.loads, &self.pokes, &self.calls].iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

/// Ends the process when `progress` stays the same for too long.
fn watch(over: &AtomicBool, progress: impl Fn() -> u64) {
    let mut last = (progress(), Instant::now());
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        let now = progress();
        if now != last.0 {
            last = (now, Instant::now());
        } else if last.1.elapsed() > PATIENCE {
            eprintln!("a deadlock: nothing happened for {PATIENCE:?}, after {now} steps");
            std::process::abort();
        }
    }
}

/// A program's length: mostly short, now and then long, seldom very long.
fn any_len(random: &mut Random) -> usize {
    match random.below(4000) {
        0 => LONGEST,
        1..20 => 20_000 + random.below(200_000),
        20..400 => 600 + random.below(6000),
        _ => 40 + random.below(500),
    }
}

/// Refusals that pass when readers leave or others free.
fn may_pass(counts: &Counts, error: &Error) {
    assert!(
        matches!(error, Error::Waiting { .. } | Error::Limit { .. } | Error::RangeFull { .. }),
        "a load failed: {error}"
    );
    Counts::add(&counts.refused);
    thread::yield_now();
}

/// Replaces the functions of every `LOADERS`th place until it is over.
fn loader(arena: &Arena, places: &[Place], mine: usize, counts: &Counts, over: &AtomicBool) {
    let mut random = Random(mine as u64);
    let mut current: Vec<Option<Text>> = places.iter().map(|_| None).collect();
    let mut versions = vec![0; places.len()];
    while !over.load(Ordering::Relaxed) {
        let number = random.below(places.len() / LOADERS) * LOADERS + mine;
        let place = &places[number];
        let version = versions[number] + 1;
        let text = match load(arena, Place::value(number, version), any_len(&mut random)) {
            Ok(text) => text,
            Err(error) => {
                may_pass(counts, &error);
                continue;
            }
        };
        versions[number] = version;
        place.begun.store(version, Ordering::SeqCst);
        place.address.store(text.address(), Ordering::SeqCst);
        place.finished.store(version, Ordering::SeqCst);
        // A thread in it may stay as long as it likes.
        drop(current[number].replace(text));
        Counts::add(&counts.loads);
    }
    // Taken away before they go.
    for place in places {
        place
            .address
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |address| {
                let is_mine = current.iter().flatten().any(|text| text.address() == address);
                is_mine.then_some(0)
            })
            .ok();
    }
}

/// Pokes the switches of every `POKERS`th place to new targets until it is over.
fn poker(arena: &Arena, places: &[Place], first: usize, mine: usize, counts: &Counts, over: &AtomicBool) {
    let patiently = |make: &dyn Fn() -> Result<Text, Error>| loop {
        match make() {
            Ok(text) => return text,
            Err(error) => may_pass(counts, &error),
        }
    };
    let mut random = Random(!(mine as u64));
    let mut switches: Vec<(usize, Text, Vec<Text>)> = (mine..places.len())
        .step_by(POKERS)
        .map(|index| {
            let target = patiently(&|| load(arena, Place::value(first + index, 0), 64));
            let switch = patiently(&|| switch(arena, &target));
            places[index].address.store(switch.address(), Ordering::SeqCst);
            (index, switch, vec![target])
        })
        .collect();
    let mut versions = vec![0; places.len()];
    while !over.load(Ordering::Relaxed) {
        // A batch of some, finished together.
        let batch: Vec<usize> = (0..1 + random.below(6)).map(|_| random.below(switches.len())).collect();
        let mut batch = batch;
        batch.sort_unstable();
        batch.dedup();
        let mut old = Vec::new();
        for &which in &batch {
            let (index, _, targets) = &mut switches[which];
            versions[*index] += 1;
            let value = Place::value(first + *index, versions[*index]);
            let mut made = vec![patiently(&|| load(arena, value, 40 + random_len(value)))];
            if value.is_multiple_of(2) {
                // By way of a stub.
                let target = made[0].address();
                made.push(patiently(&|| arena.stub(&[], &[target])));
            }
            old.push(std::mem::replace(targets, made));
            places[*index].begun.store(versions[*index], Ordering::SeqCst);
        }
        let mut pokes = arena.pokes().unwrap();
        for &which in &batch {
            let (_, switch, targets) = &switches[which];
            let target = Branch::To(targets.last().unwrap().address());
            // SAFETY: `switch` put a patchable branch there; the target lives until after the next batch, and what it
            // is replaced by is published to nobody else.
            unsafe { pokes.branch(switch, BRANCH_OFFSET, target) }.unwrap();
            Counts::add(&counts.pokes);
        }
        pokes.finish().unwrap();
        for &which in &batch {
            let index = switches[which].0;
            places[index].finished.store(versions[index], Ordering::SeqCst);
        }
        drop(old);
    }
    for (index, ..) in &switches {
        places[*index].address.store(0, Ordering::SeqCst);
    }
}

fn random_len(value: u32) -> usize {
    Random(value.into()).below(400)
}

/// Calls what is at the places, and judges.
fn runner(arena: &Arena, places: &[Place], mine: usize, counts: &Counts, over: &AtomicBool) {
    let mut random = Random(mine as u64 + 1000);
    let mut rounds = 0u64;
    while !over.load(Ordering::Relaxed) {
        rounds += 1;
        let normal = u64::is_multiple_of(rounds, 2);
        let section = normal.then(|| arena.domain().enter().unwrap());
        let sleepable = (!normal).then(|| arena.domain().enter_sleepable().unwrap());
        for _ in 0..1 + random.below(20) {
            let number = random.below(places.len());
            let place = &places[number];
            let least = place.finished.load(Ordering::SeqCst);
            let address = place.address.load(Ordering::SeqCst);
            if address == 0 {
                continue;
            }
            let value = call_at(address);
            let most = place.begun.load(Ordering::SeqCst);
            assert_eq!(value >> 24, number as u32, "the function of another place");
            let version = value & 0xff_ffff;
            assert!(least <= version && version <= most, "version {version}, not {least} to {most}");
            Counts::add(&counts.calls);
        }
        drop((section, sleepable));
    }
}

/// Stays in sections for long, and calls what was there when it came.
fn lingerer(arena: &Arena, places: &[Place], counts: &Counts, over: &AtomicBool) {
    let mut rounds = 0;
    while !over.load(Ordering::Relaxed) {
        rounds += 1;
        let normal = u64::is_multiple_of(rounds, 2);
        let section = normal.then(|| arena.domain().enter().unwrap());
        let sleepable = (!normal).then(|| arena.domain().enter_sleepable().unwrap());
        let found: Vec<(usize, u32)> = places
            .iter()
            .map(|place| place.address.load(Ordering::SeqCst))
            .filter(|&address| address != 0)
            .map(|address| (address, call_at(address)))
            .collect();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5 + rounds % 40) {
            for &(address, value) in &found {
                assert_eq!(call_at(address), value, "a function was replaced under a reader");
            }
            thread::sleep(Duration::from_millis(1));
        }
        drop((section, sleepable));
        Counts::add(&counts.long_stays);
        thread::sleep(Duration::from_millis(rounds % 5));
    }
}

/// Looks from outside, all the while.
fn observer(arena: &Arena, counts: &Counts, over: &AtomicBool) {
    // What the threads may have retired beyond the bound before their next draft.
    let slack = (LOADERS + POKERS) * 8 * LONGEST;
    while !over.load(Ordering::Relaxed) {
        let occupancy = arena.occupancy();
        counts.peak_mapped.fetch_max(occupancy.mapped_bytes, Ordering::Relaxed);
        counts.peak_waiting.fetch_max(occupancy.waiting_bytes, Ordering::Relaxed);
        assert!(occupancy.mapped_bytes <= LIMIT, "{occupancy:?}");
        assert!(occupancy.waiting_bytes <= WAITING + slack, "{occupancy:?}");
        let span_bytes: usize = arena.map().iter().map(|span| span.len).sum();
        assert!(span_bytes.is_multiple_of(PACK_BYTES));
        for mapping in mappings() {
            assert!(!(mapping.has('w') && mapping.has('x')), "{mapping:?}");
        }
        thread::sleep(Duration::from_millis(25));
    }
}

fn soak(backing: Backing, time: Duration) {
    let arena = Arena::new(
        Config::new()
            .backing(backing)
            .limit(LIMIT)
            .waiting(WAITING)
            .promote_at(256 << 10)
            .random(backing == Backing::Hardened),
    )
    .unwrap();
    let switches = PLACES / 8;
    let places: Vec<Place> = (0..PLACES + switches).map(|_| Place::default()).collect();
    let (functions, poked) = places.split_at(PLACES);
    let (counts, over, all_over) = (Counts::default(), AtomicBool::new(false), AtomicBool::new(false));
    let (counts, over, all_over) = (&counts, &over, &all_over);
    let (arena_ref, all) = (&arena, &places[..]);
    thread::scope(|scope| {
        scope.spawn(|| watch(all_over, || counts.progress()));
        let threads: Vec<_> = (0..LOADERS)
            .map(|mine| scope.spawn(move || loader(arena_ref, functions, mine, counts, over)))
            .chain(
                (0..POKERS)
                    .map(|mine| scope.spawn(move || poker(arena_ref, poked, PLACES, mine, counts, over))),
            )
            .chain((0..RUNNERS).map(|mine| scope.spawn(move || runner(arena_ref, all, mine, counts, over))))
            .chain([
                scope.spawn(move || lingerer(arena_ref, functions, counts, over)),
                scope.spawn(move || observer(arena_ref, counts, over)),
            ])
            .collect();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        all_over.store(true, Ordering::Relaxed);
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
    arena.flush().unwrap();
    let after = arena.occupancy();
    let left = (
        after.texts,
        after.drafts,
        after.chunks_used,
        after.waiting_bytes,
        after.own_mappings,
        after.code_bytes,
    );
    assert_eq!(left, (0, 0, 0, 0, 0, 0), "{after:?}");
    for view in executable_views(&arena) {
        assert!(is_all_traps(&peek(view.range)));
    }
    let per_second =
        |counter: &AtomicU64| (counter.load(Ordering::Relaxed) as f64 / time.as_secs_f64()).round() as u64;
    assert!(per_second(&counts.loads) > 0 && per_second(&counts.pokes) > 0 && per_second(&counts.calls) > 0);
    eprintln!(
        "MEASURED: {backing}, {} s: {} loads/s, {} pokes/s, {} calls/s, {} refused, {} long stays, peak {} KiB mapped \
         and {} KiB waiting",
        time.as_secs(),
        per_second(&counts.loads),
        per_second(&counts.pokes),
        per_second(&counts.calls),
        counts.refused.load(Ordering::Relaxed),
        counts.long_stays.load(Ordering::Relaxed),
        counts.peak_mapped.load(Ordering::Relaxed) / 1024,
        counts.peak_waiting.load(Ordering::Relaxed) / 1024,
    );
}

/// One at a time: each of these tests wants the machine for itself.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> impl Drop {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn concurrent_use_gives_right_results() {
    let _alone = alone();
    let seconds = std::env::var("SKEP_SOAK_SECONDS").map_or(6, |seconds| seconds.parse().unwrap());
    for backing in [Backing::Memfd, Backing::Hardened, Backing::Procmem] {
        soak(backing, Duration::from_secs(seconds) / 3);
    }
}

#[test]
fn rapid_load_and_free_makes_progress() {
    const THREADS: u32 = 4;
    const PROGRAMS: u32 = 100_000;

    let _alone = alone();
    let arena = Arena::new(Config::new().waiting(2 << 20).limit(8 << 20)).unwrap();
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (done, over, arena_ref) = (&done, &over, &arena);
    thread::scope(|scope| {
        scope.spawn(|| watch(over, || done.load(Ordering::Relaxed)));
        // Stays inside again and again, for as long as it takes to load thousands.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let section = arena_ref.domain().enter_sleepable().unwrap();
                thread::sleep(Duration::from_millis(30));
                drop(section);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let hurry = |thread: u32| {
            for index in 0..PROGRAMS / THREADS {
                let value = thread << 24 | index;
                // With no pause but what a refusal forces upon us.
                let text = loop {
                    match load(arena_ref, value, 40 + value as usize % 700) {
                        Ok(text) => break text,
                        Err(Error::Waiting { waiting, limit }) => {
                            assert!(waiting > limit && limit == 2 << 20);
                            thread::yield_now();
                        }
                        Err(error) => panic!("{error}"),
                    }
                };
                assert_eq!(call(&text), value);
                drop(text);
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || hurry(thread))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    assert_eq!(done.load(Ordering::Relaxed), PROGRAMS.into());
    arena.flush().unwrap();
    let after = arena.occupancy();
    assert_eq!((after.texts, after.chunks_used, after.waiting_bytes, after.packs), (0, 0, 0, 1), "{after:?}");
}

#[test]
fn a_staying_reader_only_delays_drafts() {
    const BOUND: usize = 300_000;
    let _alone = alone();
    for backing in [Backing::Memfd, Backing::Hardened, Backing::Procmem] {
        let arena = Arena::new(Config::new().backing(backing).waiting(BOUND)).unwrap();
        for sleepable in [false, true] {
            let normal = (!sleepable).then(|| arena.domain().enter().unwrap());
            let sleeping = sleepable.then(|| arena.domain().enter_sleepable().unwrap());
            let first = load(&arena, 4242, 100).unwrap();
            let old = first.address();
            drop(first);
            let mut loaded = 0;
            let error = loop {
                match load(&arena, loaded, 1000) {
                    Ok(text) => drop(text),
                    Err(error) => break error,
                }
                loaded += 1;
                assert!(loaded < 1000, "nothing bounds what waits");
            };
            match error {
                Error::Waiting { waiting, limit } => {
                    assert!(limit == BOUND && waiting > BOUND && waiting < BOUND + 2000, "{waiting}");
                }
                other => panic!("{other}"),
            }
            assert!(error_text(&arena).contains("Config::waiting"));
            assert!(loaded >= 250, "{loaded}");
            assert_eq!(call_at(old), 4242, "the reader may still be in it");
            drop((normal, sleeping));
            // No flush: the draft looks for itself.
            let text = load(&arena, 5, 1000).unwrap();
            assert_eq!(call(&text), 5);
        }
        arena.flush().unwrap();
        assert_eq!(arena.occupancy().waiting_bytes, 0);
    }
}

fn error_text(arena: &Arena) -> String {
    arena.draft(10).unwrap_err().to_string()
}
