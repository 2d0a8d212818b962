//! Operands that BPF lacks and machines have: addresses with an index, and operands that are shifted or extended.

use skep_isa::{Reg, Size};

/// `base + (part of index << shift) + disp`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Reg,
    pub(crate) index: Option<Index>,
    pub(crate) disp: i32,
}

/// What is added to a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) reg: Reg,
    /// From 0 to 3.
    pub(crate) shift: u8,
    pub(crate) part: Part,
}

/// The part of an index that is used. Parts are for machines that support them
/// ([`crate::port::Arch::EXTENDS_INDEX`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// The lower half, zero-extended.
    Unsigned,
    /// The lower half, sign-extended.
    Signed,
}

impl Address {
    /// `base + disp`
    pub(crate) fn at(base: Reg, disp: i32) -> Self {
        Self { base, index: None, disp }
    }

    /// `base + (index << shift)`
    pub(crate) fn indexed(base: Reg, index: Reg, shift: u8) -> Self {
        Self { base, index: Some(Index { reg: index, shift, part: Part::Whole }), disp: 0 }
    }

    /// This address plus `offset`, if it can be expressed.
    pub(crate) fn plus(self, offset: i32) -> Option<Self> {
        Some(Self { disp: self.disp.checked_add(offset)?, ..self })
    }

    /// Whether the address changes with the register.
    pub(crate) fn names(self, reg: Reg) -> bool {
        self.base == reg || self.index.is_some_and(|index| index.reg == reg)
    }
}

/// What an instruction does to a register operand before it uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modifier {
    /// It is shifted, by less than the operation's width.
    Shift(Shift, u8),
    /// It is rotated to the right, by less than the operation's width.
    Rotate(u8),
    /// Its lowest bytes are extended.
    Extend {
        /// The number of bytes.
        from: Size,
        /// With their sign, or zeroes.
        signed: bool,
    },
}

/// A kind of shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Left,
    Right,
    /// To the right, with the sign.
    Arithmetic,
}
