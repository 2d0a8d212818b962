//! What a virtual CPU has for itself in a cache.
//!
//! ```text
//!   ready ─> o ─> o         allocated from first                full ─> a full batch in reserve
//!   run ──────────────>     never-used objects of a slab
//!   filling ─> o ─> o       freed; sealed as a batch when full
//!   queue: batch, batch     freed, each with its cookie, oldest first
//!
//!   shared_ready, shared_freed      lock-free lists for the slow path, when the gate is closed
//! ```
//!
//! The two shared lists are open to every thread; the rest belongs to the thread that has passed the gate.

use std::ptr;

use crate::batch::Queue;
use crate::gate::Gate;
use crate::object::{self, List};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Tally};

/// All zeroes are the record of an unused CPU.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(128))]
pub(crate) struct Cpu {
    pub(crate) gate: Gate,
    pub(crate) ready: List,
    /// Objects allocated and freed here. The difference over all CPUs is the number in use.
    pub(crate) allocated: Tally,
    pub(crate) freed: Tally,
    pub(crate) filling: List,
    /// The oldest birth era in `filling` plus one; 0 if there is none.
    pub(crate) oldest: AtomicU64,
    pub(crate) run: AtomicPtr<u8>,
    pub(crate) run_left: AtomicU64,
    pub(crate) full: AtomicPtr<u8>,
    pub(crate) queue: Queue,
    /// The queue length that triggers the next scan by this CPU.
    pub(crate) next_scan: AtomicU32,
    /// One empty batch in reserve: its number + 1, or 0.
    pub(crate) spare: AtomicU32,
    pub(crate) shared_ready: AtomicPtr<u8>,
    pub(crate) shared_freed: AtomicPtr<u8>,
    pub(crate) slow_allocated: Tally,
    pub(crate) slow_freed: Tally,
    /// The CPU found no memory: the keeper gives it what it can.
    pub(crate) starved: AtomicU32,
    /// What `done` was at the keeper's last visit. Only the keeper uses it.
    pub(crate) last_done: Tally,
}

impl Cpu {
    /// The number of operations so far.
    pub(crate) fn done(&self) -> u64 {
        // Relaxed: statistics.
        [&self.allocated, &self.freed, &self.slow_allocated, &self.slow_freed]
            .iter()
            .fold(0, |sum, count| sum.wrapping_add(count.load(Ordering::Relaxed)))
    }

    /// Takes an object that was never allocated.
    #[inline(always)]
    pub(crate) fn take_fresh(&self, stride: usize) -> Option<*mut u8> {
        // Relaxed, all: the caller is behind the gate.
        let left = self.run_left.load(Ordering::Relaxed);
        if left == 0 {
            return None;
        }
        let object = self.run.load(Ordering::Relaxed);
        self.run.store(object.wrapping_add(stride), Ordering::Relaxed);
        self.run_left.store(left - 1, Ordering::Relaxed);
        Some(object)
    }

    /// Frees an object while the gate is closed.
    pub(crate) fn free_slow(&self, object: *mut u8) {
        push_list(&self.shared_freed, object, object);
        // Relaxed: a statistic.
        self.slow_freed.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes one of the shared ready objects.
    pub(crate) fn pop_shared(&self) -> Option<*mut u8> {
        // Acquire: pairs with the Release in `push_list`.
        let all = self.shared_ready.swap(ptr::null_mut(), Ordering::Acquire);
        if all.is_null() {
            return None;
        }
        // SAFETY: the list consists of free objects, and the swap made it ours.
        let rest = unsafe { object::next(all) };
        self.push_shared(rest);
        Some(all)
    }

    /// Adds a list to the shared ready objects.
    pub(crate) fn push_shared(&self, list: *mut u8) {
        if list.is_null() {
            return;
        }
        // Release: as in `push_list`. The list is mostly empty; then there is no need to find the last object.
        let alone = self
            .shared_ready
            .compare_exchange(ptr::null_mut(), list, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if !alone {
            push_list(&self.shared_ready, list, last(list));
        }
    }
}

/// Prepends a list, whose last object is given, to a list that any thread may take as a whole at any moment.
fn push_list(to: &AtomicPtr<u8>, first: *mut u8, last: *mut u8) {
    let mut head = to.load(Ordering::Relaxed);
    loop {
        // SAFETY: the caller owns the list.
        unsafe { object::link(last, head) };
        // Release: pairs with the Acquire of the thread that takes the list. No thread pops single objects, so a
        // `head` that has come back (ABA) does no harm.
        match to.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

fn last(list: *mut u8) -> *mut u8 {
    let mut last = list;
    loop {
        // SAFETY: the caller owns the list, whose objects are free.
        let next = unsafe { object::next(last) };
        if next.is_null() {
            return last;
        }
        last = next;
    }
}

#[cfg(all(test, loom))]
mod models;
