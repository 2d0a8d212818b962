//! Jumps, and the labels that they lead to.

use skep_isa::{Cond, Insn, Operand, Reg, Width};

use super::{Done, Lowering};
use crate::layout::Label;
use crate::port::{Arch, Branches};

impl<A: Arch> Lowering<'_, A> {
    /// The label of the jump target in this slot.
    pub(super) fn target(&mut self, slot: usize, offset: i32) -> Label {
        let target = self.target_slot(slot, offset);
        self.label(target)
    }

    /// The slot of the jump target in this slot.
    pub(super) fn target_slot(&self, slot: usize, offset: i32) -> usize {
        // The plan has checked that targets are inside the function.
        let target = |slot: usize, offset: i32| (slot as i64 + 1 + i64::from(offset)) as usize;
        let mut slot = target(slot, offset);
        // A jump to a jump takes the latter's target. The number of steps is bounded, since jumps may form a cycle.
        for _ in 0..4 {
            match self.parts.insns.get(slot) {
                // A round of that loop must be charged, and what is counted must be reached.
                _ if self.plan.ends.weight(slot) > 0 || self.counts().is_some() => break,
                Some(&Insn::Jump { offset, .. }) if self.plan.reached(slot) => slot = target(slot, offset),
                _ => break,
            }
        }
        slot
    }

    pub(super) fn label(&mut self, slot: usize) -> Label {
        let end = self.plan.functions[self.function].end as usize;
        if slot < end && self.plan.reached(slot) { self.labels.slot(slot) } else { self.trap() }
    }

    pub(super) fn trap(&mut self) -> Label {
        self.trap_used = true;
        self.labels.trap()
    }

    /// Whether `if a goto +1; goto b`, which is `if not a goto b`, begins in that slot.
    pub(super) fn is_over_a_jump(&self, slot: usize, offset: i32) -> bool {
        offset == 1 && matches!(self.follower(slot + 1), Some(Insn::Jump { .. }))
    }

    pub(super) fn jump_if(
        &mut self,
        slot: usize,
        width: Width,
        what: (Reg, Cond, Operand),
        offset: i32,
    ) -> Done {
        let (dst, cond, src) = what;
        let width = self.known.narrow_cond(cond, width, dst, src);
        let target = self.target(slot, offset);
        if self.is_over_a_jump(slot, offset)
            && let Some(Insn::Jump { offset: over, .. }) = self.follower(slot + 1)
        {
            let far = self.target(slot + 1, over);
            self.emit.jump_if(width, what, true, far);
            return Done::through(2);
        }
        if offset != 0 {
            self.emit.jump_if(width, what, false, target);
        }
        Done::through(1)
    }
}
