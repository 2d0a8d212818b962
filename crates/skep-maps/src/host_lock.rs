//! The lock that this thread holds as a host without a virtual CPU.
//!
//! Such a thread has no number for the lock's owner field ([`crate::version`]). A signal handler that interrupted it
//! and uses maps checks here instead. The answer errs on the safe side: the thread may have been interrupted just
//! before it took the lock, or just after it released it, while another host has it.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

thread_local! {
    /// The lock's word; an operation takes one lock at a time. A plain cell, because signal handlers read it: access
    /// allocates nothing, and it has no destructor.
    static HELD: Cell<*const AtomicU64> = const { Cell::new(ptr::null()) };
}

/// Records a lock that this thread holds or is about to take, until it is dropped.
pub(crate) struct HostLock {
    /// The lock of the operation that this one interrupted.
    before: *const AtomicU64,
}

/// Whether this thread holds that lock.
pub(crate) fn holds(word: &AtomicU64) -> bool {
    ptr::eq(HELD.get(), word)
}

impl HostLock {
    pub(crate) fn begin(word: &AtomicU64) -> Self {
        let before = HELD.replace(word);
        // Before the lock is taken: a handler on this thread must not find it taken and not recorded.
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
