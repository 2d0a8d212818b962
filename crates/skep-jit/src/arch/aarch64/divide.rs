//! Division and remainder.
//!
//! The machine's division is BPF's: it does not trap, `x / 0` is 0, and the smallest number divided by -1 is
//! itself (Arm ARM, UDIV and SDIV). The remainder is the dividend minus the product of
//! quotient and divisor: `x % 0` is `x - 0 * 0`.

use skep_isa::Width;

use super::Emitter;
use super::alu::operand;
use super::encode::{self, ShiftKind, Shifted, Sum};
use super::regs::{Gpr, SCRATCH, SCRATCH2};
use crate::arch::magic::Magic;

impl Emitter<'_> {
    /// `dst = a % b`
    pub(super) fn remainder(&mut self, signed: bool, width: Width, dst: Gpr, a: Gpr, b: Gpr) {
        self.put(encode::divide(signed, width, SCRATCH, a, b));
        self.put(encode::msub(width, dst, SCRATCH, b, a));
    }

    /// `dst = a / imm` or `dst = a % imm`, unsigned.
    pub(super) fn divide_imm(&mut self, remainder: bool, width: Width, dst: Gpr, a: Gpr, imm: i32) {
        let divisor = operand(width, imm);
        if divisor < 3 || divisor.is_power_of_two() || divisor >> 63 != 0 {
            return self.divide_by(false, remainder, width, dst, a, divisor);
        }
        let quotient = if remainder { SCRATCH } else { dst };
        self.quotient(Magic::new(width, divisor), width, quotient, a);
        if remainder {
            self.constant(SCRATCH2, divisor);
            self.put(encode::msub(width, dst, SCRATCH, SCRATCH2, a));
        }
    }

    /// `dst = a s/ imm` or `dst = a s% imm`
    pub(super) fn divide_signed_imm(&mut self, remainder: bool, width: Width, dst: Gpr, a: Gpr, imm: i32) {
        self.divide_by(true, remainder, width, dst, a, operand(width, imm));
    }

    fn divide_by(&mut self, signed: bool, remainder: bool, width: Width, dst: Gpr, a: Gpr, divisor: u64) {
        self.constant(SCRATCH2, divisor);
        if remainder {
            self.remainder(signed, width, dst, a, SCRATCH2);
        } else {
            self.put(encode::divide(signed, width, dst, a, SCRATCH2));
        }
    }

    /// `dst` = the quotient of `x`, which may be `dst`, by a multiplication; destroys both scratch registers.
    fn quotient(&mut self, magic: Magic, width: Width, dst: Gpr, x: Gpr) {
        let mut factor = x;
        if magic.before > 0 {
            self.put(encode::lsr_imm(width, SCRATCH, x, magic.before));
            factor = SCRATCH;
        }
        self.constant(SCRATCH2, magic.multiplier);
        match width {
            Width::W32 => {
                self.put(encode::umull(SCRATCH, factor, SCRATCH2));
                if !magic.wide {
                    return self.put(encode::lsr_imm(Width::W64, dst, SCRATCH, 32 + magic.after));
                }
                self.put(encode::lsr_imm(Width::W64, SCRATCH, SCRATCH, 32));
            }
            Width::W64 => {
                let upper = if magic.wide || magic.after > 0 { SCRATCH } else { dst };
                self.put(encode::umulh(upper, factor, SCRATCH2));
            }
        }
        if magic.wide {
            self.put(encode::sum_reg(Sum::Sub, width, SCRATCH2, x, Shifted::plain(SCRATCH)));
            let half = Shifted::by(SCRATCH2, ShiftKind::Lsr, 1);
            self.put(encode::sum_reg(Sum::Add, width, SCRATCH, SCRATCH, half));
            self.put(encode::lsr_imm(width, dst, SCRATCH, magic.after));
        } else if magic.after > 0 {
            self.put(encode::lsr_imm(width, dst, SCRATCH, magic.after));
        }
    }
}
