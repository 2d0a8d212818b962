//! Reports that something cannot be tested here.

use std::fmt;
use std::io::Write;

/// Effects that QEMU's emulation of user programs hides from a test, with the reason. The list is complete:
/// everything else must work under the emulator as on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// madvise(2) answers 0 and does nothing for MADV_COLLAPSE, and the emulator invents smaps: it never shows a huge
    /// page of the guest.
    HugePages,
    /// smaps shows `Rss: 0` for every mapping, so the memory of anonymous mappings cannot be seen.
    ResidentMemory,
    /// The emulator invents `VmFlags` in smaps: they show neither that a mapping may become writable nor that a child
    /// does not inherit it.
    MappingFlags,
    /// maps and smaps show a mapping in the parts in which it was created, where the kernel shows one.
    OneMapping,
    /// maps sometimes lacks a mapping that the guest has made.
    MissingMappings,
    /// mremap(2) with an old size of 0, which maps shared memory a second time, is refused.
    DoubledMappings,
    /// madvise(2) returns 0 and does nothing for MADV_DONTFORK: a child inherits what it should not.
    DontFork,
    /// madvise(2) returns 0 and does nothing for MADV_POPULATE_READ and MADV_POPULATE_WRITE, whatever is there.
    Advice,
    /// mseal(2) is not emulated.
    SealedMappings,
    /// PR_SET_MDWE of prctl(2) is not emulated.
    DenyWriteExecute,
    /// seccomp(2) and its prctl(2) are not emulated: a filter that forbids a system call cannot be installed.
    SystemCallFilters,
    /// The emulator's own memory is in the same address space, is not listed in maps, and may fill the range near the
    /// program.
    RoomNearCode,
    /// setrlimit(2) returns 0 and does nothing for RLIMIT_AS, which would limit the emulator itself.
    AddressSpaceLimit,
    /// perf_event_open(2) is not emulated.
    PerformanceCounters,
    /// ptrace(2) is not emulated, and the machine's debuggers and profilers would see the emulator's code.
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
            Self::MissingMappings => "every mapping in the list of mappings",
            Self::DoubledMappings => "mapping shared memory a second time",
            Self::DontFork => "mappings that children do not inherit",
            Self::Advice => "advice that fails for wrong addresses",
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

/// Reports that a test cannot run here.
///
/// # Panics
///
/// If `SKEP_REQUIRE_ALL` is 1.
pub fn skip(what: &str, why: &str) {
    assert!(!is_set("SKEP_REQUIRE_ALL"), "{what} cannot be skipped (SKEP_REQUIRE_ALL=1): {why}");
    say(&format!("SKIPPED: {what}: {why}"));
}

/// Reports that a test has tried and cannot show `what` here, for one of the emulator's reasons.
///
/// # Panics
///
/// If `SKEP_REQUIRE_ALL` is 1 and `SKEP_EMULATED` is not.
pub fn hidden(reason: Hidden, what: &str) {
    if is_emulated() {
        say(&format!("HIDDEN BY EMULATION: {what}: {reason}"));
    } else {
        skip(what, &format!("{reason}: this system does not have them, or not as Linux does"));
    }
}

/// Whether `SKEP_EMULATED` declares that the tests run under an emulator of user programs. Then slow tests may do
/// fewer repetitions, and [`Hidden`] effects may be missing.
pub fn is_emulated() -> bool {
    is_set("SKEP_EMULATED")
}

/// How many samples to try: `usual`, or an eighth of that under an emulator, which translates each piece of new code
/// before it runs it once or twice.
pub fn fewer_if_emulated(usual: u64) -> u64 {
    if is_emulated() { usual.div_ceil(8) } else { usual }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Prints a line that the test harness does not capture.
pub fn say(line: &str) {
    // If standard error is closed, the line is lost.
    let _ = writeln!(std::io::stderr(), "{line}");
}
