//! The length of a grace period: without readers, and with a thread that enters and leaves without a pause.

use serde::Serialize;
use skep_rcu::{Domain, Error, Grace};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Steps of a busy reader's section: about as long as a short program.
const STEPS: u32 = 1000;

/// How long a grace period takes.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    /// `synchronize`, `synchronize_expedited`, or `call`: until its callback runs.
    what: &'static str,
    /// Whether a thread enters and leaves all the while.
    busy: bool,
    median_us: f64,
    /// One in a hundred took longer.
    p99_us: f64,
}

/// Measures each so many times.
pub(super) fn measure(times: u32) -> Result<Vec<Latency>, String> {
    let domain = Domain::new(8).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for busy in [false, true] {
        let (over, inside) = (AtomicBool::new(!busy), AtomicBool::new(!busy));
        let measured = std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&domain, &over, &inside));
            while !inside.load(Ordering::Relaxed) && !reader.is_finished() {
                std::thread::yield_now();
            }
            let measured = [
                ("synchronize", &synchronize as &dyn Fn(&Domain) -> Result<Duration, String>),
                ("synchronize_expedited", &expedited),
                ("call", &call),
            ]
            .into_iter()
            .map(|(what, once)| latency(what, busy, times, || once(&domain)))
            .collect::<Result<Vec<_>, _>>();
            over.store(true, Ordering::Relaxed);
            reader.join().map_err(|_| "the reader panicked".to_owned())??;
            measured
        });
        all.extend(measured?);
    }
    Ok(all)
}

fn read(domain: &Domain, over: &AtomicBool, inside: &AtomicBool) -> Result<(), String> {
    let reader = domain.reader().map_err(|error| error.to_string())?;
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

fn latency(
    what: &'static str,
    busy: bool,
    times: u32,
    once: impl Fn() -> Result<Duration, String>,
) -> Result<Latency, String> {
    let mut all: Vec<f64> =
        (0..times).map(|_| once().map(|taken| taken.as_secs_f64() * 1e6)).collect::<Result<_, _>>()?;
    all.sort_by(f64::total_cmp);
    let at = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or(f64::NAN);
    Ok(Latency { what, busy, median_us: at(50), p99_us: at(99) })
}

fn waited(wait: impl FnOnce() -> Result<(), Error>) -> Result<Duration, String> {
    let started = Instant::now();
    wait().map_err(|error| error.to_string())?;
    Ok(started.elapsed())
}

fn synchronize(domain: &Domain) -> Result<Duration, String> {
    waited(|| domain.synchronize(Grace::Normal))
}

fn expedited(domain: &Domain) -> Result<Duration, String> {
    waited(|| domain.synchronize_expedited(Grace::Normal))
}

fn call(domain: &Domain) -> Result<Duration, String> {
    let (sender, receiver) = mpsc::channel();
    let started = Instant::now();
    domain.call(Grace::Normal, move || {
        // Somebody waits for it.
        let _ = sender.send(Instant::now());
    });
    let ran = receiver.recv().map_err(|_| "the callback did not run".to_owned())?;
    Ok(ran - started)
}
