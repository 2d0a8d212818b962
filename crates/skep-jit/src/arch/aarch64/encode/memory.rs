//! Loads and stores.

use skep_isa::{Size, Width};

use super::{Gpr, Word, is_signed, is_wide};
use crate::port::operand::Part;

/// A place in memory. As a base, register 31 is the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mem {
    /// `[base, offset]`
    At(Gpr, i32),
    /// `[base, index]`, of the index a part, multiplied with the size of the access where it is scaled.
    Index { base: Gpr, index: Gpr, part: Part, scaled: bool },
}

impl Mem {
    /// Whether one instruction reaches it: the offset is at most 4095 times the size, or from -256 to 255.
    pub(crate) const fn fits(self, size: Size) -> bool {
        match self {
            Self::At(_, offset) => scaled(size, offset).is_some() || is_signed(offset as i64, 9),
            Self::Index { .. } => true,
        }
    }
}

/// A load, sign-extended to a width or zero-extended to 64 bits.
pub(crate) const fn load(size: Size, signed: Option<Width>, rt: Gpr, mem: Mem) -> Word {
    let op = match (size, signed) {
        (_, None) | (Size::B8, _) | (Size::B4, Some(Width::W32)) => 1,
        (_, Some(Width::W64)) => 2,
        (_, Some(Width::W32)) => 3,
    };
    access(op, size, rt, mem)
}

/// A store of the lowest bytes.
pub(crate) const fn store(size: Size, rt: Gpr, mem: Mem) -> Word {
    access(0, size, rt, mem)
}

/// The scaled form if it reaches, otherwise the unscaled one.
const fn access(op: u32, size: Size, rt: Gpr, mem: Mem) -> Word {
    debug_assert!(mem.fits(size), "out of the reach of an access");
    let (word, base) = match mem {
        Mem::At(base, offset) => match scaled(size, offset) {
            Some(scaled) => (Word(0x3900_0000).with(scaled, 10), base),
            None => (Word(0x3800_0000).signed(offset as i64, 9, 12), base),
        },
        Mem::Index { base, index, part, scaled } => {
            let option = match part {
                Part::Whole => 3,
                Part::Unsigned => 2,
                Part::Signed => 6,
            };
            (Word(0x3820_0800).m(index).with(option, 13).with(scaled as u32, 12), base)
        }
    };
    word.size(size).with(op, 22).n(base).d(rt)
}

/// The offset in units of the access, if it is a number of twelve bits.
const fn scaled(size: Size, offset: i32) -> Option<u32> {
    let bytes = size.bytes() as i32;
    if offset >= 0 && offset % bytes == 0 && offset / bytes < 0x1000 {
        Some((offset / bytes) as u32)
    } else {
        None
    }
}

/// The effect of an access with an offset on its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    /// `[base, offset]`: nothing.
    Offset = 2,
    /// `[base, offset]!`: adds the offset before the access.
    Pre = 3,
    /// `[base], offset`: adds the offset after the access.
    Post = 1,
}

/// `ldp rt, rt2, [base, offset]`
pub(crate) const fn load_pair(width: Width, rt: Gpr, rt2: Gpr, base: Gpr, offset: i32, mode: Pair) -> Word {
    debug_assert!(rt.number() != rt2.number(), "one register loaded twice");
    store_pair(width, rt, rt2, base, offset, mode).with(1, 22)
}

/// `stp rt, rt2, [base, offset]`
pub(crate) const fn store_pair(width: Width, rt: Gpr, rt2: Gpr, base: Gpr, offset: i32, mode: Pair) -> Word {
    debug_assert!(pair_fits(width, offset), "out of the reach of a pair");
    debug_assert!(!(overwrites(mode, base, rt) || overwrites(mode, base, rt2)), "a base that is accessed");
    let scaled = offset as i64 * 8 / width.bits() as i64;
    let word = Word(0x2800_0000).with(is_wide(width), 31).with(mode as u32, 23);
    word.signed(scaled, 7, 15).a(rt2).n(base).d(rt)
}

/// Whether pairs reach that offset: from -64 to 63 registers.
pub(crate) const fn pair_fits(width: Width, offset: i32) -> bool {
    let bytes = width.bits() as i32 / 8;
    offset % bytes == 0 && is_signed((offset / bytes) as i64, 7)
}

/// `ldr rt, [base, offset]!` or `ldr rt, [base], offset`: 64 bits, the offset from -256 to 255.
pub(crate) const fn load_indexed(rt: Gpr, base: Gpr, offset: i32, mode: Pair) -> Word {
    store_indexed(rt, base, offset, mode).with(1, 22)
}

/// `str rt, [base, offset]!` or `str rt, [base], offset`: 64 bits, the offset from -256 to 255.
pub(crate) const fn store_indexed(rt: Gpr, base: Gpr, offset: i32, mode: Pair) -> Word {
    debug_assert!(!matches!(mode, Pair::Offset), "an access that leaves its base alone is not indexed");
    debug_assert!(!overwrites(mode, base, rt), "a base that is accessed");
    Word(0x3800_0000).size(Size::B8).signed(offset as i64, 9, 12).with(mode as u32, 10).n(base).d(rt)
}

/// Whether the base is changed and is also the accessed register, which the architecture leaves undefined. Number 31
/// means different registers in the two places.
const fn overwrites(mode: Pair, base: Gpr, rt: Gpr) -> bool {
    !matches!(mode, Pair::Offset) && base.number() == rt.number() && base.number() != 31
}
