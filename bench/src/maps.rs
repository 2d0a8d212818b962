//! `skep-bench map`: the time of an operation on a map, from programs and from the host.
//!
//! Every map holds so many elements of 4-byte keys and 8-byte values. A turn passes over a table of its keys in random
//! order, once to bring them into the caches, and once against the clock. All subjects of one size take turns in
//! rounds, each with one thread and with two; the report has nanoseconds for each operation of one thread, best round.
//! Nothing is subtracted: the loop itself, with the load of the key, is a row of its own.
//!
//! Every operation must succeed each time, but for kinds that may drop elements by themselves, and for queues, stacks
//! and ring buffers that several threads use at once: they give up rather than wait for a thread that is not running.

mod linux;
pub(crate) mod peers;
pub(crate) mod programs;
mod skep;

use crate::report::{Report, Target};
use crate::together::together;
use crate::{Common, kernel, progress};
use ::skep::Runtime;
use ::skep::abi::MapKind;
pub(crate) use linux::measure as measure_linux;
use programs::{KINDS, Op, WINDOW};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// How many elements there are.
const SIZES: [u32; 3] = [64, 8192, 262_144];
/// Threads that do the same at once.
const THREADS: [u32; 2] = [1, 2];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which everything takes its turn.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only maps of this kind; may be given several times. Without it, all kinds, and other crates' maps.
    #[arg(long, value_name = "KIND", value_parser = clap::builder::PossibleValuesParser::new(kinds()))]
    kind: Vec<String>,
}

/// An operation on a map.
#[derive(Debug, Serialize)]
struct Row {
    /// The kind, or the crate that the map is from.
    map: &'static str,
    /// Whether it is another crate's.
    peer: bool,
    /// From where: `program` or `host`.
    from: &'static str,
    /// `nothing`, `look_up`, `update`, `insert_delete`, `push_pop` or `reserve_submit`.
    op: &'static str,
    /// How many elements there are.
    entries: u32,
    /// How many threads do it at once.
    threads: u32,
    /// Nanoseconds that each of them takes.
    ns: f64,
    /// The running kernel's; `None` where it was not measured.
    ns_linux: Option<f64>,
}

/// A kind that cannot be created.
#[derive(Debug, Serialize)]
struct Unavailable {
    map: &'static str,
    reason: String,
}

/// Something that is measured.
pub(crate) trait Subject: Sync {
    /// Makes room for a turn of all threads, before it.
    fn prepare(&self) {}

    /// Does its operation with the keys of so many windows, as thread 0 or 1: how often it went well.
    fn turn(&self, thread: u32, windows: u32) -> Result<u64, String>;
}

/// A subject with what was measured.
struct Cell {
    map: &'static str,
    peer: bool,
    from: &'static str,
    op: Op,
    entries: u32,
    /// Whether an operation may go otherwise than well.
    lossy: bool,
    windows: u32,
    subject: Box<dyn Subject>,
    best: [Duration; THREADS.len()],
}

impl Cell {
    fn time(&mut self) -> Result<(), String> {
        for (&threads, best) in THREADS.iter().zip(&mut self.best) {
            self.subject.prepare();
            let (well, taken) = together(threads, |thread| self.subject.turn(thread, self.windows))?;
            let well: u64 = well.iter().sum();
            let all = u64::from(threads * self.windows * WINDOW);
            if well != all && !self.lossy && must_go_well(self.op, threads) {
                let Self { map, from, op, entries, .. } = self;
                let op = op.name();
                return Err(format!(
                    "{map} with {entries} elements: {op} by the {from} went well {well} times of {all}"
                ));
            }
            *best = taken.min(*best);
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let each = f64::from(self.windows * WINDOW);
        THREADS.iter().zip(&self.best).map(move |(&threads, best)| Row {
            map: self.map,
            peer: self.peer,
            from: self.from,
            op: self.op.name(),
            entries: self.entries,
            threads,
            ns: best.as_secs_f64() * 1e9 / each,
            ns_linux: None,
        })
    }
}

/// What has one lock for all gives up where the thread that holds it is not running.
fn must_go_well(op: Op, threads: u32) -> bool {
    threads == 1 || !matches!(op, Op::PushPop | Op::ReserveSubmit)
}

/// The names of the kinds that can be measured.
fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.kind.name())
}

/// Measures everything.
///
/// # Errors
///
/// Memory cannot be had, or an operation that must succeed fails.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report, String> {
    let (rounds, windows, most_entries) =
        if common.quick { (1, 4, 8192) } else { (args.rounds, 64, u32::MAX) };
    let mut rows = Vec::new();
    let mut unavailable = Vec::new();
    for entries in SIZES.into_iter().filter(|entries| *entries <= most_entries) {
        progress(format!("maps of {entries} elements"));
        let (mut cells, missing) = cells(entries, windows, &args.kind)?;
        for _ in 0..rounds {
            cells.iter_mut().try_for_each(Cell::time)?;
        }
        rows.extend(cells.iter().flat_map(Cell::rows));
        unavailable = missing;
    }
    let release = kernel::measure(common.linux, "map", |answers| linux::fill(&mut rows, answers));
    let summary = format!("ns for each operation of one thread, loop included, best of {rounds} rounds");
    let mut report = Report::new("map", summary);
    report.field("rounds", rounds);
    let columns = [
        ("map", "map", 0),
        ("from", "from", 0),
        ("operation", "op", 0),
        ("elements", "entries", 0),
        ("threads", "threads", 0),
        ("ns", "ns", 1),
        ("Linux", "ns_linux", 1),
    ];
    report.table("rows", "operations", &rows, &columns);
    report.table(
        "unavailable",
        "maps that cannot be created",
        &unavailable,
        &[("", "map", 0), ("", "reason", 0)],
    );
    Ok(report.linux(&release).targets(targets(&rows)))
}

/// Everything that is measured with so many elements, and the kinds that are not there.
fn cells(entries: u32, least: u32, kinds: &[String]) -> Result<(Vec<Cell>, Vec<Unavailable>), String> {
    let keys: Arc<[u32]> = programs::keys(entries).into();
    let windows = (keys.len() as u32 / WINDOW).max(least);
    let runtime = Runtime::builder().cpus(4).build().map_err(|error| error.to_string())?;
    let (mut cells, mut unavailable) = (Vec::new(), Vec::new());
    let mut add = |map, peer, from, op, lossy, subject| {
        let best = [Duration::MAX; THREADS.len()];
        cells.push(Cell { map, peer, from, op, entries, lossy, windows, subject, best });
    };
    for kind in KINDS {
        let name = kind.kind.name();
        if !kinds.is_empty() && !kinds.iter().any(|wanted| wanted == name) {
            continue;
        }
        let loaded = match skep::Loaded::new(&runtime, kind, entries, &keys) {
            Ok(loaded) => loaded,
            Err(reason) => {
                unavailable.push(Unavailable { map: name, reason });
                continue;
            }
        };
        let lossy = kind.kind == MapKind::LruHash;
        if kind.kind == MapKind::Hash {
            let subject = loaded.program(Op::Nothing, keys.len()).ok_or("no empty loop")?;
            add("none", false, "program", Op::Nothing, false, Box::new(subject) as Box<dyn Subject>);
        }
        for &op in kind.ops {
            if let Some(subject) = loaded.program(op, keys.len()) {
                add(name, false, "program", op, lossy, Box::new(subject));
            }
            if let Some(subject) = loaded.host(op, &keys) {
                add(name, false, "host", op, lossy, Box::new(subject));
            }
        }
    }
    for (name, peer) in peers::all(2 * entries as usize).into_iter().filter(|_| kinds.is_empty()) {
        let present: Vec<u32> = (0..entries).collect();
        peer.pass(Op::Update, &present, 0);
        for op in [Op::LookUp, Op::Update, Op::InsertDelete] {
            let subject = peers::FromHost { peer: Arc::clone(&peer), op, keys: Arc::clone(&keys) };
            add(name, true, "host", op, false, Box::new(subject));
        }
    }
    Ok((cells, unavailable))
}

fn targets(rows: &[Row]) -> Vec<Target> {
    let of = |op: Op, entries: Option<u32>| {
        let wanted = |row: &&Row| {
            (row.map, row.from, row.op, row.threads) == ("hash", "program", op.name(), 1)
                && entries.is_none_or(|entries| row.entries == entries)
        };
        rows.iter().filter(wanted).map(|row| row.ns).reduce(f64::max)
    };
    [
        ("hash look-up, 64 elements", Op::LookUp, Some(64), 8.0),
        ("hash look-up, 8192 elements", Op::LookUp, Some(8192), 12.0),
        ("hash look-up, 262144 elements", Op::LookUp, Some(262_144), 60.0),
        ("hash update, 64 elements", Op::Update, Some(64), 25.0),
        ("hash update, 8192 elements", Op::Update, Some(8192), 40.0),
        ("hash update, 262144 elements", Op::Update, Some(262_144), 120.0),
        ("hash insert and delete, 8192 elements", Op::InsertDelete, Some(8192), 50.0),
    ]
    .into_iter()
    .filter_map(|(name, op, entries, most)| Some(Target::at_most(name, "ns", most, of(op, entries)?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_goes_well_on_every_map_that_is_there() {
        let (mut cells, unavailable) = cells(64, 2, &[]).unwrap();
        cells.iter_mut().try_for_each(Cell::time).unwrap();
        let kinds: Vec<_> = unavailable.iter().map(|kind| kind.map).collect();
        for map in ["hash", "percpu_hash", "array", "percpu_array", "lpm_trie"] {
            assert!(!kinds.contains(&map), "{unavailable:?}");
        }
        let of = |map: &str| cells.iter().filter(|cell| cell.map == map).count();
        assert_eq!((of("none"), of("hash"), of("array"), of("dashmap")), (1, 6, 4, 3));
    }

    #[test]
    fn the_threads_take_other_keys_where_they_add_some() {
        assert_ne!(programs::bits(Op::InsertDelete, 0), programs::bits(Op::InsertDelete, 1));
        assert_eq!(programs::bits(Op::LookUp, 1), 0);
        let keys = programs::keys(8192);
        let of = |thread| programs::walk(&keys, thread, 4).flatten().copied().collect::<Vec<_>>();
        assert!(of(0).iter().all(|key| !of(1).contains(key)));
    }
}
