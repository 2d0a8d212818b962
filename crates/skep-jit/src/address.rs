//! Addresses that memory instructions compute by themselves.

use skep_isa::Reg;

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
/// ([`crate::arch::port::Arch::EXTENDS_INDEX`]).
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

/// A register whose value is never computed: each instruction that reads it, up to the last one, computes the address
/// by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alias {
    pub(crate) reg: Reg,
    pub(crate) address: Address,
    /// The last slot that reads it.
    pub(crate) last: usize,
}

/// What is known of the code's address before it has a place.
#[derive(Clone, Debug)]
pub(crate) struct Home(Option<std::ops::Range<u64>>);

impl Home {
    /// Somewhere in this range of addresses.
    pub(crate) fn within(range: std::ops::Range<u64>) -> Self {
        Self(Some(range))
    }

    /// Anywhere.
    #[cfg(test)]
    pub(crate) fn anywhere() -> Self {
        Self(None)
    }

    /// The most bytes that there can be between the code and an address.
    pub(crate) fn farthest(&self, address: u64) -> u64 {
        self.0
            .as_ref()
            .map_or(u64::MAX, |range| address.abs_diff(range.start).max(address.abs_diff(range.end)))
    }
}
