//! Recorded answers of Linux as text: `tests/data/linux/*.map`, a line for the map and one for each operation.

use skep_testkit::possible_cpus;

use crate::cases::{CASES, Case};
use crate::differences::difference;
use crate::{data, seed, subject};

/// Operations in a transcript.
const OPS: usize = 150;

/// Checks skep's answers against the transcripts.
pub(crate) fn check_here() {
    let mut compared = 0;
    for case in CASES {
        let path = data(&file(case));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        compared += replay(case, &text).unwrap_or_else(|line| panic!("{}: {line}", path.display()));
    }
    assert!(compared >= CASES.len() * OPS);
}

fn replay(case: &Case, text: &str) -> Result<usize, String> {
    let mut lines = text.lines();
    let first = lines.next().and_then(|line| line.strip_prefix("map ")?.rsplit_once(" cpus "));
    let Some((map, cpus)) = first else { return Err("no map in the first line".to_owned()) };
    if map != case.to_string() {
        return Err(format!("is of {map}, not {case}"));
    }
    let cpus = cpus.parse().map_err(|_| format!("{cpus} CPUs"))?;
    let map = case.create(cpus).map_err(|error| error.to_string())?;
    let host = subject::host(&map);
    let mut compared = 0;
    for (at, line) in lines.enumerate() {
        let Some((op, theirs)) = line.split_once(" -> ") else { return Err(format!("no answer: {line}")) };
        let op = op.parse()?;
        let ours = host.answer(case, &op);
        if ours.to_string() != theirs && difference(case, &op, theirs, &ours.to_string()).is_none() {
            return Err(format!("line {}: {line}\nskep: {ours}", at + 2));
        }
        compared += 1;
    }
    Ok(compared)
}

/// Asks Linux and records the answers.
pub(crate) fn record() {
    let cpus = possible_cpus();
    for case in CASES {
        let map = subject::linux(case);
        let mut text = format!("map {case} cpus {cpus}\n");
        for op in case.ops(seed() + 6, cpus).take(OPS) {
            text += &format!("{op} -> {}\n", map.answer(case, &op));
        }
        std::fs::write(data(&file(case)), text).unwrap();
    }
}

fn file(case: &Case) -> String {
    let Case { kind, key_size, value_size, max_entries, flags } = case;
    let prealloc = if flags & 1 == 0 { "" } else { "-no-prealloc" };
    format!("{kind}-{key_size}-{value_size}-{max_entries}{prealloc}.map")
}
