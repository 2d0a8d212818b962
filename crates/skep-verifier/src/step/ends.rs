//! The program's end, and the results that it may have.

use crate::domain::state::State;
use crate::domain::value::Value;
use crate::domain::words;
use crate::program::roots::RootKind;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::{Callback, Results};
use skep_isa::Reg;

impl Transfer<'_> {
    /// The outermost function ends.
    pub(crate) fn end(&mut self, state: &State) -> Checked<()> {
        let (what, wanted) = match self.root {
            // The place of a function of the program, whose result may be anything.
            RootKind::Program if self.extends_function() => return self.end_global(state),
            RootKind::Program => ("program", self.results_of_program()),
            RootKind::Exception => ("exception callback", self.results_of_program()),
            RootKind::Timer { .. } | RootKind::Work { .. } => {
                ("callback", Wanted::Range(Callback::Timer.results()))
            }
            RootKind::Global => return self.end_global(state),
        };
        match wanted {
            Wanted::Nothing => {}
            // A program that may leak addresses may return one.
            Wanted::Anything if self.may_leak() => {
                self.value_at_end(state, what)?;
            }
            Wanted::Anything => {
                self.final_result(state, what)?;
            }
            Wanted::Range(range) => {
                let result = self.final_result(state, what)?;
                check_range(&result, range, what, Reg::R0)?;
                self.check_whole(&result, range, what)?;
            }
        }
        self.check_nothing_held(state, &format!("where the {what} ends"))
    }

    /// Checks all 64 bits of a result, without leniency. Where results may be negative, 32 bits count for all.
    pub(crate) fn check_whole(&self, result: &Value, (min, max): (i32, i32), what: &str) -> Checked<()> {
        let whole = i64::from(min) <= result.num.smin && result.num.smax <= i64::from(max);
        if self.env.config.abilities.lenient || whole || min < 0 {
            return Ok(());
        }
        let text = format!("all 64 bits count in the result of the {what}, found {result}");
        Err(Violation::new(Code::Return, text))
    }

    /// Whether the program takes the place of a function that is not the program itself.
    fn extends_function(&self) -> bool {
        self.env.program.source.replaces().is_some_and(|target| !target.main)
    }

    /// What the program's result must be, however the program ends.
    pub(crate) fn results_of_program(&self) -> Wanted {
        if self.extends_function() {
            return Wanted::Anything;
        }
        let nobody_asks = self.attachment_returns_nothing();
        match self.env.program_type().results {
            Results::OfAttachment if nobody_asks => Wanted::Nothing,
            // An ignored result may not look like a change.
            Results::Range { max, .. } if nobody_asks => Wanted::Range((max, max)),
            Results::Any => Wanted::Anything,
            Results::OfAttachment => self.results_of_attachment().map_or(Wanted::Anything, Wanted::Range),
            Results::Range { min, max } => Wanted::Range((min, max)),
        }
    }

    /// What is in `r0` at an end.
    fn value_at_end(&self, state: &State, what: &str) -> Checked<Value> {
        self.read(state, Reg::R0).map_err(|mut violation| {
            violation.reason = format!("the {what} ends without a result: {}", violation.reason);
            violation
        })
    }

    /// The number in `r0` at an end.
    pub(crate) fn final_result(&self, state: &State, what: &str) -> Checked<Value> {
        let result = self.value_at_end(state, what)?.outside_of_arena();
        if !result.is_scalar() {
            let text = format!("expected a number as the result in r0, found {result}");
            let words = match self.results_of_program() {
                Wanted::Range(_) => {
                    format!("At program exit the register R0 is not a known value ({})", words::kind(&result))
                }
                _ => "R0 leaks addr as return value".to_owned(),
            };
            return Err(Violation::new(Code::PointerLeak, text).in_linux(words));
        }
        Ok(result)
    }
}

/// What the host wants in `r0` at an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Nothing: it ignores the result.
    Nothing,
    /// Any number.
    Anything,
    /// A number from the first to the second.
    Range((i32, i32)),
}

impl Wanted {
    /// The smallest and the greatest number, if there are limits.
    pub(crate) fn range(self) -> Option<(i32, i32)> {
        if let Self::Range(range) = self { Some(range) } else { None }
    }
}

/// Whether a result, as a signed 32-bit number, is in a range.
pub(crate) fn check_range(result: &Value, (min, max): (i32, i32), what: &str, reg: Reg) -> Checked<()> {
    let half = result.num.half();
    if half.smin >= i64::from(min) && half.smax <= i64::from(max) {
        return Ok(());
    }
    let wanted = if min == max { format!("{min}") } else { format!("a number from {min} to {max}") };
    let text = format!("expected {wanted} as the result of the {what} in {reg}, found {result}");
    let at = match what {
        _ if what.starts_with("program") || what.starts_with("exception") => "At program exit",
        _ => "At callback return",
    };
    let words = words::result(at, reg, result, (min, max));
    Err(Violation::new(Code::Return, text)
        .suggest("return a constant, or bound the result with comparisons")
        .in_linux(words))
}
