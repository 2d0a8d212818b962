//! `cargo xtask pkeys --vm VMLINUZ`: the tests of guarded memory that need a processor with protection keys. QEMU
//! emulates one, so any machine can run them.

use crate::process::{self, Outcome};
use crate::test;

/// Test programs.
const PROGRAMS: [&[&str]; 2] =
    [&["--package", "skep-guard", "--test", "all"], &["--package", "skep", "--test", "all"]];

/// The tests of these programs that are about guarded memory.
const ARGUMENTS: [&str; 3] = ["guarded::", "--include-ignored", "--test-threads=1"];

pub(crate) fn run(kernel: &str) -> Outcome {
    let mut words: Vec<String> =
        ["run", "--quiet", "--package", "skep-verdicts", "--", "--vm", kernel, "--programs"]
            .map(str::to_owned)
            .into();
    for program in PROGRAMS {
        let build = [&["test", "--no-run", "--message-format", "json-render-diagnostics"], program].concat();
        let (outcome, lines) = process::cargo(&build).run_listed()?;
        outcome?;
        words.extend(test::executables(&lines));
    }
    words.push("--".to_owned());
    words.extend(ARGUMENTS.map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    process::cargo(&words).run()
}
