//! Innermost loops, as ranges of slots.
//!
//! A loop is what a backward jump makes: from the slot that it leads to, to the last jump that leads there. An
//! innermost one has no other such slot in it, so these ranges do not overlap. Control may enter one anywhere, and
//! leave it anywhere: a range says where instructions are, not which paths there are.

use crate::parts::Parts;

/// A loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    /// Its first slot, to which each jump back leads.
    pub(super) head: usize,
    /// The slot after the last jump back.
    pub(super) end: usize,
}

/// All innermost loops that are reached, ascending.
pub(super) fn innermost(parts: &Parts<'_>) -> Vec<Loop> {
    let mut all: Vec<Loop> = Vec::new();
    for (slot, insn) in parts.insns.iter().enumerate() {
        if !insn.is_jump() {
            continue;
        }
        let Some(head) = insn.jump_target(slot).filter(|head| *head <= slot) else { continue };
        if parts.facts[slot].reached {
            all.push(Loop { head, end: slot + 1 });
        }
    }
    // The last of several jumps to one head ends the loop.
    all.sort_unstable_by_key(|found| (found.head, std::cmp::Reverse(found.end)));
    all.dedup_by_key(|found| found.head);
    let heads: Vec<usize> = all.iter().skip(1).map(|found| found.head).chain([usize::MAX]).collect();
    let mut next = heads.into_iter();
    all.retain(|found| next.next().is_none_or(|head| head >= found.end));
    all
}
