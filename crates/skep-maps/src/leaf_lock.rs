//! A leaf lock for a few instructions: its holder waits for no other lock.
//!
//! A program may run in a signal handler that interrupts, on the same thread, an operation that holds the lock. The
//! holder cannot continue before the handler returns; so programs wait for a bounded time and then fail with Linux's
//! error number ([`Patience::Bounded`]). The bound is longer than a preempted holder usually stays off its CPU.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::op_error::OpError;
use crate::version::back_off;

/// How often a program retries. Most retries sleep for 50 microseconds or more, so this is at least 20 milliseconds.
const TURNS: u32 = 400;

/// The lock.
#[derive(Debug, Default)]
pub(crate) struct LeafLock(AtomicBool);

/// The lock, held.
pub(crate) struct LeafGuard<'a>(&'a AtomicBool);

/// How long a caller waits for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until it is free: for hosts.
    Endless,
    /// For a bounded time: for programs.
    Bounded,
}

impl LeafLock {
    /// Takes the lock.
    pub(crate) fn lock(&self, patience: Patience) -> Result<LeafGuard<'_>, OpError> {
        let mut turns = 0;
        // Acquire: pairs with the Release in the `drop` of the last holder.
        while self.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            back_off(turns);
            turns = turns.saturating_add(1);
            if turns > TURNS && patience == Patience::Bounded {
                return Err(OpError::Busy);
            }
        }
        Ok(LeafGuard(&self.0))
    }
}

impl Drop for LeafGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_wait_gives_up() {
        let leaf = LeafLock::default();
        let held = leaf.lock(Patience::Bounded).ok();
        assert!(held.is_some());
        assert_eq!(leaf.lock(Patience::Bounded).err(), Some(OpError::Busy));
        drop(held);
        assert!(leaf.lock(Patience::Endless).is_ok());
    }
}
