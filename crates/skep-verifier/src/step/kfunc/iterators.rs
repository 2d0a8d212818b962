//! Kfuncs of open-coded iterators.

use crate::domain::state::State;
use crate::domain::value::{Kind, Needs, Trust, Value};
use crate::program::prototype::{Iterates, Prototype, Returned};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::frames::clobber_arguments;
use skep_abi::{AttachTo, Context, KfuncFlags};
use skep_isa::Reg;

impl Transfer<'_> {
    /// A call that makes an iterator, asks it for its next element, or ends it.
    pub(super) fn call_iterator(&mut self, state: &mut State, prototype: &Prototype) -> Checked<()> {
        let Some(Iterates { ty, slots, read_section }) = prototype.iterator else { return Ok(()) };
        let (who, flags) = (prototype.name(), prototype.known.flags);
        let slot = self.slot as u32;
        if flags.has(KfuncFlags::ITER_NEW) {
            self.check_iterator_place(prototype)?;
            self.kfunc_arguments(state, prototype, 1)?;
            let needs = if read_section { Needs::ReadSection } else { Needs::Nothing };
            self.iterator_new(state, who, Reg::R1, (ty, slots), needs)?;
            clobber_arguments(state, slot);
            *state.reg_mut(Reg::R0) = Value::UNKNOWN;
        } else if flags.has(KfuncFlags::ITER_DESTROY) {
            self.iterator_destroy(state, who, Reg::R1, ty, slots)?;
            clobber_arguments(state, slot);
            *state.reg_mut(Reg::R0) = super::nothing(slot);
        } else {
            // The path that goes on has found an element; the other one, none.
            let element = match prototype.returned {
                Returned::Object(ty) => {
                    let trust = if read_section { Trust::ReadSection } else { Trust::Trusted };
                    Kind::Object { ty, trust, maybe_null: false }
                }
                Returned::Memory(bytes) => Kind::Memory { bytes, read_only: true, maybe_null: false },
                Returned::Nothing | Returned::Number | Returned::Mask | Returned::Unknown(_) => {
                    let text = format!("{who} returns no pointer to an element, which is not supported yet");
                    return Err(Violation::new(Code::Unsupported, text));
                }
            };
            self.iterator_next(state, who, Reg::R1, ty, slots, Value::pointer(element, 0))?;
        }
        Ok(())
    }

    /// Slow iterators are only for programs that may take long.
    fn check_iterator_place(&self, prototype: &Prototype) -> Checked<()> {
        let kind = self.env.program_type();
        let slow = self.sleeps()
            || matches!(kind.context, Context::Arguments { of: AttachTo::SecurityHook | AttachTo::Iterator });
        if prototype.known.flags.has(KfuncFlags::SLOW) && !slow {
            let text = format!(
                "{} is for iterators, security hooks and programs that may sleep, not for type {}",
                prototype.name(),
                kind.name
            );
            return Err(Violation::new(Code::Helper, text));
        }
        Ok(())
    }
}
