//! Reports about an arena.

use std::fmt;

/// How full an arena is, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// The backing.
    pub backing: Backing,
    /// Why a better backing is not used, if one was tried and refused.
    pub backing_refused: Option<String>,
    /// Whether indirect branches into code must land on landing pads
    /// ([`Config::landing_pads`](crate::Config::landing_pads)): it was requested, and the machine enforces it.
    pub landing_pads: bool,
    /// Packs mapped.
    pub packs: usize,
    /// Empty packs, kept in reserve.
    pub empty_packs: usize,
    /// Texts and drafts longer than a pack, each with memory of its own.
    pub own_mappings: usize,
    /// Populated bytes of packs and of long texts. [`Config::limit`](crate::Config::limit) bounds this.
    pub mapped_bytes: usize,
    /// Chunks of drafts and texts in packs.
    pub chunks_used: usize,
    /// Free, populated chunks in packs.
    pub chunks_free: usize,
    /// Chunks of retired texts that wait for readers.
    pub chunks_waiting: usize,
    /// Bytes that wait for readers, including those of long texts. [`Config::waiting`](crate::Config::waiting)
    /// bounds this.
    pub waiting_bytes: usize,
    /// Bytes of the used chunks and of long texts' memory.
    pub used_bytes: usize,
    /// Bytes requested: `used_bytes` without the rounding.
    pub code_bytes: usize,
    /// Live drafts.
    pub drafts: usize,
    /// Live texts.
    pub texts: usize,
    /// Bytes of the longest free run in the packs. Far less than the free bytes means fragmentation.
    pub largest_free_run: usize,
    /// Packs that the kernel has sealed, so that they cannot be unmapped or re-protected
    /// ([`Config::permanent`](crate::Config::permanent)).
    pub sealed_packs: usize,
    /// Packs that are huge pages.
    pub huge_packs: usize,
    /// Why a pack that held enough code did not become a huge page, if so.
    pub huge_refused: Option<String>,
    /// Bytes of the range that the kernel maps as huge pages, according to `/proc/self/smaps`. `None` if that is
    /// unreadable.
    pub huge_bytes: Option<u64>,
}

impl Occupancy {
    /// Fragmentation of the free memory in packs: 0 if it is one run, near 1 if it is in many small ones.
    pub fn fragmentation(&self) -> f64 {
        match self.chunks_free * crate::sizes::CHUNK_BYTES {
            0 => 0.0,
            free => 1.0 - self.largest_free_run as f64 / free as f64,
        }
    }
}

/// A run of bytes in a pack with one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first address. A multiple of 32.
    pub address: usize,
    /// Length in bytes.
    pub len: usize,
    /// The state.
    pub state: SpanState,
}

/// The state of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpanState {
    /// Free: filled with traps.
    Free,
    /// Reserved by a draft.
    Draft,
    /// One text.
    Text,
    /// A retired text that waits for readers.
    Waiting,
    /// Not populated yet, and inaccessible.
    NoMemory,
}

/// The kinds of code memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backing {
    /// Sealed memory files, mapped twice: readable and executable in the range, writable at a secret address
    /// elsewhere.
    ///
    /// The file is sealed FUTURE_WRITE, SHRINK, GROW and SEAL: it cannot be mapped writable or written again, and
    /// the executable view can neither be made writable nor be written through `/proc/self/mem`. Code that learns
    /// the address of the writable view can write through it. A forked child does not have the writable view.
    #[default]
    Memfd,
    /// Memory files mapped once, readable and executable, and written by `pwrite`, which takes most of a
    /// microsecond.
    ///
    /// There is never a writable mapping for an attacker to find, but there is a descriptor: code that can make the
    /// process call `pwrite` on it, or map it, can write code. The file cannot be sealed FUTURE_WRITE, which would
    /// also forbid this crate's writes. A forked child inherits the descriptor until it executes another program,
    /// and with it the ability to write; the arena refuses to use it there.
    Hardened,
    /// Anonymous memory, readable and executable, written through `/proc/self/mem`, for systems that forbid
    /// executable mappings of memory files.
    ///
    /// The memory is private and never mapped writable, but private memory *can* be: `mprotect` to writable is not
    /// refused ([`Config::permanent`](crate::Config::permanent) seals it where the system can), and `/proc/self/mem`
    /// is open to all code in the process. A forked child has a copy of the texts as of the fork. Until it executes
    /// another program it also has the descriptor, which refers to the *parent's* memory.
    Procmem,
}

impl Backing {
    /// A short name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memfd => "memfd",
            Self::Hardened => "hardened",
            Self::Procmem => "procmem",
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
