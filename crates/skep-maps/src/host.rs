//! Whether this thread is in the middle of an operation as a host without a virtual CPU.
//!
//! Such a one has no number that says whose a lock is ([`crate::version`]). A signal's handler that interrupted it and runs
//! a program asks here. The answer is a little too careful: the thread may have been interrupted before it took the lock that
//! another host holds just now.

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    /// How many such operations this thread is in. Handlers look at it: nothing is allocated for it, and nothing is run when the
    /// thread ends.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// An operation under way.
pub(crate) struct Operation(());

/// How many operations this thread is in.
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

impl Operation {
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        // A handler on this thread must not find a lock taken and the count not.
        compiler_fence(Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        DEPTH.set(DEPTH.get().wrapping_sub(1));
    }
}
