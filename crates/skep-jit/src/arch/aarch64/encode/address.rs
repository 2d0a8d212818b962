//! Addresses near the code.

use super::{Gpr, Word};

/// `adr rd, . + distance`: within a mebibyte.
pub(crate) const fn adr(rd: Gpr, distance: i64) -> Word {
    relative(0x1000_0000, rd, distance)
}

/// `adrp rd, page of . + pages * 4096`: within four gibibytes.
pub(crate) const fn adrp(rd: Gpr, pages: i64) -> Word {
    relative(0x9000_0000, rd, pages)
}

/// The lowest two bits of the distance stand apart from the others.
const fn relative(base: u32, rd: Gpr, distance: i64) -> Word {
    Word(base).with(distance as u32 & 3, 29).signed(distance >> 2, 19, 5).d(rd)
}
