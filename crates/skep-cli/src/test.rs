//! `skep test`: finds tests and runs them, once or whenever a file changes.
//!
//! Exit status: 0 all passed, 1 some did not, 2 wrong usage. Only results go to standard output; with `--json` that is
//! one document.

use crate::capture::Reader;
use crate::failure::Failure;
use crate::output;
use crate::page;
use indicatif::ProgressBar;
use skep_test::{Captures, Coverage, Options, Outcome, Report, Style, Suite, TestResult};
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
  skep test tests --html coverage               which lines of the programs the tests execute
  skep test tests --kernel                      by the kernel's own BPF
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
    /// Let the kernel's own BPF run the tables (BPF_PROG_TEST_RUN), one test at a time. Needs root.
    #[arg(long, conflicts_with_all = ["interp", "bless", "list", "coverage", "lcov", "cobertura", "html"])]
    kernel: bool,
    /// Write expectations into the tables that are missing or do not hold.
    #[arg(long, conflicts_with_all = ["list", "watch"])]
    bless: bool,
    /// Run again whenever a table, an object or a test's file changes, until interrupted.
    #[arg(long, conflicts_with_all = ["list", "json"])]
    watch: bool,
    /// Say how many source lines and branches the tests have executed.
    #[arg(long)]
    coverage: bool,
    /// Write what was executed in the format of lcov to this file.
    #[arg(long, value_name = "FILE")]
    lcov: Option<PathBuf>,
    /// Write what was executed in the format of Cobertura to this file.
    #[arg(long, value_name = "FILE")]
    cobertura: Option<PathBuf>,
    /// Write what was executed as pages for a browser into this folder.
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Write the results as JUnit's XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if args.kernel && !skep_test::KERNEL {
        let text = "--kernel is not built in: build the command with --features kernel (it needs libelf)";
        return Err(Failure::Usage(text.to_owned()));
    }
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
    let options = Options {
        jobs: args.jobs,
        interp: args.interp,
        kernel: args.kernel,
        coverage: args.covers(),
        bless: args.bless,
        budget: None,
    };
    let report = suite.run(&options, &|_: &TestResult| bar.inc(1));
    bar.finish_and_clear();
    let coverage = args.covers().then(|| Coverage::of(&report));
    let is_read = if args.json {
        let mut document = skep_test::json(&report);
        if let Some((coverage, _)) = &coverage {
            document["coverage"] = coverage.json();
        }
        output::text(&format!("{document:#}\n"))?;
        true
    } else {
        let shown = report.results.iter().map(|result| skep_test::details(result, style));
        let shown: String = shown.filter(|text| !text.is_empty()).map(|text| format!("{text}\n")).collect();
        let covered = coverage.as_ref().map_or_else(String::new, |(coverage, _)| coverage.summary());
        output::coloured(&format!("{shown}{covered}{}\n", skep_test::summary(&report, style)))?
    };
    if let Some((coverage, programs)) = &coverage {
        written(args, coverage, programs)?;
    }
    if let Some(path) = &args.junit {
        output::file(path, skep_test::junit(&report).as_bytes())?;
    }
    Ok((report, is_read))
}

impl Args {
    /// Whether what programs execute is counted.
    fn covers(&self) -> bool {
        self.coverage || self.lcov.is_some() || self.cobertura.is_some() || self.html.is_some()
    }
}

/// Writes what was executed, as it was asked for.
fn written(args: &Args, coverage: &Coverage, programs: &[(PathBuf, String)]) -> Result<(), Failure> {
    if let Some(path) = &args.lcov {
        output::file(path, coverage.lcov())?;
    }
    if let Some(path) = &args.cobertura {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        output::file(path, coverage.cobertura(now.map_or(0, |now| now.as_secs())))?;
    }
    match &args.html {
        Some(folder) => page::coverage(coverage, programs, folder),
        None => Ok(()),
    }
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
    loop {
        let before = seen(args, &[]);
        let (files, seen_before) = match find(args) {
            Ok(suite) => {
                let files = suite.files();
                if seen(args, &[]) != before {
                    continue; // while they were read
                }
                let before = seen(args, &files);
                if !run(args, &suite)?.1 {
                    return Ok(());
                }
                (files, before)
            }
            Err(Failure::Refused(text) | Failure::Usage(text)) => {
                output::complaint(&format!("skep: {text}\n"));
                (Vec::new(), before)
            }
            Err(other) => return Err(other),
        };
        while seen(args, &files) == seen_before {
            std::thread::sleep(POLL);
        }
        // A compiler writes an object in several steps: wait until nothing changes any more.
        let mut last = seen(args, &files);
        loop {
            std::thread::sleep(POLL / 3);
            let now = seen(args, &files);
            if std::mem::replace(&mut last, now.clone()) == now {
                break;
            }
        }
    }
}

/// What `--watch` compares: the tests' files and whatever else below the paths may have tests, each with its length and
/// the time of its last change.
fn seen(args: &Args, files: &[PathBuf]) -> Vec<(PathBuf, Option<(u64, SystemTime)>)> {
    let mut all = skep_test::candidates(&args.paths);
    all.extend_from_slice(files);
    let of = |file: PathBuf| {
        let about = std::fs::metadata(&file).ok();
        let about = about.and_then(|about| Some((about.len(), about.modified().ok()?)));
        (file, about)
    };
    all.into_iter().map(of).collect()
}
