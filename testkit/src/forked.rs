//! Forked children with a time limit.
//!
//! A child has a copy of one thread of its parent, and of the locks in the state in which all threads held them.
//! Under QEMU these include the emulator's locks: sometimes a child of a multi-threaded process waits for one of them
//! for ever, with all signals blocked, before it runs any code of its own. So the parent has a time limit, and under
//! an emulator it tries again.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::skip::{is_emulated, say};

/// The time limit: more than any child takes, under an emulator too.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a child may hang under an emulator.
const ATTEMPTS: u32 = 5;

/// Forks a child that runs `f` and exits with its result, and waits for the child.
///
/// # Panics
///
/// If fork(2) fails, or the child does not end within twenty seconds; under an emulator, if that happens five times
/// in a row.
///
/// # Safety
///
/// The child is a copy of this thread only: `f` must not rely on another thread, or on a lock that one held.
pub unsafe fn in_a_child(f: impl FnOnce() -> i32) -> ExitStatus {
    for attempt in 1.. {
        // SAFETY: the caller's promise for the child; the parent continues normally.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let status = f();
            // SAFETY: ends the child without running destructors of the parent's objects.
            unsafe { libc::_exit(status) };
        }
        match patiently(child) {
            Some(status) => return status,
            None => assert!(is_emulated() && attempt < ATTEMPTS, "a child hung"),
        }
        say(&format!("a forked child hung in the emulator, attempt {attempt}"));
    }
    unreachable!("the last attempt returns or panics")
}

/// The child's wait status; `None` if it had to be killed.
fn patiently(child: libc::pid_t) -> Option<ExitStatus> {
    let started = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: our own child, and a valid pointer for its status.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if started.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            0 => break,
            ended => {
                assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
                return Some(ExitStatus::from_raw(status));
            }
        }
    }
    // SAFETY: our own child, which has not been waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &mut status, 0);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_end_with_their_result_or_signal() {
        // SAFETY: the children do nothing but end.
        let (returned, died) = unsafe {
            let abort = || {
                libc::raise(libc::SIGKILL);
                0
            };
            (in_a_child(|| 42), in_a_child(abort))
        };
        assert_eq!(returned.code(), Some(42));
        assert_eq!(died.signal(), Some(libc::SIGKILL));
    }
}
