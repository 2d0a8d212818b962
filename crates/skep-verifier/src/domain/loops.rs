//! The constructs that go round by themselves, and how far each has come on a path.
//!
//! A call with a callback, an open-coded iterator and `may_goto` end at run time whatever the program does:
//! after so many rounds the host ends them. A path that comes round inside of one may stop where it was
//! before, if it made progress in between. To see that, a path carries a list of the constructs that it is in,
//! outermost first, each with the rounds that it went:
//!
//! ```text
//!   [ may_goto of frame 0: 2 ][ bpf_loop: 5 ][ iterator: 1 ]
//!      one more round of the loop ->   [ may_goto: 2 ][ bpf_loop: 6 ]
//! ```
//!
//! A round drops all that is deeper, as digits behind one that counts up become zero: the list of a path
//! *grows*, in the order of the outermost difference, with every round of anything.

use std::cmp::Ordering;

/// What goes round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Construct {
    /// The call with a callback in which that frame is.
    Callback { frame: u8 },
    /// Every `may_goto` of that frame: they share one count at run time.
    MayGoto { frame: u8 },
    /// The iterator of that reference, which lives in that frame.
    Iterator { reference: u32, frame: u8 },
}

impl Construct {
    fn frame(self) -> u8 {
        match self {
            Self::Callback { frame } | Self::MayGoto { frame } | Self::Iterator { frame, .. } => frame,
        }
    }
}

/// One construct that a path is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopCount {
    of: Construct,
    /// One invocation of it: never used again.
    id: u32,
    count: u32,
}

/// All that a path is in, outermost first.
#[derive(Clone, Default)]
pub(crate) struct LoopCounts(Vec<LoopCount>);

impl LoopCounts {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Becomes a copy of `source`, reusing its own allocation.
    pub(crate) fn copy_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }

    /// How many rounds `of` went; `None` if the path is not in it.
    pub(crate) fn count(&self, of: Construct) -> Option<u32> {
        self.0.iter().find(|entry| entry.of == of).map(|entry| entry.count)
    }

    /// Enters a construct; `id` is a fresh one.
    pub(crate) fn enter(&mut self, of: Construct, id: u32) {
        self.0.push(LoopCount { of, id, count: 0 });
    }

    /// Another round of a construct, which may have been dropped by a round of an outer one: then `id`, a fresh
    /// one, stands for it from here on.
    pub(crate) fn advance(&mut self, of: Construct, id: u32) {
        match self.0.iter().position(|entry| entry.of == of) {
            Some(at) => {
                // Where the count ends there is no more progress.
                self.0[at].count = self.0[at].count.saturating_add(1);
                self.0.truncate(at + 1);
            }
            None => self.0.push(LoopCount { of, id, count: 1 }),
        }
    }

    /// Leaves a construct.
    pub(crate) fn leave(&mut self, of: Construct) {
        self.0.retain(|entry| entry.of != of);
    }

    /// Leaves all that was entered in a frame that ends.
    pub(crate) fn leave_frame(&mut self, frame: u8) {
        self.0.retain(|entry| entry.of.frame() < frame);
    }

    pub(crate) fn as_slice(&self) -> &[LoopCount] {
        &self.0
    }
}

/// How far a path with the list `new` has come since one with the list `old`.
///
/// `Greater`: the outermost construct in which they differ went round in between. `Equal`: nothing went round.
/// Everything else says nothing.
pub(crate) fn progress(new: &[LoopCount], old: &[LoopCount]) -> Option<Ordering> {
    for (new, old) in new.iter().zip(old) {
        if new.id != old.id {
            return None;
        }
        if new.count != old.count {
            return (new.count > old.count).then_some(Ordering::Greater);
        }
    }
    (new.len() == old.len()).then_some(Ordering::Equal)
}

/// Whether some call with a callback has further rounds to go in `new` than in `old`. Such a call ends after a known
/// number of rounds, and the walk of the old state may have been at that end: it says nothing of the rounds before.
pub(crate) fn goes_on_longer(new: &[LoopCount], old: &[LoopCount]) -> bool {
    old.iter().any(|old| {
        // What an outer round dropped is counted from 0 again.
        let count = || new.iter().find(|new| new.of == old.of).map_or(0, |new| new.count);
        matches!(old.of, Construct::Callback { .. }) && old.count > 0 && count() < old.count
    })
}

/// The invocation of the outermost construct in which two lists differ, if it is the same one.
pub(crate) fn differs_in(new: &[LoopCount], old: &[LoopCount]) -> Option<u32> {
    let (new, _) = new.iter().zip(old).find(|(new, old)| new.count != old.count || new.id != old.id)?;
    Some(new.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: Construct = Construct::Callback { frame: 0 };
    const JUMP: Construct = Construct::MayGoto { frame: 1 };
    const ITER: Construct = Construct::Iterator { reference: 9, frame: 1 };

    #[test]
    fn a_round_of_anything_is_progress_since_all_before_it() {
        let mut loops = LoopCounts::default();
        loops.enter(LOOP, 1);
        loops.enter(JUMP, 2);
        loops.enter(ITER, 3);
        let mut before = vec![loops.clone()];
        for (at, of) in [ITER, ITER, JUMP, ITER, JUMP, LOOP, ITER, LOOP].into_iter().enumerate() {
            loops.advance(of, 10 + at as u32);
            for old in &before {
                let seen = progress(loops.as_slice(), old.as_slice());
                // What was dropped and came again is another one; the outer construct decides all the same.
                assert!(matches!(seen, Some(Ordering::Greater) | None), "{at}: {seen:?}");
                if of != ITER {
                    assert_eq!(seen, Some(Ordering::Greater), "{at}");
                }
                assert_ne!(progress(old.as_slice(), loops.as_slice()), Some(Ordering::Greater));
            }
            before.push(loops.clone());
        }
        assert_eq!(progress(loops.as_slice(), loops.as_slice()), Some(Ordering::Equal));
    }

    #[test]
    fn another_invocation_is_no_progress() {
        let mut old = LoopCounts::default();
        old.enter(LOOP, 1);
        let mut new = LoopCounts::default();
        new.enter(LOOP, 2);
        new.advance(LOOP, 3);
        assert_eq!(progress(new.as_slice(), old.as_slice()), None);
        // Nor is it to be inside of something, or not to be any more.
        assert_eq!(progress(&[], old.as_slice()), None);
        assert_eq!(progress(old.as_slice(), &[]), None);
    }

    #[test]
    fn fewer_rounds_of_a_call_leave_more_to_go() {
        let mut loops = LoopCounts::default();
        loops.enter(LOOP, 1);
        let none = loops.clone();
        loops.advance(LOOP, 2);
        let one = loops.clone();
        loops.advance(JUMP, 3);
        let jumped = loops.clone();
        let longer = |new: &LoopCounts, old: &LoopCounts| goes_on_longer(new.as_slice(), old.as_slice());
        assert!(longer(&none, &one) && longer(&LoopCounts::default(), &one));
        assert!(!longer(&one, &none) && !longer(&one, &one));
        // Nobody counts what may jump or go on.
        assert!(!longer(&one, &jumped) && !longer(&jumped, &one));
        // In another invocation as well.
        let mut other = LoopCounts::default();
        other.enter(LOOP, 7);
        assert!(longer(&other, &one) && !longer(&one, &other));
    }

    #[test]
    fn what_a_frame_entered_ends_with_it() {
        let mut loops = LoopCounts::default();
        loops.enter(LOOP, 1);
        loops.enter(JUMP, 2);
        loops.enter(ITER, 3);
        loops.leave_frame(1);
        assert_eq!((loops.count(LOOP), loops.count(JUMP), loops.count(ITER)), (Some(0), None, None));
        loops.leave(LOOP);
        assert!(loops.as_slice().is_empty());
    }
}
