//! Runs other programs. Each command is printed first, so that a reader can repeat it by hand.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::workspace;

/// Success, or a message for the user.
pub(crate) type Outcome = Result<(), String>;

/// A command to run at the root of the workspace.
pub(crate) struct Process(Command);

/// A run of this toolchain's cargo.
pub(crate) fn cargo(arguments: &[&str]) -> Process {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut process = Process::new(cargo, arguments);
    // Variables that `cargo run` sets for this process would confuse builds that read them.
    process.0.env_remove("CARGO_MANIFEST_DIR");
    process
}

impl Process {
    /// `program` with `arguments`, not started yet.
    pub(crate) fn new(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(workspace::root());
        Self(command)
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it in another directory.
    pub(crate) fn at(mut self, directory: &Path) -> Self {
        self.0.current_dir(directory);
        self
    }

    /// Runs it with this process's input and output.
    pub(crate) fn run(mut self) -> Outcome {
        let line = self.announce();
        match self.0.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`{line}` ended with {status}")),
            Err(error) => Err(format!("`{line}` could not be started: {error}")),
        }
    }

    /// Runs it, shows its output as it arrives, and returns its outcome and all lines of both streams.
    pub(crate) fn run_watched(mut self) -> Result<(Outcome, Vec<String>), String> {
        let line = self.announce();
        let mut child = self
            .0
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`{line}` could not be started: {error}"))?;
        let output = child.stdout.take().map(|stream| thread::spawn(|| echo(stream, io::stdout())));
        let narration = child.stderr.take().map(|stream| thread::spawn(|| echo(stream, io::stderr())));
        let status = child.wait().map_err(|error| format!("`{line}` could not be waited for: {error}"))?;
        let threads = output.into_iter().chain(narration);
        let lines = threads.flat_map(|thread| thread.join().unwrap_or_default()).collect();
        let outcome = if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}")) };
        Ok((outcome, lines))
    }

    /// Runs it with this process's standard error, and returns its outcome and the lines of its standard output.
    pub(crate) fn run_listed(mut self) -> Result<(Outcome, Vec<String>), String> {
        let line = self.announce();
        let run = self.0.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = run.map_err(|error| format!("`{line}` could not be started: {error}"))?;
        let status = output.status;
        let outcome = if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}")) };
        Ok((outcome, String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()))
    }

    /// Its standard output, which is not shown. The error contains its standard error.
    pub(crate) fn output(mut self) -> Result<String, String> {
        let program = self.0.get_program().to_string_lossy().into_owned();
        let output = self.0.output().map_err(|error| format!("`{program}` could not be started: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{program}` ended with {}:\n{}", output.status, complaint.trim_end()))
        }
    }

    fn announce(&self) -> String {
        let program = Path::new(self.0.get_program());
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        let arguments = self.0.get_args().map(|argument| argument.to_string_lossy().into_owned());
        let line = [name].into_iter().chain(arguments).collect::<Vec<_>>().join(" ");
        eprintln!("$ {line}");
        line
    }
}

/// Copies lines from one stream to another and collects them, even if they cannot be shown.
fn echo(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut reader = BufReader::new(from);
    let mut lines = Vec::new();
    let mut bytes = Vec::new();
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(1..)) {
        let _ = to.write_all(&bytes).and_then(|()| to.flush());
        lines.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        bytes.clear();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_run_keeps_both_streams_and_the_failure() {
        let script = "echo shown; echo 'told aside' >&2; exit 3";
        let (outcome, lines) = Process::new("sh", &["-c", script]).run_watched().unwrap();
        assert!(outcome.unwrap_err().contains("exit status: 3"));
        assert_eq!(lines, ["shown", "told aside"]);
    }

    #[test]
    fn a_missing_program_is_named_in_the_error() {
        let error = Process::new("no-such-program", &[]).output().unwrap_err();
        assert!(error.contains("no-such-program"));
    }
}
