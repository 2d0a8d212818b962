//! Imports between the folders of a crate run one way: a folder may use those named before it, and itself.
//!
//! A folder is `NAME.rs` and everything below `NAME/`. Paths must name the folder: an import from the crate's root
//! would hide where the thing is from. Tests and models may use everything: files named `tests.rs`, `*_tests.rs`,
//! `testing.rs` or `models.rs` and those in folders of these names; the line after `#[cfg(test)]` or `#[cfg(all(test`,
//! and the rest of the file if that line begins a block; and the line after `#[cfg(loom)]`.

use crate::workspace;
use std::fs;

/// Crates with such folders, the lowest first.
const FLOWS: &[(&str, &[&str])] = &[
    ("crates/skep-verifier/src", &["domain", "program", "step", "explore", "explain"]),
    (
        "crates/skep-rcu/src",
        &[
            "sync",
            "error",
            "barrier",
            "bitmap",
            "fork",
            "signals",
            "stats",
            "turns",
            "readers",
            "inbox",
            "tasks",
            "keeper",
            "task_handle",
            "claim",
            "section",
            "domain",
            "raw",
        ],
    ),
    (
        "crates/skep-mem/src",
        &[
            "error",
            "account",
            "policy",
            "sync",
            "options",
            "object",
            "gate",
            "stack",
            "file",
            "region",
            "block",
            "batch",
            "cpu",
            "layout",
            "store",
            "system",
            "stats",
            "eras",
            "depot",
            "inner",
            "slow_path",
            "reclaim",
            "cache",
        ],
    ),
    (
        "crates/skep-maps/src",
        &[
            "update",
            "op_error",
            "error",
            "options",
            "cursor",
            "seed",
            "racy",
            "prefix",
            "lock",
            "host_lock",
            "caller",
            "version",
            "leaf_lock",
            "elements",
            "objects",
            "values",
            "array",
            "bloom",
            "queue",
            "ring",
            "perf_event",
            "perf",
            "hash",
            "trie",
            "references",
            "members",
            "user_ring",
            "arena",
            "targets",
            "table",
            "create",
            "map",
            "ring_buffer",
            "user_ring_buffer",
            "perf_reader",
        ],
    ),
    (
        "crates/skep-elf/src",
        &[
            "steps",
            "error",
            "elf",
            "types",
            "functions",
            "records",
            "maps",
            "externs",
            "parsed",
            "co_re",
            "core_records",
            "link",
            "program",
            "object",
        ],
    ),
    (
        "crates/skep-text/src",
        &[
            "sizes",
            "error",
            "occupancy",
            "sys",
            "arch",
            "procfs",
            "sync_core",
            "range",
            "chunks",
            "fault",
            "pack",
            "seen",
            "config",
            "state",
            "retirement",
            "shared",
            "growth",
            "promote",
            "reclaim",
            "place",
            "text",
            "arena",
            "poke",
            "loads",
        ],
    ),
    // `arch` comes after `lower`: no code outside of `arch` names a machine, except what is public.
    (
        "crates/skep-jit/src",
        &[
            "error", "options", "blind", "site", "watch", "reduce", "layout", "port", "parts", "ends",
            "plan", "live", "passes", "lower", "arch", "kept", "compiled",
        ],
    ),
    (
        "crates/skep-frames/src",
        &[
            "limits", "error", "layers", "value", "options", "frame", "text", "placed", "build", "dissect",
            "fields", "diff",
        ],
    ),
    ("crates/skep-debug/src", &["recording", "breakpoint", "cursor", "session", "dap"]),
    (
        "crates/skep-fuzz/src",
        &["error", "setup", "case", "repair", "packets", "minimise", "target", "fuzzer"],
    ),
    (
        "crates/skep-test/src",
        &[
            "captures", "error", "options", "covered", "node", "outcome", "proto", "table", "fixture",
            "compare", "ran", "kernel", "check", "run", "sections", "suite", "show", "report", "coverage",
            "bless",
        ],
    ),
    ("crates/skep-mutate/src", &["error", "change", "mutants", "score", "judge", "show"]),
    (
        "crates/skep/src",
        &[
            "steps",
            "error",
            "signature",
            "tenant",
            "stats",
            "budget",
            "ending",
            "contract",
            "provides",
            "socket",
            "packet",
            "netfilter",
            "shown",
            "host",
            "object",
            "audit",
            "observe",
            "run_state",
            "image",
            "holders",
            "dispatch",
            "registry",
            "surroundings",
            "machine_objects",
            "timers",
            "shared",
            "expiry",
            "helpers",
            "program",
            "extension",
            "context",
            "iterate",
            "targets",
            "arrays",
            "ops",
            "module",
            "typed",
            "migrate",
            "json",
            "stream",
            "function",
            "runtime",
            "charging",
            "typed_program",
            "linker",
            "hook",
            "metrics",
            "slot",
            "world",
            "fixture",
            "sys",
        ],
    ),
    (
        "crates/skep-python/src",
        &[
            "errors",
            "released",
            "interrupt",
            "convert",
            "packet",
            "tenant",
            "map",
            "events",
            "program",
            "module",
            "world",
            "runtime",
            "verify",
        ],
    ),
    ("crates/skep-guard/src", &["arch", "error", "key", "pages", "guarded"]),
    (
        "crates/skep-attach/src",
        &["sys", "error", "interface", "arrival", "packets", "tap", "kernel", "xsk", "port", "waker", "live"],
    ),
];

/// Imports against the order.
pub(crate) fn against_the_flow() -> Vec<String> {
    let mut broken = Vec::new();
    for &(source, folders) in FLOWS {
        let files = workspace::files_below(&workspace::root().join(source), ".rs");
        if files.is_empty() {
            broken.push(format!("there are no sources in {source}"));
        }
        for path in files {
            let name = workspace::relative(&path);
            let text = fs::read_to_string(&path).unwrap_or_default();
            broken.extend(judge(source, folders, &name, &text));
        }
    }
    broken
}

/// The violations in one file.
fn judge(source: &str, folders: &[&str], name: &str, text: &str) -> Vec<String> {
    let rank = |folder: &str| folders.iter().position(|known| *known == folder);
    let inside = name.strip_prefix(source).unwrap_or(name).trim_start_matches('/');
    let folder = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
    let Some(ours) = rank(folder) else { return Vec::new() };
    let of_tests = |part: &str| matches!(part, "tests" | "testing" | "models") || part.ends_with("_tests");
    if inside.split('/').skip(1).any(|part| of_tests(part.trim_end_matches(".rs"))) {
        return Vec::new();
    }
    let mut broken = Vec::new();
    let is_test = |line: &str| ["#[cfg(test)]", "#[cfg(all(test"].iter().any(|start| line.starts_with(start));
    let mut before = "";
    for (number, line) in (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.starts_with("//")) {
        let before = std::mem::replace(&mut before, line);
        if is_test(before) && !line.ends_with(';') {
            break; // a block of tests, which comes last in a file
        }
        if is_test(before) || before == "#[cfg(loom)]" {
            continue;
        }
        for rest in line.split("crate::").skip(1) {
            let to: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            match rank(&to) {
                Some(theirs) if theirs <= ours => {}
                Some(_) => broken.push(format!(
                    "{name}:{number} uses {to} from {folder}; the order is {}",
                    folders.join(" <- ")
                )),
                None => {
                    broken.push(format!("{name}:{number} uses crate::{to}; name the folder that it is in"));
                }
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDERS: [&str; 2] = ["low", "high"];

    fn complaints(name: &str, text: &str) -> usize {
        judge("a/src", &FOLDERS, name, text).len()
    }

    #[test]
    fn imports_between_folders_run_one_way() {
        assert_eq!(complaints("a/src/high/x.rs", "use crate::low::y;\nuse crate::high::z;"), 0);
        assert_eq!(complaints("a/src/low.rs", "use crate::high::z;"), 1);
        assert_eq!(complaints("a/src/low/x.rs", "fn f() { crate::high::z(crate::high::y) }"), 2);
        assert_eq!(complaints("a/src/high/x.rs", "use crate::Thing;"), 1);
        assert_eq!(complaints("a/src/low/x.rs", "/// [`crate::high::z`]\nfn f() {}"), 0);
        assert_eq!(complaints("a/src/low/x.rs", "#[cfg(test)]\nmod tests { use crate::high::z; }"), 0);
        assert_eq!(complaints("a/src/low/x.rs", "#[cfg(test)]\nmod tests;\nuse crate::high::z;"), 1);
        assert_eq!(complaints("a/src/lib.rs", "use crate::high::z;"), 0);
        assert_eq!(complaints("a/src/low/models.rs", "use crate::high::z;"), 0);
        assert_eq!(complaints("a/src/low/tests/x.rs", "use crate::high::z;"), 0);
        assert_eq!(complaints("a/src/low/x_tests.rs", "use crate::high::z;"), 0);
        assert_eq!(complaints("a/src/low/contests.rs", "use crate::high::z;"), 1);
        assert_eq!(complaints("a/src/low.rs", "#[cfg(loom)]\nuse crate::high::z;\nuse crate::high::z;"), 1);
        assert_eq!(
            complaints("a/src/low.rs", "#[cfg(all(test, loom))]\nmod models { use crate::high::z; }"),
            0
        );
    }

    #[test]
    fn the_folders_of_this_workspace_keep_their_order() {
        assert_eq!(against_the_flow(), [""; 0]);
    }
}
