//! `skep verify`: what the verifier says of an object's programs, without loading anything.

use crate::failure::Failure;
use crate::object::{choose, program_type};
use serde::Serialize;
use skep::abi::ProgramType;
use skep::{Error, Object, ProgramOptions, Refusal, Verified};
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    path: Vec<PathStep>,
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
    let mut refused = false;
    for name in &names {
        let started = std::time::Instant::now();
        match object.verify(name, options) {
            Ok(verified) => {
                if !args.json {
                    tell_accepted(&verified);
                }
                verdicts.push(Verdict::accepted(&verified));
            }
            Err(Error::Refused(refusal)) => {
                refused = true;
                if !args.json {
                    tell_refused(&refusal, args.log);
                }
                verdicts.push(Verdict::refused(&refusal, started.elapsed().as_secs_f64() * 1e6));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if args.json {
        let text = match (&args.prog, verdicts.as_slice()) {
            (_, [only]) => serde_json::to_string_pretty(only),
            (_, all) => serde_json::to_string_pretty(all),
        };
        println!("{}", text.map_err(|error| Failure::Refused(error.to_string()))?);
    }
    if refused { Err(Failure::Told) } else { Ok(()) }
}

fn tell_accepted(program: &Verified) {
    let stats = program.stats();
    println!(
        "{}: accepted ({}, {} instructions, {} walked, {:.0} us)",
        program.name(),
        program.program_type().name,
        program.insns().len(),
        stats.walked,
        stats.nanoseconds as f64 / 1e3,
    );
}

fn tell_refused(refusal: &Refusal, log: bool) {
    println!("{refusal}");
    if let Some(source) = refusal.source.as_deref().filter(|text| !text.is_empty()) {
        println!("    {}", source.trim());
    }
    if log {
        for step in &refusal.path {
            println!("  {:>4}: {}", step.slot, step.text);
        }
        println!("  {:>4}: {}", refusal.slot, refusal.insn);
    }
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
            path: Vec::new(),
            walked: stats.walked,
            peak_states: stats.peak_states,
            us: stats.nanoseconds as f64 / 1e3,
        }
    }

    fn refused(refusal: &Refusal, us: f64) -> Self {
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
            path: refusal.path.iter().map(|step| PathStep { insn: step.slot, text: step.text.clone() }).collect(),
            walked: refusal.walked,
            peak_states: 0,
            us,
        }
    }
}

/// Bytes in hexadecimal, as bpftool prints tags.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
