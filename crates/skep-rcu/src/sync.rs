//! The primitives that the lock-free parts and the inbox are made of, so that loom can take their place.
//!
//! With `--cfg loom` only the modules that use these are compiled, and their models explore every order in
//! which threads can meet. loom knows no membarrier(2); what stands for it is in `barrier.rs`.

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

#[cfg(loom)]
pub(crate) fn compiler_fence(_: Ordering) {
    unreachable!("the models use fences on both sides");
}

/// Locks, whether or not a thread panicked while it held the lock: nothing here panics half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
