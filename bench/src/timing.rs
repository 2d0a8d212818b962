//! Times of work that is repeated: in batches on one thread, or by several threads at the same time.

use crate::Result;
use crate::process::thread_time;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Work that is timed in batches, so long that reading the clock does not count.
pub(crate) struct Batched<W> {
    work: W,
    batch: u32,
    /// Nanoseconds of one repetition, of each turn.
    pub(crate) times: Vec<f64>,
}

impl<W: FnMut()> Batched<W> {
    /// A batch lasts at least that long.
    pub(crate) fn new(least: Duration, work: W) -> Self {
        let mut new = Self { work, batch: 1, times: Vec::new() };
        while new.time() < least && new.batch < 1 << 20 {
            new.batch *= 2;
        }
        new
    }

    fn time(&mut self) -> Duration {
        let started = Instant::now();
        (0..self.batch).for_each(|_| (self.work)());
        started.elapsed()
    }

    pub(crate) fn turn(&mut self) {
        let elapsed = self.time();
        self.times.push(elapsed.as_nanos() as f64 / f64::from(self.batch));
    }
}

/// In ascending order.
pub(crate) fn sorted(times: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut times: Vec<f64> = times.into_iter().collect();
    times.sort_by(f64::total_cmp);
    times
}

/// The time that `percent` of these [`sorted`] times are below; not a number where there are none.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

pub(crate) fn median(times: impl IntoIterator<Item = f64>) -> f64 {
    percentile(&sorted(times), 50)
}

/// In nanoseconds.
pub(crate) fn ns(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// Has each thread do its work twice, the first time to fill the caches. Returns the results of the second time and how
/// long it took, from the first thread's begin to the last one's end. For one thread it is the thread's processor time,
/// which other processes on the same processor do not lengthen. Each of several threads has a processor of its own, as
/// far as there are enough.
pub(crate) fn together<T: Send>(
    threads: u32,
    work: impl Fn(u32) -> Result<T> + Sync,
) -> Result<(Vec<T>, Duration)> {
    if threads == 1 {
        work(0)?;
        let started = thread_time();
        let done = work(0)?;
        return Ok((vec![done], thread_time().saturating_sub(started)));
    }
    let arrived = AtomicU32::new(0);
    let one = |thread: u32| {
        pin(thread as usize);
        let warmed = work(thread);
        // A thread that sleeps here wakes up late, when the others are done.
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
        let one = &one;
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a thread panicked")?).collect::<Vec<Result<_>>>()
    });
    let all = all.into_iter().collect::<Result<Vec<_>>>()?;
    let started = all.iter().map(|(_, started, _)| *started).min().ok_or("no threads")?;
    let ended = all.iter().map(|(_, _, ended)| *ended).max().ok_or("no threads")?;
    Ok((all.into_iter().map(|(done, ..)| done).collect(), ended - started))
}

/// Does `work` while another thread runs `neighbour`, whose loop continues while its argument returns true. The work
/// begins after the neighbour's first lap. Returns both results.
pub(crate) fn beside<N: Send, T>(
    neighbour: impl FnOnce(&dyn Fn() -> bool) -> Result<N> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<(N, T)> {
    // Relaxed: the threads tell each other nothing but that they are there.
    let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (ready, over) = (&ready, &over);
        let running = scope.spawn(move || {
            let first = Cell::new(true);
            neighbour(&|| {
                ready.store(!first.replace(false), Ordering::Relaxed);
                !over.load(Ordering::Relaxed)
            })
        });
        while !ready.load(Ordering::Relaxed) && !running.is_finished() {
            std::thread::yield_now();
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        let ran = running.join().map_err(|_| "the other thread panicked")?;
        Ok((ran?, done?))
    })
}

/// Keeps this thread on one of the processors that it may run on. Where that is refused it runs anywhere.
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
    fn a_thread_that_fails_holds_no_other_up() {
        let work = |thread: u32| if thread == 1 { Err("no".into()) } else { Ok(()) };
        assert_eq!(together(2, work).unwrap_err().to_string(), "no");
    }

    #[test]
    fn the_neighbour_runs_before_and_until_the_end() {
        let laps = AtomicU32::new(0);
        let neighbour = |go: &dyn Fn() -> bool| {
            while go() {
                laps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(laps.load(Ordering::Relaxed))
        };
        let (all, before) = beside(neighbour, || Ok(laps.load(Ordering::Relaxed))).unwrap();
        assert!(before >= 1 && all >= before, "{before} {all}");
    }

    #[test]
    fn an_error_of_the_neighbour_ends_the_wait() {
        let failed = beside(|_| Err::<(), _>("no".into()), || Ok(())).unwrap_err();
        assert_eq!(failed.to_string(), "no");
    }

    #[test]
    fn batches_grow_until_they_last_long_enough() {
        let mut runs = 0_u32;
        let mut batched = Batched::new(Duration::from_micros(50), || runs = std::hint::black_box(runs + 1));
        batched.turn();
        batched.turn();
        assert!(batched.batch > 1 && batched.times.len() == 2 && batched.times[0] > 0.0);
    }

    #[test]
    fn percentiles_are_of_sorted_times() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        let times = sorted((0..200).rev().map(f64::from));
        assert_eq!((percentile(&times, 50), percentile(&times, 99)), (100.0, 198.0));
        assert!(median([]).is_nan());
    }
}
