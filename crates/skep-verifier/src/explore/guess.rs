//! Guesses: what holds in all rounds of a loop that ends by itself.
//!
//! A path that comes round inside of a construct ([`crate::domain::rounds`]) may find all as it was but for a few
//! numbers: a sum, a counter. Walked round by round it would never find a state that covers it. So the walk
//! *guesses* that these numbers do not matter, and makes them unknown ([`crate::explore::widen`]): the next round is
//! covered, and the loop is done.
//!
//! ```text
//!   round 1: sum = 0          round 2: sum = 7  ->  guess: sum unknown  ->  round 3: covered by the guess
//!                                  |
//!                                  '- what is kept of this path, in case the guess was wrong
//! ```
//!
//! To know less is always sound, but it may lead to a refusal that the exact states would not. Then all that was
//! learned since the guess is forgotten, facts included, and the path is walked again as it was, round by round.
//! What a guess costs counts against the limits like everything else.

use crate::domain::state::State;
use crate::explore::paths::Turn;
use crate::explore::walk::Walker;
use crate::program::facts::Mark;
use crate::program::fault::{Code, Fault};

/// The guesses of a walk.
#[derive(Default)]
pub(crate) struct Speculation {
    /// Those that are not confirmed yet.
    guesses: Vec<Guess>,
    /// Why the last one was wrong.
    doubt: Option<Doubt>,
}

/// A guess that is not confirmed yet.
pub(crate) struct Guess {
    /// The path before it.
    exact: State,
    slot: usize,
    node: u32,
    /// The node of the state that was guessed: all paths from it must be safe.
    guessed: u32,
    /// The invocation that makes the progress.
    invocation: u32,
    /// How much there was of all that grows.
    pending: usize,
    history: usize,
    facts: Mark,
    nodes: usize,
    bytes: usize,
}

/// Why a guess was wrong, and the path that showed it.
pub(crate) struct Doubt {
    fault: Box<Fault>,
    history: Vec<Turn>,
    /// Where the path goes on as it was: what happens below decides whether the doubt was right.
    node: u32,
}

impl Walker<'_> {
    /// The path goes on with a guess in place of `exact`, which is below `node`.
    pub(crate) fn guess(&mut self, exact: State, node: u32, invocation: u32) {
        let bytes = exact.bytes() + size_of::<Guess>();
        self.memory.pending_bytes += bytes;
        self.transfer.forks.charge(&exact);
        self.speculation.guesses.push(Guess {
            exact,
            slot: self.transfer.slot,
            node,
            guessed: self.node,
            invocation,
            pending: self.pending.len(),
            history: self.history.len(),
            facts: self.transfer.record.watch(),
            nodes: self.memory.watch(self.node),
            bytes,
        });
        if let Some(watch) = &mut self.watch {
            watch.guess(self.speculation.guesses.len());
        }
    }

    /// Some path ended well: guesses of which all paths did are confirmed.
    pub(crate) fn confirm_guesses(&mut self) {
        if self.speculation.guesses.is_empty() {
            return;
        }
        while let Some(guess) = self.speculation.guesses.last()
            && self.memory.is_closed(guess.guessed)
        {
            self.memory.pending_bytes -= guess.bytes;
            self.speculation.guesses.pop();
        }
        if self.speculation.guesses.is_empty() {
            self.transfer.record.stop_watching();
            self.memory.stop_watching();
        }
    }

    /// Takes the last guess back, if there is one: the walk goes on with `state`. Else gives the fault back.
    pub(crate) fn retreat(&mut self, state: &mut State, fault: Box<Fault>) -> Result<(), Box<Fault>> {
        if fault.code == Code::Limit {
            // That a loop goes on too long is less of a reason than what is wrong if it goes on at all.
            let Some(doubt) =
                self.speculation.doubt.take().filter(|doubt| !self.memory.is_closed(doubt.node))
            else {
                return Err(fault);
            };
            self.history = doubt.history;
            return Err(doubt.fault);
        }
        if let Some(watch) = &mut self.watch {
            watch.retreat(self.speculation.guesses.len(), &fault);
        }
        let Some(guess) = self.speculation.guesses.pop() else { return Err(fault) };
        let mut fault = fault;
        fault.slot = fault.slot.or(Some(self.transfer.slot as u32));
        self.speculation.doubt =
            Some(Doubt { fault, history: std::mem::take(&mut self.history), node: guess.node });
        self.memory.pending_bytes -= guess.bytes;
        for path in self.pending.drain(guess.pending..) {
            self.memory.pending_bytes -= path.bytes;
        }
        // The history before the guess is the beginning of the one after it.
        if let Some(doubt) = &self.speculation.doubt {
            self.history.extend_from_slice(&doubt.history[..guess.history.min(doubt.history.len())]);
        }
        self.transfer.forks.work += self.history.len() as u64;
        self.transfer.record.undo(guess.facts);
        self.memory.undo(guess.nodes);
        self.memory.no_guesses(guess.invocation);
        self.transfer.slot = guess.slot;
        self.node = guess.node;
        *state = guess.exact;
        if self.speculation.guesses.is_empty() {
            self.transfer.record.stop_watching();
            self.memory.stop_watching();
        }
        Ok(())
    }
}
