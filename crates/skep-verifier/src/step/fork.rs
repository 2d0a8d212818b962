//! Forks: the other half of a path that splits, and the cost of copying states.

use crate::domain::state::State;
use crate::domain::value::Value;

/// The most states that are kept for reuse: their allocations never shrink.
const MAX_SPARE: usize = 16;

/// The other half of a path that splits.
pub(crate) struct Fork {
    pub(crate) state: State,
    /// Where it goes on.
    pub(crate) slot: usize,
}

/// What a step says about the paths after it, and the pool of states to copy into.
#[derive(Default)]
pub(crate) struct Forks {
    /// The half that was put aside. An instruction splits a path at most once.
    fork: Option<Fork>,
    /// If the path itself goes on in one of two ways that are open: whether that is the taken one.
    stays: Option<bool>,
    /// How many values were copied or visited.
    pub(crate) work: u64,
    /// States for reuse.
    spare: Vec<State>,
}

impl Forks {
    /// Counts the work of visiting a whole state; returns its size in bytes.
    pub(crate) fn charge(&mut self, state: &State) -> usize {
        let bytes = state.bytes();
        self.work += (bytes / size_of::<Value>()) as u64;
        bytes
    }

    /// A copy of a state, for another path.
    pub(crate) fn copy(&mut self, state: &State) -> State {
        let mut other = self.spare.pop().unwrap_or_default();
        other.copy_from(state);
        // A copy costs the same whether or not it is kept.
        self.charge(&other);
        other
    }

    /// Keeps a state that is no longer needed for the next copy.
    pub(crate) fn recycle(&mut self, state: State) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(state);
        }
    }

    /// Puts a path aside that goes on at `slot`.
    pub(crate) fn put_aside(&mut self, state: State, slot: usize) {
        debug_assert!(self.fork.is_none(), "an instruction splits a path at most once");
        self.fork = Some(Fork { state, slot });
    }

    /// The path goes on in the way of the instruction that was not put aside: the taken one or the other.
    pub(crate) fn stay(&mut self, taken: bool) {
        self.stays = Some(taken);
    }

    /// Whether the last step left nothing here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.fork.is_none() && self.stays.is_none()
    }

    /// The half that the last step put aside, and which way the path goes on itself, if both are open.
    pub(crate) fn take(&mut self) -> (Option<Fork>, Option<bool>) {
        (self.fork.take(), std::mem::take(&mut self.stays))
    }
}
