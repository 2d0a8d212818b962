//! CPU masks of a runtime (`struct bpf_cpumask`): objects that only calls look into.
//!
//! ```text
//!   bpf_cpumask_create -----> owned --bpf_kptr_xchg--> kept in a map's value or an object
//!   bpf_cpumask_acquire --^    |  ^--bpf_kptr_xchg--'    |
//!                              v                         v load in a read section
//!                  bpf_cpumask_release                 found: until the section's end
//! ```
//!
//! Every function takes an owned mask. Those of flag [`KfuncFlags::RCU`] also take one that was found, to read and to
//! write: whoever owns it may release it meanwhile, but its memory stays. A `const struct cpumask *` is the same
//! address.

use super::Known;
use crate::domain::resources::Referent;
use crate::domain::state::State;
use crate::domain::value::{Hold, Kind, Value};
use crate::program::prototype::Prototype;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::alu::CHECK_NULL;
use skep_abi::{CPU_MASK, KfuncFlags};
use skep_isa::Reg;

impl Transfer<'_> {
    /// Checks an argument that must be a mask.
    pub(super) fn mask_argument(
        &self,
        state: &State,
        prototype: &Prototype,
        reg: Reg,
        value: &Value,
        known: &mut Known,
    ) -> Checked<()> {
        let (who, flags) = (prototype.name(), prototype.known.flags);
        let Kind::Own { ty: CPU_MASK, held, per_cpu: false, maybe_null } = value.kind else {
            return Err(self.wrong(prototype, reg, "a CPU mask", value));
        };
        if maybe_null {
            let mut violation = self.wrong(prototype, reg, "a CPU mask", value);
            violation.code = Code::MaybeNull;
            return Err(violation.suggest(CHECK_NULL));
        }
        if value.offset != 0 || !value.is_fixed() {
            return Err(self.wrong(prototype, reg, "the start of a CPU mask", value));
        }
        match held {
            Hold::Owned => {}
            Hold::Found if flags.has(KfuncFlags::RCU) => {}
            _ => {
                let section = if flags.has(KfuncFlags::RCU) { ", or found in this read section" } else { "" };
                let text =
                    format!("{who} expects a CPU mask in {reg} that this path owns{section}, found {value}");
                return Err(Violation::new(Code::Argument, text).suggest(match flags.has(KfuncFlags::RCU) {
                    true => {
                        "call it before bpf_rcu_read_unlock, or exchange the mask with bpf_kptr_xchg first"
                    }
                    false => "exchange the mask with bpf_kptr_xchg first",
                }));
            }
        }
        if flags.has(KfuncFlags::RELEASE) {
            known.released = Some(self.releasable(state, who, reg, value, Referent::Allocated)?);
        }
        Ok(())
    }

    /// The mask that a call returns: a new one, or one more share of one that the path owns.
    pub(super) fn mask_result(&mut self, state: &mut State, prototype: &Prototype) -> Checked<Value> {
        let maybe_null = prototype.known.flags.has(KfuncFlags::RET_NULL);
        if maybe_null {
            self.record.allocated(CPU_MASK, false);
        }
        let mut value = self.named(Kind::Own { ty: CPU_MASK, held: Hold::Owned, per_cpu: false, maybe_null });
        value.reference = self.acquire(state, Referent::Allocated)?;
        value.id = if maybe_null { value.reference } else { 0 };
        Ok(value)
    }
}
