//! `cargo xtask lint`: checks rules that all sources must keep.
//!
//! Besides rustfmt, clippy and rustdoc (all warnings denied, among them missing documentation and `unsafe` blocks
//! without a `SAFETY` comment) it checks the project's own rules: every source file states its purpose in its first
//! line; only the crates that need `unsafe` may use it; architectures are named only in folders called `arch`, in
//! tests as well, with modules of the same names for each architecture; module `a::b` is in `a/b.rs`; imports between
//! the folders of a crate run one way ([`folders`]); the book's table of dependencies matches the manifests
//! ([`arrows`]); published crates have a README and licences ([`package`]); the fuzzers compile. Clippy checks the
//! sources twice, compiled for this machine and for aarch64.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::aarch64::{self, Ready};
use crate::process::{self, Outcome, Process};
use crate::{arrows, folders, package, tools, workspace};

/// The crates that may use `unsafe`. All others have `#![forbid(unsafe_code)]`.
pub(crate) const MAY_USE_UNSAFE: [&str; 14] = [
    "skep-rcu",
    "skep-text",
    "skep-mem",
    "skep-maps",
    "skep-jit",
    "skep-interp",
    "skep-preload",
    "skep-exec",
    "skep-attach",
    "skep-guard",
    "skep",
    "skep-capi",
    "skep-bench",
    "skep-testgen",
];

/// The fuzzers are a workspace of their own.
const FUZZERS: &str = "fuzz/Cargo.toml";

/// Workspaces of their own.
const OTHER_WORKSPACES: [&str; 3] =
    [FUZZERS, "examples/clients/aya/Cargo.toml", "examples/clients/libbpf-rs/Cargo.toml"];

/// The directories of the workspace's crates.
const CRATES: [&str; 8] = ["bench", "crates", "models", "packets", "testgen", "testkit", "verdicts", "xtask"];

/// Maximum width of comment lines. rustfmt wraps code at 110 columns, and does not wrap comments.
const LONG_COMMENT: usize = 120;

/// Maximum lines of a file. Longer files probably have two subjects.
const LONG_FILE: usize = 800;

/// Clippy's arguments. Tests are compiled without the other engines of the benchmarks.
const EVERYTHING: [&str; 4] =
    ["--workspace", "--all-targets", "--features", "skep-bench/opponents,skep/tokio"];

/// What needs libbpf, which is only there for the developer's machine.
const LIBBPF: [&str; 2] = ["--features", "skep-cli/kernel"];

/// Runs every check, even after one fails.
pub(crate) fn run() -> Outcome {
    let checks = [
        ("formatting", formatting()),
        ("house rules", house_rules()),
        (
            "clippy",
            process::cargo(&[&["clippy"], &EVERYTHING[..], &LIBBPF, &["--", "-D", "warnings"]].concat())
                .run(),
        ),
        ("clippy for aarch64", clippy_for_aarch64()),
        ("fuzzers", fuzzers()),
        (
            "documentation",
            process::cargo(&["doc", "--workspace", "--no-deps", "--quiet"])
                .env("RUSTDOCFLAGS", "-D warnings")
                .run(),
        ),
    ];
    eprintln!("\n---- summary ----");
    let mut failed = false;
    for (name, outcome) in checks {
        match outcome {
            Ok(()) => eprintln!("ok     {name}"),
            Err(reason) => {
                eprintln!("FAILED {name}: {reason}");
                failed = true;
            }
        }
    }
    if failed { Err("some checks failed".to_owned()) } else { Ok(()) }
}

/// Only this checks the code that is compiled for another architecture.
fn clippy_for_aarch64() -> Outcome {
    if aarch64::is_native() {
        return Ok(());
    }
    if let Err(reason) = aarch64::prepare(Ready::Compile) {
        return tools::skip("clippy for aarch64", &reason);
    }
    // Models and the Python package are the same on every machine, and this program is for the developer's.
    let others = ["skep-models", "skep-python", "xtask"].map(|package| ["--exclude", package]);
    let without = [&others.concat(), &["--target", aarch64::TARGET][..]].concat();
    let arguments = [&["clippy"], &EVERYTHING[..], &without, &["--", "-D", "warnings"]].concat();
    let clippy = match aarch64::clippy() {
        Some(program) => Process::new(program, &arguments),
        None => process::cargo(&arguments),
    };
    aarch64::variables(None).into_iter().fold(clippy, |clippy, (name, value)| clippy.env(name, &value)).run()
}

/// Running them takes a nightly compiler and libFuzzer; checking that they compile takes neither.
fn fuzzers() -> Outcome {
    let arguments = ["check", "--locked", "--manifest-path", FUZZERS, "--target-dir", "target/fuzz"];
    process::cargo(&arguments).env("CUSTOM_LIBFUZZER_PATH", "target/fuzz/none.a").run()
}

fn formatting() -> Outcome {
    process::cargo(&["fmt", "--all", "--check"]).run()?;
    for manifest in OTHER_WORKSPACES {
        process::cargo(&["fmt", "--manifest-path", manifest, "--check"]).run()?;
    }
    Ok(())
}

fn house_rules() -> Outcome {
    let broken = [
        first_lines(),
        modules_by_another_name(),
        long_comments(),
        unsafe_crates(),
        unpaired_modules(),
        architectures(),
        folders::against_the_flow(),
        arrows::check(&MAY_USE_UNSAFE),
        package::incomplete(),
    ]
    .concat();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n       ")) }
}

/// The files of all crates, and below the `further` directories, whose names end in `suffix`.
fn sources(further: &[&str], suffix: &str) -> Vec<PathBuf> {
    let root = workspace::root();
    let directories = CRATES.iter().chain(further);
    directories.flat_map(|directory| workspace::files_below(&root.join(directory), suffix)).collect()
}

/// Lines that depend on the architecture outside of `arch` folders. Documentation may, and so may examples, which are
/// read on their own.
fn architectures() -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(&[], ".rs") {
        let name = workspace::relative(&path);
        let may = ["/arch/", "/arch.rs", "/examples/", "xtask/"].iter().any(|place| name.contains(place));
        if may {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.contains("target_arch") && !line.trim_start().starts_with("//") {
                broken.push(format!("{name}:{number} names an architecture outside of a folder called arch"));
            }
        }
    }
    broken
}

/// Files whose first line is not module documentation.
fn first_lines() -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(&[], ".rs") {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let name = workspace::relative(&path);
        if name.contains("/src/") && !text.starts_with("//!") {
            broken.push(format!("{name} does not open with `//!`"));
        }
        let lines = text.lines().count();
        if lines > LONG_FILE {
            eprintln!("note: {name} has {lines} lines; look for its second subject");
        }
    }
    broken
}

/// Sources called `mod.rs`: module `a::b` is in `a/b.rs`, and its own modules are in the folder `a/b`.
fn modules_by_another_name() -> Vec<String> {
    let files = sources(&[], "/mod.rs").into_iter().map(|path| workspace::relative(&path));
    let files = files.filter(|name| name.contains("/src/"));
    files.map(|name| format!("{name} should be {}.rs", name.trim_end_matches("/mod.rs"))).collect()
}

/// Comment lines that are too long. Rows of tables and blocks of code are exempt.
fn long_comments() -> Vec<String> {
    let mut broken = Vec::new();
    for path in sources(&["examples", "fuzz/fuzz_targets", "fuzz/src"], ".rs") {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for number in too_long(&text) {
            broken.push(format!(
                "{}:{number}: a comment of more than {LONG_COMMENT} columns",
                workspace::relative(&path)
            ));
        }
    }
    broken
}

/// The numbers of the lines.
fn too_long(text: &str) -> Vec<usize> {
    let (mut found, mut in_block) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_block = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        in_block ^= comment.starts_with("```");
        if !in_block && !comment.starts_with('|') && line.chars().count() > LONG_COMMENT {
            found.push(number);
        }
    }
    found
}

/// Crates that may not use `unsafe` but do not forbid it.
fn unsafe_crates() -> Vec<String> {
    let crates = workspace::root().join("crates");
    let Ok(entries) = fs::read_dir(&crates) else { return vec!["there is no directory crates".to_owned()] };
    let mut broken = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.join("Cargo.toml").exists()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if MAY_USE_UNSAFE.contains(&name.as_str()) {
            continue;
        }
        let roots = ["src/lib.rs", "src/main.rs"].map(|file| path.join(file));
        for root in roots.iter().filter(|file| file.exists()) {
            let text = fs::read_to_string(root).unwrap_or_default();
            if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
                broken.push(format!("{} lacks #![forbid(unsafe_code)]", workspace::relative(root)));
            }
        }
    }
    broken.sort();
    broken
}

/// Modules of one architecture without a counterpart of the same name, in folders called `arch`.
fn unpaired_modules() -> Vec<String> {
    let root = workspace::root();
    let files = ["crates", "bench"].map(|place| workspace::files_below(&root.join(place), ".rs")).concat();
    unpaired(files.iter().map(|path| workspace::relative(path)))
}

/// Modules are the files and folders directly in an architecture's folder. Their own structure and their tests may
/// differ.
fn unpaired(files: impl Iterator<Item = String>) -> Vec<String> {
    const NAMES: [[&str; 2]; 2] = [["/arch/x86_64", "/arch/aarch64"], ["/arch/aarch64", "/arch/x86_64"]];
    let module = |file: &str| {
        let [ours, theirs] = NAMES.into_iter().find(|[ours, _]| file.contains(ours))?;
        let (place, rest) = file.split_once(ours)?;
        let name = rest.trim_start_matches('/').split('/').next()?;
        let name = name.strip_suffix(".rs").unwrap_or(name);
        let tests = name.ends_with("tests");
        (!tests).then(|| [ours, theirs].map(|architecture| format!("{place}{architecture}/{name}")))
    };
    let pairs: BTreeSet<_> = files.filter_map(|file| module(&file)).collect();
    let lonely = pairs.iter().filter(|[ours, theirs]| !pairs.contains(&[theirs.clone(), ours.clone()]));
    lonely.map(|[ours, theirs]| format!("{ours} has no counterpart {theirs}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_crate_keeps_the_rules_that_it_checks() {
        assert!(!first_lines().iter().any(|complaint| complaint.starts_with("xtask/")));
    }

    #[test]
    fn modules_of_one_architecture_need_counterparts() {
        let judge = |names: &[&str]| unpaired(names.iter().map(|name| (*name).to_owned()));
        let files = ["a/src/arch.rs", "a/src/arch/x86_64.rs", "a/src/arch/aarch64.rs", "a/src/x86_64.rs"];
        assert_eq!(judge(&files), [""; 0]);
        let folders = ["a/arch/x86_64/alu.rs", "a/arch/aarch64/alu.rs", "a/arch/aarch64/alu/bitmask.rs"];
        assert_eq!(judge(&folders), [""; 0]);
        let tests = ["a/arch/x86_64/alu_tests.rs", "a/arch/aarch64/tests/alu.rs"];
        assert_eq!(judge(&tests), [""; 0]);
        let complaint = "b/arch/aarch64/call has no counterpart b/arch/x86_64/call";
        assert_eq!(judge(&["b/arch/aarch64/call.rs", "b/arch/x86_64/alu.rs"]).first().unwrap(), complaint);
    }

    #[test]
    fn comments_are_wrapped_except_tables() {
        let long = "x".repeat(118);
        let text =
            format!("//! {long}\n    /// {long}\n//! | {long} |\nlet a = \"{long}\";\n// {}\n", &long[1..]);
        assert_eq!(too_long(&text), [1, 2]);
        assert_eq!(too_long(&format!("/// ```text\n/// {long}\n/// ```\n/// {long}\n")), [4]);
    }

    #[test]
    fn architectures_are_named_only_in_their_folders() {
        assert_eq!(architectures(), [""; 0]);
    }

    #[test]
    fn crates_that_may_use_unsafe_exist() {
        let manifest = fs::read_to_string(workspace::root().join("Cargo.toml")).unwrap();
        for name in MAY_USE_UNSAFE {
            let tool = name.trim_start_matches("skep-");
            let members = [format!("\"crates/{name}\""), format!("\"{tool}\"")];
            assert!(members.iter().any(|member| manifest.contains(member)), "no crate is called {name}");
        }
    }
}
