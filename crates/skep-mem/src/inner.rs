//! The state of a cache, and the operations on it that every path uses.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::compiler_fence;
use std::time::Duration;

use crate::account::Charge;
use crate::batch::Queue;
use crate::cpu::Cpu;
use crate::depot::Depot;
use crate::error::Error;
use crate::object;
use crate::policy::Policy;
use crate::stats::{CacheStats, Counts};
use crate::store::Store;
use crate::sync::{Cookie, Domain, Instant, Ordering, Tally, fence, raw};
use crate::system;

pub(crate) struct Inner {
    /// An uncounted handle: the domain holds this cache's task, which holds the handle.
    pub(crate) domain: Domain,
    pub(crate) policy: Policy,
    pub(crate) store: Store,
    /// Whether the gates need real fences, because the domain has no membarrier(2).
    pub(crate) fences: bool,
    pub(crate) depot: Depot,
    pub(crate) counts: Counts,
    /// For the memory that the counts are of. Dropped after the region.
    pub(crate) charge: Charge,
    /// Guards the record of threads without a virtual CPU.
    pub(crate) slotless: Mutex<()>,
    pub(crate) reclaim: Mutex<ReclaimState>,
}

/// The state of the [reclaimer](crate::reclaim). Only the keeper uses it.
#[derive(Debug, Default)]
pub(crate) struct ReclaimState {
    /// Batches that were handed over and wait for a grace period.
    pub(crate) waiting: Queue,
    /// Objects that wait, fewer than a batch; and a cookie taken after the last of them, once none has been added for
    /// one poll.
    pub(crate) partial: object::List,
    pub(crate) partial_cookie: Option<Cookie>,
    /// Slabs of which the keeper has collected some objects.
    pub(crate) touched: Slabs,
    /// Objects past their grace period but still counted as waiting, until they are published to the depot.
    pub(crate) reclaimable: usize,
    pub(crate) visited: Option<Instant>,
    pub(crate) trimmed: Option<Instant>,
    /// The time until the next scan while readers block the waiting batches. Doubles each time.
    pub(crate) scan_interval: Duration,
    /// When readers were last found to block quarantined slabs.
    pub(crate) quarantine_blocked: Option<Instant>,
}

/// A list of slabs, threaded through the links that they use in stacks: a slab is in one or the other.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    /// The number of the first slab + 1; 0 if empty.
    pub(crate) first: u32,
}

impl Inner {
    #[inline(always)]
    pub(crate) fn enter(&self, record: &Cpu) -> bool {
        record.gate.enter(|| {
            if self.fences {
                fence(Ordering::SeqCst);
            } else {
                // The other half is the keeper's heavy fence in `ReclaimState::visit`.
                compiler_fence(Ordering::SeqCst);
            }
        })
    }

    /// A ready or never-used object of the CPU: the fast path. Caller is behind the gate.
    #[inline(always)]
    pub(crate) fn take_ready(&self, record: &Cpu) -> Option<*mut u8> {
        record.ready.pop().or_else(|| record.take_fresh(self.store.layout.stride))
    }

    #[inline(always)]
    pub(crate) fn hand_out(&self, object: *mut u8) -> NonNull<u8> {
        // SAFETY: the caller owns the object, which is not null.
        unsafe {
            object::stamp(object, raw::current_era(&self.domain));
            NonNull::new_unchecked(object)
        }
    }

    #[cold]
    pub(crate) fn no_memory(&self) -> Error {
        let layout = &self.store.layout;
        let full = layout.bytes(layout.slabs);
        let more = layout.bytes(layout.slabs + 1) - full;
        if full.saturating_add(more) > layout.limit {
            return Error::Limit { held: full, wanted: more, limit: layout.limit };
        }
        // Whether a slab was left that the account refused. The numbers are for people.
        let slabs = self.counts.slabs.load(Ordering::Relaxed) as usize;
        if slabs < layout.slabs
            && let Some(error) = self.charge.lacks(layout.per_slab_bytes())
        {
            return error;
        }
        Error::Exhausted { capacity: layout.capacity }
    }

    /// [`Policy::None`]: an object of the system's allocator.
    pub(crate) fn alloc_from_system(&self, record: &Cpu) -> Result<NonNull<u8>, Error> {
        let layout = &self.store.layout;
        let most = layout.slabs * layout.per_slab;
        self.charge.grow(layout.stride as u64)?;
        if !self.counts.system_taken(most) {
            self.charge.shrink(layout.stride as u64);
            return Err(self.no_memory());
        }
        let Some(object) = system::alloc(layout) else {
            self.counts.system_given();
            self.charge.shrink(layout.stride as u64);
            return Err(Error::OutOfMemory { bytes: layout.stride });
        };
        // Relaxed: a statistic that any thread adds to.
        record.slow_allocated.fetch_add(1, Ordering::Relaxed);
        Ok(self.hand_out(object))
    }

    /// Frees a list of objects to the system's allocator.
    pub(crate) fn free_to_system(&self, list: *mut u8) {
        let mut next = list;
        while !next.is_null() {
            let object = next;
            // SAFETY: the caller owns the list; its objects are free, allocated with this layout, and no reader holds
            // them.
            unsafe {
                next = object::next(object);
                system::free(&self.store.layout, object);
            }
            self.counts.system_given();
            self.charge.shrink(self.store.layout.stride as u64);
        }
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let layout = &self.store.layout;
        let sum =
            |count: fn(&crate::cpu::Cpu) -> u64| self.store.cpus().map(count).fold(0_u64, u64::wrapping_add);
        let given =
            sum(|cpu| cpu.freed.load(Ordering::Relaxed).wrapping_add(cpu.slow_freed.load(Ordering::Relaxed)));
        let taken = sum(|cpu| {
            cpu.allocated.load(Ordering::Relaxed).wrapping_add(cpu.slow_allocated.load(Ordering::Relaxed))
        });
        let filling = sum(|cpu| cpu.filling.len() as u64) as usize;
        let counts = &self.counts;
        let load = |count: &Tally| count.load(Ordering::Relaxed) as usize;
        let bytes = |slabs: &Tally, system: &Tally| layout.bytes(load(slabs)) + load(system) * layout.stride;
        CacheStats {
            bytes: bytes(&counts.slabs, &counts.system),
            peak_bytes: bytes(&counts.peak_slabs, &counts.peak_system),
            // Negative if a free was counted before the allocation on another CPU.
            in_use: usize::try_from(taken.wrapping_sub(given).cast_signed()).unwrap_or(0),
            in_flight: load(&counts.waiting) + if self.policy == Policy::Immediate { 0 } else { filling },
            peak_in_flight: load(&counts.peak_waiting),
            batch: layout.per_slab,
            stride: layout.stride,
            slabs_returned: counts.returned.load(Ordering::Relaxed),
        }
    }
}

impl Slabs {
    pub(crate) fn push(&mut self, store: &Store, number: u32) {
        // Relaxed, both: only the keeper uses the list.
        store.slab(number).link.store(self.first, Ordering::Relaxed);
        self.first = number + 1;
    }

    pub(crate) fn pop(&mut self, store: &Store) -> Option<u32> {
        let number = self.first.checked_sub(1)?;
        self.first = store.slab(number).link.load(Ordering::Relaxed);
        Some(number)
    }
}
