//! Another process that asks the kernel.
//!
//! ```text
//!   skep bench NAME --linux  --starts-->  skep bench NAME --only-linux  --bpf(2)-->  the kernel
//!              ^                                     |
//!              +----------- lines of text -----------+
//! ```
//!
//! A kernel whose lock hangs takes the process that asked with it, so another one asks, and is not waited for longer than
//! a minute.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For everything that the process asks.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the process that `command` starts writes: less than a pipe holds, for it is read when that has ended. An error is
/// what it complains about.
pub(crate) fn ask(mut command: Command) -> Result<String, String> {
    let failed = |error: io::Error| format!("the process that asks the kernel: {error}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (mut text, mut complaint) = (String::new(), String::new());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if started.elapsed() > PATIENCE {
            // A process that hangs in the kernel does not end; it is not waited for.
            let _ = child.kill();
            return Err(format!("the kernel has not answered within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    child.stdout.take().map_or(Ok(0), |mut out| out.read_to_string(&mut text)).map_err(failed)?;
    child.stderr.take().map_or(Ok(0), |mut err| err.read_to_string(&mut complaint)).map_err(failed)?;
    if status.success() {
        return Ok(text);
    }
    let needed = "bpf(2) needs root, or the capability CAP_BPF";
    Err(match complaint.trim() {
        "" => needed.to_owned(),
        complaint => format!("{complaint} ({needed})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_right_to_ask_the_reason_is_told() {
        let refused = ask(Command::new("false")).unwrap_err();
        assert!(refused.contains("CAP_BPF"), "{refused}");
    }

    #[test]
    fn what_the_other_process_writes_is_returned() {
        let mut command = Command::new("printf");
        command.arg("a\\tb\\n");
        assert_eq!(ask(command).unwrap(), "a\tb\n");
    }
}
