//! A program gets the verdict of every program that does the same.
//!
//! Each program of the verdict files is changed in ways that change nothing: registers that calls preserve are renamed,
//! instructions that do nothing are inserted, blocks are split by jumps over dead code, and conditional jumps are
//! turned round. That needs no model of what the program does, so it reaches what no host can run yet: objects that
//! programs allocate, lists, trees and arenas.

use std::fmt::Write;
use std::fs;

use skep_abi::ProgramSource;
use skep_isa::{CallTarget, Cond, Imm64, Insn, assemble, disassemble};
use skep_verdicts::entries;

use super::{files, verdict, verdict_on};

/// How the registers that calls preserve are renamed.
const RENAMED: [[char; 4]; 2] = [['7', '8', '9', '6'], ['9', '6', '7', '8']];

fn renamed(mut source: ProgramSource, to: [char; 4]) -> ProgramSource {
    let text = disassemble(&source.insns).to_string();
    let (mut result, mut before) = (String::new(), ' ');
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        result.push(c);
        let names = matches!(c, 'r' | 'w') && !before.is_alphanumeric() && before != '_';
        if names && let Some(old) = rest.peek().and_then(|digit| digit.to_digit(10)).filter(|old| *old >= 6) {
            result.push(to[old as usize - 6]);
            rest.next();
        }
        before = c;
    }
    source.insns = assemble(&result).unwrap_or_else(|error| panic!("{error}\n{result}"));
    source
}

/// Whether renaming changes what it does: legacy loads need the context in `r6`.
fn may_be_renamed(insns: &[Insn]) -> bool {
    !insns.iter().any(|insn| matches!(insn, Insn::LoadPacket { .. }))
}

/// What is put before an instruction.
#[derive(Clone, Copy, Debug)]
enum Padding {
    /// A jump to the next instruction.
    Nothing,
    /// A jump over an instruction that is never executed.
    Split,
    /// The jump that the instruction is, turned round: it jumps over a jump.
    Turned,
}

/// The program with padding before some instructions; a turned jump is followed by its padding.
fn padded(mut source: ProgramSource, padding: Padding, every: usize) -> ProgramSource {
    let old = std::mem::take(&mut source.insns);
    let (mut insns, mut at) = (Vec::new(), Vec::new());
    for (slot, insn) in old.iter().enumerate() {
        at.push(insns.len());
        let goto = |offset| Insn::Jump { offset, long: false };
        match (padding, insn) {
            (_, Insn::LoadImm64Tail) => insns.push(*insn),
            _ if slot % every != 0 => insns.push(*insn),
            (Padding::Nothing, _) => insns.extend([goto(0), *insn]),
            (Padding::Split, _) => insns.extend([goto(1), Insn::Exit, *insn]),
            (Padding::Turned, Insn::JumpIf { width, cond, dst, src, .. }) if opposite(*cond).is_some() => {
                let cond = opposite(*cond).unwrap_or(*cond);
                insns.push(Insn::JumpIf { width: *width, cond, dst: *dst, src: *src, offset: 1 });
                insns.push(goto(0));
            }
            (Padding::Turned, _) => insns.push(*insn),
        }
    }
    // Where the instruction itself is, which is the last one of those that it became.
    let own = |slot: usize| at.get(slot + 1).map_or(insns.len(), |next| *next) - 1;
    let moved: Vec<(usize, i64)> = old
        .iter()
        .enumerate()
        .filter_map(|(slot, insn)| {
            let distance = insn.jump_offset().or(match *insn {
                Insn::Call { target: CallTarget::Local(distance) } => Some(distance),
                Insn::LoadImm64 { value: Imm64::Function(distance), .. } => Some(distance),
                _ => None,
            })?;
            let target = usize::try_from(slot as i64 + 1 + i64::from(distance)).ok()?;
            let own = own(slot);
            Some((own, *at.get(target)? as i64 - own as i64 - 1))
        })
        .collect();
    for (slot, distance) in moved {
        match &mut insns[slot] {
            Insn::Jump { offset, .. }
            | Insn::Call { target: CallTarget::Local(offset) }
            | Insn::LoadImm64 { value: Imm64::Function(offset), .. } => *offset = distance as i32,
            Insn::JumpIf { offset, .. } | Insn::MayGoto { offset } => *offset = distance as i16,
            other => unreachable!("{other} leads nowhere"),
        }
    }
    for function in &mut source.functions {
        function.start = at.get(function.start as usize).map_or(function.start, |start| *start as u32);
    }
    source.insns = insns;
    source
}

fn opposite(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Le => Cond::Gt,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Sgt => Cond::Sle,
        Cond::Sle => Cond::Sgt,
        Cond::Sge => Cond::Slt,
        Cond::Slt => Cond::Sge,
        Cond::Set => return None,
    })
}

#[test]
fn equivalent_programs_get_equal_verdicts() {
    let (mut failures, mut compared) = (String::new(), 0);
    for path in files() {
        let entries = entries(&fs::read_to_string(&path).unwrap()).unwrap();
        for (number, entry) in entries.iter().enumerate() {
            let privileged = number % 2 == 1 && !entry.unprivileged;
            let Ok((expected, _)) = verdict(entry, privileged) else { continue };
            let every = 1 + number % 3;
            let mut compare = |how: &str, change: &dyn Fn(ProgramSource) -> ProgramSource| {
                let Ok((found, log)) = verdict_on(entry, privileged, change) else { return };
                compared += 1;
                if found != expected {
                    let _ = write!(
                        failures,
                        "\n  {}: {how}: {expected} becomes {found}\n      {log}",
                        entry.name
                    );
                }
            };
            for padding in [Padding::Nothing, Padding::Split, Padding::Turned] {
                compare(&format!("{padding:?}/{every}"), &|source| padded(source, padding, every));
            }
            compare("renamed", &|source| match may_be_renamed(&source.insns) {
                true => renamed(source, RENAMED[number % 2]),
                false => source,
            });
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(compared > 8000 || std::env::var_os("SKEP_VERDICTS").is_some(), "only {compared} programs");
}
