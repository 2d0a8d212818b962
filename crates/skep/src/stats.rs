//! Statistics of runs: how often, how long, and how the times are distributed, for each program and each link.
//!
//! Off by default; then a run loads one flag and branches. While they are on, a run reads the clock twice and adds to
//! counters of its virtual CPU:
//!
//! ```text
//!   CPU 0: | ns | misses | bucket 0 ... bucket 272 | pad |   CPU 1: | ns | ...     each begins on a cache line of its own
//! ```
//!
//! A reader sums over the CPUs. The number of runs is the sum of the buckets, so the two never disagree.
//!
//! Exact: every counter changes by an atomic addition, also if a signal handler interrupts another run of the same CPU.
//! A reset does not store into the counters, which might lose an addition; it remembers their sums as those from which
//! to count.
//!
//! The counters are allocated when statistics are turned on, or by a load while they are on: not by a run, because
//! signal handlers may run programs. What would break it: a program that neither of the two sees. So both hold the lock
//! of the [registry](crate::registry) while they look.

mod histogram;

pub use histogram::{Bucket, Histogram};

use crate::tenant::Tenant;
use histogram::{BUCKETS, index};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The runs of a program, or through a link, while statistics were [on](crate::Runtime::enable_stats).
///
/// As in Linux, a run counts for the program that the host or a hook called, with the time of everything that this
/// program called, tail calls included; the targets of tail calls count nothing. Runs in the interpreter count too.
/// Programs that watch functions count for themselves, and their time also for the program around them. Callbacks of
/// timers and work queues do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunStats {
    /// How many runs have ended.
    pub run_cnt: u64,
    /// Their time together, in nanoseconds.
    pub run_time_ns: u64,
    /// Runs that did not take place because the thread held the lock of a map value: of programs that watch a function,
    /// and in signal handlers ([`Error::LockHeld`](crate::Error::LockHeld)). Linux's `recursion_misses`.
    pub misses: u64,
    /// The times. As many as `run_cnt`.
    pub times: Histogram,
}

/// The counters of a program or a link.
#[derive(Default)]
pub(crate) struct Counted {
    /// Most programs are never counted: then this is all that they have.
    cells: OnceLock<Box<Cells>>,
}

/// What is counted of a link. Its programs' handles in the hook's list lead to it.
#[derive(Debug, Default)]
pub(crate) struct LinkCounts {
    pub(crate) counted: Counted,
    /// The program that is attached now: its name and its tenant.
    program: Mutex<(Arc<str>, Option<Arc<Tenant>>)>,
}

/// What a CPU counts.
const TIME: usize = 0;
const MISSES: usize = 1;
const FIRST_BUCKET: usize = 2;
/// Words of a CPU: whole pairs of cache lines, since processors fetch those together.
const STRIDE: usize = (FIRST_BUCKET + BUCKETS).next_multiple_of(LINES);
/// Words in two cache lines.
const LINES: usize = 128 / size_of::<u64>();

/// The counters of all virtual CPUs.
struct Cells {
    words: Box<[AtomicU64]>,
    /// Where the first CPU's begin.
    start: usize,
    /// The sums at the last reset. A leaf.
    before: Mutex<Sums>,
}

/// A sum over all CPUs.
#[derive(Clone, Copy)]
struct Sums {
    words: [u64; FIRST_BUCKET + BUCKETS],
}

impl Counted {
    /// Allocates the counters, if that was not done.
    pub(crate) fn prepare(&self, cpus: u32) {
        self.cells.get_or_init(|| Box::new(Cells::new(cpus)));
    }

    /// Adds a run on that CPU.
    pub(crate) fn add(&self, cpu: u32, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let Some(cell) = self.cell(cpu) else { return };
        // Relaxed, here and below: counters that order nothing. Reads sum them up.
        cell[TIME].fetch_add(nanoseconds, Relaxed);
        cell[FIRST_BUCKET + index(nanoseconds)].fetch_add(1, Relaxed);
    }

    /// Adds a run that did not take place.
    pub(crate) fn miss(&self, cpu: u32) {
        if let Some(cell) = self.cell(cpu) {
            cell[MISSES].fetch_add(1, Relaxed);
        }
    }

    /// What was counted since the last reset.
    pub(crate) fn stats(&self) -> RunStats {
        let Some(cells) = self.cells.get() else { return RunStats::default() };
        let before = cells.lock();
        let mut sums = cells.sums();
        sums.words.iter_mut().zip(before.words).for_each(|(sum, before)| *sum = sum.wrapping_sub(before));
        let times = Histogram::new(sums.words[FIRST_BUCKET..].into());
        RunStats { run_cnt: times.count(), run_time_ns: sums.words[TIME], misses: sums.words[MISSES], times }
    }

    /// Counts from 0 again.
    pub(crate) fn reset(&self) {
        if let Some(cells) = self.cells.get() {
            let mut before = cells.lock();
            *before = cells.sums();
        }
    }

    #[inline]
    fn cell(&self, cpu: u32) -> Option<&[AtomicU64]> {
        // A run that begins while statistics are turned on may see that before it sees the counters.
        let cells = self.cells.get()?;
        let at = cells.start + cpu as usize * STRIDE;
        cells.words.get(at..at + FIRST_BUCKET + BUCKETS)
    }
}

impl LinkCounts {
    /// The name of the program that is attached, and its tenant.
    pub(crate) fn program(&self) -> (Arc<str>, Option<Arc<Tenant>>) {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A program of that name and tenant is attached.
    pub(crate) fn now_runs(&self, name: &Arc<str>, tenant: Option<&Arc<Tenant>>) {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = (Arc::clone(name), tenant.cloned());
    }
}

impl Cells {
    fn new(cpus: u32) -> Self {
        let words = vec![0_u64; cpus as usize * STRIDE + LINES].into_boxed_slice();
        // SAFETY: an AtomicU64 has the size of a u64, and on the supported processors its alignment. The slice was
        // allocated as a box and is owned by it again. As zeroes it stays untouched where no CPU counts.
        let words = unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) };
        let start = words.as_ptr().align_offset(LINES * size_of::<u64>()).min(LINES);
        Self { words, start, before: Mutex::default() }
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for cell in self.words[self.start..].chunks_exact(STRIDE) {
            for (sum, word) in sums.words.iter_mut().zip(cell) {
                *sum = sum.wrapping_add(word.load(Relaxed));
            }
        }
        sums
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());

impl Default for Sums {
    fn default() -> Self {
        Self { words: [0; FIRST_BUCKET + BUCKETS] }
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("allocated", &self.cells.get().is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_cpus_share_a_pair_of_cache_lines() {
        let cells = Cells::new(3);
        let first = cells.words[cells.start..].as_ptr().addr();
        assert!(first.is_multiple_of(128) && (STRIDE * 8).is_multiple_of(128));
        assert!(cells.words.len() >= cells.start + 3 * STRIDE);
    }

    #[test]
    fn additions_of_all_cpus_and_resets_in_between_lose_nothing() {
        let counted = Counted::default();
        counted.prepare(4);
        let mut sum = RunStats::default();
        std::thread::scope(|scope| {
            for cpu in 0..4 {
                let counted = &counted;
                // Two threads for each CPU: as a signal handler would.
                scope.spawn(move || (0..20_000).for_each(|n| counted.add(cpu % 2, Duration::from_nanos(n))));
            }
        });
        for stats in [counted.stats(), counted.stats()] {
            sum.run_cnt = stats.run_cnt;
            sum.run_time_ns = stats.run_time_ns;
        }
        assert_eq!((sum.run_cnt, sum.run_time_ns), (80_000, 4 * 20_000 * 19_999 / 2));
        counted.reset();
        assert_eq!(counted.stats(), RunStats::default());
        counted.miss(1);
        counted.add(0, Duration::from_secs(100));
        let stats = counted.stats();
        assert_eq!((stats.run_cnt, stats.misses, stats.run_time_ns), (1, 1, 100_000_000_000));
        assert_eq!(stats.times.quantile(0.5).unwrap().from, 1 << 36);
    }
}
