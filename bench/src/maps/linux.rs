//! The same programs in the running kernel.
//!
//! Another process asks it ([`crate::kernel`]): each program is loaded once, and a turn is one system
//! call that runs it over as many windows as skep's turn has.

use super::programs::{self, KINDS, Kind, Op, WINDOW};
use super::{SIZES, THREADS};
use crate::Result;
use crate::kernel::{Answer, Map, PAUSE, Program};
use crate::timing::{ns, together};
use ::skep::abi::MapKind;
use serde_json::json;
use std::time::Duration;

/// Turns of each program.
const ROUNDS: usize = 6;
/// Windows in a turn, at least.
const WINDOWS: u32 = 64;

/// What is measured: operations on maps of a kind, and their numbers of elements.
const ASKED: [(MapKind, &[Op], &[u32]); 6] = [
    (MapKind::Hash, &[Op::LookUp, Op::Update, Op::InsertDelete], &SIZES),
    (MapKind::PercpuHash, &[Op::LookUp, Op::Update], &[8192]),
    (MapKind::LruHash, &[Op::LookUp, Op::Update, Op::InsertDelete], &[8192]),
    (MapKind::Array, &[Op::LookUp, Op::Update], &[8192]),
    (MapKind::PercpuArray, &[Op::LookUp], &[8192]),
    (MapKind::LpmTrie, &[Op::LookUp], &[8192]),
];

/// Measures the kernel.
///
/// # Errors
///
/// bpf(2) may not be used, or an operation that must succeed fails.
pub(crate) fn measure() -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for (map, ops, sizes) in ASKED {
        let kind = KINDS.iter().find(|kind| kind.kind == map).ok_or("an unknown kind")?;
        for &entries in sizes {
            let nothing: &[Op] = if (map, entries) == (MapKind::Hash, 8192) { &[Op::Nothing] } else { &[] };
            answers.extend(
                ask(kind, entries, &[nothing, ops].concat())
                    .map_err(|error| format!("the kernel: {map} of {entries} elements: {error}"))?,
            );
        }
    }
    Ok(answers)
}

/// The best round of each operation on a new map, with each number of threads.
fn ask(kind: &Kind, entries: u32, ops: &[Op]) -> Result<Vec<Answer>> {
    let keys = programs::keys(entries);
    let maps = [Map::new(&kind.def(entries))?, Map::new(&programs::table(&keys))?];
    maps[1].update(&[0; 4], &programs::bytes(&keys))?;
    let cpus = if kind.kind.is_per_cpu() { possible_cpus()? } else { 1 };
    let value = vec![0; 8 * cpus];
    for key in 0..entries {
        let (key, len) = kind.key(key);
        maps[0].update_values(&key[..len], &value, cpus)?;
    }
    let load = |&op: &Op| {
        std::thread::sleep(PAUSE);
        let object = programs::object(kind, op, entries, &keys)?;
        let program = Program::load(&object, "map", &[&maps[0], &maps[1]])?;
        Ok((op, program, [Duration::MAX; THREADS.len()]))
    };
    let mut loaded = ops.iter().map(load).collect::<Result<Vec<_>>>()?;
    let windows = (keys.len() as u32 / WINDOW).max(WINDOWS);
    for _ in 0..ROUNDS {
        for (op, program, best) in &mut loaded {
            let work = |thread: u32| {
                let (well, _) = program.run(&programs::packet(*op, thread, keys.len()), windows)?;
                match well == WINDOW || kind.kind == MapKind::LruHash {
                    true => Ok(()),
                    false => Err(format!("{op:?} succeeded {well} times of {WINDOW}").into()),
                }
            };
            for (&threads, best) in THREADS.iter().zip(best) {
                *best = together(threads, work)?.1.min(*best);
            }
        }
    }
    let answer = |(op, best): (Op, [Duration; THREADS.len()])| {
        let map = if op == Op::Nothing { "none" } else { kind.kind.name() };
        THREADS.into_iter().zip(best).map(move |(threads, best)| {
            let key =
                json!({"map": map, "from": "program", "op": op, "entries": entries, "threads": threads});
            (key, json!({"ns_linux": ns(best) / f64::from(windows * WINDOW)}))
        })
    };
    Ok(loaded.into_iter().map(|(op, _, best)| (op, best)).flat_map(answer).collect())
}

/// How many values the kernel has for an element of a per-CPU map.
fn possible_cpus() -> Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    Ok(last.ok_or_else(|| format!("possible processors: {text:?}"))? + 1)
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
}
