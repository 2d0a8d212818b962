//! Constructs that end by themselves, and how many iterations of each a path has made.
//!
//! A call with a callback, an open-coded iterator and `may_goto` end at run time whatever the program does: the host
//! ends them after a bounded number of iterations. A path that comes back to a state inside of one may stop there if it
//! made progress in between. To see progress, a path carries a list of the constructs it is in, outermost first, each
//! with its count of iterations:
//!
//! ```text
//!   [ may_goto of frame 0: 2 ][ bpf_loop: 5 ][ iterator: 1 ]
//!      one more iteration of bpf_loop ->   [ may_goto: 2 ][ bpf_loop: 6 ]
//! ```
//!
//! An iteration drops all deeper entries, as an increment of one digit sets the digits after it to zero. So every
//! iteration makes the list *greater* in lexicographic order.

use std::cmp::Ordering;

/// A construct that ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Construct {
    /// The call with a callback that this frame is making.
    Callback { frame: u8 },
    /// Every `may_goto` of that frame: they share one count at run time.
    MayGoto { frame: u8 },
    /// The iterator with this reference, in the stack of this frame.
    Iterator { reference: u32, frame: u8 },
}

impl Construct {
    fn frame(self) -> u8 {
        match self {
            Self::Callback { frame } | Self::MayGoto { frame } | Self::Iterator { frame, .. } => frame,
        }
    }
}

/// The iterations of one construct that a path is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopCount {
    of: Construct,
    /// Names this invocation of it; never used again.
    id: u32,
    count: u32,
}

/// The constructs that a path is in, outermost first.
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

    /// How many iterations of `of` the path made; `None` if it is not in it.
    pub(crate) fn count(&self, of: Construct) -> Option<u32> {
        self.0.iter().find(|entry| entry.of == of).map(|entry| entry.count)
    }

    /// Enters a construct; `id` must be fresh.
    pub(crate) fn enter(&mut self, of: Construct, id: u32) {
        self.0.push(LoopCount { of, id, count: 0 });
    }

    /// Counts an iteration of a construct. If an iteration of an outer construct dropped it, it enters again under
    /// `id`, which must be fresh.
    pub(crate) fn advance(&mut self, of: Construct, id: u32) {
        match self.0.iter().position(|entry| entry.of == of) {
            Some(at) => {
                // A saturated count shows no progress, which is sound.
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

    /// Leaves all constructs of this frame and of deeper ones.
    pub(crate) fn leave_frame(&mut self, frame: u8) {
        self.0.retain(|entry| entry.of.frame() < frame);
    }

    pub(crate) fn as_slice(&self) -> &[LoopCount] {
        &self.0
    }
}

/// Compares the lists of two states of one path, `old` the earlier.
///
/// `Greater`: the outermost construct in which they differ made an iteration in between. `Equal`: none did. `None`: the
/// lists say nothing about each other.
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

/// Whether some call with a callback has more iterations left in `new` than in `old`. Such a call ends after a known
/// number of iterations. The walk of the old state may have been at that end and says nothing about earlier iterations.
pub(crate) fn goes_on_longer(new: &[LoopCount], old: &[LoopCount]) -> bool {
    old.iter().any(|old| {
        // A dropped construct counts from 0 again.
        let count = || new.iter().find(|new| new.of == old.of).map_or(0, |new| new.count);
        matches!(old.of, Construct::Callback { .. }) && old.count > 0 && count() < old.count
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: Construct = Construct::Callback { frame: 0 };
    const JUMP: Construct = Construct::MayGoto { frame: 1 };
    const ITER: Construct = Construct::Iterator { reference: 9, frame: 1 };

    #[test]
    fn an_iteration_of_any_construct_is_progress() {
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
    fn fewer_iterations_of_a_call_leave_more_to_go() {
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
