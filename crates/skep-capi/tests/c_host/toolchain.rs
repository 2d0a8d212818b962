//! The C compiler, the library that was built for these tests, and places for what they make.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What every C file of ours is held to.
const STRICT: [&str; 6] = ["-std=c99", "-D_GNU_SOURCE", "-pedantic", "-Wall", "-Wextra", "-Werror"];

/// A C compiler for this architecture, or `None` where there is none and the test may be skipped. The variables are those
/// that build scripts know.
pub(crate) fn compiler() -> Option<Command> {
    let cross = format!("CC_{}_unknown_linux_gnu", std::env::consts::ARCH);
    let name = std::env::var_os(cross).or_else(|| std::env::var_os("CC")).unwrap_or_else(|| "cc".into());
    if Command::new(&name).arg("--version").output().is_ok_and(|said| said.status.success()) {
        let mut compiler = Command::new(name);
        compiler.args(STRICT);
        return Some(compiler);
    }
    let required = std::env::var_os("SKEP_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "no C compiler {name:?}, and SKEP_REQUIRE_ALL=1 forbids skipping");
    // Past the test harness, which swallows what passing tests print.
    writeln!(std::io::stderr(), "SKIPPED: the library from C: no compiler {name:?}").expect("it is open");
    None
}

/// This crate's directory.
pub(crate) fn crate_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    crate_root().join("../..")
}

/// The directory that Cargo built `libskep_capi.so` and `libskep_capi.a` into for this test: the test's own.
pub(crate) fn built() -> PathBuf {
    let directory = std::env::current_exe().expect("known").parent().expect("it is in one").to_owned();
    for library in ["libskep_capi.so", "libskep_capi.a"] {
        assert!(directory.join(library).exists(), "{library} is not in {}", directory.display());
    }
    directory
}

/// An empty directory for a test of that name.
pub(crate) fn scratch(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("skep-capi-{test}"));
    let _ = std::fs::remove_dir_all(&directory); // absent the first time
    std::fs::create_dir_all(&directory).expect("Cargo's directory can be written");
    directory
}

/// `program`, started by whatever cargo starts this architecture's executables with.
pub(crate) fn executable(program: &Path) -> Command {
    let architecture = std::env::consts::ARCH.to_uppercase();
    let runner = std::env::var(format!("CARGO_TARGET_{architecture}_UNKNOWN_LINUX_GNU_RUNNER"));
    let runner = runner.unwrap_or_default();
    let mut words = runner.split_whitespace().map(Path::new).chain([program]);
    let mut command = Command::new(words.next().expect("at least the program itself"));
    command.args(words);
    command
}

/// Runs a command that must succeed; what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}\n{errors}");
    out.into_owned()
}
