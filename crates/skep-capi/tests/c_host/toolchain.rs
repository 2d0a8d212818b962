//! The C compiler, the library built for these tests, and directories for their output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compiler warnings for every C file.
const STRICT: [&str; 6] = ["-std=c99", "-D_GNU_SOURCE", "-pedantic", "-Wall", "-Wextra", "-Werror"];

/// A C compiler for this architecture, or `None` if there is none and the test may be skipped. The variables are
/// those that build scripts use.
pub(crate) fn compiler() -> Option<Command> {
    let cross = format!("CC_{}_unknown_linux_gnu", std::env::consts::ARCH);
    let name = std::env::var_os(cross).or_else(|| std::env::var_os("CC")).unwrap_or_else(|| "cc".into());
    if Command::new(&name).arg("--version").output().is_ok_and(|said| said.status.success()) {
        let mut compiler = Command::new(name);
        compiler.args(STRICT);
        return Some(compiler);
    }
    skep_testkit::skip("the library from C", &format!("no compiler {name:?}"));
    None
}

/// A C++ compiler that checks syntax, which is the same for every architecture, or `None` if there is none and the test
/// may be skipped.
pub(crate) fn cpp() -> Option<Command> {
    let name = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if Command::new(&name).arg("--version").output().is_ok_and(|said| said.status.success()) {
        let mut compiler = Command::new(name);
        compiler.args(["-std=c++17", "-D_GNU_SOURCE", "-pedantic", "-Wall", "-Wextra", "-Werror"]);
        return Some(compiler);
    }
    skep_testkit::skip("the library from C++", &format!("no compiler {name:?}"));
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

/// The directory where Cargo built `libskep_capi.so` and `libskep_capi.a` for this test: the test's own.
pub(crate) fn built() -> PathBuf {
    let directory = std::env::current_exe().expect("known").parent().expect("it is in one").to_owned();
    for library in ["libskep_capi.so", "libskep_capi.a"] {
        assert!(directory.join(library).exists(), "{library} is not in {}", directory.display());
    }
    directory
}

/// An empty directory for the test of that name.
pub(crate) fn scratch(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("skep-capi-{test}"));
    let _ = std::fs::remove_dir_all(&directory); // absent the first time
    std::fs::create_dir_all(&directory).expect("Cargo's directory can be written");
    directory
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}\n{errors}");
    out.into_owned()
}
