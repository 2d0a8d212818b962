//! The same programs, verified by the running kernel.
//!
//! Another process asks it ([`kernel::ask`]), and seldom: the programs that need no map and no helper of skep's, each
//! [`TURNS`] times, with pauses. The time is the one that the kernel's verifier takes of itself; making its copies and its
//! code is not in it.

use super::Subject;
use crate::kernel::{self, ArrayMap, Kernel};
use serde::Serialize;
use skep::abi::Entry;
use skep::isa::{AluOp, CallTarget, Imm64, Insn, Operand, Reg, Width};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

/// How often each program is loaded.
const TURNS: usize = 2;
/// Between two loads.
const PAUSE: Duration = Duration::from_millis(20);

/// What the kernel's verifier took for a program.
#[derive(Clone, Debug, Serialize)]
pub struct Linux {
    /// Microseconds, the best; `None` where it refuses the program.
    pub us: Option<f64>,
    /// Instructions that it walked.
    pub walked: Option<u64>,
    /// Nanoseconds for each of them.
    pub ns_per_walked: Option<f64>,
    /// The end of what it says to a program that it refuses.
    pub refused: Option<String>,
}

/// What the kernel takes for the programs, by their names, asked by another process, which `command` starts.
pub(super) fn ask(command: Command) -> Result<BTreeMap<String, Linux>, String> {
    kernel::ask(command)?.lines().map(answer).collect()
}

fn answer(line: &str) -> Result<(String, Linux), String> {
    let odd = || format!("the process that asks the kernel says {line:?}");
    let (name, rest) = line.split_once('\t').ok_or_else(odd)?;
    let answer = match rest.split_once('\t').ok_or_else(odd)? {
        ("refused", reason) => {
            Linux { us: None, walked: None, ns_per_walked: None, refused: Some(reason.to_owned()) }
        }
        (us, walked) => {
            let us: f64 = us.parse().map_err(|_| odd())?;
            let walked: u64 = walked.parse().map_err(|_| odd())?;
            let each = us * 1e3 / walked as f64;
            Linux { us: Some(us), walked: Some(walked), ns_per_walked: Some(each), refused: None }
        }
    };
    Ok((name.to_owned(), answer))
}

/// Asks the kernel, and writes what it says: a line for each program, its name, and the best time in microseconds and how
/// many instructions were walked, or `refused` and why, with tabs in between.
///
/// # Errors
///
/// Where bpf(2) may not be used, or `out` not be written.
pub fn report(out: &mut impl Write) -> Result<(), String> {
    for subject in Subject::all()? {
        let Some(buffer) = comparable(&subject) else { continue };
        let map = ArrayMap::new(buffer).map_err(|error| format!("a map of the kernel: {error}"))?;
        let insns = with_buffer(&subject.program.source.insns, &map, buffer);
        let mut best: Option<(f64, u64)> = None;
        let mut refused = None;
        for _ in 0..TURNS {
            std::thread::sleep(PAUSE);
            match Kernel::verify(&insns).map_err(|error| format!("bpf(2): {error}"))? {
                Ok(stats) if best.is_none_or(|(us, _)| stats.us < us) => {
                    best = Some((stats.us, stats.walked))
                }
                Ok(_) => {}
                Err(reason) => {
                    refused = Some(reason);
                    break;
                }
            }
        }
        let name = &subject.name;
        match (best, refused) {
            (_, Some(reason)) => writeln!(out, "{name}\trefused\t{reason}"),
            (Some((us, walked)), None) => writeln!(out, "{name}\t{us}\t{walked}"),
            (None, None) => Ok(()),
        }
        .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The length of the program's buffer, if it needs nothing else that the kernel does not have.
fn comparable(subject: &Subject) -> Option<u32> {
    let Entry::Buffer { len } = subject.program.entry else { return None };
    let foreign = |insn: &Insn| {
        matches!(
            insn,
            Insn::Call { target: CallTarget::Helper(_) | CallTarget::Kfunc { .. } }
                | Insn::LoadImm64 { value: Imm64::Map(_) | Imm64::MapValue { .. }, .. }
        )
    };
    (!subject.program.source.insns.iter().any(foreign)).then_some(len)
}

/// The program behind instructions that give it the value of a map for its buffer.
fn with_buffer(insns: &[Insn], map: &ArrayMap, len: u32) -> Vec<Insn> {
    let mut with = vec![
        Insn::LoadImm64 { dst: Reg::R1, value: Imm64::MapFdValue { fd: map.fd(), offset: 0 } },
        Insn::LoadImm64Tail,
        Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R2, src: Operand::Imm(len.cast_signed()) },
    ];
    with.extend_from_slice(insns);
    with
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_process_says_is_read() {
        let (name, read) = answer("sieve\t12.5\t50").unwrap();
        assert_eq!((name.as_str(), read.us, read.walked), ("sieve", Some(12.5), Some(50)));
        assert_eq!(read.ns_per_walked, Some(250.0));
        let (_, read) = answer("long_loop\trefused\tBPF program is too large.").unwrap();
        assert_eq!((read.us, read.refused.as_deref()), (None, Some("BPF program is too large.")));
        for odd in ["", "sieve", "sieve\t1", "sieve\tone\ttwo"] {
            assert!(answer(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn few_programs_are_loaded() {
        let asked = Subject::all().unwrap().iter().filter(|subject| comparable(subject).is_some()).count();
        assert!(asked >= 20 && asked * TURNS <= 80, "{asked}");
    }
}
