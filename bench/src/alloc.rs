//! `skep-bench alloc`: object allocation against mimalloc and the system's malloc, grace periods, and read-side
//! critical sections.
//!
//! A pair is an allocation, a store of one word, and the free. On one processor objects are freed one by one, or
//! sixty-four together. Across processors one thread allocates and another one frees; a ring between them holds at most
//! 256 objects, and its own time is reported too (`none`). Every 1,024 pairs are one run, as of a program. All take
//! turns in rounds; the best round counts.

mod allocators;
mod grace;
mod ring;
mod sections;

use crate::progress;
use crate::report::{Report, Target};
use allocators::{Allocator, Cached, How, Malloc, Mimalloc, Nothing};
use serde::Serialize;
use skep_mem::Policy;
use std::time::Duration;

/// Bytes of an object.
const SIZES: [usize; 3] = [32, 256, 4096];
/// Pairs in a run.
const PAIRS: u32 = 1024;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which everything takes its turn.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Pairs of an allocation and a free.
#[derive(Debug, Serialize)]
struct Row {
    allocator: &'static str,
    /// When a freed object is reused, in skep's caches.
    policy: Option<&'static str>,
    /// `one_by_one`, `several` or `across`.
    how: &'static str,
    bytes: usize,
    /// Threads that do this at once; across processors it is one that allocates and one that frees.
    threads: u32,
    /// Nanoseconds for each pair of each thread.
    ns: f64,
    /// The share of all pairs for which there was no memory, in the worst round.
    missing: f64,
    /// The most memory that the cache had from the system.
    peak_mib: Option<f64>,
}

/// What a turn gives: its time, for how many pairs there was no memory, and the most bytes that the allocator had so
/// far.
type Turn = (Duration, u64, Option<usize>);

/// An allocator in one way of using it, without its type.
struct Cell {
    row: Row,
    turn: Box<dyn Fn(u32) -> Result<Turn, String>>,
}

impl Cell {
    fn turn(&mut self, runs: u32) -> Result<(), String> {
        let (taken, missing, peak) = (self.turn)(runs)?;
        let pairs = f64::from(runs * PAIRS);
        self.row.ns = self.row.ns.min(taken.as_secs_f64() * 1e9 / pairs);
        // Each thread that allocates does so twice, the first time without the clock.
        let allocating = if self.row.how == How::Across.name() { 1 } else { self.row.threads };
        self.row.missing = self.row.missing.max(missing as f64 / pairs / f64::from(2 * allocating));
        self.row.peak_mib = peak.map(|bytes| bytes as f64 / f64::from(1 << 20));
        Ok(())
    }
}

/// Measures everything.
///
/// # Errors
///
/// Memory cannot be had.
pub(crate) fn run(args: &Args, quick: bool) -> Result<Report, String> {
    // Runs in a turn, and grace periods of each sort.
    let (rounds, runs, waits) = if quick { (1, 4, 20) } else { (args.rounds, 64, 2000) };
    let mut rows = Vec::new();
    for bytes in SIZES {
        progress(format!("objects of {bytes} bytes"));
        let mut cells = Vec::new();
        add(&mut cells, bytes, || Ok(Nothing::default()))?;
        for policy in Policy::ALL {
            add(&mut cells, bytes, || Cached::new(bytes, policy))?;
        }
        add(&mut cells, bytes, || Ok(Mimalloc(bytes)))?;
        add(&mut cells, bytes, || Malloc::new(bytes))?;
        for _ in 0..rounds {
            for cell in &mut cells {
                cell.turn(runs)?;
            }
        }
        rows.extend(cells.into_iter().map(|cell| cell.row));
    }
    let pair = |policy: Policy| {
        let of = |row: &&Row| {
            (row.policy, row.how, row.bytes, row.threads) == (Some(policy.name()), "one_by_one", 32, 1)
        };
        rows.iter().find(of).map_or(f64::NAN, |row| row.ns)
    };
    let targets = vec![
        Target::at_most("pair on one processor, immediate reuse", "ns", 5.0, pair(Policy::Immediate)),
        Target::at_most("pair, reuse after a grace period", "ns", 5.0, pair(Policy::default())),
    ];
    let mut report = Report::new("alloc", format!("best of {rounds} rounds"));
    report.field("rounds", rounds);
    let columns = [
        ("allocator", "allocator", 0),
        ("policy", "policy", 0),
        ("freed", "how", 0),
        ("bytes", "bytes", 0),
        ("threads", "threads", 0),
        ("ns", "ns", 1),
        ("no memory", "missing", 3),
        ("peak MiB", "peak_mib", 1),
    ];
    report.table("rows", "allocation, a store and the free, ns for each thread", &rows, &columns);
    progress("grace periods");
    let columns =
        [("", "what", 0), ("busy reader", "busy", 0), ("median us", "median_us", 1), ("p99 us", "p99_us", 1)];
    report.table("grace", "grace periods", &grace::measure(waits)?, &columns);
    progress("read-side critical sections");
    let columns = [("", "of", 0), ("threads", "threads", 0), ("ns", "ns", 2)];
    report.table("sections", "read-side critical sections", &sections::measure(rounds)?, &columns);
    Ok(report.targets(targets))
}

/// An allocator in every way of using it, anew for each.
fn add<A: Allocator + 'static>(
    cells: &mut Vec<Cell>,
    bytes: usize,
    make: impl Fn() -> Result<A, String>,
) -> Result<(), String> {
    for how in How::ALL {
        let all: &[u32] = if how == How::Across { &[2] } else { &[1, 2] };
        for &threads in all {
            let allocator = make()?;
            let row = Row {
                allocator: allocator.name(),
                policy: allocator.policy().map(Policy::name),
                how: how.name(),
                bytes,
                threads,
                ns: f64::INFINITY,
                missing: 0.0,
                peak_mib: None,
            };
            let turn = Box::new(move |runs| {
                let (taken, missing) = allocators::time(&allocator, how, threads, runs)?;
                Ok((taken, missing, allocator.peak_bytes()))
            });
            cells.push(Cell { row, turn });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocator_is_used_in_every_way() {
        let report = run(&Args { rounds: 1 }, true).unwrap().json();
        let len = |key: &str| report[key].as_array().unwrap().len();
        assert_eq!((len("rows"), len("grace"), len("sections")), (3 * 8 * 5, 6, 14));
        assert!(report["rows"].as_array().unwrap().iter().all(|row| row["ns"].as_f64().unwrap() > 0.0));
        assert!(report["targets"][0]["value"].as_f64().unwrap() > 0.0);
    }
}
