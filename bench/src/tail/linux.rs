//! The same chains in the running kernel.
//!
//! Another process asks it ([`crate::kernel`]), and loads few programs, with pauses: about a hundred in all. A time is
//! that of a system call that makes [`REPEAT`] runs of 33 tail calls each, less that of a system call whose program
//! returns at once.

use super::{Kind, Row, cases, text};
use crate::kernel::{Map, Program};
use skep::abi::{MAX_TAIL_CALLS, MapDef, MapKind};
use std::io;
use std::time::Duration;

/// Runs for each system call.
const REPEAT: u32 = 2_000;
/// Turns of each chain.
const ROUNDS: usize = 50;
/// Between two loads.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// The first of the words of a packet that are the program's own: zero at first.
pub(super) const CB: u32 = 48;
/// A packet that every test run accepts.
pub(super) const PACKET: [u8; 64] = [0; 64];

/// What is measured: kinds, among so many programs. In subprograms the kernel allows tail calls only to programs with
/// BTF, which these do not have.
const ASKED: [(Kind, &[u32]); 2] = [(Kind::Direct, &[1, 4, 8, 33]), (Kind::Indirect, &[1, 4, 8, 33])];

/// A kind, how many programs there are, and nanoseconds.
type Answer = (String, u32, f64);

/// Fills in the kernel's times.
pub(super) fn fill(rows: &mut [Row], answers: Vec<Answer>) {
    for (kind, programs, ns) in answers {
        let of = |row: &&mut Row| (row.kind.name(), row.programs, row.subprogram) == (&kind, programs, false);
        if let Some(row) = rows.iter_mut().find(of) {
            row.ns_linux = Some(ns);
        }
    }
}

/// Has the kernel do what skep is tested to do (`cases.rs`), and measures its chains.
///
/// # Errors
///
/// bpf(2) may not be used, or the kernel's results differ from skep's.
pub(crate) fn measure() -> Result<Vec<Answer>, String> {
    let failed = |error: io::Error| format!("the kernel: {error}");
    cases::ask_kernel()?;
    let floor = load("r0 = 0\nexit", &[]).map_err(failed)?;
    let mut answers = Vec::new();
    for (kind, sizes) in ASKED {
        for &programs in sizes {
            let (_array, first) = chain(kind, programs).map_err(failed)?;
            let (mut best, mut least) = (Duration::MAX, Duration::MAX);
            for _ in 0..ROUNDS {
                least = least.min(floor.run(&PACKET, REPEAT).map_err(failed)?.1);
                best = best.min(first.run(&PACKET, REPEAT).map_err(failed)?.1);
            }
            let net = best.saturating_sub(least).as_secs_f64() * 1e9;
            answers.push((
                kind.name().to_owned(),
                programs,
                net / f64::from(REPEAT) / f64::from(MAX_TAIL_CALLS),
            ));
        }
    }
    Ok(answers)
}

/// Programs that lead to each other: the array that holds them, and the first.
fn chain(kind: Kind, programs: u32) -> io::Result<(Map, Program)> {
    let array = Map::new(&MapDef::new("programs", MapKind::ProgArray, 4, 4, programs))?;
    let mut first = None;
    for index in 0..programs {
        let text = text(kind, (index + 1) % programs, false, CB);
        let program = load(&text, &[&array])?;
        array.install(index, &program)?;
        first.get_or_insert(program);
        std::thread::sleep(PAUSE);
    }
    first.map(|first| (array, first)).ok_or_else(|| io::Error::other("no programs"))
}

pub(super) fn load(text: &str, maps: &[&Map]) -> io::Result<Program> {
    Program::load(&skep::isa::assemble(text).map_err(io::Error::other)?, maps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_a_hundred_programs_are_loaded() {
        let all: u32 = ASKED.iter().flat_map(|(_, sizes)| sizes.iter()).sum();
        assert!(all <= 110, "{all}");
    }

    #[test]
    fn the_kernels_times_are_filled_in() {
        let row = |kind, programs| Row {
            kind,
            programs,
            subprogram: false,
            ns: 1.0,
            ns_best: 1.0,
            ns_worst: 1.0,
            ns_linux: None,
        };
        let mut rows = [row(Kind::Direct, 8), row(Kind::Indirect, 8)];
        fill(&mut rows, vec![("direct".to_owned(), 8, 5.5), ("direct".to_owned(), 9, 7.0)]);
        assert_eq!(rows.map(|row| row.ns_linux), [Some(5.5), None]);
    }
}
