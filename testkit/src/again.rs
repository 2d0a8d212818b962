//! Runs programs that were built for the same target as the tests.
//!
//! Under an emulator the kernel cannot execute them: they need the runner with which cargo started the test. Tests
//! can see it only in the variable `CARGO_TARGET_<TRIPLE>_RUNNER`, which must be set.

use std::ffi::OsStr;
use std::process::Command;

/// A command that runs this program again.
///
/// # Panics
///
/// If the path of the program is unknown.
pub fn itself() -> Command {
    other(std::env::current_exe().expect("a program knows its own path"))
}

/// A command that runs only the calling test again, in a process of its own, and shows its output.
///
/// # Panics
///
/// On a thread that the test started, because only the test's own thread has its name.
pub fn this_test() -> Command {
    let mut command = itself();
    command.args([&test_name(), "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// The full name of the calling test, with its modules: the name that the harness gave the test's thread.
///
/// # Panics
///
/// On a thread that the test started.
pub fn test_name() -> String {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main");
    name.expect("a test asks for its name on its own thread").to_owned()
}

/// A command for a program that was built for the same target as this one.
pub fn other(program: impl AsRef<OsStr>) -> Command {
    let runner = runner();
    let mut words = runner.split_whitespace();
    let Some(emulator) = words.next() else { return Command::new(program) };
    let mut command = Command::new(emulator);
    command.args(words).arg(program);
    command
}

/// The words of the runner; none if the kernel executes such programs itself.
pub fn runner() -> String {
    let machine = std::env::consts::ARCH.to_uppercase();
    std::env::var(format!("CARGO_TARGET_{machine}_UNKNOWN_LINUX_GNU_RUNNER")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_can_run_itself_with_any_runner() {
        const CHILD: &str = "SKEP_TESTKIT_CHILD";
        if std::env::var_os(CHILD).is_some() {
            std::process::exit(77);
        }
        assert_eq!(this_test().env(CHILD, "1").status().unwrap().code(), Some(77));
    }

    #[test]
    fn a_test_knows_its_full_name() {
        assert_eq!(test_name(), "again::tests::a_test_knows_its_full_name");
    }

    #[test]
    fn a_thread_without_a_name_is_not_a_test() {
        assert!(std::thread::spawn(test_name).join().is_err());
    }
}
