//! The page of a program.

use super::look::{count, picture, place};
use crate::{cfg, dump};
use maud::{Markup, html};
use skep::isa::Insn;
use skep::{Object, ProgramOptions, Runtime, Verified, VerifyOptions};

/// What a page says of a program.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) section: String,
    pub(super) kind: Option<&'static str>,
    /// The page's file in the folder.
    pub(super) file: String,
    pub(super) verdict: Verdict,
    /// Its instructions before it was verified.
    before: Vec<Insn>,
    /// Its machine code, or why there is none.
    pub(super) code: Result<Code, String>,
}

/// The verifier's answer, or why it was not asked.
pub(super) enum Verdict {
    Accepted(Box<Verified>),
    Refused(String),
}

/// Machine code for the processor that made the report.
pub(super) struct Code {
    pub(super) bytes: usize,
    lines: Vec<dump::Line>,
}

impl Part {
    pub(super) fn of(object: &Object, program: &skep_elf::Program, number: usize, data_len: u32) -> Self {
        let name = program.name();
        let options = ProgramOptions { buffer_len: data_len, ..ProgramOptions::default() };
        let verified = object.verify_with(name, options, VerifyOptions::default());
        let verdict = match verified {
            Ok(verified) => Verdict::Accepted(Box::new(verified)),
            Err(error) => Verdict::Refused(error.to_string()),
        };
        let code = match &verdict {
            Verdict::Accepted(_) => code(object, name, data_len),
            Verdict::Refused(_) => Err("the program was refused".to_owned()),
        };
        // A name may have any byte, and a file may not be in another folder.
        let kept = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let shown: String = name.chars().map(kept).take(64).collect();
        Self {
            name: place(name),
            section: place(program.section()),
            kind: program.program_type().ok().map(|kind| kind.name),
            file: format!("{number}-{shown}.html"),
            verdict,
            before: object.linked(name, options).map(|source| source.insns).unwrap_or_default(),
            code,
        }
    }

    /// Bytes of stack of all its functions.
    pub(super) fn stack(&self) -> Option<u32> {
        match &self.verdict {
            Verdict::Accepted(program) => {
                Some(program.functions().iter().map(|function| function.stack_bytes).sum())
            }
            Verdict::Refused(_) => None,
        }
    }

    pub(super) fn page(&self, title: &str) -> Markup {
        html! {
            p { a href="index.html" { (place(title)) } }
            h1 { (self.name) }
            p { "Section " code { (self.section) } @if let Some(kind) = self.kind { ", type " (kind) } }
            @match &self.verdict {
                Verdict::Refused(text) => {
                    h2.bad { "Refused" }
                    pre { (place(text)) }
                    @if !self.before.is_empty() {
                        h2 { "Instructions" }
                        pre { @for (slot, insn) in self.before.iter().enumerate() {
                            @if !matches!(insn, Insn::LoadImm64Tail) { (format!("{slot:>5}: {insn}\n")) }
                        } }
                    }
                }
                Verdict::Accepted(program) => (self.accepted(program)),
            }
        }
    }

    fn accepted(&self, program: &Verified) -> Markup {
        let stats = program.stats();
        html! {
            p {
                span.good { "Accepted" } " after " (count(stats.walked as usize, "instruction", "instructions"))
                " on all paths, at most " (count(stats.peak_states as usize, "state", "states")) " at once."
            }
            h2 { "Functions" }
            div.wide { table {
                thead { tr { th { "function" } th.n { "instructions" } th.n { "stack" } th { "" } } }
                tbody { @for function in program.functions() { tr {
                    td { code { (place(&function.name)) } }
                    td.n { (function.end - function.start) }
                    td.n { (function.stack_bytes) " bytes" }
                    td { (notes(function)) }
                } } }
            } }
            h2 { "Control flow" }
            p { "Green where a condition holds, red where it does not. Blocks that no path reaches are faint." }
            (picture(&format!("Basic blocks of {}", self.name), &cfg::drawing(program, &self.before)))
            h2 { "Instructions" }
            p { "As verified and rewritten, with source and with what is known of each." }
            (listing(&dump::xlated(program, &self.before), |at| format!("{at:>5}")))
            h2 { "Machine code" }
            @match &self.code {
                Ok(code) => {
                    p { (code.bytes) " bytes for " (std::env::consts::ARCH) "." }
                    (listing(&code.lines, |at| format!("{at:>5x}")))
                }
                Err(reason) => p { "None: " (place(reason)) },
            }
        }
    }
}

/// What is special about a function.
fn notes(function: &skep::FunctionFacts) -> String {
    let notes = [
        (function.global, "verified by itself"),
        (function.zeroed, "its stack is zeroed first"),
        (function.may_throw, "may throw"),
        (function.moves_packet, "may move the packet"),
        (function.in_callback, "called by helpers"),
    ];
    notes.into_iter().filter_map(|(holds, words)| holds.then_some(words)).collect::<Vec<_>>().join(", ")
}

/// Lines of a dump below those of the source.
fn listing(lines: &[dump::Line], at: impl Fn(u64) -> String) -> Markup {
    html! {
        details {
            summary { (count(lines.len(), "line", "lines")) }
            pre { @for line in lines {
                @if let Some(source) = &line.source { span.dim { "; " (place(source)) } "\n" }
                (at(line.at)) ": " (place(&line.text)) "\n"
            } }
        }
    }
}

fn code(object: &Object, name: &str, data_len: u32) -> Result<Code, String> {
    let text = |error: skep::Error| error.to_string();
    let runtime = Runtime::builder().build().map_err(text)?;
    let module = runtime.linker(object).only(name).buffer_len(data_len).load().map_err(text)?;
    let program = module.program(name).ok_or("it was not loaded")?;
    let lines = dump::jited(&runtime, program, None).map_err(|error| error.to_string())?;
    Ok(Code { bytes: program.compiled().code_bytes(), lines })
}
