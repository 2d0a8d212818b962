//! Division and remainder.
//!
//! The machine divides `rdx:rax` and leaves the quotient in `rax`, the remainder in `rdx`; both are BPF
//! registers. It traps where the divisor is zero or the quotient does not fit, and BPF defines both: `x / 0` is
//! 0, `x % 0` is `x`, the smallest number divided by -1 is itself with remainder 0.
//!
//! ```text
//!   r11  the divisor, if it is a constant or in a register that the division destroys
//!   r10  what was in rax      r9  what was in rdx       (where they are not the result)
//! ```

use skep_isa::{Operand, Reg, RegSet, Width};

use super::encode::{self, Cc, Group1, Mem, Unary};
use super::regs::{Gpr, SCRATCH, SCRATCH2, SIXTH};
use super::{Emitter, gpr};

/// Keeps `rax` over a division.
const SAVED_RAX: Gpr = SCRATCH2;
/// Keeps `rdx` over a division.
const SAVED_RDX: Gpr = SIXTH;

impl Emitter<'_> {
    /// `dst /= src` or `dst %= src`, unsigned. A constant is not zero.
    pub(super) fn divide(&mut self, remainder: bool, width: Width, dst: Reg, src: Operand, live: RegSet) {
        let dst = gpr(dst);
        let divisor = self.divisor(width, src);
        let dividend = self.save(dst, live);
        match src {
            Operand::Imm(_) => self.divide_rax(encode::zero(Gpr::RDX), Unary::Div, width, dividend, divisor),
            Operand::Reg(_) => {
                // What the result is with a divisor of zero, in the register in which it is looked for.
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
                self.put(encode::mov_ri(SCRATCH, value));
                SCRATCH
            }
        }
    }

    /// The division itself: `fill` says how the upper half of the dividend is filled.
    fn divide_rax(&mut self, fill: encode::Bytes, op: Unary, width: Width, dividend: Gpr, divisor: Gpr) {
        if dividend != Gpr::RAX {
            self.put(encode::mov_rr(width, Gpr::RAX, dividend));
        }
        self.put(fill);
        self.put(encode::unary(op, width, divisor));
    }

    /// Saves what will be destroyed and is needed; returns where the dividend is then.
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

    /// Brings the result where it belongs, and back what was saved.
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
