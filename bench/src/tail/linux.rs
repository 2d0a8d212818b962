//! The same chains in the running kernel.
//!
//! Another process asks it ([`kernel::ask`]), and loads few programs, with pauses: about a hundred in all. A time is that of a
//! system call that makes [`REPEAT`] runs of 33 tail calls each, less that of one whose program returns at once.

use super::{Kind, Row, cases, text};
use crate::kernel::{self, Map, Program};
use skep::abi::{MAX_TAIL_CALLS, MapDef, MapKind};
use std::io::{self, Write};
use std::process::Command;
use std::time::Duration;

/// Runs for each system call.
const REPEAT: u32 = 2_000;
/// Turns of each chain.
const ROUNDS: usize = 50;
/// Between two loads.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// Where the running kernel says which it is.
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// The first of the words of a packet that are the program's own: zero at first.
pub(super) const CB: u32 = 48;
/// A packet that every test run accepts.
pub(super) const PACKET: [u8; 64] = [0; 64];

/// What is asked: kinds, among so many programs. In subprograms the kernel allows tail calls only to programs with types,
/// which these have not.
const ASKED: [(Kind, &[u32]); 2] = [(Kind::Direct, &[1, 4, 8, 33]), (Kind::Indirect, &[1, 4, 8, 33])];

/// Fills in what the kernel takes, asked by another process, which `command` starts; the kernel's release.
pub(super) fn ask(command: Command, rows: &mut [Row]) -> Result<String, String> {
    for line in kernel::ask(command)?.lines() {
        let odd = || format!("the process that asks the kernel says {line:?}");
        let [kind, programs, ns] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(odd());
        };
        let programs: u32 = programs.parse().map_err(|_| odd())?;
        let ns: f64 = ns.parse().map_err(|_| odd())?;
        let of = |row: &&mut Row| (row.kind.name(), row.programs, row.subprogram) == (kind, programs, false);
        rows.iter_mut().find(of).ok_or_else(odd)?.ns_linux = Some(ns);
    }
    std::fs::read_to_string(RELEASE).map(|text| text.trim().to_owned()).map_err(|error| error.to_string())
}

/// Has the kernel do what skep is tested to do (`cases.rs`), and writes a line for each chain: its kind, how many programs, nanoseconds.
///
/// # Errors
///
/// Where bpf(2) may not be used, the kernel's results are others than skep's, or `out` cannot be written.
pub fn report(out: &mut impl Write) -> Result<(), String> {
    let failed = |error: io::Error| format!("the kernel: {error}");
    cases::ask_kernel()?;
    let floor = load("r0 = 0\nexit", &[]).map_err(failed)?;
    let mut lines = String::new();
    for (kind, sizes) in ASKED {
        for &programs in sizes {
            let (_array, first) = chain(kind, programs).map_err(failed)?;
            let (mut best, mut least) = (Duration::MAX, Duration::MAX);
            for _ in 0..ROUNDS {
                least = least.min(floor.run(&PACKET, REPEAT).map_err(failed)?.1);
                best = best.min(first.run(&PACKET, REPEAT).map_err(failed)?.1);
            }
            let net = best.saturating_sub(least).as_secs_f64() * 1e9;
            let ns = net / f64::from(REPEAT) / f64::from(MAX_TAIL_CALLS);
            lines += &format!("{}\t{programs}\t{ns}\n", kind.name());
        }
    }
    out.write_all(lines.as_bytes()).map_err(|error| error.to_string())
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
    fn what_the_other_process_says_is_filled_in() {
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
        let mut command = Command::new("printf");
        command.arg("direct\\t8\\t5.5\\n");
        ask(command, &mut rows).unwrap();
        assert_eq!(rows.map(|row| row.ns_linux), [Some(5.5), None]);
        for odd in ["direct\\t8\\n", "direct\\t9\\t1\\n", "direct\\t8\\tone\\n"] {
            let mut command = Command::new("printf");
            command.arg(odd);
            assert!(ask(command, &mut [row(Kind::Direct, 8)]).is_err(), "{odd}");
        }
    }
}
