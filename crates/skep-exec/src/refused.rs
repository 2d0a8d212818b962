//! What was refused because it lacks, for the end of an application.
//!
//! Most is noted where it is refused ([`SysEngine::note_lack`]). Of commands that are refused as a whole, the table
//! says which error means that.

use skep::sys::{Lack, SysEngine};
use skep_sys::{Command, Errno};

/// Commands, and the errors by which they are refused as on a kernel without them.
const WHOLE: [(Command, Errno); 1] = [(Command::TokenCreate, Errno::EPERM)];

/// Notes a failed command, if it lacks as a whole.
pub(crate) fn command(engine: &SysEngine, number: u32, error: Errno) {
    match Command::from_number(number) {
        Some(command) if WHOLE.contains(&(command, error)) => engine.note_lack("command", command.name()),
        Some(_) => {}
        None => engine.note_lack("command", format!("bpf({number})")),
    }
}

/// What receives them.
pub(crate) type Each = dyn Fn(&Refused) + Send + Sync;

/// Something that an application was refused because it lacks, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// What kind of thing it is: `command`, `map kind`, `map element`, `program type`, `helper`, `attachment`, `perf
    /// event`.
    pub what: &'static str,
    /// Its name, or its number.
    pub name: String,
    /// How often it was asked for.
    pub times: u64,
}

impl From<(Lack, u64)> for Refused {
    fn from((lack, times): (Lack, u64)) -> Self {
        Self { what: lack.what, name: lack.name, times }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, name, times } = self;
        let often = if *times == 1 { String::new() } else { format!(" ({times} times)") };
        write!(f, "{what} {name}{often}")
    }
}
