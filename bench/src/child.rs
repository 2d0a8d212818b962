//! Another process that measures something for this one and prints a JSON document, with a time limit.

use crate::Result;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts `command` and returns what it prints, which must be shorter than a pipe holds: it is read after the process
/// has ended.
///
/// # Errors
///
/// The process cannot be started, takes longer than `patience`, fails (with what it wrote to standard error), or
/// prints something else.
pub(crate) fn answer<T: DeserializeOwned>(mut command: Command, patience: Duration) -> Result<T> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("its process cannot be started: {error}"))?;
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > patience {
            // A process that hangs in the kernel does not end, so this one does not wait for it.
            let _ = child.kill();
            return Err(format!("its process did not end within {} s", patience.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (mut text, mut complaint) = (String::new(), String::new());
    child.stdout.take().map_or(Ok(0), |mut out| out.read_to_string(&mut text))?;
    child.stderr.take().map_or(Ok(0), |mut err| err.read_to_string(&mut complaint))?;
    match (child.wait()?.success(), complaint.trim()) {
        (true, _) => serde_json::from_str(&text)
            .map_err(|error| format!("its process printed {text:?}: {error}").into()),
        (false, "") => Err("its process failed without a message".into()),
        (false, complaint) => Err(complaint.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(program: &str, arguments: &[&str], patience: u64) -> Result<Vec<(String, u32, f64)>> {
        let mut command = Command::new(program);
        command.args(arguments);
        answer(command, Duration::from_millis(patience))
    }

    #[test]
    fn what_the_process_prints_is_returned_and_anything_else_refused() {
        let text = r#"[["direct",8,5.5],["indirect",1,1e-3]]"#;
        let wanted = [("direct".to_owned(), 8, 5.5), ("indirect".to_owned(), 1, 1e-3)];
        assert_eq!(told("printf", &["%s", text], 60_000).unwrap(), wanted);
        for odd in ["", "direct\t8\t5.5", "[[\"direct\",8]]", "[[\"direct\",\"eight\",1]]"] {
            assert!(told("printf", &["%s", odd], 60_000).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_process_that_takes_too_long_is_not_waited_for() {
        let late = told("sleep", &["60"], 50).unwrap_err().to_string();
        assert!(late.contains("did not end"), "{late}");
    }

    #[test]
    fn a_process_that_cannot_be_started_or_fails_has_a_reason() {
        let missing = told("/nowhere/at/all", &[], 60_000).unwrap_err().to_string();
        // An emulator starts all the same, and fails with a message of its own.
        let emulated = !skep_testkit::runner().is_empty();
        assert!(missing.contains("cannot be started") || emulated, "{missing}");
        let failed = told("false", &[], 60_000).unwrap_err().to_string();
        assert!(failed.contains("without a message"), "{failed}");
    }
}
