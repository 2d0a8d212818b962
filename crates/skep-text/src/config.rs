//! The options of an arena.

use std::path::PathBuf;

use skep_rcu::Domain;

use crate::arch;
use crate::occupancy::Backing;
use crate::pack::Kind;
use crate::seen;

/// The number of threads that can be in read sections at once, in the domain that an arena makes for itself.
pub(crate) const DEFAULT_READERS: u32 = 1024;

/// The options of an [`Arena`](crate::Arena). `Config::new()` suits most hosts.
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    pub(crate) reserve: usize,
    pub(crate) limit: usize,
    pub(crate) near: Option<usize>,
    pub(crate) backing: Option<Backing>,
    pub(crate) huge: bool,
    pub(crate) promote_at: usize,
    pub(crate) random: bool,
    pub(crate) permanent: bool,
    pub(crate) landing_pads: bool,
    pub(crate) waiting: usize,
    pub(crate) domain: Option<Domain>,
    pub(crate) fault_handler: bool,
    pub(crate) seen: seen::Options,
}

impl Config {
    /// The largest address range of an arena, in bytes: 1 GiB on x86-64, 128 MiB on aarch64. A direct branch reaches
    /// from anywhere in such a range to anywhere else in it.
    pub const MAX_RESERVE: usize = arch::MAX_RANGE;

    /// The largest range, limited only by its size, at an address that the system chooses, with the best backing
    /// that the system allows.
    pub fn new() -> Self {
        Self {
            reserve: Self::MAX_RESERVE,
            limit: usize::MAX,
            near: None,
            backing: None,
            huge: true,
            promote_at: 512 << 10,
            random: false,
            permanent: false,
            landing_pads: false,
            waiting: 64 << 20,
            domain: None,
            fault_handler: true,
            seen: seen::Options::default(),
        }
    }

    /// Reserves this many bytes of address space, rounded down to whole packs and to
    /// [`MAX_RESERVE`](Self::MAX_RESERVE). Addresses cost no memory. If the system refuses, the arena tries half, a
    /// quarter and so on; [`Arena::range`](crate::Arena::range) returns the result.
    pub fn reserve(mut self, bytes: usize) -> Self {
        self.reserve = bytes;
        self
    }

    /// Limits the memory for code to this many bytes; the minimum is one pack, 2 MiB.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Tries to place the range where direct calls between it and `address` reach: within 1.5 GiB on x86-64, within
    /// 112 MiB on aarch64 (which can succeed only for a range of at most 96 MiB). A range that does not fit there is
    /// halved, on x86-64 down to an eighth of [`MAX_RESERVE`](Self::MAX_RESERVE), or to the [`limit`](Self::limit) if
    /// one is set. If there is still no room,
    /// the range has its full size and is placed anywhere; see [`Arena::reaches`](crate::Arena::reaches).
    ///
    /// Give it the address of a function that the code will call.
    pub fn near(mut self, address: usize) -> Self {
        self.near = Some(address);
        self
    }

    /// Requires one kind of memory. The default is the first of [`Backing::Memfd`] and [`Backing::Procmem`] that the
    /// system allows; [`Occupancy::backing`](crate::Occupancy::backing) reports which. [`Backing::Hardened`] is used
    /// only on request.
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Requires one kind of memory if none was required before.
    pub fn backing_or(mut self, backing: Backing) -> Self {
        self.backing.get_or_insert(backing);
        self
    }

    /// Whether packs that hold enough code become huge pages. Default: yes.
    pub fn huge(mut self, huge: bool) -> Self {
        self.huge = huge;
        self
    }

    /// A pack with memory for at least this many bytes of code becomes a huge page, in the background. Default: 512
    /// KiB, more base pages than an instruction TLB has entries for. 0 promotes every pack.
    pub fn promote_at(mut self, bytes: usize) -> Self {
        self.promote_at = bytes;
        self
    }

    /// Whether texts are placed at random: in a random slot of the range, at a random place of a free run. Addresses
    /// are then harder to guess, and free runs smaller. Default: no.
    pub fn random(mut self, random: bool) -> Self {
        self.random = random;
        self
    }

    /// Whether packs are populated as a whole, never returned to the system, and sealed (`mseal`, Linux 6.10) where
    /// the system supports it, so that they cannot be unmapped, replaced or re-protected: for arenas that live as
    /// long as the process. Texts longer than a pack are unmapped all the same. Default: no.
    ///
    /// Sealed memory of such an arena stays mapped after the arena is dropped.
    pub fn permanent(mut self, permanent: bool) -> Self {
        self.permanent = permanent;
        self
    }

    /// Whether an indirect branch or call into code must land on an instruction that permits it (branch target
    /// identification: `BTI`, or `PACIASP`); any other target ends in SIGILL. An attacker who has overwritten a code
    /// pointer can then not jump into the middle of a function. The compiler must put such an instruction wherever
    /// its code is reached indirectly, so at the beginning of every text that the host calls by address. Direct
    /// branches, such as those that pokes write, and returns need none. What this crate emits
    /// ([`Arena::stub`](crate::Arena::stub)) begins with one. Default: no.
    ///
    /// Enforced on aarch64 where CPU and kernel support it (Linux 5.8, `bti` in /proc/cpuinfo): the executable views
    /// are mapped with PROT_BTI. Elsewhere the instructions are hints without effect, and nothing is enforced;
    /// [`Occupancy::landing_pads`](crate::Occupancy::landing_pads) reports which. No effect on x86-64, where Linux
    /// offers no indirect branch tracking to user programs.
    pub fn landing_pads(mut self, checked: bool) -> Self {
        self.landing_pads = checked;
        self
    }

    /// The most bytes of retired texts that may wait for readers to leave; above it, drafts are refused
    /// ([`Error::Waiting`](crate::Error::Waiting)). Default: 64 MiB.
    pub fn waiting(mut self, bytes: usize) -> Self {
        self.waiting = bytes;
        self
    }

    /// The domain whose read sections keep retired texts from being reused. Default: a domain of the arena's own
    /// ([`Arena::domain`](crate::Arena::domain)), for up to 1024 threads.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Whether texts may have probes ([`Draft::probe`](crate::Draft::probe)). They need a handler of SIGSEGV and
    /// SIGBUS, which this crate installs with the first text that has probes. The handler passes every signal that
    /// is not a probe's fault to the host's handlers. Default: yes. If no, probes are refused and the process's
    /// signal handlers are untouched.
    pub fn fault_handler(mut self, allowed: bool) -> Self {
        self.fault_handler = allowed;
        self
    }

    /// Appends a line with address, size and name of every text to `/tmp/perf-PID.map`, where `perf` and other
    /// profilers look for it. Off by default.
    ///
    /// perf uses this file only for code in memory that it considers anonymous, so the backing defaults to
    /// [`Backing::Procmem`] then. A text costs about 4 us more, or 5 us if it replaces an older one at its address.
    /// The file grows as long as the process lives, is readable for its user and root, and is not deleted. It has no
    /// times: samples of a text whose memory was reused get the newer name. [`jitdump`](Self::jitdump) does not have
    /// these limits.
    pub fn perf_map(mut self, on: bool) -> Self {
        self.seen.perf_map = on;
        self
    }

    /// Writes every text, with its name, its bytes and the time, to `jit-PID.dump` in `directory`, for `perf record
    /// --clockid mono` followed by `perf inject --jit`. Off by default.
    ///
    /// Costs about 2 us for each text. The file grows as long as the process lives, is readable for its user and
    /// root, and is not deleted; perf writes files of its own next to it. The directory must exist, on a file system
    /// that is not mounted `noexec` (perf recognises the file by an executable mapping of it). Arenas of one process
    /// that name the same directory share the file. An older file of the same name is replaced.
    pub fn jitdump(mut self, directory: impl Into<PathBuf>) -> Self {
        self.seen.jitdump = Some(directory.into());
        self
    }

    /// Tells GDB the name of every text, through the JIT compilation interface of its manual. Off by default.
    ///
    /// A text costs about 2.5 us and 600 bytes more while no debugger is attached; an attached debugger stops the
    /// process for each text that is added or removed. GDB can set breakpoints only in private memory, so the
    /// backing defaults to [`Backing::Procmem`] then. Needs the executable's symbol table: after `strip` GDB sees
    /// nothing. If another compiler with the same interface (such as LLVM's) is linked statically into the same
    /// file, GDB sees only that compiler's code.
    pub fn gdb(mut self, on: bool) -> Self {
        self.seen.gdb = on;
        self
    }

    /// The backing requested, by name or through an option that only one backing supports.
    pub(crate) fn wanted_backing(&self) -> Option<Backing> {
        let anonymous = self.seen.perf_map || self.seen.gdb;
        self.backing.or(anonymous.then_some(Backing::Procmem))
    }

    /// How packs are made; the medium in it is only a preference.
    pub(crate) fn kind(&self) -> Kind {
        let medium = self.wanted_backing().unwrap_or_default();
        let landing_pads = if self.landing_pads { arch::checks_landing_pads() } else { 0 };
        Kind { huge: self.huge, permanent: self.permanent, landing_pads, ..Kind::new(medium) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}
