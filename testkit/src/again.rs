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
        let mut command = itself();
        command.args(["--exact", "again::tests::a_program_runs_itself_whatever_runs_it"]).env(CHILD, "1");
        assert_eq!(command.status().unwrap().code(), Some(77));
    }
}
