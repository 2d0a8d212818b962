//! Speculations: what holds in all rounds of a loop that ends by itself.
//!
//! A path that comes round inside of a construct ([`crate::domain::loops`]) may find all as it was but for a few
//! numbers: a sum, a counter. Walked round by round it would never find a state that subsumes it. So the walk
//! *speculates* that these numbers do not matter, and makes them unknown ([`crate::explore::widen`]): the next round is
//! subsumed, and the loop is done.
//!
//! ```text
//!   round 1: sum = 0          round 2: sum = 7  ->  speculation: sum unknown  ->  round 3: subsumed by the speculation
//!                                  |
//!                                  '- what is kept of this path, in case the speculation was wrong
//! ```
//!
//! To know less is always sound, but it may lead to a refusal that the exact states would not. Then all that was
//! learned since the speculation is forgotten, facts included, and the path is walked again as it was, round by round.
//! What a speculation costs counts against the limits like everything else.

use crate::domain::state::State;
use crate::explore::paths::Turn;
use crate::explore::walk::Walker;
use crate::program::facts::Mark;
use crate::program::violation::{Code, Violation};

/// The speculations of a walk.
#[derive(Default)]
pub(crate) struct Speculations {
    /// Those that are not confirmed yet.
    open: Vec<Speculation>,
    /// Why the last one was wrong.
    doubt: Option<Doubt>,
}

/// A speculation that is not confirmed yet.
pub(crate) struct Speculation {
    /// The path before it.
    exact: State,
    slot: usize,
    node: u32,
    /// The node of the state that was guessed: all paths from it must be safe.
    widened: u32,
    /// The invocation that makes the progress.
    invocation: u32,
    /// How much there was of all that grows.
    pending: usize,
    history: usize,
    facts: Mark,
    nodes: usize,
    bytes: usize,
}

/// Why a speculation was wrong, and the path that showed it.
pub(crate) struct Doubt {
    violation: Box<Violation>,
    history: Vec<Turn>,
    /// Where the path goes on as it was: what happens below decides whether the doubt was right.
    node: u32,
}

impl Walker<'_> {
    /// The path goes on with a speculation in place of `exact`, which is below `node`.
    pub(crate) fn speculate(&mut self, exact: State, node: u32, invocation: u32) {
        let bytes = exact.bytes() + size_of::<Speculation>();
        self.explored.pending_bytes += bytes;
        self.transfer.forks.charge(&exact);
        self.speculations.open.push(Speculation {
            exact,
            slot: self.transfer.slot,
            node,
            widened: self.node,
            invocation,
            pending: self.pending.len(),
            history: self.history.len(),
            facts: self.transfer.record.checkpoint(),
            nodes: self.explored.checkpoint(self.node),
            bytes,
        });
        if let Some(observer) = &mut self.observer {
            observer.speculate(self.speculations.open.len());
        }
    }

    /// Some path ended well: speculations of which all paths did are confirmed.
    pub(crate) fn confirm_speculations(&mut self) {
        if self.speculations.open.is_empty() {
            return;
        }
        while let Some(speculation) = self.speculations.open.last()
            && self.explored.is_closed(speculation.widened)
        {
            self.explored.pending_bytes -= speculation.bytes;
            self.speculations.open.pop();
        }
        if self.speculations.open.is_empty() {
            self.transfer.record.drop_journal();
            self.explored.drop_journal();
        }
    }

    /// Takes the last speculation back, if there is one: the walk goes on with `state`. Else gives the fault back.
    pub(crate) fn roll_back(
        &mut self,
        state: &mut State,
        violation: Box<Violation>,
    ) -> Result<(), Box<Violation>> {
        if violation.code == Code::Limit {
            // That a loop goes on too long is less of a reason than what is wrong if it goes on at all.
            let Some(doubt) =
                self.speculations.doubt.take().filter(|doubt| !self.explored.is_closed(doubt.node))
            else {
                return Err(violation);
            };
            self.history = doubt.history;
            return Err(doubt.violation);
        }
        if let Some(observer) = &mut self.observer {
            observer.roll_back(self.speculations.open.len(), &violation);
        }
        let Some(speculation) = self.speculations.open.pop() else { return Err(violation) };
        let mut violation = violation;
        violation.slot = violation.slot.or(Some(self.transfer.slot as u32));
        self.speculations.doubt =
            Some(Doubt { violation, history: std::mem::take(&mut self.history), node: speculation.node });
        self.explored.pending_bytes -= speculation.bytes;
        for path in self.pending.drain(speculation.pending..) {
            self.explored.pending_bytes -= path.bytes;
        }
        // The history before the speculation is the beginning of the one after it.
        if let Some(doubt) = &self.speculations.doubt {
            self.history.extend_from_slice(&doubt.history[..speculation.history.min(doubt.history.len())]);
        }
        self.transfer.forks.work += self.history.len() as u64;
        self.transfer.record.roll_back(speculation.facts);
        self.explored.roll_back(speculation.nodes);
        self.explored.never_widen(speculation.invocation);
        self.transfer.slot = speculation.slot;
        self.node = speculation.node;
        *state = speculation.exact;
        if self.speculations.open.is_empty() {
            self.transfer.record.drop_journal();
            self.explored.drop_journal();
        }
        Ok(())
    }
}
