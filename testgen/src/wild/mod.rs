//! Programs that attack a verifier.
//!
//! Most are refused, and should be. Those that are accepted must not do harm: they are run in the
//! interpreter's checking mode, with many inputs. Three kinds:
//!
//! * *probes*: a number of unknown value goes through arithmetic and comparisons, and is then used as an
//!   offset into memory. Whether that is safe depends on every transfer function that a verifier has;
//! * *mutants*: structured programs with a few instructions changed;
//! * *noise*: instructions drawn one by one.

use skep_isa::{AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, Reg, Size, Width};

use crate::builder::Builder;
use crate::host::{FILL, LOOKUP, MIX, REVERSE, SMALL, SUM};
use crate::program::{Flavour, TestProgram};
use crate::source::Source;
use crate::structured::{Options, structured};

/// A program that a verifier has to look at closely.
pub fn wild(source: &mut Source, options: &Options) -> TestProgram {
    match source.below(10) {
        0..=5 => probe(source),
        6..=8 => mutant(source, options),
        _ => noise(source, options),
    }
}

/// Bytes of a probe's buffer.
const BUFFER: i32 = 64;

/// A program over a buffer: `r6` is the buffer, `r7` and `r8` are unknown numbers from it, and one of them,
/// or something made of both, becomes an offset.
fn probe(source: &mut Source) -> TestProgram {
    let mut code = Builder::default();
    code.mov(Reg::R6, Reg::R1);
    for reg in [Reg::R7, Reg::R8] {
        let (size, signed) = source.pick(&[
            (Size::B1, false),
            (Size::B1, true),
            (Size::B2, false),
            (Size::B2, true),
            (Size::B4, false),
            (Size::B4, true),
            (Size::B8, false),
        ]);
        let offset = source.below(BUFFER as u32 - 8) as i16;
        code.push(Insn::Load { size, signed, dst: reg, base: Reg::R6, offset });
    }
    code.mov_imm(Reg::R0, 0);
    if source.chance(30) {
        code.mov_imm(Reg::R9, source.below(8) as i32);
    } else {
        code.mov(Reg::R9, Reg::R7);
    }
    let mut open = Vec::new();
    let regs = [Reg::R7, Reg::R8, Reg::R9];
    for _ in 0..source.between(1, 10) {
        let dst = source.pick(&regs);
        let width = source.pick(&[Width::W32, Width::W64]);
        let small = source.chance(60);
        let src = match source.below(3) {
            0 => Operand::Reg(source.pick(&regs)),
            _ if small => Operand::Imm(source.between(0, 2 * BUFFER as u32) as i32 - BUFFER / 2),
            _ => Operand::Imm(source.imm()),
        };
        match source.below(12) {
            0..=4 => {
                let cond = source.pick(&Cond::ALL);
                let jump = code.jump_if(width, cond, dst, src);
                if source.chance(20) {
                    // Land soon: the paths meet again with different knowledge.
                    let op = source.pick(&AluOp::ALL);
                    code.alu(width, op, source.pick(&regs), src);
                    code.land(jump);
                } else {
                    open.push(jump);
                }
            }
            5..=8 => code.alu(width, source.pick(&AluOp::ALL), dst, src),
            9 => {
                let from = source.pick(&[Size::B1, Size::B2]);
                code.push(Insn::MovSx { width, from, dst, src: source.pick(&regs) });
            }
            10 => {
                // Through the stack, whole or in part.
                let offset = -8 * source.between(1, 2) as i16;
                code.store(Size::B8, Reg::R10, offset, Operand::Reg(dst));
                if source.chance(30) {
                    let size = source.pick(&[Size::B1, Size::B2, Size::B4]);
                    let inside = source.below(8 / size.bytes()) as i16 * size.bytes() as i16;
                    code.store(size, Reg::R10, offset + inside, src);
                }
                let size = source.pick(&[Size::B8, Size::B8, Size::B4, Size::B2]);
                let signed = size != Size::B8 && source.chance(40);
                let back = source.pick(&regs);
                code.push(Insn::Load { size, signed, dst: back, base: Reg::R10, offset });
            }
            _ => match source.below(3) {
                0 => code.push(Insn::Neg { width, dst }),
                1 => {
                    let order = source.pick(&[ByteOrder::ToLittle, ByteOrder::ToBig, ByteOrder::Swap]);
                    let size = source.pick(&[Size::B2, Size::B4, Size::B8]);
                    code.push(Insn::Endian { order, size, dst });
                }
                _ => {
                    let wide = source.number();
                    code.load_imm64(dst, Imm64::Value(wide));
                }
            },
        }
    }
    // Sometimes the usual last check, at the edge or next to it.
    let used = source.pick(&regs);
    let size = source.pick(&Size::ALL);
    let edge = BUFFER - size.bytes() as i32;
    if source.chance(70) {
        let limit = edge + source.below(5) as i32 - 2;
        match source.below(4) {
            0 => open.push(code.jump_if(Width::W64, Cond::Gt, used, Operand::Imm(limit))),
            1 => open.push(code.jump_if(Width::W32, Cond::Gt, used, Operand::Imm(limit))),
            2 => open.push(code.jump_if(Width::W64, Cond::Sgt, used, Operand::Imm(limit))),
            _ => code.alu(source.pick(&[Width::W32, Width::W64]), AluOp::And, used, Operand::Imm(limit)),
        }
        if source.chance(40) {
            let cond = source.pick(&[Cond::Slt, Cond::Lt]);
            open.push(code.jump_if(Width::W64, cond, used, Operand::Imm(0)));
        }
    }
    let stack = source.chance(15);
    if stack {
        for offset in (-BUFFER..0).step_by(8) {
            code.store(Size::B8, Reg::R10, offset as i16, Operand::Imm(0));
        }
        code.mov(Reg::R6, Reg::R10);
        code.add_imm(Reg::R6, -BUFFER);
    }
    let op = source.pick(&[AluOp::Add, AluOp::Add, AluOp::Add, AluOp::Sub]);
    code.alu(Width::W64, op, Reg::R6, Operand::Reg(used));
    let offset = match source.below(3) {
        0 => source.below(5) as i16 - 2,
        _ => 0,
    };
    if source.chance(50) {
        code.load(size, Reg::R0, Reg::R6, offset);
    } else {
        code.store(size, Reg::R6, offset, Operand::Imm(source.imm()));
    }
    for jump in open {
        code.land(jump);
    }
    code.mov_imm(Reg::R0, 0);
    code.push(Insn::Exit);
    TestProgram { insns: code.insns, functions: vec![0], flavour: Flavour::Buffer { len: BUFFER as u32 } }
}

/// A structured program with a few instructions changed.
fn mutant(source: &mut Source, options: &Options) -> TestProgram {
    let mut program = structured(source, options);
    for _ in 0..source.between(1, 3) {
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
    program
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

/// Instructions one by one, with an exit at the end.
fn noise(source: &mut Source, options: &Options) -> TestProgram {
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

/// A register, mostly one that is likely to hold something.
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
