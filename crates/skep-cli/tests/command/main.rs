//! The command as scripts and people use it: its output and exit status.

mod conformance;
mod contents;
mod coverage;
mod debugging;
mod fuzzing;
mod host;
mod inspection;
mod kernels;
#[cfg(feature = "attach")]
mod live;
mod mutations;
mod pack;
mod pages;
mod refusals;
mod runs;
#[cfg(feature = "signatures")]
mod signatures;
mod skeletons;
mod tables;
mod verdicts;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The output and exit status of a command.
struct Said {
    status: Option<i32>,
    out: String,
    err: String,
}

fn skep(args: &[&str]) -> Said {
    from_output(&command().args(args).output().unwrap())
}

/// The command at the workspace's root.
fn command() -> Command {
    let mut command = skep_testkit::other(env!("CARGO_BIN_EXE_skep"));
    command.current_dir(root());
    command
}

fn from_output(output: &Output) -> Said {
    Said {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Said {
    /// The only JSON document on standard output of a command that succeeded.
    #[track_caller]
    fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, Some(0), "{}", self.err);
        serde_json::from_str(&self.out).expect("one JSON document and nothing else")
    }

    /// The only JSON document on standard output of a command, whatever its exit status.
    #[track_caller]
    fn run_json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// Checks that the command refused, with a message that names the place, and without a panic.
    #[track_caller]
    fn refused(&self, status: i32, words: &[&str]) {
        assert_eq!(self.status, Some(status), "out: {}\nerr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        let said = format!("{}{}", self.out, self.err);
        for word in words {
            assert!(said.contains(word), "{word:?} is missing in: {said}");
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn object(name: &str) -> String {
    format!("crates/skep-cli/tests/objects/{name}.bpf.o")
}

/// A file in the temporary directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("skep-command-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    /// An empty folder.
    fn folder(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("skep-command-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}
