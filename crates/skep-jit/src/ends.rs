//! Where runs end early: what is charged, and after which calls a run may be over.
//!
//! [`skep_abi::EndsLink`] has the rules, which the interpreter follows too. A call of a function is looked at only if a
//! run may end in that function: it has a loop or a call that is charged, calls something after which a run may be
//! over, makes a tail call, or may be replaced. Without [`skep_abi::Linkage::ends`] there is nothing of this, and code
//! is as if it did not exist.

use skep_abi::{EndsLink, TAIL_CALL, call_weight, round_weights};
use skep_isa::{CallTarget, Insn};
use skep_verifier::{Fact, FunctionFacts};

use crate::parts::Parts;

/// What may have happened in a call of a function of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing special.
    GoesOn,
    /// It may have thrown.
    MayThrow,
    /// The run may be over.
    MayEnd,
    /// Either.
    MayDoBoth,
}

/// Where runs of a program end early.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// The rules, if runs end early at all.
    link: Option<EndsLink>,
    /// By slot; empty if nothing is charged.
    weights: Box<[u32]>,
    /// By function: whether a run may end in it.
    functions: Vec<bool>,
    /// Calls of functions.
    calls: usize,
}

/// By slot what is charged there: what the verified program has, at each copy of the head of a loop.
fn weights(parts: &Parts<'_>) -> Box<[u32]> {
    let of = |insns, facts: &[Fact]| {
        round_weights(insns, |slot| facts.get(slot).is_some_and(|fact: &Fact| fact.reached))
    };
    let Some(made) = parts.rewriting else { return of(parts.insns, parts.facts) };
    let weights = of(made.insns, made.facts);
    made.origins.iter().map(|origin| if origin.is_added() { 0 } else { weights[origin.slot()] }).collect()
}

impl Ends {
    pub(crate) fn new(parts: Parts<'_>) -> Self {
        let Some(link) = &parts.linkage.ends else { return Self::default() };
        let reached = |slot: usize| parts.facts.get(slot).is_some_and(|fact| fact.reached);
        let weights = match link.charge {
            Some(_) => weights(&parts),
            None => Box::default(),
        };
        let slots = || (0..parts.insns.len()).filter(|slot| reached(*slot));
        let is_call =
            |slot: &usize| matches!(parts.insns[*slot], Insn::Call { target: CallTarget::Local(_) });
        let calls: Vec<usize> = slots().filter(is_call).collect();
        let mut ends = Self { link: Some(link.clone()), weights, functions: Vec::new(), calls: calls.len() };
        let of = |slot: usize| {
            parts.functions.partition_point(|function| function.start as usize <= slot).saturating_sub(1)
        };
        let mut functions = vec![parts.entries; parts.functions.len().max(1)];
        for slot in slots() {
            if ends.weight(slot) > 0 || ends.ends_at(&parts, slot) {
                functions[of(slot)] = true;
            }
        }
        // To their callers: calls nest eight deep at most.
        let mut changed = true;
        while changed {
            changed = false;
            for &slot in &calls {
                let ends = parts.callee(slot).is_ok_and(|callee| functions[callee]);
                changed |= ends && !std::mem::replace(&mut functions[of(slot)], true);
            }
        }
        ends.functions = functions;
        ends
    }

    /// What is charged when control reaches a slot.
    #[inline]
    pub(crate) fn weight(&self, slot: usize) -> u32 {
        self.weights.get(slot).copied().unwrap_or(0)
    }

    /// What is charged before a call of a function.
    pub(crate) fn weight_of_call(&self, callee: &FunctionFacts) -> u32 {
        if self.charges() { call_weight(callee.start, callee.end) } else { 0 }
    }

    /// The function that decides whether a run goes on.
    pub(crate) fn poll(&self) -> Option<u64> {
        Some(self.link.as_ref()?.charge? as usize as u64)
    }

    /// Whether anything is charged.
    pub(crate) fn charges(&self) -> bool {
        self.poll().is_some()
    }

    /// Whether a run may be over after a call of that helper.
    pub(crate) fn is_after_helper(&self, id: u32) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_after(id))
    }

    /// Whether a run may be over after a call of that function of the runtime.
    pub(crate) fn is_after_kfunc(&self, id: i32) -> bool {
        self.link.is_some()
            && skep_abi::own_kfunc(id.cast_unsigned()).is_some_and(skep_abi::OwnKfunc::calls_back)
    }

    /// What may have happened in a call of a function.
    pub(crate) fn after_function(&self, callee: usize, facts: &FunctionFacts) -> After {
        match (facts.may_throw, self.functions.get(callee) == Some(&true)) {
            (false, false) => After::GoesOn,
            (true, false) => After::MayThrow,
            (false, true) => After::MayEnd,
            (true, true) => After::MayDoBoth,
        }
    }

    /// The most places beside the slots that need labels: two for each charge, one for each call.
    pub(crate) fn asides(&self) -> usize {
        let rounds = self.weights.iter().filter(|weight| **weight > 0).count();
        2 * rounds + 3 * self.calls
    }

    /// Whether a run may end at the instruction itself.
    fn ends_at(&self, parts: &Parts<'_>, slot: usize) -> bool {
        match parts.insns[slot] {
            Insn::Call { target: CallTarget::Local(_) } => self.charges(),
            Insn::Call { target: CallTarget::Helper(id) } => {
                self.is_after_helper(id) || (parts.linkage.inline_linux_helpers && id == TAIL_CALL)
            }
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => self.is_after_kfunc(id),
            _ => false,
        }
    }
}
