//! Tail calls: another program replaces this one, or the call fails and the program goes on.

use crate::domain::comparison::assume;
use crate::domain::scalar::Scalar;
use crate::domain::stack::STACK_BYTES;
use crate::domain::state::State;
use crate::domain::value::Value;
use crate::program::assumed::INNER;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::args::{Arguments, expected};
use skep_abi::{HelperProto, Results};
use skep_isa::{Cond, Reg, Width};

impl Transfer<'_> {
    /// Checks a tail call; returns the index if it is constant. The path goes on as after other calls, with nothing in
    /// `r0`.
    pub(crate) fn check_tail_call(
        &self,
        state: &State,
        proto: &HelperProto,
        arguments: &Arguments,
    ) -> Checked<Option<u32>> {
        let Some((map, given)) = arguments.map else {
            let text = format!("the prototype of {} names no map", proto.name);
            return Err(Violation::new(Code::Unsupported, text));
        };
        self.env.outer_map(map & !INNER)?.leads_to_programs();
        let index = self.read(state, Reg::R3)?;
        if !index.is_scalar() {
            return Err(expected(proto, Reg::R3, "an index", &index));
        }
        self.check_nothing_held(state, "at a tail call")?;
        // The helper could not go on with its callback.
        if state.frames().iter().any(|frame| frame.callback.is_some()) {
            let text = format!("a callback may not make tail calls, found one to {given}");
            return Err(Violation::new(Code::Helper, text));
        }
        Ok(index.as_constant().and_then(|index| u32::try_from(index).ok()))
    }

    /// After a tail call in a function, the other program returns to the function's caller with a result of its own: a
    /// fork goes on there.
    pub(crate) fn return_by_tail_call(&mut self, state: &State) {
        if state.top_index() == 0 {
            return;
        }
        let mut other = self.forks.copy(state);
        let frame = other.top_index();
        self.end_copies(&mut other, frame, 0, STACK_BYTES);
        let back = other.top().call_slot as usize + 1;
        other.pop();
        *other.reg_mut(Reg::R0) = Value::scalar(self.result_of_tail_call());
        self.forks.put_aside(other, back);
        self.forks.stay(false);
    }

    /// The results that programs of this type may have.
    fn result_of_tail_call(&self) -> Scalar {
        let Results::Range { min, max } = self.env.program_type().results else { return Scalar::UNKNOWN };
        let bound = |number: i32| Scalar::constant(i64::from(number) as u64);
        [(Cond::Sge, min), (Cond::Sle, max)].into_iter().fold(Scalar::UNKNOWN, |result, (cond, number)| {
            assume(cond, Width::W32, &result, &bound(number)).map_or(result, |(result, _)| result)
        })
    }
}
