//! `cargo xtask sanitize`: tests under tools that detect more than a plain run. Run it by hand, and before a release.
//!
//! | tool | finds | runs |
//! |---|---|---|
//! | `miri` | undefined behaviour, by interpreting | unit tests of crates that make few system calls |
//! | `address` | accesses outside of allocations, and use after free | tests of crates that manage memory |
//! | `thread` | data races | tests of crates with several threads |
//!
//! All of them need a nightly compiler; `miri` its component, and `miri` and `thread` the sources of the standard
//! library, which they compile with the same instrumentation.
//!
//! Miri stops at system calls that it does not know, such as `posix_madvise` in skep-rcu's tests, and it is too slow
//! for skep-mem's; loom runs models of the lock-free parts of both. ThreadSanitizer knows neither fences nor
//! membarrier(2): a report about memory that waits for readers must be judged by hand. Tests that cannot run under a
//! tool are listed with the reason ([`Tool::without`]).

use std::env::consts::ARCH;

use crate::process::{Outcome, Process};

/// A tool and the tests that run under it.
struct Tool {
    name: &'static str,
    /// Required components of the nightly toolchain.
    components: &'static [&'static str],
    packages: &'static [&'static str],
    /// Arguments of cargo before the packages.
    command: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// Name parts of skipped tests, each with the reason.
    without: &'static [(&'static str, &'static str)],
}

const TOOLS: [Tool; 3] = [
    Tool {
        name: "miri",
        components: &["miri", "rust-src"],
        packages: &["skep-isa", "skep-btf"],
        command: &["miri", "test", "--lib"],
        // Integer addresses become pointers on purpose (exposed provenance); tests read the clock and the
        // environment.
        variables: &[("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-disable-isolation")],
        without: &[],
    },
    Tool {
        name: "address",
        components: &[],
        packages: &["skep-rcu", "skep-text", "skep-mem", "skep-maps"],
        command: &["test", "--lib", "--tests"],
        // Some tests leak on purpose: a pool that gives nothing back shows a late reader its dead object. One test
        // reserves a terabyte, which the tool's allocator refuses.
        variables: &[
            ("RUSTFLAGS", "-Zsanitizer=address"),
            ("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"),
        ],
        without: &[],
    },
    Tool {
        name: "thread",
        components: &["rust-src"],
        packages: &["skep-rcu", "skep-text", "skep-mem", "skep-maps"],
        command: &["test", "--lib", "--tests", "-Zbuild-std"],
        variables: &[("RUSTFLAGS", "-Zsanitizer=thread")],
        without: &[],
    },
];

/// Runs one tool, or all even if one finds something. Returns `None` if no tool has that name.
pub(crate) fn run(name: Option<&str>) -> Option<Outcome> {
    let chosen: Vec<&Tool> = TOOLS.iter().filter(|tool| name.is_none_or(|name| name == tool.name)).collect();
    if chosen.is_empty() {
        return None;
    }
    let outcomes: Vec<_> = chosen.into_iter().map(|tool| (tool.name, tool.run())).collect();
    eprintln!("\n---- summary ----");
    for (name, outcome) in &outcomes {
        match outcome {
            Ok(()) => eprintln!("ok     {name}"),
            Err(reason) => eprintln!("FAILED {name}: {reason}"),
        }
    }
    let clean = outcomes.iter().all(|(_, outcome)| outcome.is_ok());
    Some(if clean { Ok(()) } else { Err("a tool reported defects, or could not run".to_owned()) })
}

impl Tool {
    fn run(&self) -> Outcome {
        self.prepare()?;
        let arguments = self.arguments();
        let words: Vec<&str> =
            ["run", "nightly", "cargo"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        for (test, reason) in self.without {
            eprintln!("left out: {test}: {reason}");
        }
        let process = Process::new("rustup", &words);
        self.variables.iter().fold(process, |process, (name, value)| process.env(name, value)).run()
    }

    /// Cargo's arguments. They name the target, so that build scripts and macros are not instrumented.
    fn arguments(&self) -> Vec<String> {
        let target = format!("{ARCH}-unknown-linux-gnu");
        let directory = format!("target/sanitize-{}", self.name);
        let fixed = self.command.iter().copied().chain([
            "--no-fail-fast",
            "--target",
            &target,
            "--target-dir",
            &directory,
        ]);
        let packages = self.packages.iter().flat_map(|package| ["--package", package]);
        let skipped = self.without.iter().flat_map(|(test, _)| ["--skip", test]);
        fixed.chain(packages).chain(["--"]).chain(skipped).map(str::to_owned).collect()
    }

    /// Checks for a nightly toolchain with the components; the error says how to install it.
    fn prepare(&self) -> Outcome {
        let listed =
            Process::new("rustup", &["component", "list", "--installed", "--toolchain", "nightly"]).output();
        let missing = missing(self.components, listed.as_deref().ok());
        if missing.is_empty() && listed.is_ok() {
            return Ok(());
        }
        let mut install = "rustup toolchain install nightly --profile minimal".to_owned();
        if !self.components.is_empty() {
            install = format!("{install} --component {}", self.components.join(","));
        }
        Err(match listed {
            Ok(_) => format!("the nightly toolchain lacks {}: {install}", missing.join(" and ")),
            Err(reason) => format!("there is no nightly toolchain ({reason}): {install}"),
        })
    }
}

/// The components missing in rustup's list, which has one per line, some with a target after the name.
fn missing<'a>(components: &[&'a str], listed: Option<&str>) -> Vec<&'a str> {
    let lines: Vec<&str> = listed.unwrap_or_default().lines().collect();
    let is_there = |name: &str| {
        lines
            .iter()
            .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
    };
    components.iter().copied().filter(|name| !is_there(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_missing_unless_rustup_lists_them() {
        let listed = "cargo-x86_64-unknown-linux-gnu\nmiri-x86_64-unknown-linux-gnu\nrust-src\n";
        assert_eq!(missing(&["miri", "rust-src"], Some(listed)), [""; 0]);
        assert_eq!(
            missing(&["miri", "rust-src"], Some("cargo-x86_64-unknown-linux-gnu\n")),
            ["miri", "rust-src"]
        );
        assert_eq!(missing(&["rust-src"], None), ["rust-src"]);
    }

    #[test]
    fn tests_that_cannot_run_are_skipped_by_name() {
        let tool = Tool { without: &[("forks", "why")], ..TOOLS[1] };
        let arguments = tool.arguments().join(" ");
        assert!(arguments.starts_with("test --lib --tests --no-fail-fast --target "), "{arguments}");
        assert!(arguments.ends_with("--package skep-maps -- --skip forks"), "{arguments}");
    }

    #[test]
    fn an_unknown_tool_does_not_run() {
        assert!(run(Some("memory")).is_none());
    }
}
