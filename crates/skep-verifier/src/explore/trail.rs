//! Needs by path: which numbers of each kept state decided something on the paths from it.
//!
//! The steps of the current path are kept, with the notes of the transfer functions. When a path has ended, the trail
//! is followed backwards to the last branch whose other way is still to be walked, and once that has been walked
//! as well, from there on with what both ways need. So each step is gone back over once, and a kept state is settled
//! when the last path from it has ended:
//!
//! ```text
//!     state -- step -- step -- branch -- step -- end         1. back to the branch, first way
//!       ^                        '------ step -- end         2. back to the branch, other way: needs of both
//!       '------------------------'                           3. back to the state
//! ```
//!
//! # Why that is sound
//!
//! A machine *fits* a state and its needs if it has the state's calls and pointers, but for pointers in the stack that
//! nobody reads; if it has numbers where numbers are read; if every needed number has a value that the state allows,
//! and if needed numbers that are linked differ as the link says. The invariant of each step:
//!
//! > A machine that fits the state before it does nothing wrong in the step, agrees with all facts recorded there, and
//! > then fits the state after it, on one of the ways that were walked.
//!
//! So the needs before a step are: what decides there (a branch of which not both ways were walked, an address, an
//! argument, a key that is a fact), and whatever a needed number after the step was made from. A branch of which both
//! ways were walked decides nothing. It says something about its operands and what is linked to them; only if one of
//! these is needed after it, the operands are needed before. A state that ends a path because another one subsumes it
//! needs what that one needs. If the other one is not settled yet, all that it knows is needed.

use crate::domain::needs::{FrameNeeds, Needs, covered, touched};
use crate::domain::recorded::Recorded;
use crate::explore::explored::Explored;
use crate::program::cfg::target;
use crate::program::env::Env;
use crate::step::notes::{Note, Notes};
use skep_abi::{ArgKind, Results, RetKind};
use skep_isa::{AluOp, AtomicOp, CallTarget, Insn, Operand, Reg};

const ARGUMENTS: u16 = 0b11_1110;
const CLOBBERED: u16 = 0b11_1111;
/// Room is made at once for at most so many steps.
const MANY_STEPS: usize = 1 << 12;

/// A step: its slot, the innermost frame before it, how many notes it has, and whether it relied on its operands. Or
/// that a state was kept; the entry before it is the number of the node then.
#[derive(Clone, Copy)]
struct Step(u32);

const RELIES: u32 = 1 << 23;
const KEEPS: u32 = 1 << 24;
const NOTES: u32 = 25;
const MAX_NOTES: usize = (u32::MAX >> NOTES) as usize;

impl Step {
    fn slot(self) -> usize {
        (self.0 & 0xf_ffff) as usize
    }

    fn frame(self) -> usize {
        (self.0 >> 20 & 7) as usize
    }

    fn relies(self) -> bool {
        self.0 & RELIES != 0
    }

    /// Whether a state was kept here.
    fn keeps(self) -> bool {
        self.0 & KEEPS != 0
    }

    fn notes(self) -> usize {
        (self.0 >> NOTES) as usize
    }
}

/// How the needed registers move back over an instruction, one bit each. A table by slot spares looking at instructions
/// again.
#[derive(Clone, Copy, Default)]
struct Rule {
    /// If one of these is needed after it, its sources are needed before.
    results: u16,
    overwritten: u16,
    sources: u16,
    /// Needed in any case.
    always: u16,
    /// Needed if the step relied on its operands.
    operands: u16,
    /// Whether the sources are needed as well if the step relied on its operands.
    decides: bool,
    /// The instruction does more than this: see [`back`].
    more: bool,
}

impl Rule {
    fn of(insn: &Insn) -> Self {
        let bit = |reg: Reg| 1 << reg.number();
        let read = |src: Operand| if let Operand::Reg(src) = src { bit(src) } else { 0 };
        let rule = Self::default();
        match *insn {
            Insn::Alu { op, dst, src, .. } => {
                let cleared = src == Operand::Reg(dst) && matches!(op, AluOp::Sub | AluOp::Xor);
                Self {
                    results: bit(dst),
                    overwritten: if op == AluOp::Mov || cleared { bit(dst) } else { 0 },
                    sources: if cleared { 0 } else { read(src) },
                    operands: bit(dst) | read(src),
                    ..rule
                }
            }
            Insn::MovSx { dst, src, .. } => {
                Self { results: bit(dst), overwritten: bit(dst), sources: bit(src), ..rule }
            }
            Insn::Neg { .. }
            | Insn::Endian { .. }
            | Insn::LoadImm64Tail
            | Insn::Jump { .. }
            | Insn::MayGoto { .. }
            | Insn::CallReg { .. } => rule,
            // Whatever number it is made of, the result is any number or any address of the arena.
            Insn::LoadImm64 { dst, .. } | Insn::AddrSpaceCast { dst, .. } => {
                Self { overwritten: bit(dst), ..rule }
            }
            Insn::Load { dst, base, .. } | Insn::LoadAcquire { dst, base, .. } => {
                Self { results: bit(dst), overwritten: bit(dst), always: bit(base), ..rule }
            }
            Insn::Store { base, src, .. } => {
                Self { sources: read(src), always: bit(base), decides: true, ..rule }
            }
            Insn::StoreRelease { base, src, .. } => {
                Self { sources: bit(src), always: bit(base), decides: true, ..rule }
            }
            Insn::JumpIf { dst, src, .. } => {
                let operands = bit(dst) | read(src);
                Self { results: operands, sources: operands, decides: true, ..rule }
            }
            Insn::Atomic { .. } | Insn::LoadPacket { .. } | Insn::Call { .. } | Insn::Exit => {
                Self { more: true, ..rule }
            }
        }
    }

    /// From the needs after a step to those before it.
    #[inline]
    fn back(&self, step: Step, notes: &[Note], needs: &mut Needs) {
        let (top, relies) = (step.frame(), step.relies());
        let mut needed = self.needs_sources(needs.0[top].regs, relies);
        for note in notes {
            needed |= note_back(note, needed, relies, needs);
        }
        let regs = &mut needs.0[top].regs;
        *regs = self.registers(*regs, needed, relies);
    }

    /// Whether the sources are needed before a step because these registers are needed after it.
    #[inline]
    fn needs_sources(&self, regs: u16, relies: bool) -> bool {
        regs & self.results != 0 || self.decides && relies
    }

    /// From the registers that are needed after a step to those before it.
    #[inline]
    fn registers(&self, regs: u16, sources: bool, relies: bool) -> u16 {
        regs & !self.overwritten
            | self.always
            | if sources { self.sources } else { 0 }
            | if relies { self.operands } else { 0 }
    }
}

/// What a load, a store or a branch says of the stack. Returns whether the sources are needed because of it.
fn note_back(note: &Note, needed: bool, relies: bool, needs: &mut Needs) -> bool {
    match *note {
        Note::Reads { frame, start, end } => {
            let from = &mut needs.0[usize::from(frame)];
            from.read |= touched(start, end);
            if needed {
                from.stack |= touched(start, end);
            }
            false
        }
        Note::Writes { frame, start, end, all } => {
            let to = &mut needs.0[usize::from(frame)];
            let needed = to.stack & touched(start, end) != 0;
            if all {
                to.stack &= !covered(start, end);
                to.read &= !covered(start, end);
            }
            needed
        }
        Note::Tied { frame, regs, stack: [low, high] } => {
            let to = FrameNeeds { regs, stack: u128::from(high) << 64 | u128::from(low), read: 0 };
            let tied = &mut needs.0[usize::from(frame)];
            let needed = tied.meets(&to);
            if relies {
                tied.join(&to);
            }
            needed
        }
        _ => false,
    }
}

/// A branch on the current path.
struct Branch {
    /// How many steps lead to it, its own included.
    steps: usize,
    /// How many frames have needs on the way that was walked first, once it was.
    first: Option<usize>,
}

/// The trail of the current path, from the first kept state on.
#[derive(Default)]
pub(crate) struct Trail {
    steps: Vec<Step>,
    branches: Vec<Branch>,
    /// What the first ways of the branches need, the last branch's at the end.
    firsts: Vec<FrameNeeds>,
    /// What the path needs where it ended.
    end: Needs,
    /// No frame above this one has needs there.
    highest: usize,
    /// By slot.
    rules: Vec<Rule>,
    /// Whether steps before the first kept state are of interest too.
    whole: bool,
}

/// A point to roll back to.
#[derive(Clone, Copy)]
pub(crate) struct TrailMark {
    steps: usize,
    branches: usize,
    firsts: usize,
    notes: usize,
}

impl Trail {
    /// For a program in which paths meet. If `whole`, the steps before the first kept state are of interest too.
    pub(crate) fn new(insns: &[Insn], whole: bool) -> Self {
        Self {
            steps: Vec::with_capacity(insns.len().min(MANY_STEPS)),
            rules: insns.iter().map(Rule::of).collect(),
            whole,
            ..Self::default()
        }
    }

    /// A path goes on, below a kept state or not.
    pub(crate) fn go_on(&self, below: bool, notes: &mut Notes) {
        notes.wanted = below || self.whole;
    }

    pub(crate) fn start(&mut self, notes: &mut Notes) {
        self.steps.clear();
        self.branches.clear();
        self.firsts.clear();
        (self.end, self.highest) = (Needs::default(), 0);
        notes.notes.clear();
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self, notes: &Notes) -> usize {
        size_of_val(&*self.steps)
            + size_of_val(&*notes.notes)
            + self.branches.len() * (size_of::<Branch>() + size_of::<Needs>())
    }

    /// A step was made; its notes are those since `mark`.
    #[inline]
    pub(crate) fn step(&mut self, slot: usize, frame: u8, notes: &mut Notes, mark: usize) {
        if notes.wanted {
            if notes.notes.len() - mark > MAX_NOTES {
                notes.notes.truncate(mark + 1); // the first may be that of the recorded state
                notes.notes.push(Note::Everything);
            }
            let relies = if notes.relies { RELIES } else { 0 };
            let count = (notes.notes.len() - mark) as u32;
            self.steps.push(Step(slot as u32 | u32::from(frame) << 20 | relies | count << NOTES));
        }
    }

    /// The state was kept as that node.
    pub(crate) fn keep(&mut self, node: u32, notes: &mut Notes) {
        notes.wanted = true;
        self.steps.extend([Step(node), Step(KEEPS)]);
    }

    /// The last step left another path to be walked.
    pub(crate) fn branch(&mut self, notes: &Notes) {
        if notes.wanted {
            self.branches.push(Branch { steps: self.steps.len(), first: None });
        }
    }

    pub(crate) fn mark(&self, notes: &Notes) -> TrailMark {
        let (steps, branches, firsts) = (self.steps.len(), self.branches.len(), self.firsts.len());
        TrailMark { steps, branches, firsts, notes: notes.notes.len() }
    }

    pub(crate) fn roll_back(&mut self, mark: TrailMark, notes: &mut Notes) {
        self.steps.truncate(mark.steps);
        self.branches.truncate(mark.branches);
        self.firsts.truncate(mark.firsts);
        notes.notes.truncate(mark.notes);
    }

    /// The path ends, since that node subsumes its state.
    pub(crate) fn end_at(&mut self, node: u32, explored: &Explored) {
        let frames = explored.needs(node, &mut self.end);
        self.highest = frames.saturating_sub(1);
    }

    /// Follows the path back from its last step, which a violation ended. At each of the marks, the last one first,
    /// asks `is_it` whether to stop; gives it the number of the mark, and what the violation depends on there. If
    /// `branches`, it depends on every branch on the way. Returns the answer, and how many steps were looked at.
    pub(crate) fn blame<T>(
        &self,
        env: &Env<'_>,
        notes: &Notes,
        marks: impl Iterator<Item = TrailMark>,
        branches: bool,
        mut is_it: impl FnMut(usize, &Needs) -> Option<T>,
    ) -> (Option<T>, u64) {
        let mut needs = Needs::default();
        let (mut at, mut behind, mut highest) = (self.steps.len(), notes.notes.len(), 0);
        for (number, mark) in marks.enumerate() {
            while at > mark.steps {
                at -= 1;
                let step = self.steps[at];
                if step.keeps() {
                    at -= 1;
                    continue;
                }
                let last = at + 1 == self.steps.len();
                let (slot, top) = (step.slot(), step.frame());
                let here = &notes.notes[behind - step.notes()..behind];
                behind -= step.notes();
                let mut called = FrameNeeds::default();
                if highest > top {
                    called = needs.0[top + 1];
                    needs.0[top + 1..=highest].fill(FrameNeeds::default());
                }
                highest = top;
                let rule = &self.rules[slot];
                if rule.more {
                    back(env, step, here, &mut needs, &called);
                } else {
                    rule.back(step, here, &mut needs);
                }
                relies_on(&mut needs, here, top);
                let insn = &env.program.source.insns[slot];
                if last || branches && matches!(insn, Insn::JumpIf { .. }) {
                    needs.0[top].regs |= operands(insn);
                }
            }
            if let Some(found) = is_it(number, &needs) {
                return (Some(found), (self.steps.len() - at) as u64);
            }
        }
        (None, (self.steps.len() - at) as u64)
    }

    /// The path has ended: settles the states from which all paths have.
    pub(crate) fn follow_back(
        &mut self,
        env: &Env<'_>,
        notes: &mut Notes,
        explored: &mut Explored,
        mut recorded: Option<&mut Recorded>,
    ) {
        let needs = &mut self.end;
        let mut highest = std::mem::take(&mut self.highest);
        loop {
            let until = self.branches.last().map_or(0, |branch| branch.steps);
            while self.steps.len() > until {
                let Some(step) = self.steps.pop() else { break };
                if step.keeps() {
                    if let Some(Step(node)) = self.steps.pop() {
                        explored.settle(node, needs);
                    }
                    continue;
                }
                let (slot, top) = (step.slot(), step.frame());
                let rule = &self.rules[slot];
                if step.notes() == 0 && highest == top && !rule.more {
                    // Fast path: it moves needs among registers alone.
                    let (regs, relies) = (&mut needs.0[top].regs, step.relies());
                    *regs = rule.registers(*regs, rule.needs_sources(*regs, relies), relies);
                    continue;
                }
                let first = notes.notes.len().saturating_sub(step.notes());
                let here = &notes.notes[first..];
                // What returned, or was called back, is gone in the state before.
                let mut called = FrameNeeds::default();
                if highest > top {
                    called = needs.0[top + 1];
                    needs.0[top + 1..=highest].fill(FrameNeeds::default());
                }
                highest = top;
                if rule.more {
                    back(env, step, here, needs, &called);
                } else {
                    rule.back(step, here, needs);
                }
                if !here.is_empty() {
                    relies_on(needs, here, top);
                    if let (Some(recorded), Some(Note::Recorded(at))) = (&mut recorded, here.first()) {
                        recorded.forget(slot, *at as usize, needs);
                    }
                    notes.notes.truncate(first);
                }
            }
            match self.branches.last_mut() {
                None => {
                    needs.0[..=highest].fill(FrameNeeds::default());
                    return;
                }
                Some(branch) if branch.first.is_none() => {
                    branch.first = Some(highest + 1);
                    self.firsts.extend_from_slice(&needs.0[..=highest]);
                    needs.0[..=highest].fill(FrameNeeds::default());
                    return;
                }
                Some(_) => {}
            }
            if let Some(Branch { first: Some(frames), .. }) = self.branches.pop() {
                let start = self.firsts.len().saturating_sub(frames);
                for (mine, first) in needs.0.iter_mut().zip(&self.firsts[start..]) {
                    mine.join(first);
                }
                self.firsts.truncate(start);
                highest = highest.max(frames - 1);
            }
        }
    }
}

/// The registers that the instruction looks at.
fn operands(insn: &Insn) -> u16 {
    match insn {
        Insn::Call { .. } | Insn::CallReg { .. } => ARGUMENTS,
        Insn::Exit => 1 << Reg::R0.number(),
        Insn::LoadPacket { .. } => u16::MAX,
        Insn::Atomic { .. } => u16::MAX,
        Insn::Neg { dst, .. } | Insn::Endian { dst, .. } => 1 << dst.number(),
        _ => {
            let rule = Rule::of(insn);
            rule.sources | rule.always | rule.operands
        }
    }
}

/// From the needs after a step to those before it, where a [`Rule`] does not say all. `called` are those of the frame
/// that the step made.
fn back(env: &Env<'_>, step: Step, notes: &[Note], needs: &mut Needs, called: &FrameNeeds) {
    let (slot, top) = (step.slot(), step.frame());
    match env.program.source.insns[slot] {
        Insn::Atomic { op, base, src, .. } => {
            match op {
                AtomicOp::CmpXchg => needs.0[top].remove(Reg::R0),
                AtomicOp::Xchg
                | AtomicOp::Add { fetch: true }
                | AtomicOp::Or { fetch: true }
                | AtomicOp::And { fetch: true }
                | AtomicOp::Xor { fetch: true } => needs.0[top].remove(src),
                _ => {}
            }
            fill(needs, notes);
            needs.0[top].add(base);
        }
        Insn::LoadPacket { .. } => {
            needs.0[top].regs &= !CLOBBERED;
            needs.0[top].add(Reg::R6);
        }
        Insn::Call { target: CallTarget::Helper(id) } => {
            needs.0[top].regs &= !CLOBBERED;
            fill(needs, notes);
            let proto = (env.config.helpers)(id);
            // The number of calls, and the index of the next program.
            let decides = proto.is_some_and(|proto| proto.calls_back() || proto.ret == RetKind::TailCall);
            for (at, reg) in Reg::ALL[1..6].iter().enumerate() {
                match proto.map(|proto| proto.args[at]) {
                    Some(ArgKind::Anything | ArgKind::Scalar | ArgKind::Printed) if !decides => {}
                    Some(ArgKind::None) => {}
                    _ => needs.0[top].add(*reg),
                }
            }
        }
        Insn::Call { target: CallTarget::Local(offset) } => {
            let callee = target(slot, offset).and_then(|to| env.cfg.function_at(to));
            if let Some(global) = callee.and_then(|callee| env.cfg.globals[callee].as_ref()) {
                needs.0[top].regs &= !CLOBBERED;
                fill(needs, notes);
                for reg in &Reg::ALL[1..=global.params.len()] {
                    needs.0[top].add(*reg);
                }
            } else {
                let now = &mut needs.0[top];
                now.regs = now.regs & !ARGUMENTS | called.regs & ARGUMENTS;
            }
        }
        Insn::Call { target: CallTarget::Kfunc { .. } } => {
            needs.0[top].regs &= !CLOBBERED;
            fill(needs, notes);
            needs.0[top].regs |= ARGUMENTS;
        }
        Insn::Exit => {
            // The innermost frame begins to be known here, and its caller has its result.
            needs.0[top] = FrameNeeds::default();
            let needed = match top.checked_sub(1) {
                // Most hosts take any number as the program's result.
                None => env.program_type().results != Results::Any || !env.cfg.functions[0].contains(&slot),
                // A callback, whose result is in a range.
                Some(_) if step.relies() => true,
                Some(caller) => {
                    let needed = needs.0[caller].has(Reg::R0);
                    needs.0[caller].remove(Reg::R0);
                    needed
                }
            };
            if needed {
                needs.0[top].add(Reg::R0);
            }
        }
        _ => {}
    }
}

fn fill(needs: &mut Needs, notes: &[Note]) {
    for note in notes {
        if let Note::Fills { frame, start, end } = *note {
            let to = &mut needs.0[usize::from(frame)];
            to.stack &= !covered(start, end);
            to.read &= !covered(start, end);
        }
    }
}

/// What a step says by itself of stack bytes.
fn relies_on(needs: &mut Needs, notes: &[Note], top: usize) {
    for note in notes {
        match *note {
            Note::ReliesOn { frame, start, end } => needs.0[usize::from(frame)].stack |= touched(start, end),
            Note::Takes { frame, start, end } => needs.0[usize::from(frame)].read |= touched(start, end),
            Note::Everything => needs.0[..=top].fill(FrameNeeds::ALL),
            _ => {}
        }
    }
}
