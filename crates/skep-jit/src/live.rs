//! Liveness of registers.
//!
//! The usual backward analysis, with one refinement: an instruction that only computes a dead value does not make its
//! operands live. Such instructions get no code ([`Live::is_dead`]). Compilers leave few of them, but an inlined
//! look-up leaves those that prepared its arguments.
//!
//! Live sets only grow between iterations, so the analysis reaches a fixpoint. The number of iterations is bounded; for
//! a program that would need more, all registers count as live, which is always safe.

use skep_isa::{Reg, RegSet};

use crate::plan::{Plan, Slot};

/// More iterations than ordinary programs nest loops.
const MAX_ITERATIONS: usize = 12;

/// The live registers of each slot.
#[derive(Debug)]
pub(crate) struct Live {
    /// Live-in registers by slot; one more entry for the end.
    before: Vec<RegSet>,
}

impl Live {
    /// Analyses a whole program.
    pub(crate) fn new(plan: &Plan) -> Self {
        let slots = plan.slots();
        let mut live = Self { before: vec![RegSet::EMPTY; slots.len() + 1] };
        for _ in 0..MAX_ITERATIONS {
            if !live.iterate(slots) {
                return live;
            }
        }
        live.before.fill(Reg::ALL.into_iter().collect());
        live
    }

    /// The live-out registers of a slot that does not jump.
    pub(crate) fn after(&self, slot: usize) -> RegSet {
        self.before[slot + 1]
    }

    /// The live-in registers of a slot.
    pub(crate) fn before(&self, slot: usize) -> RegSet {
        self.before[slot]
    }

    /// Whether the instruction in a slot only computes a dead value.
    pub(crate) fn is_dead(&self, slot: usize, what: &Slot) -> bool {
        is_dead(what, self.after(slot))
    }

    /// One pass from the program's end to its start. Returns whether another one is needed.
    fn iterate(&mut self, slots: &[Slot]) -> bool {
        let mut again = false;
        let mut next = RegSet::EMPTY;
        for (at, slot) in slots.iter().enumerate().rev() {
            let mut live_out = if slot.falls_through() { next } else { RegSet::EMPTY };
            if let Some(target) = slot.target() {
                live_out = live_out.union(self.before[target]);
            }
            if !is_dead(slot, live_out) {
                live_out = live_out.difference(slot.writes).union(slot.reads);
            }
            again |= slot.is_loop() && live_out != self.before[at];
            self.before[at] = live_out;
            next = live_out;
        }
        again
    }
}

fn is_dead(slot: &Slot, live_out: RegSet) -> bool {
    slot.is_pure() && slot.writes.intersection(live_out).is_empty()
}
