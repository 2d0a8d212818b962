//! `skep bench alloc`: memory for objects against mimalloc and the system's malloc, grace periods, and read sections.
//!
//! A pair is an allocation, a store of one word, and the free. On one processor objects are freed one by one, or sixty-four
//! together; across processors one thread allocates and another one frees, with at most 256 objects on their way in a ring
//! between them, whose own time is told too (`none`). Every 1,024 pairs are one run, as of a program. All have their turns
//! in rounds; the best round counts.

mod allocators;
mod grace;
mod ring;
mod sections;

use crate::load::Target;
use allocators::{Allocator, Cached, How, Malloc, Mimalloc, Nothing};
pub use grace::Latency;
pub use sections::Section;
use serde::Serialize;
use skep_mem::Policy;
use std::time::Duration;

/// Bytes of an object.
const SIZES: [usize; 3] = [32, 256, 4096];
/// Pairs in a run.
const PAIRS: u32 = 1024;

/// What is measured.
#[derive(Debug)]
pub struct Options {
    /// How often each has its turn.
    pub rounds: u32,
    /// Of how many times 1,024 pairs a turn is.
    pub runs: u32,
    /// How many grace periods of each sort are waited for.
    pub waits: u32,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Architecture of this machine.
    pub arch: &'static str,
    /// Its processor, as the system names it.
    pub cpu: String,
    /// How often each had its turn.
    pub rounds: u32,
    /// Allocation and free.
    pub rows: Vec<Row>,
    /// Grace periods.
    pub grace: Vec<Latency>,
    /// Read sections.
    pub sections: Vec<Section>,
    /// What was to be reached.
    pub targets: Vec<Target>,
}

/// Pairs of an allocation and a free.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Whose.
    pub allocator: &'static str,
    /// When what was freed is reused, in skep's caches.
    pub policy: Option<&'static str>,
    /// `one_by_one`, `several` or `across`.
    pub how: &'static str,
    /// Bytes of an object.
    pub bytes: usize,
    /// Threads that do this at once; across processors it is one that allocates and one that frees.
    pub threads: u32,
    /// Nanoseconds for each pair of each thread.
    pub ns: f64,
    /// For how many of all pairs there was no memory, in the worst round.
    pub missing: f64,
    /// The most that the cache had from the system.
    pub peak_mib: Option<f64>,
}

/// What a turn gives: its time, for how many pairs there was no memory, and the most bytes that the allocator had so far.
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

/// Measures everything; `progress` is told what comes.
///
/// # Errors
///
/// Where memory cannot be had.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Report, String> {
    let mut rows = Vec::new();
    for bytes in SIZES {
        progress(&format!("objects of {bytes} bytes"));
        let mut cells = Vec::new();
        add(&mut cells, bytes, || Ok(Nothing::default()))?;
        for policy in Policy::ALL {
            add(&mut cells, bytes, || Cached::new(bytes, policy))?;
        }
        add(&mut cells, bytes, || Ok(Mimalloc(bytes)))?;
        add(&mut cells, bytes, || Malloc::new(bytes))?;
        for _ in 0..options.rounds {
            for cell in &mut cells {
                cell.turn(options.runs)?;
            }
        }
        rows.extend(cells.into_iter().map(|cell| cell.row));
    }
    progress("grace periods");
    let grace = grace::measure(options.waits)?;
    progress("read sections");
    let sections = sections::measure(options.rounds)?;
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
    Ok(Report {
        arch: std::env::consts::ARCH,
        cpu: crate::exec::cpu(),
        rounds: options.rounds,
        rows,
        grace,
        sections,
        targets,
    })
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
        let report = run(&Options { rounds: 1, runs: 2, waits: 3 }, |_| ()).unwrap();
        assert_eq!(report.rows.len(), 3 * 8 * 5);
        assert!(report.rows.iter().all(|row| row.ns > 0.0));
        assert_eq!((report.grace.len(), report.sections.len()), (6, 14));
        assert!(report.targets[0].value > 0.0);
    }
}
