//! Which registers' values are still needed.
//!
//! The usual backward analysis, with one refinement: an instruction that does nothing but compute a value
//! that nobody needs does not need its operands either. Such instructions get no code ([`Live::is_dead`]);
//! compilers leave few, but a look-up that is inlined leaves those that prepared its arguments.
//!
//! Values only become needed from round to round, so the analysis ends. A program made to need many rounds
//! does not get them: then everything counts as needed, which is always right.

use skep_isa::{Reg, RegSet};

use crate::plan::{Plan, Slot};

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
    pub(crate) fn new(plan: &Plan) -> Self {
        let slots = plan.slots();
        let mut live = Self { before: vec![RegSet::EMPTY; slots.len() + 1] };
        for _ in 0..MAX_ROUNDS {
            if !live.round(slots) {
                return live;
            }
        }
        live.before.fill(Reg::ALL.into_iter().collect());
        live
    }

    /// What is needed behind a slot that does not jump.
    pub(crate) fn after(&self, slot: usize) -> RegSet {
        self.before[slot + 1]
    }

    /// What is needed in front of a slot.
    pub(crate) fn before(&self, slot: usize) -> RegSet {
        self.before[slot]
    }

    /// Whether the instruction in a slot computes what nobody needs, and does nothing else.
    pub(crate) fn is_dead(&self, slot: usize, what: &Slot) -> bool {
        is_dead(what, self.after(slot))
    }

    /// Once through the program from its end; whether another round is needed.
    fn round(&mut self, slots: &[Slot]) -> bool {
        let mut again = false;
        let mut next = RegSet::EMPTY;
        for (at, slot) in slots.iter().enumerate().rev() {
            let mut needed = if slot.falls_through() { next } else { RegSet::EMPTY };
            if let Some(target) = slot.target() {
                needed = needed.union(self.before[target]);
            }
            if !is_dead(slot, needed) {
                needed = needed.difference(slot.writes).union(slot.reads);
            }
            again |= slot.is_loop() && needed != self.before[at];
            self.before[at] = needed;
            next = needed;
        }
        again
    }
}

fn is_dead(slot: &Slot, needed: RegSet) -> bool {
    slot.is_pure() && slot.writes.intersection(needed).is_empty()
}
