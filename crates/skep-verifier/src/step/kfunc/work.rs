//! Kernel functions of work queues: `struct bpf_wq` in values of maps.
//!
//! A work queue is a timer without a time. What it calls is another root of the walk, and may sleep.

use crate::domain::resources::Holder;
use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::program::prototype::Prototype;
use crate::program::roots::{Root, RootKind};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::{SpecialKfunc, SpecialKind};
use skep_isa::Reg;

impl Transfer<'_> {
    /// Such a call, whose first argument is a work queue in a map's value. Returns its result.
    pub(super) fn work_queue(&mut self, state: &State, prototype: &Prototype) -> Checked<Value> {
        let who = prototype.name();
        let queue = self.read(state, Reg::R1)?;
        let wanted = |kind| kind == SpecialKind::Workqueue;
        let (holder, _) = self.special_argument(who, Reg::R1, &queue, "bpf_wq", wanted)?;
        let Holder::Map(map) = holder else {
            return Err(self.wrong(prototype, Reg::R1, "a bpf_wq in a map's value", &queue));
        };
        match prototype.known.special {
            SpecialKfunc::WorkInit => {
                self.same_map(state, &prototype.proto, Reg::R2, map, &queue)?;
                self.check_number(state, prototype, 2)?;
            }
            SpecialKfunc::WorkCallback => {
                let given = self.read(state, Reg::R2)?;
                let Kind::Function { function } = given.kind else {
                    return Err(self.wrong(prototype, Reg::R2, "a function of the program", &given));
                };
                if function == 0 {
                    let text = format!("{who} expects a function in r2 that is not the program itself");
                    return Err(Violation::new(Code::Argument, text));
                }
                self.check_number(state, prototype, 2)?;
                self.record.add_root(Root { function, of: RootKind::Work { map } });
            }
            _ => {
                self.check_number(state, prototype, 1)?;
            }
        }
        Ok(Value::UNKNOWN)
    }
}
