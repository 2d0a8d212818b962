//! Arrays of perf events: samples from programs to the host.
//!
//! Linux has one ring for each CPU, which the host opens, and an element of the map names each. Here the map has one
//! ring for all virtual CPUs, opened by its reader, and each sample begins with its CPU:
//!
//! ```text
//!   record of the ring   | CPU u32 | 0 u32 | the program's bytes | bytes of the packet |
//! ```
//!
//! So the host reads samples in the order of their output over all CPUs, and sleeps in one place.
//!
//! Elements can also be perf events of another process's ([`PerfEvent`]), as in Linux; samples go there first. A
//! program finds an element without a lock, so an event that was replaced is dropped after a grace period.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use skep_rcu::{Domain, Grace};

use crate::perf_event::PerfEvent;
use crate::ring::Ring;
use crate::values::Values;

/// The most elements that can be perf events: more than a machine has CPUs.
pub(crate) const MOST_EVENTS: u32 = 1 << 16;

/// Bytes before a sample.
pub(crate) const SAMPLE: usize = 8;

#[derive(Debug)]
pub(crate) struct PerfEvents {
    /// Made by the first reader.
    pub(crate) ring: OnceLock<Ring>,
    len: u32,
    /// The elements that can be perf events: null, or what `Arc::into_raw` gave. Made for the first such event.
    events: OnceLock<Box<[AtomicPtr<PerfEvent>]>>,
    /// Samples that found no room, for each element. Relaxed everywhere: counters alone.
    pub(crate) lost: Box<[AtomicU64]>,
    values: Values,
}

impl PerfEvents {
    /// The bytes that it takes before it is opened.
    pub(crate) fn bytes(len: u32, cpus: u32) -> Option<usize> {
        (len.min(cpus) as usize).checked_mul(size_of::<AtomicU64>())
    }

    /// An array of that many elements, of which a [`PerfReader`](crate::PerfReader) uses no more than there are virtual
    /// CPUs.
    pub(crate) fn new(len: u32, cpus: u32) -> Self {
        let lost = (0..len.min(cpus)).map(|_| AtomicU64::new(0)).collect();
        Self { len, ring: OnceLock::new(), events: OnceLock::new(), lost, values: Values::shared(4) }
    }

    /// The number of elements.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn memory(&self) -> usize {
        let events = self.events.get().map_or(0, |events| size_of_val(&**events));
        events + size_of_val(&*self.lost) + self.ring.get().map_or(0, Ring::memory)
    }

    /// The event of an element.
    ///
    /// # Safety
    ///
    /// The thread is in a section of the map's domain, and uses the event only in there.
    pub(crate) unsafe fn event(&self, index: u32) -> Option<&PerfEvent> {
        // Acquire: pairs with `replace`, for what the event is.
        let event = self.events.get()?.get(index as usize)?.load(Ordering::Acquire);
        // SAFETY: it is null, or the element's reference of an event, which is dropped a grace period after it was
        // replaced.
        unsafe { event.as_ref() }
    }

    /// Sets an element, which is below the length and below [`MOST_EVENTS`], or empties any. Whether there was an
    /// event.
    pub(crate) fn replace(&self, index: u32, event: Option<Arc<PerfEvent>>, domain: &Domain) -> bool {
        if event.is_none() && self.events.get().is_none() {
            return false;
        }
        let events = self
            .events
            .get_or_init(|| (0..self.len.min(MOST_EVENTS)).map(|_| AtomicPtr::default()).collect());
        let Some(element) = events.get(index as usize) else { return false };
        let new = event.map_or(ptr::null_mut(), |event| Arc::into_raw(event).cast_mut());
        // Release for the new one, acquire for the old one: pairs with `event` and with itself.
        let old = element.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return false;
        }
        // SAFETY: it was made by `Arc::into_raw`, and the element does not have it any more.
        let old = unsafe { Arc::from_raw(old) };
        domain.call(Grace::Both, move || drop(old));
        true
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// Counts a sample that found no room.
    pub(crate) fn lose(&self, index: u32) {
        if let Some(lost) = self.lost.get(index as usize) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for PerfEvents {
    fn drop(&mut self) {
        for event in self.events.get_mut().into_iter().flatten() {
            let event = *event.get_mut();
            if !event.is_null() {
                // SAFETY: as in `replace`; nobody uses the map any more.
                drop(unsafe { Arc::from_raw(event) });
            }
        }
    }
}
