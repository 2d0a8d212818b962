//! `skep verify`: the verifier's verdicts on an object's programs, without loading anything.
//!
//! In text, a program takes one line, and a refused one a few more below it: its source line and the steps that led
//! there. `--log` prints the whole walk first. With `--json` there is exactly one document in any case, a list: a
//! program that cannot be linked, or an object that cannot be read, is a verdict like any other.

use crate::facts;
use crate::failure::Failure;
use crate::host::HostArgs;
use crate::kernels::{self, Format};
use crate::object::{self, program_type};
use crate::output::{self, Piece};
use crate::target;
use serde::Serialize;
use skep::abi::ProgramType;
use skep::function::Prototypes;
use skep::{Error, Object, ProgramOptions, Refusal, Step, Verified, VerifyOptions};
use skep_kernels::Version;
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// BPF object files; `-` is standard input.
    #[arg(value_name = "OBJ", required = true)]
    objects: Vec<PathBuf>,
    /// Say for each of these releases of Linux (5.10,6.1,6.12) whether it will take the programs: accepted, refused or
    /// not certain, and what stands in the way. The types of a release are given with --btf 6.1=FILE.
    #[arg(long, value_name = "RELEASE,...", value_delimiter = ',',
          conflicts_with_all = ["kernel", "host", "strict_alignment", "privileged", "log", "facts"])]
    kernels: Vec<Version>,
    /// Verify only this program.
    #[arg(long, value_name = "NAME")]
    prog: Option<String>,
    /// The programs' type, instead of those that their sections select.
    #[arg(long = "type", value_name = "TYPE", value_parser = program_type)]
    program_type: Option<&'static ProgramType>,
    /// Length of the buffer, in bytes, for programs of type raw.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    data_len: u32,
    /// The types of the kernel or host that the programs are for: raw BTF, or an ELF file with a .BTF section; by
    /// default the running system's, if programs need types. Given again: modules of that kernel (.ko files, or what
    /// /sys/kernel/btf has of them). With --kernels: RELEASE=FILE, any number of times.
    #[arg(long, value_name = "FILE")]
    btf: Vec<PathBuf>,
    /// The configuration of the kernel that the programs are for, as text (CONFIG_HZ=250). With --kernels:
    /// RELEASE=FILE, once for each release.
    #[arg(long, value_name = "FILE")]
    kconfig: Vec<PathBuf>,
    /// With --kernels: the symbols of a release, as RELEASE=FILE, once for each: what root reads in /proc/kallsyms, or
    /// System.map. They say which functions the kernel's build inlined.
    #[arg(long, value_name = "RELEASE=FILE", requires = "kernels")]
    symbols: Vec<PathBuf>,
    /// The release of the kernel that the programs are for; by default the configuration's, or the running system's
    /// if its types are used, or 6.12.0.
    #[arg(long, value_name = "RELEASE", value_parser = target::release)]
    kernel: Option<String>,
    #[cfg(feature = "signatures")]
    #[command(flatten)]
    signature: crate::signature::SignatureArgs,
    #[command(flatten)]
    host: HostArgs,
    /// Refuse memory accesses that are not aligned to their size.
    #[arg(long)]
    strict_alignment: bool,
    /// Let addresses leave the programs as numbers, as Linux allows its root user (CAP_PERFMON).
    #[arg(long)]
    privileged: bool,
    /// Print every step of the verifier, in the syntax of Linux's log; with --json, on standard error.
    #[arg(long)]
    log: bool,
    /// Print what was learned of the instructions of accepted programs.
    #[arg(long)]
    facts: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Print one SARIF document, for code review pages.
    #[arg(long, requires = "kernels", conflicts_with = "json")]
    sarif: bool,
}

impl Args {
    fn options(&self) -> ProgramOptions {
        ProgramOptions {
            program_type: self.program_type,
            buffer_len: self.data_len,
            ..ProgramOptions::default()
        }
    }
}

/// What `--json` prints for a program, or in place of one if there is none.
#[derive(Default, Serialize)]
struct Verdict {
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<Vec<facts::Line>>,
    walked: u64,
    peak_states: u64,
    us: f64,
}

#[derive(Serialize)]
struct PathStep {
    insn: u32,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    state: String,
    why: &'static str,
}

const GREEN: Option<u8> = Some(32);
const RED: Option<u8> = Some(31);

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    #[cfg(feature = "signatures")]
    if args.signature.is_required() && (args.objects.len() > 1 || !args.kernels.is_empty()) {
        let text = "--signature is for one object, and not for --kernels: verify the others one by one";
        return Err(Failure::Usage(text.to_owned()));
    }
    if !args.kernels.is_empty() {
        let format = match (args.json, args.sarif) {
            (true, _) => Format::Json,
            (_, true) => Format::Sarif,
            _ => Format::Text,
        };
        let only = args.prog.as_deref();
        let files = kernels::Files { types: &args.btf, configs: &args.kconfig, symbols: &args.symbols };
        return kernels::main(&args.objects, &args.kernels, &files, args.options(), only, format);
    }
    if args.kconfig.len() > 1 {
        return Err(Failure::Usage("--kconfig can be given several times only with --kernels".to_owned()));
    }
    let host = args.host.read()?;
    let mut verdicts = Vec::new();
    for path in &args.objects {
        let (found, mut text): (Vec<Verdict>, Vec<Vec<Piece>>) = match programs(args, path) {
            Ok((object, names)) => names.iter().map(|name| verify(args, &object, &host, name)).unzip(),
            Err(error) => {
                if !args.json {
                    complain(path, &error);
                }
                (vec![Verdict::unread("object", None, &error)], Vec::new())
            }
        };
        if args.objects.len() > 1 && !text.is_empty() {
            text.insert(0, vec![(None, format!("{}\n", path.display()))]);
        }
        if !args.json {
            output::pieces(&text.concat())?;
        }
        let named = |verdict| Verdict { object: path.display().to_string(), ..verdict };
        verdicts.extend(found.into_iter().map(named));
    }
    if args.json {
        output::json(&verdicts)?;
    }
    let refused = verdicts.iter().any(|verdict| verdict.verdict == "refused");
    if refused { Err(Failure::AlreadyReported) } else { Ok(()) }
}

/// The object, and which of its programs to verify.
fn programs(args: &Args, path: &Path) -> Result<(Object, Vec<String>), Error> {
    let mut object = object::open(path)?;
    #[cfg(feature = "signatures")]
    {
        object = args.signature.sign(object)?;
        args.signature.check(&object)?;
    }
    target::set(&mut object, &args.btf, args.kconfig.first().map(PathBuf::as_path), args.kernel.as_deref())?;
    let known: Vec<String> = object.programs().into_iter().map(str::to_owned).collect();
    match &args.prog {
        None => Ok((object, known)),
        Some(name) if known.contains(name) => Ok((object, vec![name.clone()])),
        Some(name) => Err(Error::Unknown { what: "program", name: name.clone(), known }),
    }
}

/// Complains about an object without programs to verify, on standard error. Others may follow.
fn complain(path: &Path, error: &Error) {
    let (text, place) = (error.to_string(), path.display().to_string());
    let place = if text.contains(&place) { String::new() } else { format!("{place}: ") };
    output::complaint(&format!("skep: {place}{text}\n"));
}

/// The report on one program, as JSON and as text.
fn verify(args: &Args, object: &Object, host: &Prototypes, name: &str) -> (Verdict, Vec<Piece>) {
    let options = args.options();
    // Write errors are ignored: the reader of the log has closed it.
    let mut line = |line: &str| {
        if args.json {
            output::complaint(&format!("{line}\n"));
        } else {
            let _ = output::text(&format!("{line}\n"));
        }
    };
    let log: Option<&mut dyn FnMut(&str)> = if args.log { Some(&mut line) } else { None };
    let how = VerifyOptions {
        strict_alignment: args.strict_alignment,
        privileged: args.privileged,
        log,
        host,
        ..VerifyOptions::default()
    };
    match object.verify_with(name, options, how) {
        Ok(verified) => {
            let facts = args.facts.then(|| {
                let before = object.linked(name, options).map(|source| source.insns).unwrap_or_default();
                facts::of(&verified, &before)
            });
            let mut text = accepted(&verified);
            let lines = facts.iter().flatten().map(facts::Line::line);
            text.extend(lines.map(|line| (None, line)));
            (Verdict::accepted(&verified, facts), text)
        }
        Err(Error::Refused(refusal)) => (Verdict::refused(&refusal), refused_text(&refusal)),
        Err(error) => (Verdict::unread("link", Some(name), &error), not_linked(name, &error)),
    }
}

fn accepted(program: &Verified) -> Vec<Piece> {
    let stats = program.stats();
    let rest = format!(
        " ({}, {} instructions, {} walked, {:.0} us)\n",
        program.program_type().name,
        program.insns().len(),
        stats.walked,
        stats.nanoseconds as f64 / 1e3,
    );
    vec![(None, format!("{}: ", program.name())), (GREEN, "accepted".to_owned()), (None, rest)]
}

/// The refusal in one line; its source line and its path below.
fn refused_text(refusal: &Refusal) -> Vec<Piece> {
    let line = refusal.to_string();
    let mut rest = String::new();
    // Writing to a string cannot fail.
    if let Some(source) = refusal.source.as_deref().filter(|text| !text.is_empty()) {
        let _ = writeln!(rest, "    {}", source.trim());
    }
    for step in &refusal.path {
        let _ = writeln!(rest, "{}", step_text(step));
    }
    let word = "refused";
    match line.split_once(word) {
        Some((before, after)) => {
            vec![(None, before.to_owned()), (RED, word.to_owned()), (None, format!("{after}\n{rest}"))]
        }
        None => vec![(None, format!("{line}\n{rest}"))],
    }
}

/// A step of a path in one line.
fn step_text(step: &Step) -> String {
    let mut text = format!("  {:>4}: {:<36} {}", step.slot, step.text, step.why.name());
    if !step.state.is_empty() {
        let _ = write!(text, " {}", step.state);
    }
    if let (Some(file), Some(line)) = (&step.file, step.line) {
        let _ = write!(text, " ({}:{line})", file.rsplit('/').next().unwrap_or_default());
    }
    text
}

fn not_linked(name: &str, error: &Error) -> Vec<Piece> {
    let rest = format!(" before it was verified: {error}\n");
    vec![(None, format!("program {name} ")), (RED, "refused".to_owned()), (None, rest)]
}

impl Verdict {
    fn accepted(program: &Verified, facts: Option<Vec<facts::Line>>) -> Self {
        let stats = program.stats();
        Self {
            program: Some(program.name().to_owned()),
            verdict: "accepted",
            tag: Some(hex(&program.tag())),
            facts,
            walked: stats.walked,
            peak_states: stats.peak_states,
            us: stats.nanoseconds as f64 / 1e3,
            ..Self::default()
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        let text = |text: &std::sync::Arc<str>| text.trim().to_owned();
        let step = |step: &Step| PathStep {
            insn: step.slot,
            text: step.text.clone(),
            file: step.file.as_deref().map(str::to_owned),
            line: step.line,
            source: step.source.as_ref().map(text),
            state: step.state.clone(),
            why: step.why.name(),
        };
        Self {
            program: Some(refusal.program.clone()),
            verdict: "refused",
            code: Some(refusal.code.name()),
            insn: Some(refusal.slot),
            text: Some(refusal.insn.clone()),
            file: refusal.file.as_deref().map(str::to_owned),
            line: refusal.line,
            source: refusal.source.as_ref().map(text),
            reason: Some(refusal.reason.clone()),
            suggestion: refusal.suggestion.clone(),
            path: Some(refusal.path.iter().map(step).collect()),
            walked: refusal.walked,
            peak_states: refusal.peak_states,
            us: refusal.nanoseconds as f64 / 1e3,
            ..Self::default()
        }
    }

    /// The refusal of something that never reached the verifier.
    fn unread(code: &'static str, program: Option<&str>, error: &Error) -> Self {
        Self {
            program: program.map(str::to_owned),
            verdict: "refused",
            code: Some(code),
            reason: Some(error.to_string()),
            path: Some(Vec::new()),
            ..Self::default()
        }
    }
}

/// Bytes in hexadecimal, as bpftool prints tags.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
