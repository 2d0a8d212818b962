//! The walk: every path through the program, depth first, one abstract state at a time.
//!
//! ```text
//!   pending  [ path ][ path ][ path ]      branches whose other way is still to be walked
//!                              |
//!   pop -> step, step, join? -> subsumed: path ends
//!                             -> new: kept, step, branch -> push the other way, step, ... exit
//! ```
//!
//! The walk ends when no path is left. Then every instruction on every path is safe for every value that its state
//! describes. Loops are walked iteration by iteration. A state that repeats exactly is a loop without end and refused;
//! a loop that always changes its state runs into the limit.

use crate::domain::recorded::Recorded;
use crate::domain::state::State;
use crate::explore::chains::check_chains;
use crate::explore::explored::{Explored, Guess, NONE, Visit};
use crate::explore::observer::Observer;
use crate::explore::paths::{BOUND_LOOP, MAX_WORK, Path, Turn, Usage};
use crate::explore::speculation::Speculations;
use crate::explore::trail::Trail;
use crate::program::env::Env;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::notes::Note;
use crate::step::{Next, Transfer};
use skep_isa::Insn;

/// A walk over one program.
pub(crate) struct Walker<'a> {
    /// The transfer functions, with the facts that they record.
    pub(crate) transfer: Transfer<'a>,
    pub(crate) explored: Explored,
    /// Paths that are still to be walked.
    pub(crate) pending: Vec<Path>,
    pub(crate) speculations: Speculations,
    /// How many values may be compared and copied in all.
    pub(crate) max_work: u64,
    /// The branches of the current path on which both ways were open.
    pub(crate) history: Vec<Turn>,
    /// The node of the explored states that the current path is below.
    pub(crate) node: u32,
    /// The steps of the current path.
    pub(crate) trail: Trail,
    /// What the walk cost so far.
    pub(crate) usage: Usage,
    /// All limits are checked once so many instructions were walked; 0 where paths met or split.
    pub(crate) check_at: u64,
    /// The observer of every step, if any.
    pub(crate) observer: Option<&'a mut (dyn Observer + 'a)>,
    /// Every state of the walk, for tests that compare them with runs.
    pub(crate) recorded: Option<Recorded>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(env: Env<'a>) -> Self {
        let (slots, config) = (env.program.source.insns.len(), env.config);
        let joins = env.cfg.joins();
        // Where no paths meet, no states are kept.
        let trail = match joins {
            0 => Trail::default(),
            _ => Trail::new(&env.program.source.insns, config.max_recorded > 0),
        };
        let transfer = Transfer::new(env);
        Self {
            explored: Explored::new(slots, joins, config.max_state_bytes),
            pending: Vec::new(),
            speculations: Speculations::default(),
            max_work: config.max_walked.saturating_mul(MAX_WORK),
            history: Vec::new(),
            node: NONE,
            usage: Usage::default(),
            check_at: 0,
            observer: None,
            recorded: (config.max_recorded > 0).then(|| Recorded::new(slots, config.max_recorded)),
            trail,
            transfer,
        }
    }

    /// Walks all paths from all roots.
    pub(crate) fn walk(&mut self) -> Checked<()> {
        let mut state = State::default();
        let mut number = 0;
        while let Some(root) = self.transfer.record.roots().get(number).copied() {
            self.node = NONE;
            self.history.clear();
            self.trail.start(&mut self.transfer.notes);
            if let Some(observer) = &mut self.observer {
                observer.start();
            }
            self.transfer.start(&mut state, root, number as u32)?;
            self.walk_root(&mut state)?;
            number += 1;
        }
        check_chains(&self.transfer.env, &self.transfer.record)
    }

    fn walk_root(&mut self, state: &mut State) -> Checked<()> {
        loop {
            if let Err(violation) = self.walk_path(state) {
                self.roll_back(state, violation)?;
                continue;
            }
            self.settle();
            self.explored.close(self.node);
            self.confirm_speculations();
            let Some(path) = self.pending.pop() else { return Ok(()) };
            self.explored.pending_bytes -= path.bytes;
            self.transfer.forks.recycle(std::mem::replace(state, path.state));
            self.transfer.slot = path.slot;
            self.node = path.node;
            self.history.truncate(path.history);
            self.history.push(path.turn);
            if let Some(observer) = &mut self.observer {
                observer.resume(path.history, path.turn, path.slot);
            }
        }
    }

    /// The path has ended: the states from which all paths have ended are settled.
    fn settle(&mut self) {
        // After a root's last path no state is compared with these. Not to settle a state is always sound.
        if self.pending.is_empty() && self.recorded.is_none() {
            return;
        }
        let Self { trail, transfer, explored, recorded, .. } = self;
        trail.follow_back(&transfer.env, &mut transfer.notes, explored, recorded.as_mut());
    }

    /// Follows one path to its end.
    fn walk_path(&mut self, state: &mut State) -> Checked<()> {
        let (program, cfg) = (self.transfer.env.program, self.transfer.env.cfg);
        self.trail.go_on(self.node != NONE, &mut self.transfer.notes);
        loop {
            let slot = self.transfer.slot;
            let arrival = cfg.arrivals[slot];
            if arrival.is_join() {
                if arrival.calls_back {
                    self.transfer.enter_call(state);
                }
                let liveness = self.transfer.env.liveness;
                self.check_at = 0;
                let guess = match arrival.iterates {
                    true => Guess::Iteration,
                    false => self.speculations.beyond_iterations(self.usage.walked),
                };
                match self.explored.visit(state, slot, self.node, guess, liveness) {
                    Visit::Subsumed(node) => {
                        self.trail.end_at(node, &self.explored);
                        if let Some(observer) = &mut self.observer {
                            observer.subsumed(slot);
                        }
                        return Ok(());
                    }
                    Visit::Repeats => {
                        let text = "the loop returns here without a change to anything it depends on, so it may never end";
                        return Err(Violation::new(Code::Loop, text)
                            .suggest(BOUND_LOOP)
                            .in_linux(format!("infinite loop detected at insn {slot}")));
                    }
                    Visit::New(node) => {
                        self.node = node;
                        self.check_guesses(state)?;
                    }
                    Visit::Speculative { node, exact, widened, general } => {
                        self.check_guesses(state)?;
                        let before = std::mem::replace(&mut self.node, node);
                        self.speculate(*exact, before, widened, general);
                    }
                }
                self.trail.keep(self.node, &mut self.transfer.notes);
                self.note_peak();
                if let Some(observer) = &mut self.observer {
                    observer.kept(slot);
                }
            }
            self.check_limits()?;
            let notes = &mut self.transfer.notes;
            let (mark, frame) = (notes.notes.len(), state.top_index());
            notes.relies = false;
            if let Some(recorded) = &mut self.recorded {
                notes.add(Note::Recorded(recorded.take(slot, state)));
            }
            if let Some(observer) = &mut self.observer {
                observer.step(slot, state);
            }
            self.usage.walked += 1;
            self.transfer.record.reached(slot);
            let insn = &program.source.insns[slot];
            if let Insn::Alu { .. } = insn {
                let done = self.transfer.arithmetic(state, insn);
                self.trail.step(slot, frame, &mut self.transfer.notes, mark);
                done?;
                self.transfer.slot += 1;
                continue;
            }
            let next = self.transfer.step(state);
            self.trail.step(slot, frame, &mut self.transfer.notes, mark);
            if !self.transfer.forks.is_empty() {
                self.collect_forks();
            }
            match next? {
                Next::To(slot) => self.transfer.slot = slot,
                Next::End => return Ok(()),
            }
        }
    }
}
