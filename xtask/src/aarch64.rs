//! aarch64 on a machine of another architecture: cross-compiled, executed by QEMU's user mode.
//!
//! That needs a C compiler and libraries for the target, Rust's standard library for it, and QEMU. They are installed
//! by the same rule as all tools ([`tools`]).

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::process::{Outcome, Process};
use crate::tools;

/// The target's name in Rust.
pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";

const LINKER: &str = "aarch64-linux-gnu-gcc";
const QEMU: &str = "qemu-aarch64";

/// Debian's directory of the target's libraries.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// The oldest usable QEMU; Debian 12's own is 7.2. Older ones do not keep stale instructions, so tests of instruction
/// cache maintenance would pass without it.
const QEMU_AT_LEAST: u32 = 10;

/// This toolchain's compiler, and Debian's, whose package of the target's standard library may be the only one
/// available.
const COMPILERS: [&str; 2] = ["rustc", DEBIANS_COMPILER];
const DEBIANS_COMPILER: &str = "/usr/bin/rustc";
const DEBIANS_PACKAGES: [&str; 3] = ["rustc-web", "rust-web-clippy", "libstd-rust-web-dev:arm64"];

/// The scope of the tests.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ready {
    Compile,
    Run,
}

/// A tool that is installed as a Debian package.
struct Need {
    file: &'static str,
    package: &'static str,
}

const NEEDS: [Need; 2] = [
    Need { file: LINKER, package: "gcc-aarch64-linux-gnu" },
    Need { file: "/usr/aarch64-linux-gnu/include/stdio.h", package: "libc6-dev-arm64-cross" },
];

/// The guest's sysroot, with its loader. If Debian's own C library for the target is installed, every loader prefers
/// it to the sysroot's, and threads of the guest hang unless the loader has the same version. Then the loader comes
/// from there, too.
fn sysroot() -> &'static str {
    let installed = ["/lib/ld-linux-aarch64.so.1", "/lib/aarch64-linux-gnu/libc.so.6"];
    if installed.iter().all(|file| Path::new(file).exists()) { "/" } else { SYSROOT }
}

/// Whether this machine is aarch64, so that the native tests suffice.
pub(crate) fn is_native() -> bool {
    env::consts::ARCH == "aarch64"
}

/// The environment for cross-runs of cargo, for the named processor or one with all features.
pub(crate) fn variables(processor: Option<&str>) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER.to_owned()),
        // Tests that start other executables of this target put the same runner before them.
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner(processor)),
        ("CC_aarch64_unknown_linux_gnu", LINKER.to_owned()),
        // Tests of effects that the emulator lacks say so and pass. Random samples are smaller.
        ("SKEP_EMULATED", "1".to_owned()),
    ];
    if compiler() == Some(DEBIANS_COMPILER) {
        variables.push(("RUSTC", DEBIANS_COMPILER.to_owned()));
        variables.push(("RUSTDOC", "/usr/bin/rustdoc".to_owned()));
    }
    variables
}

/// The words of the runner for the target: an emulator of that processor, or of one with all features.
pub(crate) fn runner(processor: Option<&str>) -> String {
    format!("{QEMU} -cpu {} -L {}", processor.unwrap_or("max"), sysroot())
}

/// Debian's clippy, if Debian's compiler is used: each knows only its own standard library.
pub(crate) fn clippy() -> Option<&'static str> {
    (compiler() == Some(DEBIANS_COMPILER)).then_some("/usr/bin/cargo-clippy")
}

/// Installs missing tools if that is allowed. The error names what is still missing, and the remedy.
pub(crate) fn prepare(ready: Ready) -> Outcome {
    if missing(ready).is_empty() {
        return Ok(());
    }
    // Errors of an attempt are printed; only the state afterwards counts.
    for attempt in [install_needs, install_library, install_qemu] {
        if let Err(reason) = attempt(ready) {
            eprintln!("xtask: {reason}");
        }
    }
    let missing = missing(ready);
    if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) }
}

fn install_needs(_: Ready) -> Outcome {
    let missing = NEEDS.iter().filter(|need| !tools::is_present(need.file));
    let packages: Vec<_> = missing.map(|need| need.package).collect();
    if packages.is_empty() || !tools::may_install() { Ok(()) } else { tools::install(&packages) }
}

fn install_library(_: Ready) -> Outcome {
    if compiler().is_some() {
        return Ok(());
    }
    if tools::find("rustup").is_some()
        && let Err(reason) = Process::new("rustup", &["target", "add", TARGET]).run()
    {
        // There may be no server, or no such toolchain.
        eprintln!("xtask: {reason}");
    }
    // Debian's packages conflict with each other: keep an installed one.
    let taken = [DEBIANS_COMPILER, "/usr/bin/rustup"].iter().any(|file| Path::new(file).exists());
    if compiler().is_some() || !tools::may_install() || taken {
        return Ok(());
    }
    Process::new("dpkg", &["--add-architecture", "arm64"]).run()?;
    tools::install(&DEBIANS_PACKAGES)
}

fn install_qemu(ready: Ready) -> Outcome {
    if ready != Ready::Run || qemu_problem().is_none() || !tools::may_install() {
        return Ok(());
    }
    if tools::is_bookworm() { tools::install_backported("qemu-user") } else { tools::install(&["qemu-user"]) }
}

fn missing(ready: Ready) -> Vec<String> {
    let needs = NEEDS.iter().filter(|need| !tools::is_present(need.file));
    let mut missing: Vec<_> =
        needs.map(|need| format!("{} is missing (Debian: {})", need.file, need.package)).collect();
    if compiler().is_none() {
        missing.push(format!("the standard library is missing (`rustup target add {TARGET}`)"));
    }
    if ready == Ready::Run {
        missing.extend(qemu_problem());
    }
    missing
}

/// The first compiler that has a standard library for the target.
fn compiler() -> Option<&'static str> {
    COMPILERS.into_iter().find(|compiler| {
        let directory = Process::new(compiler, &["--print", "target-libdir", "--target", TARGET]).output();
        let Ok(entries) = fs::read_dir(PathBuf::from(directory.unwrap_or_default().trim())) else {
            return false;
        };
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    })
}

/// The reason why QEMU cannot be used, with the remedy.
fn qemu_problem() -> Option<String> {
    let remedy = "Debian 13: qemu-user; Debian 12: qemu-user of bookworm-backports";
    let Ok(said) = Process::new(QEMU, &["--version"]).output() else {
        return Some(format!("{QEMU} is missing ({remedy})"));
    };
    match major(&said) {
        Some(QEMU_AT_LEAST..) => None,
        _ => Some(format!(
            "{QEMU} {QEMU_AT_LEAST} or later is needed ({remedy}), but this is {}",
            said.lines().next().unwrap_or("unknown")
        )),
    }
}

/// The first number of "qemu-aarch64 version 10.0.2 (Debian ...)".
fn major(said: &str) -> Option<u32> {
    said.split_once("version ")?.1.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_qemu_is_read_from_its_output() {
        let said = "qemu-aarch64 version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright (c) 2003-2025";
        assert_eq!(major(said), Some(10));
        assert_eq!(major("qemu-aarch64 version 7.2.17 (Debian 1:7.2)"), Some(7));
        assert_eq!(major("something else"), None);
    }
}
