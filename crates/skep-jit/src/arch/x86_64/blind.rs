//! Constants that are not to appear in code ([`crate::blind`]).
//!
//! The decision is made here for all operations: each asks whether its constant may be in the code, and if not it has
//! a register with it.

use skep_isa::{Operand, Reg, Size, Width};

use super::Emitter;
use super::encode::{self, Group1, Shift};
use super::regs::Gpr;

impl Emitter<'_> {
    /// Whether the constant must not be in the code. The others are of one byte that begins an ordinary instruction:
    /// none that jumps, calls, returns, traps, does input or output, or is the first of two that do.
    pub(super) fn hides(&self, value: u64) -> bool {
        self.options.blind_constants && !matches!(value, 0..=8 | 16 | 32 | 64)
    }

    /// `reg = imm` as an operation of this width uses it, if the constant must not be in the code; whether it is so.
    pub(super) fn hidden(&mut self, reg: Gpr, width: Width, imm: i32) -> bool {
        let value = match width {
            Width::W32 => u64::from(imm as u32),
            Width::W64 => i64::from(imm) as u64,
        };
        let hides = self.hides(value);
        if hides {
            self.constant(reg, value);
        }
        hides
    }

    /// The same for what a store writes: the other operand, or the register.
    pub(super) fn hidden_store(&mut self, reg: Gpr, size: Size, src: Operand) -> Result<Operand, Gpr> {
        match src {
            Operand::Imm(imm) => {
                let bits = size.bits().min(32);
                let value = imm as u32 & (u32::MAX >> (32 - bits));
                match self.hidden(
                    reg,
                    if size == Size::B8 { Width::W64 } else { Width::W32 },
                    match size {
                        Size::B1 | Size::B2 => value as i32,
                        Size::B4 | Size::B8 => imm,
                    },
                ) {
                    true => Err(reg),
                    false => Ok(src),
                }
            }
            Operand::Reg(_) => Ok(src),
        }
    }

    /// `reg = value`. Destroys the flags where the constant is hidden.
    ///
    /// All bits of a number of 64 bits depend on a key:
    ///
    /// ```text
    ///   mov reg, x       x = rol(value ^ key2, 32) ^ key1, where both keys are sign-extended
    ///   xor reg, key1
    ///   rol reg, 32
    ///   xor reg, key2
    /// ```
    pub(super) fn constant(&mut self, reg: Gpr, value: u64) {
        if !self.hides(value) {
            return self.put_plain(Some(reg), encode::mov_ri(reg, value));
        }
        let keys = self.keys.next();
        let key = keys as i32;
        let xor = |width, key| encode::xor_ri(width, reg, key);
        if let Ok(value) = u32::try_from(value) {
            self.put(encode::mov_r32(reg, value ^ key as u32));
            self.put(xor(Width::W32, key));
        } else if let Ok(value) = i32::try_from(value.cast_signed()) {
            self.put(encode::mov_sign_extended(reg, value ^ key));
            self.put(xor(Width::W64, key));
        } else {
            let key2 = (keys >> 32) as i32;
            let extended = |key: i32| i64::from(key) as u64;
            let first = (value ^ extended(key2)).rotate_left(32) ^ extended(key);
            self.put(encode::mov_r64(reg, first));
            self.put(xor(Width::W64, key));
            self.put(encode::shift_ri(Shift::Rol, Width::W64, reg, 32));
            self.put(xor(Width::W64, key2));
        }
    }

    /// `dst op= imm`
    pub(super) fn group1_imm(&mut self, op: Group1, width: Width, dst: Gpr, imm: i32, spare: Gpr) {
        match self.hidden(spare, width, imm) {
            true => self.put_result(width, dst, encode::alu_rr(op, width, dst, spare)),
            false => self.put_result(width, dst, encode::alu_ri(op, width, dst, imm)),
        }
    }

    /// `op dst, imm`, of which only the flags are wanted, or nothing is known of them.
    pub(super) fn plain_imm(&mut self, op: Group1, width: Width, dst: Gpr, imm: i32, spare: Gpr) {
        match self.hidden(spare, width, imm) {
            true => self.put(encode::alu_rr(op, width, dst, spare)),
            false => self.put(encode::alu_ri(op, width, dst, imm)),
        }
    }

    /// `dst = a * imm`; `spare` is not `a`.
    pub(super) fn mul_imm(&mut self, width: Width, dst: Gpr, a: Gpr, imm: i32, spare: Gpr) {
        if !self.hidden(spare, width, imm) {
            return self.put(encode::imul_rri(width, dst, a, imm));
        }
        self.put(encode::imul_rr(width, spare, a));
        self.copy(dst, spare);
    }

    /// Whether a sum must not have this in its code. What is added to `r10` is an offset.
    pub(super) fn hides_disp(&self, base: Reg, disp: i32) -> bool {
        let offset = base == Reg::R10 && i16::try_from(disp).is_ok();
        !offset && self.hides(i64::from(disp) as u64)
    }
}
