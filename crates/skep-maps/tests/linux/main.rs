//! Maps behave as the running Linux's maps: the same sequence of operations has the same results.
//!
//! Asking Linux burdens the whole machine: the number of maps is bounded, the tests ask one after the other, and they
//! do so in one child process with a time limit of a minute. If bpf(2) is refused, as it is to ordinary users and in
//! most containers, the tests say so. Recorded answers of Linux, under `tests/data/linux`, are always compared.
//!
//! `SKEP_SEED` selects other operations, and other rows of the table of definitions. `SKEP_RECORD=1` records the
//! answers again (one run for every 6 rows of the table, with seeds from 0).

mod cases;
#[path = "../common/mod.rs"]
mod common;
mod creation;
mod differences;
mod ops;
mod outer;
mod rings;
mod special;
mod subject;
mod transcript;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use skep_abi::MapKind;
use skep_testkit::{ask_linux, possible_cpus};

use cases::{CASES, Case};
use differences::difference;
use subject::Program;

/// Operations on each map.
const OPS: usize = 4000;

/// Number of maps of random sizes that are compared in addition to the table. With the rows of definitions, the ring
/// buffers, and one map per process to try bpf(2), a run creates at most forty maps.
const RANDOM: usize = 2;

/// Serialises the tests that ask Linux.
static ASKING: Mutex<()> = Mutex::new(());

#[test]
fn maps_answer_as_linux_does() {
    let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    ask_linux("comparison of maps with Linux's", || {
        if recording() {
            return transcript::record();
        }
        let random = Case::random(seed(), RANDOM);
        for case in CASES.iter().chain(&random) {
            compare(case, seed());
        }
    });
}

#[test]
fn definitions_are_judged_as_by_linux() {
    let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let what = "comparison of maps' definitions with Linux";
    ask_linux(what, creation::check_linux);
}

#[test]
fn ring_buffers_answer_as_linux_does() {
    let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let what = "comparison of ring buffers with Linux's";
    ask_linux(what, rings::check_linux);
}

#[test]
fn ring_buffers_answer_as_the_recorded_linux() {
    rings::check_here();
}

#[test]
fn maps_answer_as_the_recorded_linux() {
    transcript::check_here();
}

#[test]
fn maps_of_sockets_targets_programs_and_the_like_answer_as_the_recorded_linux() {
    special::check_here();
}

#[test]
fn definitions_are_judged_as_by_the_recorded_linux() {
    creation::check_here();
}

/// Plays random operations on Linux's map and on skep's; on skep's alternately through the host's interface and the
/// programs'.
fn compare(case: &Case, seed: u64) {
    let linux = subject::linux(case);
    let map = case.create(possible_cpus()).unwrap();
    let host = subject::host(&map);
    // Linux waits for running programs when a map of maps is changed.
    let count = if case.kind == MapKind::HashOfMaps { OPS / 20 } else { OPS };
    for (at, op) in case.ops(seed, possible_cpus()).take(count).enumerate() {
        let theirs = linux.answer(case, &op);
        let from_program = (at % 2 == 1).then(|| Program(&map).answer(&op)).flatten();
        let ours = from_program.unwrap_or_else(|| host.answer(case, &op));
        let known = difference(case, &op, &theirs.to_string(), &ours.to_string());
        assert!(
            ours == theirs || known.is_some(),
            "SKEP_SEED={seed}, operation {at} on {case}: {op}\nLinux: {theirs}\nskep:  {ours}"
        );
    }
}

/// A file of recorded answers.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/linux").join(name)
}

fn seed() -> u64 {
    std::env::var("SKEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn recording() -> bool {
    std::env::var_os("SKEP_RECORD").is_some_and(|value| value == "1")
}
