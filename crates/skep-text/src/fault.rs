//! Loads that may fault: a *probe* that faults yields 0, and the code continues.
//!
//! The problem: some code has to read through pointers of unknown validity. Checking every address first is slow,
//! and cannot be correct while other threads map and unmap memory. So the load is simply executed: the text declares
//! which of its instructions may fault and where to resume, and a handler of SIGSEGV and SIGBUS carries that out. A
//! probe that does not fault costs nothing extra.
//!
//! ```text
//!    Draft::probe          finalize                          a fault
//!    ───────────           ────────                          ───────
//!    list of Probe ──────> Table (sorted, out of line) <──── Index ──── program counter
//!                          entered for every chunk           (lock-free: index.rs)
//!                          of the text
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `table.rs` | the exception table of one text: offsets relative to its start, sorted |
//! | `index.rs` | from a program counter to that table, inside a signal handler, while texts come and go |
//! | `sync.rs` | the atomics of the index, which a model replaces |
//! | `handler.rs` | the handler: which faults are ours, and how all others reach the host's handlers |
//!
//! Invariants: a text's table is in the index before its first instruction can run, and until no thread is in the
//! text any more. Code memory contains only code.
//!
//! Protocol, for the owner of texts: call [`Faults::enter`] before the code is published; drop the returned
//! [`Entered`] after the text's grace period, and before its chunks are free or its pack is unmapped.
//!
//! What would break it: an [`Entered`] dropped while the text can still run, or kept until another text has its
//! place; a look-up that waits or allocates.

mod handler;
mod index;
mod sync;
mod table;

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, SystemCall};

use index::{Directory, Index};
use table::Table;

/// One instruction that may fault, in a [`Draft`](crate::Draft).
///
/// Offsets are in bytes from the start of the draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// Offset of the instruction.
    pub at: usize,
    /// Offset to resume at after a fault: usually the next instruction.
    pub resume: usize,
    /// The general register to zero, by the machine's number (x86-64: 0 is `rax`, 1 `rcx`, 2 `rdx`, 3 `rbx`, 5
    /// `rbp`, 6 `rsi`, 7 `rdi`, then `r8` to `r15`; aarch64: `x0` to `x30`). `None` zeroes no register.
    pub register: Option<u8>,
}

/// All texts with probes in this process.
static INDEX: Index<Table> = Index::new(AtomicPtr::new(ptr::null_mut()));

/// The probes declared so far for a draft.
#[derive(Default)]
pub(crate) struct Probes {
    list: Vec<Probe>,
}

impl Probes {
    /// Adds a probe to a draft of `len` bytes.
    pub(crate) fn add(&mut self, probe: Probe, len: usize) -> Result<(), Error> {
        table::check(&probe, len)?;
        self.list.push(probe);
        Ok(())
    }
}

/// An arena's state for faults: whether the host allows probes, and its part of the index.
pub(crate) struct Faults {
    range: Range<usize>,
    allowed: bool,
    directory: OnceLock<Directory<Table>>,
}

impl Faults {
    /// For an arena whose texts are all in `range`. Allocates nothing until a text has probes.
    pub(crate) fn new(range: Range<usize>, allowed: bool) -> Self {
        Self { range, allowed, directory: OnceLock::new() }
    }

    /// Whether texts may have probes.
    pub(crate) fn allow_probes(&self) -> Result<(), Error> {
        if self.allowed { Ok(()) } else { Err(Error::ProbesForbidden) }
    }

    /// Makes the probes of the text at `text` known to the handler, and installs the handler if necessary. `None`
    /// for a text without probes. Forked children never call this: they are refused earlier.
    pub(crate) fn enter(
        self: &Arc<Self>,
        text: Range<usize>,
        probes: Probes,
    ) -> Result<Option<Entered>, Error> {
        if probes.list.is_empty() {
            return Ok(None);
        }
        self.allow_probes()?;
        let table = Table::new(text.clone(), probes.list)?;
        handler::install()?;
        let directory = self.directory.get_or_init(|| INDEX.register(self.range.clone()));
        directory.prepare(&text).map_err(|_| no_memory())?;
        let table = NonNull::from(Box::leak(Box::new(table)));
        directory.enter(&text, table);
        Ok(Some(Entered { faults: Arc::clone(self), text, table }))
    }
}

/// A text's entry in the index. Dropping it removes the entry, so that faults there are the host's.
#[must_use = "the probes are unknown again when this is dropped"]
pub(crate) struct Entered {
    faults: Arc<Faults>,
    text: Range<usize>,
    table: NonNull<Table>,
}

// SAFETY: a table never changes, and only `drop` frees it.
unsafe impl Send for Entered {}
// SAFETY: as above.
unsafe impl Sync for Entered {}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(directory) = self.faults.directory.get() {
            directory.remove(&self.text);
        }
        // SAFETY: leaked in `enter`. Only a thread that faults inside the text follows the index to this table, and
        // the owner drops this only when no thread is in the text.
        drop(unsafe { Box::from_raw(self.table.as_ptr()) });
    }
}

fn no_memory() -> Error {
    Error::System { call: SystemCall::IndexProbes, error: io::ErrorKind::OutOfMemory.into() }
}
