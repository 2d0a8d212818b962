//! Real counters of instruction-TLB misses, where perf_event_open(2) has them.
//!
//! Virtual machines mostly have none, and say ENOENT or EOPNOTSUPP; so the benchmark's own answer is time, and a model.

use crate::process::cpu;
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::io::{Errno, read};

/// `PERF_TYPE_HW_CACHE` of `linux/perf_event.h`.
const TYPE_CACHE: u32 = 3;
/// Instruction TLB (4), read (0 << 8), miss (1 << 16). On AMD's processors, misses of both levels.
const ITLB_READ_MISS: u64 = 4 | 1 << 16;
/// `PERF_TYPE_RAW`
const TYPE_RAW: u32 = 4;
/// L1 ITLB misses that the second level had: PMCx084 of AMD's Processor Programming References for family 17h and
/// later.
const AMD_L1_MISS_L2_HIT: u64 = 0x84;
/// `exclude_kernel` and `exclude_hv`: bits 5 and 6 of the flags. What unprivileged processes may count.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: u64 = 8;

/// `struct perf_event_attr` as of its first version, 64 bytes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

/// An open counter of this thread.
pub(crate) struct Counter(OwnedFd);

impl Counter {
    /// What perf(1) calls it.
    pub(crate) const EVENT: &'static str = "iTLB-load-misses:u";

    /// # Errors
    ///
    /// Why there is none, in words.
    pub(crate) fn itlb_misses() -> Result<Self, String> {
        Self::open(TYPE_CACHE, ITLB_READ_MISS).map_err(|error| {
            let why = match error {
                Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV => {
                    "this processor, or the virtual machine around it, has no such counter"
                }
                Errno::ACCESS | Errno::PERM => "set kernel.perf_event_paranoid to 2 or less",
                Errno::NOSYS => "this system has no perf_event_open",
                _ => "perf_event_open failed",
            };
            format!("{}: {why} ({error})", Self::EVENT)
        })
    }

    /// Fetches that the first level missed and the second had, where the processor is known to count them.
    pub(crate) fn second_level_hits() -> Option<Self> {
        let family: u32 = cpu("cpu family")?.parse().ok()?;
        let known = cpu("vendor_id")? == "AuthenticAMD" && family >= 0x17;
        known.then(|| Self::open(TYPE_RAW, AMD_L1_MISS_L2_HIT).ok())?
    }

    fn open(kind: u32, config: u64) -> Result<Self, Errno> {
        let size = size_of::<Attributes>() as u32;
        let attributes = Attributes { kind, size, config, flags: USER_ONLY, ..Attributes::default() };
        // SAFETY: perf_event_open(2): the attributes are of the size that they say and live through the call. This
        // thread (0), any CPU (-1), no group (-1).
        let result = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, CLOSE_ON_EXEC)
        };
        if result < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        // SAFETY: the call has just returned this descriptor, and nothing else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(result as i32) }))
    }

    /// How many events `work` causes.
    pub(crate) fn count(&self, work: impl FnOnce()) -> u64 {
        let before = self.value();
        work();
        self.value().wrapping_sub(before)
    }

    /// 0 where it cannot be read.
    fn value(&self) -> u64 {
        let mut bytes = [0; 8];
        match read(&self.0, &mut bytes) {
            Ok(8) => u64::from_ne_bytes(bytes),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_counter_counts_what_happens_meanwhile() {
        // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS: what a machine without counters has too.
        let counter = match Counter::open(1, 2) {
            Ok(counter) => counter,
            Err(error) => {
                let what = format!("counters: perf_event_open: {error}");
                return skep_testkit::hidden(skep_testkit::Hidden::PerformanceCounters, &what);
            }
        };
        let count = counter.count(|| {
            // Large enough to be mapped anew, and not by huge pages all.
            let fresh = vec![1u8; 16 << 20];
            std::hint::black_box(&fresh);
        });
        assert!(count >= 8, "{count} faults");
        assert!(counter.count(|| {}) < 8);
    }
}
