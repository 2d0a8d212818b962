//! Loads that may fault: a *probe* that faults gives 0, and the code goes on.
//!
//! The problem: some code has to read through pointers that nobody can vouch for. Checking every address first is slow
//! and cannot be right while other threads map and unmap memory. So the load is simply done, the text says beforehand
//! which of its instructions may fault and where to go on, and a handler of SIGSEGV and SIGBUS carries that out. A
//! probe that does not fault costs nothing.
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
//! | `loads.rs` | single probes as functions, for interpreters |
//! | `handler.rs` | the handler: what is ours, and how the host's handlers see everything else |
//!
//! Invariants: a text's table is in the index before its first instruction can run, and until no thread is in the text
//! any more. Nothing but code is stored in code memory.
//!
//! Protocol, for the owner of texts: [`Faults::enter`] before the code is published; the [`Entered`] that it
//! returns is dropped when nobody can be in the text any more (after its grace period), and before its chunks are free
//! for others or its pack is unmapped.
//!
//! What would break it: an [`Entered`] that is dropped while the text can still run, or lives on when another text has
//! its place; a look-up that waits or allocates.

mod handler;
mod index;
mod loads;
mod sync;
mod table;

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Step};
pub use loads::Loads;

use index::{Directory, Index};
use table::Table;

/// One instruction that may fault, in a [`Draft`](crate::Draft).
///
/// Offsets are in bytes from the start of the draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// Where the instruction starts.
    pub at: usize,
    /// Where to go on when it faults: the instruction behind it, usually.
    pub resume: usize,
    /// The general register to zero, by the machine's number (x86-64: 0 is `rax`, 1 `rcx`, 2 `rdx`, 3 `rbx`, 5 `rbp`,
    /// 6 `rsi`, 7 `rdi`, then `r8` to `r15`; aarch64: `x0` to `x30`). None zeroes nothing.
    pub register: Option<u8>,
}

/// Every text in this process that has probes.
static INDEX: Index<Table> = Index::new(AtomicPtr::new(ptr::null_mut()));

/// The probes of a draft so far.
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

/// What an arena has to do with faults: whether the host allows probes, and its part of the index.
pub(crate) struct Faults {
    range: Range<usize>,
    allowed: bool,
    directory: OnceLock<Directory<Table>>,
}

impl Faults {
    /// For an arena whose texts will all be in `range`. Costs nothing until a text has probes.
    pub(crate) fn new(range: Range<usize>, allowed: bool) -> Self {
        Self { range, allowed, directory: OnceLock::new() }
    }

    /// Whether texts may have probes.
    pub(crate) fn allow_probes(&self) -> Result<(), Error> {
        if self.allowed { Ok(()) } else { Err(Error::ProbesForbidden) }
    }

    /// Makes the probes of the text at `text` known to the handler, installing that where it is not. None for a text
    /// without probes. Not for forked children: those are refused before.
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

/// The probes of a text as the handler knows them. Dropping it makes them unknown, and faults there the host's.
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
        // SAFETY: leaked in `enter`. Only a thread that faults inside the text ever follows the index to this table,
        // and whoever drops us has made sure that none is there.
        drop(unsafe { Box::from_raw(self.table.as_ptr()) });
    }
}

fn no_memory() -> Error {
    Error::System { step: Step::IndexProbes, error: io::ErrorKind::OutOfMemory.into() }
}
