//! The tools that are needed besides Rust, and the rule for missing ones.
//!
//! The rule: on Debian as root, a missing tool is installed. Elsewhere the tests that need it are skipped with a
//! message; with `SKEP_REQUIRE_ALL=1` a skip is a failure. Tests follow the same rule through [`skip`].

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::process::{Outcome, Process};

/// The first word of every line about a skipped test.
pub(crate) const SKIPPED: &str = "SKIPPED:";

/// A tool that may have to be installed.
struct Need {
    /// A file on the search path for programs, an absolute path, or a module of Python as it is called:
    /// `python3 -m NAME`.
    file: &'static str,
    /// The Debian package that contains it.
    package: &'static str,
    /// The purpose that needs it.
    purpose: &'static str,
}

const BPF: &str = "compiling the BPF examples";
const CLIENTS: &str = "applications under the supervisor";
const PYTHON: &str = "the Python package";

const NEEDS: [Need; 16] = [
    Need { file: "clang-19", package: "clang-19", purpose: BPF },
    Need { file: "llvm-strip-19", package: "llvm-19", purpose: BPF },
    Need { file: "/usr/include/bpf/bpf_helpers.h", package: "libbpf-dev", purpose: BPF },
    Need { file: "/usr/include/linux/bpf.h", package: "linux-libc-dev", purpose: BPF },
    Need { file: "perf", package: "linux-perf", purpose: "what profilers see of compiled code" },
    Need { file: "gdb", package: "gdb", purpose: "what debuggers see of compiled code" },
    Need { file: "valgrind", package: "valgrind", purpose: "what valgrind says of a host in C" },
    Need { file: "c++", package: "g++", purpose: "the C library from C++" },
    Need { file: "bpftool", package: "bpftool", purpose: CLIENTS },
    Need { file: "python3", package: "python3", purpose: CLIENTS },
    Need { file: "make", package: "make", purpose: CLIENTS },
    Need { file: "pkg-config", package: "pkg-config", purpose: CLIENTS },
    Need { file: "ip", package: "iproute2", purpose: "programs on live traffic" },
    Need { file: "strace", package: "strace", purpose: CLIENTS },
    Need { file: "genhtml", package: "lcov", purpose: "what readers of lcov's files say of coverage" },
    Need { file: VENV, package: "python3-venv", purpose: PYTHON },
];

/// Python's module that makes environments with pip, which Debian has in a package of its own.
const VENV: &str = "python3 -m ensurepip";

/// Debian 12's list of package sources.
const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";

/// Whether skipped tests must fail.
pub(crate) fn all_required() -> bool {
    std::env::var("SKEP_REQUIRE_ALL").is_ok_and(|value| value == "1")
}

/// Reports that something is skipped and why, without capture by the test harness; an error with
/// `SKEP_REQUIRE_ALL=1`.
pub(crate) fn skip(what: &str, why: &str) -> Outcome {
    if all_required() {
        return Err(format!("{what} cannot be skipped (SKEP_REQUIRE_ALL=1): {why}"));
    }
    // If standard error is closed, the line is lost.
    let _ = writeln!(std::io::stderr(), "{SKIPPED} {what}: {why}");
    Ok(())
}

/// Installs missing tools if possible. Returns one line for each tool that is still missing.
pub(crate) fn prepare() -> Result<Vec<String>, String> {
    if missing().is_empty() {
        return Ok(Vec::new());
    }
    if may_install()
        && let Err(reason) = install(&packages(&missing()))
    {
        eprintln!("xtask: {reason}");
    }
    let still = missing();
    if !still.is_empty() && all_required() {
        let packages = packages(&still).join(" ");
        return Err(format!("missing (SKEP_REQUIRE_ALL=1): {packages}; as root: apt-get install {packages}"));
    }
    let line = |need: &Need| {
        format!("{SKIPPED} {}: {} is missing (Debian: {})", need.purpose, need.file, need.package)
    };
    Ok(still.into_iter().map(line).collect())
}

/// The path of a program on the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Whether a program of that name is on the search path, a file has that absolute path, or Python has that module.
pub(crate) fn is_present(file: &str) -> bool {
    if let Some(module) = file.strip_prefix("python3 -m ") {
        let import = format!("import {module}");
        return find("python3").is_some() && Process::new("python3", &["-c", &import]).output().is_ok();
    }
    if file.starts_with('/') { Path::new(file).exists() } else { find(file).is_some() }
}

/// Whether this is Debian and the user is root.
pub(crate) fn may_install() -> bool {
    is_debian() && is_root()
}

/// A message about missing tools for compiling BPF, if any.
pub(crate) fn missing_for_bpf() -> Option<String> {
    let missing: Vec<_> = missing().into_iter().filter(|need| need.purpose == BPF).collect();
    if missing.is_empty() {
        return None;
    }
    let files: Vec<_> = missing.iter().map(|need| need.file).collect();
    Some(format!("{} missing (Debian packages: {})", files.join(", "), packages(&missing).join(" ")))
}

/// The Debian packages of missing tools for the Python package.
pub(crate) fn missing_for_python() -> Vec<&'static str> {
    let needs = |need: &&Need| need.purpose == PYTHON || need.file == "python3";
    packages(&missing().into_iter().filter(needs).collect::<Vec<_>>())
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !is_present(need.file)).collect()
}

fn packages(needs: &[&Need]) -> Vec<&'static str> {
    needs.iter().map(|need| need.package).collect()
}

fn is_debian() -> bool {
    Path::new("/etc/debian_version").exists() && find("apt-get").is_some()
}

fn is_root() -> bool {
    // The effective user is the second number of the line "Uid:".
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| status.lines().find_map(|line| line.strip_prefix("Uid:").map(str::to_owned)))
        .is_some_and(|users| users.split_whitespace().nth(1) == Some("0"))
}

/// Whether this is Debian 12.
pub(crate) fn is_bookworm() -> bool {
    fs::read_to_string("/etc/os-release").unwrap_or_default().contains("VERSION_CODENAME=bookworm")
}

/// Installs a package of Debian 12's backports, which become one of its sources.
pub(crate) fn install_backported(package: &str) -> Outcome {
    let sources = fs::read_to_string(SOURCES).map_err(|error| format!("{SOURCES}: {error}"))?;
    if let Some(sources) = with_backports(&sources) {
        fs::write(SOURCES, sources).map_err(|error| format!("{SOURCES}: {error}"))?;
    }
    install(&["--target-release", "bookworm-backports", package])
}

/// Debian 12's sources with its backports; `None` if they are included already, or no entry can be extended.
fn with_backports(sources: &str) -> Option<String> {
    let suites =
        |line: &&str| line.starts_with("Suites:") && line.split_whitespace().any(|w| w == "bookworm");
    if sources.contains("bookworm-backports") {
        return None;
    }
    let line = sources.lines().find(suites)?;
    Some(sources.replacen(line, &format!("{} bookworm-backports", line.trim_end()), 1))
}

/// Makes three attempts, because mirrors and locks are sometimes busy.
pub(crate) fn install(packages: &[&str]) -> Outcome {
    const PATIENT: [&str; 4] = ["-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=120"];
    let apt = |arguments: &[&str]| {
        Process::new("apt-get", &[&PATIENT, arguments].concat())
            .env("DEBIAN_FRONTEND", "noninteractive")
            .run()
    };
    let mut outcome = Ok(());
    for pause in [0, 5, 20] {
        thread::sleep(Duration::from_secs(pause));
        outcome = apt(&["update"])
            .and_then(|()| apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat()));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCES: &str = "\
        Types: deb\n\
        URIs: http://deb.debian.org/debian-security\n\
        Suites: bookworm-security\n\
        \n\
        Types: deb\n\
        URIs: http://deb.debian.org/debian\n\
        Suites: bookworm bookworm-updates\n\
        Components: main\n";

    #[test]
    fn backports_are_added_once_to_the_right_archive() {
        let with = with_backports(SOURCES).unwrap();
        let changed: Vec<_> = with.lines().filter(|line| !SOURCES.lines().any(|old| old == *line)).collect();
        assert_eq!(changed, ["Suites: bookworm bookworm-updates bookworm-backports"]);
        assert_eq!(with.lines().count(), SOURCES.lines().count());
        assert_eq!(with_backports(&with), None);
        assert_eq!(with_backports("Types: deb\nSuites: trixie\n"), None);
    }
}
