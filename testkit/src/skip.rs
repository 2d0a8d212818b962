//! Saying that something cannot be shown here.

use std::fmt;
use std::io::Write;

/// What QEMU's emulation of user programs hides from a test, with the reason. Complete: what is not in this list must
/// work under the emulator as it does on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// madvise(2) answers 0 and does nothing for MADV_COLLAPSE, and smaps is made up by the emulator: no page of the
    /// guest is ever known to be huge.
    HugePages,
    /// smaps says `Rss: 0` for every mapping: how much memory anonymous mappings have cannot be seen.
    ResidentMemory,
    /// What smaps says of a mapping as `VmFlags` is made up: neither that it may become writable nor that a child does
    /// not inherit it can be seen.
    MappingFlags,
    /// maps and smaps show parts of a mapping, as they were made, where the kernel has one.
    OneMapping,
    /// mremap(2) with an old size of 0, which maps shared memory a second time, is refused.
    DoubledMappings,
    /// madvise(2) answers 0 and does nothing for MADV_DONTFORK: a child has what it should not inherit.
    DontFork,
    /// mseal(2) is not emulated.
    SealedMappings,
    /// PR_SET_MDWE of prctl(2) is not emulated.
    DenyWriteExecute,
    /// seccomp(2) and its prctl(2) are not emulated: a filter that takes a system call away cannot be installed.
    SystemCallFilters,
    /// The emulator's own memory is in the same address space, is not listed in maps, and may fill all that is near the
    /// program.
    RoomNearCode,
    /// setrlimit(2) answers 0 and does nothing for RLIMIT_AS, which would be the emulator's own.
    AddressSpaceLimit,
    /// perf_event_open(2) is not emulated.
    PerformanceCounters,
    /// ptrace(2) is not emulated, and a debugger or profiler of the machine would see the emulator's code.
    DebuggersAndProfilers,
    /// bpf(2) is not emulated.
    KernelPrograms,
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HugePages => "huge pages",
            Self::ResidentMemory => "resident memory of a mapping",
            Self::MappingFlags => "what a mapping may become",
            Self::OneMapping => "that neighbours are one mapping",
            Self::DoubledMappings => "mapping shared memory a second time",
            Self::DontFork => "mappings that children do not inherit",
            Self::SealedMappings => "sealed mappings",
            Self::DenyWriteExecute => "memory that may not become executable",
            Self::SystemCallFilters => "filters of system calls",
            Self::RoomNearCode => "free addresses near the program",
            Self::AddressSpaceLimit => "a limit on addresses",
            Self::PerformanceCounters => "performance counters",
            Self::DebuggersAndProfilers => "debuggers and profilers",
            Self::KernelPrograms => "the kernel's BPF",
        })
    }
}

/// Says that a test cannot be made here.
///
/// # Panics
///
/// Where all is required.
pub fn skip(what: &str, why: &str) {
    assert!(!is_set("SKEP_REQUIRE_ALL"), "{what} cannot be skipped (SKEP_REQUIRE_ALL=1): {why}");
    say(&format!("SKIPPED: {what}: {why}"));
}

/// Says that a test, which has tried, cannot show `what` here, for one of the reasons that an emulator may have.
///
/// # Panics
///
/// Where all is required, and this is not said to be an emulator.
pub fn hidden(reason: Hidden, what: &str) {
    if is_emulated() {
        say(&format!("HIDDEN BY EMULATION: {what}: {reason}"));
    } else {
        skip(what, &format!("{reason}: this system does not have them, or not as Linux does"));
    }
}

/// Whether whoever runs the tests says that they run under an emulator of user programs: then what takes long may be
/// done fewer times, and what is [`Hidden`] need not be seen.
pub fn is_emulated() -> bool {
    is_set("SKEP_EMULATED")
}

/// How many samples to try: `usual`, or an eighth of that where this is said to be an emulator. An emulator translates
/// each piece of new code before it runs it once or twice.
pub fn fewer_if_emulated(usual: u64) -> u64 {
    if is_emulated() { usual.div_ceil(8) } else { usual }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Prints a line, past the harness's capturing.
pub fn say(line: &str) {
    // Nobody is left to hear it if standard error is gone.
    let _ = writeln!(std::io::stderr(), "{line}");
}
