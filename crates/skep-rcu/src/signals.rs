//! Starting a thread that handles no signals.
//!
//! A handler that the host installed expects one of the host's threads: it may look into thread-local data or take long,
//! and the keeper must not be where the kernel finds the thread with the signal open. A thread inherits the mask of
//! the one that starts it, so the mask is set around the start: there is no moment at which it is missing.
//!
//! Signals that a thread brings on itself (a bad address, an illegal instruction) stay open: blocked, they would end
//! the process without the host's handler, and a callback may well touch memory that a handler provides.

use std::mem::MaybeUninit;
use std::ptr;

/// Runs `start` with all signals blocked but those that a thread raises itself.
pub(crate) fn blocked<R>(start: impl FnOnce() -> R) -> R {
    let own =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set that the others read; the signals are valid numbers.
    // pthread_sigmask(3) fails for a wrong first argument only, and leaves the C library's own signals open.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in own {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = start();
    // SAFETY: the call above stored the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}
