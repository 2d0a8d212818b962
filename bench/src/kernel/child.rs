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

use crate::child::{Silence, answer};
use std::process::Command;
use std::time::Duration;

/// For everything that the process asks.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the process that `command` starts writes. An error is what it complains about.
pub(crate) fn ask(command: Command) -> Result<String, String> {
    let needed = "bpf(2) needs root, or the capability CAP_BPF";
    answer(command, PATIENCE).map_err(|silence| match silence {
        Silence::Unheard(error) => format!("the process that asks the kernel: {error}"),
        Silence::Late => format!("the kernel has not answered within {} s", PATIENCE.as_secs()),
        Silence::Failed(complaint) if complaint.is_empty() => needed.to_owned(),
        Silence::Failed(complaint) => format!("{complaint} ({needed})"),
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
}
