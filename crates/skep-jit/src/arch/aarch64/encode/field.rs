//! Fields of bits: shifts by constants, extensions and extracts.
//!
//! Both instructions for fields read the same: with `immr <= imms` the field that ends at bit `imms` goes to
//! the bottom, otherwise the field of `imms + 1` bits goes up to bit `width - immr`. They differ in what is
//! above it: zeroes, or copies of the sign.

use skep_isa::{Size, Width};

use super::{Gpr, Word, is_wide, mov};

/// `ubfm rd, rn, immr, imms`: zeroes around the field.
pub(crate) const fn ubfm(width: Width, rd: Gpr, rn: Gpr, immr: u8, imms: u8) -> Word {
    field(2, width, rd, rn, immr, imms)
}

/// `sbfm rd, rn, immr, imms`: copies of the sign above the field.
pub(crate) const fn sbfm(width: Width, rd: Gpr, rn: Gpr, immr: u8, imms: u8) -> Word {
    field(0, width, rd, rn, immr, imms)
}

const fn field(op: u32, width: Width, rd: Gpr, rn: Gpr, immr: u8, imms: u8) -> Word {
    debug_assert!((immr as u32) < width.bits() && (imms as u32) < width.bits());
    let word = Word(0x1300_0000).width(width).with(op, 29).with(is_wide(width), 22);
    word.with(immr as u32, 16).with(imms as u32, 10).n(rn).d(rd)
}

/// `extr rd, rn, rm, lsb`: the bits from `lsb` on of `rn` above `rm`.
pub(crate) const fn extr(width: Width, rd: Gpr, rn: Gpr, rm: Gpr, lsb: u8) -> Word {
    debug_assert!((lsb as u32) < width.bits());
    let word = Word(0x1380_0000).width(width).with(is_wide(width), 22);
    word.m(rm).with(lsb as u32, 10).n(rn).d(rd)
}

/// `lsl rd, rn, count`, the count below the width.
pub(crate) const fn lsl_imm(width: Width, rd: Gpr, rn: Gpr, count: u8) -> Word {
    ubfiz(width, rd, rn, count, width.bits() as u8 - count)
}

/// `lsr rd, rn, count`, the count below the width.
pub(crate) const fn lsr_imm(width: Width, rd: Gpr, rn: Gpr, count: u8) -> Word {
    ubfm(width, rd, rn, count, width.bits() as u8 - 1)
}

/// `asr rd, rn, count`, the count below the width.
pub(crate) const fn asr_imm(width: Width, rd: Gpr, rn: Gpr, count: u8) -> Word {
    sbfm(width, rd, rn, count, width.bits() as u8 - 1)
}

/// `ror rd, rn, count`, the count below the width.
pub(crate) const fn ror_imm(width: Width, rd: Gpr, rn: Gpr, count: u8) -> Word {
    extr(width, rd, rn, rn, count)
}

/// `uxtb`, `uxth` or `mov`: zero-extends the lowest bytes to 64 bits.
pub(crate) const fn extend_zero(from: Size, rd: Gpr, rn: Gpr) -> Word {
    match from {
        Size::B1 | Size::B2 => ubfx(Width::W32, rd, rn, 0, from.bits() as u8),
        Size::B4 => mov(Width::W32, rd, rn),
        Size::B8 => mov(Width::W64, rd, rn),
    }
}

/// `sxtb`, `sxth`, `sxtw` or `mov`: sign-extends the lowest bytes to `width`.
pub(crate) const fn extend_sign(width: Width, from: Size, rd: Gpr, rn: Gpr) -> Word {
    if from.bits() >= width.bits() { mov(width, rd, rn) } else { sbfx(width, rd, rn, 0, from.bits() as u8) }
}

/// `ubfx rd, rn, lsb, bits`: the bits from `lsb` on, zero-extended.
pub(crate) const fn ubfx(width: Width, rd: Gpr, rn: Gpr, lsb: u8, bits: u8) -> Word {
    ubfm(width, rd, rn, lsb, top(lsb, bits))
}

/// `sbfx rd, rn, lsb, bits`: the bits from `lsb` on, sign-extended.
pub(crate) const fn sbfx(width: Width, rd: Gpr, rn: Gpr, lsb: u8, bits: u8) -> Word {
    sbfm(width, rd, rn, lsb, top(lsb, bits))
}

/// `ubfiz rd, rn, lsb, bits`: the lowest bits go up to `lsb`, zero-extended.
pub(crate) const fn ubfiz(width: Width, rd: Gpr, rn: Gpr, lsb: u8, bits: u8) -> Word {
    ubfm(width, rd, rn, up_to(width, lsb), bottom(width, lsb, bits))
}

/// The last bit of a field that is extracted.
const fn top(lsb: u8, bits: u8) -> u8 {
    debug_assert!(bits > 0, "an empty field");
    lsb + bits - 1
}

/// The last bit of a field that is inserted.
const fn bottom(width: Width, lsb: u8, bits: u8) -> u8 {
    debug_assert!(bits > 0 && lsb as u32 + bits as u32 <= width.bits(), "no such field");
    bits - 1
}

/// The rotation to the right that moves the lowest bit to `lsb`.
const fn up_to(width: Width, lsb: u8) -> u8 {
    debug_assert!((lsb as u32) < width.bits());
    lsb.wrapping_neg() & (width.bits() as u8 - 1)
}
