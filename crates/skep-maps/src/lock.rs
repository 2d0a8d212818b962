//! Spin locks in values (`struct bpf_spin_lock`).
//!
//! ```text
//!   value   | counter | lock word: 0 free, 1 taken | ... |
//! ```
//!
//! A program takes a lock, by a helper, for a few instructions in which the verifier allows no call; updates and
//! look-ups with `BPF_F_LOCK` take it for one copy. A waiting thread yields its CPU after some attempts, because the
//! holder may not be running.
//!
//! A signal handler may run a program on a thread that holds a lock. If the program waited for the same lock, it
//! would wait for ever. So each thread counts the locks that it holds ([`is_held`]), and the runtime refuses programs
//! that may take one on such a thread. Linux decides this by the program's type; here any program may run anywhere.
//! The count changes outside of the time in which the word is set:
//!
//! ```text
//!   count 1 | word 1 ... word 0 | count 0
//! ```

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

thread_local! {
    /// The number of locks that this thread holds or waits for. Signal handlers read it: access allocates nothing,
    /// and it has no destructor.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Attempts before a waiting thread yields its CPU.
const TURNS: u32 = 100;

/// Whether this thread holds a lock in a value, or is about to. A program that may take one must not run on it then:
/// the thread was interrupted by a signal, and the program would wait for itself.
#[inline]
pub fn is_held() -> bool {
    HELD.get() > 0
}

/// Takes the lock. Waits without a limit.
///
/// # Safety
///
/// `at` is the address of a lock in a map's value, a multiple of 4, valid until this thread [releases](release) it;
/// this thread holds no other ([`is_held`]).
#[inline]
pub unsafe fn acquire(at: *mut u8) {
    HELD.set(HELD.get() + 1);
    // A handler on this thread must not find the word set and the count unchanged.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: by the caller's contract.
    let word = unsafe { word(at) };
    // Acquire: pairs with the Release in `release`, for all changes of the last holder.
    while word.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        wait(word);
    }
}

/// Releases the lock.
///
/// # Safety
///
/// This thread took the lock at that address with [`acquire`] and has not released it.
#[inline]
pub unsafe fn release(at: *mut u8) {
    // SAFETY: by the caller's contract.
    unsafe { word(at) }.store(0, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    HELD.set(HELD.get().wrapping_sub(1));
}

/// Waits until the lock seems free.
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
    // SAFETY: by the caller's contract; all other accesses are atomic.
    unsafe { &*at.cast::<AtomicU32>() }
}

/// A time in which this thread counts as holding a lock ([`is_held`]): for other locks that programs take.
///
/// A program that may take such a lock, or one in a value, must not interrupt it on this thread.
#[derive(Debug)]
pub struct Counted(std::marker::PhantomData<*mut u8>);

impl Counted {
    /// Begins it; it ends when the result is dropped, on this thread. Take the lock after this, and release it before.
    #[must_use]
    #[inline]
    pub fn begin() -> Self {
        HELD.set(HELD.get() + 1);
        // As in `acquire`.
        compiler_fence(Ordering::SeqCst);
        Self(std::marker::PhantomData)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        HELD.set(HELD.get().wrapping_sub(1));
    }
}

/// A lock that is held until this is dropped.
pub(crate) struct Guard(*mut u8);

impl Guard {
    /// # Safety
    ///
    /// As for [`acquire`]; the lock stays valid as long as the guard lives.
    pub(crate) unsafe fn take(at: *mut u8) -> Self {
        // SAFETY: by the caller's contract.
        unsafe { acquire(at) };
        Self(at)
    }

    /// The same, if no thread holds the lock.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take).
    pub(crate) unsafe fn try_take(at: *mut u8) -> Option<Self> {
        HELD.set(HELD.get() + 1);
        // As in `acquire`.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: by the caller's contract. Acquire: as in `acquire`.
        if unsafe { word(at) }.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(Self(at));
        }
        HELD.set(HELD.get().wrapping_sub(1));
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: taken in `take`, and not released before.
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
                // SAFETY: the first word is a lock, which guards the second.
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
