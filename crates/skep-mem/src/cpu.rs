//! What a virtual CPU has of a cache for itself.
//!
//! ```text
//!   ready ─> o ─> o         to be handed out next              full ─> as many as a batch, in reserve
//!   run ──────────────>     never-used objects of a slab
//!   filling ─> o ─> o       freed; sealed as a batch when there are enough
//!   queue: batch, batch     freed, each with its cookie, oldest first
//!
//!   aside_ready, aside_freed        whoever finds the gate closed: pushes and takes without a lock
//! ```
//!
//! All but the two lists aside belong to whoever has passed the gate.

use std::ptr;

use crate::gate::Gate;
use crate::object::{self, List};
use crate::store::Queue;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Tally};

/// All zeroes are the record of a CPU that has done nothing yet.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(128))]
pub(crate) struct Cpu {
    pub(crate) gate: Gate,
    pub(crate) ready: List,
    /// Objects handed out, and freed, here: the difference over all CPUs is what is in use.
    pub(crate) taken: Tally,
    pub(crate) given: Tally,
    pub(crate) filling: List,
    /// When the first object of `filling` was made, plus one, so that 0 is none.
    pub(crate) oldest: AtomicU64,
    pub(crate) run: AtomicPtr<u8>,
    pub(crate) run_left: AtomicU64,
    pub(crate) full: AtomicPtr<u8>,
    pub(crate) queue: Queue,
    /// How long the queue must be for another look at the readers.
    pub(crate) next_look: AtomicU32,
    /// Empty batches: the number of the first, + 1.
    pub(crate) spare: AtomicU32,
    pub(crate) aside_ready: AtomicPtr<u8>,
    pub(crate) aside_freed: AtomicPtr<u8>,
    pub(crate) aside_taken: Tally,
    pub(crate) aside_given: Tally,
    /// It found no memory: the keeper brings what it can, however little.
    pub(crate) wants: AtomicU32,
    /// What the CPU had done when the keeper last looked. The keeper's.
    pub(crate) last_done: Tally,
}

impl Cpu {
    /// How much it has done in all.
    pub(crate) fn done(&self) -> u64 {
        // Relaxed: statistics.
        [&self.taken, &self.given, &self.aside_taken, &self.aside_given]
            .iter()
            .fold(0, |sum, count| sum.wrapping_add(count.load(Ordering::Relaxed)))
    }

    /// Objects that were never handed out.
    #[inline(always)]
    pub(crate) fn take_fresh(&self, stride: usize) -> Option<*mut u8> {
        // Relaxed, all: whoever has passed the gate.
        let left = self.run_left.load(Ordering::Relaxed);
        if left == 0 {
            return None;
        }
        let object = self.run.load(Ordering::Relaxed);
        self.run.store(object.wrapping_add(stride), Ordering::Relaxed);
        self.run_left.store(left - 1, Ordering::Relaxed);
        Some(object)
    }

    /// Objects freed while the gate was closed.
    pub(crate) fn free_aside(&self, object: *mut u8) {
        push_aside(&self.aside_freed, object, object);
        // Relaxed: a statistic.
        self.aside_given.fetch_add(1, Ordering::Relaxed);
    }

    /// One of the objects that lie ready aside.
    pub(crate) fn take_aside(&self) -> Option<*mut u8> {
        // Acquire: pairs with the Release in `push_aside`.
        let all = self.aside_ready.swap(ptr::null_mut(), Ordering::Acquire);
        if all.is_null() {
            return None;
        }
        // SAFETY: what was there is a list of free objects, and now ours.
        let rest = unsafe { object::next(all) };
        self.lay_aside(rest);
        Some(all)
    }

    /// Puts a list of objects ready aside.
    pub(crate) fn lay_aside(&self, list: *mut u8) {
        if list.is_null() {
            return;
        }
        // Release: as in `push_aside`. Mostly there is nothing else, and the last need not be looked for.
        let alone = self
            .aside_ready
            .compare_exchange(ptr::null_mut(), list, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if !alone {
            push_aside(&self.aside_ready, list, last(list));
        }
    }
}

/// Puts a list, whose last object is given, before another that anybody may take at any moment.
fn push_aside(to: &AtomicPtr<u8>, first: *mut u8, last: *mut u8) {
    let mut head = to.load(Ordering::Relaxed);
    loop {
        // SAFETY: the list is the caller's.
        unsafe { object::link(last, head) };
        // Release: pairs with the Acquire of whoever takes all. Nobody pops one, so that `head` came back meanwhile
        // does no harm.
        match to.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

fn last(list: *mut u8) -> *mut u8 {
    let mut last = list;
    loop {
        // SAFETY: a list of free objects that is the caller's.
        let next = unsafe { object::next(last) };
        if next.is_null() {
            return last;
        }
        last = next;
    }
}

#[cfg(all(test, loom))]
mod models;
