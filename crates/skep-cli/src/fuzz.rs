//! `skep fuzz`: looks for inputs that should not be, and writes them as tests.
//!
//! Exit status: 0 nothing was found that should not be, 1 something was, 2 wrong usage.

use crate::capture::Reader;
use crate::failure::Failure;
use crate::object::ProgramArgs;
use crate::run::stop_on_interrupt;
use crate::{object, output};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use skep_fuzz::{Case, Fuzzer, Options, Report, Why, table};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  skep fuzz firewall.bpf.o --never aborted -o found   for 60 seconds
  skep fuzz new.bpf.o firewall --against old.bpf.o    what do the versions do differently?
  skep fuzz firewall.bpf.o --check allowed            a program of the object judges each verdict
  skep fuzz firewall.bpf.o --seeds traffic.pcap       begin with packets of a capture
  skep test found/findings.test.toml                  run what was found

A check returns 1 if it agrees. It is a program of the same type in the same object, shares its maps, and gets the verdict
in the first four bytes of the packet, in the machine's byte order, and the packet as the program left it behind them.")]
pub(crate) struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// Captures (pcap, pcapng), or files with a packet as text on each line, to begin with.
    #[arg(long, value_name = "FILE")]
    seeds: Vec<PathBuf>,
    /// Another version of the object: inputs are found for which the two do different things.
    #[arg(long, value_name = "OLD")]
    against: Option<PathBuf>,
    /// A verdict that there should never be; may be given several times.
    #[arg(long, value_name = "VERDICT")]
    never: Vec<String>,
    /// A program of the object that returns 1 if a verdict is right.
    #[arg(long, value_name = "NAME")]
    check: Option<String>,
    /// Also find the input that takes the most work.
    #[arg(long)]
    slowest: bool,
    /// How long to look, in seconds; 0 for no limit. Ctrl-C ends the search, and what was found is written.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// The most runs; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    runs: u64,
    /// What everything random follows from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The most bytes of a packet.
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(64..=65_535))]
    longest: u32,
    /// Write findings.test.toml and corpus.test.toml into this folder.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let object = args.program.open()?;
    let name = args.program.choose(&object)?;
    let old = args.against.as_deref().map(object::open).transpose()?;
    let options = args.program.options();
    let mut seeds = Vec::new();
    for path in &args.seeds {
        seeds.extend(packets(path)?);
    }
    let options = Options {
        program: name.clone(),
        program_type: options.program_type,
        buffer: options.buffer_len,
        seeds,
        seed: args.seed,
        runs: args.runs,
        time: Duration::from_secs(args.seconds),
        longest: args.longest as usize,
        never: args.never.clone(),
        check: args.check.clone(),
        slowest: args.slowest,
    };
    let refused = |error: skep_fuzz::Error| Failure::Refused(error.to_string());
    // Before the search, which may take long.
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder).map_err(|error| {
            Failure::Refused(format!("cannot make the folder {}: {error}", folder.display()))
        })?;
    }
    let fuzzer = Fuzzer::new(&object, old.as_ref(), options).map_err(refused)?;
    if fuzzer.takes_buffer() && args.program.options().buffer_len == 0 {
        let text = "programs of this type run on a buffer: give its length with --data-len BYTES";
        return Err(Failure::Usage(text.to_owned()));
    }
    // Drawn on standard error, and only on a terminal.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let stop = stop_on_interrupt();
    let report = fuzzer.run(&mut |report| {
        bar.set_message(line(report));
        bar.tick();
        // Relaxed: nothing else is handed over.
        !stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    let report = report.map_err(refused)?;
    let module = fuzzer.module().map_err(refused)?;
    let path = args.program.path();
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let written = |cases: &[Case], wanted: bool| {
        let expected = |case: &Case| if wanted { fuzzer.expected(case) } else { fuzzer.done(case) };
        let of = (&object, &module);
        table(&path.to_string_lossy(), &name, cases, fuzzer.takes_buffer(), of, expected)
    };
    let findings = written(&report.findings, true);
    if let Some(folder) = &args.output {
        if !report.findings.is_empty() {
            output::file(&folder.join("findings.test.toml"), &findings)?;
        }
        output::file(&folder.join("corpus.test.toml"), written(&report.corpus, false))?;
    }
    if args.json {
        let case = |case: &Case| {
            json!({
                "what": case.why.words(),
                "input": if fuzzer.takes_buffer() { crate::verify::hex(&case.input) } else { skep_frames::text(&case.input) },
                "before": case.before.len(),
                "elements": case.setup.elements.len(),
            })
        };
        output::json(&json!({
            "runs": report.runs,
            "seconds": report.running.as_secs_f64(),
            "reached": report.reached,
            "places": report.places,
            "corpus": report.corpus.len(),
            "lost": report.lost,
            "findings": report.findings.iter().map(case).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut text = String::new();
        for case in &report.findings {
            text.push_str(&format!("found: {name} {}\n", case.why.words()));
        }
        if args.output.is_none() && !report.findings.is_empty() {
            text.push_str(&format!("\n{findings}\n"));
        }
        output::text(&format!("{text}{}\n", line(&report)))?;
    }
    // What takes the most work was asked for, and is nothing wrong.
    match report.findings.iter().all(|case| matches!(case.why, Why::Slowest { .. })) {
        true => Ok(()),
        false => Err(Failure::AlreadyReported),
    }
}

/// How far it got.
fn line(report: &Report) -> String {
    let rate = report.runs as f64 / report.running.as_secs_f64().max(1e-6) / 1e6;
    let lost = match report.lost {
        0 => String::new(),
        lost => format!(", not repeated: {lost}"),
    };
    format!(
        "{} runs, {rate:.2} million in a second; {} of {} places reached; corpus: {}, found: {}{lost}",
        report.runs,
        report.reached,
        report.places,
        report.corpus.len(),
        report.findings.len(),
    )
}

/// The packets of a capture, or of a file with a packet as text on each line.
fn packets(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let is_text = path.extension().is_some_and(|extension| extension == "txt");
    if !is_text {
        let mut reader = Reader::open(path)?;
        let mut packets = Vec::new();
        while let Some(frame) = reader.next()? {
            packets.push(frame.bytes);
        }
        return Ok(packets);
    }
    let text = crate::target::text(path)?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            skep_frames::build(line.trim())
                .map_err(|error| Failure::Refused(format!("{}:{number}: {error}", path.display())))
        })
        .collect()
}
