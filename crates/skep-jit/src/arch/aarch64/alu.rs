//! Arithmetic except division.
//!
//! Shift counts are masked by the instructions as BPF masks them, and 32-bit instructions clear the upper half.

use skep_isa::{AluOp, Operand, Reg, RegSet, Size, Width};

use super::Emitter;
use super::encode::{self, Bitmask, Extend, Logic, ShiftKind, Shifted, Sum, Word};
use super::regs::{Gpr, SCRATCH, SCRATCH2};
use crate::port::Arithmetic;
use crate::port::operand::{Address, Index, Part};
use crate::port::operand::{Modifier, Shift};

impl Arithmetic for Emitter<'_> {
    fn mov_imm(&mut self, dst: Reg, value: u64) {
        let dst = self.write(dst);
        self.constant(dst, value);
    }

    fn mov_reg(&mut self, width: Width, dst: Reg, src: Reg) {
        if src == Reg::R10 {
            return self.add3(width, dst, Address::at(src, 0));
        }
        let from = self.read(src);
        let to = self.write(dst);
        if width == Width::W32 || to != from {
            self.put(encode::mov(width, to, from));
        }
    }

    fn zero_extend(&mut self, from: Size, dst: Reg, src: Reg) {
        let src = self.read(src);
        let dst = self.write(dst);
        self.put(encode::extend_zero(from, dst, src));
    }

    fn sign_extend(&mut self, width: Width, from: Size, dst: Reg, src: Reg) {
        let src = self.read(src);
        let dst = self.write(dst);
        match (width, from) {
            // Nothing to extend, but the upper half is to be cleared or copied.
            (Width::W32, Size::B4 | Size::B8) | (_, Size::B8) => self.put(encode::mov(width, dst, src)),
            _ => self.put(encode::extend_sign(width, from, dst, src)),
        }
    }

    fn neg(&mut self, width: Width, dst: Reg) {
        let from = self.read(dst);
        let to = self.write(dst);
        self.put(encode::neg(width, to, Shifted::plain(from)));
    }

    fn alu(&mut self, op: AluOp, width: Width, dst: Reg, src: Operand, _: RegSet) {
        self.alu3(op, width, dst, dst, src);
    }

    fn alu3(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, src: Operand) {
        match src {
            Operand::Reg(b) => self.alu_reg(op, width, dst, a, b),
            Operand::Imm(imm) => self.alu_imm(op, width, dst, a, imm),
        }
    }

    fn add3(&mut self, width: Width, dst: Reg, address: Address) {
        let Address { base, index, disp } = address;
        match index {
            None if base == Reg::R10 => {
                let dst = self.write(dst);
                let offset = i64::from(self.frame.top()) + i64::from(disp);
                self.add_imm(width, dst, Gpr::SP, offset);
            }
            None => {
                let base = self.read(base);
                let dst = self.write(dst);
                self.add_imm(width, dst, base, disp.into());
            }
            Some(index) => {
                let (base, reg) = (self.read(base), self.read(index.reg));
                let dst = self.write(dst);
                if disp == 0 {
                    return self.put(sum(width, dst, base, reg, index));
                }
                self.put(sum(width, SCRATCH2, base, reg, index));
                self.add_imm(width, dst, SCRATCH2, disp.into());
            }
        }
    }

    fn alu_modified(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, (b, modifier): (Reg, Modifier)) {
        let (a, b) = (self.read(a), self.read(b));
        let dst = self.write(dst);
        let (shift, count) = match modifier {
            Modifier::Shift(Shift::Left, count) => (ShiftKind::Lsl, count),
            Modifier::Shift(Shift::Right, count) => (ShiftKind::Lsr, count),
            Modifier::Shift(Shift::Arithmetic, count) => (ShiftKind::Asr, count),
            Modifier::Rotate(count) => (ShiftKind::Ror, count),
            Modifier::Extend { from, signed } => {
                let op = if op == AluOp::Sub { Sum::Sub } else { Sum::Add };
                return self.put(encode::sum_ext(op, width, dst, a, b, extend(from, signed), 0));
            }
        };
        let shifted = Shifted::by(b, shift, count);
        self.put(match op {
            AluOp::Add => encode::sum_reg(Sum::Add, width, dst, a, shifted),
            AluOp::Sub => encode::sum_reg(Sum::Sub, width, dst, a, shifted),
            AluOp::And => encode::logic_reg(Logic::And, width, dst, a, shifted),
            AluOp::Or => encode::logic_reg(Logic::Orr, width, dst, a, shifted),
            _ => encode::logic_reg(Logic::Eor, width, dst, a, shifted),
        });
    }

    fn field(&mut self, width: Width, dst: Reg, a: Reg, low: u8, bits: u8) {
        let a = self.read(a);
        let dst = self.write(dst);
        self.put(encode::ubfx(width, dst, a, low, bits));
    }

    fn multiply_add(&mut self, minus: bool, width: Width, dst: Reg, (a, b): (Reg, Reg), addend: Reg) {
        let (a, b, addend) = (self.read(a), self.read(b), self.read(addend));
        let dst = self.write(dst);
        self.put(match minus {
            true => encode::msub(width, dst, a, b, addend),
            false => encode::madd(width, dst, a, b, addend),
        });
    }

    fn alu_load(&mut self, op: AluOp, width: Width, dst: Reg, address: Address) {
        unreachable!("{op:?} takes no memory: {width:?} {dst:?} {address:?}");
    }

    fn mul3(&mut self, width: Width, dst: Reg, a: Reg, imm: i32) {
        let a = self.read(a);
        let dst = self.write(dst);
        let value = i64::from(imm);
        let odd = value.unsigned_abs() >> value.unsigned_abs().trailing_zeros().min(63);
        let shift = value.unsigned_abs().trailing_zeros() as u8;
        let log = |power: u64| power.is_power_of_two().then(|| power.trailing_zeros() as u8);
        let by = |reg, amount| Shifted::by(reg, ShiftKind::Lsl, amount);
        match (value > 0, shift, log(odd), log(odd.wrapping_sub(1)), log(odd + 1)) {
            (true, _, Some(0), ..) => self.put(encode::lsl_imm(width, dst, a, shift)),
            (false, _, Some(0), ..) if value < 0 => self.put(encode::neg(width, dst, by(a, shift))),
            // a * (2^n + 1) * 2^shift
            (true, 0, _, Some(n), _) => self.put(encode::sum_reg(Sum::Add, width, dst, a, by(a, n))),
            (true, _, _, Some(n), _) => {
                self.put(encode::sum_reg(Sum::Add, width, SCRATCH, a, by(a, n)));
                self.put(encode::lsl_imm(width, dst, SCRATCH, shift));
            }
            // a * (2^n - 1)
            (true, 0, _, _, Some(n)) => {
                self.put(encode::lsl_imm(width, SCRATCH, a, n));
                self.put(encode::sum_reg(Sum::Sub, width, dst, SCRATCH, Shifted::plain(a)));
            }
            // a * (1 - 2^n)
            (false, 0, _, _, Some(n)) if value < 0 => {
                self.put(encode::sum_reg(Sum::Sub, width, dst, a, by(a, n)));
            }
            _ => {
                self.constant(SCRATCH, operand(width, imm));
                self.put(encode::mul(width, dst, a, SCRATCH));
            }
        }
    }

    fn rotate(&mut self, width: Width, dst: Reg, src: Reg, count: u8) {
        let src = self.read(src);
        let dst = self.write(dst);
        self.put(encode::ror_imm(width, dst, src, width.bits() as u8 - count));
    }

    fn swap_bytes(&mut self, size: Size, dst: Reg, clean: bool) {
        let from = self.read(dst);
        let to = self.write(dst);
        match size {
            Size::B2 if clean => self.put(encode::rev16(Width::W32, to, from)),
            Size::B1 | Size::B2 => {
                self.put(encode::rev(Width::W32, to, from));
                self.put(encode::lsr_imm(Width::W32, to, to, 16));
            }
            Size::B4 => self.put(encode::rev(Width::W32, to, from)),
            Size::B8 => self.put(encode::rev(Width::W64, to, from)),
        }
    }
}

impl Emitter<'_> {
    fn alu_reg(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, b: Reg) {
        if op == AluOp::Mov {
            return self.mov_reg(width, dst, b);
        }
        let (a, b) = (self.read(a), self.read(b));
        let dst = self.write(dst);
        let plain = Shifted::plain(b);
        let word = match op {
            AluOp::Add => encode::sum_reg(Sum::Add, width, dst, a, plain),
            AluOp::Sub => encode::sum_reg(Sum::Sub, width, dst, a, plain),
            AluOp::Or => encode::logic_reg(Logic::Orr, width, dst, a, plain),
            AluOp::And => encode::logic_reg(Logic::And, width, dst, a, plain),
            AluOp::Xor => encode::logic_reg(Logic::Eor, width, dst, a, plain),
            AluOp::Mul => encode::mul(width, dst, a, b),
            AluOp::Lsh => encode::shift_reg(ShiftKind::Lsl, width, dst, a, b),
            AluOp::Rsh => encode::shift_reg(ShiftKind::Lsr, width, dst, a, b),
            AluOp::Arsh => encode::shift_reg(ShiftKind::Asr, width, dst, a, b),
            AluOp::Div => encode::divide(false, width, dst, a, b),
            AluOp::Sdiv => encode::divide(true, width, dst, a, b),
            AluOp::Mod => return self.remainder(false, width, dst, a, b),
            AluOp::Smod => return self.remainder(true, width, dst, a, b),
            AluOp::Mov => encode::mov(width, dst, b),
        };
        self.put(word);
    }

    fn alu_imm(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, imm: i32) {
        match op {
            AluOp::Mov => return self.mov_imm(dst, operand(width, imm)),
            AluOp::Mul => return self.mul3(width, dst, a, imm),
            _ => {}
        }
        let a = self.read(a);
        let dst = self.write(dst);
        let count = imm as u8 & (width.bits() as u8 - 1);
        match op {
            AluOp::Add => self.add_imm(width, dst, a, imm.into()),
            AluOp::Sub => self.add_imm(width, dst, a, -i64::from(imm)),
            AluOp::Or => self.logic(Logic::Orr, width, dst, a, imm),
            AluOp::And => self.logic(Logic::And, width, dst, a, imm),
            AluOp::Xor if imm == -1 => self.put(encode::mvn(width, dst, a)),
            AluOp::Xor => self.logic(Logic::Eor, width, dst, a, imm),
            AluOp::Lsh => self.put(encode::lsl_imm(width, dst, a, count)),
            AluOp::Rsh => self.put(encode::lsr_imm(width, dst, a, count)),
            AluOp::Arsh => self.put(encode::asr_imm(width, dst, a, count)),
            AluOp::Div | AluOp::Mod => self.divide_imm(op == AluOp::Mod, width, dst, a, imm),
            AluOp::Sdiv | AluOp::Smod => self.divide_signed_imm(op == AluOp::Smod, width, dst, a, imm),
            AluOp::Mov | AluOp::Mul => {}
        }
    }

    fn logic(&mut self, op: Logic, width: Width, dst: Gpr, a: Gpr, imm: i32) {
        let value = operand(width, imm);
        match Bitmask::new(width, value) {
            Some(mask) if !self.hides(value) => self.put(encode::logic_imm(op, width, dst, a, mask)),
            _ => {
                self.constant(SCRATCH, value);
                self.put(encode::logic_reg(op, width, dst, a, Shifted::plain(SCRATCH)));
            }
        }
    }
}

/// `dst = base + index`; the index register is `reg`.
pub(super) fn sum(width: Width, dst: Gpr, base: Gpr, reg: Gpr, index: Index) -> Word {
    match index.part {
        Part::Whole => {
            encode::sum_reg(Sum::Add, width, dst, base, Shifted::by(reg, ShiftKind::Lsl, index.shift))
        }
        Part::Unsigned => encode::sum_ext(Sum::Add, width, dst, base, reg, Extend::Uxtw, index.shift),
        Part::Signed => encode::sum_ext(Sum::Add, width, dst, base, reg, Extend::Sxtw, index.shift),
    }
}

fn extend(from: Size, signed: bool) -> Extend {
    match (from, signed) {
        (Size::B1, false) => Extend::Uxtb,
        (Size::B2, false) => Extend::Uxth,
        (_, false) => Extend::Uxtw,
        (Size::B1, true) => Extend::Sxtb,
        (Size::B2, true) => Extend::Sxth,
        (_, true) => Extend::Sxtw,
    }
}

/// A constant as an operation of this width uses it.
pub(super) fn operand(width: Width, imm: i32) -> u64 {
    match width {
        Width::W32 => u64::from(imm as u32),
        Width::W64 => i64::from(imm) as u64,
    }
}
