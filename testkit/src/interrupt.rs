//! Signals to a thread at its own pace.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sends a thread a signal again and again until `over`: each time not before the thread has gone on since the last, which it
/// counts in `steps`. Where handlers take long, it would come to nothing else.
///
/// # Safety
///
/// The thread lives until this is done.
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
        std::thread::sleep(Duration::from_micros(20));
    }
}
