//! A host in C that uses what hosts in Rust have: plainly, under valgrind, and with the compiler's sanitizer.

use crate::hosts::{example, install, pc};
use crate::toolchain::{compiler, crate_root, root, run, scratch};
use skep_testkit::Hidden;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_host_in_c_has_what_hosts_in_rust_have() {
    let Some((program, library)) = built("parity", &[]) else { return };
    let mut host = skep_testkit::other(&program);
    let said = run(host.env("LD_LIBRARY_PATH", library).args(arguments()));
    assert_eq!(said, "parity: all is as in Rust\n");
}

#[test]
fn valgrind_finds_no_error_and_no_leak_in_a_host_in_c() {
    let what = "errors and leaks of a host in C";
    if skep_testkit::is_emulated() {
        return skep_testkit::hidden(Hidden::DebuggersAndProfilers, what);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skep_testkit::skip(what, "there is no valgrind");
    }
    let Some((program, library)) = built("parity-valgrind", &["-g"]) else { return };
    let mut valgrind = Command::new("valgrind");
    // Code is patched through another mapping, which valgrind does not see.
    valgrind.args([
        "--smc-check=all",
        "--fair-sched=try",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]);
    run(valgrind.env("LD_LIBRARY_PATH", library).arg(program).args(arguments()));
}

#[test]
fn the_address_sanitizer_finds_no_error_and_no_leak_in_a_host_in_c() {
    let what = "errors and leaks of a host in C, by the compiler";
    if skep_testkit::is_emulated() {
        return skep_testkit::hidden(Hidden::DebuggersAndProfilers, what);
    }
    // Not position-independent: where addresses are random in 32 bits, it may be placed where the sanitizer's heap is.
    let flags = ["-g", "-fsanitize=address", "-no-pie"];
    let Some((program, library)) = built("parity-asan", &flags) else { return };
    let mut host = Command::new(program);
    // Reads that may fault are part of skep, whose own handler comes first.
    host.env("ASAN_OPTIONS", "handle_segv=0:handle_sigbus=0:detect_leaks=1");
    run(host.env("LD_LIBRARY_PATH", library).args(arguments()));
}

/// The host's program, and where its library is.
fn built(test: &str, flags: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let mut compiler = compiler()?;
    let prefix = scratch(test);
    install(&prefix);
    let program = prefix.join("parity");
    compiler.args(flags).arg("-pthread").arg("-o").arg(&program);
    let sources = ["parity.c", "limits.c"].map(|name| crate_root().join("tests/c_host").join(name));
    compiler.args(sources).args(pc(&prefix, &["Cflags", "Libs"]));
    run(&mut compiler);
    Some((program, prefix.join("lib")))
}

fn arguments() -> [OsString; 6] {
    let typed = |name: &str| root().join("crates/skep/tests/objects/typed").join(name);
    [
        crate_root().join("tests/objects/parity.bpf.o"),
        typed("typed.bpf.o"),
        typed("grown.bpf.o"),
        root().join("crates/skep-cli/tests/objects/missing_null_check.bpf.o"),
        example("raw"),
        root().join("crates/skep-python/tests/objects/ticks.bpf.o"),
    ]
    .map(PathBuf::into_os_string)
}
