//! Replay: a second walk that records the refused path.
//!
//! The first walk keeps only the branches of its path. If the program is refused, the same walk runs again, step for
//! step, and everything on the refused path is recorded. So accepted programs pay nothing, and the record is what
//! really led there.
//!
//! ```text
//!   first walk    ... turn, turn, turn, refused      the path's name: its turns
//!   second walk   . . turn . turn . . turn refused   `.` recorded if the turns so far are a prefix of that name
//! ```
//!
//! Where the walk rolls back a speculation, the steps recorded since are dropped, unless they are of the refused path.

use crate::domain::stack::STACK_BYTES;
use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::explore::observer::{Change, Observer, changes};
use crate::explore::paths::Turn;
use crate::program::violation::Violation;
use skep_isa::{Insn, Reg};
use std::collections::VecDeque;

/// The most steps that are kept, the last ones.
const MAX_STEPS: usize = 1 << 16;

/// One step of the path.
pub(crate) struct Recorded {
    pub(crate) slot: u32,
    /// The frame it ran in.
    pub(crate) frame: u8,
    /// For branches with both ways open: whether it was taken.
    pub(crate) turn: Option<bool>,
    /// What it changed.
    pub(crate) changes: Vec<Change>,
    /// The stack bytes that it accessed by a register: the frame, the first of them and the one after the last.
    pub(crate) touch: Option<Touch>,
}

/// Stack bytes, counted from the bottom of their frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) frame: u8,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Whether exactly these bytes are accessed.
    pub(crate) exact: bool,
}

/// Records the path that an earlier walk took.
pub(crate) struct Recorder<'a> {
    insns: &'a [Insn],
    /// The turns of the path.
    target: &'a [Turn],
    /// The number of turns of the current path, and the length of the prefix that it shares with the target.
    turns: usize,
    matched: usize,
    pub(crate) steps: VecDeque<Recorded>,
    /// How many steps are no longer kept.
    dropped: usize,
    /// The state before the last recorded step.
    pub(crate) before: State,
    /// Whether `before` is no longer that of the step before the next.
    stale: bool,
    /// The speculations: steps and turns until each.
    open: Vec<(usize, usize, usize)>,
    /// Why the program is refused.
    reason: &'a str,
    /// Whether the path is whole: the walk may go on, to make sure of what it has found.
    done: bool,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(insns: &'a [Insn], target: &'a [Turn], reason: &'a str) -> Self {
        Self {
            insns,
            target,
            turns: 0,
            matched: 0,
            steps: VecDeque::new(),
            dropped: 0,
            before: State::default(),
            stale: false,
            open: Vec::new(),
            reason,
            done: false,
        }
    }

    fn is_on_path(&self) -> bool {
        self.turns == self.matched && !self.done
    }

    fn advance(&mut self, turn: Turn) {
        if self.is_on_path() && self.target.get(self.turns) == Some(&turn) {
            self.matched += 1;
        }
        self.turns += 1;
        if self.is_on_path()
            && let Some(last) = self.steps.back_mut()
        {
            last.turn = Some(turn.taken);
        }
    }
}

impl Observer for Recorder<'_> {
    fn start(&mut self) {
        if !self.done {
            self.steps.clear();
        }
        (self.turns, self.matched) = (0, 0);
    }

    fn step(&mut self, slot: usize, state: &State) {
        if !self.is_on_path() {
            return;
        }
        let insn = &self.insns[slot];
        let stale = std::mem::take(&mut self.stale);
        if let Some(last) = self.steps.back_mut().filter(|_| !stale) {
            let done = &self.insns[last.slot as usize];
            let stacks = !matches!(done, Insn::Alu { .. } | Insn::Load { .. } | Insn::LoadImm64 { .. });
            changes(&self.before, state, stacks, &mut last.changes);
        }
        if self.steps.len() == MAX_STEPS {
            self.steps.pop_front();
            self.dropped += 1;
        }
        let touch = touched(insn, state);
        let (slot, frame) = (slot as u32, state.top_index());
        self.steps.push_back(Recorded { slot, frame, turn: None, changes: Vec::new(), touch });
        self.before.copy_from(state);
    }

    fn turn(&mut self, turn: Turn) {
        self.advance(turn);
    }

    fn resume(&mut self, shared: usize, turn: Turn, _: usize) {
        self.turns = shared;
        self.matched = self.matched.min(shared);
        self.advance(turn);
    }

    fn subsumed(&mut self, _: usize) {}

    fn kept(&mut self, _: usize) {}

    fn speculate(&mut self, open: usize) {
        self.open.truncate(open.saturating_sub(1));
        self.open.push((self.dropped + self.steps.len(), self.turns, self.matched));
    }

    fn roll_back(&mut self, open: usize, violation: &Violation) {
        self.done |= self.is_on_path() && self.turns == self.target.len() && violation.reason == self.reason;
        let Some(&(steps, turns, matched)) = open.checked_sub(1).and_then(|last| self.open.get(last)) else {
            return;
        };
        (self.turns, self.matched) = (turns, matched);
        if !self.done {
            self.steps.truncate(steps.saturating_sub(self.dropped));
            self.stale = true;
        }
    }
}

/// The stack bytes that an instruction accesses.
fn touched(insn: &Insn, state: &State) -> Option<Touch> {
    let (base, offset, size): (Reg, i16, _) = match *insn {
        Insn::Load { base, offset, size, .. }
        | Insn::Store { base, offset, size, .. }
        | Insn::Atomic { base, offset, size, .. }
        | Insn::LoadAcquire { base, offset, size, .. }
        | Insn::StoreRelease { base, offset, size, .. } => (base, offset, size),
        _ => return None,
    };
    stack_bytes(state.reg(base), offset.into(), size.bytes())
}

/// The stack bytes of an access of `size` bytes at `offset` from a pointer.
pub(crate) fn stack_bytes(pointer: &Value, offset: i64, size: u32) -> Option<Touch> {
    let Kind::Stack { frame } = pointer.kind else { return None };
    let fixed = i64::from(pointer.offset) + offset + i64::from(STACK_BYTES);
    let clamp = |at: i64| at.clamp(0, STACK_BYTES.into()) as u32;
    let start = clamp(fixed.saturating_add(pointer.num.smin));
    let end = clamp(fixed.saturating_add(pointer.num.smax).saturating_add(size.into()));
    Some(Touch { frame, start, end, exact: pointer.num.is_constant() })
}
