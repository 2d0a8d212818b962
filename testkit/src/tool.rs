//! Runs tools that may not be installed.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::skip::skip;

/// The output of the first installed one of these programs for `input`; `None` if none is installed and the test may
/// be skipped.
///
/// # Panics
///
/// If the program fails or writes to standard error, or if none is installed and `SKEP_REQUIRE_ALL` is 1.
pub fn answer(what: &str, names: &[&str], arguments: &[&str], input: &str) -> Option<String> {
    let spawned = names.iter().find_map(|name| {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().ok()
    });
    let Some(mut child) = spawned else {
        skip(what, &format!("{} not found", names.join(" or ")));
        return None;
    };
    let mut stdin = child.stdin.take().expect("piped");
    // On a thread of its own, because the program may write output before it has read everything.
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("no panic").expect("it reads all of its input");
        output
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{what}: {errors:.2000}");
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}
