//! The cause of a refusal: a backward slice of the refused path.
//!
//! ```text
//!   wanted = what the refused instruction read and the reason names
//!   for each step, the last first:
//!     makes a wanted value       -> it matters; its operands are wanted in its place
//!     changes one, as a branch   -> it matters
//!     clobbers one, as a call    -> it matters
//!     jumps over what would make -> it matters
//! ```
//!
//! Everything else on the path could be different, and the program would still be refused.

use crate::domain::bytes::ByteSet;
use crate::domain::resources::{Guard, Section};
use crate::domain::stack::STACK_BYTES;
use crate::domain::state::{MAX_FRAMES, State};
use crate::domain::value::{Kind, Trust, Value};
use crate::explain::linux_text::{Names, stack_offset};
use crate::explain::refusal::{Step, Why};
use crate::explain::replay::{Recorded, Recorder, Touch, stack_bytes};
use crate::explore::observer::Change;
use crate::explore::paths::Turn;
use crate::program::Subject;
use crate::program::violation::{About, Code, Violation};
use skep_isa::{AluOp, CallTarget, Insn, Reg, RegSet, Size};

/// The most steps that a refusal shows.
const MAX_PATH: usize = 64;

/// The wanted registers and stack bytes, by frame, and the wanted section or lock.
struct Wanted {
    regs: [RegSet; MAX_FRAMES],
    stacks: [ByteSet; MAX_FRAMES],
    left: Vec<Guard>,
}

struct Slice<'a, 'n> {
    program: &'a Subject,
    names: &'a Names<'n>,
    wanted: Wanted,
    /// The steps found, the last first.
    found: Vec<Step>,
}

/// The steps that matter, oldest first.
pub(crate) fn path(
    program: &Subject,
    names: &Names<'_>,
    violation: &Violation,
    slot: usize,
    recorder: &Recorder<'_>,
) -> Vec<Step> {
    let steps = &recorder.steps;
    let wanted =
        Wanted { regs: [RegSet::EMPTY; MAX_FRAMES], stacks: [ByteSet::EMPTY; MAX_FRAMES], left: Vec::new() };
    let mut slice = Slice { program, names, wanted, found: Vec::new() };
    let Some(last) = steps.back().filter(|last| last.slot as usize == slot) else { return Vec::new() };
    let unmade = slice.start(violation, last, &recorder.before);
    for (at, step) in steps.iter().enumerate().rev().skip(1) {
        if slice.wanted.is_empty() || slice.found.len() == MAX_PATH {
            break;
        }
        slice.look_at(step, &steps[at + 1]);
    }
    if unmade || slice.found.is_empty() {
        // Nothing made it: how control got here is the cause.
        slice.lead(steps.iter().rev().skip(1), slot);
    }
    slice.found.reverse();
    slice.found
}

/// The branches of the loop, each once.
pub(crate) fn turns(program: &Subject, names: &Names<'_>, history: &[Turn]) -> Vec<Step> {
    let mut found: Vec<Turn> = Vec::new();
    for turn in history[history.len().saturating_sub(MAX_PATH)..].iter().rev() {
        if !found.contains(turn) {
            found.push(*turn);
        }
    }
    found
        .iter()
        .rev()
        .map(|turn| step(program, names, turn.slot, Some(turn.taken), Why::Leads, String::new()))
        .collect()
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.regs.iter().all(|regs| regs.is_empty())
            && self.stacks.iter().all(ByteSet::is_empty)
            && self.left.is_empty()
    }

    fn want(&mut self, frame: u8, reg: Reg) {
        if reg != Reg::R10 {
            let regs = &mut self.regs[usize::from(frame)];
            *regs = regs.with(reg);
        }
    }

    /// Removes it from what is wanted; returns whether it was there.
    fn take(&mut self, frame: u8, reg: Reg) -> bool {
        let regs = &mut self.regs[usize::from(frame)];
        let was = regs.contains(reg);
        *regs = regs.difference(reg.into());
        was
    }

    fn has(&self, frame: u8, reg: Reg) -> bool {
        self.regs[usize::from(frame)].contains(reg)
    }

    fn want_stack(&mut self, touch: &Touch) {
        if touch.start < touch.end {
            self.stacks[usize::from(touch.frame)].insert(touch.start, touch.end);
        }
    }

    fn has_stack(&self, frame: u8, start: u32, end: u32) -> bool {
        start < end && self.stacks[usize::from(frame)].has_any(start, end)
    }
}

impl Slice<'_, '_> {
    fn insn(&self, slot: u32) -> Insn {
        self.program.source.insns[slot as usize]
    }

    /// Wants what the refused instruction read and the reason names. Returns whether one of these was never made.
    fn start(&mut self, violation: &Violation, last: &Recorded, before: &State) -> bool {
        let insn = self.insn(last.slot);
        if let About::Stack { offset, size } = violation.about {
            let pointers = insn.reads().iter().map(|reg| *before.reg(reg));
            let frames = pointers.filter_map(|value| match value.kind {
                Kind::Stack { frame } => Some(frame),
                _ => None,
            });
            let frame = frames.max().unwrap_or(last.frame);
            let start = Value::pointer(Kind::Stack { frame }, offset);
            if let Some(bytes) = stack_bytes(&start, 0, size) {
                self.wanted.want_stack(&bytes);
                let stack = &before.frames()[usize::from(frame)].stack;
                return !stack.init.has_all(bytes.start, bytes.end);
            }
        }
        if let About::Left(guard) = violation.about {
            self.wanted.left.push(guard);
        }
        let named: RegSet = insn.reads().iter().filter(|reg| speaks_of(&violation.reason, *reg)).collect();
        // A violation of a call itself is not about registers.
        let call = matches!(insn, Insn::Call { .. });
        let seeds = if named.is_empty() && !call { insn.reads() } else { named };
        let mut unmade = false;
        for reg in seeds.iter() {
            self.wanted.want(last.frame, reg);
            unmade |= before.reg(reg).kind == Kind::Uninit;
        }
        unmade && violation.code == Code::Uninitialised
    }

    fn look_at(&mut self, step: &Recorded, next: &Recorded) {
        let insn = self.insn(step.slot);
        if next.frame > step.frame {
            return self.enter(step, next.frame, &insn);
        }
        if next.frame < step.frame {
            return self.leave(step, next.frame);
        }
        match insn {
            Insn::JumpIf { .. } | Insn::MayGoto { .. } => self.branch(step, &insn),
            Insn::Call { .. } | Insn::CallReg { .. } | Insn::LoadPacket { .. } => self.call(step),
            Insn::Store { src, .. } => {
                let src = RegSet::from(src);
                self.store(step, src);
            }
            Insn::StoreRelease { src, .. } => self.store(step, src.into()),
            _ => {
                if let Insn::Atomic { src, .. } = insn {
                    self.store(step, src.into());
                }
                for reg in insn.writes().iter() {
                    if self.wanted.take(step.frame, reg) {
                        let value = changed(step, step.frame, reg);
                        self.made(step, reg, value, Why::Makes);
                        self.want_operands(step, &insn);
                        self.want_section(value);
                    }
                }
            }
        }
    }

    /// The operands that a value is made of.
    fn want_operands(&mut self, step: &Recorded, insn: &Insn) {
        match insn {
            // A loaded value comes from its store, not from the address.
            Insn::Load { .. } | Insn::LoadAcquire { .. } | Insn::Atomic { .. } => {
                if let Some(touch) = step.touch {
                    self.wanted.want_stack(&touch);
                }
            }
            // `r1 ^= r1` and the like make a constant of any value.
            Insn::Alu { op: AluOp::Xor | AluOp::Sub, dst, src: skep_isa::Operand::Reg(src), .. }
                if dst == src => {}
            _ => {
                for reg in insn.reads().iter() {
                    self.wanted.want(step.frame, reg);
                }
            }
        }
    }

    /// What a program that may sleep finds outside of a read section is not relied on: the end of one is of account.
    fn want_section(&mut self, value: Option<Value>) {
        let doubtful =
            value.is_some_and(|value| matches!(value.kind, Kind::Object { trust: Trust::Untrusted, .. }));
        if doubtful && self.program.source.sleepable {
            self.wanted.left.push(Guard::Section(Section::Read));
        }
    }

    fn store(&mut self, step: &Recorded, src: RegSet) {
        let Some(touch) = step.touch else { return };
        if !self.wanted.has_stack(touch.frame, touch.start, touch.end) {
            return;
        }
        if touch.exact {
            self.wanted.stacks[usize::from(touch.frame)].remove(touch.start, touch.end);
        }
        let text = format!(
            "{} = {}",
            place(touch.frame, step.frame, touch.start),
            source_text(&self.insn(step.slot))
        );
        self.found.push(self.step(step, Why::Makes, text));
        for reg in src.iter() {
            self.wanted.want(step.frame, reg);
        }
    }

    fn branch(&mut self, step: &Recorded, insn: &Insn) {
        let hits: Vec<String> = step
            .changes
            .iter()
            .filter_map(|change| match *change {
                Change::Reg { frame, reg, value } if self.wanted.has(frame, reg) => {
                    Some(format!("{reg} = {}", self.names.value(&value, frame)))
                }
                Change::Stack { frame, start } if self.wanted.has_stack(frame, start, start + 8) => {
                    Some(format!("{} is narrowed", place(frame, step.frame, start)))
                }
                _ => None,
            })
            .collect();
        if !hits.is_empty() {
            return self.found.push(self.step(step, Why::Narrows, hits.join(", ")));
        }
        if step.turn != Some(true) {
            return;
        }
        let from = step.slot as usize;
        let Some(to) = insn.jump_target(from).filter(|to| *to > from + 1) else { return };
        let over = self.program.source.insns.get(from + 1..to).unwrap_or_default();
        let wanted = self.wanted.regs[usize::from(step.frame)];
        let skipped = over.iter().enumerate().find_map(|(at, insn)| {
            let reg = insn.writes().intersection(wanted).iter().next();
            match (reg, insn) {
                (Some(reg), _) => Some((at, reg.to_string())),
                (None, Insn::Store { base: Reg::R10, offset, size, .. }) => {
                    let bytes = stack_bytes(&frame_pointer(step.frame), (*offset).into(), size.bytes())?;
                    let wanted = self.wanted.has_stack(step.frame, bytes.start, bytes.end);
                    wanted.then(|| (at, format!("r10{offset:+}")))
                }
                _ => None,
            }
        });
        if let Some((at, what)) = skipped {
            let text = format!("instruction {} would write {what}", from + 1 + at);
            self.found.push(self.step(step, Why::Skips, text));
        }
    }

    /// A call of a helper, or any call without a frame.
    fn call(&mut self, step: &Recorded) {
        let mut texts = Vec::new();
        let mut why = Why::Makes;
        for change in &step.changes {
            let Change::Left(guard) = *change else { continue };
            // It invalidates other values, but does not make them.
            why = Why::Loses;
            if self.wanted.left.contains(&guard) {
                self.wanted.left.retain(|wanted| *wanted != guard);
                texts.push(guard.left());
            }
        }
        for change in &step.changes {
            match *change {
                Change::Reg { frame, reg, value } if self.wanted.take(frame, reg) => {
                    if value.is_readable() {
                        texts.push(format!("{reg} = {}", self.names.value(&value, frame)));
                    } else {
                        why = Why::Loses;
                        let clobbered = matches!(value.kind, Kind::Clobbered { .. });
                        texts.push(format!(
                            "{reg} is {}",
                            if clobbered { "clobbered" } else { "invalidated" }
                        ));
                    }
                }
                Change::Stack { frame, start } if self.wanted.has_stack(frame, start, start + 8) => {
                    texts.push(format!("{} is written or invalidated", place(frame, step.frame, start)));
                    self.wanted.stacks[usize::from(frame)].remove(start, start + 8);
                }
                _ => {}
            }
        }
        if !texts.is_empty() {
            self.found.push(self.step(step, why, texts.join(", ")));
        }
    }

    /// A call with a frame: its arguments are the caller's registers.
    fn enter(&mut self, step: &Recorded, into: u8, insn: &Insn) {
        let wanted = std::mem::take(&mut self.wanted.regs[usize::from(into)]);
        self.wanted.stacks[usize::from(into)] = ByteSet::EMPTY;
        let local = matches!(insn, Insn::Call { target: CallTarget::Local(_) });
        let mut texts = Vec::new();
        for reg in wanted.iter() {
            if let Some(value) = changed(step, into, reg) {
                texts.push(format!("{reg} = {}", self.names.value(&value, into)));
                if local {
                    self.wanted.want(step.frame, reg);
                }
            }
        }
        if !texts.is_empty() {
            self.found.push(self.step(step, Why::Passes, texts.join(", ")));
        }
    }

    /// A return: the result is the callee's `r0`, and the caller's argument registers are clobbered.
    fn leave(&mut self, step: &Recorded, to: u8) {
        if self.wanted.take(to, Reg::R0) {
            let value = changed(step, to, Reg::R0);
            self.wanted.want(step.frame, Reg::R0);
            self.made(step, Reg::R0, value, Why::Returns);
        }
        let lost: Vec<String> = RegSet::ARGUMENTS
            .iter()
            .filter(|reg| self.wanted.take(to, *reg))
            .map(|reg| format!("{reg} is clobbered"))
            .collect();
        if !lost.is_empty() {
            self.found.push(self.step(step, Why::Loses, lost.join(", ")));
        }
    }

    /// The last branch that decided that control reaches `slot`.
    fn lead<'s>(&mut self, steps: impl Iterator<Item = &'s Recorded>, slot: usize) {
        for step in steps {
            let Some(taken) = step.turn else { continue };
            let from = step.slot as usize;
            let other = if taken { Some(from + 1) } else { self.insn(step.slot).jump_target(from) };
            if other.is_some_and(|other| self.avoids(other, slot)) {
                let found = self.step(step, Why::Leads, String::new());
                if !self.found.iter().any(|before| before.slot == found.slot) {
                    self.found.push(found);
                }
                return;
            }
        }
    }

    /// Whether the end of a function can be reached from `from` without passing `slot`.
    fn avoids(&self, from: usize, slot: usize) -> bool {
        let insns = &self.program.source.insns;
        let mut seen = vec![false; insns.len()];
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            let Some(insn) = insns.get(at) else { continue };
            if at == slot || std::mem::replace(&mut seen[at], true) {
                continue;
            }
            if matches!(insn, Insn::Exit) {
                return true;
            }
            open.extend(insn.jump_target(at));
            if insn.falls_through() {
                open.push(crate::program::cfg::next_slot(insns, at));
            }
        }
        false
    }

    fn made(&mut self, recorded: &Recorded, reg: Reg, value: Option<Value>, why: Why) {
        let state = value.map(|value| format!("{reg} = {}", self.names.value(&value, recorded.frame)));
        self.found.push(self.step(recorded, why, state.unwrap_or_default()));
    }

    fn step(&self, recorded: &Recorded, why: Why, state: String) -> Step {
        step(self.program, self.names, recorded.slot, recorded.turn, why, state)
    }
}

fn step(
    program: &Subject,
    names: &Names<'_>,
    slot: u32,
    turn: Option<bool>,
    why: Why,
    state: String,
) -> Step {
    let line = crate::program::line_at(&program.source, slot);
    let insn = &program.source.insns[slot as usize];
    let turn = match turn {
        Some(true) => ": taken",
        Some(false) => ": not taken",
        None => "",
    };
    Step {
        slot,
        text: format!("{}{turn}", names.assembler(insn)),
        file: line.map(|line| line.file.clone()),
        line: line.map(|line| line.line),
        source: line.map(|line| line.text.clone()).filter(|text| !text.is_empty()),
        state,
        why,
    }
}

/// The value of a register after the step, if it changed it.
fn changed(step: &Recorded, frame: u8, wanted: Reg) -> Option<Value> {
    step.changes.iter().find_map(|change| match *change {
        Change::Reg { frame: at, reg, value } if at == frame && reg == wanted => Some(value),
        _ => None,
    })
}

fn frame_pointer(frame: u8) -> Value {
    Value::pointer(Kind::Stack { frame }, 0)
}

/// A stack byte by its offset from the frame pointer.
fn place(frame: u8, current: u8, start: u32) -> String {
    let of = if frame == current { String::new() } else { format!("[{frame}]") };
    format!("fp{of}{}", stack_offset(start.min(STACK_BYTES - 1)))
}

/// What a store writes.
fn source_text(insn: &Insn) -> String {
    match *insn {
        Insn::Store { src, size, .. } => match src {
            skep_isa::Operand::Reg(reg) if size == Size::B8 => reg.to_string(),
            skep_isa::Operand::Reg(reg) => format!("{reg}, {} bytes of it", size.bytes()),
            skep_isa::Operand::Imm(imm) => imm.to_string(),
        },
        Insn::StoreRelease { src, .. } | Insn::Atomic { src, .. } => src.to_string(),
        _ => String::new(),
    }
}

/// Whether a reason names that register.
fn speaks_of(reason: &str, reg: Reg) -> bool {
    let name = reg.to_string();
    reason.match_indices(&name).any(|(at, _)| {
        let before = reason[..at].chars().next_back();
        let after = reason[at + name.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(|c| c.is_ascii_digit())
    })
}
