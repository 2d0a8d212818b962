//! Calls that need more than one operation, and helpers that need no call.

use skep_abi::InlineArray;
use skep_isa::{Cond, Insn, Operand, Reg, Size, Width};

use super::{Done, Lowering};
use crate::parts::TailCall;
use crate::port::{Arch, Branches, Calls};
use crate::site::Site;

impl<A: Arch> Lowering<'_, A> {
    /// A call of a function of the program.
    pub(super) fn call_function(&mut self, callee: usize) {
        let entry = match self.plan.reached(self.plan.functions[callee].start as usize) {
            true => self.labels.entry(callee),
            false => self.trap(),
        };
        self.emit.call_local(entry);
    }

    /// An inlined look-up, fused with the test for null that usually follows.
    pub(super) fn lookup(&mut self, slot: usize, array: &InlineArray, key: Option<u32>) -> Done {
        if key.is_none() {
            self.mask(Reg::R2);
        }
        let test = match self.follower(slot + 1) {
            Some(Insn::JumpIf { width: Width::W64, cond, dst: Reg::R0, src: Operand::Imm(0), offset }) => {
                let target = self.target_slot(slot + 1, offset.into());
                match cond {
                    Cond::Eq => Some((target, slot + 2)),
                    Cond::Ne => Some((slot + 2, target)),
                    _ => None,
                }
            }
            _ => None,
        };
        match (test, key) {
            (Some((null, _)), None) => {
                let wanted = self.live.before(null).contains(Reg::R0);
                let missing = (self.label(null), wanted);
                self.emit.lookup(array, Some(missing));
            }
            (None, None) => self.emit.lookup(array, None),
            (_, Some(key)) => self.emit.lookup_known(array, key),
        }
        match test {
            None => Done::through(1),
            Some((_, found)) if found == slot + 2 => Done::through(2),
            Some((_, found)) => {
                let found = self.label(found);
                self.emit.jump(found);
                // If nothing was found, control continues after it.
                Done { slots: 2, falls_through: key.is_none() }
            }
        }
    }

    /// A tail call. If it is not made, control continues after it.
    pub(super) fn tail_call(&mut self, slot: usize, call: TailCall) {
        match call {
            TailCall::Never => {}
            TailCall::To(target) => {
                let extended = self.known.is_extended(Size::B4, Reg::R3);
                self.emit.tail_call(target, extended);
            }
            TailCall::Site { map, index } => {
                let code = self.emit.tail_call_site(self.labels.slot(slot + 1));
                self.patched.push(None);
                self.sites.push(Site { map, index, offset: 0, code: code.map(Into::into) });
            }
        }
    }
}
