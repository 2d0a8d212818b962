//! Legacy packet loads: `r0 = *(u16 *)skb[12]`, from the days of classic filters.
//!
//! They read the packet of the context in `r6`, fragmented or not, and end the program with result 0 if the packet is
//! too short. So they need no check of the packet's length, but the program must be allowed to end here.

use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::frames::clobber_arguments;
use skep_isa::{PacketBase, Reg, Size};

impl Transfer<'_> {
    pub(crate) fn load_packet(&mut self, state: &mut State, size: Size, base: PacketBase) -> Checked<()> {
        let kind = self.env.program_type();
        if !kind.classic_loads {
            let text = format!(
                "legacy packet loads are for socket filters and traffic control, found a program of type {}",
                kind.name
            );
            return Err(Violation::new(Code::Context, text)
                .suggest("read the packet through data and data_end, or with a helper"));
        }
        let context = self.read(state, Reg::R6)?;
        if context != Value::pointer(Kind::Context, 0) {
            let text = format!("a legacy packet load expects the context, unchanged, in r6, found {context}");
            return Err(Violation::new(Code::Argument, text));
        }
        if let PacketBase::Indirect(index) = base {
            let index = self.read(state, index)?;
            if !index.is_scalar() {
                let text = format!("a legacy packet load expects a number as its index, found {index}");
                return Err(Violation::new(Code::Argument, text));
            }
        }
        self.check_nothing_held(state, "at a legacy packet load, which may end the program").map_err(
            |violation| match state.resources.lock {
                Some(_) => {
                    violation.in_linux("BPF_LD_[ABS|IND] cannot be used inside bpf_spin_lock-ed region")
                }
                None => violation.also_in_linux("BPF_LD_[ABS|IND] cannot be mixed with socket references"),
            },
        )?;
        clobber_arguments(state, self.slot as u32);
        if state.top_index() > 0 {
            // A host may end the function only: callers must accept the result 0.
            let mut other = self.forks.copy(state);
            *other.reg_mut(Reg::R0) = Value::constant(0);
            if let Some(slot) = self.exit(&mut other)? {
                self.forks.put_aside(other, slot);
                self.forks.stay(false);
            }
        }
        *state.reg_mut(Reg::R0) = match self.env.config.abilities.lenient {
            true => Value::scalar(Scalar::of_size(size)),
            false => Value::UNKNOWN,
        };
        Ok(())
    }
}
