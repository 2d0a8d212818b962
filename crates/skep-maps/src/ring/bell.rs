//! A bell that many writers ring and one reader waits for.
//!
//! **Protocol.** The reader announces that it sleeps, looks once more, and sleeps. A writer writes, and looks whether
//! the reader sleeps. Both execute a sequentially consistent fence between the two steps, so at least one sees the
//! other's store: the reader does not sleep past something that was written before. While the reader is awake, a
//! writer makes no system call.
//!
//! **What would break it:** looking before the announcement, or writing after [`Bell::ring`].

use super::sync::{AtomicU32, Ordering, fence};

/// 1 while the reader sleeps, or is about to; 2 while it listens for a signal.
#[derive(Debug)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Wakes the reader if it sleeps; what it waits for was written before.
    pub(crate) fn ring(&self, wake: impl FnOnce(&AtomicU32), signal: impl FnOnce()) {
        // Pairs with the fence in `wait`.
        fence(Ordering::SeqCst);
        // Relaxed, here and below: the fences order them, and all changes are swaps, so they are in one order.
        if self.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        match self.0.swap(0, Ordering::Relaxed) {
            1 => wake(&self.0),
            2 => signal(),
            _ => {}
        }
    }

    /// Unless something is `ready`, calls `park`, which sleeps while the word is 1.
    pub(crate) fn wait(&self, ready: impl FnOnce() -> bool, park: impl FnOnce(&AtomicU32)) {
        self.0.swap(1, Ordering::Relaxed);
        // Pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        if !ready() {
            park(&self.0);
        }
        self.0.swap(0, Ordering::Relaxed);
    }

    /// The reader listens from now on: the next writer sends one signal. Returns false, and does not listen, if
    /// something is `ready`.
    pub(crate) fn listen(&self, ready: impl FnOnce() -> bool) -> bool {
        self.0.swap(2, Ordering::Relaxed);
        // Pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        if !ready() {
            return true;
        }
        self.stop_listening();
        false
    }

    pub(crate) fn stop_listening(&self) {
        self.0.swap(0, Ordering::Relaxed);
    }
}
