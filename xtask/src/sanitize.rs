//! `cargo xtask sanitize`: tests under tools that detect more than a plain run. Run it by hand, and before a release.
//!
//! | tool | finds | runs |
//! |---|---|---|
//! | `miri` | undefined behaviour, by interpreting | unit tests of crates that make few system calls |
//! | `address` | accesses outside of allocations, use after free, leaks | tests of crates that manage memory |
//! | `thread` | data races | tests of crates with several threads |
//!
//! All of them need a nightly compiler; `miri` its component, and `miri` and `thread` the sources of the standard
//! library, which they compile with the same instrumentation.
//!
//! Each [`Run`] is one crate's tests under one tool. A test that cannot run under a tool is listed there with the
//! reason ([`Excluded`]); the summary prints it. A run fails if a test fails, if the tool reports anything, even in a
//! process that a test started, or if a list names a test that does not exist.

use std::env::consts::ARCH;

use crate::process::{Outcome, Process};

/// A tool and the tests that run under it.
struct Tool {
    name: &'static str,
    /// Required components of the nightly toolchain.
    components: &'static [&'static str],
    /// For cargo, before the package.
    command: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    runs: &'static [Run],
    /// Whole crates or files of tests that do not run, each with the reason.
    not_run: &'static [(&'static str, &'static str)],
}

/// Tests of one crate.
struct Run {
    package: &'static str,
    /// Which of its targets.
    targets: &'static [&'static str],
    /// Instead of the tool's of the same name.
    variables: &'static [(&'static str, &'static str)],
    excluded: &'static [Excluded],
}

/// Tests that are left out for one reason, each by its full name.
struct Excluded {
    tests: &'static [&'static str],
    reason: &'static str,
}

/// What a run printed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    filtered: usize,
    /// The tool's reports.
    findings: Vec<String>,
}

const ALL: &[&str] = &["--lib", "--tests"];

/// AddressSanitizer's options. A test reserves a terabyte, which the allocator must refuse instead of ending the
/// process. Faults of generated code are handled or die of their signal, as tests expect, instead of being reported:
/// an access that nothing expects still ends its test.
const ADDRESS: &str = "detect_leaks=1:allocator_may_return_null=1:handle_segv=0:handle_sigbus=0";

/// ThreadSanitizer's options. Children of tests may start threads; the rest is as for AddressSanitizer.
///
/// The tool must see when memory is unmapped, or it takes two uses of an address by two threads for a race: so
/// `rustix_use_libc` makes system calls go through the C library, where the tool intercepts them. It does not model
/// fences and membarrier(2), but so far no report came from that: what they order are atomic accesses.
const THREAD: &str = "die_after_fork=0:allocator_may_return_null=1:handle_segv=0:handle_sigbus=0";

const TOOLS: [Tool; 3] = [
    Tool {
        name: "miri",
        components: &["miri", "rust-src"],
        command: &["miri", "test"],
        // Integer addresses are turned into pointers on purpose (exposed provenance); the clock and the environment are
        // read.
        variables: &[("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-disable-isolation")],
        runs: &[
            Run { package: "skep-isa", targets: &["--lib"], variables: &[], excluded: &[] },
            Run { package: "skep-btf", targets: &["--lib"], variables: &[], excluded: &[] },
        ],
        not_run: &[
            (
                "skep-isa, skep-btf: integration tests",
                "they take hours, read kernels' files or start programs of LLVM",
            ),
            (
                "skep-rcu, skep-mem",
                "system calls that Miri does not know, and time; loom runs models of both",
            ),
            ("skep-text, skep-maps", "generated code, signals, and memory that is mapped twice"),
        ],
    },
    Tool {
        name: "address",
        components: &[],
        command: &["test"],
        variables: &[("RUSTFLAGS", "-Zsanitizer=address"), ("ASAN_OPTIONS", ADDRESS)],
        runs: &[
            Run { package: "skep-rcu", targets: ALL, variables: &[], excluded: &[] },
            Run { package: "skep-mem", targets: ALL, variables: &[], excluded: &[] },
            Run {
                package: "skep-maps",
                targets: ALL,
                variables: &[],
                excluded: &[Excluded {
                    tests: &[
                        "maps_created_and_dropped_repeatedly_leak_nothing",
                        "maps_dropped_inside_a_section_are_freed_after_it",
                        "maps_with_their_own_domain_leak_nothing",
                    ],
                    reason: "they measure resident memory, which the quarantine of freed memory keeps; they run below \
                             with a quarantine of 1 MiB",
                }],
            },
            Run {
                package: "skep-maps",
                targets: &["--test", "cycles"],
                variables: &[(
                    "ASAN_OPTIONS",
                    "detect_leaks=1:quarantine_size_mb=1:thread_local_quarantine_size_kb=64",
                )],
                excluded: &[],
            },
            Run { package: "skep-text", targets: ALL, variables: &[], excluded: TEXT_ADDRESS },
        ],
        not_run: &[],
    },
    Tool {
        name: "thread",
        components: &["rust-src"],
        command: &["test", "-Zbuild-std"],
        variables: &[("RUSTFLAGS", "-Zsanitizer=thread --cfg=rustix_use_libc"), ("TSAN_OPTIONS", THREAD)],
        runs: &[
            Run { package: "skep-rcu", targets: ALL, variables: &[], excluded: &[] },
            Run { package: "skep-mem", targets: ALL, variables: &[], excluded: &[] },
            Run { package: "skep-maps", targets: ALL, variables: &[], excluded: MAPS_THREAD },
            Run { package: "skep-text", targets: TEXT_THREAD_TARGETS, variables: &[], excluded: TEXT_THREAD },
        ],
        not_run: &[(
            "skep-text: tests/faults.rs, tests/protection.rs, tests/near.rs",
            "the tool runs the host's signal handlers itself, later than the kernel would, and fills the address space",
        )],
    },
];

/// What of skep-text runs under ThreadSanitizer.
const TEXT_THREAD_TARGETS: &[&str] = &[
    "--lib",
    "--test",
    "life",
    "--test",
    "poke",
    "--test",
    "soak",
    "--test",
    "landing_pads",
    "--test",
    "seen",
    "--test",
    "seen_two",
];

const MAPS_THREAD: &[Excluded] = &[
    Excluded {
        tests: &["maps_report_the_system_s_refusal_of_memory_and_recover"],
        reason: "it limits the address space, and the tool ends the process when it gets no memory itself",
    },
    Excluded {
        tests: &["only_preallocated_tables_use_large_pages"],
        reason: "it measures resident memory, to which the tool adds its own",
    },
    Excluded {
        tests: &["a_program_inside_a_host_s_change_is_refused"],
        reason: "a handler enters a domain for the first time, which allocates; the tool takes that for an error in \
                 any handler, but this one runs at one known access of the map, outside of the allocator",
    },
];

/// Excluded under both sanitizers.
const COMPARES_MAPPINGS: Excluded = Excluded {
    tests: &[
        "pack::tests::faults::a_pack_that_cannot_be_unmapped_is_returned_unchanged",
        "pack::tests::faults::any_failing_growth_or_promotion_leaves_the_pack_usable",
        "pack::tests::faults::any_failure_to_make_a_pack_is_named_and_leaks_nothing",
        "pack::tests::life::under_mdwe_a_pack_is_populated_at_creation",
        "pack::tests::roads::a_hardened_pack_is_not_writable_or_resizable",
        "tests::faults::any_failing_call_loses_nothing_and_the_arena_works",
        "tests::faults::any_failure_to_make_an_arena_is_named_and_leaks_nothing",
    ],
    reason: "they read what mappings the process has and what is resident in them, and the tool's allocator makes, \
             splits and merges mappings meanwhile",
};

const TEXT_THREAD: &[Excluded] = &[
    COMPARES_MAPPINGS,
    Excluded {
        tests: &["pack::tests::roads::the_writable_view_is_far_away_with_equal_alignment"],
        reason: "the tool confines mappings to a small part of the address space",
    },
];

const TEXT_ADDRESS: &[Excluded] = &[
    COMPARES_MAPPINGS,
    Excluded {
        tests: &["under_a_file_limit_the_error_names_the_remedy"],
        reason: "it counts the process's mappings, and the tool's allocator makes some meanwhile",
    },
    Excluded {
        tests: &["under_an_address_limit_the_range_is_smaller"],
        reason: "it limits the address space to less than the tool's shadow memory",
    },
];

/// Runs one tool, or all even if one finds something. Returns `None` if no tool has that name.
pub(crate) fn run(name: Option<&str>) -> Option<Outcome> {
    let chosen: Vec<&Tool> = TOOLS.iter().filter(|tool| name.is_none_or(|name| name == tool.name)).collect();
    if chosen.is_empty() {
        return None;
    }
    let mut summary = Vec::new();
    let mut clean = true;
    for tool in chosen {
        let prepared = tool.prepare();
        for run in tool.runs {
            let (lines, passed) = match prepared.clone().and_then(|()| tool.execute(run)) {
                Ok((outcome, counts)) => run.judge(outcome, &counts),
                Err(reason) => (vec![format!("FAILED {}: {reason}", run.title())], false),
            };
            clean &= passed;
            summary.extend(lines.into_iter().map(|line| format!("{:8} {line}", tool.name)));
        }
        for (what, reason) in tool.not_run {
            summary.push(format!("{:8} not run: {what}: {reason}", tool.name));
        }
    }
    eprintln!("\n---- summary ----\n{}", summary.join("\n"));
    Some(if clean { Ok(()) } else { Err("a tool found something, or could not run".to_owned()) })
}

impl Tool {
    fn execute(&self, run: &Run) -> Result<(Outcome, Counts), String> {
        let arguments = self.arguments(run);
        // Cargo names each test binary in its standard error, and the results must stay behind those names.
        let shell = ["-c", "exec \"$@\" 2>&1", "sh", "rustup", "run", "nightly", "cargo"];
        let words: Vec<&str> = shell.into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let process = Process::new("sh", &words);
        let variables = self.variables.iter().chain(run.variables);
        let process = variables.fold(process, |process, (name, value)| process.env(name, value));
        let (outcome, lines) = process.run_watched()?;
        Ok((outcome, Counts::of(&lines)))
    }

    /// What cargo is given. The target is named so that build scripts and macros stay without instrumentation.
    fn arguments(&self, run: &Run) -> Vec<String> {
        let target = format!("{ARCH}-unknown-linux-gnu");
        let directory = format!("target/sanitize-{}", self.name);
        let fixed =
            ["--no-fail-fast", "--target", &target, "--target-dir", &directory, "--package", run.package];
        let skipped = run.tests().flat_map(|test| ["--skip", test]);
        let words =
            self.command.iter().chain(&fixed).chain(run.targets).copied().chain(["--"]).chain(skipped);
        words.map(str::to_owned).collect()
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

impl Run {
    fn title(&self) -> String {
        format!("{} {}", self.package, self.targets.join(" "))
    }

    /// The names of excluded tests.
    fn tests(&self) -> impl Iterator<Item = &'static str> {
        self.excluded.iter().flat_map(|excluded| excluded.tests.iter().copied())
    }

    /// Lines for the summary, and whether all is well.
    fn judge(&self, outcome: Outcome, counts: &Counts) -> (Vec<String>, bool) {
        let excluded = self.tests().count();
        let mut complaints: Vec<String> =
            counts.findings.iter().map(|line| format!("found: {line}")).collect();
        complaints.extend(outcome.err());
        if counts.filtered != excluded {
            complaints.push(format!(
                "{} tests were left out and {excluded} are listed: correct the list",
                counts.filtered
            ));
        }
        if counts.passed == 0 {
            complaints.push("no test passed".to_owned());
        }
        let Counts { passed, failed, .. } = counts;
        let word = if complaints.is_empty() { "ok    " } else { "FAILED" };
        let title = format!("{word} {}: {passed} passed, {failed} failed, {excluded} excluded", self.title());
        let reasons = self.excluded.iter().map(|Excluded { tests, reason }| {
            format!("       excluded, because {reason}: {}", tests.join(", "))
        });
        let clean = complaints.is_empty();
        let complaints = complaints.into_iter().map(|line| format!("       {line}"));
        ([title].into_iter().chain(complaints).chain(reasons).collect(), clean)
    }
}

impl Counts {
    /// Sums the last result of each test binary: a test that runs itself again prints results before it.
    fn of(lines: &[String]) -> Self {
        let mut counts = Self::default();
        let mut last = None;
        for line in lines.iter().map(|line| line.trim()) {
            // Tests print without ending their lines, so that this may stand behind something else.
            if let Some((_, result)) = line.split_once("test result: ") {
                last = Some(result);
            } else if line.starts_with("Running ") || line.starts_with("Doc-tests ") {
                counts.add(last.take());
            } else if FINDINGS.iter().any(|finding| line.contains(finding)) {
                counts.findings.push(line.to_owned());
            }
        }
        counts.add(last);
        counts
    }

    /// Adds `ok. 5 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.1s`.
    fn add(&mut self, result: Option<&str>) {
        let number = |what: &str| -> usize {
            let part =
                result.and_then(|line| line.split(['.', ';']).find_map(|part| part.strip_suffix(what)));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        self.passed += number(" passed");
        self.failed += number(" failed");
        self.filtered += number(" filtered out");
    }
}

/// What the tools print when they find something.
const FINDINGS: [&str; 3] =
    ["SUMMARY: AddressSanitizer", "SUMMARY: ThreadSanitizer", "error: Undefined Behavior"];

/// Those that are not in rustup's list, one component a line, some with a target after the name.
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

    const RUN: Run = Run {
        package: "skep-maps",
        targets: ALL,
        variables: &[],
        excluded: &[Excluded { tests: &["it_forks"], reason: "it forks" }],
    };

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
    fn tests_that_cannot_run_are_left_out_by_name() {
        let arguments = TOOLS[1].arguments(&RUN).join(" ");
        assert!(arguments.starts_with("test --no-fail-fast --target "), "{arguments}");
        assert!(arguments.ends_with("--package skep-maps --lib --tests -- --skip it_forks"), "{arguments}");
    }

    #[test]
    fn an_unknown_tool_does_not_run() {
        assert!(run(Some("memory")).is_none());
    }

    fn counts(lines: &[&str]) -> Counts {
        Counts::of(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    const OUTPUT: [&str; 6] = [
        "     Running unittests src/lib.rs",
        "test again ... test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 44 filtered out; finished in 0.01s",
        "test result: ok. 45 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 3.78s",
        "     Running tests/ring.rs",
        "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        "     Running tests/without_harness.rs",
    ];

    #[test]
    fn each_binarys_last_result_counts() {
        let expected = Counts { passed: 50, failed: 2, filtered: 1, findings: Vec::new() };
        assert_eq!(counts(&OUTPUT), expected);
    }

    #[test]
    fn a_run_fails_on_a_report_a_failure_and_a_test_that_is_not_there() {
        let good = || Counts { passed: 7, filtered: 1, ..Counts::default() };
        assert!(RUN.judge(Ok(()), &good()).1);
        assert!(!RUN.judge(Err("failed".to_owned()), &good()).1);
        assert!(!RUN.judge(Ok(()), &Counts { filtered: 0, ..good() }).1);
        assert!(!RUN.judge(Ok(()), &Counts { passed: 0, ..good() }).1);
        let found = counts(&["SUMMARY: ThreadSanitizer: data race src/a.rs:5 in f"]).findings;
        let (lines, clean) = RUN.judge(Ok(()), &Counts { findings: found, ..good() });
        assert!(!clean && lines[1].contains("found: SUMMARY: ThreadSanitizer: data race"), "{lines:?}");
    }
}
