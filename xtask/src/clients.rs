//! What the clients of `examples/clients` are built with, besides Debian's packages that [`tools`] lists: Rust's
//! standard library for static programs, and a Go that is new enough. They are installed by the same rule as all tools.
//! What is still missing, the tests report.

use std::env::consts::ARCH;
use std::path::Path;

use crate::process::{Outcome, Process};
use crate::tools;

/// The oldest Go, `go` of `examples/clients/go/go.mod`.
const GO_AT_LEAST: u32 = 23;

/// The Go of Debian 12's backports, which is not on the search path.
const BACKPORTED: [&str; 2] = ["golang-1.23-go", "/usr/lib/go-1.23/bin/go"];

/// Installs what is missing, if that is allowed.
pub(crate) fn prepare() {
    if !tools::may_install() {
        return;
    }
    // Errors of an attempt are printed; the tests see the state afterwards.
    for attempt in [install_library(), install_go()] {
        if let Err(reason) = attempt {
            eprintln!("xtask: {reason}");
        }
    }
}

fn install_library() -> Outcome {
    let target = format!("{ARCH}-unknown-linux-musl");
    let directory = Process::new("rustc", &["--print", "target-libdir", "--target", &target]).output()?;
    if Path::new(directory.trim()).exists() || tools::find("rustup").is_none() {
        return Ok(());
    }
    Process::new("rustup", &["target", "add", &target]).run()
}

fn install_go() -> Outcome {
    let [package, file] = BACKPORTED;
    let said = Process::new("go", &["version"]).output().unwrap_or_default();
    if minor(&said).is_some_and(|minor| minor >= GO_AT_LEAST) || tools::is_present(file) {
        return Ok(());
    }
    if tools::is_bookworm() { tools::install_backported(package) } else { tools::install(&["golang-go"]) }
}

/// The second number of "go version go1.23.5 linux/amd64".
fn minor(said: &str) -> Option<u32> {
    said.split_once("go1.")?.1.split(['.', ' ']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_go_is_read_from_its_output() {
        assert_eq!(minor("go version go1.23.5 linux/amd64\n"), Some(23));
        assert_eq!(minor("go version go1.26 linux/arm64\n"), Some(26));
        assert_eq!(minor(""), None);
    }
}
