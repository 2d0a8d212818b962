//! Exceptions: `bpf_throw(cookie)` ends the program, and the cookie decides its result.
//!
//! ```text
//!   bpf_throw(cookie) --with a callback-----> callback(cookie) --r0--> the program's result
//!                     --without a callback---------------------------> the cookie is the result
//! ```
//!
//! - The one declaration tag `exception_callback:NAME` on the program names the callback, a global function that takes
//!   one number. It is walked as a root of its own with any cookie, and its result is checked as the program's. Only
//!   engines call it.
//! - A throw leaves all frames of the program, so nothing may be held in any of them. It cannot leave frames of the
//!   host: neither a callback of a helper nor anything that it calls may throw.
//! - The path ends at a throw.

use crate::domain::state::State;
use crate::domain::value::Value;
use crate::program::roots::RootKind;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::ends::check_range;
use skep_isa::Reg;

impl Transfer<'_> {
    /// Whether the path may not throw, because the host or a throw called a function on it.
    pub(crate) fn may_not_throw(&self, state: &State) -> bool {
        let called_back = state.frames().iter().any(|frame| frame.callback.is_some());
        called_back
            || matches!(self.root, RootKind::Timer { .. } | RootKind::Work { .. } | RootKind::Exception)
    }

    fn called_back(&self) -> String {
        format!("bpf_throw kfunc (insn {}) cannot be called from callback subprog 0", self.slot)
    }

    /// The program ends by a throw.
    pub(crate) fn throw(&mut self, state: &State, cookie: &Value) -> Checked<()> {
        if self.root == RootKind::Exception {
            let text = "bpf_throw is called in the exception callback, which must return";
            return Err(Violation::new(Code::Resource, text).in_linux(self.called_back()));
        }
        if self.may_not_throw(state) {
            let text = "bpf_throw may not end a program from a function that the host calls";
            return Err(Violation::new(Code::Resource, text)
                .suggest("return a result that ends the iteration, and throw after the call")
                .in_linux(self.called_back()));
        }
        self.check_nothing_held(state, "where the program ends with bpf_throw").map_err(|violation| {
            let read_lock = violation.words.as_ref().is_some_and(|words| words.contains("rcu_read"));
            match read_lock {
                true => violation.in_linux("bpf_throw cannot be used inside bpf_rcu_read_lock-ed region"),
                false => violation,
            }
        })?;
        if self.env.cfg.exception_callback.is_none()
            && let Some(range) = self.results_of_program().range()
        {
            check_range(cookie, range, "program, which is the cookie of bpf_throw,", Reg::R1)?;
            self.check_whole(cookie, range, "program, which is the cookie of bpf_throw,")?;
        }
        self.record.throws(self.slot);
        Ok(())
    }
}
