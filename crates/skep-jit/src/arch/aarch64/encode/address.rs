//! Addresses and constants near the code.

use skep_isa::Width;

use super::{Gpr, Word, is_wide};

/// `adr rd, . + distance`: within a mebibyte.
pub(crate) const fn adr(rd: Gpr, distance: i64) -> Word {
    relative(0x1000_0000, rd, distance)
}

/// `adrp rd, page of . + pages * 4096`: within four gibibytes.
pub(crate) const fn adrp(rd: Gpr, pages: i64) -> Word {
    relative(0x9000_0000, rd, pages)
}

/// `ldr rt, . + distance`, the distance a multiple of four bytes.
pub(crate) const fn load_literal(width: Width, rt: Gpr, distance: i64) -> Word {
    debug_assert!(distance % 4 == 0);
    Word(0x1800_0000).with(is_wide(width), 30).signed(distance / 4, 19, 5).d(rt)
}

/// The lowest two bits of the distance stand apart from the others.
const fn relative(base: u32, rd: Gpr, distance: i64) -> Word {
    Word(base).with(distance as u32 & 3, 29).signed(distance >> 2, 19, 5).d(rd)
}
