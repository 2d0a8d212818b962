//! Runs the test programs that cargo has built, several at a time.
//!
//! Cargo runs test programs one after the other, and leaves cores idle at the end of each. Here one program per core
//! runs at a time, the longest first. A few programs measure things that other processes disturb: they run
//! afterwards, one at a time. A program runs as cargo would run it: in its package's directory, under the same
//! emulator.
//!
//! A program's output is shown only if it fails. One that does not end within [`LIMIT`] is killed.
//!
//! Tests that fail beside other programs run once more, alone, when all others are done. Those that pass then are
//! named in the summary as unstable: the machine was too busy for them, or they have a race, so somebody should look. A
//! program that a signal ended gets no second chance.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::bounded;
use super::count::Count;

/// The prefix of lines about tests that failed beside other programs and passed alone.
pub(super) const UNSTABLE: &str = "UNSTABLE:";

/// The time that one test program may take. The slowest takes a few minutes on two cores.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// The slowest test programs, by package and target, slowest first. The others follow in cargo's order.
const LONGEST: &[(&str, &str)] = &[
    ("skep-bench", "all"),
    ("skep-cli", "command"),
    ("skep-testgen", "all"),
    ("skep-jit", "skep_jit"),
    ("skep-text", "skep_text"),
    ("skep-mem", "skep_mem"),
    ("skep-rcu", "skep_rcu"),
    ("skep-models", "ring"),
    ("skep-elf", "all"),
    ("skep-text", "life"),
    ("skep-text", "faults"),
    ("skep-text", "protection"),
    ("skep-text", "seen"),
    ("skep", "tail_calls"),
];

/// Test programs that need the machine for themselves.
///
/// `litmus` shows that two cores reorder accesses; the benchmarks' tests measure; the large page test needs free
/// large pages.
const ALONE: &[(&str, &str)] = &[
    ("skep-rcu", "litmus"),
    ("skep-bench", "skep-bench"),
    ("skep-bench", "resident"),
    ("skep-maps", "large_pages"),
];

/// Tests with the same result on every machine, which an emulator need not repeat: they decode encodings, compare the
/// verifier with the interpreter, compile headers, check signatures or fuzz for long, none of which depends on the
/// machine. Parts of their names.
const THE_SAME_EVERYWHERE: &[&str] = &[
    "arch::aarch64::encode::",
    "arch::x86_64::encode::",
    "attacks::",
    "function_headers::",
    "fuzzing::",
    "mutations::",
    "numbers::",
    "signatures::",
    "soundness::",
];

/// Test programs that start many processes. In the emulator their tests run one after the other: QEMU 10 can deadlock
/// on a lock of its own where a thread forks beside others.
const MANY_PROCESSES: &[(&str, &str)] = &[("skep-capi", "c_host")];

/// The argument of a test program that runs one test after the other.
const ONE_AT_A_TIME: &str = "--test-threads=1";

/// The interval of reports on running programs while none ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// A test program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Binary {
    package: String,
    target: String,
    executable: PathBuf,
    /// The package's directory.
    directory: PathBuf,
}

/// The result of a test program.
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) passed: bool,
    pub(super) count: Count,
    /// Both output streams, standard output first.
    pub(super) lines: Vec<String>,
    took: Duration,
    again: Option<Again>,
}

/// What may run once more after a failure.
struct Again {
    binary: Binary,
    /// The tests that failed; empty for all tests of a program that did not end in the emulator, one after the other.
    tests: Vec<String>,
}

/// The runner, arguments and environment of each program.
pub(super) struct Surroundings {
    /// The emulator and its arguments; empty without one.
    pub(super) runner: Vec<String>,
    pub(super) variables: Vec<(&'static str, String)>,
    /// If given, only tests whose names contain it run.
    pub(super) word: Option<&'static str>,
}

impl Binary {
    /// Reads a test program from a line of `cargo test --no-run --message-format=json`; `None` for other lines.
    ///
    /// A line is one object. The parts used here are strings and booleans whose names occur only once.
    pub(super) fn of(line: &str) -> Option<Self> {
        let artifact = line.contains(r#""reason":"compiler-artifact""#);
        let profile = line.split_once(r#""profile":{"#)?.1.split_once('}')?.0;
        if !artifact || !profile.contains(r#""test":true"#) {
            return None;
        }
        let target = line.split_once(r#""target":{"#)?.1;
        let manifest = PathBuf::from(string(line, "manifest_path")?);
        let directory = manifest.parent()?.to_owned();
        let package = string(line, "package_id").map(|id| package(&id, &directory))?;
        Some(Self {
            package,
            target: string(target, "name")?,
            executable: string(line, "executable")?.into(),
            directory,
        })
    }

    pub(super) fn is_of(&self, package: &str) -> bool {
        self.package == package
    }

    /// Where it is.
    pub(super) fn executable(&self) -> String {
        self.executable.display().to_string()
    }

    fn is_in(&self, list: &[(&str, &str)]) -> bool {
        self.place_in(list).is_some()
    }

    fn place_in(&self, list: &[(&str, &str)]) -> Option<usize> {
        list.iter().position(|(package, target)| (*package, *target) == (&self.package, &self.target))
    }

    fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    fn run(&self, surroundings: &Surroundings, how: &[&str]) -> Ended {
        let words = surroundings.runner.iter().map(PathBuf::from).chain([self.executable.clone()]);
        let words: Vec<PathBuf> = words.collect();
        let emulated = !surroundings.runner.is_empty();
        let one_at_a_time = emulated && self.is_in(MANY_PROCESSES) && !how.contains(&ONE_AT_A_TIME);
        let skipped = THE_SAME_EVERYWHERE.iter().flat_map(|name| ["--skip", name]);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(surroundings.word)
            .args(emulated.then_some(skipped).into_iter().flatten())
            .args(one_at_a_time.then_some(ONE_AT_A_TIME))
            .args(how)
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory);
        command.envs(surroundings.variables.iter().map(|(name, value)| (name, value)));
        let started = Instant::now();
        let ran = bounded::run(&mut command, LIMIT);
        let mut ended = Ended {
            name: self.name(),
            passed: false,
            count: Count { failed: 1, ..Count::default() },
            lines: Vec::new(),
            took: started.elapsed(),
            again: None,
        };
        match ran {
            Ok(ran) => {
                ended.passed = ran.status.is_some_and(|status| status.success());
                ended.count = Count::of_program(&ran.output, ended.passed);
                let lines = ran.output.lines().chain(ran.errors.lines());
                ended.lines = lines.map(str::to_owned).collect();
                let tests = match ran.status {
                    Some(status) if status.code() == Some(HARNESS_FAILED) => failed_tests(&ran.output),
                    _ => Vec::new(),
                };
                if !tests.is_empty() || (ran.status.is_none() && emulated) {
                    ended.again = Some(Again { binary: self.clone(), tests });
                }
                if !ended.passed {
                    let how = match ran.status {
                        Some(status) => format!("ended with {status}"),
                        None => format!("was killed: it did not end in {} s", LIMIT.as_secs()),
                    };
                    ended.lines.push(format!("{} {how}", self.executable.display()));
                }
            }
            Err(error) => {
                ended.lines.push(format!("{} could not be started: {error}", words[0].display()));
            }
        }
        ended
    }
}

/// The exit status of Rust's test harness after failed tests.
const HARNESS_FAILED: i32 = 101;

/// The names in lines of the form "test some::name ... FAILED".
fn failed_tests(output: &str) -> Vec<String> {
    let names = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    // A test that must panic has a remark behind its name.
    let mut names: Vec<String> =
        names.map(|name| name.split(" - ").next().unwrap_or(name).to_owned()).collect();
    // A test that runs itself in a child has two such lines.
    names.sort();
    names.dedup();
    names
}

/// Runs all programs and reports the result of each.
pub(super) fn run(mut binaries: Vec<Binary>, surroundings: &Surroundings) -> Vec<Ended> {
    binaries.sort_by_key(|binary| binary.place_in(LONGEST).unwrap_or(usize::MAX));
    let (alone, together): (Vec<_>, Vec<_>) = binaries.into_iter().partition(|binary| binary.is_in(ALONE));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut ended = run_at_once(together, cores, surroundings);
    ended.extend(run_at_once(alone, 1, surroundings));
    ended.iter_mut().for_each(|ended| ended.run_again(surroundings));
    ended
}

fn run_at_once(binaries: Vec<Binary>, workers: usize, surroundings: &Surroundings) -> Vec<Ended> {
    let waiting = Mutex::new(VecDeque::from(binaries));
    let running = Mutex::new(Vec::new());
    let lock =
        |list: &Mutex<VecDeque<Binary>>| list.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut all = Vec::new();
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..workers {
            let (send, waiting, running) = (send.clone(), &waiting, &running);
            scope.spawn(move || {
                while let Some(binary) = lock(waiting) {
                    running.lock().unwrap_or_else(PoisonError::into_inner).push(binary.name());
                    let ended = binary.run(surroundings, &[]);
                    running.lock().unwrap_or_else(PoisonError::into_inner).retain(|name| *name != ended.name);
                    if send.send(ended).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        loop {
            match receive.recv_timeout(PATIENCE) {
                Ok(ended) => {
                    ended.show();
                    all.push(ended);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let names = running.lock().unwrap_or_else(PoisonError::into_inner).join(", ");
                    eprintln!("       still running: {names}");
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    all
}

impl Ended {
    /// Gives what failed its second chance.
    fn run_again(&mut self, surroundings: &Surroundings) {
        let Some(Again { binary, tests }) = self.again.take() else { return };
        let mut words: Vec<&str> = tests.iter().map(String::as_str).collect();
        words.push(if tests.is_empty() { ONE_AT_A_TIME } else { "--exact" });
        let second = binary.run(surroundings, &words);
        second.show();
        if second.passed && (tests.is_empty() || second.count.passed == tests.len()) {
            let which = if tests.is_empty() { "all tests".to_owned() } else { tests.join(", ") };
            self.lines.push(format!("{UNSTABLE} {}: {which}: passed alone at the second attempt", self.name));
            self.passed = true;
            self.count.passed += second.count.passed;
            self.count.failed = 0;
        }
    }

    fn show(&self) {
        if !self.passed {
            eprintln!("\n---- {} ----", self.name);
            self.lines.iter().for_each(|line| eprintln!("{line}"));
        }
        let verdict = if self.passed { "ok" } else { "FAILED" };
        eprintln!("{verdict:6} {:6.1} s  {}: {}", self.took.as_secs_f64(), self.name, self.count);
    }
}

/// The name in a package's identity: `path+file:///place/of/name#0.1.0` or `path+file:///place#name@0.1.0`.
fn package(id: &str, directory: &Path) -> String {
    let fragment = id.rsplit_once('#').map_or("", |(_, fragment)| fragment);
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => directory.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

/// The string of that name, with its escapes of `"` and `\` undone: paths hold no others.
fn string(object: &str, name: &str) -> Option<String> {
    let mut rest = object.split_once(&format!("\"{name}\":\""))?.1.chars();
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(rest.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LINE: &str = concat!(
        r#"{"reason":"compiler-artifact","package_id":"path+file:///s/crates/skep-rcu#0.1.0","#,
        r#""manifest_path":"/s/crates/skep-rcu/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"#,
        r#""name":"litmus","src_path":"/s/crates/skep-rcu/tests/litmus.rs","edition":"2024","doc":false,"#,
        r#""doctest":false,"test":true},"profile":{"opt_level":"1","debuginfo":2,"debug_assertions":true,"#,
        r#""overflow_checks":true,"test":true},"features":[],"filenames":["/t/\"a\\b"],"#,
        r#""executable":"/t/\"a\\b","fresh":false}"#,
    );

    #[test]
    fn a_test_program_is_read_from_cargo_s_message() {
        let binary = Binary::of(LINE).unwrap();
        assert_eq!(binary.name(), "skep-rcu litmus");
        assert_eq!(binary.executable, Path::new(r#"/t/"a\b"#));
        assert_eq!(binary.directory, Path::new("/s/crates/skep-rcu"));
        assert!(binary.is_in(ALONE));
        let named = LINE.replace("skep-rcu#0.1.0", "rcu#other@0.1.0");
        assert_eq!(Binary::of(&named).unwrap().name(), "other litmus");
    }

    #[test]
    fn libraries_and_other_messages_are_not_test_programs() {
        let library =
            LINE.replace(r#""overflow_checks":true,"test":true"#, r#""overflow_checks":true,"test":false"#);
        assert_eq!(Binary::of(&library), None);
        assert_eq!(Binary::of(&LINE.replace(r#""/t/\"a\\b","fresh""#, r#"null,"fresh""#)), None);
        assert_eq!(Binary::of(r#"{"reason":"build-finished","success":true}"#), None);
    }

    fn shell(target: &str, script: &str) -> (Vec<Binary>, Surroundings) {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let binary = Binary {
            package: "p".to_owned(),
            target: target.to_owned(),
            executable: script.into(),
            directory,
        };
        let runner = vec!["sh".to_owned(), "-c".to_owned()];
        (vec![binary], Surroundings { runner, variables: Vec::new(), word: None })
    }

    #[test]
    fn a_program_runs_in_its_package_and_its_tests_are_counted() {
        let line =
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0s";
        let (binaries, surroundings) = shell("t", &format!("test -f Cargo.toml && echo '{line}'"));
        let ended = run(binaries, &surroundings);
        assert!(ended[0].passed);
        assert_eq!(ended[0].count, Count { passed: 3, failed: 0, ignored: 1 });
    }

    #[test]
    fn a_failing_or_killed_program_is_a_failure_with_output() {
        for (script, says) in [("echo seen >&2; exit 101", "exit status: 101"), ("kill -9 $$", "signal: 9")] {
            let (binaries, surroundings) = shell("t", script);
            let ended = run(binaries, &surroundings);
            assert!(!ended[0].passed);
            assert_eq!(ended[0].count.failed, 1);
            assert!(ended[0].lines.iter().any(|line| line.contains(says)), "{:?}", ended[0].lines);
        }
        let (mut binaries, surroundings) = shell("t", "");
        binaries[0].directory = "/nowhere/at/all".into();
        assert!(!run(binaries, &surroundings)[0].passed);
    }

    /// A program that fails test `a` in its first run, and reports `later` in a second one.
    fn fails_once(later: &str) -> (Vec<Binary>, Surroundings) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        // Pairs with itself: each program has a file of its own.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = std::env::temp_dir().join(format!("xtask-once-{}-{number}", std::process::id()));
        let first = "test a ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored;";
        shell(
            "t",
            &format!(
                "if test -e {mark}; then rm {mark}; {later}; else touch {mark}; printf '{first}\n'; exit 101; fi",
                mark = mark.display()
            ),
        )
    }

    #[test]
    fn a_test_that_passes_alone_is_unstable() {
        let (binaries, surroundings) = fails_once("echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'");
        let ended = run(binaries, &surroundings);
        assert!(ended[0].passed);
        assert_eq!(ended[0].count, Count { passed: 3, failed: 0, ignored: 0 });
        assert!(ended[0].lines.iter().any(|line| line.starts_with("UNSTABLE: p t: a:")));
    }

    #[test]
    fn a_test_that_fails_twice_or_is_not_found_again_has_failed() {
        for later in ["exit 101", "echo 'test result: ok. 0 passed; 0 failed; 0 ignored;'"] {
            let (binaries, surroundings) = fails_once(later);
            let ended = run(binaries, &surroundings);
            assert!(!ended[0].passed);
            assert_eq!(ended[0].count.failed, 1);
        }
    }

    #[test]
    fn names_of_failed_tests_are_found_in_the_output() {
        let output = "test a::b ... ok\ntest d - should panic ... FAILED\ntest a::c ... FAILED\ntest a::c ... FAILED\n";
        assert_eq!(failed_tests(output), ["a::c", "d"]);
    }

    #[test]
    fn every_program_runs_once_in_any_worker() {
        let binaries = (0..20).flat_map(|n| shell(&n.to_string(), "true").0).collect();
        let ended = run(binaries, &shell("", "").1);
        let mut names: Vec<_> = ended.iter().map(|ended| ended.name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!((ended.len(), names.len()), (20, 20));
    }
}
