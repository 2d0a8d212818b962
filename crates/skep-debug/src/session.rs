//! Commands as gdb has them, and their answers.

use crate::breakpoint::Breakpoint;
use crate::cursor::{Cursor, Way};
use crate::recording::{Called, Recording, Step};
use skep::interp::Callee;
use std::fmt::Write;

/// Lines of source that `list` shows before and after.
const AROUND: u32 = 5;

const HELP: &str = "\
break PLACE (b)        stop at LINE, FILE:LINE, *SLOT, or a function, helper or map by name
delete N               forget a breakpoint
info breakpoints | registers | stack | run
continue (c)           to the next breakpoint, or the end
reverse-continue (rc)  back to the breakpoint before, or the beginning
step (s)               to another source line; next (n): not into functions; stepi (si): one instruction
reverse-step (rs), reverse-next (rn), reverse-stepi (rsi): the same backwards
finish, reverse-finish to where the function is left, back to its call
list (l)               the source around this line
disassemble (disas)    the instructions of this line
backtrace (bt)         functions in progress
print EXPR (p)         r0 to r10, w0 to w10, *(u8|u16|u32|u64 *)(rN + OFFSET) in the stack
packet                 the packet before and after the run
quit (q)
An empty line repeats the last command. A program runs to its end before the session begins, so nothing that is shown changes.
";

/// What to show after a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Text, and the session goes on.
    Text(String),
    /// What is wrong with the command, and the remedy. The session goes on.
    Error(String),
    /// The session is over.
    Quit,
}

/// A conversation about a recording.
#[derive(Debug)]
pub struct Session<'a> {
    cursor: Cursor<'a>,
    breakpoints: Vec<(usize, Breakpoint)>,
    numbers: usize,
    last: String,
}

impl<'a> Session<'a> {
    /// At the first instruction.
    pub fn new(recording: &'a Recording) -> Self {
        let cursor = Cursor::new(recording);
        Self { cursor, breakpoints: Vec::new(), numbers: 0, last: String::new() }
    }

    /// Where it is.
    pub fn cursor(&self) -> &Cursor<'a> {
        &self.cursor
    }

    /// The place in a line or two: function, source line and instruction.
    pub fn place(&self) -> String {
        let step = self.cursor.step();
        let mut out = String::new();
        // A string takes everything.
        let _ = write!(out, "{}", self.function(step));
        if let Some(line) = self.cursor.line().map(|line| &self.recording().verified().lines()[line]) {
            let _ = write!(out, " at {}:{}\n{}\t{}", line.file, line.line, line.line, line.text.trim());
        }
        let _ = write!(out, "\n{}", self.instruction(step));
        if self.cursor.is_at_end() {
            let _ = write!(out, "\n{}", self.ending());
        }
        out
    }

    /// Executes a command. An empty one repeats the last.
    pub fn command(&mut self, line: &str) -> Answer {
        let line = line.trim();
        let line = if line.is_empty() { self.last.clone() } else { line.to_owned() };
        self.last.clone_from(&line);
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let rest = rest.trim();
        let answer = match name {
            "" => Ok(String::new()),
            "break" | "b" => self.add(rest),
            "delete" | "d" => self.delete(rest),
            "info" | "i" => self.info(rest),
            "continue" | "c" => Ok(self.proceed(Way::Forward)),
            "reverse-continue" | "rc" => Ok(self.proceed(Way::Back)),
            "step" | "s" => Ok(self.moved(Way::Forward, |cursor, way| cursor.source(way, false))),
            "next" | "n" => Ok(self.moved(Way::Forward, |cursor, way| cursor.source(way, true))),
            "stepi" | "si" => Ok(self.moved(Way::Forward, Cursor::instruction)),
            "finish" => Ok(self.moved(Way::Forward, Cursor::finish)),
            "reverse-step" | "rs" => Ok(self.moved(Way::Back, |cursor, way| cursor.source(way, false))),
            "reverse-next" | "rn" => Ok(self.moved(Way::Back, |cursor, way| cursor.source(way, true))),
            "reverse-stepi" | "rsi" => Ok(self.moved(Way::Back, Cursor::instruction)),
            "reverse-finish" => Ok(self.moved(Way::Back, Cursor::finish)),
            "list" | "l" => Ok(self.list()),
            "disassemble" | "disas" => Ok(self.disassemble()),
            "backtrace" | "bt" => Ok(self.backtrace()),
            "print" | "p" => self.print(rest),
            "packet" => Ok(self.packet()),
            "help" | "h" => Ok(HELP.trim_end().to_owned()),
            "quit" | "q" => return Answer::Quit,
            other => Err(format!("unknown command {other:?}: help lists them")),
        };
        match answer {
            Ok(text) => Answer::Text(text),
            Err(text) => Answer::Error(text),
        }
    }

    fn recording(&self) -> &'a Recording {
        self.cursor.recording()
    }

    fn moved(&mut self, way: Way, go: impl FnOnce(&mut Cursor<'a>, Way) -> bool) -> String {
        match (go(&mut self.cursor, way), way) {
            (true, _) => self.place(),
            (false, Way::Forward) => format!("this is the end\n{}", self.ending()),
            (false, Way::Back) => "this is the beginning".to_owned(),
        }
    }

    fn proceed(&mut self, way: Way) -> String {
        let before = self.cursor.at();
        match self.cursor.proceed(way, &self.breakpoints) {
            Some(number) => format!("breakpoint {number}, {}", self.place()),
            None if self.cursor.at() == before => self.moved(way, |_, _| false),
            None => self.place(),
        }
    }

    fn add(&mut self, place: &str) -> Result<String, String> {
        if place.is_empty() {
            return Err("break where? a line, FILE:LINE, *SLOT, or a name".to_owned());
        }
        let breakpoint = Breakpoint::parse(place, self.recording())?;
        self.numbers += 1;
        self.breakpoints.push((self.numbers, breakpoint.clone()));
        Ok(format!("breakpoint {} at {}", self.numbers, self.shown(&breakpoint)))
    }

    fn delete(&mut self, number: &str) -> Result<String, String> {
        let before = self.breakpoints.len();
        self.breakpoints.retain(|(known, _)| known.to_string() != number);
        if self.breakpoints.len() == before {
            return Err(format!("there is no breakpoint {number:?}: info breakpoints lists them"));
        }
        Ok(String::new())
    }

    fn shown(&self, breakpoint: &Breakpoint) -> String {
        let program = self.recording().verified();
        match breakpoint {
            Breakpoint::Line { file: Some(file), line } => format!("{file}:{line}"),
            Breakpoint::Line { file: None, line } => format!("line {line}"),
            Breakpoint::Function { function } => format!("function {}", program.functions()[*function].name),
            Breakpoint::Slot(slot) => format!("instruction {slot}"),
            Breakpoint::Helper(id) => format!("calls of {}", helper(*id)),
            Breakpoint::Map { map } => format!("calls with map {}", program.maps()[*map as usize].name),
        }
    }

    fn info(&self, what: &str) -> Result<String, String> {
        match what {
            "breakpoints" | "b" if self.breakpoints.is_empty() => Ok("no breakpoints".to_owned()),
            "breakpoints" | "b" => {
                let lines = self.breakpoints.iter();
                let lines = lines.map(|(number, breakpoint)| format!("{number}: {}", self.shown(breakpoint)));
                Ok(lines.collect::<Vec<_>>().join("\n"))
            }
            "registers" | "r" => {
                let registers = self.cursor.step().registers.iter().enumerate();
                let line = |(index, value): (usize, &u64)| format!("r{index:<3} {value:#018x}  {value}");
                Ok(registers.map(line).collect::<Vec<_>>().join("\n"))
            }
            "stack" | "s" => Ok(self.stack()),
            "run" => {
                let cut = if self.recording().is_cut { ", and more that were not recorded" } else { "" };
                let (at, all) = (self.cursor.at(), self.recording().steps.len());
                Ok(format!("step {at} of {all}{cut}\n{}", self.ending()))
            }
            other => Err(format!("no info about {other:?}: breakpoints, registers, stack, run")),
        }
    }

    /// The slots of the stack that are not zero.
    fn stack(&self) -> String {
        let words = self.cursor.step().stack.as_chunks::<8>().0;
        let mut out = String::new();
        for (index, word) in words.iter().enumerate().rev().filter(|(_, word)| **word != [0; 8]) {
            let value = u64::from_ne_bytes(*word);
            // A string takes everything.
            let _ = writeln!(out, "r10 - {:<4} {value:#018x}  {value}", 8 * (words.len() - index));
        }
        match out.is_empty() {
            true => "all zero".to_owned(),
            false => out.trim_end().to_owned(),
        }
    }

    fn function(&self, step: &Step) -> String {
        let innermost = step.frames.last().map_or(0, |frame| frame.function);
        let functions = self.recording().verified().functions();
        functions.get(innermost).map_or_else(String::new, |function| function.name.clone())
    }

    /// The instruction of a step, and what it calls.
    fn instruction(&self, step: &Step) -> String {
        let insn = &self.recording().verified().insns()[step.slot as usize];
        let call = step.called.as_ref().map_or_else(String::new, |called| format!("    ; {}", shown(called)));
        format!("{:>5}: {insn}{call}", step.slot)
    }

    fn disassemble(&self) -> String {
        let program = self.recording().verified();
        let here = self.cursor.step().slot;
        let (start, end) = match self.cursor.line() {
            Some(line) => {
                let next =
                    program.lines().get(line + 1).map_or(program.insns().len(), |next| next.slot as usize);
                (program.lines()[line].slot as usize, next)
            }
            None => (here as usize, here as usize + 1),
        };
        let line = |slot: usize| {
            let mark = if slot == here as usize { "=>" } else { "  " };
            format!("{mark}{slot:>5}: {}", program.insns()[slot])
        };
        (start..end).map(line).collect::<Vec<_>>().join("\n")
    }

    fn list(&self) -> String {
        let program = self.recording().verified();
        let Some(line) = self.cursor.line().map(|line| &program.lines()[line]) else {
            return "no source is known: the object was compiled without -g".to_owned();
        };
        let (first, last) = (line.line.saturating_sub(AROUND).max(1), line.line + AROUND);
        let text = std::fs::read_to_string(&*line.file).unwrap_or_default();
        let known = |number: u32| {
            let of_object =
                program.lines().iter().find(|known| known.line == number && known.file == line.file);
            text.lines().nth(number as usize - 1).or(of_object.map(|known| known.text.trim_end()))
        };
        let lines = (first..=last).filter_map(|number| {
            let mark = if number == line.line { "=>" } else { "  " };
            known(number).map(|text| format!("{mark}{number:>5}  {text}"))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn backtrace(&self) -> String {
        let program = self.recording().verified();
        let frames = self.cursor.step().frames.iter().rev().enumerate();
        let line = |(number, frame): (usize, &crate::recording::Frame)| {
            let name = &program.functions()[frame.function].name;
            let line = program.lines().partition_point(|line| line.slot <= frame.slot).checked_sub(1);
            match line.map(|line| &program.lines()[line]) {
                Some(line) => format!("#{number} {name} at {}:{}", line.file, line.line),
                None => format!("#{number} {name} at instruction {}", frame.slot),
            }
        };
        frames.map(line).collect::<Vec<_>>().join("\n")
    }

    fn print(&self, expression: &str) -> Result<String, String> {
        let value = evaluate(self.cursor.step(), expression)?;
        Ok(format!("{expression} = {value} ({value:#x})"))
    }

    fn packet(&self) -> String {
        let Recording { before, after, .. } = self.recording();
        match before == after {
            true => format!("{}, and the run did not change it", skep_frames::text(before)),
            false => skep_frames::side_by_side(before, after).headings("before", "after").to_string(),
        }
    }

    fn ending(&self) -> String {
        ending(self.recording())
    }
}

/// How a run ended, in a few words.
pub(crate) fn ending(of: &Recording) -> String {
    match &of.result {
        Ok(result) => match of.program.program_type().verdict(*result) {
            Some(name) => format!("the run ends with {name} ({})", *result as u32 as i32),
            None => format!("the run ends with {}", *result as u32 as i32),
        },
        Err(error) => format!("the run failed: {error}"),
    }
}

/// The value of an expression before a step: `r0` to `r10`, `w0` to `w10`, or `*(u32 *)(r10 - 8)` in the stack.
///
/// # Errors
///
/// What is wrong with the expression, or that its memory was not recorded.
pub fn evaluate(step: &Step, expression: &str) -> Result<u64, String> {
    let wrong =
        || format!("cannot print {expression:?}: expected r0 to r10, w0 to w10, or *(u32 *)(r10 - 8)");
    if let Some(value) = register(expression, &step.registers) {
        return Ok(value);
    }
    let rest = expression.strip_prefix("*(u").ok_or_else(wrong)?;
    let (bits, place) = rest.split_once("*)").ok_or_else(wrong)?;
    let bytes = match bits.trim() {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return Err(wrong()),
    };
    let place = place.trim();
    let place = place.strip_prefix('(').and_then(|place| place.strip_suffix(')')).unwrap_or(place);
    let (base, offset) = match place.split_once(['+', '-']) {
        None => (place, 0),
        Some((base, offset)) => {
            let offset = offset.trim();
            let digits = offset.strip_prefix("0x").map_or((offset, 10), |digits| (digits, 16));
            let offset = i64::from(u32::from_str_radix(digits.0, digits.1).map_err(|_| wrong())?);
            (base, if place.contains('-') { -offset } else { offset })
        }
    };
    let base = register(base.trim(), &step.registers).ok_or_else(wrong)?;
    let at = base.wrapping_add_signed(offset);
    let from = (at.wrapping_sub(step.registers[10]) as usize).wrapping_add(step.stack.len());
    let found = step.stack.get(from..).and_then(|rest| rest.get(..bytes));
    let Some(found) = found else {
        return Err(format!(
            "{at:#x} is not in the stack of this function, and other memory is not recorded"
        ));
    };
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(found);
    Ok(u64::from_le_bytes(number))
}

/// The value of a register by name.
fn register(name: &str, registers: &[u64; 11]) -> Option<u64> {
    let index = |digits: &str| digits.parse::<usize>().ok().filter(|index| *index < 11);
    if let Some(at) = name.strip_prefix('r').and_then(index) {
        return Some(registers[at]);
    }
    let at = name.strip_prefix('w').and_then(index)?;
    Some(registers[at] & 0xffff_ffff)
}

fn helper(id: u32) -> String {
    skep::abi::linux_helper(id)
        .map_or_else(|| format!("helper {id}"), |helper| helper.name.clone().into_owned())
}

fn shown(called: &Called) -> String {
    let name = match called.callee {
        Callee::Helper(id) => helper(id),
        Callee::Kfunc(number) => format!("function {number}"),
    };
    match called.result {
        Some(result) => format!("{name} returns {} ({result:#x})", result.cast_signed()),
        None => format!("{name} does not return"),
    }
}
