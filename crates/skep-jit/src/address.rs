//! Addresses that memory instructions compute by themselves.

use skep_isa::Reg;

/// `base + (index << shift) + disp`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Reg,
    /// A register and a shift from 0 to 3.
    pub(crate) index: Option<(Reg, u8)>,
    pub(crate) disp: i32,
}

impl Address {
    /// `base + disp`
    pub(crate) fn at(base: Reg, disp: i32) -> Self {
        Self { base, index: None, disp }
    }

    /// `base + (index << shift)`
    pub(crate) fn indexed(base: Reg, index: Reg, shift: u8) -> Self {
        Self { base, index: Some((index, shift)), disp: 0 }
    }

    /// This address and `offset` more, if that can be said.
    pub(crate) fn plus(self, offset: i32) -> Option<Self> {
        Some(Self { disp: self.disp.checked_add(offset)?, ..self })
    }

    /// Whether the address changes with the register.
    pub(crate) fn names(self, reg: Reg) -> bool {
        self.base == reg || self.index.is_some_and(|(index, _)| index == reg)
    }
}

/// A register that was not given its value, because every instruction that reads it, up to the last one,
/// computes the address by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alias {
    pub(crate) reg: Reg,
    pub(crate) address: Address,
    /// The last slot that reads it.
    pub(crate) last: usize,
}
