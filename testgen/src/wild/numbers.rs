//! Probes of a verifier's knowledge of numbers.

use skep_isa::{AluOp, ByteOrder, Cond, Imm64, Insn, Operand, Reg, Size, Width};

use crate::builder::{Builder, Open};
use crate::program::{Flavour, TestProgram};
use crate::source::Source;

/// Bytes of a probe's buffer.
const BUFFER: i32 = 64;

/// A program over a buffer: `r6` is the buffer, `r7` and `r8` are unknown numbers from it, and one of them, or a
/// number computed from both, becomes an offset.
pub(super) fn probe(source: &mut Source) -> TestProgram {
    let (mut code, mut open) = (Builder::default(), Vec::new());
    unknown_numbers(source, &mut code, &mut open);
    // Sometimes the usual bounds check, exact or off by one.
    let used = source.pick(&REGS);
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

/// The registers that hold numbers.
const REGS: [Reg; 3] = [Reg::R7, Reg::R8, Reg::R9];

/// Puts the buffer's address into `r6`, 0 into `r0`, and numbers derived from the buffer's contents into `r7` to
/// `r9`. Early exits after failed checks are added to `open`.
fn unknown_numbers(source: &mut Source, code: &mut Builder, open: &mut Vec<Open>) {
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
        let offset = 8 * source.below(BUFFER as u32 / 8) as i16;
        code.push(Insn::Load { size, signed, dst: reg, base: Reg::R6, offset });
    }
    code.mov_imm(Reg::R0, 0);
    if source.chance(30) {
        code.mov_imm(Reg::R9, source.below(8) as i32);
    } else {
        code.mov(Reg::R9, Reg::R7);
    }
    for _ in 0..source.between(1, 10) {
        let dst = source.pick(&REGS);
        let width = source.pick(&[Width::W32, Width::W64]);
        let small = source.chance(60);
        let src = match source.below(3) {
            0 => Operand::Reg(source.pick(&REGS)),
            _ if small => Operand::Imm(source.between(0, 2 * BUFFER as u32) as i32 - BUFFER / 2),
            _ => Operand::Imm(source.imm()),
        };
        match source.below(12) {
            0..=4 => {
                let cond = source.pick(&Cond::ALL);
                let jump = code.jump_if(width, cond, dst, src);
                if source.chance(20) {
                    // A short jump: the paths meet again with different knowledge.
                    let op = source.pick(&AluOp::ALL);
                    code.alu(width, op, source.pick(&REGS), src);
                    code.land(jump);
                } else {
                    open.push(jump);
                }
            }
            5..=8 => {
                let op = source.pick(&AluOp::ALL);
                if let Operand::Reg(src) = src
                    && src != dst
                    && source.chance(50)
                {
                    // The second operand is partly known: a shift count, a divisor, a factor.
                    narrow(source, code, open, src);
                }
                code.alu(width, op, dst, src);
            }
            9 => {
                let from = source.pick(&[Size::B1, Size::B2]);
                code.push(Insn::MovSx { width, from, dst, src: source.pick(&REGS) });
            }
            10 => {
                // Through the stack, whole or in part.
                let offset = -8 * source.between(1, 2) as i16;
                let stored = source.pick(&[Size::B8, Size::B8, Size::B4, Size::B2]);
                if stored != Size::B8 {
                    code.store(Size::B8, Reg::R10, offset, Operand::Imm(0));
                }
                code.store(stored, Reg::R10, offset, Operand::Reg(dst));
                let inside = |source: &mut Source, size: Size| {
                    source.below(8 / size.bytes()) as i16 * size.bytes() as i16
                };
                if source.chance(30) {
                    let size = source.pick(&[Size::B1, Size::B2, Size::B4]);
                    code.store(size, Reg::R10, offset + inside(source, size), src);
                } else if source.chance(20) {
                    // A byte of it, at an unknown offset.
                    code.mov(Reg::R1, source.pick(&REGS));
                    code.alu(Width::W64, AluOp::And, Reg::R1, Operand::Imm(source.pick(&[1, 3, 7])));
                    code.alu(Width::W64, AluOp::Add, Reg::R1, Operand::Reg(Reg::R10));
                    code.store(Size::B1, Reg::R1, offset, src);
                }
                let size = source.pick(&[Size::B8, Size::B8, Size::B4, Size::B2, Size::B1]);
                let signed = size != Size::B8 && source.chance(40);
                let back = source.pick(&REGS);
                let offset = offset + inside(source, size);
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
}

/// Brings a number into a range, by a mask, a shift or a comparison.
fn narrow(source: &mut Source, code: &mut Builder, open: &mut Vec<Open>, reg: Reg) {
    let width = source.pick(&[Width::W32, Width::W64]);
    let small = source.pick(&[1, 3, 5, 7, 15, 31, 63, 100]);
    match source.below(5) {
        0 | 1 => code.alu(width, AluOp::And, reg, Operand::Imm(small)),
        2 => code.alu(width, source.pick(&[AluOp::Rsh, AluOp::Arsh]), reg, Operand::Imm(small & 31)),
        3 => open.push(code.jump_if(width, Cond::Gt, reg, Operand::Imm(small))),
        _ => {
            open.push(code.jump_if(width, Cond::Sgt, reg, Operand::Imm(small)));
            open.push(code.jump_if(width, Cond::Sle, reg, Operand::Imm(-small)));
        }
    }
}

/// Arithmetic whose result is tested in two ways: by returning it, and by comparing it with expected values.
///
/// A verifier with a wrong range of the result believes that the comparison with the right value never holds, and
/// that the code after it is unreachable; checking mode then sees that code run.
///
/// ```text
///   returning                recognising [v1, v2]
///   r0 = ...                 r0 = ...
///   exit                     if r0 == v1 goto one      one: r0 = 1; exit
///                            if r0 == v2 goto two      two: r0 = 2; exit
///                            r0 = 0; exit
/// ```
#[derive(Debug)]
pub struct Question {
    code: Builder,
    open: Vec<Open>,
    result: Reg,
}

impl Question {
    /// Random arithmetic.
    pub fn random(source: &mut Source) -> Self {
        let (mut code, mut open) = (Builder::default(), Vec::new());
        unknown_numbers(source, &mut code, &mut open);
        Self { code, open, result: source.pick(&REGS) }
    }

    /// The program that returns the result, or 0 if a check on the way failed.
    pub fn returning(&self) -> TestProgram {
        let mut code = self.code.clone();
        code.mov(Reg::R0, self.result);
        self.finish(code)
    }

    /// The program that returns the position of the result in `values`, counted from 1, or 0. It compares all 64
    /// bits, or only the lower half for a `width` of 32 bits.
    pub fn recognising(&self, values: &[u64], width: Width) -> TestProgram {
        let mut code = self.code.clone();
        let mut found = Vec::new();
        for &value in values {
            let value = match width {
                Width::W64 => value,
                Width::W32 => u64::from(value as u32),
            };
            code.load_imm64(Reg::R1, Imm64::Value(value));
            found.push(code.jump_if(width, Cond::Eq, self.result, Operand::Reg(Reg::R1)));
        }
        code.mov_imm(Reg::R0, 0);
        code.push(Insn::Exit);
        for (place, jump) in found.into_iter().enumerate() {
            code.land(jump);
            code.mov_imm(Reg::R0, place as i32 + 1);
            code.push(Insn::Exit);
        }
        self.finish(code)
    }

    fn finish(&self, mut code: Builder) -> TestProgram {
        let exit = code.here();
        code.push(Insn::Exit);
        for jump in &self.open {
            code.land_at(jump.clone(), exit);
        }
        TestProgram { insns: code.insns, functions: vec![0], flavour: Flavour::Buffer { len: BUFFER as u32 } }
    }
}
