//! Calls of kfuncs, the host's own functions.
//!
//! Their prototypes come from the host's BTF, where the names of parameters say what their types cannot:
//!
//! | a parameter's name ends with | it is |
//! |---|---|
//! | `__ign`, `__prog` | ignored |
//! | `__k` | a number that is the same in every run |
//! | `__sz`, `__szk` | the size of the memory before it; the same in every run |
//! | `__opt`, `__nullable` | allowed to be null |
//! | `__uninit` | made by the call |
//! | `__str` | a constant string |
//! | `__map` | a map |
//!
//! Everything else is in the table [`skep_abi::KFUNCS`]. Of the functions that a runtime has of its own,
//! [`skep_abi::OWN_KFUNCS`] says what BTF says of others.

mod argument;
mod dynptr;
mod iterators;
mod mask;
mod own;
mod result;
mod work;

use crate::domain::resources::Section;
use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::program::prototype::Prototype;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::frames::clobber_arguments;
use crate::step::memory::Filled;
use crate::step::{Next, Transfer};
use skep_abi::{AttachTo, Context, KfuncFlags, SpecialKfunc, own_kfunc, own_kfunc_number};
use skep_isa::Reg;
use std::rc::Rc;

/// What the arguments of a call say about its result.
#[derive(Default)]
struct Known {
    /// The reference that the call takes back.
    released: Option<u32>,
    /// The stack bytes that it may write.
    filled: Vec<Filled>,
}

impl Transfer<'_> {
    /// A call of the host's function of that number.
    pub(crate) fn call_kfunc(&mut self, state: &mut State, id: u32) -> Checked<Next> {
        let prototype = self.kfunc(id)?;
        self.check_may_call(state, &prototype)?;
        let slot = self.slot as u32;
        let result = match prototype.known.special {
            SpecialKfunc::ReadLock => {
                self.enter_section(state, Section::Read)?;
                nothing(slot)
            }
            SpecialKfunc::ReadUnlock => {
                self.leave_section(state, Section::Read)?;
                nothing(slot)
            }
            SpecialKfunc::PreemptDisable => {
                self.enter_section(state, Section::NoPreempt)?;
                nothing(slot)
            }
            SpecialKfunc::PreemptEnable => {
                self.leave_section(state, Section::NoPreempt)?;
                nothing(slot)
            }
            SpecialKfunc::Throw => {
                let cookie = self.check_number(state, &prototype, 0)?;
                self.throw(state, &cookie)?;
                return Ok(Next::End);
            }
            SpecialKfunc::CastToContext => self.cast_to_context(state, &prototype)?,
            SpecialKfunc::ReadOnlyCast => self.read_only_cast(state, &prototype)?,
            SpecialKfunc::DynptrFromSkb | SpecialKfunc::DynptrFromXdp => {
                self.dynptr_from_packet(state, &prototype)?
            }
            SpecialKfunc::WorkInit | SpecialKfunc::WorkCallback | SpecialKfunc::WorkStart => {
                self.work_queue(state, &prototype)?
            }
            SpecialKfunc::DeviceBound => self.device_metadata(state, &prototype)?,
            SpecialKfunc::DynptrSlice => self.dynptr_slice(state, &prototype, false)?,
            SpecialKfunc::DynptrSliceWritable => self.dynptr_slice(state, &prototype, true)?,
            SpecialKfunc::DynptrClone => self.dynptr_clone(state, &prototype)?,
            SpecialKfunc::None if prototype.iterator.is_some() => {
                self.call_iterator(state, &prototype)?;
                return Ok(Next::To(self.slot + 1));
            }
            SpecialKfunc::Allocate | SpecialKfunc::Drop | SpecialKfunc::Share | SpecialKfunc::Collection => {
                return self.call_on_own(state, &prototype).map(Next::To);
            }
            SpecialKfunc::None => {
                let known = self.kfunc_arguments(state, &prototype, 0)?;
                if let Some(reference) = known.released {
                    self.release(state, prototype.name(), reference)?;
                }
                self.kfunc_result(state, &prototype)?
            }
            _ => {
                let text = format!("calls of {} are not supported yet", prototype.name());
                return Err(Violation::new(Code::Unsupported, text));
            }
        };
        clobber_arguments(state, slot);
        *state.reg_mut(Reg::R0) = result;
        Ok(Next::To(self.slot + 1))
    }

    /// The prototype of the function of that number.
    fn kfunc(&mut self, id: u32) -> Checked<Rc<Prototype>> {
        if let Some(known) = self.types.kfuncs.get(&id) {
            return Ok(Rc::clone(known));
        }
        let prototype = match own_kfunc(id) {
            Some(own) => Prototype::own(own).ok_or_else(|| {
                let text =
                    format!("no table lists the programs that may call the runtime's function {}", own.name);
                Violation::new(Code::Helper, text)
            })?,
            None => {
                let btf = self.btf(&format!("the call of the host's function of number {id}"))?;
                Prototype::of(btf, id)?
            }
        };
        let prototype = Rc::new(prototype);
        self.types.kfuncs.insert(id, Rc::clone(&prototype));
        Ok(prototype)
    }

    /// Whether this program may call it here.
    fn check_may_call(&self, state: &State, prototype: &Prototype) -> Checked<()> {
        let (kind, name) = (self.env.program_type(), prototype.name());
        let flags = prototype.known.flags;
        // A runtime's own functions are open to its own program types.
        let own = kind.number.is_none() && own_kfunc_number(name).is_some();
        if !own && !prototype.known.is_for(kind.number) {
            let text = format!("programs of type {} may not call {name}", kind.name);
            let words = format!("calling kernel function {name} is not allowed");
            return Err(Violation::new(Code::Helper, text).in_linux(words));
        }
        // A runtime's packets carry what their device says of them.
        if prototype.known.special == SpecialKfunc::DeviceBound && !prototype.own {
            let text = format!("{name} is for programs that are bound to a device, which this one is not");
            return Err(Violation::new(Code::Helper, text));
        }
        self.check_licence(name)?;
        let iterates = kind.context == Context::Arguments { of: AttachTo::Iterator };
        if flags.has(KfuncFlags::FROM_ITERATORS) && !iterates {
            return Err(Violation::new(Code::Helper, format!("{name} is for iterators over sockets")));
        }
        if !flags.has(KfuncFlags::IN_LOCK) {
            self.check_no_lock(state, name)?;
        }
        if flags.has(KfuncFlags::SLEEPABLE) {
            self.check_may_sleep(state, name)?;
        }
        if flags.has(KfuncFlags::RCU_PROTECTED) && !self.in_read_section(state) {
            let text = format!("{name} must be called in a read section, and the program may sleep");
            return Err(Violation::new(Code::Resource, text).suggest("call bpf_rcu_read_lock first"));
        }
        Ok(())
    }
}

/// The content of `r0` after a call without a result.
pub(super) fn nothing(slot: u32) -> Value {
    Value::pointer(Kind::Clobbered { slot }, 0)
}
