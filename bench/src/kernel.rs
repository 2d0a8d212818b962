//! The running Linux kernel: programs verified and run through bpf(2), in a process of their own.
//!
//! ```text
//!   skep-bench NAME --linux  --starts-->  skep-bench NAME --only-linux  --bpf(2)-->  the kernel
//!              ^                                     |
//!              +--------- one JSON document ---------+
//! ```
//!
//! A lock that hangs in the kernel takes the process that asked with it, so another process asks, with a time limit.

mod objects;

pub(crate) use objects::{Map, Program, Stats, verify};

use crate::report::has;
use crate::{Result, child};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// The time limit for everything that the other process measures.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two loads of programs.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// The kernel's figures for a row: values that identify the row, and values to be added to it.
pub(crate) type Answer = (Value, Value);

/// What the running kernel takes.
#[derive(Default)]
pub(crate) struct Linux {
    /// The kernel's release, or why there are no answers; `None` where they were not wanted.
    pub(crate) release: Option<Result<String, String>>,
    pub(crate) answers: Vec<Answer>,
}

impl Linux {
    /// Starts this program again with `--only-linux`, where `wanted`.
    pub(crate) fn measure(wanted: bool, benchmark: &str) -> Self {
        if !wanted {
            return Self::default();
        }
        crate::progress("the running kernel");
        let mut linux = Self::default();
        let measured = std::env::current_exe().map_err(Into::into).and_then(|own| {
            let mut command = Command::new(own);
            command.args([benchmark, "--only-linux"]);
            linux.answers = ask(command)?;
            Ok(std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned())
        });
        linux.release = Some(measured.map_err(|error: crate::Error| error.to_string()));
        linux
    }

    /// Adds the kernel's figures to the rows that they are for. The kernel may have measured more.
    pub(crate) fn fill(&self, rows: &mut [Value]) {
        for (key, figures) in &self.answers {
            if let Some(row) = rows.iter_mut().find(|row| has(row, key)) {
                for (name, figure) in figures.as_object().into_iter().flatten() {
                    row[name] = figure.clone();
                }
            }
        }
    }
}

fn ask(command: Command) -> Result<Vec<Answer>> {
    child::answer(command, PATIENCE)
        .map_err(|reason| format!("{reason} (bpf(2) needs root, or the capability CAP_BPF)").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn without_the_right_to_ask_the_reason_is_told() {
        let refused = ask(Command::new("false")).unwrap_err().to_string();
        assert!(refused.contains("CAP_BPF"), "{refused}");
    }

    #[test]
    fn figures_are_added_to_the_row_that_they_are_for() {
        let row = |op, ns| json!({"map": "hash", "op": op, "entries": 64, "ns": 1.0, "ns_linux": ns});
        let mut rows = [row("update", None), row("look_up", None)];
        let answer =
            |entries: u32| (json!({"op": "look_up", "entries": entries}), json!({"ns_linux": entries}));
        Linux { answers: vec![answer(64), answer(8192)], release: None }.fill(&mut rows);
        assert_eq!(rows, [row("update", None), row("look_up", Some(64))]);
    }
}
