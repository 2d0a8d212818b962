//! Children that end, whatever hangs.
//!
//! A child has one thread of its parent's, and the locks as all of them held them. Under QEMU those are the emulator's
//! as well: now and then a child of a process with several threads waits for one of them for ever, all its signals
//! blocked, before it has done anything of its own. So the parent's patience ends; and where emulation is why, it tries
//! again.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::skip::{is_emulated, say};

/// More than any child takes, in an emulator too.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a child may hang where the emulator may be why.
const ATTEMPTS: u32 = 5;

/// Forks, and waits for the child, which runs `f` and ends with what it returns.
///
/// # Panics
///
/// Where there can be no child, or it does not end within twenty seconds; under an emulator, where that happens five
/// times in a row.
///
/// # Safety
///
/// The child is a copy of this thread alone: `f` must do nothing that relies on another thread or on what one had
/// locked.
pub unsafe fn in_a_child(f: impl FnOnce() -> i32) -> ExitStatus {
    for attempt in 1.. {
        // SAFETY: the caller's promise for the child; the parent goes on as before.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let status = f();
            // SAFETY: ends the child without destructors of what is the parent's.
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

/// The child's end; `None` where it had to be killed.
fn patiently(child: libc::pid_t) -> Option<ExitStatus> {
    let started = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: our own child, and a place for its status.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if started.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            0 => break,
            ended => {
                assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
                return Some(ExitStatus::from_raw(status));
            }
        }
    }
    // SAFETY: our own child, which nobody has waited for.
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
    fn children_end_with_what_they_return_or_die_of() {
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
