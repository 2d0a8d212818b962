//! Instructions to words: every instruction is one word of 32 bits, stored with its lowest byte first.
//!
//! Every function here is pure: operands in, word out. Its callers choose the instruction. The encodings
//! are those of the Arm Architecture Reference Manual for A-profile, chapter C4.1 (index by encoding). These of its
//! classes are used:
//!
//! ```text
//!   class of C4.1                               bits 31..21        file
//!   -----------------------------------------   ----------------   -------
//!   PC-rel. addressing                          p ii 10000 ...     address
//!   Add/subtract (immediate)                    s oS 100010 h..    data
//!   Logical (immediate)                         s oo 100100 N..    data
//!   Move wide (immediate)                       s oo 100101 hh.    constant
//!   Bitfield                                    s oo 100110 N..    field
//!   Extract                                     s 00 100111 N0.    field
//!   Conditional branch (immediate)              0101 0100 ...      control
//!   Exceptions, hints, barriers                 1101 010x ...      control
//!   Unconditional branch (register)             1101 011x ...      control
//!   Unconditional branch (immediate)            l 00 101 ...       control
//!   Compare and branch, test and branch         s 01 101 tn ...    control
//!   Load/store exclusive, ordered, CAS          zz 001000 xxx      atomic
//!   Load/store pair                             zz 10100 mm L      memory
//!   Load/store (unscaled, pre, post, register)  zz 111000 oo x     memory
//!   Atomic memory operations                    zz 111000 AR1      atomic
//!   Load/store (unsigned immediate)             zz 111001 oo .     memory
//!   Logical (shifted register)                  s oo 01010 tt N    data
//!   Add/subtract (shifted, extended register)   s oS 01011 tt x    data
//!   Data-processing (2 source, 1 source)        s x0 11010110      data
//!   Data-processing (3 source)                  s 00 11011 ...     data
//!   Conditional select                          s oS 1101 0100     data
//! ```
//!
//! Register 31 is the stack pointer as the base of every access, as both operands of an addition of an immediate
//! or an extended register, and as the result of a logical immediate. It is the zero register everywhere else,
//! also as the result of instructions that set flags.

mod address;
mod atomic;
mod bitmask;
mod constant;
mod control;
mod data;
mod field;
mod memory;
mod vector;

use skep_isa::{Size, Width};

use super::regs::Gpr;

pub(crate) use address::*;
pub(crate) use atomic::*;
pub(crate) use bitmask::*;
pub(crate) use constant::*;
pub(crate) use control::*;
pub(crate) use data::*;
pub(crate) use field::*;
pub(crate) use memory::*;
pub(crate) use vector::*;

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u32);

impl Word {
    /// With the bits of an operand, from bit `at` on.
    const fn with(self, value: u32, at: u32) -> Self {
        Self(self.0 | value << at)
    }

    /// With bit 31 as most instructions have it: set for 64 bits.
    const fn width(self, width: Width) -> Self {
        self.with(is_wide(width), 31)
    }

    /// With the size of an access in bits 30 and 31.
    const fn size(self, size: Size) -> Self {
        self.with(size.bytes().trailing_zeros(), 30)
    }

    /// With a register in bits 0 to 4: the result, or what is loaded or stored.
    const fn d(self, reg: Gpr) -> Self {
        self.with(reg.number() as u32, 0)
    }

    /// With a register in bits 5 to 9: the first operand, or the base.
    const fn n(self, reg: Gpr) -> Self {
        self.with(reg.number() as u32, 5)
    }

    /// With a register in bits 10 to 14: the third operand.
    const fn a(self, reg: Gpr) -> Self {
        self.with(reg.number() as u32, 10)
    }

    /// With a register in bits 16 to 20: the second operand.
    const fn m(self, reg: Gpr) -> Self {
        self.with(reg.number() as u32, 16)
    }

    /// With a signed number of `bits` bits, from bit `at` on.
    const fn signed(self, value: i64, bits: u32, at: u32) -> Self {
        debug_assert!(is_signed(value, bits), "an immediate out of range");
        self.with(value as u32 & ((1 << bits) - 1), at)
    }
}

/// 1 for 64 bits.
const fn is_wide(width: Width) -> u32 {
    matches!(width, Width::W64) as u32
}

/// Whether the value fits a signed number of this many bits.
const fn is_signed(value: i64, bits: u32) -> bool {
    let limit = 1 << (bits - 1);
    -limit <= value && value < limit
}

/// The access that is as wide as a register.
const fn whole(width: Width) -> Size {
    match width {
        Width::W32 => Size::B4,
        Width::W64 => Size::B8,
    }
}

#[cfg(test)]
pub(super) mod tests;
