//! Exceptions: a throw returns through all functions of the program, each by its own exit.
//!
//! ```text
//!   throw in a function:          thrown = 1; r0 = cookie; exit
//!   behind a call of a function   if thrown == 0 goto behind
//!   that may throw, in another:   exit                                     the cookie stays in r0
//!               in the program:   thrown = 0; r0 = callback(r0); exit      without a callback r0 is the result
//!                       behind:   ...
//! ```
//!
//! `thrown` is in the run's environment ([`skep_abi::RunEnv::thrown`]). So the machine's stack is never cut: shadow
//! stacks, signed return addresses and registers that a caller keeps need nothing special, and a program that was
//! entered by a tail call catches its own exceptions and returns to the caller of the function that it replaced. The
//! cost is a load and a branch after each call of a function that may throw, as the verifier found; other calls cost
//! nothing.
//!
//! No helper's frame is in between: the verifier refuses throws in functions that helpers call.

use skep_isa::{Cond, Operand, Reg, Width};

use super::{Done, Lowering};
use crate::ends::After;
use crate::port::{Arch, Arithmetic, Branches, Calls, Emitter, Frames};

impl<A: Arch> Lowering<'_, A> {
    /// The program ends here, with the cookie in `r1`.
    pub(super) fn throw(&mut self) {
        // No hints for a sequence of operations.
        self.emit.next(Reg::ALL.into_iter().collect(), false);
        if self.in_program() {
            self.catch();
            return;
        }
        self.emit.mov_reg(Width::W64, Reg::R0, Reg::R1);
        self.emit.set_thrown(true);
        self.emit.exit(self.exit_label());
    }

    /// A call of a function that may throw, or during which the run may end.
    pub(super) fn call_that_may_not_return(&mut self, slot: usize, callee: usize, after: After) -> Done {
        self.emit.next(Reg::ALL.into_iter().collect(), false);
        self.call_function(callee);
        let behind = self.label(slot + 1);
        // Calls clobber `r2`.
        self.emit.thrown(Reg::R2);
        self.emit.jump_if(Width::W32, (Reg::R2, Cond::Eq, Operand::Imm(0)), false, behind);
        if self.in_program() && after != After::MayEnd {
            if after == After::MayDoBoth {
                self.exit_if_ended();
            }
            self.emit.set_thrown(false);
            self.emit.mov_reg(Width::W64, Reg::R1, Reg::R0);
            self.catch();
        } else {
            self.emit.exit(self.exit_label());
        }
        Done::end(1)
    }

    /// The end of the program by an exception whose cookie is in `r1`.
    fn catch(&mut self) {
        match self.parts.exception_callback {
            Some(callback) => self.call_function(callback),
            None => self.emit.mov_reg(Width::W64, Reg::R0, Reg::R1),
        }
        self.emit.exit(self.exit_label());
    }
}
