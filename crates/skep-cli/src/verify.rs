//! `skep verify`: what the verifier says of an object's programs, without loading anything.

use crate::failure::Failure;
use crate::object::{choose, program_type};
use crate::output;
use serde::Serialize;
use skep::abi::ProgramType;
use skep::{Error, Object, ProgramOptions, Refusal, Step, Verified};
use std::fmt::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// BPF object file.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// Verifies this program alone.
    #[arg(long, value_name = "NAME")]
    prog: Option<String>,
    /// The programs' type, in place of what their sections say.
    #[arg(long = "type", value_name = "TYPE", value_parser = program_type)]
    program_type: Option<&'static ProgramType>,
    /// For programs of type raw: the length of the buffer they will be given.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    data_len: u32,
    /// Prints the path that led to a refusal.
    #[arg(long)]
    log: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints for a program.
#[derive(Serialize)]
struct Verdict {
    program: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    insn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Vec<PathStep>>,
    walked: u64,
    peak_states: u64,
    us: f64,
}

#[derive(Serialize)]
struct PathStep {
    insn: u32,
    text: String,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let object = Object::open(&args.object)?;
    let names: Vec<String> = match &args.prog {
        Some(name) => vec![choose(&object, Some(name))?],
        None => object.programs().into_iter().map(str::to_owned).collect(),
    };
    let options = ProgramOptions { program_type: args.program_type, buffer_len: args.data_len };
    let mut verdicts = Vec::with_capacity(names.len());
    let mut told = String::new();
    let mut refused = false;
    for name in &names {
        match object.verify(name, options) {
            Ok(verified) => {
                if !args.json {
                    told.push_str(&accepted(&verified));
                }
                verdicts.push(Verdict::accepted(&verified));
            }
            Err(Error::Refused(refusal)) => {
                refused = true;
                if !args.json {
                    told.push_str(&refused_text(&refusal, args.log));
                }
                verdicts.push(Verdict::refused(&refusal));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if args.json {
        match verdicts.as_slice() {
            [only] => output::json(only)?,
            all => output::json(&all)?,
        }
    } else {
        output::text(&told)?;
    }
    if refused { Err(Failure::Told) } else { Ok(()) }
}

fn accepted(program: &Verified) -> String {
    let stats = program.stats();
    format!(
        "{}: accepted ({}, {} instructions, {} walked, {:.0} us)\n",
        program.name(),
        program.program_type().name,
        program.insns().len(),
        stats.walked,
        stats.nanoseconds as f64 / 1e3,
    )
}

fn refused_text(refusal: &Refusal, log: bool) -> String {
    let mut text = format!("{refusal}\n");
    // Writing to a string cannot fail.
    if let Some(source) = refusal.source.as_deref().filter(|text| !text.is_empty()) {
        let _ = writeln!(text, "    {}", source.trim());
    }
    if log {
        for (step, times) in folded(&refusal.path) {
            let times = if times > 1 { format!("    ({times} times)") } else { String::new() };
            let _ = writeln!(text, "  {:>4}: {}{times}", step.slot, step.text);
        }
        let _ = writeln!(text, "  {:>4}: {}", refusal.slot, refusal.insn);
    }
    text
}

/// Steps with how often each is repeated at once: a loop takes one line, not one a round.
fn folded(path: &[Step]) -> Vec<(&Step, usize)> {
    path.chunk_by(|a, b| a == b).map(|same| (&same[0], same.len())).collect()
}

impl Verdict {
    fn accepted(program: &Verified) -> Self {
        let stats = program.stats();
        Self {
            program: program.name().to_owned(),
            verdict: "accepted",
            tag: Some(hex(&program.tag())),
            code: None,
            insn: None,
            text: None,
            file: None,
            line: None,
            source: None,
            reason: None,
            suggestion: None,
            path: None,
            walked: stats.walked,
            peak_states: stats.peak_states,
            us: stats.nanoseconds as f64 / 1e3,
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        Self {
            program: refusal.program.clone(),
            verdict: "refused",
            tag: None,
            code: Some(refusal.code.name()),
            insn: Some(refusal.slot),
            text: Some(refusal.insn.clone()),
            file: refusal.file.as_deref().map(str::to_owned),
            line: refusal.line,
            source: refusal.source.as_deref().map(|text| text.trim().to_owned()),
            reason: Some(refusal.reason.clone()),
            suggestion: refusal.suggestion.clone(),
            path: Some(
                refusal
                    .path
                    .iter()
                    .map(|step| PathStep { insn: step.slot, text: step.text.clone() })
                    .collect(),
            ),
            walked: refusal.walked,
            peak_states: refusal.peak_states,
            us: refusal.nanoseconds as f64 / 1e3,
        }
    }
}

/// Bytes in hexadecimal, as bpftool prints tags.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
