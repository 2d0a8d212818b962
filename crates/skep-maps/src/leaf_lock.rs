//! A lock for a few instructions, of which nobody waits for another.
//!
//! A program may run in a signal handler that interrupts, on the same thread, an operation which holds the
//! lock. That one cannot go on before the handler has returned; so programs wait for a bounded time and then
//! give up, with the number that Linux has for it ([`Patience::Bounded`]). The bound is longer than a holder
//! that lost its processor is usually away.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::op_error::OpError;
use crate::version::back_off;

/// How often a program looks again: most of these are sleeps of 50 microseconds or more, so that it is 20
/// milliseconds and more.
const TURNS: u32 = 400;

/// The lock.
#[derive(Debug, Default)]
pub(crate) struct LeafLock(AtomicBool);

/// The lock, held.
pub(crate) struct LeafGuard<'a>(&'a AtomicBool);

/// How long one waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The host waits until it is free.
    Endless,
    /// Programs give up in the end.
    Bounded,
}

impl LeafLock {
    /// Takes the lock.
    pub(crate) fn lock(&self, patience: Patience) -> Result<LeafGuard<'_>, OpError> {
        let mut turns = 0;
        // Acquire: pairs with the Release in `drop` of whoever held it last.
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
    fn who_cannot_wait_for_ever_gives_up() {
        let leaf = LeafLock::default();
        let held = leaf.lock(Patience::Bounded).ok();
        assert!(held.is_some());
        assert_eq!(leaf.lock(Patience::Bounded).err(), Some(OpError::Busy));
        drop(held);
        assert!(leaf.lock(Patience::Endless).is_ok());
    }
}
