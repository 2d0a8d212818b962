//! Vectors of sixteen bytes: the few instructions that loops in bulk need (Arm ARM, C4.1: advanced SIMD).

use skep_isa::Size;

use super::{Gpr, Word};

/// A vector register by its hardware number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vector(pub(crate) u8);

impl Word {
    const fn vd(self, reg: Vector) -> Self {
        self.with(reg.0 as u32, 0)
    }

    const fn vn(self, reg: Vector) -> Self {
        self.with(reg.0 as u32, 5)
    }
}

/// `ldr qd, [base], #16`
pub(crate) const fn load_vector(vd: Vector, base: Gpr) -> Word {
    Word(0x3cc0_0400).with(16, 12).n(base).vd(vd)
}

/// `str qd, [base], #16`
pub(crate) const fn store_vector(vd: Vector, base: Gpr) -> Word {
    Word(0x3c80_0400).with(16, 12).n(base).vd(vd)
}

/// `dup vd, rn`: the lowest bytes, as often as there is room.
pub(crate) const fn spread(size: Size, vd: Vector, rn: Gpr) -> Word {
    Word(0x4e00_0c00).with(size.bytes(), 16).n(rn).vd(vd)
}

/// `movi vd.2d, #0`
pub(crate) const fn clear(vd: Vector) -> Word {
    Word(0x6f00_e400).vd(vd)
}

/// `uaddlp vd, vn`: the sums of two neighbours of this size, twice as wide.
pub(crate) const fn add_neighbours(size: Size, vd: Vector, vn: Vector) -> Word {
    Word(0x6e20_2800).with(size.bytes().trailing_zeros(), 22).vn(vn).vd(vd)
}

/// `uadalp vd, vn`: adds the sums of two neighbours of this size to numbers that are twice as wide.
pub(crate) const fn accumulate_neighbours(size: Size, vd: Vector, vn: Vector) -> Word {
    Word(0x6e20_6800).with(size.bytes().trailing_zeros(), 22).vn(vn).vd(vd)
}

/// `addp dd, vn.2d`: the sum of both halves.
pub(crate) const fn add_halves(vd: Vector, vn: Vector) -> Word {
    Word(0x5ef1_b800).vn(vn).vd(vd)
}

/// `fmov rd, dn`: the lower half.
pub(crate) const fn lower_half(rd: Gpr, vn: Vector) -> Word {
    Word(0x9e66_0000).vn(vn).d(rd)
}
