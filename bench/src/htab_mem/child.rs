//! One case on one map with a number of producers, in a process of its own, so that memory and threads are its own.
//!
//! ```text
//!   producer 0   run, run, run, ...                       until the time is up
//!   producer 1   run, run, run, ...
//!   main         look at memory and threads, sleep 5 ms, look again, ...
//! ```
//!
//! Producers in pairs take turns.

use super::cases::Case;
use super::subjects::{self, Subject};
use crate::timing::pin;
use crate::{Error, Result, process};
use serde_json::{Value, json};
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

/// The task of a child process, as its argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub(super) case: Case,
    pub(super) subject: String,
    pub(super) producers: u32,
    pub(super) millis: u64,
}

impl FromStr for Task {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (case, subject, producers, millis) = serde_json::from_str(text)?;
        match producers {
            1..=64 => Ok(Self { case, subject, producers, millis }),
            _ => Err(format!("{producers} producers are not 1 to 64").into()),
        }
    }
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        json!((self.case, &self.subject, self.producers, self.millis)).fmt(f)
    }
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

impl Task {
    /// Does it, and returns what was measured.
    ///
    /// # Errors
    ///
    /// The map cannot be created, or a program fails.
    pub(crate) fn perform(&self) -> Result<Value> {
        let mut works: Vec<_> = Vec::new();
        for work in (0..self.producers).flat_map(|at| self.case.works(at, self.producers)) {
            if !works.contains(work) {
                works.push(*work);
            }
        }
        let before = process::threads();
        let subject = subjects::make(&self.subject, &works, self.producers)?;
        let trimmed = process::trim();
        let resident = process::resident();
        let idle = process::cpu_time();
        let (totals, mut seen, elapsed) = self.produce(&*subject)?;
        let busy = process::cpu_time().saturating_sub(idle);
        seen.peak = seen.peak.max(process::peak().filter(|_| trimmed).unwrap_or(0));
        let in_flight = subject.held().and_then(|held| held.in_flight);
        drop(subject);
        let left = Instant::now();
        while process::threads() > before && left.elapsed() < LEAVE {
            std::thread::sleep(PAUSE);
        }
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let (loops, looks) = (totals.loops as f64, seen.looks.max(1) as f64);
        Ok(json!({
            // Thousand loops in a second of all producers together, and for each second of processor time of the whole
            // process, which other processes do not change.
            "loops_k_per_s": loops / elapsed.as_secs_f64() / 1e3,
            "loops_k_per_cpu_s": loops / busy.as_secs_f64() / 1e3,
            // Resident memory of the process before the first loop, with everything loaded; then average and peak.
            "before_mib": mib(resident as f64),
            "avg_mib": mib(seen.resident as f64 / looks), "peak_mib": mib(seen.peak as f64),
            // Memory that the map held; `null` where it does not know.
            "map_avg_mib": seen.map.map(|(sum, _)| mib(sum as f64 / looks)),
            "map_peak_mib": seen.map.map(|(_, peak)| mib(peak as f64)),
            // Threads without the producers: before there was a runtime, and when the map and the runtime were gone.
            "threads": {
                "before": before,
                "peak": seen.threads.saturating_sub(self.producers),
                "after": process::threads(),
            },
            // The most elements that were freed and could not be used again yet.
            "objects_in_flight_peak": in_flight,
            // Updates that failed because there was no memory.
            "failed_per_loop": totals.failed as f64 / loops.max(1.0),
        }))
    }

    /// Lets the producers run until the time is over.
    fn produce(&self, subject: &dyn Subject) -> Result<(Totals, Seen, Duration)> {
        let over = AtomicBool::new(false);
        let ready = Barrier::new(self.producers as usize + 1);
        let in_pairs = self.case.in_pairs(self.producers);
        let turns: Vec<Turns> = (0..self.producers.div_ceil(2)).map(|_| Turns::default()).collect();
        let one = |producer: u32| {
            pin(producer as usize);
            let mut run = subject.producer(self.case.first(producer, self.producers));
            let works = self.case.works(producer, self.producers);
            let turns = in_pairs.then(|| &turns[producer as usize / 2]);
            let mut totals = Totals::default();
            ready.wait();
            let began = Instant::now();
            for &work in works.iter().cycle() {
                // Odd ones begin, which add.
                if over.load(Ordering::Relaxed)
                    || turns.is_some_and(|turns| !turns.take(producer % 2 == 1, &over))
                {
                    break;
                }
                totals.failed += run(work).inspect_err(|_| over.store(true, Ordering::Relaxed))?;
                totals.loops += 1;
                totals.span = Some((began, Instant::now()));
                if let Some(turns) = turns {
                    turns.pass_on();
                }
            }
            Ok::<_, Error>(totals)
        };
        std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> =
                (0..self.producers).map(|producer| scope.spawn(move || one(producer))).collect();
            ready.wait();
            let started = Instant::now();
            let mut seen = Seen::default();
            while started.elapsed() < Duration::from_millis(self.millis) && !over.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                seen.look(subject);
            }
            over.store(true, Ordering::Relaxed);
            let all: Vec<_> = all.into_iter().map(|producer| producer.join()).collect();
            let mut sum = Totals::default();
            for totals in all {
                sum.add(totals.map_err(|_| "a producer panicked")??);
            }
            let elapsed = sum.span.map_or_else(|| started.elapsed(), |(began, ended)| ended - began);
            Ok((sum, seen, elapsed))
        })
    }
}

#[derive(Default)]
struct Totals {
    loops: u64,
    failed: u64,
    /// From the begin of the first loop to the end of the last one: the thread that waits for the time may come late
    /// itself.
    span: Option<(Instant, Instant)>,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.loops += other.loops;
        self.failed += other.failed;
        let both = |(began, ended): (Instant, Instant), (first, last)| (began.min(first), ended.max(last));
        self.span = match (self.span, other.span) {
            (Some(one), Some(other)) => Some(both(one, other)),
            (one, other) => one.or(other),
        };
    }
}

/// Which producer of a pair has its turn.
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
    /// Waits for a producer's turn. Returns `false` where the time is over first.
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
        let task: Task = r#"["overwrite","papaya",2,50]"#.parse().unwrap();
        assert_eq!(task.to_string().parse::<Task>().unwrap(), task);
        for odd in
            ["", r#"["overwrite","papaya",2]"#, r#"["x","papaya",2,50]"#, r#"["overwrite","papaya",0,50]"#]
        {
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
