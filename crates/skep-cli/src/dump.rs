//! `skep prog dump`: a program's instructions after verification, or its machine code.

use crate::arch;
use crate::facts;
use crate::failure::Failure;
use crate::host::HostArgs;
use crate::object::ProgramArgs;
use crate::output;
use clap::ValueEnum;
use skep::isa::{CallTarget, Imm64, Insn};
use skep::jit::Target;
use skep::{Program, Runtime, Verified};
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Instructions as verified and rewritten, or machine code.
    #[arg(value_name = "xlated|jited")]
    form: Form,
    #[command(flatten)]
    program: ProgramArgs,
    /// Architecture of the machine code, instead of the host's; such code is not run.
    #[arg(long, value_name = "ARCH", value_parser = target)]
    arch: Option<Target>,
    #[command(flatten)]
    host: HostArgs,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Parses the name of an architecture, for clap.
fn target(name: &str) -> Result<Target, String> {
    Target::ALL.into_iter().find(|target| target.name() == name).ok_or_else(|| {
        format!(
            "no compiler for this architecture; supported: {}",
            Target::ALL.map(Target::name).join(" and ")
        )
    })
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    Xlated,
    Jited,
}

/// One line of a dump.
#[derive(serde::Serialize)]
pub(crate) struct Line {
    /// Slot, or address.
    pub(crate) at: u64,
    pub(crate) text: String,
    /// The source line or function that starts here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let object = args.program.open()?;
    let name = args.program.choose(&object)?;
    let options = args.program.options();
    let runtime = args.host.declare(Runtime::builder(), &[])?.build()?;
    let mut linker = runtime.linker(&object).only(&name).buffer_len(options.buffer_len);
    if let Some(program_type) = options.program_type {
        linker = linker.program_type(program_type);
    }
    let module = linker.load()?;
    let program = &module.programs()[0];
    let lines = match args.form {
        Form::Xlated => xlated(program.verified(), &object.linked(&name, options)?.insns),
        Form::Jited => jited(&runtime, program, args.arch)?,
    };
    if args.json {
        return output::json(&lines);
    }
    let mut out = String::new();
    for line in lines {
        // Writing to a string cannot fail.
        if let Some(source) = line.source {
            let _ = writeln!(out, "; {source}");
        }
        let _ = match args.form {
            Form::Xlated => writeln!(out, "{:>5}: {}", line.at, line.text),
            Form::Jited => writeln!(out, "{:>5x}: {}", line.at, line.text),
        };
    }
    output::text(&out)
}

/// For each slot, the source line that starts there, if it is not the line before's.
pub(crate) fn sources(program: &Verified) -> Vec<Option<String>> {
    let mut sources = vec![None; program.insns().len()];
    let mut before = "";
    for line in program.lines() {
        let text = line.text.trim();
        if let Some(source) = sources.get_mut(line.slot as usize)
            && !text.is_empty()
            && text != before
        {
            *source = Some(text.to_owned());
            before = text;
        }
    }
    sources
}

/// [`sources`], below the names of functions.
fn headings(program: &Verified) -> Vec<Option<String>> {
    let mut headings = sources(program);
    for function in program.functions() {
        if let Some(heading) = headings.get_mut(function.start as usize) {
            let name = format!("{}: stack {} bytes", function.name, function.stack_bytes);
            *heading = Some(match heading.take() {
                Some(text) => format!("{name}\n; {text}"),
                None => name,
            });
        }
    }
    headings
}

/// The instructions of a program that had others before it was verified, with what is known of each.
pub(crate) fn xlated(program: &Verified, before: &[Insn]) -> Vec<Line> {
    let mut facts = facts::of(program, before).into_iter().peekable();
    let mut headings = headings(program);
    let mut dump = Vec::with_capacity(program.insns().len());
    for (slot, insn) in program.insns().iter().enumerate() {
        if matches!(insn, Insn::LoadImm64Tail) {
            continue;
        }
        let text = symbolic(program, insn);
        let words = facts.next_if(|line| line.insn as usize == slot).map(|line| line.words().join(", "));
        let text = match words {
            Some(words) => format!("{text}    ; {words}"),
            None => text,
        };
        dump.push(Line { at: slot as u64, text, source: headings[slot].take() });
    }
    dump
}

/// An instruction with the names of the maps and helpers that it refers to.
pub(crate) fn symbolic(program: &Verified, insn: &Insn) -> String {
    let map = |index: u32| program.maps().get(index as usize).map(|def| def.name.as_str());
    let mut text = insn.to_string();
    let note = match insn {
        Insn::Call { target: CallTarget::Helper(id) } => {
            skep::abi::linux_helper(*id).map(|proto| proto.name.clone().into_owned())
        }
        Insn::LoadImm64 { value: Imm64::Map(index), .. } => map(*index).map(str::to_owned),
        Insn::LoadImm64 { value: Imm64::MapValue { map: index, offset }, .. } => {
            map(*index).map(|name| format!("{name} + {offset}"))
        }
        _ => None,
    };
    if let Some(note) = note {
        // Writing to a string cannot fail.
        let _ = write!(text, "    ; {note}");
    }
    text
}

/// The headings of slots, each where code of that slot begins. Where passes have copied code, the copy begins with the
/// heading of the slot at its start, or of the nearest before that.
fn placed(headings: Vec<Option<String>>, offsets: &[u32], pieces: &[(u32, u32)]) -> Vec<(u32, String)> {
    if pieces.is_empty() {
        let all = offsets.iter().zip(headings);
        return all.filter_map(|(at, heading)| Some((*at, heading?))).collect();
    }
    let mut before = None;
    let mut all = Vec::new();
    for &(at, slot) in pieces {
        let slot = slot as usize;
        let is_same = before == Some(slot);
        let follows = before.replace(slot).is_none_or(|before| slot == before + 1);
        match &headings[slot] {
            // What was added to an instruction is no piece of its own.
            _ if is_same => {}
            Some(heading) => all.push((at, heading.clone())),
            None if follows => {}
            None => {
                let nearest = headings[..slot].iter().rev().flatten().next();
                let line = nearest.and_then(|heading| heading.lines().last());
                all.extend(line.map(|line| (at, line.trim_start_matches("; ").to_owned())));
            }
        }
    }
    all
}

/// The machine code of a program, for this machine or another architecture.
pub(crate) fn jited(
    runtime: &Runtime,
    program: &Program,
    other: Option<Target>,
) -> Result<Vec<Line>, Failure> {
    let architecture = other.map_or(std::env::consts::ARCH, Target::name);
    let Some(disassemble) = arch::disassembler(architecture) else {
        return Err(Failure::Refused(format!("no disassembler for {architecture}")));
    };
    let home = runtime.arena().range().start as u64;
    let (lines, offsets, pieces) = match other {
        None => {
            let text = program.compiled().text();
            let code = &text.bytes()[..program.compiled().code_bytes().min(text.bytes().len())];
            let compiled = program.compiled();
            (disassemble(code, text.address() as u64), compiled.offsets(), compiled.pieces())
        }
        Some(target) => {
            let emitted = program.emit(target)?;
            (disassemble(&emitted.bytes, home), emitted.offsets.to_vec(), emitted.pieces.to_vec())
        }
    };
    // Slots without code of their own begin where the next one's does.
    let mut sources: BTreeMap<u64, String> = BTreeMap::new();
    for (at, text) in placed(headings(program.verified()), &offsets, &pieces) {
        let begun = sources.entry(u64::from(at)).or_default();
        begun.push_str(if begun.is_empty() { "" } else { "\n; " });
        begun.push_str(&text);
    }
    Ok(lines
        .into_iter()
        .map(|insn| Line { at: insn.at, source: sources.remove(&insn.at), text: insn.text })
        .collect())
}
