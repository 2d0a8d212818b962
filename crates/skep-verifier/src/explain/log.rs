//! The log: the whole walk as text, in the syntax of the log of Linux's verifier.
//!
//! ```text
//!   0: R1=ctx() R10=fp0                                   the state that the path starts with
//!   ; int x = ctx->len; @ prog.c:12                       the source line
//!   0: (61) r0 = *(u32 *)(r1 +0)          ; R0_w=...      the instruction, and the changed registers
//!   caller:  R6=...  callee:  frame1: R1=...              a function is entered (on lines of their own)
//!   from 3 to 7: R0=... R10=fp0                           a path that was put aside at 3 goes on at 7
//!   9: safe                                               a finished state subsumes this one
//!   R2 is read but was never written                      the reason of a refusal
//!   processed 12 insns (limit 1000000) max_states_per_insn 1 total_states 2 peak_states 2 mark_read 0
//! ```

use crate::domain::state::State;
use crate::explain::linux_text::{Names, frame_prefix, stack_offset};
use crate::explain::refusal::Refusal;
use crate::explore::observer::{Change, Observer, changes};
use crate::explore::paths::Turn;
use crate::program::Stats;
use crate::program::Subject;
use crate::program::config::Config;
use crate::program::violation::Violation;
use skep_abi::LineInfo;
use skep_isa::{Insn, RegSet};

/// States begin in this column, or in a later one at a multiple of eight from it.
const COLUMN: usize = 40;

/// Writes a log, line by line.
pub(crate) struct Log<'a> {
    program: &'a Subject,
    names: Names<'a>,
    /// By slot, if the instructions can be encoded.
    opcodes: Vec<u8>,
    line: &'a mut dyn FnMut(&str),
    /// The instruction that is being walked, and the state before it.
    current: Option<usize>,
    before: State,
    /// The innermost frame's registers that were written since a state was kept.
    fresh: RegSet,
    /// The start of a path whose state is not shown yet.
    start: Option<Start>,
    /// The source line that was shown last.
    shown: Option<usize>,
    /// How many states were kept, in all and at each slot.
    total_states: u64,
    at_slot: Vec<u32>,
}

/// How a path begins.
enum Start {
    /// At the start of a function.
    Function,
    /// From the branch to the slot.
    Branch(u32, usize),
}

impl<'a> Log<'a> {
    pub(crate) fn new(program: &'a Subject, config: &'a Config<'a>, line: &'a mut dyn FnMut(&str)) -> Self {
        let insns = &program.source.insns;
        let encoded = skep_isa::encode(insns).unwrap_or_default();
        Self {
            program,
            names: Names { maps: &program.maps, btf: config.btf, helpers: config.helpers },
            opcodes: encoded.iter().map(|slot| slot.opcode).collect(),
            line,
            current: None,
            before: State::default(),
            fresh: RegSet::EMPTY,
            start: Some(Start::Function),
            shown: None,
            total_states: 0,
            at_slot: vec![0; insns.len()],
        }
    }

    /// The functions, before the walk.
    pub(crate) fn functions(&mut self) {
        for (at, function) in self.program.source.functions.iter().enumerate() {
            (self.line)(&format!("func#{at} @{}", function.start));
        }
    }

    /// The last lines: the reason of a refusal, and the cost.
    pub(crate) fn finish(&mut self, refusal: Option<&Refusal>, stacks: &[u32], stats: Stats, limit: u64) {
        self.flush(None);
        if let Some(refusal) = refusal {
            (self.line)(&refusal.reason);
        }
        (self.line)(&format!("verification time {} usec", stats.nanoseconds / 1000));
        let depths: Vec<String> = stacks.iter().map(u32::to_string).collect();
        let depths = if depths.is_empty() { "0".to_owned() } else { depths.join("+") };
        (self.line)(&format!("stack depth {depths}"));
        (self.line)(&format!(
            "processed {} insns (limit {limit}) max_states_per_insn {} total_states {} peak_states {} mark_read 0",
            stats.walked,
            self.at_slot.iter().max().unwrap_or(&0),
            self.total_states,
            stats.peak_states,
        ));
    }

    /// Writes the current instruction, with what it changed if the path goes on.
    fn flush(&mut self, after: Option<&State>) {
        let Some(slot) = self.current.take() else { return };
        let insn = &self.program.source.insns[slot];
        let opcode = self.opcodes.get(slot).copied().unwrap_or_default();
        let text = format!("{slot}: ({opcode:02x}) {}", self.names.insn(insn));
        self.fresh = self.fresh.union(insn.writes());
        let (before, deeper) = (self.before.frames().len(), after.map_or(0, |after| after.frames().len()));
        if let Some(after) = after.filter(|_| deeper != before) {
            (self.line)(&text);
            return self.pass(slot, deeper > before, after);
        }
        match after.map(|after| self.effect(insn, after)).filter(|effect| !effect.is_empty()) {
            Some(effect) => {
                let column = (text.len() + 3).max(COLUMN).next_multiple_of(8) - 2;
                (self.line)(&format!("{text:<column$}; {effect}"));
            }
            None => (self.line)(&text),
        }
    }

    /// Control passes from one frame to another, at the instruction in `slot`.
    fn pass(&mut self, slot: usize, enters: bool, after: &State) {
        let before = self.names.state(&self.before);
        let state = self.names.state(after);
        if enters {
            (self.line)("caller:");
            (self.line)(&format!(" {before}"));
            (self.line)("callee:");
            (self.line)(&format!(" {state}"));
            self.start = Some(Start::Function);
        } else {
            (self.line)("returning from callee:");
            (self.line)(&format!(" {before}"));
            (self.line)(&format!("to caller at {}:", self.before.top().call_slot + 1));
            (self.line)(&format!(" {state}"));
            self.start = Some(Start::Branch(slot as u32, self.before.top().call_slot as usize + 1));
        }
        self.fresh = RegSet::EMPTY;
    }

    /// The registers that the instruction read and changed.
    fn effect(&self, insn: &Insn, after: &State) -> String {
        let depth = after.top_index();
        let mut found = Vec::new();
        changes(&self.before, after, true, &mut found);
        let written: RegSet = found
            .iter()
            .filter_map(|change| match change {
                Change::Reg { frame, reg, .. } if *frame == depth => Some(*reg),
                _ => None,
            })
            .collect();
        let read = if matches!(insn, Insn::Call { .. } | Insn::Exit) { RegSet::EMPTY } else { insn.reads() };
        let own = if matches!(insn, Insn::JumpIf { .. }) { RegSet::EMPTY } else { insn.writes() };
        let mut items = Vec::new();
        for reg in written.union(read).union(own).iter() {
            let value = after.reg(reg);
            if value.is_made() {
                let made = if own.union(self.fresh).contains(reg) { "_w" } else { "" };
                items.push(format!("R{}{made}={}", reg.number(), self.names.value(value, depth)));
            }
        }
        for change in found {
            let Change::Stack { frame, start } = change else { continue };
            let owner = &after.frames()[usize::from(frame)];
            if let Some(slot) = self.names.slot(owner, start, frame) {
                let of = if frame == depth { String::new() } else { format!("[{frame}]") };
                items.push(format!("fp{of}{}_w={slot}", stack_offset(start)));
            }
        }
        let prefix = if items.is_empty() { String::new() } else { frame_prefix(depth) };
        format!("{prefix}{}", items.join(" "))
    }

    /// The source line of a slot, unless it was shown last.
    fn source(&mut self, slot: usize) {
        let lines: &[LineInfo] = &self.program.source.lines;
        let after = lines.partition_point(|line| line.slot as usize <= slot);
        let Some(at) = after.checked_sub(1) else { return };
        let line = &lines[at];
        let same = |shown: usize| (&lines[shown].file, lines[shown].line) == (&line.file, line.line);
        if self.shown.replace(at).is_some_and(same) {
            return;
        }
        let file = line.file.rsplit('/').next().unwrap_or_default();
        (self.line)(&format!("; {} @ {file}:{}", line.text.trim(), line.line));
    }
}

impl Observer for Log<'_> {
    fn start(&mut self) {
        self.flush(None);
        self.start = Some(Start::Function);
    }

    fn step(&mut self, slot: usize, state: &State) {
        self.flush(Some(state));
        match self.start.take() {
            Some(Start::Function) => (self.line)(&format!("{slot}: {}", self.names.state(state))),
            Some(Start::Branch(from, to)) => {
                (self.line)("");
                (self.line)(&format!("from {from} to {to}: {}", self.names.state(state)));
            }
            None => {}
        }
        self.source(slot);
        self.current = Some(slot);
        self.before.copy_from(state);
    }

    fn turn(&mut self, _: Turn) {}

    fn resume(&mut self, _: usize, turn: Turn, slot: usize) {
        self.flush(None);
        self.fresh = RegSet::EMPTY;
        self.start = Some(Start::Branch(turn.slot, slot));
    }

    fn subsumed(&mut self, slot: usize) {
        self.flush(None);
        match self.start.take() {
            Some(Start::Branch(from, to)) => (self.line)(&format!("from {from} to {to}: safe")),
            _ => (self.line)(&format!("{slot}: safe")),
        }
    }

    fn kept(&mut self, slot: usize) {
        self.fresh = RegSet::EMPTY;
        self.total_states += 1;
        self.at_slot[slot] += 1;
    }

    fn speculate(&mut self, _: usize) {}

    fn roll_back(&mut self, open: usize, _: &Violation) {
        self.flush(None);
        if open > 0 {
            self.start = Some(Start::Function);
        }
    }
}
