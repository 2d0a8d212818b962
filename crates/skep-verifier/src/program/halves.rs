//! Which 32-bit results need no zero extension, because nothing reads the upper half.
//!
//! ```text
//!   w1 = w2          the upper half of r1 must become 0 ...
//!   w1 += 5          ... but here it is overwritten before anything reads it,
//!   *(u32 *)(r6 + 0) = r1      and this store reads the lower half alone
//! ```
//!
//! Found backwards over the rewritten instructions, on demand: a machine whose 32-bit operations clear the upper half
//! does not need it.

use crate::program::cfg::{next_slot, target};
use skep_isa::{AluOp, Insn, Reg, RegSet, Size, Width};

/// By slot: whether the instruction has a 32-bit result whose upper half nothing reads.
pub fn without_extension(insns: &[Insn]) -> Vec<bool> {
    let mut before = vec![RegSet::EMPTY; insns.len()];
    // A fixpoint: sets only grow, by at most eleven registers a slot, and each pass but the last makes one grow.
    loop {
        let mut changed = false;
        for slot in (0..insns.len()).rev() {
            let read = upper_reads(&insns[slot], after(insns, &before, slot));
            changed |= read != before[slot];
            before[slot] = read;
        }
        if !changed {
            break;
        }
    }
    let dead =
        |(slot, insn)| narrow_result(insn).is_some_and(|dst| !after(insns, &before, slot).contains(dst));
    insns.iter().enumerate().map(dead).collect()
}

/// The register that a 32-bit operation writes.
pub(crate) fn narrow_result(insn: &Insn) -> Option<Reg> {
    match *insn {
        Insn::Alu { width: Width::W32, dst, .. }
        | Insn::Neg { width: Width::W32, dst }
        | Insn::MovSx { width: Width::W32, dst, .. } => Some(dst),
        _ => None,
    }
}

/// Registers whose upper halves may be read after `slot`.
fn after(insns: &[Insn], before: &[RegSet], slot: usize) -> RegSet {
    let insn = &insns[slot];
    let at = |slot: usize| before.get(slot).copied().unwrap_or_default();
    let mut read = RegSet::EMPTY;
    if insn.falls_through() {
        read = read.union(at(next_slot(insns, slot)));
    }
    if let Some(to) = insn.jump_offset().and_then(|offset| target(slot, offset)) {
        read = read.union(at(to));
    }
    read
}

/// The same before the instruction. A call reads its arguments whole, and a caller the result.
fn upper_reads(insn: &Insn, after: RegSet) -> RegSet {
    let kept = after.difference(insn.writes());
    match *insn {
        Insn::Alu { width: Width::W32, .. } | Insn::Neg { width: Width::W32, .. } | Insn::MovSx { .. } => {
            kept
        }
        // The lower half of these depends on lower halves alone.
        Insn::Alu { op, dst, .. } if is_carried_upwards(op) && !after.contains(dst) => kept,
        Insn::JumpIf { width: Width::W32, .. } => after,
        Insn::Endian { size: Size::B2 | Size::B4, .. } => kept,
        Insn::Store { size: Size::B1 | Size::B2 | Size::B4, base, .. }
        | Insn::StoreRelease { size: Size::B1 | Size::B2 | Size::B4, base, .. } => after.with(base),
        _ => kept.union(insn.reads()),
    }
}

/// Whether no bit of a result depends on a higher bit of an operand.
fn is_carried_upwards(op: AluOp) -> bool {
    matches!(op, AluOp::Mov | AluOp::Add | AluOp::Sub | AluOp::Mul | AluOp::And | AluOp::Or | AluOp::Xor)
}
