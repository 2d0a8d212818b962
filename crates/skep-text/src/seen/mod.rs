//! Telling profilers and debuggers what code there is: names for addresses.
//!
//! The problem: compiled code belongs to no file, so a profile shows it as bare addresses and a debugger cannot name a
//! frame of it. There are three conventions for telling them, each read by other tools and each with a price, so each
//! is off until the host asks for it:
//!
//! ```text
//!                perf map                  jitdump                      GDB's JIT interface
//!   where        /tmp/perf-PID.map         DIR/jit-PID.dump             a linked list in memory
//!   holds        address, size, name       the same, time, the bytes    a small ELF object for each text
//!   read by      perf, bpftrace, others    perf inject --jit            gdb, lldb
//!   forgets      when the place is reused  never, but knows when        when the place is given back
//! ```
//!
//! Protocol: [`Seen::open`] when the arena is made, the only call that can fail; [`Seen::added`] when a text has been
//! published and before anybody can run it; [`Seen::removed`] when nobody runs it any more and before its place is
//! given to another. Removing what was never added does nothing.
//!
//! What goes wrong after the opening never fails a load: a file that cannot be written is left as it is, and
//! [`Seen::missed`] counts what it lacks.
//!
//! **The tools and the backing.** An arena with a perf map or with GDB must have *private anonymous* memory, written
//! through `/proc/self/mem`:
//!
//! ```text
//!   code memory is                       perf map    jitdump    GDB: names    GDB: break
//!   a memfd, whatever it is called       nameless    named      named         cannot insert; hbreak works
//!   shared anonymous (/dev/zero)         named       (untried)  (untried)     cannot insert
//!   private anonymous                    named       named      named         works
//! ```
//!
//! perf takes a mapping of a file for a file, looks for symbols there and, finding none, does not look at the map. The
//! kernel lets a debugger write into a mapping that the process may not write only where the page can be copied for it,
//! which is never so in shared memory. Tried with perf 6.1 and GDB 13.1; the tests hold the first, second and fourth
//! column of what the arena uses.
//!
//! What would break it: a forked child that writes in its parent's name (every write compares the process); memory
//! of an entry of GDB's list freed while the list has it.

mod elf;
mod file;
mod gdb;
mod jitdump;
mod perf_map;

use std::path::PathBuf;
use std::{fmt, io};

use crate::error::Error;

/// What a host asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) perf_map: bool,
    pub(crate) jitdump: Option<PathBuf>,
    pub(crate) gdb: bool,
}

/// Those that are told about the texts of one arena.
pub(crate) struct Seen {
    perf_map: Option<perf_map::PerfMap>,
    jitdump: Option<jitdump::JitDump>,
    gdb: Option<gdb::Gdb>,
}

/// A file for tools that lacks texts, because it could not be written.
///
/// The texts themselves are as good as any; only the tool does not know their names.
#[derive(Debug)]
#[non_exhaustive]
pub struct Missed {
    /// The file's kind.
    pub tool: Tool,
    /// How many texts it lacks: those of every arena in the process that shares the file.
    pub texts: u64,
    /// Why nothing has been written since the first of them.
    pub reason: io::Error,
}

/// A file that tells tools about texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tool {
    /// [`Config::perf_map`](crate::Config::perf_map).
    PerfMap,
    /// [`Config::jitdump`](crate::Config::jitdump).
    Jitdump,
}

impl Seen {
    /// Opens what the host asked for.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        Ok(Self {
            perf_map: options.perf_map.then(perf_map::PerfMap::open).transpose()?,
            jitdump: options.jitdump.as_deref().map(jitdump::JitDump::open).transpose()?,
            gdb: options.gdb.then(gdb::Gdb::new),
        })
    }

    /// Whether anybody is told anything.
    pub(crate) fn is_on(&self) -> bool {
        self.perf_map.is_some() || self.jitdump.is_some() || self.gdb.is_some()
    }

    /// Tells that `code` can be run at `address` from now on. `name` has passed through [`clean_name`].
    pub(crate) fn added(&self, name: &str, address: usize, code: &[u8]) {
        if let Some(perf_map) = &self.perf_map {
            perf_map.add(name, address, code.len());
        }
        if let Some(jitdump) = &self.jitdump {
            jitdump.add(name, address, code);
        }
        if let Some(gdb) = &self.gdb {
            gdb.add(name, address, code.len());
        }
    }

    /// Tells that the text at `address` is gone.
    pub(crate) fn removed(&self, address: usize) {
        if let Some(gdb) = &self.gdb {
            gdb.remove(address);
        }
    }

    /// What could not be written.
    pub(crate) fn missed(&self) -> Vec<Missed> {
        let perf_map = self.perf_map.as_ref().and_then(perf_map::PerfMap::missed);
        let jitdump = self.jitdump.as_ref().and_then(jitdump::JitDump::missed);
        perf_map.into_iter().chain(jitdump).collect()
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = match self.tool {
            Tool::PerfMap => "perf map",
            Tool::Jitdump => "jitdump",
        };
        write!(f, "the {file} lacks {} texts: writing it failed: {}", self.texts, self.reason)
    }
}

/// The longest name, in bytes.
const MAX_NAME: usize = 255;

/// The name as it is told to tools: white space and control characters, which would break a line of the perf map, become
/// underscores, and what is longer than 255 bytes is cut. Nothing remains of an empty name.
pub(crate) fn clean_name(name: String) -> Option<String> {
    let bad = |c: char| c.is_whitespace() || c.is_control();
    let mut name = if name.contains(bad) { name.replace(bad, "_") } else { name };
    // `str::floor_char_boundary` came after Rust 1.88.
    let end = (0..=MAX_NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    name.truncate(end.unwrap_or(0));
    (!name.is_empty()).then_some(name)
}

/// The name of a text that was given none.
pub(crate) fn default_name(address: usize) -> String {
    format!("skep_text_{address:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_what_a_line_can_hold_and_nothing_else() {
        assert_eq!(clean_name("skep_prog_0123_main".into()).unwrap(), "skep_prog_0123_main");
        assert_eq!(clean_name("a b\tc\nd\0e\u{2028}f\u{85}g".into()).unwrap(), "a_b_c_d_e_f_g");
        assert_eq!(clean_name("größe<T>::{closure#0}".into()).unwrap(), "größe<T>::{closure#0}");
        assert_eq!(clean_name("".into()), None);
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(clean_name("x".repeat(300)).unwrap().len(), 255);
        // 127 characters of two bytes are 254; half of the next would fit.
        assert_eq!(clean_name("ö".repeat(300)).unwrap(), "ö".repeat(127));
    }
}
