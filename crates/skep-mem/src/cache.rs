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
//!     '── slabs: resting, returned, never used                                            all CPUs, lock-free stacks
//! ```
//!
//! **Handing out** takes the first of `ready`, else looks further down the picture, nearest first: objects that were in use lately
//! come before others, and others' before new memory. **Taking back** pushes to `filling`; when there are as many as in a
//! batch they are sealed with a cookie. Under [`Policy::ReuseAfterGp`] a CPU looks after its own queue: it takes what is ripe, and what it does
//! not need itself goes to the depot.
//!
//! *Ripe* is a batch whose grace period has passed; or one of which every reader inside is known not to hold anything, because all
//! of it was made after the last thing that the reader can have found ([`Domain::holders`]). So a reader that is held up, by
//! the scheduler perhaps, holds up what was there at its time, and not all that came and went since.
//!
//! Nothing here waits or takes a lock, and only [`Policy::None`] calls an allocator.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex, PoisonError};

use skep_rcu::{ChoreHandle, Cookie, Domain, Grace};

use crate::cpu::Cpu;
use crate::holders::Holders;
use crate::keeper::Keeping;
use crate::object;
use crate::stack::Stack;
use crate::stats::{CacheStats, Counts};
use crate::store::{Batch, Shape, SlabLinks, Store};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::system;
use crate::{Error, Policy};

/// What a [`Cache`] is made of.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) offset: usize,
    pub(crate) capacity: usize,
    pub(crate) spare: usize,
    pub(crate) limit: usize,
    pub(crate) policy: Policy,
}

/// A cache of objects of one size; see the [crate's documentation](crate) for what it promises.
///
/// An object's bytes are zero when its memory is used for the first time; later they are what its last owner left. They stay as they
/// are from [`free`](Self::free) until the object is handed out again, which the [`Policy`] says when.
///
/// Dropping the cache waits for nobody: its memory goes back to the system, by the keeper, after a grace period of both flavours.
pub struct Cache {
    inner: Arc<Inner>,
    chore: ChoreHandle,
    domain: Domain,
}

/// Up to when things must have been made for a reader to hold them; see [`Cache::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon(u64);

pub(crate) struct Inner {
    /// One that does not count: the domain owns what it owns.
    pub(crate) domain: Domain,
    pub(crate) policy: Policy,
    pub(crate) store: Store,
    /// Whether the gates need real fences.
    fences: bool,
    pub(crate) depot: Depot,
    pub(crate) counts: Counts,
    /// Held by whoever has no virtual CPU and uses the record that is for those.
    nobody: Mutex<()>,
    pub(crate) keeping: Mutex<Keeping>,
}

/// What all CPUs share. Each stack in lines of its own: all CPUs write there.
#[derive(Debug, Default)]
pub(crate) struct Depot {
    /// Batches to be handed out.
    pub(crate) ready: Padded<Stack>,
    /// Batches for the keeper.
    pub(crate) handed: Padded<Stack>,
    /// Batches of nothing.
    pub(crate) empty: Padded<Stack>,
    /// Slabs that are free as a whole, and may be used until the system gets them back.
    pub(crate) resting: Padded<Stack>,
    /// Slabs that the system got back.
    pub(crate) returned: Padded<Stack>,
    /// Slabs, and batches, that were ever used: all from there on are new.
    pub(crate) carved: Padded<AtomicU32>,
    pub(crate) batches: AtomicU32,
    /// How many batches are ready, and the fewest there were since the keeper last looked.
    pub(crate) in_ready: Padded<AtomicU64>,
    pub(crate) fewest: AtomicU64,
    /// Whether the keeper looks by itself, again and again.
    pub(crate) awake: AtomicU32,
    /// An allocation failed: the keeper collects all it can.
    pub(crate) pressed: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl CacheOptions {
    /// A cache of at most `capacity` objects of `size` bytes at a time, 8-byte aligned, without a limit in bytes, that reuses after a grace
    /// period.
    pub fn new(size: usize, capacity: usize) -> Self {
        Self { size, align: 8, offset: 0, capacity, spare: 0, limit: usize::MAX, policy: Policy::default() }
    }

    /// Aligns every object to `align` bytes: a power of two up to 4096. Less than 8 counts as 8.
    #[must_use]
    pub fn align(self, align: usize) -> Self {
        self.align_at(align, 0)
    }

    /// Aligns the byte at `offset`, a multiple of 8, of every object to `align` bytes. The 8 bytes before an object are the
    /// cache's: an offset of `align - 8` wastes none.
    #[must_use]
    pub fn align_at(mut self, align: usize, offset: usize) -> Self {
        (self.align, self.offset) = (align, offset);
        self
    }

    /// How many objects there may be at a time, in use or waiting for readers.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }

    /// Room for so many bytes of objects beyond the capacity, which wait for readers.
    #[must_use]
    pub fn spare_bytes(mut self, bytes: usize) -> Self {
        self.spare = bytes;
        self
    }

    /// The most bytes that the cache may hold, its bookkeeping included.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// When objects are reused.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The most bytes that a cache with these options can hold in a domain with so many slots.
    ///
    /// # Errors
    ///
    /// Those of [`Cache::new`], short of [`Error::OutOfMemory`].
    pub fn max_bytes(&self, slots: u32) -> Result<usize, Error> {
        Shape::of(self, slots).map(|shape| shape.bytes(shape.slabs))
    }
}

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
        let shape = Shape::of(options, domain.limit())?;
        let inner = Inner {
            domain: domain.uncounted(),
            policy: options.policy,
            store: Store::new(shape)?,
            fences: !domain.stats().membarrier,
            depot: Depot::default(),
            counts: Counts::default(),
            nobody: Mutex::new(()),
            keeping: Mutex::new(Keeping::default()),
        };
        let inner = Arc::new(inner);
        let chore = domain.attach(Arc::clone(&inner) as _);
        Ok(Self { inner, chore, domain: domain.clone() })
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
            return self.alloc_aside(record);
        }
        let object = match record.ready.pop().or_else(|| record.take_fresh(inner.store.shape.stride)) {
            Some(object) => object,
            None => match inner.refill(record) {
                Ok(object) => object,
                Err(error) => {
                    record.gate.leave();
                    self.press(record);
                    return Err(error);
                }
            },
        };
        // Relaxed: a statistic of whoever has passed the gate.
        record.taken.store(record.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        record.gate.leave();
        Ok(inner.hand_out(object))
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
        let Some(made) = (unsafe { object::made(object) }) else {
            debug_assert!(false, "an object was freed twice");
            return;
        };
        if !inner.enter(record) {
            record.free_aside(object);
            self.wake();
            return;
        }
        // Relaxed, all: whoever has passed the gate.
        record.given.store(record.given.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: the caller's object, which is the cache's from here on.
        let shared = unsafe {
            match inner.policy {
                Policy::Immediate => inner.put_ready(record, object),
                _ => inner.put_filling(record, object, made),
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
    pub unsafe fn give_back(&self, cpu: u32, object: NonNull<u8>) {
        let inner = &*self.inner;
        let (record, object) = (inner.store.cpu(cpu as usize), object.as_ptr());
        if inner.policy == Policy::None || !inner.enter(record) {
            // SAFETY: by contract; freeing it in the ordinary way is always right.
            unsafe { self.free(cpu, NonNull::new_unchecked(object)) };
            return;
        }
        // Relaxed: whoever has passed the gate.
        record.given.store(record.given.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
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
        let _guard = self.inner.nobody.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the last record is for those who have no slot and hold this lock.
        unsafe { self.alloc(self.inner.domain.limit()) }
    }

    /// As [`free`](Self::free), for a thread that has no slot. Takes a lock.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free), but for the slot.
    pub unsafe fn free_without_slot(&self, object: NonNull<u8>) {
        let _guard = self.inner.nobody.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `alloc_without_slot`; the rest by contract.
        unsafe { self.free(self.inner.domain.limit(), object) };
    }

    /// As [`give_back`](Self::give_back), for a thread that has no slot. Takes a lock.
    ///
    /// # Safety
    ///
    /// As for [`give_back`](Self::give_back), but for the slot.
    pub unsafe fn give_back_without_slot(&self, object: NonNull<u8>) {
        let _guard = self.inner.nobody.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `alloc_without_slot`; the rest by contract.
        unsafe { self.give_back(self.inner.domain.limit(), object) };
    }

    /// Says that the calling thread is about to look for objects, and may go on using what it finds: up to when these may
    /// have been made.
    ///
    /// # Safety
    ///
    /// `cpu` is as for [`alloc`](Self::alloc), and the section a normal one.
    #[inline(always)]
    pub unsafe fn look(&self, cpu: u32) -> Horizon {
        let domain = &self.inner.domain;
        match domain.horizon(cpu) {
            Some(horizon) => Horizon(horizon),
            // SAFETY: by contract.
            None => unsafe { self.look_further(cpu) },
        }
    }

    /// As [`look`](Self::look), for things as young as there are now.
    ///
    /// # Safety
    ///
    /// As for [`look`](Self::look).
    #[inline]
    pub unsafe fn look_further(&self, cpu: u32) -> Horizon {
        let domain = &self.inner.domain;
        domain.look_further(cpu);
        Horizon(domain.horizon(cpu).unwrap_or(0))
    }

    /// Whether what the calling thread has found is its to hold until its section ends. If not, it is younger than what the
    /// thread had announced before it looked, and may be another's already: the thread announces more
    /// ([`look_further`](Self::look_further)), and looks again.
    ///
    /// A reader asks this of everything that it found without a lock and is going to use after it has looked whether it is
    /// still linked. That it must is what keeps a reader that is held up from holding up everything: it holds up
    /// what was there when it last looked, and nothing at all before it has looked for anything in its section.
    ///
    /// # Safety
    ///
    /// `horizon` is what the thread got in this section before it looked; `object` is one of this cache's, in use or not.
    #[inline(always)]
    pub unsafe fn holds(&self, object: NonNull<u8>, horizon: Horizon) -> bool {
        if !self.inner.policy.waits_for_readers() {
            return true;
        }
        // SAFETY: an object of this cache.
        unsafe { object::made(object.as_ptr()) }.is_some_and(|made| made <= horizon.0)
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
            drop(ptr::read(&this.chore));
            drop(ptr::read(&this.inner));
            drop(ptr::read(&this.domain));
        }
    }

    /// For whoever finds the gate closed.
    #[cold]
    #[inline(never)]
    fn alloc_aside(&self, record: &Cpu) -> Result<NonNull<u8>, Error> {
        let inner = &*self.inner;
        if inner.policy == Policy::None {
            return inner.alloc_from_system(record);
        }
        let object = record.take_aside().or_else(|| {
            let (list, empty) = inner.more()?;
            if let Some(empty) = empty {
                inner.depot.empty.push(&inner.store, empty);
            }
            // SAFETY: a list of free objects, and ours.
            record.lay_aside(unsafe { object::next(list) });
            Some(list)
        });
        let Some(object) = object else {
            self.press(record);
            return Err(inner.no_memory());
        };
        // Relaxed: a statistic.
        record.aside_taken.fetch_add(1, Ordering::Relaxed);
        Ok(inner.hand_out(object))
    }

    /// Sees to it that the keeper looks.
    #[inline]
    fn wake(&self) {
        let awake = &self.inner.depot.awake;
        // Pairs with the fence in `Keeping::next`: the keeper sees what was freed before this, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if awake.load(Ordering::Relaxed) == 0 && awake.swap(1, Ordering::AcqRel) == 0 {
            self.chore.kick();
        }
    }

    /// There is no memory: the keeper collects what it can.
    #[cold]
    fn press(&self, record: &Cpu) {
        // Relaxed: the next store publishes it. Release: pairs with the swap in the keeper's turn.
        record.wants.store(1, Ordering::Relaxed);
        self.inner.depot.pressed.store(1, Ordering::Release);
        self.chore.kick();
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

impl Inner {
    #[inline(always)]
    pub(crate) fn enter(&self, record: &Cpu) -> bool {
        record.gate.enter(|| {
            if self.fences {
                fence(Ordering::SeqCst);
            } else {
                // The other half is the heavy fence of the keeper, in `Keeping::visit`.
                std::sync::atomic::compiler_fence(Ordering::SeqCst);
            }
        })
    }

    #[inline(always)]
    fn hand_out(&self, object: *mut u8) -> NonNull<u8> {
        // SAFETY: the object is nobody's but ours, and not null.
        unsafe {
            object::stamp(object, self.domain.now());
            NonNull::new_unchecked(object)
        }
    }

    /// Finds an object where there is none ready. The gate was passed.
    #[cold]
    #[inline(never)]
    fn refill(&self, record: &Cpu) -> Result<*mut u8, Error> {
        self.restock(record);
        record
            .ready
            .pop()
            .or_else(|| record.take_fresh(self.store.shape.stride))
            .ok_or_else(|| self.no_memory())
    }

    fn restock(&self, record: &Cpu) {
        let per_slab = self.store.shape.per_slab;
        // Relaxed: whoever has passed the gate. Acquire: pairs with the Release in `push_aside`.
        let full = record.full.swap(ptr::null_mut(), Ordering::Relaxed);
        if !full.is_null() {
            return record.ready.set(full, per_slab);
        }
        let aside = record.aside_ready.swap(ptr::null_mut(), Ordering::Acquire);
        if !aside.is_null() {
            self.put_all_ready(record, aside);
            if !record.ready.is_empty() {
                return;
            }
            let full = record.full.swap(ptr::null_mut(), Ordering::Relaxed);
            return record.ready.set(full, per_slab);
        }
        if let Some(batch) = self.ripe(record).or_else(|| self.pop_ready()) {
            return self.open(record, batch);
        }
        if record.queue.len() as u32 >= record.next_look.load(Ordering::Relaxed) {
            self.look_at_readers(record, 4);
        }
        let full = record.full.swap(ptr::null_mut(), Ordering::Relaxed);
        if !full.is_null() {
            return record.ready.set(full, per_slab);
        }
        if let Some(batch) = self.pop_ready() {
            return self.open(record, batch);
        }
        if let Some(slab) = self.take_slab() {
            record.run.store(self.store.first(slab).as_ptr(), Ordering::Relaxed);
            record.run_left.store(per_slab as u64, Ordering::Relaxed);
            return;
        }
        // The last resort: what waits here, whatever a look costs.
        self.look_at_readers(record, usize::MAX);
        let full = record.full.swap(ptr::null_mut(), Ordering::Relaxed);
        if !full.is_null() {
            record.ready.set(full, per_slab);
        } else if let Some(batch) = self.pop_ready() {
            self.open(record, batch);
        }
    }

    /// A list of objects from what all share, and the batch that it was.
    fn more(&self) -> Option<(*mut u8, Option<u32>)> {
        if let Some(batch) = self.pop_ready() {
            return Some((self.store.batch(batch).head.load(Ordering::Relaxed), Some(batch)));
        }
        let first = self.store.first(self.take_slab()?).as_ptr();
        let object = |index: usize| first.wrapping_add(index * self.store.shape.stride);
        let per_slab = self.store.shape.per_slab;
        for index in 0..per_slab {
            let next = if index + 1 < per_slab { object(index + 1) } else { ptr::null_mut() };
            // SAFETY: objects of a slab that we alone have.
            unsafe { object::link(object(index), next) };
        }
        Some((first, None))
    }

    /// Makes a batch's objects those that are handed out next. The gate was passed, and there are no others.
    fn open(&self, record: &Cpu, batch: u32) {
        record.ready.set(self.store.batch(batch).head.load(Ordering::Relaxed), self.store.shape.per_slab);
        self.keep_empty(record, batch);
    }

    fn keep_empty(&self, record: &Cpu, batch: u32) {
        // Relaxed: whoever has passed the gate.
        if record.spare.load(Ordering::Relaxed) == 0 {
            record.spare.store(batch + 1, Ordering::Relaxed);
        } else {
            self.depot.empty.push(&self.store, batch);
        }
    }

    /// The oldest batch of a CPU's own queue, if its grace period is known to have passed.
    fn ripe(&self, record: &Cpu) -> Option<u32> {
        let front = self.store.batch(record.queue.front()?);
        let cookie = Cookie::from_number(front.cookie.load(Ordering::Relaxed));
        if !self.domain.passed(cookie, Grace::Normal) {
            return None;
        }
        let batch = record.queue.pop(&self.store);
        self.counts.ripened(self.store.shape.per_slab);
        batch
    }

    /// Looks at the readers, and puts what none of them holds to where it is handed out; unless it seems to be less than that
    /// part of what waits. The gate was passed.
    #[cold]
    fn look_at_readers(&self, record: &Cpu, part: usize) {
        let waiting = record.queue.len();
        if waiting == 0 {
            return;
        }
        // Without a fence first, which costs nothing: mostly it is seen that it would be of no use, or is not needed because
        // somebody else has just executed one.
        let guess = Holders::of(&self.domain);
        let cookie = |batch: &Batch| Cookie::from_number(batch.cookie.load(Ordering::Relaxed));
        let until = self.domain.fenced();
        let (mut free, mut fenced) = (0, 0);
        for batch in record.queue.iter(&self.store).map(|number| self.store.batch(number)) {
            if guess.frees(batch) {
                free += 1;
                fenced += usize::from(cookie(batch) <= until);
            }
        }
        let enough = |count: usize| count > 0 && count >= waiting / part;
        if enough(fenced) || (enough(free) && self.domain.heavy_fence()) {
            // First how far there was a fence, then who holds what.
            let until = self.domain.fenced();
            let holders = Holders::of(&self.domain);
            let wanted = |batch: &Batch| cookie(batch) <= until && holders.frees(batch);
            record.queue.take_if(&self.store, wanted, |batch| {
                self.counts.ripened(self.store.shape.per_slab);
                // Relaxed: whoever has passed the gate.
                if record.full.load(Ordering::Relaxed).is_null() {
                    record
                        .full
                        .store(self.store.batch(batch).head.load(Ordering::Relaxed), Ordering::Relaxed);
                    self.keep_empty(record, batch);
                } else {
                    self.push_ready(batch);
                }
            });
        }
        let left = record.queue.len();
        record.next_look.store((left + self.patience().max(left / 2)) as u32, Ordering::Relaxed);
    }

    /// How many batches a CPU lets wait before it looks at the readers, which takes about as long as to use up one.
    fn patience(&self) -> usize {
        (PATIENCE / self.store.shape.slab_bytes).max(1)
    }

    /// Puts an object to those that are handed out. `true` where some went to the depot. The gate was passed.
    ///
    /// # Safety
    ///
    /// The object is free, and the cache's.
    #[inline]
    pub(crate) unsafe fn put_ready(&self, record: &Cpu, object: *mut u8) -> bool {
        // SAFETY: by contract.
        unsafe { record.ready.push(object) };
        record.ready.len() == self.store.shape.per_slab && self.spill(record)
    }

    /// Puts a list to what is handed out. The gate was passed.
    fn put_all_ready(&self, record: &Cpu, list: *mut u8) {
        let mut next = list;
        while !next.is_null() {
            let object = next;
            // SAFETY: a list of free objects that is ours.
            unsafe {
                next = object::next(object);
                self.put_ready(record, object);
            }
        }
    }

    #[cold]
    fn spill(&self, record: &Cpu) -> bool {
        let (list, _) = record.ready.take();
        // Relaxed: whoever has passed the gate.
        let old = record.full.swap(list, Ordering::Relaxed);
        if !old.is_null() {
            let batch = self.empty(record);
            self.store.batch(batch).head.store(old, Ordering::Relaxed);
            self.push_ready(batch);
        }
        !old.is_null()
    }

    /// Puts an object to those that wait. `true` where it was the first or the last of a batch. The gate was passed.
    ///
    /// # Safety
    ///
    /// The object is free, and the cache's.
    #[inline]
    pub(crate) unsafe fn put_filling(&self, record: &Cpu, object: *mut u8, made: u64) -> bool {
        // SAFETY: by contract.
        unsafe { record.filling.push(object) };
        // Relaxed, both: whoever has passed the gate. No time yet is 0, which is 2^64 - 1 after the subtraction.
        let oldest = record.oldest.load(Ordering::Relaxed);
        if made < oldest.wrapping_sub(1) {
            record.oldest.store(made + 1, Ordering::Relaxed);
        }
        match record.filling.len() {
            len if len >= self.store.shape.per_slab => self.seal(record),
            // The keeper sees to it should the others not come.
            1 => {}
            _ => return false,
        }
        true
    }

    /// Makes a batch of what was freed. The gate was passed.
    #[cold]
    #[inline(never)]
    fn seal(&self, record: &Cpu) {
        let (list, _) = record.filling.take();
        // Relaxed, all: whoever has passed the gate; handing the batch over publishes it.
        let oldest = record.oldest.swap(0, Ordering::Relaxed).saturating_sub(1);
        let number = self.empty(record);
        let batch = self.store.batch(number);
        batch.head.store(list, Ordering::Relaxed);
        batch.oldest.store(oldest, Ordering::Relaxed);
        batch.cookie.store(self.domain.cookie().number(), Ordering::Relaxed);
        self.counts.wait(self.store.shape.per_slab);
        if self.policy != Policy::ReuseAfterGp {
            return self.depot.handed.push(&self.store, number);
        }
        record.queue.push(&self.store, number);
        // What is ripe, and is not needed here, is for others.
        for _ in 0..2 {
            if record.queue.len() > 2
                && let Some(batch) = self.ripe(record)
            {
                self.push_ready(batch);
            }
        }
        if record.queue.len() as u32 >= record.next_look.load(Ordering::Relaxed).max(1) {
            self.look_at_readers(record, 4);
        }
        // Freed while the gate was closed.
        if !record.aside_freed.load(Ordering::Relaxed).is_null() {
            self.absorb(record);
        }
    }

    /// Puts what was freed aside to what waits. The gate was passed.
    pub(crate) fn absorb(&self, record: &Cpu) {
        // Acquire: pairs with the Release in `push_aside`.
        let mut next = record.aside_freed.swap(ptr::null_mut(), Ordering::Acquire);
        while !next.is_null() {
            let object = next;
            // SAFETY: a list of free objects that is ours; when they were made is lost, so they count as old.
            unsafe {
                next = object::next(object);
                self.put_filling(record, object, 0);
            }
        }
    }

    /// An empty batch. There is one, for sealed ones are never more than slabs, and a CPU keeps at most one.
    fn empty(&self, record: &Cpu) -> u32 {
        // Relaxed: whoever has passed the gate.
        match record.spare.swap(0, Ordering::Relaxed).checked_sub(1) {
            Some(number) => number,
            None => self.pop_empty(),
        }
    }

    pub(crate) fn pop_empty(&self) -> u32 {
        self.depot.empty.pop(&self.store).unwrap_or_else(|| {
            // Relaxed: numbers, each given once.
            let number = self.depot.batches.fetch_add(1, Ordering::Relaxed);
            assert!((number as usize) < self.store.shape.batches, "more batches than slabs");
            number
        })
    }

    pub(crate) fn push_ready(&self, batch: u32) {
        self.depot.ready.push(&self.store, batch);
        // Relaxed: a count for the keeper.
        self.depot.in_ready.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pop_ready(&self) -> Option<u32> {
        if self.depot.ready.is_empty() {
            // Relaxed: a hint for the keeper.
            self.depot.fewest.store(0, Ordering::Relaxed);
            return None;
        }
        let batch = self.depot.ready.pop(&self.store)?;
        // Relaxed: as above. Pushes count after they pushed, so it may seem to be less than nothing for a moment.
        let left = self.depot.in_ready.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1);
        self.depot.fewest.fetch_min(if left > u64::MAX / 2 { 0 } else { left }, Ordering::Relaxed);
        Some(batch)
    }

    /// A slab of free objects: one that rests, else one that the system got back, else one that was never used.
    fn take_slab(&self) -> Option<u32> {
        if let Some(slab) = self.depot.resting.pop(&SlabLinks(&self.store)) {
            return Some(slab);
        }
        let slab = self.depot.returned.pop(&SlabLinks(&self.store)).or_else(|| {
            let slabs = self.store.shape.slabs as u32;
            let more = |carved| (carved < slabs).then_some(carved + 1);
            // Relaxed: numbers, each given once.
            self.depot.carved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
        })?;
        self.counts.slab_taken();
        Some(slab)
    }

    #[cold]
    fn no_memory(&self) -> Error {
        let shape = &self.store.shape;
        let full = shape.bytes(shape.slabs);
        let more = shape.bytes(shape.slabs + 1) - full;
        if full.saturating_add(more) > shape.limit {
            return Error::Limit { held: full, wanted: more, limit: shape.limit };
        }
        Error::Exhausted { capacity: shape.capacity }
    }

    /// [`Policy::None`]: whatever the allocator gives.
    fn alloc_from_system(&self, record: &Cpu) -> Result<NonNull<u8>, Error> {
        let shape = &self.store.shape;
        let most = shape.slabs * shape.per_slab;
        if !self.counts.system_taken(most) {
            return Err(self.no_memory());
        }
        let Some(object) = system::alloc(shape) else {
            self.counts.system_given();
            return Err(Error::OutOfMemory { bytes: shape.stride });
        };
        // Relaxed: a statistic, of anybody.
        record.aside_taken.fetch_add(1, Ordering::Relaxed);
        Ok(self.hand_out(object))
    }
}

/// How many bytes a CPU lets wait before it looks at the readers. The fence of a look takes one to twenty microseconds, the longer
/// the more CPUs are at work; in that time a program frees some hundred objects.
const PATIENCE: usize = 160 << 10;
