//! `skep-bench map`: the time of an operation on a map, from programs and from the host.
//!
//! All maps of one size hold the same elements, of 4-byte keys and 8-byte values. A turn passes over the keys in random
//! order, once to bring them into the caches, and once against the clock. All subjects of one size take turns in
//! rounds, each with one thread and with two; the report has nanoseconds for each operation of one thread, best round.
//! Nothing is subtracted: the loop itself, with the load of the key, is a row of its own.
//!
//! Every operation must succeed each time, except on kinds that may drop elements, and on queues, stacks
//! and ring buffers that several threads use at once: they give up rather than wait for a thread that is not running.

mod linux;
pub(crate) mod peers;
pub(crate) mod programs;
mod skep;

use crate::kernel::Linux;
use crate::report::{Report, Target, has, number};
use crate::timing::{ns, together};
use crate::{Common, Result, progress};
use ::skep::Runtime;
use ::skep::abi::MapKind;
pub(crate) use linux::measure as measure_linux;
use programs::{KINDS, Op, WINDOW};
use serde_json::{Value, json};
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
    #[arg(long, value_name = "KIND",
          value_parser = clap::builder::PossibleValuesParser::new(KINDS.map(|kind| kind.kind.name())))]
    kind: Vec<String>,
}

/// Something that is measured.
pub(crate) trait Subject: Sync {
    /// Makes room for a turn of all threads, before it.
    fn prepare(&self) {}

    /// Does its operation with the keys of `windows` windows, as thread 0 or 1. Returns how often it succeeded.
    fn turn(&self, thread: u32, windows: u32) -> Result<u64>;
}

/// A subject with what was measured.
struct Cell {
    /// The key of its rows: the map (its kind or crate), whether it is another crate's, from where (`program` or
    /// `host`), the operation, and how many elements there are.
    key: Value,
    op: Op,
    /// Whether an operation may fail.
    lossy: bool,
    windows: u32,
    subject: Box<dyn Subject>,
    best: [Duration; THREADS.len()],
}

impl Cell {
    fn time(&mut self) -> Result<()> {
        for (&threads, best) in THREADS.iter().zip(&mut self.best) {
            self.subject.prepare();
            let (well, taken) = together(threads, |thread| self.subject.turn(thread, self.windows))?;
            let well: u64 = well.iter().sum();
            let all = u64::from(threads * self.windows * WINDOW);
            // With one lock for all, an operation gives up where the thread that holds the lock is not running.
            let may_fail = self.lossy || threads > 1 && matches!(self.op, Op::PushPop | Op::ReserveSubmit);
            if well != all && !may_fail {
                return Err(format!("{}: {well} of {all} operations succeeded", self.key).into());
            }
            *best = taken.min(*best);
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = Value> + '_ {
        THREADS.iter().zip(&self.best).map(|(threads, best)| {
            let mut row = self.key.clone();
            row["threads"] = (*threads).into();
            // Nanoseconds that an operation takes each thread.
            row["ns"] = (ns(*best) / f64::from(self.windows * WINDOW)).into();
            row["ns_linux"] = Value::Null;
            row
        })
    }
}

/// Measures everything.
///
/// # Errors
///
/// There is no memory, or an operation that must succeed fails.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
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
    let linux = Linux::measure(common.linux, "map");
    linux.fill(&mut rows);
    let summary = format!("ns for each operation of one thread, loop included, best of {rounds} rounds");
    let mut report = Report::new("map", summary);
    report.fields(json!({"rounds": rounds}));
    let columns = "map; from; operation = op; elements = entries; threads; ns:1; Linux = ns_linux:1";
    report.table("rows", "operations", &rows, columns);
    report.table("unavailable", "maps that cannot be created", &unavailable, "= map; = reason");
    Ok(report.linux(&linux.release).targets(targets(&rows)))
}

/// Everything that is measured with `entries` elements, and the kinds of maps that cannot be created.
fn cells(entries: u32, least: u32, kinds: &[String]) -> Result<(Vec<Cell>, Vec<Value>)> {
    let keys: Arc<[u32]> = programs::keys(entries).into();
    let windows = (keys.len() as u32 / WINDOW).max(least);
    let runtime = Runtime::builder().cpus(4).build()?;
    let (mut cells, mut unavailable) = (Vec::new(), Vec::new());
    let mut add = |map: &str, peer: bool, from: &str, op, lossy, subject: Box<dyn Subject>| {
        let key = json!({"map": map, "peer": peer, "from": from, "op": op, "entries": entries});
        let best = [Duration::MAX; THREADS.len()];
        cells.push(Cell { key, op, lossy, windows, subject, best });
    };
    let wanted = |name: &str| kinds.is_empty() || kinds.iter().any(|wanted| wanted == name);
    for kind in KINDS.into_iter().filter(|kind| wanted(kind.kind.name())) {
        let name = kind.kind.name();
        let loaded = match skep::Loaded::new(&runtime, kind, entries, &keys) {
            Ok(loaded) => loaded,
            Err(reason) => {
                unavailable.push(json!({"map": name, "reason": reason.to_string()}));
                continue;
            }
        };
        let lossy = kind.kind == MapKind::LruHash;
        if kind.kind == MapKind::Hash {
            let subject = loaded.program(Op::Nothing, keys.len()).ok_or("no empty loop")?;
            add("none", false, "program", Op::Nothing, false, Box::new(subject));
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

fn targets(rows: &[Value]) -> Vec<Target> {
    let target = |(name, op, entries, most): (&str, Op, u32, f64)| {
        let key = json!({"map": "hash", "from": "program", "op": op, "threads": 1, "entries": entries});
        let worst = rows.iter().filter(|row| has(row, &key)).map(|row| number(row, "ns")).reduce(f64::max)?;
        Some(Target::at_most(name, "ns", most, worst))
    };
    let wanted = [
        ("hash look-up, 64 elements", Op::LookUp, 64, 8.0),
        ("hash look-up, 8192 elements", Op::LookUp, 8192, 12.0),
        ("hash look-up, 262144 elements", Op::LookUp, 262_144, 60.0),
        ("hash update, 64 elements", Op::Update, 64, 25.0),
        ("hash update, 8192 elements", Op::Update, 8192, 40.0),
        ("hash update, 262144 elements", Op::Update, 262_144, 120.0),
        ("hash insert and delete, 8192 elements", Op::InsertDelete, 8192, 50.0),
    ];
    wanted.into_iter().filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_goes_well_on_every_map_that_is_there() {
        let (mut cells, unavailable) = cells(64, 2, &[]).unwrap();
        cells.iter_mut().try_for_each(Cell::time).unwrap();
        let kinds: Vec<_> = unavailable.iter().map(|kind| kind["map"].as_str().unwrap()).collect();
        for map in ["hash", "percpu_hash", "array", "percpu_array", "lpm_trie"] {
            assert!(!kinds.contains(&map), "{unavailable:?}");
        }
        let of = |map: &str| cells.iter().filter(|cell| cell.key["map"] == map).count();
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
