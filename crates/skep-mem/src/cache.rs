//! The cache: allocation and freeing.
//!
//! ```text
//!             alloc                      free
//!               ^                          |
//!   ready <─ full <─ ─ ─ (immediate) ─ ─ ─ ┤
//!     ^        ^                           v
//!     |        '──── reclaimable ── queue <─ filling          one virtual CPU, behind its gate
//!     |                             |         
//! |~~  --|-----------------------------|---------|---------------------------------------------------------
//!     '── depot: ready batches <────┘         '─> handed over ─> the keeper: grace period, then ready, or the system
//!     '── slabs: quarantined, returned, never used                                          all CPUs, lock-free stacks
//! ```
//!
//! **Allocation** takes the first object of `ready`, else searches the picture from top to bottom: recently used
//! objects first, then those of other CPUs, then new memory. **Freeing** pushes to `filling`; a full batch is sealed
//! with a cookie. Under [`Policy::ReuseAfterGp`] each CPU reclaims from its own queue and gives what it does not need
//! to the depot.
//!
//! A batch is *reclaimable* when its grace period has passed, or when no reader inside can hold any of its objects,
//! because all were born after the eras that the readers have announced ([`raw::active_eras`]). So a preempted reader
//! blocks the objects of its own time, and not all that were allocated and freed since.
//!
//! No path waits or takes a lock, and only [`Policy::None`] calls an allocator.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

#[cfg(not(loom))]
use rustix::fd::BorrowedFd;

use crate::account::Charge;
use crate::cpu::Cpu;
use crate::depot::Depot;
use crate::error::Error;
use crate::inner::{Inner, ReclaimState};
use crate::layout::CacheLayout;
use crate::object;
use crate::options::CacheOptions;
use crate::policy::Policy;
use crate::stats::{CacheStats, Counts};
use crate::store::Store;
use crate::sync::{Arc, Domain, Grace, Ordering, TaskHandle, fence, raw};

/// A cache of objects of one size; see the [crate's documentation](crate) for what it promises.
///
/// An object's bytes are zero when its memory is used for the first time; later they are what the last owner left.
/// They stay unchanged from [`free`](Self::free) until the object is handed out again, at a time that the [`Policy`]
/// decides.
///
/// Dropping the cache does not wait: the keeper returns its memory to the system after a grace period of both
/// flavours.
pub struct Cache {
    pub(crate) inner: Arc<Inner>,
    task: TaskHandle,
    domain: Domain,
    eras: raw::Eras,
    /// Whether a freed object waits for its readers: the policy's answer.
    waits: bool,
}

/// The era that a reader has announced: it may hold objects that were born up to then. See
/// [`Cache::ensure_announced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era(u64);

/// Where the objects of a cache are in the file that it shares. Around them is the cache's own.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SharedObjects<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// The first byte of the first object's page in the file.
    pub offset: usize,
    /// The bytes in which all objects are.
    pub len: usize,
    /// The address that the byte at `offset` has in this process.
    pub address: usize,
}

impl Cache {
    /// An empty cache. Its readers are those of the domain, and its virtual CPUs are the domain's slots. Starts the
    /// domain's keeper.
    ///
    /// The system commits memory as it is touched.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`], [`Error::Align`], [`Error::Offset`] and [`Error::TooLarge`] for invalid options,
    /// [`Error::Limit`] if not even one slab fits, [`Error::Account`], [`Error::OutOfMemory`].
    pub fn new(domain: &Domain, options: &CacheOptions) -> Result<Self, Error> {
        let layout = CacheLayout::of(options, domain.limit())?;
        let charge = Charge::new(options.account.as_ref(), layout.bytes(0) as u64)?;
        let file = options.file.filter(|_| options.policy != Policy::None);
        let inner = Inner {
            domain: raw::uncounted(domain),
            policy: options.policy,
            store: Store::new(layout, options.expected, file)?,
            fences: !domain.stats().membarrier,
            depot: Depot::default(),
            counts: Counts::default(),
            charge,
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
    /// [`Error::Exhausted`] if all objects of the capacity are in use or wait for readers, [`Error::Limit`] if more
    /// memory would exceed the limit, [`Error::Account`] if it would exceed the account. Any of them may be over in a
    /// moment: it wakes the keeper.
    ///
    /// # Safety
    ///
    /// `cpu` is the calling thread's slot in the cache's domain, and the thread is inside a section of the domain or
    /// has a [`Reader`](skep_rcu::Reader) of it.
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
        // Relaxed: a statistic that only the thread behind the gate stores.
        record.allocated.store(record.allocated.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        record.gate.leave();
        Ok(inner.hand_out(object))
    }

    /// Allocates from the virtual CPU's ready objects alone: the fast path. `None` if there are none;
    /// [`alloc`](Self::alloc) may find one.
    ///
    /// # Safety
    ///
    /// As for [`alloc`](Self::alloc).
    #[inline(always)]
    pub unsafe fn alloc_fast(&self, cpu: u32) -> Option<NonNull<u8>> {
        let inner = &*self.inner;
        let record = inner.store.cpu(cpu as usize);
        // Under `Policy::None` no object is ever ready.
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

    /// Frees an object. Readers may go on reading it; the policy decides when it is reused.
    ///
    /// # Safety
    ///
    /// `cpu` is as for [`alloc`](Self::alloc). `object` is from this cache, has not been freed since it was handed
    /// out, and is unreachable for any section entered after this call.
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
        // Relaxed, all: only the thread behind the gate stores these.
        record.freed.store(record.freed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: the caller gives the object to the cache.
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

    /// Frees an object that no reader has seen: it may be handed out again at once, whatever the policy is.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free), and no other thread has had access to the object since it was handed out.
    #[inline]
    pub unsafe fn free_unpublished(&self, cpu: u32, object: NonNull<u8>) {
        let inner = &*self.inner;
        let (record, object) = (inner.store.cpu(cpu as usize), object.as_ptr());
        if inner.policy == Policy::None || !inner.enter(record) {
            // SAFETY: by the caller's contract; the ordinary way of freeing is always correct.
            unsafe { self.free(cpu, NonNull::new_unchecked(object)) };
            return;
        }
        // Relaxed: only the thread behind the gate stores it.
        record.freed.store(record.freed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: the caller gives the object to the cache.
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
        // SAFETY: the last record belongs to the thread that holds this lock.
        unsafe { self.alloc(self.inner.domain.limit()) }
    }

    /// As [`free`](Self::free), for a thread that has no slot. Takes a lock.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free), except the slot.
    pub unsafe fn free_without_slot(&self, object: NonNull<u8>) {
        let _guard = self.inner.slotless.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `alloc_without_slot`; the rest by the caller's contract.
        unsafe { self.free(self.inner.domain.limit(), object) };
    }

    /// As [`free_unpublished`](Self::free_unpublished), for a thread that has no slot. Takes a lock.
    ///
    /// # Safety
    ///
    /// As for [`free_unpublished`](Self::free_unpublished), except the slot.
    pub unsafe fn free_unpublished_without_slot(&self, object: NonNull<u8>) {
        let _guard = self.inner.slotless.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `alloc_without_slot`; the rest by the caller's contract.
        unsafe { self.free_unpublished(self.inner.domain.limit(), object) };
    }

    /// The era that the calling thread has announced in its section; announces the current one if there is none. Comes
    /// before the thread looks anything up.
    ///
    /// # Safety
    ///
    /// `cpu` is as for [`alloc`](Self::alloc), and the section a normal one.
    #[inline(always)]
    pub unsafe fn ensure_announced(&self, cpu: u32) -> Era {
        // SAFETY: by the caller's contract, both.
        unsafe { self.announced(cpu).unwrap_or_else(|| self.announce(cpu)) }
    }

    /// The era that the calling thread has announced in its section, if any.
    ///
    /// # Safety
    ///
    /// As for [`ensure_announced`](Self::ensure_announced).
    #[inline(always)]
    pub unsafe fn announced(&self, cpu: u32) -> Option<Era> {
        // SAFETY: a slot of the domain, by the caller's contract.
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
        // SAFETY: a slot of the domain, by the caller's contract.
        Era(unsafe { self.eras.announced(cpu) }.unwrap_or(0))
    }

    /// Whether the calling thread may use an object that it found until its section ends. If not, the object was born
    /// after the announced era and may already be another one: the thread [announces](Self::announce) again and repeats
    /// the look-up.
    ///
    /// A reader checks every object that it found without a lock and will use beyond the look-up. In return a reader
    /// that stays in its section delays the reuse only of objects that were born before it last announced an era, and
    /// of none before its first announcement.
    ///
    /// # Safety
    ///
    /// The thread announced `era` in this section before it looked the object up; `object` is one of this cache's, in
    /// use or not.
    #[inline(always)]
    pub unsafe fn holds(&self, object: NonNull<u8>, era: Era) -> bool {
        if !self.waits {
            return true;
        }
        // SAFETY: an object of this cache.
        unsafe { object::birth_era(object.as_ptr()) }.is_some_and(|birth| birth <= era.0)
    }

    /// The file with the objects, if they are in one ([`CacheOptions::in_file`]). From the first call on, nobody else
    /// can get a mapping of it for writing, and memory of free objects is kept rather than returned to the system.
    #[cfg(not(loom))]
    pub fn shared(&self) -> Option<SharedObjects<'_>> {
        let Store { region, layout } = &self.inner.store;
        let memory = region.file()?;
        memory.refuse_writers();
        Some(SharedObjects {
            file: memory.file(),
            offset: layout.objects_at,
            len: layout.total - layout.objects_at,
            address: region.base().as_ptr().addr() + layout.objects_at,
        })
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.inner.policy
    }

    /// The domain whose readers the cache waits for.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Current usage. Other threads may change it at any moment.
    pub fn stats(&self) -> CacheStats {
        self.inner.stats()
    }

    /// Returns all memory now, instead of after a grace period.
    ///
    /// # Safety
    ///
    /// No reader holds an object of the cache, and none can find one any more.
    pub unsafe fn close(self) {
        // Without `Drop for Cache`, which would wait for a grace period.
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: each field is read once, and `this` is not used afterwards.
        unsafe {
            drop(ptr::read(&this.task));
            drop(ptr::read(&this.inner));
            drop(ptr::read(&this.domain));
            drop(ptr::read(&this.eras));
        }
    }

    /// The slow path, when the gate is closed.
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
            // SAFETY: the list consists of free objects, and this thread owns it.
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

    /// Wakes the keeper if it sleeps.
    #[inline]
    fn wake(&self) {
        let awake = &self.inner.depot.awake;
        // Pairs with the fence in `ReclaimState::next`: either the keeper sees what was freed before this, or this
        // sees that it sleeps.
        fence(Ordering::SeqCst);
        if awake.load(Ordering::Relaxed) == 0 && awake.swap(1, Ordering::AcqRel) == 0 {
            self.task.wake();
        }
    }

    /// No memory is left: wakes the keeper to reclaim all it can.
    #[cold]
    fn report_pressure(&self, record: &Cpu) {
        // Relaxed: the next store publishes it. Release: pairs with the swap in the reclaimer's poll.
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
