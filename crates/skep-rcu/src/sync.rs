//! The primitives of the lock-free parts and the inbox, so that loom can replace them.
//!
//! With `--cfg loom` only the modules that use these are compiled, and their models explore the orders in which
//! threads can meet. loom has no membarrier(2); `barrier.rs` says what replaces it.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence, fence,
};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// A place where one thread sleeps until another reports an event.
///
/// The sleeper reads the number first, then checks for work, and sleeps only while the number is unchanged: it misses
/// no event in between. Waking takes no lock, so a signal handler may do it.
#[cfg(not(loom))]
#[derive(Default)]
pub(crate) struct Event(AtomicU32);

#[cfg(not(loom))]
impl Event {
    pub(crate) fn now(&self) -> u32 {
        // SeqCst, as below: the checks after this see at least what was there when the number was read.
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn wake(&self) {
        use rustix::thread::futex;
        // SeqCst: pairs with `now`, for everything changed before.
        self.0.fetch_add(1, Ordering::SeqCst);
        // That no thread sleeps is no failure.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }

    /// Sleeps unless the number has changed since `seen`; may return early.
    pub(crate) fn wait(&self, seen: u32, at_most: Option<std::time::Duration>) {
        use rustix::thread::futex;
        let time = at_most.and_then(|time| futex::Timespec::try_from(time).ok());
        // Changed, interrupted or timed out: the caller checks again in each case.
        let _ = futex::wait(&self.0, futex::Flags::PRIVATE, seen, time.as_ref());
    }
}

/// The same for models, which have no time.
#[cfg(loom)]
#[derive(Default)]
pub(crate) struct Event {
    number: Mutex<u32>,
    changed: Condvar,
}

#[cfg(loom)]
impl Event {
    pub(crate) fn now(&self) -> u32 {
        *lock(&self.number)
    }

    pub(crate) fn wake(&self) {
        *lock(&self.number) += 1;
        self.changed.notify_one();
    }

    pub(crate) fn wait(&self, seen: u32, _: Option<std::time::Duration>) {
        let mut number = lock(&self.number);
        while *number == seen {
            number = self.changed.wait(number).unwrap();
        }
    }
}

#[cfg(loom)]
pub(crate) fn compiler_fence(_: Ordering) {
    unreachable!("the models use fences on both sides");
}

/// Locks, even if a thread panicked while it held the lock: no code here panics with broken state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
