//! The cache: handing out and taking back.
//!
//! ```text
//!             alloc                      free
//!               ^                          |
//!   ready <─ full <─ ─ ─ (immediate) ─ ─ ─ ┤
//!     ^        ^                           v
//!     |        '──── ripe ─────── queue <─ filling          one virtual CPU, behind its gate
//!     |                             |         |
//!   --|-----------------------------|---------|---------------------------------------------------------
//!     '── depot: ready batches <────┘         '─> handed over ─> the keeper: grace period, then ready, or the system
//!     '── slabs: quarantined, returned, never used                                            all CPUs, lock-free stacks
//! ```
//!
//! **Handing out** takes the first of `ready`, else looks further down the picture, nearest first: objects that were in use lately
//! come before others, and others' before new memory. **Taking back** pushes to `filling`; when there are as many as in a
//! batch they are sealed with a cookie. Under [`Policy::ReuseAfterGp`] a CPU looks after its own queue: it takes what is ripe, and what it does
//! not need itself goes to the depot.
//!
//! *Ripe* is a batch whose grace period has passed; or one of which every reader inside is known not to hold anything, because all
//! of it was made after the last thing that the reader can have found ([`raw::active_eras`]). So a reader that is held up, by
//! the scheduler perhaps, holds up what was there at its time, and not all that came and went since.
//!
//! Nothing here waits or takes a lock, and only [`Policy::None`] calls an allocator.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use crate::cpu::Cpu;
use crate::depot::Depot;
use crate::inner::{Inner, ReclaimState};
use crate::layout::CacheLayout;
use crate::object;
use crate::options::CacheOptions;
use crate::stats::{CacheStats, Counts};
use crate::store::Store;
use crate::sync::{Arc, Domain, Grace, Ordering, TaskHandle, fence, raw};
use crate::{Error, Policy};

/// A cache of objects of one size; see the [crate's documentation](crate) for what it promises.
///
/// An object's bytes are zero when its memory is used for the first time; later they are what its last owner left. They stay as they
/// are from [`free`](Self::free) until the object is handed out again, which the [`Policy`] says when.
///
/// Dropping the cache waits for nobody: its memory goes back to the system, by the keeper, after a grace period of both flavours.
pub struct Cache {
    pub(crate) inner: Arc<Inner>,
    task: TaskHandle,
    domain: Domain,
    eras: raw::Eras,
    /// Whether readers may hold anything: what the policy says.
    waits: bool,
}

/// Up to when things must have been made for a reader to hold them; see [`Cache::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era(u64);

impl Cache {
    /// An empty cache, whose readers are those of the domain, and whose virtual CPUs are the domain's slots. Starts the
    /// domain's keeper.
    ///
    /// Memory is taken from the system as it is touched.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`], [`Error::Align`], [`Error::TooLarge`] for options that make no sense, [`Error::Limit`] when
    /// not even one slab fits, [`Error::OutOfMemory`].
    pub fn new(domain: &Domain, options: &CacheOptions) -> Result<Self, Error> {
        let layout = CacheLayout::of(options, domain.limit())?;
        let inner = Inner {
            domain: raw::uncounted(domain),
            policy: options.policy,
            store: Store::new(layout, options.expected)?,
            fences: !domain.stats().membarrier,
            depot: Depot::default(),
            counts: Counts::default(),
            slotless: Mutex::new(()),
            reclaim: Mutex::new(ReclaimState::default()),
        };
        let inner = Arc::new(inner);
        let task = domain.attach(Arc::clone(&inner) as _);
        let (eras, waits) = (raw::Eras::new(domain), options.policy.waits_for_readers());
        Ok(Self { inner, task, domain: domain.clone(), eras, waits })
    }

    /// Hands out an object.
    ///
    /// # Errors
    ///
    /// [`Error::Exhausted`] when as many objects as may be are in use or wait for readers, [`Error::Limit`] when more memory
    /// would be more than the limit. Both may be over in a moment: the keeper is told.
    ///
    /// # Safety
    ///
    /// `cpu` is the calling thread's slot in the cache's domain, in which the thread is inside a section or a
    /// [`Reader`](skep_rcu::Reader) stands.
    #[inline]
    pub unsafe fn alloc(&self, cpu: u32) -> Result<NonNull<u8>, Error> {
        let inner = &*self.inner;
        let record = inner.store.cpu(cpu as usize);
        if inner.policy == Policy::None || !inner.enter(record) {
            return self.alloc_slow(record);
        }
        let object = match inner.take_ready(record) {
            Some(object) => object,
            None => match inner.refill(record) {
                Ok(object) => object,
                Err(error) => {
                    record.gate.leave();
                    self.report_pressure(record);
                    return Err(error);
                }
            },
        };
        // Relaxed: a statistic of whoever has passed the gate.
        record.allocated.store(record.allocated.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        record.gate.leave();
        Ok(inner.hand_out(object))
    }

    /// Hands out an object that lies ready with this virtual CPU. `None` where there is none: [`alloc`](Self::alloc) may find one.
    ///
    /// # Safety
    ///
    /// As for [`alloc`](Self::alloc).
    #[inline(always)]
    pub unsafe fn alloc_fast(&self, cpu: u32) -> Option<NonNull<u8>> {
        let inner = &*self.inner;
        let record = inner.store.cpu(cpu as usize);
        // Under `Policy::None` there is never anything.
        if !inner.enter(record) {
            return None;
        }
        let object = inner.take_ready(record);
        if object.is_some() {
            // Relaxed: as in `alloc`.
            record.allocated.store(record.allocated.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        record.gate.leave();
        Some(inner.hand_out(object?))
    }

    /// Takes an object back. Readers may go on looking at it; when it is reused, the policy says.
    ///
    /// # Safety
    ///
    /// `cpu` is as for [`alloc`](Self::alloc). `object` is from this cache, was not freed since, and nobody can find it any more who
    /// enters a section after this.
    #[inline]
    pub unsafe fn free(&self, cpu: u32, object: NonNull<u8>) {
        let inner = &*self.inner;
        let (record, object) = (inner.store.cpu(cpu as usize), object.as_ptr());
        // SAFETY: an object of this cache.
        let Some(birth) = (unsafe { object::birth_era(object) }) else {
            debug_assert!(false, "an object was freed twice");
            return;
        };
        if !inner.enter(record) {
            record.free_slow(object);
            self.wake();
            return;
        }
        // Relaxed, all: whoever has passed the gate.
        record.freed.store(record.freed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: the caller's object, which is the cache's from here on.
        let shared = unsafe {
            match inner.policy {
                Policy::Immediate => inner.put_ready(record, object),
                _ => inner.put_filling(record, object, birth),
            }
        };
        if shared {
            self.wake();
        }
        record.gate.leave();
    }

    /// Takes an object back that nobody has seen: it may be handed out again at once whatever the policy is.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free), and nobody but the caller has ever had the object since it was handed out.
    #[inline]
    pub unsafe fn free_unpublished(&self, cpu: u32, object: NonNull<u8>) {
        let inner = &*self.inner;
        let (record, object) = (inner.store.cpu(cpu as usize), object.as_ptr());
        if inner.policy == Policy::None || !inner.enter(record) {
            // SAFETY: by contract; freeing it in the ordinary way is always right.
            unsafe { self.free(cpu, NonNull::new_unchecked(object)) };
            return;
        }
        // Relaxed: whoever has passed the gate.
        record.freed.store(record.freed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: the caller's object, which is the cache's from here on.
        if unsafe { inner.put_ready(record, object) } {
            self.wake();
        }
        record.gate.leave();
    }

    /// As [`alloc`](Self::alloc), for a thread that has no slot. Takes a lock.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    pub fn alloc_without_slot(&self) -> Result<NonNull<u8>, Error> {
        let _guard = self.inner.slotless.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the last record is for those who have no slot and hold this lock.
        unsafe { self.alloc(self.inner.domain.limit()) }
    }

    /// As [`free`](Self::free), for a thread that has no slot. Takes a lock.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free), but for the slot.
    pub unsafe fn free_without_slot(&self, object: NonNull<u8>) {
        let _guard = self.inner.slotless.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `alloc_without_slot`; the rest by contract.
        unsafe { self.free(self.inner.domain.limit(), object) };
    }

    /// As [`free_unpublished`](Self::free_unpublished), for a thread that has no slot. Takes a lock.
    ///
    /// # Safety
    ///
    /// As for [`free_unpublished`](Self::free_unpublished), but for the slot.
    pub unsafe fn free_unpublished_without_slot(&self, object: NonNull<u8>) {
        let _guard = self.inner.slotless.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `alloc_without_slot`; the rest by contract.
        unsafe { self.free_unpublished(self.inner.domain.limit(), object) };
    }

    /// The era that the calling thread has announced in its section; announces the current one if there is none. Comes before
    /// the thread looks anything up.
    ///
    /// # Safety
    ///
    /// `cpu` is as for [`alloc`](Self::alloc), and the section a normal one.
    #[inline(always)]
    pub unsafe fn ensure_announced(&self, cpu: u32) -> Era {
        // SAFETY: by contract, both.
        unsafe { self.announced(cpu).unwrap_or_else(|| self.announce(cpu)) }
    }

    /// The era that the calling thread has announced in its section, if any.
    ///
    /// # Safety
    ///
    /// As for [`ensure_announced`](Self::ensure_announced).
    #[inline(always)]
    pub unsafe fn announced(&self, cpu: u32) -> Option<Era> {
        // SAFETY: a slot of the domain, by contract.
        unsafe { self.eras.announced(cpu) }.map(Era)
    }

    /// Announces the current era, and returns it.
    ///
    /// # Safety
    ///
    /// As for [`ensure_announced`](Self::ensure_announced).
    #[cold]
    #[inline(never)]
    pub unsafe fn announce(&self, cpu: u32) -> Era {
        self.eras.announce(cpu);
        // SAFETY: a slot of the domain, by contract.
        Era(unsafe { self.eras.announced(cpu) }.unwrap_or(0))
    }

    /// Whether the calling thread may use an object that it found until its section ends. If not, the object was born after
    /// the announced era and may already be another one: the thread [announces](Self::announce) again and repeats the
    /// look-up.
    ///
    /// A reader checks every object that it found without a lock and will use beyond the look-up. In return a reader that
    /// stays in its section delays the reuse only of objects that were born before it last announced an era, and of none
    /// before its first announcement.
    ///
    /// # Safety
    ///
    /// The thread announced `era` in this section before it looked the object up; `object` is one of this cache's, in use or
    /// not.
    #[inline(always)]
    pub unsafe fn holds(&self, object: NonNull<u8>, era: Era) -> bool {
        if !self.waits {
            return true;
        }
        // SAFETY: an object of this cache.
        unsafe { object::birth_era(object.as_ptr()) }.is_some_and(|birth| birth <= era.0)
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.inner.policy
    }

    /// The domain whose readers it waits for.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// What it holds. Others may change it at any moment.
    pub fn stats(&self) -> CacheStats {
        self.inner.stats()
    }

    /// Gives all memory back now, instead of after a grace period.
    ///
    /// # Safety
    ///
    /// No reader holds anything of the cache, and none can find anything any more.
    pub unsafe fn close(self) {
        // Dropped without what `drop` does.
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: each field is read once, and `this` not used any more.
        unsafe {
            drop(ptr::read(&this.task));
            drop(ptr::read(&this.inner));
            drop(ptr::read(&this.domain));
            drop(ptr::read(&this.eras));
        }
    }

    /// For whoever finds the gate closed.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(&self, record: &Cpu) -> Result<NonNull<u8>, Error> {
        let inner = &*self.inner;
        if inner.policy == Policy::None {
            return inner.alloc_from_system(record);
        }
        let object = record.pop_shared().or_else(|| {
            let (list, empty) = inner.more()?;
            if let Some(empty) = empty {
                inner.depot.empty.push(&inner.store, empty);
            }
            // SAFETY: a list of free objects, and ours.
            record.push_shared(unsafe { object::next(list) });
            Some(list)
        });
        let Some(object) = object else {
            self.report_pressure(record);
            return Err(inner.no_memory());
        };
        // Relaxed: a statistic.
        record.slow_allocated.fetch_add(1, Ordering::Relaxed);
        Ok(inner.hand_out(object))
    }

    /// Sees to it that the keeper looks.
    #[inline]
    fn wake(&self) {
        let awake = &self.inner.depot.awake;
        // Pairs with the fence in `ReclaimState::next`: the keeper sees what was freed before this, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if awake.load(Ordering::Relaxed) == 0 && awake.swap(1, Ordering::AcqRel) == 0 {
            self.task.wake();
        }
    }

    /// There is no memory: the keeper collects what it can.
    #[cold]
    fn report_pressure(&self, record: &Cpu) {
        // Relaxed: the next store publishes it. Release: pairs with the swap in the keeper's turn.
        record.starved.store(1, Ordering::Relaxed);
        self.inner.depot.under_pressure.store(1, Ordering::Release);
        self.task.wake();
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let inner = Arc::clone(&self.inner);
        self.inner.domain.call(Grace::Both, move || drop(inner));
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("policy", &self.policy())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
