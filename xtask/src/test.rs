//! `cargo xtask test`: runs all tests, then prints one summary.
//!
//! Cargo builds the test programs of a step, and [`binaries`] runs them, several at a time. Cargo runs the
//! documentation tests itself.
//!
//! Tests that cannot run on a machine print a line that begins with `SKIPPED:` directly to standard error and pass;
//! with `SKEP_REQUIRE_ALL=1` they fail. The summary repeats those lines.
//!
//! All tests run for this machine's architecture. Tests of machine-dependent crates then run for aarch64 in an
//! emulator. The summary also repeats lines that begin with `HIDDEN BY EMULATION:`, for effects that no emulator of
//! user programs shows; they are not failures. Lines that begin with `UNSTABLE:` name tests that failed beside others
//! and passed alone.

mod binaries;
mod bounded;
mod count;

use std::time::Instant;

use crate::aarch64::{self, Ready};
use crate::clients;
use crate::process::{self, Outcome, Process};
use crate::python;
use crate::tools::{self, SKIPPED};
use binaries::{Binary, Surroundings, UNSTABLE};
use count::Count;

/// The prefix of lines about effects that an emulator cannot show.
const HIDDEN: &str = "HIDDEN BY EMULATION:";

/// The architectures for which tests run.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Selection {
    All,
    Native,
    Aarch64,
}

/// The tests that one run of cargo builds.
struct Step {
    name: &'static str,
    on: Selection,
    packages: Packages,
    /// Further arguments of `cargo test`.
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    run: Run,
}

enum Packages {
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

/// The selection of tests, and how they run.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    /// All test programs.
    Programs,
    /// Documentation tests, which are not programs of their own.
    Documentation,
    /// A package's tests whose names contain one of the words, on a processor with few features.
    On { processor: &'static str, package: &'static str, words: &'static [&'static str] },
}

/// Machine-dependent crates: threads, code, memory, the ABI of C, and the generator of programs for the engines. The
/// other crates have no `unsafe` and name no architecture: clippy compiles them for aarch64, and the tests of `skep`
/// load and run objects through them there.
const MACHINE: &[&str] = &[
    "skep-rcu",
    "skep-text",
    "skep-mem",
    "skep-maps",
    "skep-abi",
    "skep-jit",
    "skep-interp",
    "skep",
    "skep-capi",
    "skep-testgen",
    "skep-testkit",
    "skep-preload",
];

/// All targets: includes examples and benchmarks, so that they keep compiling, but not documentation.
///
/// The models are lock-free code built with loom in place of the standard library, which explores the orders in which
/// threads can meet. That is the same on every processor. They have a target directory of their own: other flags would
/// rebuild the rest. More optimisation takes longer to compile than it saves: loom spends its time switching threads.
const STEPS: [Step; 6] = [
    Step {
        name: "unit and integration tests",
        on: Selection::Native,
        packages: Packages::AllBut(&[MODELS, PYTHON]),
        arguments: &["--all-targets", "--features", "skep/tokio,skep-cli/kernel"],
        variables: &[],
        run: Run::Programs,
    },
    Step {
        name: "documentation tests",
        on: Selection::Native,
        packages: Packages::AllBut(&[MODELS, PYTHON]),
        arguments: &["--doc", "--features", "skep/tokio,skep-cli/kernel"],
        variables: &[],
        run: Run::Documentation,
    },
    Step {
        name: "models of lock-free code",
        on: Selection::Native,
        packages: Packages::Only(&["skep-rcu", "skep-mem", MODELS]),
        arguments: &[
            "--lib",
            "--test",
            "ring",
            "--test",
            "fault",
            "--test",
            "bell",
            "--test",
            "gate",
            "--target-dir",
            "target/loom",
        ],
        variables: &[("RUSTFLAGS", "--cfg loom"), ("RUST_BACKTRACE", "0")],
        run: Run::Programs,
    },
    Step {
        name: "aarch64: unit and integration tests",
        on: Selection::Aarch64,
        packages: Packages::Only(MACHINE),
        arguments: &["--all-targets"],
        variables: &[],
        run: Run::Programs,
    },
    // The first processor of the architecture: no atomic instructions, no pointer authentication, no landing pads.
    // The packages are the same as above, so that nothing is rebuilt.
    Step {
        name: "aarch64: the same programs on an old processor",
        on: Selection::Aarch64,
        packages: Packages::Only(MACHINE),
        arguments: &["--all-targets"],
        variables: &[],
        run: Run::On {
            processor: "cortex-a53",
            package: "skep-testgen",
            words: &["same_everywhere::", "every_instruction::"],
        },
    },
    Step {
        name: "aarch64: documentation tests",
        on: Selection::Aarch64,
        packages: Packages::Only(MACHINE),
        arguments: &["--doc"],
        variables: &[],
        run: Run::Documentation,
    },
];

const MODELS: &str = "skep-models";
/// Only an interpreter can load it: see [`python`].
const PYTHON: &str = "skep-python";

/// The result of a step.
struct Ran {
    passed: bool,
    count: Count,
    /// The lines about skipped tests, hidden effects and unstable tests.
    skipped: Vec<String>,
}

/// The test programs among the lines of `cargo test --no-run --message-format=json`.
pub(crate) fn executables(lines: &[String]) -> Vec<String> {
    lines.iter().filter_map(|line| Binary::of(line)).map(|binary| binary.executable()).collect()
}

/// Runs everything selected, even after a failure, so that one run shows all failures.
pub(crate) fn run(selection: Selection) -> Outcome {
    let mut skipped = tools::prepare()?;
    if selection != Selection::Aarch64 {
        clients::prepare();
    }
    let aarch64 = selection != Selection::Native && !aarch64::is_native();
    let unready = if aarch64 { aarch64::prepare(Ready::Run).err() } else { None };
    if let Some(reason) = &unready {
        let what = "tests for aarch64";
        tools::skip(what, reason)?;
        skipped.push(format!("{SKIPPED} {what}: {reason}"));
    }
    for line in &skipped {
        eprintln!("{line}");
    }
    let chosen = |step: &&Step| match step.on {
        // On an aarch64 machine the native tests are the requested ones.
        Selection::Aarch64 => aarch64 && unready.is_none(),
        _ => selection != Selection::Aarch64 || aarch64::is_native(),
    };
    let mut summary = Vec::new();
    let mut failed = false;
    let mut total = Count::default();
    for step in STEPS.iter().filter(chosen) {
        let started = Instant::now();
        let result = step.run()?;
        let seconds = started.elapsed().as_secs();
        skipped.extend(result.skipped);
        let verdict = if result.passed { "ok" } else { "FAILED" };
        summary.push(format!("{verdict:6} {}: {}, {seconds} s", step.name, result.count));
        failed |= !result.passed;
        total += result.count;
    }

    if selection != Selection::Aarch64 || aarch64::is_native() {
        let started = Instant::now();
        let result = test_python()?;
        let seconds = started.elapsed().as_secs();
        let verdict = if result.passed { "ok" } else { "FAILED" };
        summary.push(format!("{verdict:6} Python package: {}, {seconds} s", result.count));
        skipped.extend(result.skipped);
        failed |= !result.passed;
        total += result.count;
    }

    eprintln!("\n---- summary ----");
    summary.iter().for_each(|line| eprintln!("{line}"));
    eprintln!("       in all: {total}");
    skipped.sort();
    skipped.dedup();
    skipped.iter().for_each(|line| eprintln!("{line}"));
    if failed {
        return Err("some tests failed".to_owned());
    }
    if tools::all_required() && skipped.iter().any(|line| line.starts_with(SKIPPED)) {
        return Err("tests were skipped, and SKEP_REQUIRE_ALL is 1".to_owned());
    }
    Ok(())
}

/// The tests of the Python package, which have a harness of their own.
fn test_python() -> Result<Ran, String> {
    const WHAT: &str = "the Python package";
    if let Some(reason) = python::missing() {
        tools::skip(WHAT, &reason)?;
        let skipped = vec![format!("{SKIPPED} {WHAT}: {reason}")];
        return Ok(Ran { passed: true, count: Count::default(), skipped });
    }
    let tested = match python::test() {
        Ok(tested) => tested,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            return Ok(Ran { passed: false, count: Count::default(), skipped: Vec::new() });
        }
    };
    if let Err(reason) = &tested.outcome {
        eprintln!("xtask: {reason}");
    }
    let mut count = Count::of_pytest(&tested.lines);
    let unstable = tested.unstable_line().map(|line| format!("{UNSTABLE} {line}"));
    if unstable.is_some() {
        count.passed += count.failed;
        count.failed = 0;
    }
    let passed = tested.outcome.is_ok() && count.passed > 0;
    Ok(Ran { passed, count, skipped: unstable.into_iter().collect() })
}

impl Step {
    fn run(&self) -> Result<Ran, String> {
        match self.run {
            Run::Documentation => self.run_documentation(),
            Run::Programs => self.run_programs(None, None, None),
            Run::On { processor, package, words } => {
                let mut all = Ran { passed: true, count: Count::default(), skipped: Vec::new() };
                for word in words {
                    let ran = self.run_programs(Some(processor), Some(package), Some(word))?;
                    all.passed &= ran.passed;
                    all.count += ran.count;
                    all.skipped.extend(ran.skipped);
                }
                Ok(all)
            }
        }
    }

    fn run_documentation(&self) -> Result<Ran, String> {
        // Without --no-fail-fast cargo stops at the first crate that fails.
        let (outcome, lines) = self.cargo(None, &["--no-fail-fast"]).run_watched()?;
        Ok(Ran { passed: outcome.is_ok(), count: Count::of(&lines), skipped: remarks(lines) })
    }

    fn run_programs(
        &self,
        processor: Option<&str>,
        package: Option<&str>,
        word: Option<&'static str>,
    ) -> Result<Ran, String> {
        let build = ["--no-run", "--message-format", "json-render-diagnostics"];
        let (outcome, lines) = self.cargo(processor, &build).run_listed()?;
        if let Err(reason) = outcome {
            eprintln!("xtask: {reason}");
            return Ok(Ran { passed: false, count: Count::default(), skipped: Vec::new() });
        }
        let binaries = lines.iter().filter_map(|line| Binary::of(line));
        let binaries: Vec<_> =
            binaries.filter(|binary| package.is_none_or(|name| binary.is_of(name))).collect();
        if binaries.is_empty() {
            return Err(
                "cargo reported no test program: the format of its messages may have changed".to_owned()
            );
        }
        let surroundings =
            Surroundings { runner: self.runner(processor), variables: self.variables(processor), word };
        let ended = binaries::run(binaries, &surroundings);
        let mut count = Count::default();
        ended.iter().for_each(|ended| count += ended.count);
        Ok(Ran {
            // A word that matches no name any more would go unnoticed.
            passed: ended.iter().all(|ended| ended.passed) && count.passed > 0,
            count,
            skipped: remarks(ended.into_iter().flat_map(|ended| ended.lines)),
        })
    }

    fn cargo(&self, processor: Option<&str>, further: &[&str]) -> Process {
        let mut words = vec!["test"];
        match self.packages {
            Packages::AllBut(packages) => {
                words.push("--workspace");
                words.extend(packages.iter().flat_map(|package| ["--exclude", package]));
            }
            Packages::Only(packages) => {
                words.extend(packages.iter().flat_map(|package| ["--package", package]));
            }
        }
        words.extend(self.arguments);
        if self.on == Selection::Aarch64 {
            words.extend(["--target", aarch64::TARGET]);
        }
        words.extend(further);
        self.variables(processor)
            .iter()
            .fold(process::cargo(&words), |cargo, (name, value)| cargo.env(name, value))
    }

    fn variables(&self, processor: Option<&str>) -> Vec<(&'static str, String)> {
        let mut variables: Vec<_> =
            self.variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        if self.on == Selection::Aarch64 {
            variables.extend(aarch64::variables(processor));
        }
        variables
    }

    /// The words of the runner of test programs.
    fn runner(&self, processor: Option<&str>) -> Vec<String> {
        if self.on != Selection::Aarch64 {
            return Vec::new();
        }
        aarch64::runner(processor).split_whitespace().map(str::to_owned).collect()
    }
}

/// The lines to repeat in the summary.
fn remarks(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let matters = |line: &String| [SKIPPED, HIDDEN, UNSTABLE].iter().any(|prefix| line.starts_with(prefix));
    lines.into_iter().filter(matters).collect()
}
