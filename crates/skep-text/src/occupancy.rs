//! What an arena tells about itself.

use std::fmt;

/// How full an arena is, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// What the memory is made of.
    pub backing: Backing,
    /// Why the memory is not of a better kind, where one was tried and refused.
    pub backing_refused: Option<String>,
    /// Whether indirect branches into code must land where they may
    /// ([`Config::landing_pads`](crate::Config::landing_pads)): it was asked for, and the machine checks it.
    pub landing_pads: bool,
    /// Packs mapped.
    pub packs: usize,
    /// Packs with nothing in them: kept as reserve.
    pub empty_packs: usize,
    /// Texts and drafts longer than a pack, each with memory of its own.
    pub own_mappings: usize,
    /// Memory for code: the packs' and the own mappings' bytes, as far as there is memory for them. This is what
    /// [`Config::limit`](crate::Config::limit) limits.
    pub mapped_bytes: usize,
    /// Chunks taken by drafts and texts in packs.
    pub chunks_used: usize,
    /// Chunks free in packs, with memory behind them.
    pub chunks_free: usize,
    /// Chunks of retired texts that wait until nobody can run them any more.
    pub chunks_waiting: usize,
    /// Bytes that wait, those of texts with memory of their own included. [`Config::waiting`](crate::Config::waiting)
    /// bounds them.
    pub waiting_bytes: usize,
    /// Bytes of the chunks taken, and of the own mappings.
    pub used_bytes: usize,
    /// Bytes asked for: what remains of `used_bytes` when the rounding is left out.
    pub code_bytes: usize,
    /// Drafts alive.
    pub drafts: usize,
    /// Texts alive.
    pub texts: usize,
    /// Bytes of the longest free run in the packs; far below the bytes free means fragmentation.
    pub largest_free_run: usize,
    /// Packs that the kernel has sealed, so that nobody can unmap or re-protect them
    /// ([`Config::permanent`](crate::Config::permanent)).
    pub sealed_packs: usize,
    /// Packs that are huge pages.
    pub huge_packs: usize,
    /// Why a pack that held enough code did not become a huge page, if one did not.
    pub huge_refused: Option<String>,
    /// Bytes of the range that the kernel maps by huge pages, by its own account in `/proc/self/smaps`. `None` where
    /// that cannot be read.
    pub huge_bytes: Option<u64>,
}

impl Occupancy {
    /// How scattered the free memory in the packs is: 0 when it is all in one piece, near 1 when it is dust.
    pub fn fragmentation(&self) -> f64 {
        match self.chunks_free * crate::CHUNK_BYTES {
            0 => 0.0,
            free => 1.0 - self.largest_free_run as f64 / free as f64,
        }
    }
}

/// A run of bytes in a pack that are all the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins. A multiple of 32.
    pub address: usize,
    /// Bytes.
    pub len: usize,
    /// What it is.
    pub state: SpanState,
}

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpanState {
    /// Traps, free to be taken.
    Free,
    /// Taken by a draft.
    Draft,
    /// One text.
    Text,
    /// A retired text that waits until nobody can run it any more.
    Waiting,
    /// Inaccessible: the pack has not grown so far.
    NoMemory,
}

/// What code memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backing {
    /// Sealed memory files, mapped twice: readable and executable in the range, writable at a secret place elsewhere.
    ///
    /// The file is sealed FUTURE_WRITE, SHRINK, GROW and SEAL: nobody maps or writes it again, and the executable view
    /// cannot be made writable nor be written through `/proc/self/mem`. Who learns where the writable view is can write
    /// through it. A forked child does not have it.
    #[default]
    Memfd,
    /// Memory files mapped once, readable and executable, and written by `pwrite`. A write costs most of a microsecond.
    ///
    /// There is no writable mapping for an attacker to find, ever. A descriptor takes its place: whoever can make the
    /// process call `pwrite` on it, or map it, can write code. It cannot be sealed FUTURE_WRITE, which would forbid our
    /// own writes. A forked child inherits the descriptor until it executes another program, and with it the power to
    /// write; the arena refuses to use it there.
    Hardened,
    /// Anonymous memory, readable and executable, written through `/proc/self/mem`, for systems that forbid
    /// executable mappings of memory files.
    ///
    /// The memory is private and never mapped writable, but private memory *can* be: `mprotect` to writable is not
    /// refused ([`Config::permanent`](crate::Config::permanent) seals it where the system can), and `/proc/self/mem`
    /// stays open to everybody in the process. A forked child has a copy, as of the fork, of the texts; it inherits the
    /// descriptor too, which is of the *parent's* memory, until it executes another program.
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
