//! `cargo xtask python`: builds the wheel of the Python package, installs it from the file, and tests it.
//!
//! ```text
//!   target/python/venv     tools of crates/skep-python/requirements.txt, and the wheel; made anew if the list changes
//!   target/python/wheels   the wheel
//! ```
//!
//! The tests see the installed wheel, never the sources: a file that the wheel lacks fails them.

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

/// What the tests said.
pub(crate) struct Tested {
    /// The last line of pytest: `90 passed, 1 skipped in 5.20s`.
    pub(crate) lines: Vec<String>,
    /// Whether everything was right.
    pub(crate) outcome: Outcome,
}

/// Builds, checks and tests, and reports a failure as the outcome.
pub(crate) fn run() -> Outcome {
    match missing() {
        Some(reason) => tools::skip("the Python package", &reason),
        None => test()?.outcome,
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
    let (tests, lines) = pytest()?;
    Ok(Tested { lines, outcome: types.and(tests) })
}

/// The environment with the tools, of exactly the versions that are listed.
fn prepare() -> Outcome {
    let venv = venv();
    let list = fs::read_to_string(workspace::root().join(REQUIREMENTS))
        .map_err(|error| format!("{REQUIREMENTS}: {error}"))?;
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

fn pytest() -> Result<(Outcome, Vec<String>), String> {
    let tests = format!("{CRATE}/tests");
    // No bytecode or cache in the sources.
    let words = ["-B", "-m", "pytest", "-c", SETTINGS, "-p", "no:cacheprovider", "-q", &tests, EXAMPLES];
    python(&words).env("PYTHONDONTWRITEBYTECODE", "1").run_watched()
}

/// A run of the environment's interpreter.
fn python(arguments: &[&str]) -> Process {
    Process::new(venv().join("bin/python"), arguments)
}

fn venv() -> PathBuf {
    workspace::root().join("target/python/venv")
}
