//! The same programs, verified by the running kernel.
//!
//! Another process asks it ([`crate::kernel`]), and seldom: the programs that need no map and no helper of skep's, each
//! [`TURNS`] times, with pauses. The time is the one that the kernel's verifier reports of itself; copying and
//! compiling the program is not in it.

use super::Subject;
use crate::kernel::{self, Map};
use serde::{Deserialize, Serialize};
use skep::abi::{Entry, MapDef, MapKind};
use skep::isa::{AluOp, CallTarget, Imm64, Insn, Operand, Reg, Width};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often each program is loaded.
const TURNS: usize = 2;
/// Between two loads.
const PAUSE: Duration = Duration::from_millis(20);

/// The figures of the kernel's verifier for a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Linux {
    /// Microseconds, the best; `None` where it refuses the program.
    pub(super) us: Option<f64>,
    /// Instructions that it walked.
    walked: Option<u64>,
    ns_per_walked: Option<f64>,
    /// The last line of its reasons for a program that it refuses.
    refused: Option<String>,
}

/// Measures the kernel: figures by the names of the programs.
///
/// # Errors
///
/// bpf(2) may not be used.
pub(crate) fn measure() -> Result<BTreeMap<String, Linux>, String> {
    let mut answers = BTreeMap::new();
    for subject in Subject::all()? {
        let Some(buffer) = comparable(&subject) else { continue };
        let map = Map::new(&MapDef::new("buffer", MapKind::Array, 4, buffer, 1));
        let map = map.map_err(|error| format!("a map of the kernel: {error}"))?;
        let insns = with_buffer(&subject.program.source.insns, &map, buffer);
        let mut answer = Linux::default();
        for _ in 0..TURNS {
            std::thread::sleep(PAUSE);
            match kernel::verify(&insns).map_err(|error| format!("bpf(2): {error}"))? {
                Ok(stats) if answer.us.is_none_or(|us| stats.us < us) => {
                    answer.us = Some(stats.us);
                    answer.walked = Some(stats.walked);
                    answer.ns_per_walked = Some(stats.us * 1e3 / stats.walked as f64);
                }
                Ok(_) => {}
                Err(reason) => {
                    answer = Linux { refused: Some(reason), ..Linux::default() };
                    break;
                }
            }
        }
        answers.insert(subject.name, answer);
    }
    Ok(answers)
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
fn with_buffer(insns: &[Insn], map: &Map, len: u32) -> Vec<Insn> {
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
    fn few_programs_are_loaded() {
        let asked = Subject::all().unwrap().iter().filter(|subject| comparable(subject).is_some()).count();
        assert!(asked >= 20 && asked * TURNS <= 80, "{asked}");
    }
}
