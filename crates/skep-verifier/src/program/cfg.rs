//! The control-flow graph of a program: what must hold before any instruction is walked.
//!
//! - Functions ascend from slot 0, are not empty, and control neither jumps nor falls out of one.
//! - No jump leads into the second slot of a 64-bit immediate load, and no second slot is without its first.
//! - Local calls lead to the starts of functions, and the call graph has no cycle.
//!
//! Unreachable code is allowed: the walk never sees it, and the facts say so. Without the ability
//! [`dead_code`](crate::Abilities::dead_code), some jump or call must lead to each instruction.

use crate::program::Subject;
use crate::program::config::Config;
use crate::program::exception::exception_callback;
use crate::program::extension::{Extension, extension};
use crate::program::global::{Global, globals};
use crate::program::prototype::{calls_back, is_next};
use crate::program::violation::{Checked, Code, Violation};
use skep_abi::HelperProto;
use skep_isa::{CallTarget, Imm64, Insn};
use std::ops::Range;

/// The most slots of a program.
pub(crate) const MAX_SLOTS: usize = 1_000_000;

/// The control-flow graph.
pub(crate) struct Cfg {
    /// By slot: how control arrives.
    pub(crate) arrivals: Vec<Arrival>,
    /// By function: its slots.
    pub(crate) functions: Vec<Range<usize>>,
    /// By function: whether it has a `may_goto`.
    pub(crate) may_goto: Vec<bool>,
    /// By function: how it is verified by itself, if it is.
    pub(crate) globals: Vec<Option<Global>>,
    /// What it is as an extension, if it is one.
    pub(crate) extension: Option<Extension>,
    /// The exception callback, if there is one.
    pub(crate) exception_callback: Option<usize>,
    /// Functions in topological order, callees first.
    pub(crate) callees_first: Vec<usize>,
}

/// How control arrives at a slot. A slot where it arrives in more than one way begins a basic block at which paths
/// meet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// Ways in, up to 2.
    ways: u8,
    /// Whether one of them is a backward jump.
    pub(crate) backward: bool,
    /// Whether it is a call of a helper that calls back: the callback returns to it.
    pub(crate) calls_back: bool,
    /// Whether a construct that ends by itself iterates here: such a call, the call that gives an iterator's next
    /// element, `may_goto`.
    pub(crate) iterates: bool,
}

impl Arrival {
    fn count(&mut self) {
        self.ways = (self.ways + 1).min(2);
    }

    /// Whether paths meet here, or iterations of a construct.
    pub(crate) fn is_join(self) -> bool {
        self.ways > 1 || self.iterates
    }
}

/// The slot after the instruction at `slot`.
pub(crate) fn next_slot(insns: &[Insn], slot: usize) -> usize {
    if matches!(insns[slot], Insn::LoadImm64 { .. }) { slot + 2 } else { slot + 1 }
}

/// The slot that a jump or a local call at `slot` leads to.
pub(crate) fn target(slot: usize, offset: i32) -> Option<usize> {
    usize::try_from(slot as i64 + 1 + i64::from(offset)).ok()
}

impl Cfg {
    /// Checks the structure.
    pub(crate) fn of(program: &Subject, config: &Config<'_>) -> Checked<Self> {
        let insns = &program.source.insns[..];
        if insns.is_empty() {
            return Err(Violation::at(Code::Structure, 0, "the program has no instructions"));
        }
        if insns.len() > MAX_SLOTS {
            let text =
                format!("the program has {} instructions, at most {MAX_SLOTS} are allowed", insns.len());
            return Err(Violation::at(Code::Limit, 0, text));
        }
        let functions = functions(program)?;
        let mut arrivals = vec![Arrival::default(); insns.len()];
        let mut calls = vec![Vec::new(); functions.len()];
        let mut may_goto = vec![false; functions.len()];
        for (index, range) in functions.iter().enumerate() {
            arrivals[range.start].count();
            for slot in range.clone() {
                let insn = &insns[slot];
                if matches!(insn, Insn::Alu { .. }) && slot + 1 < range.end {
                    arrivals[slot + 1].count();
                    continue; // most of most programs, and nothing else can be wrong with it
                }
                check_pair(insns, range, slot)?;
                if let Some(offset) = insn.jump_offset() {
                    let to = target(slot, offset).filter(|to| range.contains(to)).ok_or_else(|| {
                        let to = slot as i64 + 1 + i64::from(offset);
                        Violation::at(Code::Structure, slot, "the jump leads out of its function")
                            .in_linux(format!("jump out of range from insn {slot} to {to}"))
                    })?;
                    if matches!(insns[to], Insn::LoadImm64Tail) {
                        let text = "the jump leads into the middle of a 64-bit immediate load";
                        return Err(Violation::at(Code::Structure, slot, text)
                            .in_linux(format!("jump into the middle of ldimm64 insn {}", to - 1)));
                    }
                    arrivals[to].count();
                    arrivals[to].backward |= to <= slot;
                }
                match *insn {
                    Insn::MayGoto { .. } => {
                        may_goto[index] = true;
                        arrivals[slot].iterates = true;
                    }
                    Insn::Call { target: CallTarget::Helper(id) } => {
                        arrivals[slot].calls_back = (config.helpers)(id).is_some_and(HelperProto::calls_back);
                        arrivals[slot].iterates = arrivals[slot].calls_back;
                    }
                    Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                        arrivals[slot].calls_back = calls_back(config.btf, id as u32);
                        arrivals[slot].iterates = arrivals[slot].calls_back || is_next(config.btf, id as u32);
                    }
                    _ => {}
                }
                if let Insn::Call { target: CallTarget::Local(offset) } = *insn {
                    let callee = target(slot, offset)
                        .and_then(|to| functions.binary_search_by_key(&to, |range| range.start).ok())
                        .ok_or_else(|| {
                            Violation::at(
                                Code::Structure,
                                slot,
                                "the call does not lead to the start of a function",
                            )
                            .in_linux("call to invalid destination")
                        })?;
                    arrivals[functions[callee].start].count();
                    calls[index].push((slot, callee));
                }
                if insn.falls_through() && !matches!(insn, Insn::LoadImm64Tail) {
                    let next = next_slot(insns, slot);
                    if next >= range.end {
                        let text = "control falls off the end of the function: expected an exit or a jump";
                        return Err(Violation::at(Code::Structure, slot, text)
                            .in_linux("last insn is not an exit or jmp"));
                    }
                    arrivals[next].count();
                }
            }
        }
        let callees_first = callees_first(&calls, &functions)?;
        let at = |start: usize| functions.binary_search_by_key(&start, |range| range.start).ok();
        let globals = globals(program, config, at);
        let extension = extension(program, config, globals[0].as_ref())?;
        let exception_callback = exception_callback(program, &globals)?;
        if !config.abilities.dead_code {
            check_led_to(insns, exception_callback.map(|callback| functions[callback].start))?;
        }
        Ok(Self { extension, exception_callback, arrivals, functions, may_goto, globals, callees_first })
    }

    /// How many slots are joins.
    pub(crate) fn joins(&self) -> usize {
        self.arrivals.iter().filter(|arrival| arrival.is_join()).count()
    }

    /// The function that starts at a slot.
    pub(crate) fn function_at(&self, start: usize) -> Option<usize> {
        self.functions.binary_search_by_key(&start, |range| range.start).ok()
    }
}

/// Linux follows recursive calls until it finds too many frames.
const TOO_DEEP: &str = "the call stack of 9 frames is too deep !";

fn functions(program: &Subject) -> Checked<Vec<Range<usize>>> {
    let (functions, slots) = (&program.source.functions, program.source.insns.len());
    if functions.first().is_none_or(|first| first.start != 0) {
        return Err(Violation::at(Code::Structure, 0, "the first function does not start at slot 0"));
    }
    let mut ranges = Vec::with_capacity(functions.len());
    for (index, function) in functions.iter().enumerate() {
        let range = program.function_range(index).unwrap_or_default();
        if range.is_empty() || range.end > slots {
            let text =
                format!("function {} has no instructions, or is outside of the program", function.name);
            return Err(Violation::at(Code::Structure, range.start.min(slots - 1), text));
        }
        ranges.push(range);
    }
    Ok(ranges)
}

fn check_pair(insns: &[Insn], range: &Range<usize>, slot: usize) -> Checked<()> {
    match insns[slot] {
        Insn::LoadImm64 { .. } => {
            let tail = slot + 1;
            if tail >= range.end || !matches!(insns[tail], Insn::LoadImm64Tail) {
                let text = "a 64-bit immediate load lacks its second slot";
                return Err(
                    Violation::at(Code::Structure, slot, text).in_linux("last insn is not an exit or jmp")
                );
            }
        }
        Insn::LoadImm64Tail if slot == range.start || !matches!(insns[slot - 1], Insn::LoadImm64 { .. }) => {
            let text = "the second slot of a 64-bit immediate load stands alone";
            return Err(Violation::at(Code::Structure, slot, text).in_linux("invalid bpf_ld_imm64 insn"));
        }
        _ => {}
    }
    Ok(())
}

/// Checks that the start, the exception callback or what they lead to leads to each instruction.
fn check_led_to(insns: &[Insn], callback: Option<usize>) -> Checked<()> {
    let mut led_to = vec![false; insns.len()];
    let mut open: Vec<usize> = [0].into_iter().chain(callback).collect();
    while let Some(slot) = open.pop() {
        // Both slots of a load are one instruction.
        let Some(seen @ false) = led_to.get_mut(slot) else { continue };
        *seen = true;
        let insn = &insns[slot];
        if let Insn::LoadImm64 { value, .. } = insn {
            led_to[slot + 1] = true;
            if let Imm64::Function(offset) = value {
                open.extend(target(slot, *offset));
            }
        }
        open.extend(insn.jump_offset().and_then(|offset| target(slot, offset)));
        if let Insn::Call { target: CallTarget::Local(offset) } = *insn {
            open.extend(target(slot, offset));
        }
        if insn.falls_through() {
            open.push(next_slot(insns, slot));
        }
    }
    match led_to.iter().position(|led_to| !led_to) {
        None => Ok(()),
        Some(slot) => {
            let text = "no jump or call leads to this instruction";
            Err(Violation::at(Code::Structure, slot, text).in_linux(format!("unreachable insn {slot}")))
        }
    }
}

/// Orders functions so that callees come first; refuses recursion.
fn callees_first(calls: &[Vec<(usize, usize)>], functions: &[Range<usize>]) -> Checked<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; functions.len()];
    let mut order = Vec::with_capacity(functions.len());
    let mut open: Vec<(usize, usize)> = Vec::new();
    for root in 0..functions.len() {
        if marks[root] == Mark::New {
            marks[root] = Mark::Open;
            open.push((root, 0));
        }
        while let Some((function, next)) = open.last_mut() {
            let Some(&(slot, callee)) = calls[*function].get(*next) else {
                marks[*function] = Mark::Done;
                order.push(*function);
                open.pop();
                continue;
            };
            *next += 1;
            match marks[callee] {
                Mark::Done => {}
                Mark::Open => {
                    let text =
                        "the call is recursive: a function may not call itself, not even through others";
                    return Err(Violation::at(Code::Structure, slot, text).in_linux(TOO_DEEP));
                }
                Mark::New => {
                    marks[callee] = Mark::Open;
                    open.push((callee, 0));
                }
            }
        }
    }
    Ok(order)
}
