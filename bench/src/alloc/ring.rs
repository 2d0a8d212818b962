//! A bounded ring from one thread to another.

use super::allocators::ON_THEIR_WAY;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// On a pair of cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Apart(pub(super) AtomicUsize);

/// One thread pushes, one pops.
pub(super) struct Ring {
    slots: [AtomicPtr<u8>; ON_THEIR_WAY],
    pushed: Apart,
    popped: Apart,
}

impl Ring {
    pub(super) fn new() -> Self {
        let slots = [const { AtomicPtr::new(ptr::null_mut()) }; ON_THEIR_WAY];
        Self { slots, pushed: Apart::default(), popped: Apart::default() }
    }

    /// Waits until there is room. `false` where the other thread is gone.
    pub(super) fn push(&self, object: *mut u8, gone: &AtomicBool) -> bool {
        let at = self.pushed.0.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `pop`: what was in the slot has been read.
        let full = || at - self.popped.0.load(Ordering::Acquire) == ON_THEIR_WAY;
        if !wait_while(full, gone) {
            return false;
        }
        self.slots[at % ON_THEIR_WAY].store(object, Ordering::Relaxed);
        // Release: pairs with the acquire in `pop`: the slot and the object are written.
        self.pushed.0.store(at + 1, Ordering::Release);
        true
    }

    /// Waits until something is there. `None` where the other thread is gone.
    pub(super) fn pop(&self, gone: &AtomicBool) -> Option<*mut u8> {
        let at = self.popped.0.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `push`.
        let empty = || self.pushed.0.load(Ordering::Acquire) == at;
        if !wait_while(empty, gone) {
            return None;
        }
        let object = self.slots[at % ON_THEIR_WAY].load(Ordering::Relaxed);
        // Release: pairs with the acquire in `push`.
        self.popped.0.store(at + 1, Ordering::Release);
        Some(object)
    }
}

fn wait_while(condition: impl Fn() -> bool, gone: &AtomicBool) -> bool {
    let mut turns = 0;
    while condition() {
        turns += 1;
        match turns % 64 {
            0 if gone.load(Ordering::Relaxed) => return false,
            0 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let (ring, gone) = (Ring::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..10_000usize).for_each(|at| assert!(ring.push(ptr::without_provenance_mut(at), &gone)))
            });
            (1..10_000).for_each(|at| assert_eq!(ring.pop(&gone).map(|object| object.addr()), Some(at)));
        });
        gone.store(true, Ordering::Relaxed);
        assert_eq!(ring.pop(&gone), None);
    }
}
