//! `cargo xtask test`: every test there is, then one summary that nobody can overlook.
//!
//! Tests that cannot do something on a machine print a line that begins with `SKIPPED:` straight to standard error and
//! pass, or fail where `SKEP_REQUIRE_ALL` is 1. Those lines are collected here and repeated at the end.
//!
//! Everything runs for this machine's architecture, then for aarch64 in an emulator. What no emulator of user programs
//! can show is repeated too, from lines that begin with `HIDDEN BY EMULATION:`; it is no failure.

use crate::aarch64::{self, Ready};
use crate::process::{self, Outcome};
use crate::tools::{self, SKIPPED};

/// How a line begins that says what an emulator cannot show.
const HIDDEN: &str = "HIDDEN BY EMULATION:";

/// For which architectures tests run.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Selection {
    All,
    Native,
    Aarch64,
}

/// One run of cargo.
struct Step {
    name: &'static str,
    on: Selection,
    /// The processor that is emulated, in place of one that can do everything.
    processor: Option<&'static str>,
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
}

/// All targets includes examples and benchmarks, which are thereby kept compiling, but not documentation.
///
/// The models are the lock-free parts of skep-rcu and skep-mem built with loom in place of the standard library, which explores the
/// orders in which threads can meet. They have a target directory of their own: other flags would rebuild the rest.
const STEPS: [Step; 6] = [
    Step {
        name: "unit and integration tests",
        on: Selection::Native,
        processor: None,
        arguments: &["test", "--workspace", "--all-targets"],
        variables: &[],
    },
    Step {
        name: "documentation tests",
        on: Selection::Native,
        processor: None,
        arguments: &["test", "--workspace", "--doc"],
        variables: &[],
    },
    Step {
        name: "models of lock-free code",
        on: Selection::Native,
        processor: None,
        arguments: &[
            "test",
            "--package",
            "skep-rcu",
            "--package",
            "skep-mem",
            "--lib",
            "--target-dir",
            "target/loom",
        ],
        variables: &[("RUSTFLAGS", "--cfg loom"), ("RUST_BACKTRACE", "0")],
    },
    // This program itself is for the developer's machine.
    Step {
        name: "aarch64: unit and integration tests",
        on: Selection::Aarch64,
        processor: None,
        arguments: &[
            "test",
            "--workspace",
            "--exclude",
            "xtask",
            "--all-targets",
            "--target",
            aarch64::TARGET,
        ],
        variables: &[],
    },
    Step {
        name: "aarch64: documentation tests",
        on: Selection::Aarch64,
        processor: None,
        arguments: &["test", "--workspace", "--exclude", "xtask", "--doc", "--target", aarch64::TARGET],
        variables: &[],
    },
    // The first processor of the architecture: no atomic instructions, no pointer authentication, no landing pads.
    Step {
        name: "aarch64: the same programs on an old processor",
        on: Selection::Aarch64,
        processor: Some("cortex-a53"),
        arguments: &[
            "test",
            "--package",
            "skep-testgen",
            "--test",
            "same_everywhere",
            "--test",
            "every_instruction",
            "--target",
            aarch64::TARGET,
        ],
        variables: &[],
    },
];

/// How many tests a run of cargo had, as its harnesses said.
#[derive(Debug, Default, PartialEq)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
}

/// Runs everything that is selected, also after a failure: one run shows all that is broken.
pub(crate) fn run(selection: Selection) -> Outcome {
    let mut skipped = tools::prepare()?;
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
        // On an aarch64 machine the native tests are what was asked for.
        Selection::Aarch64 => aarch64 && unready.is_none(),
        _ => selection != Selection::Aarch64 || aarch64::is_native(),
    };
    let mut summary = Vec::new();
    let mut failed = false;
    for step in STEPS.iter().filter(chosen) {
        let (outcome, lines) = step.cargo().run_watched()?;
        let count = Count::of(&lines);
        skipped
            .extend(lines.into_iter().filter(|line| line.starts_with(SKIPPED) || line.starts_with(HIDDEN)));
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        let Count { passed, failed: broken, ignored } = count;
        summary
            .push(format!("{verdict:6} {}: {passed} passed, {broken} failed, {ignored} ignored", step.name));
        failed |= outcome.is_err();
    }

    eprintln!("\n---- summary ----");
    summary.iter().for_each(|line| eprintln!("{line}"));
    skipped.sort();
    skipped.dedup();
    skipped.iter().for_each(|line| eprintln!("{line}"));
    if failed {
        return Err("some tests failed".to_owned());
    }
    if tools::all_required() && skipped.iter().any(|line| line.starts_with(SKIPPED)) {
        return Err("something was skipped, and SKEP_REQUIRE_ALL is 1".to_owned());
    }
    Ok(())
}

impl Step {
    fn cargo(&self) -> process::Process {
        // Without --no-fail-fast cargo stops at the first crate that fails.
        let mut cargo = process::cargo(&[self.arguments, &["--no-fail-fast"]].concat());
        for (name, value) in self.variables {
            cargo = cargo.env(name, value);
        }
        if self.on == Selection::Aarch64 {
            for (name, value) in aarch64::variables(self.processor) {
                cargo = cargo.env(name, &value);
            }
        }
        cargo
    }
}

impl Count {
    /// Adds up the lines "test result: ok. 3 passed; 0 failed; 1 ignored; ...".
    fn of(lines: &[String]) -> Self {
        let mut total = Self::default();
        for line in lines.iter().filter(|line| line.starts_with("test result:")) {
            let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                let number = || pair[0].parse().unwrap_or(0);
                match pair[1] {
                    "passed" => total.passed += number(),
                    "failed" => total.failed += number(),
                    "ignored" => total.ignored += number(),
                    _ => {}
                }
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_harnesses_are_added_up() {
        let lines = [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "a line with 7 passed in it",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ];
        let count = Count::of(&lines.map(str::to_owned));
        assert_eq!(count, Count { passed: 13, failed: 2, ignored: 1 });
    }
}
