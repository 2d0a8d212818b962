//! `skep prog dump`: a program's instructions after verification, or its machine code.

use crate::failure::Failure;
use crate::object::{choose, program_type};
use crate::output;
use clap::ValueEnum;
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use skep::abi::ProgramType;
use skep::{Object, Program, Runtime, Verified};
use std::fmt::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Instructions as verified and rewritten, or machine code.
    #[arg(value_name = "xlated|jited")]
    form: Form,
    /// BPF object file.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// The program; may be left out where the object has only one.
    #[arg(value_name = "NAME")]
    prog: Option<String>,
    /// The program's type, in place of what its section says.
    #[arg(long = "type", value_name = "TYPE", value_parser = program_type)]
    program_type: Option<&'static ProgramType>,
    /// For programs of type raw: the length of the buffer they will be given.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    data_len: u32,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    Xlated,
    Jited,
}

/// One line of a dump.
#[derive(serde::Serialize)]
struct Line {
    /// Slot, or address.
    at: u64,
    text: String,
    /// The source line or function that starts here.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let object = Object::open(&args.object)?;
    let name = choose(&object, args.prog.as_deref())?;
    let runtime = Runtime::new()?;
    let mut linker = runtime.linker(&object).only(&name).buffer_len(args.data_len);
    if let Some(program_type) = args.program_type {
        linker = linker.program_type(program_type);
    }
    let module = linker.load()?;
    let program = &module.programs()[0];
    let lines = match args.form {
        Form::Xlated => xlated(program.verified()),
        Form::Jited => jited(program),
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

fn xlated(program: &Verified) -> Vec<Line> {
    let mut lines = program.lines().iter().peekable();
    let mut dump = Vec::with_capacity(program.insns().len());
    for (slot, (insn, fact)) in program.insns().iter().zip(program.facts()).enumerate() {
        let mut source = program
            .functions()
            .iter()
            .find(|function| function.start as usize == slot)
            .map(|function| format!("{}: stack {} bytes", function.name, function.stack_bytes));
        while let Some(line) = lines.next_if(|line| line.slot as usize <= slot) {
            let text = line.text.trim();
            if line.slot as usize == slot && !text.is_empty() {
                source = Some(match source {
                    Some(before) => format!("{before}\n; {text}"),
                    None => text.to_owned(),
                });
            }
        }
        if matches!(insn, skep::isa::Insn::LoadImm64Tail) {
            continue;
        }
        let text = symbolic(program, insn);
        let text = if fact.reached { text } else { format!("{text}    ; never reached") };
        dump.push(Line { at: slot as u64, text, source });
    }
    dump
}

/// An instruction with the names of what it refers to.
fn symbolic(program: &Verified, insn: &skep::isa::Insn) -> String {
    use skep::isa::{CallTarget, Imm64, Insn};
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

fn jited(program: &Program) -> Vec<Line> {
    let code = program.compiled().text().bytes();
    let address = program.compiled().text().address() as u64;
    if std::env::consts::ARCH != "x86_64" {
        let words = code.chunks_exact(4).enumerate();
        return words
            .map(|(i, word)| Line {
                at: 4 * i as u64,
                text: format!(".inst 0x{:08x}", u32::from_le_bytes([word[0], word[1], word[2], word[3]])),
                source: None,
            })
            .collect();
    }
    let used = program.compiled().code_bytes().min(code.len());
    let mut decoder = Decoder::with_ip(64, &code[..used], address, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let insn = decoder.decode();
        let mut text = String::new();
        formatter.format(&insn, &mut text);
        lines.push(Line { at: insn.ip() - address, text, source: None });
    }
    lines
}
