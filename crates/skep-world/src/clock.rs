//! Time: that of the system, or one that the host steps.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time that programs see. Cheap to clone; clones of a virtual clock are the same clock.
#[derive(Clone, Default)]
pub struct Clock {
    /// Nanoseconds of a virtual clock. Changed with Release by `step`; the partners are the Acquire loads of `now`, so
    /// that a thread which sees a time also sees what happened before that step.
    stepped: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// The system's clocks.
    pub const fn real() -> Self {
        Self { stepped: None }
    }

    /// A clock that shows `start` and moves only by [`Clock::step`].
    pub fn stepped(start: Duration) -> Self {
        Self { stepped: Some(Arc::new(AtomicU64::new(nanoseconds(start)))) }
    }

    /// Whether it moves only by [`Clock::step`].
    pub const fn is_virtual(&self) -> bool {
        self.stepped.is_some()
    }

    /// Nanoseconds since the system started, without the time that it was suspended.
    #[inline]
    pub fn now(&self) -> u64 {
        self.read(ClockId::Monotonic)
    }

    /// As [`Clock::now`], with the resolution of the system's timer tick, and faster.
    #[inline]
    pub fn coarse(&self) -> u64 {
        self.read(ClockId::MonotonicCoarse)
    }

    /// Nanoseconds since the system started, with the time that it was suspended.
    #[inline]
    pub fn since_boot(&self) -> u64 {
        self.read(ClockId::Boottime)
    }

    /// Nanoseconds since 1970 in International Atomic Time; a virtual clock shows the same as [`Clock::now`].
    #[inline]
    pub fn atomic_time(&self) -> u64 {
        self.shown().unwrap_or_else(|| {
            // Every kernel since 3.10 has this clock; others show UTC, which differs by some seconds.
            let tai = clock_gettime_dynamic(DynamicClockId::Tai);
            count(tai.unwrap_or_else(|_| clock_gettime(ClockId::Realtime)))
        })
    }

    /// Nanoseconds since 1970 in Coordinated Universal Time; a virtual clock shows the same as [`Clock::now`].
    #[inline]
    pub fn wall(&self) -> u64 {
        self.read(ClockId::Realtime)
    }

    /// Moves a virtual clock forward and returns its new time in nanoseconds; it stops at the last one that 64 bits
    /// hold. A real clock does not move: `None`.
    pub fn step(&self, by: Duration) -> Option<u64> {
        let clock = self.stepped.as_ref()?;
        let by = nanoseconds(by);
        let moved = |now: u64| Some(now.saturating_add(by));
        // Release: the partner of `read`. The closure always gives a value.
        let before = clock.fetch_update(Ordering::Release, Ordering::Relaxed, moved).unwrap_or_default();
        Some(before.saturating_add(by))
    }

    #[inline]
    fn read(&self, id: ClockId) -> u64 {
        self.shown().unwrap_or_else(|| count(clock_gettime(id)))
    }

    /// What a virtual clock shows.
    #[inline]
    fn shown(&self) -> Option<u64> {
        self.stepped.as_ref().map(|clock| clock.load(Ordering::Acquire))
    }
}

fn count(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_virtual() { "virtual " } else { "real " })?;
        write!(f, "{:?}", Duration::from_nanos(self.now()))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_only_by_steps() {
        let clock = Clock::stepped(Duration::from_nanos(7));
        let same = clock.clone();
        assert_eq!((clock.now(), clock.since_boot(), clock.coarse(), clock.atomic_time()), (7, 7, 7, 7));
        assert_eq!(same.step(Duration::from_nanos(3)), Some(10));
        assert_eq!(clock.now(), 10);
        assert_eq!(clock.step(Duration::MAX), Some(u64::MAX));
        assert_eq!(clock.step(Duration::from_secs(1)), Some(u64::MAX));
    }

    #[test]
    fn a_real_clock_cannot_be_stepped() {
        let clock = Clock::real();
        let before = clock.now();
        assert_eq!(clock.step(Duration::from_secs(1000)), None);
        let after = clock.now();
        assert!(after >= before && after - before < 1_000_000_000_000, "{before} {after}");
        assert!(clock.atomic_time() > 1_700_000_000_000_000_000);
    }
}
