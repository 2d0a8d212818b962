//! Runs that end early: charges, and what follows a call after which a run may be over.
//!
//! ```text
//!   head:  units -= weight             behind a call:   if thrown == 0 goto behind
//!          if units < 0 goto poll                       exit
//!   on:    ...                         behind:          ...
//!   (behind the function)
//!   poll:  save r0 to r5; charge(env); restore them
//!          if it returned 0 goto on
//!          exit
//! ```
//!
//! As with exceptions, a run that is over returns through all functions, each by its own exit; what it holds is
//! released by the host ([`skep_abi::EndsLink`]).

use skep_abi::RunEnv;
use skep_isa::{Cond, Operand, Reg, Width};

use super::{Done, Lowering};
use crate::layout::Label;
use crate::port::{Arch, Branches, Calls, Emitter, Frames};

/// A question whether the run goes on, beside the code that asks it.
#[derive(Clone, Copy)]
pub(super) struct Poll {
    at: Label,
    go_on: Label,
}

impl<A: Arch> Lowering<'_, A> {
    /// Charges for what follows, unless the weight is 0.
    pub(super) fn charge(&mut self, weight: u32) {
        if weight == 0 {
            return;
        }
        let poll = Poll { at: self.aside(), go_on: self.aside() };
        self.emit.charge(weight, poll.at);
        self.emit.code().bind(poll.go_on);
        self.polls.push(poll);
    }

    /// The questions of a function, behind its code.
    pub(super) fn emit_polls(&mut self) {
        let Some(address) = self.plan.ends.poll() else { return };
        for Poll { at, go_on } in std::mem::take(&mut self.polls) {
            self.emit.next(Reg::ALL.into_iter().collect(), false);
            self.emit.join();
            self.emit.code().bind(at);
            self.emit.poll(address, go_on);
            self.emit.exit(self.exit_label());
        }
    }

    /// A call of a helper after which the run may be over.
    pub(super) fn helper_that_may_end(&mut self, slot: usize, address: u64) -> Done {
        self.emit.next(Reg::ALL.into_iter().collect(), false);
        self.emit.call_helper(address);
        let behind = self.label(slot + 1);
        // Calls clobber `r2`.
        self.emit.thrown(Reg::R2);
        self.emit.jump_if(Width::W32, (Reg::R2, Cond::Eq, Operand::Imm(0)), false, behind);
        self.emit.exit(self.exit_label());
        Done::end(1)
    }

    /// Leaves the program if the run is over, as `r2` says, and not an exception on its way.
    pub(super) fn exit_if_ended(&mut self) {
        let thrown = self.aside();
        let ended = Operand::Imm(RunEnv::ENDED as i32);
        self.emit.jump_if(Width::W32, (Reg::R2, Cond::Ne, ended), false, thrown);
        self.emit.exit(self.exit_label());
        self.emit.code().bind(thrown);
        self.emit.join();
    }

    fn aside(&mut self) -> Label {
        let label = self.labels.aside(self.asides);
        self.asides += 1;
        label
    }
}
