//! Division and remainder.
//!
//! The machine divides `rdx:rax` and leaves the quotient in `rax`, the remainder in `rdx`; both are BPF
//! registers. It traps where the divisor is zero or the quotient does not fit, and BPF defines both: `x / 0` is
//! 0, `x % 0` is `x`, the smallest number divided by -1 is itself with remainder 0.
//!
//! ```text
//!   r11  the divisor, if it is a constant or in a register that the division clobbers
//!   r10  what was in rax      r9  what was in rdx       (where they are not the result)
//! ```
//!
//! What `r9` has otherwise waits in `xmm0` ([`super::guard`]).

use skep_isa::{Operand, Reg, RegSet, Width};

use super::encode::{self, Cc, Group1, Mem, Shift, Unary};
use super::regs::{Gpr, SCRATCH, SCRATCH2, SIXTH};
use super::{Emitter, gpr};
use crate::arch::magic::Magic;

/// Keeps `rax` over a division.
const SAVED_RAX: Gpr = SCRATCH2;
/// Keeps `rdx` over a division.
const SAVED_RDX: Gpr = SIXTH;

impl Emitter<'_> {
    /// `dst /= src` or `dst %= src`, unsigned. A constant is not zero.
    pub(super) fn divide(&mut self, remainder: bool, width: Width, dst: Reg, src: Operand, live: RegSet) {
        let dst = gpr(dst);
        self.lend();
        if let Operand::Imm(imm) = src
            && self.divide_by_constant(remainder, width, dst, imm, live)
        {
            return self.give_back();
        }
        let divisor = self.divisor(width, src);
        let dividend = self.save(dst, live);
        match src {
            Operand::Imm(_) => self.divide_rax(encode::zero(Gpr::RDX), Unary::Div, width, dividend, divisor),
            Operand::Reg(_) => {
                // The result for a divisor of zero, in the result's register.
                if !remainder {
                    self.put(encode::zero(Gpr::RAX));
                } else if dividend != Gpr::RDX || width == Width::W32 {
                    self.put(encode::mov_rr(width, Gpr::RDX, dividend));
                }
                self.put(encode::test_rr(width, divisor, divisor));
                let hole = self.skip(Some(Cc::Equal));
                self.divide_rax(encode::zero(Gpr::RDX), Unary::Div, width, dividend, divisor);
                self.land(hole);
            }
        }
        self.keep_result(remainder, dst, live);
        self.give_back();
    }

    /// `dst s/= src` or `dst s%= src`. A constant is neither 0 nor -1.
    pub(super) fn divide_signed(
        &mut self,
        remainder: bool,
        width: Width,
        dst: Reg,
        src: Operand,
        live: RegSet,
    ) {
        let dst = gpr(dst);
        self.lend();
        let divisor = self.divisor(width, src);
        // With a divisor of 0 or -1, the quotient is dividend * divisor and the remainder is
        // dividend * (divisor + 1): no division is needed, and no other divisor traps.
        let special = match src {
            Operand::Imm(_) => None,
            Operand::Reg(_) => {
                self.put(encode::lea(width, SCRATCH2, Mem::at(divisor, 1)));
                self.put(encode::alu_ri(Group1::Cmp, width, SCRATCH2, 1));
                let usual = self.skip(Some(Cc::Above));
                let factor = if remainder { SCRATCH2 } else { divisor };
                self.put(encode::imul_rr(width, dst, factor));
                let done = self.skip(None);
                self.land(usual);
                Some(done)
            }
        };
        let dividend = self.save(dst, live);
        self.divide_rax(encode::sign_to_rdx(width), Unary::Idiv, width, dividend, divisor);
        self.keep_result(remainder, dst, live);
        if let Some(done) = special {
            self.land(done);
        }
        self.give_back();
    }

    /// Divides by a multiplication, if possible; returns whether it was.
    ///
    /// ```text
    ///   32 bits: mov r11d, dst            64 bits: mov r9, rdx (if live); mov rdx, dst
    ///            imul r11, multiplier              mulx r11, r10, multiplier
    ///            shr r11, 32 + after               shr r11, after
    /// ```
    ///
    /// The remainder is the dividend minus the product of quotient and divisor.
    fn divide_by_constant(
        &mut self,
        remainder: bool,
        width: Width,
        dst: Gpr,
        imm: i32,
        live: RegSet,
    ) -> bool {
        let divisor = match width {
            Width::W32 => u64::from(imm as u32),
            // Greater ones would not fit the multiplication that finds the remainder.
            Width::W64 => u64::from(imm.max(0) as u32),
        };
        let possible = width == Width::W32 || self.features.bmi2;
        if divisor < 3 || divisor.is_power_of_two() || !possible {
            return false;
        }
        let magic = Magic::new(width, divisor);
        match width {
            Width::W32 => self.quotient32(magic, dst),
            Width::W64 => {
                if dst == Gpr::RDX && remainder || dst != Gpr::RDX && live.contains(Reg::R3) {
                    self.copy(SAVED_RDX, Gpr::RDX);
                }
                self.quotient64(magic, dst);
            }
        }
        if remainder {
            if dst == Gpr::RDX && width == Width::W64 {
                self.copy(dst, SAVED_RDX);
            }
            self.mul_imm(width, SCRATCH, SCRATCH, imm, SCRATCH2);
            self.put(encode::alu_rr(Group1::Sub, width, dst, SCRATCH));
        } else {
            self.put(encode::mov_rr(width, dst, SCRATCH));
        }
        if width == Width::W64 && dst != Gpr::RDX && live.contains(Reg::R3) {
            self.copy(Gpr::RDX, SAVED_RDX);
        }
        true
    }

    /// `r11` = the quotient of the lower half of `x`; destroys `r10`.
    fn quotient32(&mut self, magic: Magic, x: Gpr) {
        self.put(encode::mov_rr(Width::W32, SCRATCH, x));
        self.shift_right(Width::W32, SCRATCH, magic.before);
        match i32::try_from(magic.multiplier) {
            Ok(multiplier) => self.mul_imm(Width::W64, SCRATCH, SCRATCH, multiplier, SCRATCH2),
            Err(_) => {
                self.constant(SCRATCH2, magic.multiplier);
                self.put(encode::imul_rr(Width::W64, SCRATCH, SCRATCH2));
            }
        }
        if magic.wide {
            self.shift_right(Width::W64, SCRATCH, 32);
            self.put(encode::mov_rr(Width::W32, SCRATCH2, x));
            self.put(encode::alu_rr(Group1::Sub, Width::W32, SCRATCH2, SCRATCH));
            self.shift_right(Width::W32, SCRATCH2, 1);
            self.put(encode::alu_rr(Group1::Add, Width::W32, SCRATCH, SCRATCH2));
            self.shift_right(Width::W32, SCRATCH, magic.after);
        } else {
            self.shift_right(Width::W64, SCRATCH, 32 + magic.after);
        }
    }

    /// `r11` = the quotient of `x`; destroys `r10` and `rdx`.
    fn quotient64(&mut self, magic: Magic, x: Gpr) {
        self.copy(Gpr::RDX, x);
        self.shift_right(Width::W64, Gpr::RDX, magic.before);
        self.constant(SCRATCH, magic.multiplier);
        self.put(encode::mulx(Width::W64, SCRATCH, SCRATCH2, SCRATCH));
        if magic.wide {
            self.put(encode::alu_rr(Group1::Sub, Width::W64, Gpr::RDX, SCRATCH));
            self.shift_right(Width::W64, Gpr::RDX, 1);
            self.put(encode::alu_rr(Group1::Add, Width::W64, SCRATCH, Gpr::RDX));
        }
        self.shift_right(Width::W64, SCRATCH, magic.after);
    }

    fn shift_right(&mut self, width: Width, reg: Gpr, count: u8) {
        if count > 0 {
            self.put(encode::shift_ri(Shift::Shr, width, reg, count));
        }
    }

    /// The divisor in a register that is neither `rax` nor `rdx`.
    fn divisor(&mut self, width: Width, src: Operand) -> Gpr {
        match src {
            Operand::Reg(src) if !matches!(gpr(src), Gpr::RAX | Gpr::RDX) => gpr(src),
            Operand::Reg(src) => {
                self.put(encode::mov_rr(width, SCRATCH, gpr(src)));
                SCRATCH
            }
            Operand::Imm(imm) => {
                let value = match width {
                    Width::W32 => u64::from(imm as u32),
                    Width::W64 => i64::from(imm) as u64,
                };
                self.constant(SCRATCH, value);
                SCRATCH
            }
        }
    }

    /// The division itself; `fill` fills the upper half of the dividend.
    fn divide_rax(&mut self, fill: encode::Bytes, op: Unary, width: Width, dividend: Gpr, divisor: Gpr) {
        if dividend != Gpr::RAX {
            self.put(encode::mov_rr(width, Gpr::RAX, dividend));
        }
        self.put(fill);
        self.put(encode::unary(op, width, divisor));
    }

    /// Saves live registers that the division clobbers; returns the register of the dividend.
    fn save(&mut self, dst: Gpr, live: RegSet) -> Gpr {
        // The quotient's register is prepared before the dividend is moved there.
        if dst == Gpr::RAX || live.contains(Reg::R0) {
            self.copy(SAVED_RAX, Gpr::RAX);
        }
        if dst != Gpr::RDX && live.contains(Reg::R3) {
            self.copy(SAVED_RDX, Gpr::RDX);
        }
        if dst == Gpr::RAX { SAVED_RAX } else { dst }
    }

    /// Moves the result to its register and restores what was saved.
    fn keep_result(&mut self, remainder: bool, dst: Gpr, live: RegSet) {
        self.copy(dst, if remainder { Gpr::RDX } else { Gpr::RAX });
        if dst != Gpr::RAX && live.contains(Reg::R0) {
            self.copy(Gpr::RAX, SAVED_RAX);
        }
        if dst != Gpr::RDX && live.contains(Reg::R3) {
            self.copy(Gpr::RDX, SAVED_RDX);
        }
    }
}
