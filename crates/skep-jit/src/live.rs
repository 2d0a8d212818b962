//! Which registers' values are still needed.
//!
//! The usual backward analysis, with one refinement: an instruction that does nothing but compute a value
//! that nobody needs does not need its operands either. Such instructions get no code ([`Live::is_dead`]);
//! compilers leave few, but a look-up that is inlined leaves those that prepared its arguments.
//!
//! Values only become needed from round to round, so the analysis ends. A program made to need many rounds
//! does not get them: then everything counts as needed, which is always right.

use skep_isa::{CallTarget, Insn, Reg, RegSet};

use crate::Error;
use crate::plan::{HelperCall, Parts, Plan};

/// More rounds than loops are nested in any sane program.
const MAX_ROUNDS: usize = 12;

/// The registers that are needed at each slot.
#[derive(Debug)]
pub(crate) struct Live {
    /// By slot, what is needed before it; one more for the end.
    before: Vec<RegSet>,
}

impl Live {
    /// Analyses a whole program.
    pub(crate) fn new(parts: Parts<'_>, plan: &Plan) -> Result<Self, Error> {
        let mut live = Self { before: vec![RegSet::EMPTY; parts.insns.len() + 1] };
        for _ in 0..MAX_ROUNDS {
            if !live.round(parts, plan)? {
                return Ok(live);
            }
        }
        live.before.fill(Reg::ALL.into_iter().collect());
        Ok(live)
    }

    /// What is needed behind a slot that does not jump.
    pub(crate) fn after(&self, slot: usize) -> RegSet {
        self.before[slot + 1]
    }

    /// Whether the instruction in a slot computes what nobody needs, and does nothing else.
    pub(crate) fn is_dead(&self, slot: usize, insn: &Insn) -> bool {
        is_pure(insn) && insn.writes().intersection(self.after(slot)).is_empty()
    }

    /// Once through the program from its end; whether another round is needed.
    fn round(&mut self, parts: Parts<'_>, plan: &Plan) -> Result<bool, Error> {
        let mut again = false;
        for (slot, insn) in parts.insns.iter().enumerate().rev() {
            if !plan.reached(slot) && *insn != Insn::LoadImm64Tail {
                continue;
            }
            let mut needed = if insn.falls_through() { self.before[slot + 1] } else { RegSet::EMPTY };
            if let Some(target) = insn.jump_target(slot) {
                needed = needed.union(self.before[target]);
            }
            let dead = is_pure(insn) && insn.writes().intersection(needed).is_empty();
            if !dead {
                needed = needed.difference(insn.writes()).union(reads(parts, slot, insn)?);
            }
            if needed != self.before[slot] {
                self.before[slot] = needed;
                again |= plan.is_loop(slot);
            }
        }
        Ok(again)
    }
}

/// Whether the instruction only computes.
fn is_pure(insn: &Insn) -> bool {
    matches!(
        insn,
        Insn::Alu { .. }
            | Insn::Neg { .. }
            | Insn::MovSx { .. }
            | Insn::Endian { .. }
            | Insn::LoadImm64 { .. }
    )
}

/// The registers that the code of the instruction reads.
fn reads(parts: Parts<'_>, slot: usize, insn: &Insn) -> Result<RegSet, Error> {
    Ok(match *insn {
        Insn::Call { target: CallTarget::Helper(id) } => match parts.helper_call(slot, id)? {
            HelperCall::Call(_) => RegSet::ARGUMENTS,
            HelperCall::Lookup(_, None) => Reg::R2.into(),
            HelperCall::Lookup(_, Some(_)) | HelperCall::CpuNumber => RegSet::EMPTY,
        },
        _ => insn.reads(),
    })
}
