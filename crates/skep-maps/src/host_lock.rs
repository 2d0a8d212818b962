//! Which lock this thread holds as a host without a virtual CPU.
//!
//! Such a one has no number that says whose a lock is ([`crate::version`]). A signal's handler that interrupted it and uses maps
//! asks here. The answer is a little too careful: the thread may have been interrupted just before it took the lock, or
//! just after it gave it back, while another host has it.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

thread_local! {
    /// The lock's word; an operation takes one lock at a time. Handlers look at it: nothing is allocated for it, and nothing is run
    /// when the thread ends.
    static HELD: Cell<*const AtomicU64> = const { Cell::new(ptr::null()) };
}

/// A lock that this thread holds, or is about to take. Dropping it says that it no longer does.
pub(crate) struct HostLock {
    /// What is held by the operation that was interrupted by this one.
    before: *const AtomicU64,
}

/// Whether this thread holds that lock.
pub(crate) fn holds(word: &AtomicU64) -> bool {
    ptr::eq(HELD.get(), word)
}

impl HostLock {
    pub(crate) fn begin(word: &AtomicU64) -> Self {
        let before = HELD.replace(word);
        // A handler on this thread must not find the lock taken and nothing here.
        compiler_fence(Ordering::SeqCst);
        Self { before }
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        HELD.set(self.before);
    }
}
