//! The same programs in the running kernel.
//!
//! Another process asks it ([`crate::kernel`]): each program that is asked for is loaded once, and a turn is one system
//! call that runs it over as many windows as skep's turn has.

use super::programs::{self, KINDS, Kind, Op, PACKET, WINDOW};
use super::{Row, THREADS};
use crate::kernel::{Map, Program};
use crate::together::together;
use ::skep::ProgramOptions;
use ::skep::abi::MapKind;
use std::io;
use std::time::Duration;

/// Turns of each program.
const ROUNDS: usize = 6;
/// Windows in a turn, at least.
const WINDOWS: u32 = 64;
/// Between two loads.
const PAUSE: Duration = Duration::from_millis(10);

/// What is measured: operations on a kind with so many elements.
const ASKED: [(MapKind, &[Op], &[u32]); 6] = [
    (MapKind::Hash, &[Op::LookUp, Op::Update, Op::InsertDelete], &super::SIZES),
    (MapKind::PercpuHash, &[Op::LookUp, Op::Update], &[8192]),
    (MapKind::LruHash, &[Op::LookUp, Op::Update, Op::InsertDelete], &[8192]),
    (MapKind::Array, &[Op::LookUp, Op::Update], &[8192]),
    (MapKind::PercpuArray, &[Op::LookUp], &[8192]),
    (MapKind::LpmTrie, &[Op::LookUp], &[8192]),
];

/// A map, an operation, elements, threads, and nanoseconds.
type Answer = (String, String, u32, u32, f64);

/// Fills in the kernel's times; fewer sizes may have been measured.
pub(super) fn fill(rows: &mut [Row], answers: Vec<Answer>) {
    for (map, op, entries, threads, ns) in answers {
        let wanted = (&*map, "program", &*op, entries, threads);
        let of = |row: &&mut Row| (row.map, row.from, row.op, row.entries, row.threads) == wanted;
        if let Some(row) = rows.iter_mut().find(of) {
            row.ns_linux = Some(ns);
        }
    }
}

/// Measures the kernel.
///
/// # Errors
///
/// bpf(2) may not be used, or an operation that must succeed fails.
pub(crate) fn measure() -> Result<Vec<Answer>, String> {
    let mut answers = Vec::new();
    for (map, ops, sizes) in ASKED {
        let kind = KINDS.iter().find(|kind| kind.kind == map).ok_or("an unknown kind")?;
        for &entries in sizes {
            let failed = |error: io::Error| format!("the kernel: {map} of {entries} elements: {error}");
            let mut loaded = Loaded::new(kind, entries).map_err(failed)?;
            let nothing: &[Op] = if (map, entries) == (MapKind::Hash, 8192) { &[Op::Nothing] } else { &[] };
            for &op in nothing.iter().chain(ops) {
                loaded.load(op).map_err(failed)?;
            }
            for (op, best) in loaded.measure().map_err(failed)? {
                let name = if op == Op::Nothing { "none" } else { map.name() };
                for (threads, best) in THREADS.into_iter().zip(best) {
                    let ns = best.as_secs_f64() * 1e9 / f64::from(loaded.windows * WINDOW);
                    answers.push((name.to_owned(), op.name().to_owned(), entries, threads, ns));
                }
            }
        }
    }
    Ok(answers)
}

/// A map of the kernel with its elements, and programs that use it.
struct Loaded {
    kind: Kind,
    entries: u32,
    keys: Vec<u32>,
    windows: u32,
    maps: [Map; 2],
    programs: Vec<(Op, Program)>,
}

impl Loaded {
    fn new(kind: &Kind, entries: u32) -> io::Result<Self> {
        let keys = programs::keys(entries);
        let maps = [Map::new(&kind.def(entries))?, Map::new(&programs::table(&keys))?];
        maps[1].update(&[0; 4], &programs::bytes(&keys))?;
        let cpus = if kind.kind.is_per_cpu() { possible_cpus()? } else { 1 };
        let value = vec![0; 8 * cpus];
        for key in 0..entries {
            let (key, len) = kind.key(key);
            maps[0].update_values(&key[..len], &value, cpus)?;
        }
        let windows = (keys.len() as u32 / WINDOW).max(WINDOWS);
        Ok(Self { kind: *kind, entries, keys, windows, maps, programs: Vec::new() })
    }

    fn load(&mut self, op: Op) -> io::Result<()> {
        std::thread::sleep(PAUSE);
        let object = programs::object(&self.kind, op, self.entries, &self.keys).map_err(io::Error::other)?;
        let linked = object.linked("map", ProgramOptions::default()).map_err(io::Error::other)?;
        let program = Program::load(&linked.insns, &[&self.maps[0], &self.maps[1]])?;
        self.programs.push((op, program));
        Ok(())
    }

    /// The best round of each program, with each number of threads.
    fn measure(&self) -> io::Result<Vec<(Op, [Duration; THREADS.len()])>> {
        let mut best: Vec<_> =
            self.programs.iter().map(|(op, _)| (*op, [Duration::MAX; THREADS.len()])).collect();
        for _ in 0..ROUNDS {
            for ((op, program), (_, best)) in self.programs.iter().zip(&mut best) {
                for (&threads, best) in THREADS.iter().zip(best) {
                    *best = self.time(*op, program, threads)?.min(*best);
                }
            }
        }
        Ok(best)
    }

    fn time(&self, op: Op, program: &Program, threads: u32) -> io::Result<Duration> {
        let work = |thread: u32| {
            let packet: [u8; PACKET] = programs::packet(op, thread, self.keys.len());
            let (well, _) = program.run(&packet, self.windows).map_err(|error| error.to_string())?;
            match well == WINDOW || self.kind.kind == MapKind::LruHash {
                true => Ok(()),
                false => Err(format!("{} went well {well} times", op.name())),
            }
        };
        together(threads, work).map(|(_, taken)| taken).map_err(io::Error::other)
    }
}

/// How many values the kernel has for an element of a per-CPU map.
fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("possible processors: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_maps_are_made_and_few_programs_loaded() {
        let maps: usize = ASKED.iter().map(|(_, _, sizes)| 2 * sizes.len()).sum();
        let programs: usize = ASKED.iter().map(|(_, ops, sizes)| ops.len() * sizes.len()).sum();
        assert!(maps <= 40 && programs < 20, "{maps} {programs}");
    }

    #[test]
    fn the_kernels_times_are_filled_in() {
        let row = |op| Row {
            map: "hash",
            peer: false,
            from: "program",
            op,
            entries: 64,
            threads: 2,
            ns: 1.0,
            ns_linux: None,
        };
        let mut rows = [row("update"), row("look_up")];
        let answer = |entries, ns| ("hash".to_owned(), "look_up".to_owned(), entries, 2, ns);
        fill(&mut rows, vec![answer(64, 5.5), answer(8192, 7.0)]);
        assert_eq!(rows.map(|row| row.ns_linux), [None, Some(5.5)]);
    }
}
