//! The same programs, verified by the running kernel.
//!
//! Another process asks it ([`crate::kernel`]), and seldom: the programs that need no map and no helper of skep's, each
//! [`TURNS`] times, with pauses. The time is the one that the kernel's verifier reports of itself; copying and
//! compiling the program is not in it.

use super::Subject;
use crate::Result;
use crate::kernel::{self, Answer, Map, PAUSE};
use serde_json::{Value, json};
use skep::abi::{Entry, MapDef, MapKind};
use skep::isa::{AluOp, CallTarget, Imm64, Insn, Operand, Reg, Width};

/// How often each program is loaded.
const TURNS: usize = 2;

/// Measures the kernel.
///
/// # Errors
///
/// bpf(2) may not be used.
pub(crate) fn measure() -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for subject in Subject::all()? {
        let Some(buffer) = comparable(&subject) else { continue };
        let map = Map::new(&MapDef::new("buffer", MapKind::Array, 4, buffer, 1))
            .map_err(|error| format!("a map of the kernel: {error}"))?;
        let insns = with_buffer(&subject.program.source.insns, &map, buffer);
        answers.push((json!({"program": subject.name}), json!({"linux": ask(&insns)?})));
    }
    Ok(answers)
}

/// The better time of the kernel's verifier in microseconds and what it walked, or the last line of its reasons for a
/// program that it refuses.
fn ask(insns: &[Insn]) -> Result<Value> {
    let mut best: Option<kernel::Stats> = None;
    for _ in 0..TURNS {
        std::thread::sleep(2 * PAUSE);
        match kernel::verify(insns).map_err(|error| format!("bpf(2): {error}"))? {
            Ok(stats) if best.as_ref().is_none_or(|best| stats.us < best.us) => best = Some(stats),
            Ok(_) => {}
            Err(reason) => {
                return Ok(json!({"us": null, "walked": null, "ns_per_walked": null, "refused": reason}));
            }
        }
    }
    let kernel::Stats { us, walked } = best.ok_or("no turns")?;
    Ok(json!({"us": us, "walked": walked, "ns_per_walked": us * 1e3 / walked as f64, "refused": null}))
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
