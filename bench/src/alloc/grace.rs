//! The length of a grace period: without readers, and with a thread that enters and leaves without a pause.

use crate::Result;
use crate::timing::{percentile, sorted};
use serde_json::{Value, json};
use skep_rcu::{Domain, Grace};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// Steps of a busy reader's section: about as long as a short program.
const STEPS: u32 = 1000;

/// Measures each kind of grace period `times` times, without readers and while a thread enters and leaves.
pub(super) fn measure(times: u32) -> Result<Vec<Value>> {
    let domain = Domain::new(8)?;
    let kinds: [(&str, &dyn Fn() -> Result<Instant>); 3] = [
        ("synchronize", &|| {
            domain.synchronize(Grace::Normal)?;
            Ok(Instant::now())
        }),
        ("synchronize_expedited", &|| {
            domain.synchronize_expedited(Grace::Normal)?;
            Ok(Instant::now())
        }),
        // Until its callback runs.
        ("call", &|| {
            let (sender, receiver) = mpsc::channel();
            // The receiver below waits for it.
            domain.call(Grace::Normal, move || {
                let _ = sender.send(Instant::now());
            });
            Ok(receiver.recv()?)
        }),
    ];
    let mut rows = Vec::new();
    for busy in [false, true] {
        let (over, inside) = (AtomicBool::new(!busy), AtomicBool::new(!busy));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&domain, &over, &inside));
            while !inside.load(Ordering::Relaxed) && !reader.is_finished() {
                std::thread::yield_now();
            }
            let measured: Result<()> = kinds.iter().try_for_each(|(what, once)| {
                let one = || {
                    let started = Instant::now();
                    Ok((once()? - started).as_secs_f64() * 1e6)
                };
                let all = sorted((0..times).map(|_| one()).collect::<Result<Vec<f64>>>()?);
                let (median, p99) = (percentile(&all, 50), percentile(&all, 99));
                rows.push(json!({"what": what, "busy": busy, "median_us": median, "p99_us": p99}));
                Ok(())
            });
            over.store(true, Ordering::Relaxed);
            reader.join().map_err(|_| "the reader panicked")??;
            measured
        })?;
    }
    Ok(rows)
}

fn read(domain: &Domain, over: &AtomicBool, inside: &AtomicBool) -> Result<()> {
    let reader = domain.reader()?;
    while !over.load(Ordering::Relaxed) {
        inside.store(true, Ordering::Relaxed);
        reader.read(|| {
            for step in 0..STEPS {
                black_box(step);
            }
        });
    }
    Ok(())
}
