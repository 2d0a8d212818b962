//! Runs that end early: what engines check, and where.
//!
//! A run ends only at a check in its program's own code, never in the middle of a helper:
//!
//! ```text
//!   head of a loop, call of a function   units -= weight; if units < 0 and charge(env) != 0: over
//!   behind a call after which a run      if thrown == ENDED: over
//!   may be over
//! ```
//!
//! *Over* means that [`RunEnv::thrown`](crate::RunEnv::thrown) is [`RunEnv::ENDED`](crate::RunEnv::ENDED) and every
//! function returns at once, whatever its result. Both engines charge at the same places by the weights here, so the
//! same budget ends the same run in both at the same instruction. Only loops and calls make a run longer than its
//! program, so nothing else is charged.

use skep_isa::Insn;

use crate::HelperFn;

/// How runs of a program end early.
#[derive(Clone, Debug, Default)]
pub struct EndsLink {
    /// The helpers after which a run may be over, ascending. Functions of [`crate::OWN_KFUNCS`] that call back are
    /// always among these.
    pub after: Vec<u32>,
    /// Called with the environment when [`RunEnv::units`](crate::RunEnv::units) is negative: sets it anew and returns
    /// 0, or sets [`RunEnv::thrown`](crate::RunEnv::thrown) and returns 1. If `None`, nothing is charged.
    pub charge: Option<HelperFn>,
}

impl EndsLink {
    /// Whether a run may be over after a call of that helper.
    pub fn is_after(&self, helper: u32) -> bool {
        self.after.binary_search(&helper).is_ok()
    }
}

/// The greatest weight: an immediate operand of every machine.
pub const MAX_WEIGHT: u32 = 4095;

/// What is charged when control reaches a slot: for the head of a loop the number of its instructions, otherwise 0.
/// `reached` says whether a slot is.
///
/// A jump backwards to an exit makes no loop.
pub fn round_weights(insns: &[Insn], reached: impl Fn(usize) -> bool) -> Box<[u32]> {
    let mut weights = vec![0; insns.len()].into_boxed_slice();
    for (slot, insn) in insns.iter().enumerate() {
        let Some(head) = insn.jump_target(slot).filter(|head| *head <= slot && reached(slot)) else {
            continue;
        };
        if let Some(weight) = weights.get_mut(head).filter(|_| insns[head] != Insn::Exit) {
            *weight = (*weight).max(weight_of(head, slot + 1));
        }
    }
    weights
}

/// What is charged for a call of the function in these slots.
pub fn call_weight(start: u32, end: u32) -> u32 {
    weight_of(start as usize, end as usize)
}

fn weight_of(start: usize, end: usize) -> u32 {
    (end.saturating_sub(start) as u32).clamp(1, MAX_WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_isa::assemble;

    #[test]
    fn a_round_weighs_what_its_loop_has_instructions() {
        let text = "r0 = 0
             outer: r1 = 5
             inner: r1 += -1
                    if r1 == 3 goto inner
                    if r1 != 0 goto inner
                    if r0 != 9 goto outer
               out: exit
                    goto out";
        let insns = assemble(text).expect("assembles");
        assert_eq!(*round_weights(&insns, |_| true), [0, 5, 3, 0, 0, 0, 0, 0]);
        assert_eq!(
            *round_weights(&insns, |slot| slot != 4),
            [0, 5, 2, 0, 0, 0, 0, 0],
            "unreached jumps make no loop"
        );
        assert_eq!((call_weight(3, 10), call_weight(0, 100_000)), (7, MAX_WEIGHT));
    }
}
