//! Programs that end by exceptions: other programs with some of their early exits replaced.
//!
//! ```text
//!   r0 = 5        r1 = 5
//!   exit          call kfunc[bpf_throw]
//! ```
//!
//! Functions whose address is taken are called by helpers, where throwing is not allowed. A throw may not be a
//! function's last instruction, because control would fall off the end.

use skep_abi::own_kfunc_number;
use skep_isa::{AluOp, CallTarget, Imm64, Insn, Reg, Width};

use crate::program::TestProgram;
use crate::source::Source;

/// The program with some of its early exits replaced by throws, and the number of throws.
pub fn with_throws(mut program: TestProgram, source: &mut Source) -> (TestProgram, usize) {
    let Some(number) = own_kfunc_number("bpf_throw") else { return (program, 0) };
    let throw = Insn::Call { target: CallTarget::Kfunc { id: number as i32, object: 0 } };
    let called_back: Vec<usize> = (0..program.insns.len())
        .filter(|&slot| matches!(program.insns[slot], Insn::LoadImm64 { value: Imm64::Function(_), .. }))
        .filter_map(|slot| program.insns[slot].function_target(slot))
        .collect();
    let mut throws = 0;
    for (at, &start) in program.functions.iter().enumerate() {
        let end = program.functions.get(at + 1).map_or(program.insns.len(), |&next| next as usize);
        if called_back.contains(&(start as usize)) {
            continue;
        }
        for slot in start as usize..end.saturating_sub(2) {
            let pair = (program.insns[slot], program.insns[slot + 1]);
            if let (Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R0, src }, Insn::Exit) = pair
                && source.below(4) != 0
            {
                program.insns[slot] = Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R1, src };
                program.insns[slot + 1] = throw;
                throws += 1;
            }
        }
    }
    (program, throws)
}
