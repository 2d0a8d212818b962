//! Where the host takes over again: the program's end, and the results that it may have.

use crate::Code;
use crate::callback::{self, RootKind};
use crate::fault::{Fault, Step};
use crate::state::State;
use crate::value::Value;
use crate::walk::Walker;
use skep_abi::{Callback, Results};
use skep_isa::Reg;

impl Walker<'_> {
    /// The outermost function ends.
    pub(crate) fn end(&mut self, state: &State) -> Step<()> {
        let what = match self.root_kind() {
            RootKind::Program => "program",
            RootKind::Timer { .. } => "callback",
            RootKind::Global => return self.end_global(state),
        };
        let at_program = self.root_kind() == RootKind::Program;
        let of_attachment = self.program_type().results == Results::OfAttachment;
        if at_program && of_attachment && self.attachment_returns_nothing() {
            return self.check_nothing_held(state, &format!("where the {what} ends"));
        }
        let range = match self.root_kind() {
            RootKind::Timer { .. } => Some(callback::results(Callback::Timer)),
            RootKind::Program | RootKind::Global => match self.program_type().results {
                // What nobody asks for may not seem to be changed.
                Results::Range { max, .. } if at_program && self.attachment_returns_nothing() => {
                    Some((max, max))
                }
                Results::Any => None,
                Results::OfAttachment => self.results_of_attachment(),
                Results::Range { min, max } => Some((min, max)),
            },
        };
        match range {
            // Whoever may tell addresses may return them as well.
            None if at_program && self.may_leak() => {
                self.value_at_end(state, what)?;
            }
            None => {
                self.final_result(state, what)?;
            }
            Some(range) => check_range(&self.final_result(state, what)?, range, what)?,
        }
        self.check_nothing_held(state, &format!("where the {what} ends"))
    }

    /// What is in `r0` at an end.
    fn value_at_end(&self, state: &State, what: &str) -> Step<Value> {
        self.read(state, Reg::R0).map_err(|mut fault| {
            fault.reason = format!("the {what} ends without a result: {}", fault.reason);
            fault
        })
    }

    /// The number in `r0` at an end.
    pub(crate) fn final_result(&self, state: &State, what: &str) -> Step<Value> {
        let result = self.value_at_end(state, what)?;
        if !result.is_scalar() {
            let text = format!("expected a number as the result in r0, found {result}");
            return Err(Fault::new(Code::PointerLeak, text));
        }
        Ok(result)
    }
}

/// Whether a result, as a signed 32-bit number, is in a range.
pub(crate) fn check_range(result: &Value, (min, max): (i32, i32), what: &str) -> Step<()> {
    let half = result.num.half();
    if half.smin >= i64::from(min) && half.smax <= i64::from(max) {
        return Ok(());
    }
    let wanted = if min == max { format!("{min}") } else { format!("a number from {min} to {max}") };
    let text = format!("expected {wanted} as the result of the {what} in r0, found {result}");
    Err(Fault::new(Code::Return, text).suggest("return a constant, or bound the result with comparisons"))
}
