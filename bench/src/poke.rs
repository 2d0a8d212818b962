//! `skep bench poke`: what it costs to change a branch in code that runs, and whether anyone ever sees it half done.
//!
//! A *poke* replaces the target of one branch. Pokes are made in batches, and a batch is finished by one barrier that
//! makes every CPU of the process synchronise. Both are timed, apart from each other: a poke before the barrier is one
//! store, and the barrier is a system call whose cost depends on what the neighbours do. A *neighbour* is a thread of the
//! process: it sleeps, or it runs the very code that is poked.
//!
//! The second part counts (`check`): a thread calls a function and looks where its branch led, as often as wanted,
//! while another pokes it.

mod check;
mod site;

use crate::pack::Target;
use serde::Serialize;
use site::Site;
use skep_text::{Arena, Backing, Config};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

pub use check::Check;

/// Sites poked in one batch.
pub const BATCHES: [usize; 3] = [1, 16, 64];
/// Pokes that are timed together before a barrier, so that reading the clock does not count.
const POKES: usize = 512;
/// Whole batches that are timed together.
const WHOLE: usize = 8;
/// Rounds that are tried for each that is wanted, where a busy neighbour does not run because something else does. After
/// that all are kept.
const ATTEMPTS: u32 = 100;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often each batch is timed.
    pub rounds: u32,
    /// Calls of a function that is poked all the time, for each backing.
    pub calls: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { rounds: 300, calls: 50_000_000 }
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Architecture of this machine.
    pub arch: &'static str,
    /// Its processor, as the system names it.
    pub cpu: String,
    /// Rounds of timing.
    pub rounds: u32,
    /// One row for each backing, neighbour and size of batch.
    pub rows: Vec<Row>,
    /// Calls against pokes, for each backing.
    pub checks: Vec<Check>,
    /// Backings that the system refuses, and why.
    pub refused: Vec<Refused>,
    /// What was aimed at, and whether it was met.
    pub targets: Vec<Target>,
}

/// What batches of one size cost.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What the code memory is made of.
    pub backing: &'static str,
    /// Sites poked in a batch.
    pub sites: usize,
    /// `idle` or `busy`: what the other thread does.
    pub neighbour: &'static str,
    /// Nanoseconds a poke before the barrier, the best of the rounds.
    pub ns_before_barrier: f64,
    /// The same, the median.
    pub ns_before_barrier_median: f64,
    /// Nanoseconds of beginning a batch and of its barrier: the best batch less its pokes at their best.
    pub ns_barrier: f64,
    /// The same of the medians.
    pub ns_barrier_median: f64,
    /// Nanoseconds a poke, its share of the barrier included, the best of the rounds.
    pub ns_per_poke: f64,
    /// The same, the median.
    pub ns_per_poke_median: f64,
}

/// A backing that could not be had.
#[derive(Debug, Serialize)]
pub struct Refused {
    /// The backing.
    pub backing: &'static str,
    /// Why.
    pub reason: String,
}

/// Runs the benchmark; `progress` is told what is measured as its turn comes.
///
/// # Errors
///
/// What the system refuses of the default backing, and of pokes.
pub fn run(options: Options, mut progress: impl FnMut(&str)) -> Result<Report, String> {
    let (mut rows, mut checks, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let backings = [None, Some(Backing::Hardened)];
    for backing in backings {
        let config = backing.map_or_else(Config::new, |backing| Config::new().backing(backing));
        let arena = match (Arena::new(config), backing) {
            (Ok(arena), _) => arena,
            (Err(error), Some(backing)) => {
                refused.push(Refused { backing: backing.name(), reason: error.to_string() });
                continue;
            }
            (Err(error), None) => return Err(error.to_string()),
        };
        let name = arena.occupancy().backing.name();
        progress(&format!("pokes, backing {name}"));
        for busy in [false, true] {
            rows.extend(timed(&arena, name, busy, options)?);
        }
        progress(&format!("{} calls against pokes, backing {name}", options.calls));
        checks.push(check::run(&arena, name, options.calls)?);
    }
    let targets = targets(&rows, &checks);
    let (arch, cpu) = (std::env::consts::ARCH, crate::exec::cpu());
    Ok(Report { arch, cpu, rounds: options.rounds, rows, checks, refused, targets })
}

/// Times all sizes of batches beside one neighbour.
fn timed(arena: &Arena, backing: &'static str, busy: bool, options: Options) -> Result<Vec<Row>, String> {
    let most = BATCHES.into_iter().max().unwrap_or(1);
    let sites = (0..most).map(|_| Site::small(arena)).collect::<Result<Vec<_>, _>>()?;
    let over = AtomicBool::new(false);
    let laps = AtomicU64::new(0);
    thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            // Nothing is published by it; it says only that it is over.
            while !over.load(Ordering::Relaxed) {
                if busy {
                    for site in &sites {
                        std::hint::black_box(site.call());
                        // Only shows that this thread runs.
                        laps.fetch_add(1, Ordering::Relaxed);
                    }
                } else {
                    thread::park();
                }
            }
        });
        let rows = BATCHES.map(|count| {
            let sites = &sites[..count];
            let mut times = Times::default();
            let mut attempts = options.rounds.saturating_mul(ATTEMPTS);
            while times.whole.len() < options.rounds as usize {
                attempts = attempts.saturating_sub(1);
                let running = || !busy || attempts == 0 || runs(&laps);
                times.round(arena, sites, running).map_err(|error| error.to_string())?;
            }
            Ok(times.row(backing, busy, count))
        });
        over.store(true, Ordering::Relaxed);
        neighbour.thread().unpark();
        rows.into_iter().collect()
    })
}

/// Whether the thread that counts its laps runs at this moment, on another CPU.
fn runs(laps: &AtomicU64) -> bool {
    let before = laps.load(Ordering::Relaxed);
    for _ in 0..1000 {
        if laps.load(Ordering::Relaxed) != before {
            return true;
        }
        std::hint::spin_loop();
    }
    thread::yield_now();
    false
}

/// Nanoseconds of each round.
#[derive(Default)]
struct Times {
    before: Vec<f64>,
    whole: Vec<f64>,
}

impl Times {
    /// Times a round, and keeps it if the neighbour was running before and after.
    fn round(
        &mut self,
        arena: &Arena,
        sites: &[Site],
        running: impl Fn() -> bool,
    ) -> Result<(), skep_text::Error> {
        if !running() {
            return Ok(());
        }
        let repeat = POKES / sites.len();
        let mut pokes = arena.pokes()?;
        let started = Instant::now();
        for time in 0..repeat {
            for site in sites {
                site.poke(&mut pokes, time % 2)?;
            }
        }
        let before = started.elapsed().as_nanos() as f64 / (repeat * sites.len()) as f64;
        pokes.finish()?;

        let started = Instant::now();
        for time in 0..WHOLE {
            let mut pokes = arena.pokes()?;
            for site in sites {
                site.poke(&mut pokes, time % 2)?;
            }
            pokes.finish()?;
        }
        let batch = started.elapsed().as_nanos() as f64 / WHOLE as f64;
        if !running() {
            return Ok(());
        }
        self.before.push(before);
        self.whole.push(batch / sites.len() as f64);
        Ok(())
    }

    fn row(mut self, backing: &'static str, busy: bool, sites: usize) -> Row {
        for times in [&mut self.before, &mut self.whole] {
            times.sort_by(f64::total_cmp);
        }
        let middle = self.before.len() / 2;
        let barrier = |at: usize| ((self.whole[at] - self.before[at]) * sites as f64).max(0.0);
        Row {
            backing,
            sites,
            neighbour: if busy { "busy" } else { "idle" },
            ns_before_barrier: self.before[0],
            ns_before_barrier_median: self.before[middle],
            ns_barrier: barrier(0),
            ns_barrier_median: barrier(middle),
            ns_per_poke: self.whole[0],
            ns_per_poke_median: self.whole[middle],
        }
    }
}

fn targets(rows: &[Row], checks: &[Check]) -> Vec<Target> {
    let default = rows.first().map_or("", |row| row.backing);
    let pokes = rows.iter().filter(|row| row.backing == default).map(|row| Target {
        what: format!(
            "ns a poke before the barrier, {default}, batches of {}, {} neighbour",
            row.sites, row.neighbour
        ),
        wanted: 20.0,
        measured: row.ns_before_barrier,
        met: row.ns_before_barrier <= 20.0,
    });
    let wrong = checks.iter().map(|check| {
        let measured = (check.torn + check.stale) as f64;
        let what = format!("torn or stale of {} calls, {}", check.calls, check.backing);
        Target { what, wanted: 0.0, measured, met: measured == 0.0 }
    });
    pokes.chain(wrong).collect()
}
