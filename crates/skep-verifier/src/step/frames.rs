//! Calls of the program's own functions, and returns.

use crate::domain::loops::Construct;
use crate::domain::stack::STACK_BYTES;
use crate::domain::state::{ARGS, MAX_FRAMES, State};
use crate::domain::value::{Kind, Value};
use crate::program::cfg::target;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_isa::Reg;

impl Transfer<'_> {
    /// A call of a function of the program; returns where control goes on.
    pub(crate) fn call_local(&mut self, state: &mut State, offset: i32) -> Checked<usize> {
        let cfg = self.env.cfg;
        let callee =
            target(self.slot, offset).and_then(|to| Some((to, self.env.cfg.function_at(to)?))).ok_or_else(
                || Violation::new(Code::Structure, "the call does not lead to the start of a function"),
            )?;
        if let Some(global) = &cfg.globals[callee.1] {
            self.call_global(state, callee.1, global)?;
            return Ok(self.slot + 1);
        }
        check_depth(state)?;
        let arguments: [Value; 5] = std::array::from_fn(|at| *state.reg(ARGS[at]));
        let slot = self.slot as u32;
        clobber_arguments(state, slot);
        state.push(callee.1 as u32, slot);
        self.enter_function(state);
        for (reg, value) in ARGS.into_iter().zip(arguments) {
            *state.reg_mut(reg) = value;
        }
        Ok(callee.0)
    }

    /// Enters the constructs of a new innermost frame.
    pub(crate) fn enter_function(&mut self, state: &mut State) {
        if self.env.cfg.may_goto[state.top().function as usize] {
            let of = Construct::MayGoto { frame: state.top_index() };
            let id = self.new_id();
            state.loops.enter(of, id);
        }
    }

    /// Leaves the innermost function; returns where its caller goes on, or `None` at the program's end.
    pub(crate) fn exit(&mut self, state: &mut State) -> Checked<Option<usize>> {
        if state.top_index() == 0 {
            self.end(state)?;
            return Ok(None);
        }
        if let Some(callback) = state.top().callback {
            self.notes.relies = true;
            return Ok(Some(self.end_callback(state, callback)?));
        }
        self.end_copies(state, state.top_index(), 0, STACK_BYTES);
        let result = *state.reg(Reg::R0);
        if let Kind::Stack { frame } = result.kind
            && (frame == state.top_index() || !self.env.config.abilities.lenient)
        {
            let text =
                format!("a function may not return the address of its own stack, found {result} in r0");
            return Err(
                Violation::new(Code::Return, text).in_linux("cannot return stack pointer to the caller")
            );
        }
        let back = state.top().call_slot as usize + 1;
        state.pop();
        state.resources.leave_frame(state.top_index());
        *state.reg_mut(Reg::R0) = result;
        Ok(Some(back))
    }
}

/// Checks that one more call may nest.
pub(crate) fn check_depth(state: &State) -> Checked<()> {
    if state.frames().len() == MAX_FRAMES {
        let text = format!("calls nest deeper than {MAX_FRAMES} frames");
        let words = format!("the call stack of {} frames is too deep !", MAX_FRAMES + 1);
        return Err(Violation::new(Code::Stack, text).in_linux(words));
    }
    Ok(())
}

/// A call does not preserve `r1` to `r5`.
pub(crate) fn clobber_arguments(state: &mut State, slot: u32) {
    for reg in ARGS {
        *state.reg_mut(reg) = Value::pointer(Kind::Clobbered { slot }, 0);
    }
}
