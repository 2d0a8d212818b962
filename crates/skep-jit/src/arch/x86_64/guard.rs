//! What keeps a path that the processor takes by mistake from leaving traces ([`Options::mask_speculation`],
//! [`Options::order_reloads`], [`Options::retpolines`]).
//!
//! `r9` is zero as long as the path is the one that the program takes, and has every bit set once a conditional jump
//! was predicted wrongly. Conditional moves are not predicted (Intel, "Speculative Execution Side Channel Mitigations",
//! section on bounds check bypass; AMD, "Software Techniques for Managing Speculation", V1-2), so `r9` tells the truth
//! on wrong paths too:
//!
//! ```text
//!        cmp  rdi, rsi                      if r1 > r2 goto target
//!        mov  r10, -1
//!        jbe  on
//!        cmovbe r9, r10                     taken, although r1 <= r2?
//!        jmp  target
//!   on:  cmova r9, r10                      not taken, although r1 > r2?
//!        or   rdi, r9
//!        mov  rax, [rdi + 8]                nothing is at the end of the address space
//! ```
//!
//! It would break if anything but a jump's own two edges changed `r9`, or if something between a comparison and the
//! second `cmov` changed the flags. Divisions and arenas need three scratch registers and put it into `xmm0`
//! meanwhile; calls of helpers destroy it. They wait before they call (`lfence`), and when a helper returns the path
//! is the right one.

use skep_isa::{Reg, Width};

use super::encode::{self, Cc, Group1, Mem};
use super::regs::{Gpr, SCRATCH2, SIXTH};
use super::{Emitter, gpr};
use crate::layout::{Fragment, Label};
#[cfg(doc)]
use crate::options::Options;
use crate::port::Guards;

use super::branch::Jump;

/// All bits are set where the path is a wrong one.
const WRONG: Gpr = SIXTH;
/// All bits set, for the conditional moves.
const ONES: Gpr = SCRATCH2;

impl Guards for Emitter<'_> {
    fn mask(&mut self, reg: Reg) {
        self.put(encode::alu_rr(Group1::Or, Width::W64, gpr(reg), WRONG));
    }

    fn order_stores(&mut self) {
        self.put(encode::lfence());
    }
}

impl Emitter<'_> {
    /// The path is the right one.
    pub(super) fn begin_path(&mut self) {
        if self.options.mask_speculation {
            self.put(encode::zero(WRONG));
        }
    }

    /// Waits until the path is known to be the right one.
    pub(super) fn await_path(&mut self) {
        if self.options.mask_speculation {
            self.put(encode::lfence());
        }
    }

    /// The same, and until what a helper may read has been stored.
    pub(super) fn await_call(&mut self) {
        if self.options.mask_speculation || self.options.order_reloads {
            self.put(encode::lfence());
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
            return self.code.fragment(Fragment::Jump { jump: Jump::If(cc), target });
        }
        self.set_ones();
        self.code.fragment(Fragment::Jump { jump: Jump::Guarded(cc), target });
        self.stayed(cc);
    }

    /// Before a jump by flags that is followed by [`Self::stayed`].
    pub(super) fn set_ones(&mut self) {
        if self.options.mask_speculation {
            self.put(encode::mov_ri(ONES, u64::MAX));
        }
    }

    /// Behind a jump that would have been taken under that condition.
    pub(super) fn stayed(&mut self, cc: Cc) {
        if self.options.mask_speculation {
            self.put(note(cc));
        }
    }

    /// Keeps the register over code that needs it for something else.
    pub(super) fn lend(&mut self) {
        if self.options.mask_speculation {
            self.put(encode::movq_to_xmm0(WRONG));
        }
    }

    /// Undoes [`Self::lend`].
    pub(super) fn give_back(&mut self) {
        if self.options.mask_speculation {
            self.put(encode::movq_from_xmm0(WRONG));
        }
    }

    /// `jmp reg`
    pub(super) fn jump_to(&mut self, reg: Gpr) {
        if !self.options.retpolines {
            return self.put(encode::jmp_r(reg));
        }
        self.put(encode::call_near(CATCH));
        self.retpoline(reg);
    }

    /// `call reg`
    pub(super) fn call_to(&mut self, reg: Gpr) {
        if !self.options.retpolines {
            return self.put(encode::call_r(reg));
        }
        let over = self.skip(None);
        let thunk = self.code.here();
        self.put(encode::call_near(CATCH));
        self.retpoline(reg);
        self.land(over);
        let back = thunk as i64 - (self.code.here() as i64 + 5);
        self.put(encode::call_near(back as i32));
    }

    /// Behind a call of what is [`CATCH`] bytes further (Intel, "Retpoline: A Branch Target Injection Mitigation"): the
    /// return is predicted to lead into a loop that does nothing.
    ///
    /// ```text
    ///          call go
    ///   catch: pause
    ///          lfence
    ///          jmp  catch
    ///   go:    mov  [rsp], reg
    ///          ret
    /// ```
    fn retpoline(&mut self, reg: Gpr) {
        let catch = self.code.here();
        self.put(encode::pause());
        self.put(encode::lfence());
        let back = catch as i64 - (self.code.here() as i64 + 2);
        self.put(encode::jmp8(back as i8));
        debug_assert_eq!(self.code.here() - catch, CATCH as usize);
        self.put(encode::store_r(skep_isa::Size::B8, Mem::at(Gpr::RSP, 0), reg));
        self.put(encode::ret());
    }
}

/// Notes that the path is a wrong one if the condition holds.
pub(super) const fn note(cc: Cc) -> encode::Bytes {
    encode::cmov(cc, WRONG, ONES)
}

/// Bytes of the loop that catches a prediction.
const CATCH: i32 = 7;
