//! What LLVM says about machine code: one process for all the lines of a test.

use std::io::Write;
use std::process::{Command, Stdio};

/// The names under which it may be installed, the one that distributions give a certain version first.
const NAMES: [&str; 2] = ["llvm-mc-19", "llvm-mc"];

/// The lines of instructions that LLVM answers `input` with; `None` where it is not there and may be absent.
pub(crate) fn lines(what: &str, flags: &[&str], input: String) -> Option<Vec<String>> {
    let spawned = NAMES.iter().find_map(|name| {
        let mut command = Command::new(name);
        command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().ok()
    });
    let Some(mut child) = spawned else {
        let required = std::env::var_os("SKEP_REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!required, "{} not found, and SKEP_REQUIRE_ALL=1 forbids skipping", NAMES[0]);
        // Past the test harness, which swallows what passing tests print.
        writeln!(std::io::stderr(), "SKIPPED: comparison of {what} with LLVM: {} not found", NAMES[0])
            .expect("standard error is open");
        return None;
    };
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads all of its input");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors:.2000}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let instructions = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('.'));
    Some(instructions.map(str::to_owned).collect())
}

/// The bytes of each instruction in what `-show-encoding` prints.
pub(crate) fn encodings(lines: &[String]) -> Vec<Vec<u8>> {
    let byte = |text: &str| u8::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal");
    let lists = lines.iter().filter_map(|line| line.split_once("encoding: [")?.1.split_once(']'));
    lists.map(|(list, _)| list.split(',').map(byte).collect()).collect()
}
