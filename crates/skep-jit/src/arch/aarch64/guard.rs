//! What keeps a path that the processor takes by mistake from leaving traces ([`Options::mask_speculation`],
//! [`Options::order_reloads`]).
//!
//! `x8` is zero as long as the path is the one that the program takes, and has every bit set once a conditional jump
//! was predicted wrongly. Conditional selections are not predicted behind a `csdb` (Arm ARM, CSDB; Arm, "Cache
//! Speculation Side-channels"), which does nothing on processors that predict none:
//!
//! ```text
//!         cmp   x0, x1                       if r1 > r2 goto target
//!         b.ls  on
//!         csinv x8, x8, xzr, hi              taken, although r1 <= r2?
//!         csdb
//!         b     target
//!   on:   csinv x8, x8, xzr, ls              not taken, although r1 > r2?
//!         csdb
//!         orr   x0, x0, x8
//!         ldr   x7, [x0, #8]                 nothing is at the end of the address space
//! ```
//!
//! It would break if anything but a jump's own two edges changed `x8`. Calls of helpers destroy it. They wait before
//! they call (`dsb` and `isb`; `sb` would do, which not every processor has), and when a helper returns the path is the
//! right one. Indirect branches are as the processor predicts them: from version 8.5 of the architecture on (FEAT_CSV2)
//! code cannot be made to go where another context's branches went.

use skep_isa::{Reg, Width};

use super::Emitter;
use super::branch::Jump;
use super::encode::{self, Cc, Logic, Shifted, Word};
use super::regs::Gpr;
use crate::layout::{Fragment, Label};
#[cfg(doc)]
use crate::options::Options;
use crate::port::Guards;

/// All bits are set where the path is a wrong one.
const WRONG: Gpr = Gpr::X8;

impl Guards for Emitter<'_> {
    fn mask(&mut self, reg: Reg) {
        let reg = self.read(reg);
        self.put(encode::logic_reg(Logic::Orr, Width::W64, reg, reg, Shifted::plain(WRONG)));
    }

    fn order_stores(&mut self) {
        self.put(encode::ssbb());
    }
}

impl Emitter<'_> {
    /// The path is the right one.
    pub(super) fn begin_path(&mut self) {
        if self.options.mask_speculation {
            self.put(encode::mov(Width::W64, WRONG, Gpr::ZR));
        }
    }

    /// Waits until the path is known to be the right one.
    pub(super) fn await_path(&mut self) {
        if self.options.mask_speculation {
            self.put(encode::dsb_nsh());
            self.put(encode::isb());
        }
    }

    /// The same, and until what a helper may read has been stored.
    pub(super) fn await_call(&mut self) {
        self.await_path();
        if self.options.order_reloads {
            self.put(encode::ssbb());
        }
    }

    /// Behind code that may have destroyed the register.
    pub(super) fn resume_path(&mut self) {
        self.await_path();
        self.begin_path();
    }

    /// A conditional jump by the flags.
    pub(super) fn jump_on(&mut self, cc: Cc, target: Label) {
        if !self.options.mask_speculation {
            return self.code.fragment(Fragment::Jump { jump: Jump::Flags(cc), target });
        }
        self.code.fragment(Fragment::Jump { jump: Jump::Guarded(cc), target });
        self.stayed(cc);
    }

    /// Behind a jump that would have been taken under that condition.
    pub(super) fn stayed(&mut self, cc: Cc) {
        if self.options.mask_speculation {
            note(cc).into_iter().for_each(|word| self.put(word));
        }
    }
}

/// Notes that the path is a wrong one if the condition holds.
pub(super) fn note(cc: Cc) -> [Word; 2] {
    [encode::csinv(Width::W64, WRONG, WRONG, Gpr::ZR, cc.inverted()), encode::csdb()]
}
