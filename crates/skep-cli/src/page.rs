//! `skep report`: pages about an object, to read in a browser.
//!
//! ```text
//!   DIR/index.html            programs with verdicts and sizes, maps with types, who calls whom, code memory
//!   DIR/N-PROGRAM.html        one program: its functions, control flow, instructions with facts, machine code
//! ```
//!
//! Each page stands alone: no script, nothing that is loaded from elsewhere, light and dark as the browser wishes.
//! Names come from objects, so they are only written through [`maud`], which escapes them.

mod coverage;
mod graph;
mod look;
mod program;
mod proved;

pub(crate) use coverage::coverage;

use crate::failure::Failure;
use crate::object;
use crate::output;
use crate::pack;
use look::{count, document, picture, place};
use maud::{Markup, html};
use program::{Part, Verdict};
use skep::Object;
use skep_elf::Object as Parsed;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  skep report firewall.bpf.o -o report          then open report/index.html
  skep report probe.bpf.o --btf vmlinux -o out  a program for another kernel")]
pub(crate) struct Args {
    /// BPF object file; `-` is standard input.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// The folder to write into; it is made if it is not there, and pages of an earlier report are replaced.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The types of the kernel or host that the programs are for, then those of its modules.
    #[arg(long, value_name = "FILE")]
    btf: Vec<PathBuf>,
    /// Length of the buffer, in bytes, for programs of type `raw`.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    data_len: u32,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let bytes = object::bytes(&args.object)?;
    let mut object = Object::parse(&bytes)?;
    crate::target::set(&mut object, &args.btf, None, None)?;
    let parsed = Parsed::parse(&bytes).map_err(|error| Failure::Refused(error.to_string()))?;
    let title = match object::is_stdin(&args.object) {
        true => "standard input".to_owned(),
        false => args.object.display().to_string(),
    };
    let parts: Vec<Part> = (1..)
        .zip(parsed.programs())
        .map(|(number, program)| Part::of(&object, program, number, args.data_len))
        .collect();
    std::fs::create_dir_all(&args.output).map_err(|error| {
        Failure::Refused(format!("cannot make the folder {}: {error}", args.output.display()))
    })?;
    for part in &parts {
        let page = document(&format!("{} in {title}", part.name), &part.page(&title));
        output::file(&args.output.join(&part.file), page.into_string())?;
    }
    let packs = match object::is_stdin(&args.object) {
        true => Err("an object on standard input can only be read once".to_owned()),
        false => pack::drawing(&args.object, args.data_len).map_err(|error| error.to_string()),
    };
    let page = document(&title, &index(&title, bytes.len(), &parsed, &parts, &packs));
    let path = args.output.join("index.html");
    output::file(&path, page.into_string())?;
    output::text(&format!(
        "wrote {} and {}\n",
        path.display(),
        count(parts.len(), "page of a program", "pages of programs")
    ))
}

/// The first page.
fn index(
    title: &str,
    bytes: usize,
    parsed: &Parsed,
    parts: &[Part],
    packs: &Result<String, String>,
) -> Markup {
    let refused = parts.iter().filter(|part| !matches!(part.verdict, Verdict::Accepted(_))).count();
    html! {
        h1 { (title) }
        p {
            (count(parts.len(), "program", "programs")) ", "
            (count(parsed.maps().len(), "map", "maps")) ", " (bytes) " bytes, licence "
            @if parsed.license().is_empty() { "not stated" } @else { (parsed.license()) }
            @if refused > 0 { ". " strong.bad { (refused) " refused" } }
        }
        h2 { "Programs" }
        (programs(parts))
        @if !parsed.maps().is_empty() {
            h2 { "Maps" }
            (maps(parsed))
        }
        @if let Some(drawing) = graph::draw(parsed, parts) {
            h2 { "Who calls whom" }
            p { "Calls of functions are purple, tail calls through arrays of programs orange, uses of maps grey." }
            (picture("Programs, functions and maps, and what leads from one to the other", &drawing))
        }
        h2 { "Code memory" }
        @match packs {
            Ok(drawing) => {
                p { "After one load of these programs in a runtime of its own." }
                (picture("Where the programs' machine code is in its pack", drawing))
            }
            Err(reason) => p { "Not drawn: " (reason) },
        }
    }
}

fn programs(parts: &[Part]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "program" } th { "section" } th { "type" } th { "verdict" }
                th.n { "instructions" } th.n { "walked" } th.n { "stack" } th.n { "machine code" }
            } }
            tbody { @for part in parts { tr {
                td { a href=(part.file) { (part.name) } }
                td { code { (part.section) } }
                td { (part.kind.unwrap_or("-")) }
                @match &part.verdict {
                    Verdict::Accepted(program) => {
                        td { span.good { "accepted" } }
                        td.n { (program.insns().len()) }
                        td.n { (program.stats().walked) }
                        td.n { (part.stack().unwrap_or(0)) " bytes" }
                        td.n {
                            @match &part.code {
                                Ok(code) => { (code.bytes) " bytes" }
                                Err(_) => "-",
                            }
                        }
                    }
                    Verdict::Refused(text) => td colspan="5" { span.bad { "refused" } ": " (place(text)) },
                }
            } } }
        } }
    }
}

fn maps(parsed: &Parsed) -> Markup {
    let elements = |map: &skep_elf::ObjectMap| match (&map.variables[..], map.def.value_size) {
        ([], 0) => "-".to_owned(),
        ([], bytes) => {
            map.value_type.clone().map_or(format!("{bytes} bytes"), |ty| format!("{ty} ({bytes})"))
        }
        (_, bytes) => count(bytes as usize, "byte", "bytes"),
    };
    let key = |map: &skep_elf::ObjectMap| match (&map.key_type, map.def.key_size) {
        (_, 0) => "-".to_owned(),
        (Some(ty), bytes) => format!("{ty} ({bytes})"),
        (None, bytes) => count(bytes as usize, "byte", "bytes"),
    };
    html! {
        div.wide { table {
            thead { tr { th { "map" } th { "kind" } th.n { "entries" } th { "key" } th { "value" } } }
            tbody { @for map in parsed.maps() { tr {
                td { code { (map.def.name) } }
                td { (map.def.kind.name()) }
                td.n { (map.def.max_entries) }
                td { (key(map)) }
                td {
                    (elements(map))
                    @if !map.variables.is_empty() {
                        details {
                            summary { (count(map.variables.len(), "variable", "variables")) }
                            ul { @for variable in &map.variables { li {
                                code {
                                    (variable.type_name.as_deref().unwrap_or("?")) " " (variable.name)
                                }
                                " at " (variable.offset) ", " (variable.size) " bytes"
                            } } }
                        }
                    }
                    @if !map.entries.is_empty() {
                        ul { @for entry in &map.entries { li {
                            (entry.index) ": " code { (graph::target(parsed, entry)) }
                        } } }
                    }
                }
            } } }
        } }
    }
}
