//! The gate in front of something that is used by many and replaced by one.
//!
//! ```text
//!   | open | users |    one word
//!
//!   enter:   + 1; was it open? then in, else - 1
//!   close:   not open; whoever is in may stay
//!   empty:   not open and no users: the one who replaces may do so
//! ```
//!
//! Invariant: while somebody is in, the gate is not empty, and what is behind it does not change. A thread that comes
//! too late counts itself for a moment and touches nothing; meanwhile the gate seems to be in use, which delays the
//! replacement.
//!
//! A child that is forked while a thread is in never sees the gate empty: what is behind stays for ever.

use crate::sync::{AtomicU32, Ordering};

const OPEN: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Gate(AtomicU32);

impl Gate {
    /// `word` is 0: the gate is empty.
    pub(crate) const fn new(word: AtomicU32) -> Self {
        Self(word)
    }

    /// Goes in. Whoever is in sees what was put there before the gate was opened.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        // Acquire: pairs with `open`.
        if self.0.fetch_add(1, Ordering::Acquire) & OPEN != 0 {
            return true;
        }
        // Relaxed: nothing was touched.
        self.0.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Goes out.
    #[inline]
    pub(crate) fn leave(&self) {
        // Release: pairs with `is_empty`.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Lets nobody else in.
    pub(crate) fn close(&self) {
        // Relaxed: what follows depends on `is_empty`.
        self.0.fetch_and(!OPEN, Ordering::Relaxed);
    }

    /// Whether it is closed and nobody is in.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: pairs with each `leave`, since all changes of the word are of the kind that passes on what was
        // released before.
        self.0.load(Ordering::Acquire) == 0
    }

    /// Opens it. It was empty, and the caller is the only one who opens it.
    pub(crate) fn open(&self) {
        // Release: pairs with `enter`.
        self.0.fetch_or(OPEN, Ordering::Release);
    }
}
