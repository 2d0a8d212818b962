//! The length of a grace period: without readers, and with a thread that enters and leaves without a pause.

use crate::Result;
use crate::timing::{beside, percentile, sorted};
use serde_json::{Value, json};
use skep_rcu::{Domain, Grace};
use std::hint::black_box;
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
        let row = |(what, once): &(&str, &dyn Fn() -> Result<Instant>)| {
            let one = || {
                let started = Instant::now();
                Ok((once()? - started).as_secs_f64() * 1e6)
            };
            let all = sorted((0..times).map(|_| one()).collect::<Result<Vec<f64>>>()?);
            let (median, p99) = (percentile(&all, 50), percentile(&all, 99));
            Ok(json!({"what": what, "busy": busy, "median_us": median, "p99_us": p99}))
        };
        let measure = || kinds.iter().map(row).collect::<Result<Vec<Value>>>();
        rows.extend(if busy { beside(|go| read(&domain, go), measure)?.1 } else { measure()? });
    }
    Ok(rows)
}

fn read(domain: &Domain, go: &dyn Fn() -> bool) -> Result<()> {
    let reader = domain.reader()?;
    while go() {
        reader.read(|| {
            for step in 0..STEPS {
                black_box(step);
            }
        });
    }
    Ok(())
}
