//! Copies of small loops, and conditions at their ends.
//!
//! *Unrolling* puts copies of a loop behind each other. Jumps back to the head lead to the head of the next copy, those
//! of the last copy to the first one; every exit is kept. Where control enters the loop it enters the first copy. So
//! each path goes through the same instructions in the same order, whatever the loop counts, and nothing needs to be
//! known of it. What is saved is the jump at the end of each round but the last: a processor takes one jump a cycle at
//! most, and a taken jump ends what it decodes together.
//!
//! ```text
//!   head: A; if x goto out; B; if y goto head; C
//!
//!   head: A; if x goto out; B; if not y goto C;
//!         A; if x goto out; B; if y goto head; C
//! ```
//!
//! *Rotation* is for loops whose condition is at their start. In place of the jump back, the start up to the condition
//! is copied:
//!
//! ```text
//!   head: A; if x goto out; B; goto head        head: A; if x goto out
//!                                               next: B; A; if not x goto next; goto out
//! ```
//!
//! It assumes that nothing within the loop ends up in another function or is found by its slot: there are no calls,
//! exits and `may_goto` in it. All copies together have at most as many instructions as the program had, or 48 if
//! that is more. A loop in bulk counts as 16 of them: it has up to 200 bytes of code.

use skep_isa::{AluOp, Cond, Imm64, Insn, Operand, Reg, Width};

use super::loops::Loop;
use super::{Code, Target, bulk};
use crate::options::Passes;
use crate::parts::{Origin, Parts};
use crate::port::bulk::Bulk;

/// Copies of the smallest loops, the first one included.
const MOST_COPIES: usize = 4;
/// The most slots of a loop that has as many.
const SMALLEST: usize = 8;
/// What a loop in bulk adds, in slots.
const BULK: usize = 16;
/// The most slots of a loop that has half as many. In larger ones a jump is a small part.
const SMALL: usize = 12;
/// The most slots of a loop that is rotated: where many paths meet, the predictor does worse with two heads.
const ROTATED: usize = 24;
/// The most of these up to the condition.
const START: usize = 6;

/// What becomes of a loop.
#[derive(Debug)]
pub(super) struct Plan {
    found: Loop,
    /// At least 1.
    copies: usize,
    /// The condition at its start that is copied to its end.
    condition: Option<usize>,
    bulk: Option<Bulk>,
}

/// What becomes of each loop.
pub(super) fn plan(parts: &Parts<'_>, loops: &[Loop], passes: Passes, with_bulk: bool) -> Vec<Plan> {
    let slots = parts.insns.len();
    let mut plans: Vec<Plan> = loops
        .iter()
        .map(|&found| {
            let mut plan = Plan { found, copies: 1, condition: None, bulk: None };
            if found.end >= slots || !(found.head..found.end).all(|slot| is_plain(&parts.insns[slot])) {
                return plan;
            }
            plan.bulk = if passes.bulk && with_bulk { bulk::find(parts, found) } else { None };
            plan.condition = if passes.rotate { condition(parts, found) } else { None };
            // Of what is done in bulk only a few rounds are left.
            if passes.unroll && plan.bulk.is_none() && !parts.insns[found.head..found.end].iter().any(divides)
            {
                plan.copies = match found.end - found.head {
                    0..=SMALLEST => MOST_COPIES,
                    len if len <= SMALL => MOST_COPIES / 2,
                    _ => 1,
                };
            }
            plan
        })
        .collect();
    // A program with many loops has fewer copies of each.
    let added = |plans: &[Plan]| plans.iter().map(Plan::most_added).sum::<usize>();
    for most in (1..MOST_COPIES).rev() {
        if added(&plans) <= slots.max(4 * SMALL) {
            break;
        }
        plans.iter_mut().for_each(|plan| plan.copies = plan.copies.min(most));
    }
    if added(&plans) > slots.max(4 * SMALL) {
        plans.iter_mut().for_each(|plan| plan.bulk = None);
    }
    plans
}

/// Whether an instruction can have copies.
fn is_plain(insn: &Insn) -> bool {
    match insn {
        Insn::LoadImm64 { value, .. } => !matches!(value, Imm64::Function(_)),
        Insn::Call { .. }
        | Insn::CallReg { .. }
        | Insn::LoadPacket { .. }
        | Insn::MayGoto { .. }
        | Insn::Exit => false,
        _ => true,
    }
}

/// Whether an instruction takes so long that jumps do not count.
fn divides(insn: &Insn) -> bool {
    use AluOp::{Div, Mod, Sdiv, Smod};
    matches!(insn, Insn::Alu { op: Div | Mod | Sdiv | Smod, .. })
}

/// The slot of the only condition at the start of a loop, if it ends the loop and the loop ends with the only jump
/// back, which is not part of a condition.
fn condition(parts: &Parts<'_>, Loop { head, end }: Loop) -> Option<usize> {
    let back = end - 1;
    let leads = |slot: usize, to: usize| parts.insns[slot].jump_target(slot) == Some(to);
    let is_exit = |slot: usize| leads(slot, end);
    let is_small = end - head <= ROTATED && back > head;
    if !is_small
        || !matches!(parts.insns[back], Insn::Jump { .. })
        || (head..back).any(|slot| leads(slot, head))
    {
        return None;
    }
    let before = back - 1;
    if matches!(parts.insns[before], Insn::JumpIf { .. }) && is_exit(before) {
        return None;
    }
    let slot = (head..back).take(START).find(|slot| parts.insns[*slot].is_jump())?;
    let target = parts.insns[slot].jump_target(slot)?;
    let leaves = !(head..end).contains(&target);
    (matches!(parts.insns[slot], Insn::JumpIf { .. }) && leaves && slot + 1 < back).then_some(slot)
}

impl Plan {
    /// The loop's first slot.
    pub(super) fn head(&self) -> usize {
        self.found.head
    }

    /// The slot after the loop.
    pub(super) fn end(&self) -> usize {
        self.found.end
    }

    /// Whether the loop stays as it is.
    pub(super) fn changes_nothing(&self) -> bool {
        self.copies == 1 && self.condition.is_none() && self.bulk.is_none()
    }

    /// How many instructions are added at most.
    pub(super) fn most_added(&self) -> usize {
        let Loop { head, end } = self.found;
        let start = self.condition.map_or(0, |slot| slot + 2 - head);
        (self.copies - 1) * (end - head) + start + if self.bulk.is_some() { BULK } else { 0 }
    }

    /// Writes the loop, with all of its copies.
    pub(super) fn write(&self, code: &mut Code<'_, '_>) {
        let Loop { head, end } = self.found;
        if self.changes_nothing() {
            return code.keep(head..end);
        }
        if let Some(bulk) = &self.bulk {
            // Jumps from outside lead here, jumps back behind it.
            code.begin();
            code.bulk.push((code.here() as u32, bulk.clone()));
            let (dst, src) = (Reg::R0, Operand::Reg(Reg::R0));
            // Stands for it; nothing is made of the instruction itself.
            code.put(Origin::added(head), Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src });
        }
        let mut writer = Writer { plan: self, first: Vec::new(), places: Vec::new(), open: Vec::new() };
        for copy in 1..=self.copies {
            writer.copy(code, copy == self.copies);
        }
    }
}

/// Copies of a loop that are being written.
struct Writer<'a> {
    plan: &'a Plan,
    /// Where each instruction of the first copy is.
    first: Vec<usize>,
    /// The same for the current one, as far as it is written.
    places: Vec<usize>,
    /// Jumps to within the current copy: their number among the targets, and where they lead in the loop.
    open: Vec<(usize, usize)>,
}

impl Writer<'_> {
    fn copy(&mut self, code: &mut Code<'_, '_>, last: bool) {
        let Loop { head, end } = self.plan.found;
        self.places.clear();
        let is_first = self.first.is_empty();
        for slot in head..end {
            if is_first && (slot > head || self.plan.bulk.is_none()) {
                code.begin();
            }
            self.places.push(code.here());
            self.insn(code, slot, last);
        }
        for (number, target) in self.open.drain(..) {
            code.targets[number].1 = Target::New(self.places[target - head]);
        }
        if is_first {
            self.first.clone_from(&self.places);
        }
    }

    fn insn(&mut self, code: &mut Code<'_, '_>, slot: usize, last: bool) {
        let Loop { head, end } = self.plan.found;
        let insn = code.source[slot];
        let origin = Origin::copy(slot);
        let Some(target) = insn.jump_target(slot) else { return code.put(origin, insn) };
        if target > slot && target < end {
            self.open.push((code.targets.len(), target));
            return code.put_to(origin, insn, Target::New(usize::MAX));
        }
        if target != head {
            return code.put_to(origin, insn, Target::Verified(target));
        }
        match (last, insn) {
            (true, Insn::Jump { .. }) if slot + 1 == end && self.plan.condition.is_some() => self.start(code),
            (true, _) => code.put_to(origin, insn, Target::New(self.head())),
            // The next copy follows.
            (false, Insn::Jump { .. }) if slot + 1 == end => {}
            (false, _) if slot + 1 == end => {
                self.leave_unless(code, slot, Target::Verified(end));
            }
            (false, _) => self.go_to_next_copy(code, slot, insn),
        }
    }

    /// The head of the first copy.
    fn head(&self) -> usize {
        self.first.first().or(self.places.first()).copied().unwrap_or_default()
    }

    /// A jump back that is not the last instruction of the loop: its target is as far behind the current copy as the
    /// head is behind the end.
    fn go_to_next_copy(&mut self, code: &mut Code<'_, '_>, slot: usize, insn: Insn) {
        let Loop { end, .. } = self.plan.found;
        // Instructions left in this copy, the last of which vanishes if it is a jump back and becomes two if it cannot
        // be turned round.
        let left = (slot + 1..end).map(|slot| self.len(code, slot)).sum::<usize>();
        let next = code.here() + 1 + left;
        code.put_to(Origin::copy(slot), insn, Target::New(next));
    }

    /// How many instructions an instruction of a copy that is not the last one has.
    fn len(&self, code: &Code<'_, '_>, slot: usize) -> usize {
        let Loop { head, end } = self.plan.found;
        match code.source[slot] {
            insn if slot + 1 < end || insn.jump_target(slot) != Some(head) => 1,
            Insn::JumpIf { cond, .. } => {
                if inverted(cond).is_some() {
                    1
                } else {
                    2
                }
            }
            _ => 0,
        }
    }

    /// A conditional jump turned round: it leads to the target where it would have gone on.
    fn leave_unless(&self, code: &mut Code<'_, '_>, slot: usize, target: Target) {
        let insn = code.source[slot];
        let Insn::JumpIf { width, cond, dst, src, .. } = insn else {
            return code.put(Origin::copy(slot), insn);
        };
        match inverted(cond) {
            Some(cond) => {
                let insn = Insn::JumpIf { width, cond, dst, src, offset: 0 };
                code.put_to(Origin::copy(slot), insn, target);
            }
            None => {
                let over = Target::New(code.here() + 2);
                code.put_to(Origin::copy(slot), insn, over);
                code.put_to(Origin::added(slot), Insn::Jump { offset: 0, long: false }, target);
            }
        }
    }

    /// The start of the loop in place of the jump back to it.
    fn start(&self, code: &mut Code<'_, '_>) {
        let head = self.plan.found.head;
        let Some(condition) = self.plan.condition else { return };
        for slot in head..condition {
            code.put(Origin::copy(slot), code.source[slot]);
        }
        let Insn::JumpIf { width, cond, dst, src, .. } = code.source[condition] else { return };
        let first = if self.first.is_empty() { &self.places } else { &self.first };
        let behind = Target::New(first[condition + 1 - head]);
        let out = code.source[condition].jump_target(condition).map(Target::Verified);
        let out = out.unwrap_or(behind);
        let (cond, taken, other) = match inverted(cond) {
            Some(cond) => (cond, behind, out),
            None => (cond, out, behind),
        };
        let insn = Insn::JumpIf { width, cond, dst, src, offset: 0 };
        code.put_to(Origin::copy(condition), insn, taken);
        code.put_to(Origin::added(condition), Insn::Jump { offset: 0, long: false }, other);
    }
}

/// The condition that holds where this one does not.
pub(super) fn inverted(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Le => Cond::Gt,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Sgt => Cond::Sle,
        Cond::Sle => Cond::Sgt,
        Cond::Sge => Cond::Slt,
        Cond::Slt => Cond::Sge,
        Cond::Set => return None,
    })
}
