//! Speculative widening: making numbers unknown that every iteration of a loop may change.
//!
//! A path that comes back to where a construct iterates that ends by itself ([`crate::domain::loops`]) may find its
//! state unchanged but for a few numbers: a sum, a counter. Walked iteration by iteration it would never find a state
//! that subsumes it. So the walk *speculates* that no check depends on these numbers and widens them to unknown
//! ([`crate::explore::widen`]). The state of the next iteration is then subsumed, and the loop is done.
//!
//! ```text
//!   iteration 1: sum = 0     iteration 2: sum = 7  ->  widened: sum unknown  ->  iteration 3: subsumed
//!                                   |
//!                                   '- the exact state is kept, in case the speculation fails
//! ```
//!
//! General states ([`crate::explore::generalize`]) are speculations as well, with more reasons to fail.
//!
//! Widening is always sound, but it may lead to a refusal where the exact states would not. Then the path is followed
//! back from the violation, to find the widened numbers that the violation was made of or, if there are none, those on
//! which a branch on the way depended. These are *to blame*: everything learned since they were widened is rolled back,
//! facts included, they are not widened at that slot any more, and the path goes on from there. If no widened number is
//! to blame, the exact states have the violation as well. The cost of a speculation counts against the limits. Each
//! failure takes one number from a finite set, so no program is rolled back for ever.

use crate::domain::needs::Needs;
use crate::domain::state::State;
use crate::explore::explored::Guess;
use crate::explore::paths::Turn;
use crate::explore::trail::TrailMark;
use crate::explore::walk::Walker;
use crate::program::facts::Mark;
use crate::program::violation::{Checked, Code, Violation};

/// States of programs that walk less than this are exact: they need no others, and compilers learn more from them.
const EXACT: u64 = 10_000;
/// How much may be walked below a general state, besides a multiple of what was walked before.
const BUDGET: u64 = 4000;

/// The speculations of a walk.
#[derive(Default)]
pub(crate) struct Speculations {
    /// Those that are not confirmed yet, the last one innermost.
    open: Vec<Speculation>,
    /// Why the last one failed.
    doubt: Option<Doubt>,
    /// The one that failed by itself, and the numbers that are to blame.
    failed: Option<(usize, Needs)>,
    /// States may not be made general: that cost too much, or a refusal is to be confirmed.
    pub(crate) exact_only: bool,
    /// Whether a state was made general.
    pub(crate) made_general: bool,
}

impl Speculations {
    /// What a state may be made of where no construct iterates, after so many walked instructions.
    pub(crate) fn beyond_iterations(&self, walked: u64) -> Guess {
        if walked >= EXACT && !self.exact_only { Guess::General } else { Guess::Exact }
    }
}

/// A speculation that is not confirmed yet.
pub(crate) struct Speculation {
    /// The state before it was widened.
    exact: State,
    slot: usize,
    node: u32,
    /// The node of the widened state: it is confirmed once all paths from there are safe.
    widened: u32,
    /// The numbers that were widened.
    numbers: Box<Needs>,
    /// For a general state ([`crate::explore::generalize`]): how much may be walked in all while it is not confirmed.
    budget: Option<u64>,
    /// Lengths to roll back to.
    pending: usize,
    history: usize,
    facts: Mark,
    nodes: usize,
    trail: TrailMark,
    bytes: usize,
}

/// Why a speculation failed, and the path that showed it.
pub(crate) struct Doubt {
    violation: Box<Violation>,
    history: Vec<Turn>,
    /// The node below which the path goes on exactly. Once that is closed, the doubt is dispelled.
    node: u32,
}

impl Walker<'_> {
    /// Records that the path goes on with a widened state in place of `exact`, which is below `node`.
    pub(crate) fn speculate(&mut self, exact: State, node: u32, numbers: Box<Needs>, general: bool) {
        self.speculations.made_general |= general;
        let bytes = exact.bytes() + size_of::<Speculation>() + size_of::<Needs>();
        self.explored.pending_bytes += bytes;
        self.transfer.forks.charge(&exact);
        self.speculations.open.push(Speculation {
            exact,
            slot: self.transfer.slot,
            node,
            widened: self.node,
            numbers,
            budget: general.then(|| BUDGET + 2 * self.usage.walked),
            pending: self.pending.len(),
            history: self.history.len(),
            facts: self.transfer.record.checkpoint(),
            nodes: self.explored.checkpoint(self.node),
            trail: self.trail.mark(&self.transfer.notes),
            bytes,
        });
        if let Some(observer) = &mut self.observer {
            observer.speculate(self.speculations.open.len());
        }
    }

    /// Checks the guesses of general states where a path has come to a new state.
    pub(crate) fn check_guesses(&mut self, state: &State) -> Checked<()> {
        let open = &self.speculations.open;
        let Some(first) = open.iter().position(|guess| guess.budget.is_some()) else { return Ok(()) };
        if open[first].budget.is_some_and(|budget| self.usage.walked > budget) {
            self.speculations.failed = self.first_general();
        } else {
            let slot = self.transfer.slot;
            let here = |guess: &Speculation| guess.budget.is_some() && guess.slot == slot;
            self.speculations.failed = (open.iter().enumerate().skip(first))
                .filter(|(_, guess)| here(guess))
                .find_map(|(at, guess)| Some((at, guess.numbers.known_in(state)?)));
        }
        match self.speculations.failed {
            None => Ok(()),
            Some(_) => Err(Violation::new(Code::Limit, "a general state leads to too many others")),
        }
    }

    /// Confirms the speculations below which all paths have ended well.
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

    /// Rolls back the speculations that led to the violation, and the walk goes on with `state`. If none did, returns
    /// the violation.
    pub(crate) fn roll_back(
        &mut self,
        state: &mut State,
        violation: Box<Violation>,
    ) -> Result<(), Box<Violation>> {
        let failed = match self.speculations.failed.take() {
            None if violation.code == Code::Limit => self.first_general(),
            None => self.blame(&violation),
            failed => failed,
        };
        let Some((at, numbers)) = failed else {
            if violation.code == Code::Limit {
                return Err(self.refused_at_limit(violation));
            }
            if let Some(observer) = &mut self.observer {
                observer.roll_back(0, &violation);
            }
            return Err(violation);
        };
        if let Some(observer) = &mut self.observer {
            observer.roll_back(at + 1, &violation);
        }
        let dropped = self.speculations.open.drain(at + 1..);
        self.explored.pending_bytes -= dropped.map(|speculation| speculation.bytes).sum::<usize>();
        let Some(speculation) = self.speculations.open.pop() else { return Err(violation) };
        self.explored.pending_bytes -= speculation.bytes;
        for path in self.pending.drain(speculation.pending..) {
            self.explored.pending_bytes -= path.bytes;
        }
        // The history before the speculation is a prefix of the one after it.
        let before = self.history[..speculation.history.min(self.history.len())].to_vec();
        let history = std::mem::replace(&mut self.history, before);
        if speculation.budget.is_none() {
            let mut violation = violation;
            violation.slot = violation.slot.or(Some(self.transfer.slot as u32));
            self.speculations.doubt = Some(Doubt { violation, history, node: speculation.node });
        }
        self.transfer.forks.work += self.history.len() as u64;
        self.transfer.record.roll_back(speculation.facts);
        self.explored.roll_back(speculation.nodes);
        self.trail.roll_back(speculation.trail, &mut self.transfer.notes);
        self.explored.never_widen(speculation.slot, &numbers);
        self.transfer.slot = speculation.slot;
        self.node = speculation.node;
        *state = speculation.exact;
        if self.speculations.open.is_empty() {
            self.transfer.record.drop_journal();
            self.explored.drop_journal();
        }
        Ok(())
    }

    /// At a limit no general state is worth what it costs: the outermost one.
    fn first_general(&mut self) -> Option<(usize, Needs)> {
        self.speculations.exact_only = true;
        let open = &self.speculations.open;
        let at = open.iter().position(|guess| guess.budget.is_some())?;
        Some((at, *open[at].numbers))
    }

    /// The violation inside of a loop says more than that the loop is too long.
    fn refused_at_limit(&mut self, limit: Box<Violation>) -> Box<Violation> {
        match self.speculations.doubt.take() {
            Some(doubt) if !self.explored.is_closed(doubt.node) => {
                self.history = doubt.history;
                doubt.violation
            }
            _ => limit,
        }
    }

    /// The innermost speculation of which the violation depends on a widened number, and all such numbers of it.
    fn blame(&mut self, violation: &Violation) -> Option<(usize, Needs)> {
        let open = &self.speculations.open;
        if violation.code == Code::Loop {
            // All that it says is that nothing changed.
            return open.last().map(|last| (open.len() - 1, *last.numbers));
        }
        let Self { trail, transfer, explored, .. } = self;
        [false, true].into_iter().find_map(|branches| {
            let marks = open.iter().map(|speculation| speculation.trail);
            let found = trail.blame(&transfer.env, &transfer.notes, marks.rev(), branches, |back, needs| {
                let at = open.len() - 1 - back;
                Some((at, open[at].numbers.common(needs)?))
            });
            explored.charge(found.1);
            found.0
        })
    }
}
