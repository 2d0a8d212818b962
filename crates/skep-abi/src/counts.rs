//! Counts of what a program executes, for coverage.
//!
//! Control comes to a run of instructions at its head, and each of them is executed as often as the head is reached. So
//! engines count at few places:
//!
//! ```text
//!    0: r0 = 0               head: the function begins
//!    1: if r1 == 0 goto 4    counted again behind it, where the condition did not hold
//!    2: r0 = 1
//!    3: call helper          a call that may not return is the last of its run of instructions
//!    4: exit                 head: a jump leads here
//! ```
//!
//! Both engines count at these places and nowhere else, so programs may change engines between runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_isa::{CallTarget, Insn};

use crate::TAIL_CALL;

/// Where a program's executions are counted, and the counters.
///
/// Compiled code adds to a counter in several steps: threads that run a program at the same time may lose counts of
/// each other, but never make some up.
#[derive(Clone, Debug)]
pub struct CountsLink {
    places: Arc<[Place]>,
    /// By slot, how often a head was reached; then by slot, how often a condition did not hold.
    ///
    /// Relaxed, and by compiled code without any order: nothing is concluded from a count about other memory.
    counters: Arc<[AtomicU64]>,
}

/// What is counted of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// A path reaches it.
    reached: bool,
    /// Counted when control reaches it.
    head: bool,
    /// A run of instructions begins here, reached only by the condition before it, which did not hold.
    falls: bool,
    /// A conditional jump that leads elsewhere than to the next slot.
    branch: bool,
}

/// How often the sides of a conditional jump were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchCount {
    /// Slot of the jump.
    pub slot: u32,
    /// The condition held.
    pub taken: u64,
    /// It did not.
    pub passed: u64,
}

impl CountsLink {
    /// Counters for a program, all of them 0. `reached` says whether a path reaches a slot, `starts` where functions
    /// begin, and `ends` after which helpers a run may be over.
    pub fn new(
        insns: &[Insn],
        reached: impl Fn(usize) -> bool,
        starts: impl IntoIterator<Item = usize>,
        ends: impl Fn(u32) -> bool,
    ) -> Self {
        let mut places = vec![Place::default(); insns.len()];
        let mut starts_run = vec![false; insns.len() + 1];
        starts.into_iter().for_each(|slot| starts_run[slot] = true);
        for (slot, insn) in insns.iter().enumerate() {
            let is_tail = matches!(insn, Insn::LoadImm64Tail);
            places[slot].reached = reached(slot) && !is_tail;
            if !places[slot].reached {
                continue;
            }
            let may_not_return = match *insn {
                Insn::Call { target: CallTarget::Helper(id) } => id == TAIL_CALL || ends(id),
                // A load from behind the end of the packet ends the program.
                Insn::Call { .. } | Insn::CallReg { .. } | Insn::LoadPacket { .. } => true,
                _ => false,
            };
            if let Some(target) = insn.jump_target(slot).filter(|target| *target < insns.len()) {
                starts_run[target] = true;
                places[slot].branch = insn.falls_through() && target != slot + 1;
            } else if may_not_return {
                starts_run[slot + 1] = true;
            }
        }
        for slot in 0..insns.len() {
            let falls = slot > 0 && places[slot - 1].branch && !starts_run[slot];
            places[slot].falls = places[slot].reached && falls;
            places[slot].head = places[slot].reached && starts_run[slot];
        }
        let counters = (0..2 * insns.len()).map(|_| AtomicU64::new(0)).collect();
        Self { places: places.into(), counters }
    }

    /// Whether a run of instructions begins at a slot: nothing may be executed together with what is before it.
    #[inline]
    pub fn begins(&self, slot: usize) -> bool {
        self.places.get(slot).is_some_and(|place| place.head || place.falls)
    }

    /// The counter of a head.
    #[inline]
    pub fn head(&self, slot: usize) -> Option<&AtomicU64> {
        self.places.get(slot)?.head.then(|| &self.counters[slot])
    }

    /// The counter behind a conditional jump, where the condition does not hold.
    #[inline]
    pub fn passed(&self, slot: usize) -> Option<&AtomicU64> {
        self.places.get(slot)?.branch.then(|| &self.counters[self.places.len() + slot])
    }

    /// By slot, how often it was executed. `None` where no path leads, and for the second slots of 64-bit loads.
    ///
    /// Of a run that ended in the middle of a helper, by a panic of the host, the instructions up to the next place
    /// that is counted count too.
    pub fn executions(&self) -> Vec<Option<u64>> {
        let mut count = 0;
        let of = |(slot, place): (usize, &Place)| {
            if place.head {
                count = self.counters[slot].load(Ordering::Relaxed);
            } else if place.falls {
                count = self.counters[self.places.len() + slot - 1].load(Ordering::Relaxed);
            }
            place.reached.then_some(count)
        };
        self.places.iter().enumerate().map(of).collect()
    }

    /// How often the sides of each conditional jump were taken that paths reach and that the verifier did not decide.
    pub fn branches(&self) -> Vec<BranchCount> {
        let executions = self.executions();
        let places = self.places.iter().enumerate().filter(|(_, place)| place.branch);
        let of = |(slot, _): (usize, &Place)| {
            let passed = self.counters[self.places.len() + slot].load(Ordering::Relaxed);
            let all = executions[slot].unwrap_or(0);
            // Another thread may count between the two loads.
            BranchCount { slot: slot as u32, taken: all.saturating_sub(passed), passed }
        };
        places.map(of).collect()
    }

    /// Sets all counters to 0.
    pub fn reset(&self) {
        self.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// The counters of all places that are counted, for tools that only look for changes: in every load of the same
    /// program the same place is at the same index.
    pub fn counted(&self) -> Vec<&AtomicU64> {
        let heads = (0..self.places.len()).filter_map(|slot| self.head(slot));
        heads.chain((0..self.places.len()).filter_map(|slot| self.passed(slot))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_isa::assemble;

    #[test]
    fn few_places_are_counted_and_all_counts_follow() {
        let text = "r0 = 0
                    if r1 == 0 goto out
                    r0 = 1
                    r0 += 1
                    call 12
                    r0 = 2
               out: exit
                    r0 = 9
                    exit";
        let insns = assemble(text).expect("assembles");
        let counts = CountsLink::new(&insns, |slot| slot < 7, [0], |_| false);
        let heads: Vec<usize> = (0..9).filter(|slot| counts.head(*slot).is_some()).collect();
        assert_eq!(heads, [0, 5, 6]);
        assert!(counts.begins(2) && counts.head(2).is_none() && counts.passed(1).is_some());
        let set = |counter: Option<&AtomicU64>, to| counter.expect("is counted").store(to, Ordering::Relaxed);
        set(counts.head(0), 9);
        set(counts.passed(1), 4);
        set(counts.head(5), 3);
        set(counts.head(6), 8);
        let some = [9, 9, 4, 4, 4, 3, 8].map(Some);
        assert_eq!(counts.executions(), [&some[..], &[None, None]].concat());
        assert_eq!(counts.branches(), [BranchCount { slot: 1, taken: 5, passed: 4 }]);
        counts.reset();
        assert_eq!(counts.counted().len(), 4);
        assert!(counts.counted().iter().all(|counter| counter.load(Ordering::Relaxed) == 0));
    }
}
