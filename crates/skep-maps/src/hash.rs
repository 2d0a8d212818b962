//! Hash tables, with one value for each key or one for each key and CPU.
//!
//! ```text
//!   buckets (a power of two)           elements, from a cache
//!   | head, version | ---> | next | key, whole words | value(s) | ---> | next | ... | ---> null
//!   | head, version |
//! ```
//!
//! **Look-ups** take no lock: they walk a bucket's list and then check whether an element was unlinked from the
//! bucket meanwhile (see [`crate::version`] for the proof). **Changes** hold the bucket's lock and become visible by
//! one store of one link: an insertion puts the element at the head; an update replaces the element by a new one in
//! the same place, so that readers see the old value or the new value as a whole, and a key that is always there is
//! always found; a deletion links around the element. Per-CPU values are overwritten in place.
//!
//! A replaced or deleted element goes back to the cache ([`crate::elements`]), which reuses it after a grace period.
//! A program that looks an element up checks whether it [holds](Elements::hold) it. As many elements may wait as the
//! table may have; if more would have to wait, updates of existing keys write the value in place, and new keys find
//! no memory.

mod batch;
mod element;
mod fast_path;
mod for_each;
mod limbo;
mod locked;
mod lru;
mod shared;
mod take;
#[cfg(test)]
mod tests;

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use skep_mem::{Block, CacheStats, Error, Policy};

use element::{Bucket, Element, ElementLayout, LINK_BYTES, STACK_KEY_WORDS};
pub(crate) use element::{MAX_STACK_KEY, Plan};
pub(crate) use fast_path::FastPath;
use limbo::Limbo;
use lru::Clock;
pub use shared::SharedTable;

use crate::caller::Caller;
use crate::cursor::{BATCH, Batch, Cursor};
use crate::elements::{Elements, Lookup, Reclamation};
use crate::objects::Held;
use crate::op_error::OpError;
use crate::racy;
use crate::seed::Seed;
use crate::update::UpdateFlags;
use crate::values::{Source, Values};
use crate::version::{Locked, Outcome, before_fill};

#[derive(Debug)]
pub(crate) struct Hash {
    layout: ElementLayout,
    /// `Bucket`s.
    buckets: Block,
    mask: u64,
    seed: Seed,
    values: Values,
    elements: Elements,
    len: Counter,
    max_entries: u32,
    /// In LRU tables.
    clock: Option<Clock>,
    /// Removed elements that wait for readers, if values own objects.
    limbo: Option<Box<Limbo>>,
}

/// A count in cache lines that look-ups do not read.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// Runs a body with a key as a slice of words, whose length the compiler knows for short keys.
///
/// The words are a copy: a program may pass a key inside a map's value, which others change meanwhile.
macro_rules! with_key {
    ($table:expr, $from:expr, |$key:ident| $body:expr) => {{
        let (from, size) = ($from, $table.layout.key_size);
        // SAFETY (all loads): the caller guarantees `key_size` readable bytes.
        match size {
            4 => {
                let $key = &with_key!(@load 1, from, 4);
                $body
            }
            8 => {
                let $key = &with_key!(@load 1, from, 8);
                $body
            }
            ..8 => {
                let $key = &with_key!(@load 1, from, size);
                $body
            }
            16 => {
                let $key = &with_key!(@load 2, from, 16);
                $body
            }
            ..16 => {
                let $key = &with_key!(@load 2, from, size);
                $body
            }
            ..=64 => {
                let mut words = [0; 8];
                let $key = with_key!(@slice words, from, size);
                $body
            }
            ..=512 => {
                let mut words = [0; STACK_KEY_WORDS];
                let $key = with_key!(@slice words, from, size);
                $body
            }
            _ => {
                let mut words = vec![0; size.div_ceil(8)];
                let $key = with_key!(@slice words, from, size);
                $body
            }
        }
    }};
    (@load $words:literal, $from:ident, $size:expr) => {{
        let mut words = [0; $words];
        // SAFETY: see above.
        unsafe { racy::load_words($from, $size, &mut words) };
        words
    }};
    (@slice $words:ident, $from:ident, $size:ident) => {{
        let words = &mut $words[..$size.div_ceil(8)];
        // SAFETY: see above.
        unsafe { racy::load_words($from, $size, words) };
        &*words
    }};
}
use with_key;

impl Hash {
    /// `limit`: the most bytes that the table may take. `file`: the name of the files to put the table into, if other
    /// processes are to map it; where elements are taken from the system's allocator one by one, it stays here.
    pub(crate) fn new(
        plan: &Plan,
        limit: usize,
        memory: &Reclamation,
        file: Option<&'static str>,
    ) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: plan.max_entries as usize, size: plan.value_size as usize };
        let bucket_bytes = plan.bucket_bytes().ok_or(too_large)?;
        let reserved = Block::reserved_for(bucket_bytes, 64)?;
        let (layout, values, options) = plan.layout().ok_or(too_large)?;
        let file = file.filter(|_| memory.policy != Policy::None);
        let mut options = plan.roomy(options).limit(limit.saturating_sub(reserved));
        if let Some(name) = file {
            options = options.in_file(name);
        }
        let elements = Elements::new(memory, options)?;
        Ok(Self {
            layout,
            buckets: match file {
                Some(name) => Block::in_file(name, bucket_bytes)?,
                None if plan.on_demand => Block::zeroed(bucket_bytes, 64)?,
                None => Block::zeroed_in_large_pages(bucket_bytes, 64)?,
            },
            mask: (bucket_bytes / size_of::<Bucket>()) as u64 - 1,
            seed: plan.seed,
            values,
            elements,
            len: Counter::default(),
            max_entries: plan.max_entries,
            clock: layout.mark_at.map(Clock::new),
            limbo: plan.owns.then(|| Box::new(Limbo::new(layout.values_at - LINK_BYTES))),
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size; `cpu` is the slot of the calling thread, inside a section.
    #[inline]
    pub(crate) unsafe fn lookup(&self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: by the caller's contract.
        with_key!(self, key, |key| unsafe { self.lookup_key(key, cpu) })
    }

    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    #[inline(always)]
    unsafe fn lookup_key(&self, key: &[u64], cpu: u32) -> *mut u8 {
        // SAFETY: by the caller's contract; an element of this table.
        unsafe { self.hold(key, cpu).map_or(ptr::null_mut(), |element| self.used(element, cpu)) }
    }

    /// Announces an era for a reader that is about to look up elements.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    #[inline]
    pub(crate) unsafe fn announce(&self, cpu: u32) {
        // SAFETY: by the caller's contract.
        unsafe { self.elements.announce(cpu) };
    }

    /// The value of an element that a program has found.
    ///
    /// # Safety
    ///
    /// An element of this table; the CPU is in range.
    #[inline(always)]
    unsafe fn used(&self, element: Element, cpu: u32) -> *mut u8 {
        if let Some(clock) = &self.clock {
            clock.used(element);
        }
        // SAFETY: by the caller's contract.
        unsafe { self.values.of_cpu(self.values_at(element), cpu) }
    }

    /// # Safety
    ///
    /// `key` is readable for the key size, `out` writable for the host's value size.
    pub(crate) unsafe fn read(&self, key: *const u8, out: *mut u8, caller: Caller) -> Result<bool, OpError> {
        with_key!(self, key, |key| {
            let bucket = self.bucket_of(key);
            bucket.version.read_consistent(caller, self.elements.must_lock(caller), |walk| {
                self.walk(bucket, key, || walk.is_astray()).map(|found| {
                    // SAFETY: memory of an element of this table, even if it was reused; `out` by the caller's
                    // contract.
                    found.map(|element| unsafe { self.values.read(self.values_at(element), out) }).is_some()
                })
            })
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size, `source` as [`Values::write`] demands; `caller` is the calling thread.
    pub(crate) unsafe fn update(
        &self,
        key: *const u8,
        source: Source,
        mode: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        with_key!(self, key, |key| {
            if mode.is_locked() {
                // SAFETY: `source` and `caller` by contract; values have locks, and this thread holds none.
                unsafe { self.update_locked(key, source, mode, caller) }
            } else if self.clock.is_some() {
                // SAFETY: `source` and `caller` by contract.
                unsafe { self.update_or_evict(key, source, mode, caller) }
            } else if self.values.is_per_cpu() {
                // SAFETY: `source` and `caller` by contract.
                unsafe { self.update_in_place(key, source, mode, caller) }
            } else {
                // SAFETY: `source` and `caller` by contract.
                unsafe { self.replace(key, source, mode, caller) }
            }
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size; `caller` is the calling thread.
    pub(crate) unsafe fn delete(&self, key: *const u8, caller: Caller) -> Result<(), OpError> {
        // SAFETY: by the caller's contract.
        with_key!(self, key, |key| unsafe { self.delete_key(key, caller) })
    }

    /// # Safety
    ///
    /// `caller` is the calling thread.
    #[inline(always)]
    unsafe fn delete_key(&self, key: &[u64], caller: Caller) -> Result<(), OpError> {
        let bucket = self.bucket_of(key);
        let lock = bucket.version.lock(caller)?;
        let (link, Some(element)) = self.find_locked(bucket, key) else { return Err(OpError::Missing) };
        self.unlink(lock, link, element);
        // SAFETY: this thread unlinked it under the lock, and the version shows it.
        unsafe { self.retire(caller, element) };
        Ok(())
    }

    /// The key after `after` in the order of buckets; the first one if `after` is not there.
    ///
    /// # Safety
    ///
    /// `after` is readable, and `out` writable, for the key size; `caller` is the calling thread.
    pub(crate) unsafe fn next_key(&self, after: Option<*const u8>, out: *mut u8, caller: Caller) -> bool {
        let from = match after {
            None => 0,
            Some(after) => with_key!(self, after, |key| {
                let index = self.seed.hash(key) & self.mask;
                let lock = self.bucket(index).version.lock_or_own(caller);
                match self.find_locked(self.bucket(index), key).1 {
                    None => 0,
                    Some(element) => match element.next_locked() {
                        Some(next) => {
                            // SAFETY: `out` by contract.
                            unsafe { self.copy_key(next, out) };
                            return true;
                        }
                        None => {
                            drop(lock);
                            index + 1
                        }
                    },
                }
            }),
        };
        for index in from..=self.mask {
            let Some(bucket) = self.if_used(index) else { continue };
            let _lock = bucket.version.lock_or_own(caller);
            if let Some(first) = bucket.first_locked() {
                // SAFETY: `out` by contract.
                unsafe { self.copy_key(first, out) };
                return true;
            }
        }
        false
    }

    /// Copies whole buckets, so that an element that stays is copied once.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    pub(crate) unsafe fn batch(&self, cursor: &mut Cursor, out: &mut Batch, caller: Caller) {
        while out.len() < BATCH && cursor.position <= self.mask {
            let index = cursor.position;
            cursor.position += 1;
            let Some(bucket) = self.if_used(index) else { continue };
            let _lock = bucket.version.lock_or_own(caller);
            out.extend(bucket.elements_locked().map(|element| self.copy(element)));
        }
    }

    pub(crate) fn len(&self) -> u32 {
        // At most `max_entries`, because of `reserve`.
        self.len.0.load(Ordering::Relaxed) as u32
    }

    pub(crate) fn memory(&self) -> usize {
        self.buckets.reserved() + self.elements.stats().bytes
    }

    /// Bytes besides those of the elements, and the elements' statistics.
    pub(crate) fn stats(&self) -> (usize, CacheStats) {
        (self.buckets.reserved(), self.elements.stats())
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }
}

/// Look-up.
impl Hash {
    #[inline(always)]
    fn find(&self, key: &[u64], caller: Caller) -> Option<Element> {
        self.find_in(self.bucket_of(key), key, caller)
    }

    #[inline(never)]
    fn has(&self, key: &[u64], caller: Caller) -> bool {
        self.find(key, caller).is_some()
    }

    #[inline(always)]
    fn find_in(&self, bucket: &Bucket, key: &[u64], caller: Caller) -> Option<Element> {
        bucket.version.read(caller, |walk| self.walk(bucket, key, || walk.is_astray()))
    }

    /// Finds an element for a reader that uses it beyond the look-up.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    #[inline(always)]
    unsafe fn hold(&self, key: &[u64], cpu: u32) -> Option<Element> {
        let bucket = self.bucket_of(key);
        let find = |locked| {
            match locked {
                Lookup::Lockless => self.find_in(bucket, key, Caller::Cpu(cpu)),
                Lookup::Locked => self.find_locked(bucket, key).1,
            }
            .map(|element| element.0)
        };
        // SAFETY: by the caller's contract; elements of this table.
        unsafe { self.elements.hold(cpu, &bucket.version, find) }.map(Element)
    }

    /// Walks a bucket's list without a lock.
    #[inline(always)]
    fn walk(
        &self,
        bucket: &Bucket,
        key: &[u64],
        mut is_astray: impl FnMut() -> bool,
    ) -> Outcome<Option<Element>> {
        // Acquire: pairs with the Release that published the element: its key and value are seen.
        let mut next = bucket.head.load(Ordering::Acquire);
        while let Some(element) = NonNull::new(next).map(Element) {
            if element.has_key(key) {
                return Outcome::Answer(Some(element));
            }
            if is_astray() {
                return Outcome::Astray;
            }
            next = element.next().load(Ordering::Acquire); // as above
        }
        Outcome::Answer(None)
    }

    /// The element and the link to it; without one, the bucket's last link. The caller holds the lock.
    #[inline(always)]
    fn find_locked<'a>(&'a self, bucket: &'a Bucket, key: &[u64]) -> (&'a AtomicPtr<u8>, Option<Element>) {
        let mut link = &bucket.head;
        // Relaxed: all stores of this list's links were made under the lock that the caller holds.
        while let Some(element) = NonNull::new(link.load(Ordering::Relaxed)).map(Element) {
            if element.has_key(key) {
                return (link, Some(element));
            }
            link = element.next();
        }
        (link, None)
    }

    #[inline(always)]
    fn bucket_of(&self, key: &[u64]) -> &Bucket {
        self.bucket(self.seed.hash(key) & self.mask)
    }

    #[inline(always)]
    fn bucket(&self, index: u64) -> &Bucket {
        debug_assert!(index <= self.mask);
        // SAFETY: the block has `mask + 1` buckets, all zero at first, which is a valid bucket, and they are only
        // accessed as buckets; it lives as long as `self`.
        unsafe { &*self.buckets.base().as_ptr().cast::<Bucket>().add(index as usize) }
    }

    /// The bucket, if it has elements. Does not touch unused pages of the bucket array.
    fn if_used(&self, index: u64) -> Option<&Bucket> {
        let bucket = self.bucket(index);
        (!bucket.head.load(Ordering::Relaxed).is_null()).then_some(bucket)
    }
}

/// Changes.
impl Hash {
    /// Inserts or replaces: readers see the old element or the new one.
    ///
    /// # Safety
    ///
    /// `source` is as [`Values::write`] demands; `caller` is the calling thread.
    #[inline(always)]
    unsafe fn replace(
        &self,
        key: &[u64],
        source: Source,
        mode: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        let bucket = self.bucket_of(key);
        // Check first: an update that fails should not allocate an element or take the lock.
        if caller != Caller::Host {
            match mode {
                UpdateFlags::NoExist if self.has(key, caller) => return Err(OpError::Exists),
                UpdateFlags::Exist if !self.has(key, caller) => return Err(OpError::Missing),
                _ => {}
            }
        }
        // Filled before the lock is taken, because values may be long.
        // SAFETY: `caller` by contract.
        let spare = unsafe { self.spare(caller) };
        if let Ok(spare) = &spare {
            // SAFETY: the spare element belongs to this thread; `source` by the caller's contract.
            unsafe { self.fill(spare.element, key, source) };
        }
        let lock = bucket.version.lock(caller)?;
        let (link, found) = self.find_locked(bucket, key);
        match (found, spare) {
            (Some(_), _) if mode == UpdateFlags::NoExist => Err(OpError::Exists),
            (None, _) if mode == UpdateFlags::Exist => Err(OpError::Missing),
            (Some(old), Ok(spare)) => {
                let new = spare.keep();
                if let Some(clock) = &self.clock {
                    clock.set(new, true);
                }
                // SAFETY: found in this bucket under its lock; `caller` by contract.
                unsafe { self.exchange(lock, link, old, new, caller) };
                Ok(())
            }
            (Some(old), Err(_)) => {
                // SAFETY: an element of this table, which stays linked while the lock is held.
                unsafe { self.write_in_place(old, source, caller) };
                lock.unlock_changed(); // for `read`, which wants values whole
                Ok(())
            }
            (None, Ok(_)) if !self.reserve() => Err(OpError::Full),
            (None, Ok(spare)) => {
                self.publish(bucket, spare.keep());
                Ok(())
            }
            (None, Err(_)) if self.len() >= self.max_entries => Err(OpError::Full),
            (None, Err(error)) => Err(OpError::NoMemory(error)),
        }
    }

    /// Inserts, or overwrites where the element is.
    ///
    /// # Safety
    ///
    /// `source` is as [`Values::write`] demands; `caller` is the calling thread.
    unsafe fn update_in_place(
        &self,
        key: &[u64],
        source: Source,
        mode: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        let bucket = self.bucket_of(key);
        let _lock = bucket.version.lock(caller)?;
        match self.find_locked(bucket, key).1 {
            Some(_) if mode == UpdateFlags::NoExist => return Err(OpError::Exists),
            None if mode == UpdateFlags::Exist => return Err(OpError::Missing),
            Some(element) => {
                if let Some(clock) = &self.clock {
                    clock.used(element);
                }
                // SAFETY: an element of this table, which stays linked while the lock is held.
                unsafe { self.write_in_place(element, source, caller) };
                return Ok(());
            }
            None if !self.reserve() => return Err(OpError::Full),
            None => {}
        }
        // SAFETY: `caller` by contract.
        match unsafe { self.spare(caller) } {
            Ok(spare) => {
                // SAFETY: the spare element belongs to this thread.
                unsafe { self.fill(spare.element, key, source) };
                self.publish(bucket, spare.keep());
                Ok(())
            }
            Err(error) => {
                self.len.0.fetch_sub(1, Ordering::Relaxed);
                Err(OpError::NoMemory(error))
            }
        }
    }

    /// Writes key and values of an element that is not linked.
    ///
    /// # Safety
    ///
    /// `element` is the caller's, fresh from the cache; `source` is as [`Values::write`] demands.
    unsafe fn fill(&self, element: Element, key: &[u64], source: Source) {
        Self::fill_key(element, key);
        if let Some(clock) = &self.clock {
            clock.set(element, false);
        }
        // SAFETY: the element has room for its values; `source` by contract.
        unsafe { self.values.fill(self.values_at(element), source) };
    }

    /// Writes the key of an element that is not linked.
    #[inline(always)]
    fn fill_key(element: Element, key: &[u64]) {
        before_fill();
        for (i, &word) in key.iter().enumerate() {
            // Relaxed, like the copy of the value: the link that publishes the element has the Release.
            element.key_word(i).store(word, Ordering::Relaxed);
        }
    }

    /// Replaces the element to which `link` leads by a filled one.
    ///
    /// # Safety
    ///
    /// The lock is that of the bucket in which `old` is linked; `caller` is the calling thread.
    #[inline(always)]
    unsafe fn exchange(
        &self,
        lock: Locked<'_>,
        link: &AtomicPtr<u8>,
        old: Element,
        new: Element,
        caller: Caller,
    ) {
        new.next().store(old.next().load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: pairs with the Acquire in `walk`, which then finds the element filled.
        link.store(new.0.as_ptr(), Ordering::Release);
        lock.unlock_changed();
        // SAFETY: this thread unlinked it under the lock, and the version shows it.
        unsafe { self.retire(caller, old) };
    }

    /// Frees an element that this thread has unlinked.
    ///
    /// # Safety
    ///
    /// An element of this table that this thread unlinked, once; `caller` is the calling thread.
    #[inline(always)]
    unsafe fn retire(&self, caller: Caller, element: Element) {
        match &self.limbo {
            // SAFETY: by the caller's contract.
            None => unsafe { self.elements.free(caller, element.0) },
            // SAFETY: by the caller's contract.
            Some(limbo) => unsafe { self.retire_owner(limbo, caller, element) },
        }
    }

    /// The same for an element that may own objects.
    ///
    /// # Safety
    ///
    /// As for [`retire`](Self::retire).
    #[cold]
    unsafe fn retire_owner(&self, limbo: &Limbo, caller: Caller, element: Element) {
        // SAFETY: by the caller's contract; the element stays mapped.
        unsafe {
            self.values.clear(self.values_at(element), None, Held::Keep, caller);
            limbo.put(element);
            self.collect(limbo, false, caller);
        }
    }

    /// Frees removed elements that no reader has any more.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    unsafe fn collect(&self, limbo: &Limbo, scan: bool, caller: Caller) {
        limbo.collect(self.elements.domain(), scan, |element| {
            // SAFETY: an element that was unlinked once, and that no reader has any more; `caller` by contract.
            unsafe {
                self.values.clear(self.values_at(element), None, Held::Keep, caller);
                self.elements.free_unpublished(caller, element.0);
            }
        });
    }

    /// A new element.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    #[inline(always)]
    unsafe fn spare(&self, caller: Caller) -> Result<Spare<'_>, Error> {
        let Some(limbo) = &self.limbo else {
            // SAFETY: by the caller's contract.
            return unsafe { Spare::take(&self.elements, caller) };
        };
        // SAFETY: by the caller's contract.
        unsafe {
            self.collect(limbo, false, caller);
            Spare::take(&self.elements, caller).or_else(|_| {
                self.collect(limbo, true, caller);
                Spare::take(&self.elements, caller)
            })
        }
    }

    /// Overwrites an element's values, and frees what they own.
    ///
    /// # Safety
    ///
    /// `element` stays linked meanwhile; `source` is as [`Values::write`] demands; `caller` is the calling thread.
    unsafe fn write_in_place(&self, element: Element, source: Source, caller: Caller) {
        // SAFETY: by the caller's contract. A value's lock is not waited for under a bucket's: lists that are in use
        // stay.
        unsafe {
            self.values.write(self.values_at(element), source);
            self.values.clear(self.values_at(element), Some(source), Held::Keep, caller);
        }
    }

    /// Unlinks the element to which `link` leads, under its bucket's lock.
    #[inline(always)]
    fn unlink(&self, lock: Locked<'_>, link: &AtomicPtr<u8>, element: Element) {
        // Before the element disappears: a thread that sees it gone finds room for another.
        self.len.0.fetch_sub(1, Ordering::Relaxed);
        // Release: pairs with the Acquire in `walk`, for everything before and for the next element's contents.
        link.store(element.next().load(Ordering::Relaxed), Ordering::Release);
        lock.unlock_changed();
    }

    /// Makes a filled element the first of its bucket. The caller holds the lock.
    fn publish(&self, bucket: &Bucket, element: Element) {
        element.next().store(bucket.head.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: pairs with the Acquire in `walk`.
        bucket.head.store(element.0.as_ptr(), Ordering::Release);
    }

    /// Counts one more element, unless the table is full.
    fn reserve(&self) -> bool {
        // Relaxed: a count, which orders nothing.
        let more = |len| (len < u64::from(self.max_entries)).then_some(len + 1);
        self.len.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Copies the key of the element with that value.
    ///
    /// # Safety
    ///
    /// `value` is the address of the shared value of an element of this table; `out` is writable for the key size.
    pub(crate) unsafe fn key_at(&self, value: *mut u8, out: *mut u8) {
        // SAFETY: an element begins `values_at` bytes before its values.
        unsafe {
            let element = value.sub(self.layout.values_at);
            self.copy_key(Element(std::ptr::NonNull::new_unchecked(element)), out);
        }
    }

    /// # Safety
    ///
    /// `out` is writable for the key size.
    unsafe fn copy_key(&self, element: Element, out: *mut u8) {
        let key = element.key_word(0).as_ptr().cast::<u8>();
        // SAFETY: the key is in whole words; `out` by the caller's contract.
        unsafe { racy::read(key, out, self.layout.key_size) };
    }

    #[inline(always)]
    fn values_at(&self, element: Element) -> *mut u8 {
        // SAFETY: the cache's objects have the size that `layout` computed with this offset.
        unsafe { element.0.as_ptr().add(self.layout.values_at) }
    }
}

impl Drop for Hash {
    fn drop(&mut self) {
        if let Some(mut limbo) = self.limbo.take() {
            let clear = |element| {
                // SAFETY: no other thread has the table any more.
                unsafe { self.values.clear(self.values_at(element), None, Held::Keep, Caller::Host) };
                if self.elements.are_separate() {
                    // SAFETY: the same; it was unlinked before.
                    unsafe { self.elements.free(Caller::Host, element.0) };
                }
            };
            limbo.drain(clear);
            for index in 0..=self.mask {
                for element in self.bucket(index).elements_locked() {
                    // SAFETY: no other thread has the table any more.
                    unsafe { self.values.clear(self.values_at(element), None, Held::Keep, Caller::Host) };
                }
            }
        }
        if !self.elements.are_separate() {
            return;
        }
        for index in 0..=self.mask {
            let mut next = self.bucket(index).first_locked();
            while let Some(element) = next {
                next = element.next_locked();
                // SAFETY: no other thread has the table any more.
                unsafe { self.elements.free(Caller::Host, element.0) };
            }
        }
    }
}

/// A new element, which is freed unless it is kept.
struct Spare<'a> {
    elements: &'a Elements,
    element: Element,
    caller: Caller,
}

impl<'a> Spare<'a> {
    /// # Safety
    ///
    /// `caller` is the calling thread.
    unsafe fn take(elements: &'a Elements, caller: Caller) -> Result<Self, Error> {
        // SAFETY: by the caller's contract.
        unsafe { elements.alloc(caller) }.map(|object| Self { elements, element: Element(object), caller })
    }

    fn keep(self) -> Element {
        let element = self.element;
        std::mem::forget(self);
        element
    }
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread allocated it in `take` and has not kept it, so no reader has found it.
        unsafe { self.elements.free_unpublished(self.caller, self.element.0) };
    }
}
