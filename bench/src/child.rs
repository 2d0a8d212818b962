//! Another process that does something for this one, and is not waited for longer than that may take.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Silence {
    /// It could not be started, or not be listened to.
    Unheard(io::Error),
    /// It is still not done.
    Late,
    /// It failed, and that is what it complains about.
    Failed(String),
}

/// What the process that `command` starts writes: less than a pipe holds, for it is read when that has ended.
pub(crate) fn answer(mut command: Command, patience: Duration) -> Result<String, Silence> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Silence::Unheard)?;
    let (mut text, mut complaint) = (String::new(), String::new());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Silence::Unheard)? {
            break status;
        }
        if started.elapsed() > patience {
            // A process that hangs in the kernel does not end; it is not waited for.
            let _ = child.kill();
            return Err(Silence::Late);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let read =
        |from: Option<&mut dyn Read>, to: &mut String| from.map_or(Ok(0), |from| from.read_to_string(to));
    read(child.stdout.as_mut().map(|out| out as _), &mut text).map_err(Silence::Unheard)?;
    read(child.stderr.as_mut().map(|err| err as _), &mut complaint).map_err(Silence::Unheard)?;
    if status.success() { Ok(text) } else { Err(Silence::Failed(complaint.trim().to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_process_writes_is_returned() {
        let mut command = Command::new("printf");
        command.arg("a\\tb\\n");
        assert_eq!(answer(command, Duration::from_secs(60)).unwrap(), "a\tb\n");
    }

    #[test]
    fn one_that_takes_too_long_is_not_waited_for() {
        let mut command = Command::new("sleep");
        command.arg("60");
        assert!(matches!(answer(command, Duration::from_millis(50)), Err(Silence::Late)));
    }

    #[test]
    fn one_that_cannot_be_started_is_told_apart() {
        let silence = answer(Command::new("/nowhere/at/all"), Duration::from_secs(60)).unwrap_err();
        // Under an emulator the process may begin all the same, and end because there is nothing to do.
        let emulated = !skep_testkit::runner().is_empty();
        assert!(matches!(silence, Silence::Unheard(_)) || emulated, "{silence:?}");
    }
}
