//! What a host may decide about an arena.

use std::path::PathBuf;

use skep_rcu::Domain;

use crate::arch;
use crate::occupancy::Backing;
use crate::pack::Kind;
use crate::seen;

/// Threads that can be in read sections at once, in the domain that an arena makes for itself.
pub(crate) const DEFAULT_READERS: u32 = 1024;

/// How an [`Arena`](crate::Arena) is made. `Config::new()` is right for most hosts.
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
    /// The largest range of addresses an arena can have, in bytes: 1 GiB on x86-64, 128 MiB on aarch64. Within
    /// it every direct branch reaches every place.
    pub const MAX_RESERVE: usize = arch::MAX_RANGE;

    /// The largest range, no limit but the range itself, placed where the system likes, on the best memory that the
    /// system has.
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
    /// [`MAX_RESERVE`](Self::MAX_RESERVE). Addresses cost no memory. Where the system refuses so many, the
    /// arena makes do with half, a quarter and so on; [`Arena::range`](crate::Arena::range) tells.
    pub fn reserve(mut self, bytes: usize) -> Self {
        self.reserve = bytes;
        self
    }

    /// Uses at most this many bytes of memory for code; at least a pack, 2 MiB.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Tries to place the range where direct calls between it and `address` reach: within 1.5 GiB on x86-64,
    /// within 112 MiB on aarch64 (where only a range of at most 96 MiB has a chance). Where there is no room the
    /// range is placed anywhere; [`Arena::reaches`](crate::Arena::reaches) tells.
    ///
    /// Give it the address of a function that the code will call.
    pub fn near(mut self, address: usize) -> Self {
        self.near = Some(address);
        self
    }

    /// Insists on one kind of memory. By default it is the first of [`Backing::Memfd`] and [`Backing::Procmem`] that
    /// the system allows, and [`Occupancy::backing`](crate::Occupancy::backing) tells; [`Backing::Hardened`] is
    /// used only where it is asked for.
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Whether packs that hold enough code become huge pages. Default: yes.
    pub fn huge(mut self, huge: bool) -> Self {
        self.huge = huge;
        self
    }

    /// A pack with memory for at least this many bytes of code becomes a huge page, by and by, in the background.
    /// Default: 512 KiB, more small pages than an instruction TLB has entries for. 0 for all packs at once.
    pub fn promote_at(mut self, bytes: usize) -> Self {
        self.promote_at = bytes;
        self
    }

    /// Whether texts lie at random: in a random slot of the range, anywhere in the hole that was found. It makes
    /// addresses harder to guess, and holes smaller. Default: no.
    pub fn random(mut self, random: bool) -> Self {
        self.random = random;
        self
    }

    /// Whether packs have all their memory from the beginning, are never returned to the system, and are sealed (`mseal`,
    /// Linux 6.10) where the system can, so that nobody can unmap, replace or re-protect them: for arenas that live as
    /// long as the process. Texts longer than a pack are unmapped all the same. Default: no.
    ///
    /// The memory of such an arena stays mapped when it is dropped, where it was sealed.
    pub fn permanent(mut self, permanent: bool) -> Self {
        self.permanent = permanent;
        self
    }

    /// Whether an indirect branch or call into code must land on an instruction that says that it may (branch target
    /// identification: `BTI`, or `PACIASP`), and ends in SIGILL elsewhere. Who has overwritten a pointer to code can then
    /// not jump into the middle of a function. Whoever writes the code puts such an instruction wherever it is reached
    /// indirectly, which is at the beginning of every text that the host calls by its address; direct branches, as a poke
    /// makes them, need none, and nor do returns. What this crate emits ([`Arena::stub`](crate::Arena::stub)) begins
    /// with one. Default: no.
    ///
    /// Checked on aarch64, where CPU and kernel can (Linux 5.8, `bti` in /proc/cpuinfo): the executable views are mapped
    /// with PROT_BTI. Elsewhere the same code runs, since the instructions are hints that do nothing, and nobody checks;
    /// [`Occupancy::landing_pads`](crate::Occupancy::landing_pads) tells. It has no effect on x86-64, where Linux has
    /// no indirect branch tracking for user programs.
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

    /// Whose read sections keep retired texts from being reused. Default: a domain of the arena's own
    /// ([`Arena::domain`](crate::Arena::domain)), for up to 1024 threads.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Whether texts may have probes ([`Draft::probe`](crate::Draft::probe)), for which this crate installs a handler
    /// of SIGSEGV and SIGBUS in the process: with the first text that has probes, not before. It passes on to the
    /// host's handlers whatever is not a probe's fault. On by default; off, probes are refused and the process's
    /// signals are left alone.
    pub fn fault_handler(mut self, allowed: bool) -> Self {
        self.fault_handler = allowed;
        self
    }

    /// Appends a line with address, size and name of every text to `/tmp/perf-PID.map`, where `perf` and other
    /// profilers look for it. Off by default.
    ///
    /// perf looks there only for code in memory that it takes for anonymous, so the backing is [`Backing::Procmem`]
    /// then, unless another one is asked for. With it, a text costs about 4 us, 5 us where it takes the place of an older
    /// one. The file grows as long as the process lives, is readable for its user and for root, and is not deleted at
    /// the end. It knows no times: where a place was reused, samples of the older text bear the newer name.
    /// [`jitdump`](Self::jitdump) does not have these limits.
    pub fn perf_map(mut self, on: bool) -> Self {
        self.seen.perf_map = on;
        self
    }

    /// Writes every text, with its name, its bytes and the time, to `jit-PID.dump` in `directory`, for `perf record
    /// --clockid mono` followed by `perf inject --jit`. Off by default.
    ///
    /// Costs about 2 us for each text. The file grows as long as the process lives, is readable for its user and for
    /// root, and is not deleted at the end; perf writes files of its own next to it. The directory must exist, on a
    /// file system that is not mounted `noexec` (perf recognises the file by an executable mapping of it). Arenas of one
    /// process that name the same directory share the file. An older one of the same name is replaced.
    pub fn jitdump(mut self, directory: impl Into<PathBuf>) -> Self {
        self.seen.jitdump = Some(directory.into());
        self
    }

    /// Tells GDB the name of every text, through the JIT compilation interface of its manual. Off by default.
    ///
    /// With it, a text costs about 2.5 us and 600 bytes while no debugger is attached; one that is stops the process for
    /// each text that comes or goes. GDB can set breakpoints only in private memory, so the backing is
    /// [`Backing::Procmem`] then, unless another one is asked for. Needs the executable's symbol table: after `strip`
    /// GDB sees nothing. Where another compiler with the same interface (LLVM's, for one) is linked statically into the
    /// same file, GDB sees the other's code only.
    pub fn gdb(mut self, on: bool) -> Self {
        self.seen.gdb = on;
        self
    }

    /// The kind of memory asked for, by its name or by what only one kind can do.
    pub(crate) fn wanted_backing(&self) -> Option<Backing> {
        let anonymous = self.seen.perf_map || self.seen.gdb;
        self.backing.or(anonymous.then_some(Backing::Procmem))
    }

    /// How packs are made, but for what they are made of, which is a wish.
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
