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

use crate::report::{Report, Target, find, number};
use crate::timing::ns;
use crate::{Common, Result, progress};
use allocators::{Allocator, Cached, How, Malloc, Mimalloc, Nothing};
use serde_json::{Value, json};
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

/// What a turn gives: its time, for how many pairs there was no memory, and the most bytes that the allocator had so
/// far.
type Turn = (Duration, u64, Option<usize>);

/// An allocator in one way of using it, without its type.
struct Cell {
    /// The key of its row: the allocator, its policy, how objects are freed, their size and the number of threads.
    key: Value,
    how: How,
    threads: u32,
    turn: Box<dyn Fn(u32) -> Result<Turn>>,
    /// Nanoseconds for each pair of each thread.
    ns: f64,
    /// The share of all pairs for which there was no memory, in the worst round.
    missing: f64,
    /// The most bytes that the cache had from the system.
    peak: Option<usize>,
}

impl Cell {
    fn turn(&mut self, runs: u32) -> Result<()> {
        let (taken, missing, peak) = (self.turn)(runs)?;
        let pairs = f64::from(runs * PAIRS);
        self.ns = self.ns.min(ns(taken) / pairs);
        // Each thread that allocates does so twice, the first time without the clock.
        let allocating = if self.how == How::Across { 1 } else { self.threads };
        self.missing = self.missing.max(missing as f64 / pairs / f64::from(2 * allocating));
        self.peak = peak;
        Ok(())
    }

    fn row(mut self) -> Value {
        self.key["ns"] = self.ns.into();
        self.key["missing"] = self.missing.into();
        self.key["peak_mib"] = self.peak.map(|bytes| bytes as f64 / f64::from(1 << 20)).into();
        self.key
    }
}

/// Measures everything.
///
/// # Errors
///
/// There is no memory.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    // Runs in a turn, and grace periods of each sort.
    let (rounds, runs, waits) = if common.quick { (1, 4, 20) } else { (args.rounds, 64, 2000) };
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
            cells.iter_mut().try_for_each(|cell| cell.turn(runs))?;
        }
        rows.extend(cells.into_iter().map(Cell::row));
    }
    let pair = |policy: Policy| {
        let key = json!({"policy": policy.name(), "how": How::OneByOne, "bytes": 32, "threads": 1});
        find(&rows, &key).map_or(f64::NAN, |row| number(row, "ns"))
    };
    let targets = vec![
        Target::at_most("pair on one processor, immediate reuse", "ns", 5.0, pair(Policy::Immediate)),
        Target::at_most("pair, reuse after a grace period", "ns", 5.0, pair(Policy::default())),
    ];
    let mut report = Report::new("alloc", format!("best of {rounds} rounds"));
    report.fields(json!({"rounds": rounds}));
    let columns =
        "allocator; policy; freed = how; bytes; threads; ns:1; no memory = missing:3; peak MiB = peak_mib:1";
    report.table("rows", "allocation, a store and the free, ns for each thread", &rows, columns);
    progress("grace periods");
    let columns = "= what; busy reader = busy; median us = median_us:1; p99 us = p99_us:1";
    report.table("grace", "grace periods", grace::measure(waits)?, columns);
    progress("read-side critical sections");
    let sections = sections::measure(rounds)?;
    report.table("sections", "read-side critical sections", sections, "= of; threads; ns:2");
    Ok(report.targets(targets))
}

/// An allocator in every way of using it, anew for each.
fn add<A: Allocator + 'static>(
    cells: &mut Vec<Cell>,
    bytes: usize,
    make: impl Fn() -> Result<A>,
) -> Result<()> {
    for how in [How::OneByOne, How::Several, How::Across] {
        // Across processors it is one thread that allocates and one that frees.
        let all: &[u32] = if how == How::Across { &[2] } else { &[1, 2] };
        for &threads in all {
            let allocator = make()?;
            let (name, policy) = (A::NAME, allocator.policy().map(Policy::name));
            let key =
                json!({"allocator": name, "policy": policy, "how": how, "bytes": bytes, "threads": threads});
            let turn = Box::new(move |runs| {
                let (taken, missing) = allocators::time(&allocator, how, threads, runs)?;
                Ok((taken, missing, allocator.peak_bytes()))
            });
            cells.push(Cell { key, how, threads, turn, ns: f64::INFINITY, missing: 0.0, peak: None });
        }
    }
    Ok(())
}
