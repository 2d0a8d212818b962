//! `skep test`: finds tests and runs them, once or whenever a file changes.
//!
//! Exit status: 0 all passed, 1 some did not, 2 wrong usage. Only results go to standard output; with `--json` that is
//! one document.

use crate::capture::Reader;
use crate::failure::Failure;
use crate::output;
use indicatif::ProgressBar;
use skep_test::{Captures, Options, Outcome, Report, Style, Suite, TestResult};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How often `--watch` looks for changes.
const POLL: Duration = Duration::from_millis(300);

/// Test programs: tables (*.test.toml) and checks in C.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  skep test                                     all tests below this folder
  skep test tests/firewall.test.toml            one file
  skep test tests --filter telnet               tests with that in name or file
  skep test tests --bless                       write expectations that are missing or do not hold
  skep test tests --watch                       again whenever an object or a table changes
  skep test tests --junit report.xml            for a CI server

A table:
  object = \"firewall.bpf.o\"
  program = \"firewall\"

  [[test]]
  name = \"telnet is dropped\"
  packet = 'eth()/ip4(src=10.0.0.1)/tcp(dport=23,flags=S)'
  expect = { verdict = \"drop\", variables = { frames_seen = 1 } }

The book's chapter \"Testing programs with skep test\" has all keys; \"Packets as text\" the layers.")]
pub(crate) struct Args {
    /// Table files, objects with tests in C, or folders with both.
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Run only tests with this text in their name or file.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print the tests and run none.
    #[arg(long)]
    list: bool,
    /// Number of threads; 0 for one for each processor.
    #[arg(long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Interpret all programs instead of running machine code.
    #[arg(long)]
    interp: bool,
    /// Write expectations into the tables that are missing or do not hold.
    #[arg(long, conflicts_with_all = ["list", "watch"])]
    bless: bool,
    /// Run again whenever a table, an object or a test's file changes, until interrupted.
    #[arg(long, conflicts_with_all = ["list", "json"])]
    watch: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Write the results as JUnit's XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if args.watch {
        return watch(args);
    }
    let suite = find(args)?;
    if args.list {
        return list(&suite, args.json);
    }
    let (report, _) = run(args, &suite)?;
    if args.bless {
        return bless(&report);
    }
    match passed(&report) {
        true => Ok(()),
        false => Err(Failure::AlreadyReported),
    }
}

fn find(args: &Args) -> Result<Suite, Failure> {
    let mut suite = suite(&args.paths)?;
    if let Some(text) = &args.filter {
        suite.filter(text);
        if suite.is_empty() {
            return Err(Failure::Usage(format!("no test has {text:?} in its name or file")));
        }
    }
    Ok(suite)
}

/// The tests below these paths.
pub(crate) fn suite(paths: &[PathBuf]) -> Result<Suite, Failure> {
    let captures: Captures = Arc::new(packets);
    Suite::find(paths, captures).map_err(|error| Failure::Usage(error.to_string()))
}

/// The packets of a capture.
fn packets(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let mut reader = Reader::open(path).map_err(|error| error.to_string())?;
    let mut packets = Vec::new();
    while let Some(frame) = reader.next().map_err(|error| error.to_string())? {
        packets.push(frame.bytes);
    }
    Ok(packets)
}

fn list(suite: &Suite, json: bool) -> Result<(), Failure> {
    if json {
        let tests: Vec<_> = suite
            .list()
            .map(|(file, name, line)| serde_json::json!({ "file": file.to_string_lossy(), "name": name, "line": line }))
            .collect();
        output::text(&format!("{}\n", serde_json::Value::from(tests)))?;
        return Ok(());
    }
    let lines = suite.list().map(|(file, name, _)| format!("{}: {name}\n", file.display()));
    output::text(&lines.collect::<String>())?;
    Ok(())
}

fn passed(report: &Report) -> bool {
    let counts = report.counts();
    counts.failed + counts.broken == 0
}

/// Runs the tests and prints what there is to say. Also returns whether somebody still reads standard output.
fn run(args: &Args, suite: &Suite) -> Result<(Report, bool), Failure> {
    let style = Style { colours: output::is_colourful() };
    // Drawn on standard error, and only on a terminal.
    let bar = ProgressBar::new(suite.len() as u64);
    let options = Options { jobs: args.jobs, interp: args.interp, bless: args.bless, budget: None };
    let report = suite.run(&options, &|_: &TestResult| bar.inc(1));
    bar.finish_and_clear();
    let is_read = if args.json {
        output::text(&format!("{:#}\n", skep_test::json(&report)))?;
        true
    } else {
        let shown = report.results.iter().map(|result| skep_test::details(result, style));
        let shown: String = shown.filter(|text| !text.is_empty()).map(|text| format!("{text}\n")).collect();
        output::coloured(&format!("{shown}{}\n", skep_test::summary(&report, style)))?
    };
    if let Some(path) = &args.junit {
        output::file(path, skep_test::junit(&report).as_bytes())?;
    }
    Ok((report, is_read))
}

fn bless(report: &Report) -> Result<(), Failure> {
    let blessed = skep_test::bless(report).map_err(|error| Failure::Refused(error.to_string()))?;
    let mut said = String::new();
    for (file, tests) in &blessed.files {
        said.push_str(&format!("wrote {}: {tests} tests\n", file.display()));
    }
    for (file, name, reason) in &blessed.left {
        said.push_str(&format!("left {}: {name}: {reason}\n", file.display()));
    }
    output::complaint(&said);
    let failed = report.results.iter().any(|result| matches!(result.outcome, Outcome::Broken(_)));
    if failed || !blessed.left.is_empty() { Err(Failure::AlreadyReported) } else { Ok(()) }
}

/// Runs the tests, and again after each change of their files, until nobody reads what it prints.
fn watch(args: &Args) -> Result<(), Failure> {
    let mut files = Vec::new();
    loop {
        // Where there are no tests now, a change of those that there were may bring them back.
        let known = [&args.paths[..], &files].concat();
        let before = changed(&known);
        let seen = match find(args) {
            Ok(suite) => {
                files = suite.files();
                let seen = changed(&files);
                if !run(args, &suite)?.1 {
                    return Ok(());
                }
                (files.clone(), seen)
            }
            Err(Failure::Refused(text) | Failure::Usage(text)) => {
                output::complaint(&format!("skep: {text}\n"));
                (known, before)
            }
            Err(other) => return Err(other),
        };
        while changed(&seen.0) == seen.1 {
            std::thread::sleep(POLL);
        }
        // A compiler writes an object in several steps: wait until nothing changes any more.
        let mut last = changed(&seen.0);
        loop {
            std::thread::sleep(POLL / 3);
            let now = changed(&seen.0);
            if std::mem::replace(&mut last, now.clone()) == now {
                break;
            }
        }
    }
}

/// Length and time of the last change of each file.
fn changed(files: &[PathBuf]) -> Vec<Option<(u64, SystemTime)>> {
    let of = |file: &PathBuf| {
        let about = std::fs::metadata(file).ok()?;
        Some((about.len(), about.modified().ok()?))
    };
    files.iter().map(of).collect()
}
