//! A child process with a limit of time, whose output is kept whatever happens.
//!
//! A test program that hangs would hold up the whole run without a word. It is killed at the limit, and what it printed
//! until then says which test hung. Processes that it started may outlive it and keep its output open, so the output
//! is never waited for after a kill, and not for long after an end.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The interval at which the end of the child is looked for.
const STEP: Duration = Duration::from_millis(10);

/// The time for the end of a stream after the end of the child.
const REST: Duration = Duration::from_secs(10);

/// The result of a child.
pub(super) struct Bounded {
    /// `None`: it did not end within the limit.
    pub(super) status: Option<ExitStatus>,
    /// What it wrote to standard output.
    pub(super) output: String,
    /// What it wrote to standard error.
    pub(super) errors: String,
}

/// Runs a command without input.
///
/// # Errors
///
/// It cannot be started or waited for.
pub(super) fn run(command: &mut Command, limit: Duration) -> io::Result<Bounded> {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let output = Collected::of(child.stdout.take());
    let errors = Collected::of(child.stderr.take());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() >= limit {
            // Its children first: afterwards nobody knows whose they were.
            let _ = Command::new("pkill").args(["-KILL", "-P", &child.id().to_string()]).status();
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(STEP);
    };
    let until = status.map(|_| Instant::now() + REST);
    Ok(Bounded { status, output: output.text(until), errors: errors.text(until) })
}

/// What a thread has read of a stream so far.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Collected {
    fn of(stream: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let Some(mut stream) = stream else { return };
            let mut part = [0; 1 << 14];
            while let Ok(length @ 1..) = stream.read(&mut part) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..length]);
            }
        });
        Self { bytes, reader }
    }

    /// The text; all of it, if the stream ends until then. It does not if the child left a process behind that has it
    /// too.
    fn text(self, until: Option<Instant>) -> String {
        while !self.reader.is_finished() && until.is_some_and(|until| Instant::now() < until) {
            thread::sleep(STEP);
        }
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Bounded {
        run(Command::new("sh").args(["-c", script]), limit).unwrap()
    }

    #[test]
    fn both_streams_and_the_status_are_kept() {
        let ended = shell("echo said; echo complained >&2; exit 3", Duration::from_secs(600));
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
        assert_eq!((ended.output.as_str(), ended.errors.as_str()), ("said\n", "complained\n"));
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_its_output_kept() {
        // The background process keeps the output open after its parent is dead. On a busy machine the child may not
        // have begun by an early limit.
        let ended = [2, 10, 60].map(Duration::from_secs).into_iter().find_map(|limit| {
            let ended = shell("echo said; sleep 3600 & wait", limit);
            assert!(ended.status.is_none());
            (ended.output == "said\n").then_some(ended)
        });
        assert!(ended.is_some());
    }

    #[test]
    fn a_child_that_leaves_another_behind_ends_with_its_output() {
        let ended = shell("echo said; sleep 3600 & echo $! >&2", Duration::from_secs(600));
        let _ = Command::new("sh").args(["-c", &format!("kill {}", ended.errors)]).status();
        assert!(ended.status.is_some_and(|status| status.success()));
        assert_eq!(ended.output, "said\n");
    }
}
