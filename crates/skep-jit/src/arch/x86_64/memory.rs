//! Loads and stores.
//!
//! The verifier has proved every access; nothing is checked here. Ordinary loads are acquiring and ordinary
//! stores releasing on x86-64 (SDM volume 3, 10.2.2: loads are not reordered with older loads, stores are
//! not reordered with older loads or stores).

use skep_isa::{Operand, Reg, Size};

use super::encode::{self, Mem};
use super::{Emitter, gpr};

impl Emitter<'_> {
    /// `dst = *(size *)(base + offset)`
    pub(crate) fn load(&mut self, size: Size, signed: bool, dst: Reg, base: Reg, offset: i16) {
        self.put(encode::load(size, signed, gpr(dst), at(base, offset)));
    }

    /// `*(size *)(base + offset) = src`
    pub(crate) fn store(&mut self, size: Size, base: Reg, offset: i16, src: Operand) {
        self.put(match src {
            Operand::Reg(src) => encode::store_r(size, at(base, offset), gpr(src)),
            Operand::Imm(imm) => encode::store_i(size, at(base, offset), imm),
        });
    }

    /// As [`Emitter::load`], before everything that follows.
    pub(crate) fn load_acquire(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.load(size, false, dst, base, offset);
    }

    /// As [`Emitter::store`], after everything that precedes.
    pub(crate) fn store_release(&mut self, size: Size, base: Reg, offset: i16, src: Reg) {
        self.store(size, base, offset, Operand::Reg(src));
    }
}

/// `[base + offset]`
pub(super) fn at(base: Reg, offset: i16) -> Mem {
    Mem::at(gpr(base), offset.into())
}
