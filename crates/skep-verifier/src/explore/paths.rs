//! Paths that are put aside while another one is walked, and the limits on them: on how far is walked, on memory, and on
//! the work of comparing and copying states.

use crate::domain::state::State;
use crate::domain::value::Value;
use crate::explore::walk::Walker;
use crate::program::cfg::target;
use crate::program::fault::{Code, Fault, Step};

/// A branch and the way a path took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub(crate) slot: u32,
    pub(crate) taken: bool,
}

/// The other way of a branch, to be walked later.
pub(crate) struct Path {
    pub(crate) state: State,
    pub(crate) slot: usize,
    pub(crate) node: u32,
    /// How much of the history it shares with the path that left it.
    pub(crate) history: usize,
    pub(crate) turn: Turn,
    pub(crate) bytes: usize,
}

/// The most values that may be compared and copied for each instruction that may be walked.
pub(crate) const MAX_WORK: u64 = 64;

/// The most states that are kept for reuse: each may be as large as any that it ever was.
pub(crate) const MAX_SPARE: usize = 16;

/// More ids than one instruction makes.
const MAX_IDS: u32 = 16;

pub(crate) const BOUND_LOOP: &str =
    "give the loop a constant bound that the compiler keeps, for example `for (i = 0; i < 64; i++)`";

impl Walker<'_> {
    #[inline]
    pub(crate) fn check_limits(&self) -> Step<()> {
        // Asked before every instruction, answered with no most of the time.
        let limit = self.walked >= self.config.max_walked
            || self.last_id > u32::MAX - MAX_IDS
            || self.memory.bytes_of_paths() > self.config.max_state_bytes
            || self.memory.work() + self.copied > self.max_work;
        if limit { Err(self.limit()) } else { Ok(()) }
    }

    /// The limit that is reached.
    #[cold]
    fn limit(&self) -> Box<Fault> {
        if self.walked >= self.config.max_walked || self.last_id > u32::MAX - MAX_IDS {
            let text = format!("more than {} instructions were walked over all paths", self.walked);
            return Fault::new(Code::Limit, text).suggest(BOUND_LOOP);
        }
        if self.memory.bytes_of_paths() > self.config.max_state_bytes {
            let text = format!(
                "paths that are still to be walked take more than {} bytes of memory",
                self.config.max_state_bytes
            );
            return Fault::new(Code::Limit, text).suggest(BOUND_LOOP);
        }
        // A program with deep frames full of values makes every step dear: the price is limited as well.
        let text =
            format!("comparing and copying states is too much work after {} instructions", self.walked);
        Fault::new(Code::Limit, text).suggest(BOUND_LOOP)
    }

    /// Counts the work of going through a whole state; returns its size in bytes.
    pub(crate) fn charge(&mut self, state: &State) -> usize {
        let bytes = state.bytes();
        self.copied += (bytes / size_of::<Value>()) as u64;
        bytes
    }

    /// Puts the taken way of a branch aside, after `prepare` has told its state what that means; not if that
    /// turns out to be impossible.
    pub(crate) fn fork(
        &mut self,
        state: &State,
        offset: i16,
        prepare: impl FnOnce(&mut State) -> bool,
    ) -> Step<()> {
        let mut other = self.copy(state);
        if !prepare(&mut other) {
            self.spare.push(other);
            return Ok(());
        }
        let Some(slot) = target(self.slot, offset.into()) else {
            return Err(Fault::new(Code::Structure, "the jump leads out of the program"));
        };
        self.record.branch(self.slot, true);
        self.put_aside(other, slot);
        Ok(())
    }

    /// A copy of a state, for another path.
    pub(crate) fn copy(&mut self, state: &State) -> State {
        let mut other = self.spare.pop().unwrap_or_default();
        other.copy_from(state);
        // Copies count whether or not they are kept: they take the time all the same.
        self.charge(&other);
        other
    }

    /// Puts a path aside that goes on at `slot`: the other way of the instruction that is being walked.
    pub(crate) fn put_aside(&mut self, other: State, slot: usize) {
        let bytes = other.bytes() + size_of::<Path>();
        self.memory.pending_bytes += bytes;
        self.memory.open(self.node);
        self.pending.push(Path {
            state: other,
            slot,
            node: self.node,
            history: self.history.len(),
            turn: Turn { slot: self.slot as u32, taken: true },
            bytes,
        });
        self.note_peak();
    }

    /// The path goes on in the way of the instruction that was not put aside.
    pub(crate) fn stay(&mut self) {
        let turn = Turn { slot: self.slot as u32, taken: false };
        self.history.push(turn);
        if let Some(watch) = &mut self.watch {
            watch.turn(turn);
        }
    }

    /// Another state came into being.
    pub(crate) fn note_peak(&mut self) {
        self.peak_states = self.peak_states.max(self.memory.remembered() + self.pending.len() as u64);
        self.peak_bytes = self.peak_bytes.max(self.memory.bytes() + self.memory.pending_bytes);
    }
}
