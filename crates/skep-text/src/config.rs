//! What a host may decide about an arena.

use crate::arch;

/// How an [`Arena`](crate::Arena) is made. `Config::new()` is right for most hosts.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub(crate) reserve: usize,
    pub(crate) limit: usize,
    pub(crate) near: Option<usize>,
    pub(crate) fault_handler: bool,
}

impl Config {
    /// The largest range of addresses an arena can have, in bytes: 1 GiB on x86-64, 128 MiB on aarch64. Within
    /// it every direct branch reaches every place.
    pub const MAX_RESERVE: usize = arch::MAX_RANGE;

    /// The largest range, no limit but the range itself, placed where the system likes.
    pub const fn new() -> Self {
        Self { reserve: Self::MAX_RESERVE, limit: usize::MAX, near: None, fault_handler: true }
    }

    /// Reserves this many bytes of address space, rounded down to whole packs and to
    /// [`MAX_RESERVE`](Self::MAX_RESERVE). Addresses cost no memory. Where the system refuses so many, the
    /// arena makes do with half, a quarter and so on; [`Arena::range`](crate::Arena::range) tells.
    pub const fn reserve(mut self, bytes: usize) -> Self {
        self.reserve = bytes;
        self
    }

    /// Uses at most this many bytes of memory for code. An arena takes memory by packs of 2 MiB (by pages for
    /// texts longer than that), so a limit is best a multiple of that.
    pub const fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Tries to place the range where direct calls between it and `address` reach: within 1.5 GiB on x86-64,
    /// within 112 MiB on aarch64 (where only a range of at most 96 MiB has a chance). Where there is no room the
    /// range is placed anywhere; [`Arena::reaches`](crate::Arena::reaches) tells.
    ///
    /// Give it the address of a function that the code will call.
    pub const fn near(mut self, address: usize) -> Self {
        self.near = Some(address);
        self
    }

    /// Whether texts may have probes ([`Draft::probe`](crate::Draft::probe)), for which this crate installs a handler
    /// of SIGSEGV and SIGBUS in the process: with the first text that has probes, not before. It passes on to the
    /// host's handlers whatever is not a probe's fault. On by default; off, probes are refused and the process's
    /// signals are left alone.
    pub const fn fault_handler(mut self, allowed: bool) -> Self {
        self.fault_handler = allowed;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}
