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

pub(crate) use objects::{Map, Program, verify};

use crate::child::{Silence, answer as ask_child};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::Command;
use std::time::Duration;

/// The time limit for everything that the other process measures.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures the running kernel where `wanted`: starts this program again with `--only-linux` and hands its answers to
/// `fill`. Returns the kernel's release, or why there are no answers.
pub(crate) fn measure<T: DeserializeOwned>(
    wanted: bool,
    benchmark: &str,
    fill: impl FnOnce(T),
) -> Option<Result<String, String>> {
    wanted.then(|| {
        crate::progress("the running kernel");
        let own = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
        let mut command = Command::new(own);
        command.args([benchmark, "--only-linux"]);
        ask(command).map(fill)?;
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        release.map(|text| text.trim().to_owned()).map_err(|error| format!("the kernel's release: {error}"))
    })
}

/// What the other process prints.
pub(crate) fn answer<T: Serialize>(measure: fn() -> Result<T, String>) -> Result<String, String> {
    serde_json::to_string(&measure()?).map_err(|error| error.to_string())
}

fn ask<T: DeserializeOwned>(command: Command) -> Result<T, String> {
    let needed = "bpf(2) needs root, or the capability CAP_BPF";
    let text = ask_child(command, PATIENCE).map_err(|silence| match silence {
        Silence::Unheard(error) => format!("the process that asks the kernel: {error}"),
        Silence::Late => format!("the kernel has not answered within {} s", PATIENCE.as_secs()),
        Silence::Failed(complaint) if complaint.is_empty() => needed.to_owned(),
        Silence::Failed(complaint) => format!("{complaint} ({needed})"),
    })?;
    serde_json::from_str(&text)
        .map_err(|error| format!("the process that asks the kernel says {text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_right_to_ask_the_reason_is_told() {
        let refused = ask::<u32>(Command::new("false")).unwrap_err();
        assert!(refused.contains("CAP_BPF"), "{refused}");
    }

    #[test]
    fn answers_are_read_as_they_are_written_and_others_are_refused() {
        let said = |text: &str| {
            let mut command = Command::new("printf");
            command.args(["%s", text]);
            ask::<Vec<(String, u32, f64)>>(command)
        };
        let text = answer(|| Ok([("direct", 8, 5.5), ("indirect", 1, 1e-3)])).unwrap();
        assert_eq!(said(&text).unwrap(), [("direct".to_owned(), 8, 5.5), ("indirect".to_owned(), 1, 1e-3)]);
        for odd in ["", "direct\t8\t5.5", "[[\"direct\",8]]", "[[\"direct\",\"eight\",1]]"] {
            assert!(said(odd).is_err(), "{odd}");
        }
    }
}
