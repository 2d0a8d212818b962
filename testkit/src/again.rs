//! Running programs that were built for the tests' own machine.
//!
//! Under an emulator the kernel cannot execute them: they need the same runner that cargo started the test with. Cargo
//! tells it to nobody, so the one variable that tests can see must be set: `CARGO_TARGET_<TRIPLE>_RUNNER`.

use std::ffi::OsStr;
use std::process::Command;

/// This very program, to be run again.
///
/// # Panics
///
/// Where the path of the program is not known.
pub fn itself() -> Command {
    other(std::env::current_exe().expect("a program knows its own path"))
}

/// The test that calls this, to be run again alone in a process of its own. It shows its output.
///
/// # Panics
///
/// On a thread that the test started: only the test's own thread has its name.
pub fn this_test() -> Command {
    let mut command = itself();
    command.args([&test_name(), "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// The full name of the test that calls this, with its modules: the harness names the test's thread so.
///
/// # Panics
///
/// On a thread that the test started.
pub fn test_name() -> String {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main");
    name.expect("a test asks for its name on its own thread").to_owned()
}

/// A program that was built for the same machine as this one.
pub fn other(program: impl AsRef<OsStr>) -> Command {
    let runner = runner();
    let mut words = runner.split_whitespace();
    let Some(emulator) = words.next() else { return Command::new(program) };
    let mut command = Command::new(emulator);
    command.args(words).arg(program);
    command
}

/// What starts such programs, in words; none where the kernel does.
pub fn runner() -> String {
    let machine = std::env::consts::ARCH.to_uppercase();
    std::env::var(format!("CARGO_TARGET_{machine}_UNKNOWN_LINUX_GNU_RUNNER")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_itself_whatever_runs_it() {
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
    fn a_thread_without_a_name_is_no_test() {
        assert!(std::thread::spawn(test_name).join().is_err());
    }
}
