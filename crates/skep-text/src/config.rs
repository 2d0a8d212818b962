//! What a host may decide about an arena.

use std::path::PathBuf;

use crate::{arch, seen};

/// How an [`Arena`](crate::Arena) is made. `Config::new()` is right for most hosts.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) reserve: usize,
    pub(crate) limit: usize,
    pub(crate) near: Option<usize>,
    pub(crate) seen: seen::Options,
}

impl Config {
    /// The largest range of addresses an arena can have, in bytes: 1 GiB on x86-64, 128 MiB on aarch64. Within it
    /// every direct branch reaches every place.
    pub const MAX_RESERVE: usize = arch::MAX_RANGE;

    /// The largest range, no limit but the range itself, placed where the system likes.
    pub const fn new() -> Self {
        let seen = seen::Options { perf_map: false, jitdump: None, gdb: false };
        Self { reserve: Self::MAX_RESERVE, limit: usize::MAX, near: None, seen }
    }

    /// Reserves this many bytes of address space, rounded down to whole packs and to
    /// [`MAX_RESERVE`](Self::MAX_RESERVE). Addresses cost no memory. Where the system refuses so many, the arena makes
    /// do with half, a quarter and so on; [`Arena::range`](crate::Arena::range) tells.
    pub const fn reserve(mut self, bytes: usize) -> Self {
        self.reserve = bytes;
        self
    }

    /// Uses at most this many bytes of memory for code. An arena takes memory by packs of 2 MiB (by pages for texts
    /// longer than that), so a limit is best a multiple of that.
    pub const fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Tries to place the range where direct calls between it and `address` reach: within 1.5 GiB on x86-64, within
    /// 112 MiB on aarch64 (where only a range of at most 96 MiB has a chance). Where there is no room the range is
    /// placed anywhere; [`Arena::reaches`](crate::Arena::reaches) tells.
    ///
    /// Give it the address of a function that the code will call.
    pub const fn near(mut self, address: usize) -> Self {
        self.near = Some(address);
        self
    }

    /// Appends a line with address, size and name of every text to `/tmp/perf-PID.map`, where `perf` and other
    /// profilers look for it. Off by default.
    ///
    /// perf looks there only for code in memory that it takes for anonymous, so this also changes what the code memory
    /// is made of. Costs about 2 us for each text, 3 us where it takes the place of an older one. The file grows as
    /// long as the process lives, is readable for its user and for root, and is not deleted at the end. It knows no
    /// times: where a place was reused, samples of the older text bear the newer name. [`jitdump`](Self::jitdump) does
    /// not have these limits.
    pub const fn perf_map(mut self, on: bool) -> Self {
        self.seen.perf_map = on;
        self
    }

    /// Writes every text, with its name, its bytes and the time, to `jit-PID.dump` in `directory`, for `perf record
    /// --clockid mono` followed by `perf inject --jit`. Off by default.
    ///
    /// Costs about 2 us for each text. The file grows as long as the process lives, is readable for its user and for
    /// root, and is not deleted at the end; perf writes files of its own next to it. The directory must exist, on a
    /// file system that is not mounted `noexec` (perf recognises the file by an executable mapping of it). Arenas of
    /// one process that name the same directory share the file. An older one of the same name is replaced.
    pub fn jitdump(mut self, directory: impl Into<PathBuf>) -> Self {
        self.seen.jitdump = Some(directory.into());
        self
    }

    /// Tells GDB the name of every text, through the JIT compilation interface of its manual. Off by default.
    ///
    /// Costs about 0.4 us and 600 bytes for each text while no debugger is attached; one that is stops the process for
    /// each text that comes or goes. GDB can set breakpoints only in private memory, so this also changes what the
    /// code memory is made of. Needs the executable's symbol table: after `strip` GDB sees nothing. Where another
    /// compiler with the same interface (LLVM's, for one) is linked statically into the same file, GDB sees the
    /// other's code only.
    pub const fn gdb(mut self, on: bool) -> Self {
        self.seen.gdb = on;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}
