//! Signals sent to a thread at its own pace.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Sends a thread a signal repeatedly until `over`: each one only after the thread has made progress since the last,
/// which it counts in `steps`. Otherwise slow handlers would leave the thread no time.
///
/// # Safety
///
/// The thread lives until this function returns.
pub unsafe fn interrupt(
    thread: libc::pthread_t,
    signal: libc::c_int,
    steps: &AtomicU64,
    over: impl Fn() -> bool,
) {
    let mut last = None;
    while !over() {
        // Relaxed: a number.
        let now = Some(steps.load(Ordering::Relaxed));
        if now != last {
            last = now;
            // SAFETY: by contract.
            assert_eq!(unsafe { libc::pthread_kill(thread, signal) }, 0);
        }
        thread::sleep(Duration::from_micros(20));
    }
}

/// Repeats a step while a signal interrupts this thread, until `enough` returns true, and for 20 seconds at most.
pub fn while_interrupted(signal: libc::c_int, enough: impl Fn() -> bool + Sync, mut step: impl FnMut()) {
    let (steps, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    // SAFETY: there is always a current thread.
    let target = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        scope.spawn(|| {
            let end = Instant::now() + Duration::from_secs(20);
            // SAFETY: the thread waits for this one.
            unsafe { interrupt(target, signal, &steps, || enough() || Instant::now() >= end) };
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            step();
            steps.fetch_add(1, Ordering::Relaxed);
        }
    });
}
