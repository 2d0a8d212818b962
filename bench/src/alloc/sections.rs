//! The time to enter and leave a read-side critical section with one load in it, in skep and two other crates.

use crate::Result;
use crate::timing::{ns, together};
use crossbeam_epoch::Collector as Crossbeam;
use seize::{Collector as Seize, Guard};
use serde_json::{Value, json};
use skep_rcu::Domain;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// Sections that are timed together.
const BATCH: u32 = 20_000;

/// A way to enter, load and leave, [`BATCH`] times.
type Enter<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// Nanoseconds of each thread to enter, load and leave: the best round.
pub(super) fn measure(rounds: u32) -> Result<Vec<Value>> {
    let shared = AtomicPtr::new(ptr::without_provenance_mut::<u8>(8));
    let load = || {
        black_box(shared.load(Ordering::Acquire));
    };
    let domain = Domain::new(8)?;
    let crossbeam = Crossbeam::new();
    let seize = Seize::new();
    let ways: [(&'static str, Enter<'_>); 7] = [
        ("none", &|| each(load)),
        ("skep", &|| {
            let reader = domain.reader()?;
            each(|| reader.read(load))
        }),
        ("skep, sleepable", &|| {
            let reader = domain.reader()?;
            each(|| reader.read_sleepable(load))
        }),
        // The thread's slot is looked up each time.
        ("skep, looked up", &|| each(|| domain.enter().map_or((), |_inside| load()))),
        ("crossbeam-epoch", &|| {
            let handle = crossbeam.register();
            each(|| {
                let _guard = handle.pin();
                load();
            })
        }),
        ("crossbeam-epoch, looked up", &|| {
            each(|| {
                let _guard = crossbeam_epoch::pin();
                load();
            })
        }),
        ("seize", &|| {
            each(|| {
                let guard = seize.enter();
                black_box(guard.protect(&shared, Ordering::Acquire));
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
    let rows = ways.iter().zip(best).flat_map(|((of, _), best)| {
        let row =
            move |(threads, best)| json!({"of": of, "threads": threads, "ns": ns(best) / f64::from(BATCH)});
        [1, 2].into_iter().zip(best).map(row)
    });
    Ok(rows.collect())
}

fn each(section: impl Fn()) -> Result<()> {
    (0..BATCH).for_each(|_| section());
    Ok(())
}
