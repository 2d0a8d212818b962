//! Pending paths, and the limits: on instructions walked, on memory, and on the work of comparing and copying states.

use crate::domain::state::State;
use crate::domain::value::IDS;
use crate::explore::walk::Walker;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::fork::Fork;

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

/// What a walk cost so far.
#[derive(Default)]
pub(crate) struct Usage {
    /// Instructions, over all paths.
    pub(crate) walked: u64,
    /// The most states that were kept at once.
    pub(crate) peak_states: u64,
    /// The most bytes that they took.
    pub(crate) peak_bytes: usize,
}

/// The most values that may be compared and copied for each instruction that may be walked.
pub(crate) const MAX_WORK: u64 = 64;

/// The most instructions between two looks at the limits where paths neither meet nor split.
const UNCHECKED: u64 = 32;

/// More ids than so many instructions make.
const MAX_IDS: u32 = 1024;

pub(crate) const BOUND_LOOP: &str =
    "give the loop a constant bound that the compiler keeps, for example `for (i = 0; i < 64; i++)`";

impl Walker<'_> {
    #[inline]
    pub(crate) fn check_limits(&mut self) -> Checked<()> {
        // Asked before every instruction.
        if self.usage.walked < self.check_at { Ok(()) } else { self.check_all_limits() }
    }

    fn check_all_limits(&mut self) -> Checked<()> {
        self.check_at = self.transfer.env.config.max_walked.min(self.usage.walked + UNCHECKED);
        let limit = self.usage.walked >= self.transfer.env.config.max_walked
            || self.transfer.last_id > IDS - MAX_IDS
            || self.bytes_of_paths() > self.transfer.env.config.max_state_bytes
            || self.explored.work() + self.transfer.forks.work > self.max_work;
        if limit { Err(self.limit()) } else { Ok(()) }
    }

    /// About how many bytes it takes to walk all paths to their ends.
    fn bytes_of_paths(&self) -> usize {
        self.explored.bytes_of_paths() + self.trail.bytes(&self.transfer.notes)
    }

    /// The limit that is reached.
    #[cold]
    fn limit(&self) -> Box<Violation> {
        if self.usage.walked >= self.transfer.env.config.max_walked || self.transfer.last_id > IDS - MAX_IDS {
            let text = format!("more than {} instructions were walked over all paths", self.usage.walked);
            let words = format!("BPF program is too large. Processed {} insn", self.usage.walked + 1);
            return Violation::new(Code::Limit, text).suggest(BOUND_LOOP).in_linux(words);
        }
        if self.bytes_of_paths() > self.transfer.env.config.max_state_bytes {
            let text = format!(
                "the states of pending paths take more than {} bytes of memory",
                self.transfer.env.config.max_state_bytes
            );
            return Violation::new(Code::Limit, text).suggest(BOUND_LOOP);
        }
        // Deep frames full of values make every step expensive: the work is limited as well.
        let text = format!(
            "comparing and copying states took too much work after {} instructions",
            self.usage.walked
        );
        Violation::new(Code::Limit, text).suggest(BOUND_LOOP)
    }

    /// Makes the fork that the last step left a pending path, and notes which way the path took itself.
    pub(crate) fn collect_forks(&mut self) {
        self.check_at = 0;
        let slot = self.transfer.slot as u32;
        let (fork, stays) = self.transfer.forks.take();
        if let Some(Fork { state, slot: to }) = fork {
            let bytes = state.bytes() + size_of::<Path>();
            self.explored.pending_bytes += bytes;
            self.explored.open(self.node);
            self.trail.branch(&self.transfer.notes);
            let (node, history) = (self.node, self.history.len());
            let turn = Turn { slot, taken: stays != Some(true) };
            self.pending.push(Path { state, slot: to, node, history, turn, bytes });
            self.note_peak();
        }
        if let Some(taken) = stays {
            let turn = Turn { slot, taken };
            self.history.push(turn);
            if let Some(observer) = &mut self.observer {
                observer.turn(turn);
            }
        }
    }

    /// Notes that there is one more state.
    pub(crate) fn note_peak(&mut self) {
        self.usage.peak_states = self.usage.peak_states.max(self.explored.kept() + self.pending.len() as u64);
        self.usage.peak_bytes =
            self.usage.peak_bytes.max(self.explored.bytes() + self.explored.pending_bytes);
    }
}
