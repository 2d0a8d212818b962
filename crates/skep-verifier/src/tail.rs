//! Tail calls: the program is left for another, or goes on as if nothing had been called.

use crate::Code;
use crate::args::{Arguments, expected};
use crate::fault::{Fault, Step};
use crate::state::State;
use crate::walk::Walker;
use skep_abi::HelperProto;
use skep_isa::Reg;

impl Walker<'_> {
    /// Checks a tail call; returns the index that is known. What follows is walked as after other calls, with
    /// nothing in `r0`.
    pub(crate) fn check_tail_call(
        &self,
        state: &State,
        proto: &HelperProto,
        arguments: &Arguments,
    ) -> Step<Option<u32>> {
        let Some((_, given)) = arguments.map else {
            let text = format!("the prototype of {} names no map", proto.name);
            return Err(Fault::new(Code::Unsupported, text));
        };
        let index = self.read(state, Reg::R3)?;
        if !index.is_scalar() {
            return Err(expected(proto, Reg::R3, "an index", &index));
        }
        self.check_nothing_held(state, "at a tail call")?;
        // The caller's callback could not go on.
        if state.frames().iter().any(|frame| frame.callback.is_some()) {
            let text = format!("a callback may not make tail calls, found one to {given}");
            return Err(Fault::new(Code::Helper, text));
        }
        Ok(index.as_constant().and_then(|index| u32::try_from(index).ok()))
    }
}
