//! `cargo xtask fuzz`: runs the fuzzers, which are a workspace of their own because they need a nightly compiler.

use std::fs;

use crate::process::{Outcome, Process};
use crate::{tools, workspace};

/// The fuzzer to run, and its time limit.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    target: Option<String>,
    seconds: u32,
}

impl Request {
    /// Parses `[TARGET] [--seconds N]`, in either order; `None` for anything else.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let mut request = Self { target: None, seconds: 60 };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seconds" => request.seconds = words.next()?.parse().ok()?,
                target if !target.starts_with('-') && request.target.is_none() => {
                    request.target = Some(target.to_owned());
                }
                _ => return None,
            }
        }
        Some(request)
    }
}

/// Runs the fuzzers one after the other; the first finding ends the run.
pub(crate) fn run(request: &Request) -> Outcome {
    let directory = workspace::root().join("fuzz");
    let known = targets();
    if known.is_empty() {
        return Err("there are no fuzzers in fuzz/fuzz_targets".to_owned());
    }
    let chosen: Vec<String> = match &request.target {
        None => known,
        Some(target) if known.contains(target) => vec![target.clone()],
        Some(target) => return Err(format!("there is no fuzzer {target}; known ones: {}", known.join(", "))),
    };
    if tools::find("cargo-fuzz").is_none() {
        return Err("cargo-fuzz is missing: cargo install cargo-fuzz".to_owned());
    }
    let installed = Process::new("rustup", &["toolchain", "list"]).output()?;
    if !installed.lines().any(|line| line.starts_with("nightly")) {
        return Err("fuzzers need a nightly compiler: rustup toolchain install nightly".to_owned());
    }
    for target in &chosen {
        let seconds = format!("-max_total_time={}", request.seconds);
        Process::new("rustup", &["run", "nightly", "cargo", "fuzz", "run", target, "--", &seconds])
            .at(&directory)
            .run()?;
    }
    Ok(())
}

/// The names of all fuzzers.
fn targets() -> Vec<String> {
    let Ok(entries) = fs::read_dir(workspace::root().join("fuzz/fuzz_targets")) else { return Vec::new() };
    let files = entries.flatten().map(|entry| entry.path());
    let names = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut names: Vec<String> =
        names.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_name_a_target_and_a_time() {
        let of = |target: Option<&str>, seconds| Some(Request { target: target.map(str::to_owned), seconds });
        assert_eq!(Request::parse(&[]), of(None, 60));
        assert_eq!(Request::parse(&["elf"]), of(Some("elf"), 60));
        assert_eq!(Request::parse(&["--seconds", "5", "elf"]), of(Some("elf"), 5));
        assert_eq!(Request::parse(&["elf", "isa"]), None);
        assert_eq!(Request::parse(&["--seconds"]), None);
        assert_eq!(Request::parse(&["--minutes", "5"]), None);
    }
}
