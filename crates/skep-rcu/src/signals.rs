//! Starting a thread that handles no signals.
//!
//! A handler of the host expects one of the host's threads: it may use thread-local data or take long, and the kernel
//! must not pick the keeper to run it. A thread inherits the signal mask of its creator, so the mask is set around
//! the creation: the new thread has it from the start.
//!
//! Signals that a thread raises itself (a bad address, an illegal instruction) stay unblocked: blocked, they would
//! end the process without the host's handler, and a callback may access memory that a handler provides.

use std::mem::MaybeUninit;
use std::ptr;

/// Runs `start` with all signals blocked except those that a thread raises itself.
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
