//! `skep-bench poke`: the cost of changing a branch in running code, and whether a thread ever sees it half done.
//!
//! A *poke* replaces the target of one branch. Pokes are made in batches, and a batch is finished by one barrier that
//! makes every CPU of the process synchronise. Both are timed, apart from each other: a poke before the barrier is one
//! store, and the barrier is a system call whose cost depends on the neighbours. A *neighbour* is a thread of the
//! process: it sleeps, or it runs the very code that is poked.
//!
//! The second part counts (`check`): a thread calls a function and looks where its branch led, as often as wanted,
//! while another pokes it.

mod check;
mod site;

use crate::report::{Report, Target, number};
use crate::timing::sorted;
use crate::{Common, Result, progress};
use serde_json::{Value, json};
use site::Site;
use skep_text::{Arena, Backing, Config};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Sites poked in one batch.
const BATCHES: [usize; 3] = [1, 16, 64];
/// Pokes that are timed together before a barrier, so that reading the clock does not count.
const POKES: usize = 512;
/// Whole batches that are timed together.
const WHOLE: usize = 8;
/// Rounds that are tried for each that is wanted, where a busy neighbour does not run because something else does.
/// After that all are kept.
const ATTEMPTS: u32 = 100;
/// Calls with `--full`, for each backing.
const FULL: u64 = 1_000_000_000;
/// Calls with `--quick`, at most.
const QUICK: u64 = 200_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each batch is timed.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Calls of a function that is poked all the time, for each backing.
    #[arg(long, value_name = "N", default_value_t = 50_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    /// A thousand million calls for each backing, in place of --calls.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
}

/// Runs the benchmark. A torn or stale call makes it fail, after the report.
///
/// # Errors
///
/// The system refuses the default backing, or pokes.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let rounds = if common.quick { args.rounds.min(5) } else { args.rounds };
    let calls = if args.full { FULL } else { args.calls.min(if common.quick { QUICK } else { u64::MAX }) };
    let (mut rows, mut checks, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for backing in [None, Some(Backing::Hardened)] {
        let config = backing.map_or_else(Config::new, |backing| Config::new().backing(backing));
        let arena = match (Arena::new(config), backing) {
            (Err(error), Some(backing)) => {
                refused.push(json!({"backing": backing.name(), "reason": error.to_string()}));
                continue;
            }
            (arena, _) => arena?,
        };
        let name = arena.occupancy().backing.name();
        progress(format!("pokes, backing {name}"));
        for busy in [false, true] {
            rows.extend(timed(&arena, name, busy, rounds)?);
        }
        progress(format!("{calls} calls against pokes, backing {name}"));
        checks.push(check::run(&arena, name, calls)?);
    }
    let mut report = Report::new("poke", format!("ns, best and median of {rounds} rounds"));
    report.fields(json!({"rounds": rounds}));
    let columns = "backing; sites; neighbour; poke before barrier = ns_before_barrier:1; \
                   median = ns_before_barrier_median:1; barrier = ns_barrier:1; median = ns_barrier_median:1; \
                   poke in all = ns_per_poke:1; median = ns_per_poke_median:1";
    report.table("rows", "pokes", &rows, columns);
    let columns = "backing; calls; pokes; batches; s = seconds:1; torn; stale; \
                   calls with one right result = judged";
    report.table("checks", "calls while another thread pokes", &checks, columns);
    report.table("refused", "refused", refused, "backing; reason");
    let wrong = |check: &&Value| number(check, "torn") + number(check, "stale") > 0.0;
    report.failure = checks.iter().find(wrong).map(|check| {
        let Value::String(backing) = &check["backing"] else { return String::new() };
        format!("{} torn and {} stale calls, backing {backing}", check["torn"], check["stale"])
    });
    Ok(report.targets(targets(&rows, &checks)))
}

/// Times all sizes of batches beside one neighbour.
fn timed(arena: &Arena, backing: &'static str, busy: bool, rounds: u32) -> Result<Vec<Value>> {
    let most = BATCHES.into_iter().max().unwrap_or(1);
    let sites = (0..most).map(|_| Site::small(arena)).collect::<Result<Vec<_>, _>>()?;
    let over = AtomicBool::new(false);
    let laps = AtomicU64::new(0);
    thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            // It publishes nothing, only that the measurement is over.
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
            let mut attempts = rounds.saturating_mul(ATTEMPTS);
            while times.whole.len() < rounds as usize {
                attempts = attempts.saturating_sub(1);
                let running = || !busy || attempts == 0 || runs(&laps);
                times.round(arena, sites, running)?;
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
    fn round(&mut self, arena: &Arena, sites: &[Site], running: impl Fn() -> bool) -> Result<()> {
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

    /// Nanoseconds, the best and the median of the rounds.
    fn row(self, backing: &str, busy: bool, sites: usize) -> Value {
        let (before, whole) = (sorted(self.before), sorted(self.whole));
        let middle = before.len() / 2;
        let barrier = |at: usize| ((whole[at] - before[at]) * sites as f64).max(0.0);
        json!({
            // What the code memory is made of, sites poked in a batch, and what the other thread does.
            "backing": backing, "sites": sites, "neighbour": if busy { "busy" } else { "idle" },
            // A poke before the barrier.
            "ns_before_barrier": before[0], "ns_before_barrier_median": before[middle],
            // Beginning a batch, and its barrier: the best batch less its pokes at their best.
            "ns_barrier": barrier(0), "ns_barrier_median": barrier(middle),
            // A poke, its share of the barrier included.
            "ns_per_poke": whole[0], "ns_per_poke_median": whole[middle],
        })
    }
}

fn targets(rows: &[Value], checks: &[Value]) -> Vec<Target> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let default = rows.first().map(|row| text(row, "backing")).unwrap_or_default();
    let pokes = rows.iter().filter(|row| text(row, "backing") == default).map(|row| {
        let (sites, neighbour) = (&row["sites"], text(row, "neighbour"));
        let name = format!("a poke before the barrier, {default}, batches of {sites}, {neighbour} neighbour");
        Target::at_most(name, "ns", 20.0, number(row, "ns_before_barrier"))
    });
    let wrong = checks.iter().map(|check| {
        let name = format!("torn or stale of {} calls, {}", check["calls"], text(check, "backing"));
        Target::at_most(name, "calls", 0.0, number(check, "torn") + number(check, "stale"))
    });
    pokes.chain(wrong).collect()
}
