//! Threads that wait for a slot to be given back.
//!
//! ```text
//!   one that waits                     one that gives back
//!     waiting += 1                       clears the slot's bit
//!     fence                              fence
//!     tries the bits; sleeps if none     waiting > 0?  then it locks and wakes one
//! ```
//!
//! Invariant: at least one of the two sees the other. The try is under the lock that the waking thread takes, so it
//! comes either after the bit was cleared, or before a sleep that the waking thread ends.
//!
//! A woken thread may find that a third one was faster. Then it sleeps again, and the third one will wake it or
//! another.
//!
//! What would break it: a try outside of the lock; either fence missing; a thread that waits with a slot in use,
//! because two of these can wait for each other (`claim.rs` refuses that).

use crate::sync::{AtomicU32, Condvar, Mutex, Ordering, fence, lock};

/// How often a thread tries before it sleeps: most runs of programs are shorter than a sleep.
#[cfg(not(loom))]
const TRIES: usize = 100;

/// The threads that wait.
pub(crate) struct Turns {
    waiting: AtomicU32,
    trying: Mutex<()>,
    given_back: Condvar,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { waiting: AtomicU32::new(0), trying: Mutex::new(()), given_back: Condvar::new() }
    }

    /// Calls `attempt` until it has a result, and sleeps in between.
    pub(crate) fn wait<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> T {
        #[cfg(not(loom))]
        for _ in 0..TRIES {
            std::hint::spin_loop();
            if let Some(got) = attempt() {
                return got;
            }
        }
        // Relaxed, here and below: the fences order it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `give_back`.
        fence(Ordering::SeqCst);
        let mut trying = lock(&self.trying);
        let got = loop {
            if let Some(got) = attempt() {
                break got;
            }
            trying = match self.given_back.wait(trying) {
                Ok(trying) => trying,
                Err(poisoned) => poisoned.into_inner(),
            };
        };
        drop(trying);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        got
    }

    /// Wakes a thread that waits. Called after a slot was given back.
    pub(crate) fn give_back(&self) {
        // Pairs with the fence in `wait`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            // A thread that tried without success is asleep once this has the lock.
            let _trying = lock(&self.trying);
            self.given_back.notify_one();
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::bitmap::Bitmap;
    use crate::model::{begin, model, must_fail};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use std::mem::ManuallyDrop;

    /// Two threads use the one slot in turn. `wakes` says how it is given back.
    fn turns(wakes: fn(&Turns)) {
        // On a deadlock loom panics in an arbitrary thread; dropping a handle then would panic again.
        let shared = ManuallyDrop::new(Arc::new((Bitmap::new(1), Turns::new(), UnsafeCell::new(0u32))));
        let work = move |shared: &(Bitmap, Turns, UnsafeCell<u32>)| {
            let (bitmap, turns, cell) = shared;
            let number = turns.wait(|| bitmap.claim_in(0..1));
            // SAFETY: what the model proves.
            cell.with_mut(|cell| unsafe { *cell += 1 });
            bitmap.release(number);
            wakes(turns);
        };
        let other = ManuallyDrop::new(Arc::clone(&shared));
        let thread = thread::spawn(move || {
            begin(1);
            work(&other);
            drop(ManuallyDrop::into_inner(other));
        });
        begin(0);
        work(&shared);
        thread.join().unwrap();
        // SAFETY: the other thread was joined.
        assert_eq!(shared.2.with(|cell| unsafe { *cell }), 2);
        drop(ManuallyDrop::into_inner(shared));
    }

    #[test]
    fn loom_every_thread_gets_its_turn() {
        model(|| turns(Turns::give_back));
    }

    #[test]
    fn loom_a_slot_that_is_given_back_in_silence_is_waited_for_without_end() {
        must_fail("deadlock", || turns(|_| ()));
    }

    #[test]
    fn loom_a_thread_that_is_woken_without_the_lock_may_sleep_on() {
        must_fail("deadlock", || {
            turns(|turns| {
                fence(Ordering::SeqCst);
                if turns.waiting.load(Ordering::Relaxed) > 0 {
                    turns.given_back.notify_one();
                }
            });
        });
    }
}
