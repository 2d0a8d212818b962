//! Spin locks in values (`struct bpf_spin_lock`).
//!
//! ```text
//!   value   | counter | lock word: 0 free, 1 taken | ... |
//! ```
//!
//! Programs take a lock by a helper for a few instructions, in which the verifier lets them call nothing; updates and
//! look-ups with `BPF_F_LOCK` take it for one copy. Whoever waits gives his processor away after some turns: the
//! holder may not be running.
//!
//! A thread that holds a lock may be interrupted by a signal whose handler runs a program. Were that to wait for the
//! same lock, it would wait for ever. So each thread counts the locks that it holds, [`is_held`] tells, and whoever
//! runs programs refuses those that may take one there. Linux has this from the types of programs; here any program may
//! be run anywhere. The count changes outside of the time in which the word is set:
//!
//! ```text
//!   count 1 | word 1 ... word 0 | count 0
//! ```

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

thread_local! {
    /// How many locks this thread holds or is waiting for. Handlers of signals look at it: nothing is allocated for it,
    /// and nothing is run when the thread ends.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Turns of waiting before the processor is given away.
const TURNS: u32 = 100;

/// Whether this thread holds a lock in a value, or is about to. Then a program that may take one must not run on it: the
/// thread was interrupted by a signal, and would wait for itself.
#[inline]
pub fn is_held() -> bool {
    HELD.get() > 0
}

/// Takes the lock, and waits for it as long as it takes.
///
/// # Safety
///
/// `at` is the address of a lock in a map's value, a multiple of 4, valid until it is [given back](release) by this
/// thread; this thread holds none ([`is_held`]).
#[inline]
pub unsafe fn acquire(at: *mut u8) {
    HELD.set(HELD.get() + 1);
    // A handler on this thread must not find the word set and the count not.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the caller's promise.
    let word = unsafe { word(at) };
    // Acquire: pairs with the Release in `release`, for all that the last holder did.
    while word.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        wait(word);
    }
}

/// Gives the lock back.
///
/// # Safety
///
/// This thread took the lock at that address by [`acquire`] and has not given it back.
#[inline]
pub unsafe fn release(at: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { word(at) }.store(0, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    HELD.set(HELD.get().wrapping_sub(1));
}

/// Waits until the lock looks free.
#[cold]
fn wait(word: &AtomicU32) {
    let mut turns = 0;
    while word.load(Ordering::Relaxed) != 0 {
        turns += 1;
        if turns < TURNS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// # Safety
///
/// `at` is the address of a lock.
#[inline(always)]
unsafe fn word<'a>(at: *mut u8) -> &'a AtomicU32 {
    // SAFETY: by contract; whoever else accesses it does so atomically.
    unsafe { &*at.cast::<AtomicU32>() }
}

/// A lock that is held, and given back when this is dropped.
pub(crate) struct Guard(*mut u8);

impl Guard {
    /// # Safety
    ///
    /// As for [`acquire`]; the lock stays valid as long as the guard lives.
    pub(crate) unsafe fn take(at: *mut u8) -> Self {
        // SAFETY: by contract.
        unsafe { acquire(at) };
        Self(at)
    }

    /// The same, if nobody holds the lock.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take).
    pub(crate) unsafe fn try_take(at: *mut u8) -> Option<Self> {
        HELD.set(HELD.get() + 1);
        // As in `acquire`.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: by contract. Acquire: as in `acquire`.
        if unsafe { word(at) }.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(Self(at));
        }
        HELD.set(HELD.get().wrapping_sub(1));
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: taken in `take`, and not given back before.
        unsafe { release(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_by_one_thread_at_a_time_and_the_thread_knows() {
        struct Shared(std::cell::UnsafeCell<[u32; 2]>);
        // SAFETY: the second word is only accessed under the lock in the first.
        unsafe impl Sync for Shared {}
        let shared = Shared(std::cell::UnsafeCell::new([0; 2]));
        let add = || {
            let shared = &shared;
            for _ in 0..20_000 {
                assert!(!is_held());
                // SAFETY: the first word is a lock, and guards the second.
                unsafe {
                    let at = shared.0.get().cast::<u32>();
                    let _guard = Guard::take(at.cast());
                    assert!(is_held());
                    *at.add(1) += 1;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(add);
            }
        });
        assert_eq!(shared.0.into_inner(), [0, 80_000]);
    }
}
