//! Semantics of every instruction, against results written by hand from RFC 9669, and violations that checking mode
//! must find. Programs are built from their parts here, without a verifier.

mod arithmetic;
mod callbacks;
mod calls;
mod checking;
mod iterators;
mod jumps;
mod memory;
mod observing;
mod packet;
mod preparing;
mod probes;

use skep_abi::{Entry, Linkage, RAW, RunEnv};
use skep_isa::{AluOp, Imm64, Insn, Operand, Reg, Width};
use skep_verifier::{Fact, FunctionFacts};

use crate::code::{Code, Parts};
use crate::exec;

pub(crate) use skep_isa::Reg as R;

/// A program of one function over an empty buffer; every slot is reached and a jump target.
pub(crate) fn parts(insns: &[Insn]) -> Parts {
    let fact = Fact { reached: true, jump_target: true, loop_head: true, ..Fact::default() };
    Parts {
        exception_callback: None,
        insns: insns.to_vec(),
        facts: vec![fact; insns.len()],
        functions: vec![function("main", 0, insns.len() as u32)],
        maps: Vec::new(),
        program_type: &RAW,
        entry: Entry::Buffer { len: 0 },
        recorded: None,
        printed: [].into(),
    }
}

pub(crate) fn function(name: &str, start: u32, end: u32) -> FunctionFacts {
    FunctionFacts { name: name.into(), start, end, stack_bytes: 512, ..FunctionFacts::default() }
}

/// Runs a program without checks.
pub(crate) fn run(parts: &Parts, linkage: &Linkage, r1: u64, r2: u64) -> u64 {
    let code = Code::new(parts.clone(), linkage).unwrap();
    let mut env = RunEnv::default();
    // SAFETY: tests pass programs that access only their own stack and the memory behind r1.
    let Ok(result) = unsafe { exec::run(&code, r1, r2, &mut env, &mut exec::Unwatched) };
    result
}

/// Runs one function with `r1` and `r2`, and no maps or helpers.
pub(crate) fn result(insns: &[Insn], r1: u64, r2: u64) -> u64 {
    run(&parts(insns), &Linkage::default(), r1, r2)
}

pub(crate) fn alu(width: Width, op: AluOp, dst: Reg, src: Operand) -> Insn {
    Insn::Alu { width, op, dst, src }
}

pub(crate) fn mov(dst: Reg, src: Reg) -> Insn {
    alu(Width::W64, AluOp::Mov, dst, Operand::Reg(src))
}

pub(crate) fn mov_imm(dst: Reg, imm: i32) -> Insn {
    alu(Width::W64, AluOp::Mov, dst, Operand::Imm(imm))
}

/// Both slots of a 64-bit immediate load.
pub(crate) fn load64(dst: Reg, value: u64) -> [Insn; 2] {
    [Insn::LoadImm64 { dst, value: Imm64::Value(value) }, Insn::LoadImm64Tail]
}
