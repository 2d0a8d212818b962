//! Programs that differ slightly from accepted ones, and noise.

use skep_abi::own_kfunc_number;
use skep_isa::{AluOp, AtomicOp, CallTarget, Cond, Insn, Operand, Reg, Size, Width};

use crate::helpers::{FILL, LOOKUP, MIX, REVERSE, SMALL, SUM};
use crate::program::TestProgram;
use crate::source::Source;
use crate::structured::{Options, structured};

/// A structured program with a few instructions changed.
pub(super) fn mutant(source: &mut Source, options: &Options) -> TestProgram {
    let mut program = structured(source, options);
    let count = source.between(1, 3);
    change(source, &mut program, count);
    program
}

/// A program that a verifier should accept except for one changed instruction.
///
/// The change is drawn first, before a fuzzer's few bytes are used up.
pub fn mutated(source: &mut Source, options: &Options) -> TestProgram {
    let mut change_by = Source::from_seed(source.word());
    let mut program = structured(source, options);
    change(&mut change_by, &mut program, 1);
    program
}

fn change(source: &mut Source, program: &mut TestProgram, count: u32) {
    for _ in 0..count {
        let slot = source.below(program.insns.len() as u32) as usize;
        let insn = program.insns[slot];
        if matches!(insn, Insn::LoadImm64 { .. } | Insn::LoadImm64Tail) {
            continue;
        }
        program.insns[slot] = match source.below(4) {
            0 => any_insn(source),
            1 => Insn::Jump { offset: 0, long: false },
            _ => changed(source, insn),
        };
    }
}

/// The same kind of instruction with another register, offset, size or immediate.
fn changed(source: &mut Source, insn: Insn) -> Insn {
    let nudge = |source: &mut Source, offset: i16| {
        let by = source.pick(&[-8, -4, -1, 1, 4, 8]);
        offset.wrapping_add(by)
    };
    let part = source.below(3);
    match insn {
        Insn::Alu { width, op, dst, src } => match part {
            0 => Insn::Alu { width, op: source.pick(&AluOp::ALL), dst, src },
            1 => Insn::Alu { width: source.pick(&[Width::W32, Width::W64]), op, dst, src },
            _ => Insn::Alu { width, op, dst, src: any_operand(source) },
        },
        Insn::JumpIf { width, cond, dst, src, offset } => match part {
            0 => Insn::JumpIf { width, cond: source.pick(&Cond::ALL), dst, src, offset },
            1 => Insn::JumpIf { width: source.pick(&[Width::W32, Width::W64]), cond, dst, src, offset },
            _ => Insn::JumpIf { width, cond, dst, src: any_operand(source), offset },
        },
        Insn::Load { size, signed, dst, base, offset } => match part {
            0 => Insn::Load { size, signed, dst, base, offset: nudge(source, offset) },
            1 => Insn::Load { size: source.pick(&Size::ALL), signed: false, dst, base, offset },
            _ => Insn::Load { size, signed, dst, base: any_reg(source), offset },
        },
        Insn::Store { size, base, offset, src } => match part {
            0 => Insn::Store { size, base, offset: nudge(source, offset), src },
            1 => Insn::Store { size: source.pick(&Size::ALL), base, offset, src },
            _ => Insn::Store { size, base, offset, src: any_operand(source) },
        },
        _ => any_insn(source),
    }
}

/// Independent random instructions, with an exit at the end.
pub(super) fn noise(source: &mut Source, options: &Options) -> TestProgram {
    let mut insns = vec![Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R0, src: Operand::Imm(0) }];
    for _ in 0..source.between(1, 12) {
        let insn = any_insn(source);
        insns.push(insn);
        if matches!(insn, Insn::LoadImm64 { .. }) {
            insns.push(Insn::LoadImm64Tail);
        }
    }
    insns.push(Insn::Exit);
    TestProgram { insns, functions: vec![0], flavour: options.flavour }
}

/// A register, usually one that is likely to be initialised.
fn any_reg(source: &mut Source) -> Reg {
    match source.below(3) {
        0 => source.pick(&Reg::ALL),
        _ => source.pick(&[Reg::R0, Reg::R1, Reg::R2, Reg::R10]),
    }
}

fn any_dst(source: &mut Source) -> Reg {
    match any_reg(source) {
        Reg::R10 => Reg::R0,
        reg => reg,
    }
}

fn any_operand(source: &mut Source) -> Operand {
    match source.below(2) {
        0 => Operand::Imm(source.imm()),
        _ => Operand::Reg(any_reg(source)),
    }
}

fn any_insn(source: &mut Source) -> Insn {
    let (dst, base) = (any_dst(source), any_reg(source));
    let width = source.pick(&[Width::W32, Width::W64]);
    let size = source.pick(&Size::ALL);
    let offset = match base {
        Reg::R10 => -(source.below(72) as i16),
        _ => source.below(72) as i16 - 4,
    };
    match source.below(12) {
        0..=2 => Insn::Alu { width, op: source.pick(&AluOp::ALL), dst, src: any_operand(source) },
        3 => Insn::Neg { width, dst },
        4 => Insn::MovSx { width, from: source.pick(&[Size::B1, Size::B2]), dst, src: base },
        5 => Insn::Load { size, signed: size != Size::B8 && source.chance(30), dst, base, offset },
        6 => Insn::Store { size, base, offset, src: any_operand(source) },
        7 => {
            let op = source.pick(&AtomicOp::ALL);
            Insn::Atomic { op, size: source.pick(&[Size::B4, Size::B8]), base, offset, src: dst }
        }
        8 | 9 => {
            let cond = source.pick(&Cond::ALL);
            let offset = source.below(4) as i16 - i16::from(source.chance(20));
            Insn::JumpIf { width, cond, dst, src: any_operand(source), offset }
        }
        10 if source.chance(20) => {
            let function = source.pick(&["bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"]);
            let id = own_kfunc_number(function).unwrap_or_default();
            Insn::Call { target: CallTarget::Kfunc { id: id as i32, object: 0 } }
        }
        10 => {
            let id = source.pick(&[LOOKUP, MIX, SUM, FILL, SMALL, REVERSE]);
            Insn::Call { target: CallTarget::Helper(id) }
        }
        _ => match source.below(4) {
            0 => Insn::LoadAcquire { size, dst, base, offset },
            1 => Insn::StoreRelease { size, base, offset, src: dst },
            2 => Insn::Exit,
            _ => Insn::Jump { offset: source.below(4) as i32, long: source.chance(20) },
        },
    }
}
