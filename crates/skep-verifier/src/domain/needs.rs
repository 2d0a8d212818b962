//! Which numbers of a state decided something later: the *needs* of the paths that go on from it.
//!
//! A number that is not among the needs may be any number: the paths from the state would be the same, and as safe.
//! And what is in the stack may be anything, unless it is read: a pointer, a number, or bytes that were never written.
//! Pointers in registers are no part of this, since states are always compared with all of theirs.

use crate::domain::state::{MAX_FRAMES, State};
use skep_isa::Reg;

/// The needs of one frame.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct FrameNeeds {
    /// Registers, one bit each.
    pub(crate) regs: u16,
    /// Units of 4 bytes of its stack, one bit each.
    pub(crate) stack: u128,
    /// Units of its stack that are read before they are overwritten.
    pub(crate) read: u128,
}

/// The needs of all frames, outermost first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Needs(pub(crate) [FrameNeeds; MAX_FRAMES]);

impl FrameNeeds {
    pub(crate) const ALL: Self = Self { regs: u16::MAX, stack: u128::MAX, read: u128::MAX };

    const NONE: Self = Self { regs: 0, stack: 0, read: 0 };

    /// All but the numbers.
    pub(crate) const POINTERS: Self = Self { regs: 0, stack: 0, read: u128::MAX };

    pub(crate) fn has(&self, reg: Reg) -> bool {
        self.regs & 1 << reg.number() != 0
    }

    pub(crate) fn add(&mut self, reg: Reg) {
        self.regs |= 1 << reg.number();
    }

    pub(crate) fn remove(&mut self, reg: Reg) {
        self.regs &= !(1 << reg.number());
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.regs & other.regs != 0 || self.stack & other.stack != 0
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.regs |= other.regs;
        self.stack |= other.stack;
        self.read |= other.read;
    }
}

impl Needs {
    pub(crate) const ALL: Self = Self([FrameNeeds::ALL; MAX_FRAMES]);
    pub(crate) const NONE: Self = Self([FrameNeeds::NONE; MAX_FRAMES]);
    pub(crate) const POINTERS: Self = Self([FrameNeeds::POINTERS; MAX_FRAMES]);

    pub(crate) fn join(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            mine.join(other);
        }
    }

    /// Those of these numbers that are known in `state`; `None` if there are none.
    pub(crate) fn known_in(&self, state: &State) -> Option<Self> {
        let mut known = Self::NONE;
        for ((known, mine), frame) in known.0.iter_mut().zip(&self.0).zip(state.frames()) {
            for (reg, value) in frame.regs.0.iter().enumerate() {
                if value.is_scalar() && !value.num.is_unknown() {
                    known.regs |= mine.regs & 1 << reg;
                }
            }
            known.stack = mine.stack & frame.stack.known();
        }
        (known != Self::NONE).then_some(known)
    }

    /// The numbers of both; `None` if there are none.
    pub(crate) fn common(&self, other: &Self) -> Option<Self> {
        let mut common = Self::NONE;
        for (at, (mine, other)) in self.0.iter().zip(&other.0).enumerate() {
            common.0[at] =
                FrameNeeds { regs: mine.regs & other.regs, stack: mine.stack & other.stack, read: 0 };
        }
        (common != Self::NONE).then_some(common)
    }
}

/// The units that `start..end` touches, counted in bytes from the bottom of a stack.
pub(crate) fn touched(start: u32, end: u32) -> u128 {
    units(start / 4, end.div_ceil(4))
}

/// The units that are inside of `start..end`.
pub(crate) fn covered(start: u32, end: u32) -> u128 {
    units(start.div_ceil(4), end / 4)
}

fn units(start: u32, end: u32) -> u128 {
    let end = end.min(128);
    if start >= end { 0 } else { u128::MAX >> (128 - (end - start)) << start }
}
