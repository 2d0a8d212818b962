//! The commands for development of skep: `cargo xtask COMMAND`.
//!
//! The crate depends only on `packets/` and compiles in a second or two, because it is compiled first on every
//! machine.
//!
//! | command | |
//! |---|---|
//! | `test [--native\|--aarch64]` | all tests, natively and for aarch64 in an emulator; installs the tools they need if it runs as root on Debian |
//! | `lint` | formatting, clippy, documentation, and the project's own rules |
//! | `examples [--check]` | rebuilds the BPF objects and captures, or names those that differ from the committed ones |
//! | `bench NAME [OPTIONS]` | benchmarks skep against other engines, in release mode |
//! | `fuzz [TARGET] [--seconds N]` | one fuzzer or all of them |
//! | `soak [--minutes N]` | the soak tests for N minutes, in release mode |
//! | `sanitize [miri\|address\|thread]` | tests under Miri and the compiler's sanitizers |
//! | `package [ARGUMENTS]` | packs and builds every published crate |
//! | `python` | builds the wheel of the Python package, installs it into an environment, and tests it |
//! | `pkeys --vm VMLINUZ` | the tests that need protection keys, in a virtual machine whose processor has them |
//! | `verdicts ARGUMENTS` | asks a Linux kernel for its verdicts on the programs of the verifier's verdict files |
//!
//! Exit status: 0 success, 1 failure, 2 wrong usage.

#![forbid(unsafe_code)]

mod aarch64;
mod arrows;
mod capture;
mod clients;
mod examples;
mod folders;
mod fuzz;
mod lint;
mod memory;
mod package;
mod pkeys;
mod process;
mod python;
mod random;
mod sanitize;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--native|--aarch64]     run every test, here and for aarch64 in an emulator, or in one of these places only;
                                installs what they need where it may
  lint                          formatting, clippy, documentation, house rules
  examples [--check]            rebuild BPF objects and captures, or compare them with the committed ones
  bench NAME [OPTIONS]          benchmark skep against other engines, in release mode; --help lists the benchmarks
  fuzz [TARGET] [--seconds N]   run one fuzzer or all of them, 60 seconds each unless told
  soak [--minutes N]            run the soak tests in release mode, 10 minutes in all unless told
  sanitize [miri|address|thread]
                                run tests under Miri, AddressSanitizer or ThreadSanitizer, or all of them; needs a
                                nightly compiler
  package [ARGUMENTS]           pack every published crate, and build it from what was packed
  python                        build the wheel of the Python package, install it from the file, check and test it
  pkeys --vm VMLINUZ            run the tests that need protection keys under that kernel, on a processor of QEMU's
  verdicts --vm VMLINUZ [FILE]  ask that kernel, in a virtual machine, for its verdict on each program that skep's
                                verifier is compared over, and write them beside the programs; --help says more

With SKEP_REQUIRE_ALL=1 in the environment, whatever would be skipped is a failure.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test"] => test::run(test::Selection::All),
        ["test", "--native"] => test::run(test::Selection::Native),
        ["test", "--aarch64"] => test::run(test::Selection::Aarch64),
        ["lint"] => lint::run(),
        ["examples"] => examples::rebuild(),
        ["examples", "--check"] => examples::check(),
        ["bench", rest @ ..] => {
            let fixed =
                ["run", "--release", "--quiet", "--package", "skep-bench", "--features", "opponents", "--"];
            process::cargo(&[&fixed, rest].concat()).run()
        }
        ["fuzz", rest @ ..] => match fuzz::Request::parse(rest) {
            Some(request) => fuzz::run(&request),
            None => return wrong_usage(),
        },
        ["soak"] => soak(10),
        ["soak", "--minutes", minutes] => match minutes.parse() {
            Ok(minutes @ 1..=10_000) => soak(minutes),
            _ => return wrong_usage(),
        },
        ["sanitize"] => sanitize::run(None).unwrap_or(Ok(())),
        ["sanitize", tool] => match sanitize::run(Some(tool)) {
            Some(outcome) => outcome,
            None => return wrong_usage(),
        },
        ["package", rest @ ..] => package::run(rest),
        ["python"] => python::run(),
        ["pkeys", "--vm", kernel] => pkeys::run(kernel),
        ["verdicts", rest @ ..] => verdicts(rest),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => return wrong_usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// A third of the time each for code memory alone, for whole programs, and for sequences of safe calls, which differ
/// each time.
fn soak(minutes: u32) -> process::Outcome {
    let seconds = (minutes * 60 / 3).to_string();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = format!("{since}000000");
    let parts: [(&str, &[&str]); 3] = [
        ("skep-text", &["--test", "soak"]),
        ("skep", &["--test", "soak"]),
        ("skep", &["--lib", "sequences"]),
    ];
    parts.into_iter().try_for_each(|(package, what)| {
        let arguments = [&["test", "--release", "--package", package], what, &["--", "--nocapture"]].concat();
        process::cargo(&arguments).env("SKEP_SOAK_SECONDS", &seconds).env("SKEP_SEED", &seed).run()
    })
}

/// Checks the given files, or all.
fn verdicts(arguments: &[&str]) -> process::Outcome {
    let mut words = vec!["run", "--quiet", "--package", "skep-verdicts", "--"];
    words.extend(arguments);
    let files = workspace::files_below(&workspace::root().join("crates/skep-verifier/verdicts"), ".verdicts");
    let answers = workspace::files_below(&workspace::root().join("crates/skep/tests/answers"), ".answers");
    let all: Vec<String> = files.iter().chain(&answers).map(|path| path.display().to_string()).collect();
    let asks_for_tables = arguments.contains(&"--probe");
    if !asks_for_tables
        && !arguments.iter().any(|word| word.ends_with(".verdicts") || word.ends_with(".answers"))
    {
        words.extend(all.iter().map(String::as_str));
    }
    process::cargo(&words).run()
}

fn wrong_usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}
