//! The immediates of logical instructions.
//!
//! Such an immediate is a run of ones, somewhere in an element of 2, 4, 8, 16, 32 or 64 bits, rotated, and the
//! element repeated until the register is full. Neither no bits nor all bits are expressible.
//!
//! ```text
//!   N:imms   1 xxxxxx   element of 64 bits, xxxxxx + 1 ones       immr: rotated right by so much
//!            0 0xxxxx              32 bits
//!            0 10xxxx              16 bits
//!            0 110xxx               8 bits
//!            0 1110xx               4 bits
//!            0 11110x               2 bits
//! ```

use skep_isa::Width;

use super::Word;

/// A value that logical instructions take as an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bitmask {
    /// `N:immr:imms`
    bits: u16,
}

impl Bitmask {
    /// Expresses a value. For 32 bits, the upper half of the value does not count.
    pub(crate) const fn new(width: Width, value: u64) -> Option<Self> {
        let value = match width {
            Width::W32 => (value & 0xffff_ffff) | value << 32,
            Width::W64 => value,
        };
        if value == 0 || value == u64::MAX {
            return None;
        }
        // The smallest element that repeats.
        let mut size = 64;
        while size > 2 && value.rotate_right(size / 2) == value {
            size /= 2;
        }
        let ones = (value & (u64::MAX >> (64 - size))).count_ones();
        // Where the run begins: at the first one above the zeroes that follow the ones at the bottom, if any.
        let bottom = value.trailing_ones();
        let start = (bottom + value.rotate_right(bottom).trailing_zeros()) % size;
        let rotated = value.rotate_right(start);
        if rotated.trailing_ones() != ones {
            return None; // more than one run
        }
        let right = (size - start) % size;
        let imms = (size * 2).wrapping_neg() & 0x3f | (ones - 1);
        let n = (size == 64) as u32;
        Some(Self { bits: (n << 12 | right << 6 | imms) as u16 })
    }

    /// Puts it into an instruction.
    pub(super) const fn put(self, word: Word) -> Word {
        word.with(self.bits as u32, 10)
    }
}
