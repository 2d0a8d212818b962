//! Threads that do something at the same time, each on a processor of its own as far as there are enough.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Has each thread do its work twice, the first time to fill the caches. Returns the results of the second time and how
/// long it took: from the first thread's begin to the last one's end. For one thread it is the thread's processor time,
/// which other processes on the same processor do not lengthen.
pub(crate) fn together<T: Send>(
    threads: u32,
    work: impl Fn(u32) -> Result<T, String> + Sync,
) -> Result<(Vec<T>, Duration), String> {
    if threads == 1 {
        work(0)?;
        let started = own_time();
        let done = work(0)?;
        return Ok((vec![done], own_time().saturating_sub(started)));
    }
    let arrived = AtomicU32::new(0);
    let one = |thread: u32| {
        let warmed = work(thread);
        // Who sleeps here comes late, when the others are done.
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < threads {
            std::thread::yield_now();
        }
        warmed?;
        let started = Instant::now();
        let done = work(thread)?;
        Ok((done, started, Instant::now()))
    };
    let all = std::thread::scope(|scope| {
        let pinned = |thread: u32| {
            pin(thread as usize);
            one(thread)
        };
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || pinned(thread))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a thread panicked".to_owned())?).collect::<Vec<_>>()
    });
    let all = all.into_iter().collect::<Result<Vec<_>, String>>()?;
    let started = all.iter().map(|(_, started, _)| *started).min().ok_or("no threads")?;
    let ended = all.iter().map(|(_, _, ended)| *ended).max().ok_or("no threads")?;
    Ok((all.into_iter().map(|(done, _, _)| done).collect(), ended - started))
}

/// Processor time that this thread has taken.
fn own_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Keeps this thread on one of the processors that it may run on. Where that is refused it runs where it likes.
pub(crate) fn pin(thread: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let Some(&cpu) = cpus.get(thread % cpus.len().max(1)) else { return };
    let mut own = CpuSet::new();
    own.set(cpu);
    let _ = sched_setaffinity(None, &own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_all_threads() {
        let work = |thread: u32| {
            std::thread::sleep(Duration::from_millis(10 * u64::from(thread)));
            Ok(thread)
        };
        let (done, taken) = together(3, work).unwrap();
        assert_eq!(done, [0, 1, 2]);
        assert!(taken >= Duration::from_millis(20), "{taken:?}");
    }

    #[test]
    fn one_that_fails_holds_nobody_up() {
        let work = |thread: u32| if thread == 1 { Err("no".to_owned()) } else { Ok(()) };
        assert_eq!(together(2, work).unwrap_err(), "no");
    }
}
