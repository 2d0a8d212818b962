//! Branches, hints and traps. Distances are bytes from the instruction itself, multiples of four.

use skep_isa::Width;

use super::{Cc, Gpr, Word};

/// Whether [`b`] and [`bl`] reach that far: 128 MiB.
pub(crate) const fn reaches_26(distance: i64) -> bool {
    reaches(distance, 26)
}

/// Whether [`b_cond`] and [`cbz`] reach that far: one mebibyte.
pub(crate) const fn reaches_19(distance: i64) -> bool {
    reaches(distance, 19)
}

/// Whether [`tbz`] reaches that far: 32 KiB.
pub(crate) const fn reaches_14(distance: i64) -> bool {
    reaches(distance, 14)
}

const fn reaches(distance: i64, bits: u32) -> bool {
    super::is_signed(distance, bits + 2)
}

/// `b . + distance`
pub(crate) const fn b(distance: i64) -> Word {
    leads(Word(0x1400_0000), distance, 26, 0)
}

/// `bl . + distance`
pub(crate) const fn bl(distance: i64) -> Word {
    leads(Word(0x9400_0000), distance, 26, 0)
}

/// `b.cc . + distance`
pub(crate) const fn b_cond(cc: Cc, distance: i64) -> Word {
    leads(Word(0x5400_0000).with(cc.number() as u32, 0), distance, 19, 5)
}

/// `cbz` or `cbnz rt, . + distance`
pub(crate) const fn cbz(nonzero: bool, width: Width, rt: Gpr, distance: i64) -> Word {
    leads(Word(0x3400_0000).width(width).with(nonzero as u32, 24).d(rt), distance, 19, 5)
}

/// `tbz` or `tbnz rt, bit, . + distance`
pub(crate) const fn tbz(nonzero: bool, rt: Gpr, bit: u8, distance: i64) -> Word {
    debug_assert!(bit < 64);
    let word = Word(0x3600_0000).with(bit as u32 >> 5, 31).with(bit as u32 & 31, 19);
    leads(word.with(nonzero as u32, 24).d(rt), distance, 14, 5)
}

const fn leads(word: Word, distance: i64, bits: u32, at: u32) -> Word {
    debug_assert!(distance % 4 == 0, "between two instructions");
    word.signed(distance >> 2, bits, at)
}

/// `blr rn`
pub(crate) const fn blr(rn: Gpr) -> Word {
    Word(0xd63f_0000).n(rn)
}

/// `br rn`. Where landing pads are checked, one for calls will do if the register is `x16` or `x17`.
pub(crate) const fn br(rn: Gpr) -> Word {
    Word(0xd61f_0000).n(rn)
}

/// `ret`: to where the link register says.
pub(crate) const fn ret() -> Word {
    Word(0xd65f_0000).n(Gpr::X30)
}

/// `nop`
pub(crate) const fn nop() -> Word {
    hint(0)
}

/// `isb`: what is behind it is fetched anew when everything in front of it is done.
pub(crate) const fn isb() -> Word {
    Word(0xd503_3fdf)
}

/// `csdb`: what conditional instructions in front of it choose is not predicted. Does nothing on processors that
/// do not predict it.
pub(crate) const fn csdb() -> Word {
    hint(20)
}

/// `bti c`: calls may lead here. Does nothing on processors without branch target identification.
pub(crate) const fn bti_c() -> Word {
    hint(34)
}

/// `paciasp`: signs the link register. Does nothing on processors without pointer authentication.
pub(crate) const fn paciasp() -> Word {
    hint(25)
}

/// `autiasp`: checks what [`paciasp`] made.
pub(crate) const fn autiasp() -> Word {
    hint(29)
}

const fn hint(number: u32) -> Word {
    Word(0xd503_201f).with(number, 5)
}

/// `brk imm`: a trap.
pub(crate) const fn brk(imm: u16) -> Word {
    Word(0xd420_0000).with(imm as u32, 5)
}
