//! One case on one map with so many producers, in a process of its own, so that memory and threads are its own.
//!
//! ```text
//!   producer 0   run, run, run, ...                       until the time is up
//!   producer 1   run, run, run, ...
//!   main         look at memory and threads, sleep 5 ms, look again, ...
//! ```
//!
//! Producers in pairs take turns.

use super::cases::Case;
use super::measured::{Measured, Threads};
use super::process;
use super::subjects::{self, Subject};
use crate::together::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two samples of the memory.
const PAUSE: Duration = Duration::from_millis(5);
/// The time for the keeper to end after its runtime.
const LEAVE: Duration = Duration::from_millis(500);
/// How often a producer that waits for its turn checks whether the time is up.
const LOOK: Duration = Duration::from_millis(20);

/// The task of a child process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub(super) case: Case,
    pub(super) subject: String,
    pub(super) producers: u32,
    pub(super) millis: u64,
}

impl FromStr for Task {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || format!("{text:?} is not a task: CASE,MAP,PRODUCERS,MILLISECONDS");
        let [case, subject, producers, millis] = text.split(',').collect::<Vec<_>>()[..] else {
            return Err(odd());
        };
        Ok(Self {
            case: Case::from_name(case).ok_or_else(odd)?,
            subject: subject.to_owned(),
            producers: producers.parse().ok().filter(|count| matches!(count, 1..=64)).ok_or_else(odd)?,
            millis: millis.parse().map_err(|_| odd())?,
        })
    }
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{},{},{}", self.case.name(), self.subject, self.producers, self.millis)
    }
}

/// Does it, and returns what was measured as JSON.
///
/// # Errors
///
/// The map cannot be created, or a program fails.
pub(crate) fn perform(task: &Task) -> Result<String, String> {
    serde_json::to_string(&measure(task)?).map_err(|error| error.to_string())
}

/// What is sampled while the producers run.
#[derive(Default)]
struct Seen {
    looks: u64,
    resident: u64,
    peak: u64,
    map: Option<(u64, u64)>,
    threads: u32,
}

impl Seen {
    fn look(&mut self, subject: &dyn Subject) {
        let resident = process::resident();
        self.looks += 1;
        self.resident += resident;
        self.peak = self.peak.max(resident);
        self.threads = self.threads.max(process::threads());
        if let Some(held) = subject.held() {
            let (sum, peak) = self.map.unwrap_or_default();
            self.map = Some((sum + held.bytes, peak.max(held.bytes).max(held.peak)));
        }
    }
}

fn measure(task: &Task) -> Result<Measured, String> {
    let mut works: Vec<_> = Vec::new();
    for work in (0..task.producers).flat_map(|at| task.case.works(at, task.producers)) {
        if !works.contains(work) {
            works.push(*work);
        }
    }
    let before = process::threads();
    let subject = subjects::make(&task.subject, &works, task.producers)?;
    let forgotten = process::forget();
    let resident = process::resident();
    let idle = process::cpu_time();
    let (totals, mut seen, elapsed) = produce(task, &*subject)?;
    let busy = process::cpu_time().saturating_sub(idle);
    if forgotten {
        seen.peak = seen.peak.max(process::peak());
    }
    let in_flight = subject.held().and_then(|held| held.in_flight);
    drop(subject);
    let left = Instant::now();
    while process::threads() > before && left.elapsed() < LEAVE {
        std::thread::sleep(PAUSE);
    }
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let looks = seen.looks.max(1) as f64;
    let loops = totals.loops.max(1) as f64;
    Ok(Measured {
        loops_k_per_s: totals.loops as f64 / elapsed.as_secs_f64() / 1e3,
        loops_k_per_cpu_s: totals.loops as f64 / busy.as_secs_f64() / 1e3,
        before_mib: mib(resident as f64),
        avg_mib: mib(seen.resident as f64 / looks),
        peak_mib: mib(seen.peak as f64),
        map_avg_mib: seen.map.map(|(sum, _)| mib(sum as f64 / looks)),
        map_peak_mib: seen.map.map(|(_, peak)| mib(peak as f64)),
        threads: Threads {
            before,
            peak: seen.threads.saturating_sub(task.producers),
            after: process::threads(),
        },
        objects_in_flight_peak: in_flight,
        failed_per_loop: totals.failed as f64 / loops,
    })
}

#[derive(Clone, Copy, Default)]
struct Totals {
    loops: u64,
    failed: u64,
    /// The first loop and the last one: the thread that waits for the time may come late itself.
    span: Span,
}

/// Lets the producers run until the time is over.
fn produce(task: &Task, subject: &dyn Subject) -> Result<(Totals, Seen, Duration), String> {
    let over = AtomicBool::new(false);
    let ready = Barrier::new(task.producers as usize + 1);
    let in_pairs = task.case.in_pairs(task.producers);
    let turns: Vec<Turns> = (0..task.producers.div_ceil(2)).map(|_| Turns::default()).collect();
    let one = |producer: u32| {
        pin(producer as usize);
        let mut run = subject.producer(task.case.first(producer, task.producers));
        let works = task.case.works(producer, task.producers);
        let turns = in_pairs.then(|| &turns[producer as usize / 2]);
        let mut totals = Totals::default();
        ready.wait();
        let began = Instant::now();
        let mut produce = || {
            for &work in works.iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                // Odd ones begin, which add.
                if turns.is_some_and(|turns| !turns.take(producer % 2 == 1, &over)) {
                    break;
                }
                totals.failed += run(work)?;
                totals.loops += 1;
                let now = Instant::now();
                totals.span = Some((totals.span.map_or(began, |(began, _)| began), now));
                if let Some(turns) = turns {
                    turns.pass_on();
                }
            }
            Ok(())
        };
        let done: Result<(), String> = produce();
        if done.is_err() {
            over.store(true, Ordering::Relaxed);
        }
        done.map(|()| totals)
    };
    std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..task.producers).map(|producer| scope.spawn(move || one(producer))).collect();
        ready.wait();
        let started = Instant::now();
        let mut seen = Seen::default();
        while started.elapsed() < Duration::from_millis(task.millis) && !over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            seen.look(subject);
        }
        over.store(true, Ordering::Relaxed);
        let mut sum = Totals::default();
        let mut failure = None;
        for producer in all {
            let done = producer.join().map_err(|_| "a producer panicked".to_owned());
            match done.and_then(|done| done) {
                Ok(totals) => {
                    sum.loops += totals.loops;
                    sum.failed += totals.failed;
                    sum.span = joined(sum.span, totals.span);
                }
                Err(reason) => failure = Some(reason),
            }
        }
        let elapsed = sum.span.map_or_else(|| started.elapsed(), |(began, ended)| ended - began);
        failure.map_or(Ok((sum, seen, elapsed)), Err)
    })
}

type Span = Option<(Instant, Instant)>;

/// From the earlier begin to the later end.
fn joined(one: Span, other: Span) -> Span {
    match (one, other) {
        (Some((began, ended)), Some((first, last))) => Some((began.min(first), ended.max(last))),
        (one, other) => one.or(other),
    }
}

/// Whose turn it is of two.
struct Turns {
    odd: Mutex<bool>,
    passed: Condvar,
}

impl Default for Turns {
    fn default() -> Self {
        Self { odd: Mutex::new(true), passed: Condvar::new() }
    }
}

impl Turns {
    /// Waits for one's turn: `false` where the time is over first.
    fn take(&self, odd: bool, over: &AtomicBool) -> bool {
        let mut turn = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        while *turn != odd {
            if over.load(Ordering::Relaxed) {
                return false;
            }
            let waited = self.passed.wait_timeout(turn, LOOK);
            turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn pass_on(&self) {
        let mut turn = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = !*turn;
        self.passed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_read_back_and_nonsense_refused() {
        let task: Task = "overwrite,papaya,2,50".parse().unwrap();
        assert_eq!(task.to_string().parse(), Ok(task));
        for odd in ["", "overwrite,papaya,2", "nothing,papaya,2,50", "overwrite,papaya,0,50"] {
            assert!(odd.parse::<Task>().is_err(), "{odd}");
        }
    }

    #[test]
    fn two_take_turns() {
        let (turns, over) = (Turns::default(), AtomicBool::new(false));
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for odd in [false, true] {
                let (turns, over, order) = (&turns, &over, &order);
                scope.spawn(move || {
                    for _ in 0..50 {
                        assert!(turns.take(odd, over));
                        order.lock().unwrap().push(odd);
                        turns.pass_on();
                    }
                });
            }
        });
        let order = order.into_inner().unwrap();
        assert!(order.iter().enumerate().all(|(at, odd)| *odd == (at % 2 == 0)), "{order:?}");
        over.store(true, Ordering::Relaxed);
        assert!(!turns.take(false, &over));
    }
}
