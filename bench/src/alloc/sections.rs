//! The time to enter and leave a read-side critical section with one load in it, in skep and two other crates.

use crate::together::together;
use crossbeam_epoch::Collector as Crossbeam;
use seize::{Collector as Seize, Guard};
use serde::Serialize;
use skep_rcu::Domain;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// Sections that are timed together.
const BATCH: u32 = 20_000;

/// A read-side critical section.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    /// Of which crate.
    of: &'static str,
    /// Threads that enter and leave at once.
    threads: u32,
    /// Nanoseconds of each to enter, load and leave: the best round.
    ns: f64,
}

/// A way to enter, load and leave, so many times.
type Enter<'a> = &'a (dyn Fn() -> Result<(), String> + Sync);

/// Measures all in so many rounds.
pub(super) fn measure(rounds: u32) -> Result<Vec<Section>, String> {
    let failed = |error: skep_rcu::Error| error.to_string();
    let shared = AtomicPtr::new(ptr::without_provenance_mut::<u8>(8));
    let load = || {
        black_box(shared.load(Ordering::Acquire));
    };
    let domain = Domain::new(8).map_err(failed)?;
    let crossbeam = Crossbeam::new();
    let seize = Seize::new();
    let ways: [(&'static str, Enter<'_>); 7] = [
        ("none", &|| each(load)),
        ("skep", &|| {
            let reader = domain.reader().map_err(failed)?;
            each(|| reader.read(load))
        }),
        ("skep, sleepable", &|| {
            let reader = domain.reader().map_err(failed)?;
            each(|| reader.read_sleepable(load))
        }),
        // The thread's slot is looked up each time.
        ("skep, looked up", &|| each(|| domain.enter().map_or((), |_inside| load()))),
        ("crossbeam-epoch", &|| {
            let handle = crossbeam.register();
            each(|| {
                let guard = handle.pin();
                load();
                drop(guard);
            })
        }),
        ("crossbeam-epoch, looked up", &|| {
            each(|| {
                let guard = crossbeam_epoch::pin();
                load();
                drop(guard);
            })
        }),
        ("seize", &|| {
            each(|| {
                let guard = seize.enter();
                black_box(guard.protect(&shared, Ordering::Acquire));
                drop(guard);
            })
        }),
    ];
    let mut best = [[Duration::MAX; 2]; 7];
    for _ in 0..rounds {
        for ((_, way), best) in ways.iter().zip(&mut best) {
            for (threads, best) in [1, 2].into_iter().zip(best) {
                *best = together(threads, |_| way())?.1.min(*best);
            }
        }
    }
    let row = |of, (threads, best): (u32, &Duration)| Section {
        of,
        threads,
        ns: best.as_secs_f64() * 1e9 / f64::from(BATCH),
    };
    let rows = ways.iter().zip(&best);
    Ok(rows.flat_map(|((of, _), best)| [1, 2].into_iter().zip(best).map(|it| row(*of, it))).collect())
}

fn each(section: impl Fn()) -> Result<(), String> {
    (0..BATCH).for_each(|_| section());
    Ok(())
}
