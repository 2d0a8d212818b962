//! Names for addresses: informing profilers and debuggers about code.
//!
//! The problem: compiled code belongs to no file, so a profile shows it as bare addresses and a debugger cannot name
//! its frames. There are three conventions for passing names, each read by different tools and each with a cost, so
//! each is off until the host enables it:
//!
//! ```text
//!                perf map                  jitdump                      GDB's JIT interface
//!   where        /tmp/perf-PID.map         DIR/jit-PID.dump             a linked list in memory
//!   holds        address, size, name       the same, time, the bytes    a small ELF object for each text
//!   read by      perf, bpftrace, others    perf inject --jit            gdb, lldb
//!   forgets      when the place is reused  never, but knows when        when the place is given back
//! ```
//!
//! Protocol: [`Seen::open`] when the arena is made, the only call that can fail; [`Seen::added`] after a text is
//! published and before it can run; [`Seen::removed`] when no thread runs it any more and before its place is
//! reused. Removing a text that was never added does nothing.
//!
//! A failure after the opening never fails a load: a file that cannot be written stays as it is, and
//! [`Seen::missed`] counts the texts that it lacks.
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
//! perf treats a mapping of a file as a file, looks for symbols there and, finding none, ignores the perf map. The
//! kernel lets a debugger write into a read-only mapping only if the page can be copied for it, which is impossible
//! in shared memory. Tried with perf 6.1 and GDB 13.1; the tests check the first, second and fourth column for the
//! memory that the arena uses.
//!
//! What would break it: a forked child that writes in its parent's name (every write compares the process); freeing
//! the memory of an entry that is in GDB's list.

mod elf;
mod file;
mod gdb;
mod jitdump;
mod perf_map;

use std::path::PathBuf;
use std::{fmt, io};

use crate::error::Error;

/// The options that the host set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) perf_map: bool,
    pub(crate) jitdump: Option<PathBuf>,
    pub(crate) gdb: bool,
}

/// The receivers of one arena's texts.
pub(crate) struct Seen {
    perf_map: Option<perf_map::PerfMap>,
    jitdump: Option<jitdump::JitDump>,
    gdb: Option<gdb::Gdb>,
}

/// A file for tools that lacks texts, because a write failed.
///
/// The texts themselves work; only the tool does not know their names.
#[derive(Debug)]
#[non_exhaustive]
pub struct Missed {
    /// The file's kind.
    pub tool: Tool,
    /// The number of missing texts, of all arenas in the process that share the file.
    pub texts: u64,
    /// The error that ended writing.
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
    /// Opens the files that the host enabled.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        Ok(Self {
            perf_map: options.perf_map.then(perf_map::PerfMap::open).transpose()?,
            jitdump: options.jitdump.as_deref().map(jitdump::JitDump::open).transpose()?,
            gdb: options.gdb.then(gdb::Gdb::new),
        })
    }

    /// Whether there is any receiver.
    pub(crate) fn is_on(&self) -> bool {
        self.perf_map.is_some() || self.jitdump.is_some() || self.gdb.is_some()
    }

    /// Reports that `code` can run at `address` from now on. `name` has passed through [`clean_name`].
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

    /// Reports that the text at `address` is gone.
    pub(crate) fn removed(&self, address: usize) {
        if let Some(gdb) = &self.gdb {
            gdb.remove(address);
        }
    }

    /// The files that lack texts.
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

/// The name in the form for tools: white space and control characters, which would break a line of the perf map,
/// become underscores, and a name longer than 255 bytes is cut. An empty name stays empty.
pub(crate) fn clean_name(name: String) -> Option<String> {
    let bad = |c: char| c.is_whitespace() || c.is_control();
    let mut name = if name.contains(bad) { name.replace(bad, "_") } else { name };
    // `str::floor_char_boundary` came after Rust 1.88.
    let end = (0..=MAX_NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    name.truncate(end.unwrap_or(0));
    (!name.is_empty()).then_some(name)
}

/// The default name of a text.
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
