//! `cargo xtask python`: builds the wheel of the Python package, installs it from the file, and tests it.
//!
//! ```text
//!   target/python/venv     tools of crates/skep-python/requirements.txt, and the wheel; made anew if the list changes
//!   target/python/wheels   the wheel
//!   target/python/pytest   which tests failed
//! ```
//!
//! The tests see the installed wheel, never the sources: a file that the wheel lacks fails them. Those that fail run
//! once more; what passes then is named as unstable.

use std::fs;
use std::path::PathBuf;

use crate::process::{Outcome, Process};
use crate::{tools, workspace};

const CRATE: &str = "crates/skep-python";
const REQUIREMENTS: &str = "crates/skep-python/requirements.txt";
/// The settings of mypy and pytest.
const SETTINGS: &str = "crates/skep-python/pyproject.toml";
const EXAMPLES: &str = "examples/python";
const WHEELS: &str = "target/python/wheels";
/// The seconds that a run of pytest may take. It takes about ten.
const LIMIT: &str = "900";

/// What the tests said.
pub(crate) struct Tested {
    /// The lines of pytest's first run; the last is `90 passed, 1 skipped in 5.20s`.
    pub(crate) lines: Vec<String>,
    /// Tests that failed in it and passed in a second one.
    unstable: Vec<String>,
    /// Whether everything was right.
    pub(crate) outcome: Outcome,
}

impl Tested {
    /// What the summary says of tests that passed at the second attempt, if there are any.
    pub(crate) fn unstable_line(&self) -> Option<String> {
        let names = self.unstable.join(", ");
        let line = format!("tests of the Python package: {names}: passed at the second attempt");
        (!names.is_empty()).then_some(line)
    }
}

/// Builds, checks and tests, and reports a failure as the outcome.
pub(crate) fn run() -> Outcome {
    match missing() {
        Some(reason) => tools::skip("the Python package", &reason),
        None => {
            let tested = test()?;
            if let Some(line) = tested.unstable_line() {
                eprintln!("UNSTABLE: {line}");
            }
            tested.outcome
        }
    }
}

/// Why the package cannot be tested here.
pub(crate) fn missing() -> Option<String> {
    let missing = tools::missing_for_python();
    (!missing.is_empty()).then(|| format!("missing (Debian packages): {}", missing.join(" ")))
}

/// Builds, checks and tests. An error says that there is nothing to test.
pub(crate) fn test() -> Result<Tested, String> {
    prepare()?;
    install()?;
    let types = check_types();
    let _ = fs::remove_dir_all(cache());
    let (mut tests, lines) = pytest(&[])?;
    let mut unstable = Vec::new();
    let failed = failed_tests(&lines);
    // A run that crashed or did not end names none, and gets no second chance.
    if tests.is_err() && !failed.is_empty() {
        let (second, again) = pytest(&["--last-failed", "--last-failed-no-failures", "none"])?;
        let all = format!("{} passed", failed.len());
        if second.is_ok() && again.iter().any(|line| line.split([' ', ',']).take(2).eq(all.split(' '))) {
            (tests, unstable) = (second, failed);
        }
    }
    Ok(Tested { lines, unstable, outcome: types.and(tests) })
}

/// The environment with the tools, of exactly the versions that are listed.
fn prepare() -> Outcome {
    let venv = venv();
    let list = fs::read_to_string(workspace::root().join(REQUIREMENTS))
        .map_err(|error| format!("{REQUIREMENTS}: {error}"))?;
    // An environment is of one interpreter.
    let list = format!("# {}{list}", Process::new("python3", &["-VV"]).output()?);
    // Written last, so a half-made environment has none.
    let stamp = venv.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == list) {
        return Ok(());
    }
    let directory = venv.display().to_string();
    Process::new("python3", &["-m", "venv", "--clear", &directory]).run()?;
    python(&["-m", "pip", "install", "--quiet", "--retries", "5", "--requirement", REQUIREMENTS]).run()?;
    fs::write(&stamp, list).map_err(|error| format!("{}: {error}", stamp.display()))
}

/// Builds the wheel, and installs that file alone.
fn install() -> Outcome {
    let wheels = workspace::root().join(WHEELS);
    let _ = fs::remove_dir_all(&wheels);
    let out = wheels.display().to_string();
    let interpreter = venv().join("bin/python").display().to_string();
    // The profile of the tests; `linux`, since a wheel for other machines would have to be built on an old one.
    let arguments = [
        ["build", "--profile", "dev", "--locked"].as_slice(),
        &["--compatibility", "linux", "--interpreter", &interpreter, "--out", &out],
    ];
    Process::new(venv().join("bin/maturin"), &arguments.concat()).at(&workspace::root().join(CRATE)).run()?;
    let entries = fs::read_dir(&wheels).map_err(|error| format!("{WHEELS}: {error}"))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let [wheel] = files.as_slice() else {
        return Err(format!("expected one wheel in {WHEELS}, found {}", files.len()));
    };
    let wheel = wheel.display().to_string();
    python(&["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--force-reinstall", &wheel]).run()
}

/// Types of the package, of its tests, and of the native half against its declarations.
fn check_types() -> Outcome {
    let sources = format!("{CRATE}/python/skep");
    let tests = format!("{CRATE}/tests");
    python(&["-m", "mypy", "--config-file", SETTINGS, &sources, &tests, EXAMPLES]).run()?;
    python(&["-m", "mypy.stubtest", "--mypy-config-file", SETTINGS, "skep._skep"]).run()
}

fn pytest(choice: &[&str]) -> Result<(Outcome, Vec<String>), String> {
    let tests = format!("{CRATE}/tests");
    let interpreter = venv().join("bin/python").display().to_string();
    // No bytecode or cache in the sources.
    let cache = format!("cache_dir={}", cache().display());
    // At the limit, Python shows what each thread does and ends.
    let words = [
        &["--foreground", "--signal=ABRT", "--kill-after=10", LIMIT, &interpreter][..],
        &["-B", "-m", "pytest", "-c", SETTINGS, "-o", &cache, "-q", &tests, EXAMPLES],
        choice,
    ];
    Process::new("timeout", &words.concat()).env("PYTHONDONTWRITEBYTECODE", "1").run_watched()
}

/// The names in pytest's lines about failed tests: `FAILED tests/test_maps.py::test_all - AssertionError: ...`.
fn failed_tests(lines: &[String]) -> Vec<String> {
    let named = |line: &String| {
        let line = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
        Some(line.split(" - ").next().unwrap_or(line).to_owned())
    };
    let mut names: Vec<String> = lines.iter().filter_map(named).collect();
    // A test may fail, and then what cleans up after it.
    names.sort();
    names.dedup();
    names
}

/// What pytest keeps of a run for the next one.
fn cache() -> PathBuf {
    workspace::root().join("target/python/pytest")
}

/// A run of the environment's interpreter.
fn python(arguments: &[&str]) -> Process {
    Process::new(venv().join("bin/python"), arguments)
}

fn venv() -> PathBuf {
    workspace::root().join("target/python/venv")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_failed_tests_are_found_in_the_output() {
        let lines =
            ["F.", "FAILED tests/a.py::one[x] - assert 1 == 2", "ERROR tests/a.py::one[x]", "1 failed in 2s"];
        assert_eq!(failed_tests(&lines.map(str::to_owned)), ["tests/a.py::one[x]"]);
    }
}
