//! Hash tables, with one value for each key or one for each key and CPU.
//!
//! ```text
//!   buckets (a power of two)           elements, from a pool
//!   | head, version | ---> | next | key, whole words | value(s) | ---> | next | ... | ---> null
//!   | head, version |
//! ```
//!
//! **Look-ups** take no lock: they walk a bucket's list and then ask whether anything was unlinked from the bucket
//! meanwhile (see [`crate::version`], which says why that is right). **Changes** hold the bucket's lock and show in
//! one store of one link: an insertion puts the element at the head; an update replaces the element by a new one
//! in the same place, so that others see the old value whole or the new value whole, and a key that is always
//! there is always found; a deletion links around the element. Per-CPU values are overwritten where they are.
//!
//! An element that was replaced or deleted goes back to the pool at once and may come out again as another: a
//! program that still holds its value's address then reads and writes another element's value, as with Linux's
//! preallocated maps. The pool has spare elements beyond the maximum for updates in flight; should more updates
//! run at the same time than there are spares, those without one write the value in place.

mod element;
#[cfg(test)]
mod tests;

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use skep_mem::{Block, Error, Pool};

use element::{Bucket, Element, MAX_KEY_WORDS, Shape};
pub(crate) use element::{MAX_KEY_SIZE, Plan};

use crate::racy;
use crate::seed::Seed;
use crate::table::{BATCH, Batch, Cursor, Fault};
use crate::update::UpdateFlags;
use crate::values::{Source, Values};
use crate::version::{Locked, Outcome, back_off, before_fill};

#[derive(Debug)]
pub(crate) struct Hash {
    shape: Shape,
    /// `Bucket`s.
    buckets: Block,
    mask: u64,
    seed: Seed,
    values: Values,
    pool: Pool,
    len: Counter,
    max_entries: u32,
}

/// A count that shares its cache line with nothing that look-ups read.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// Runs a body with the key at an address as a slice of words, whose length the compiler knows for short keys.
///
/// The words are a copy: a program may pass a key that lies in a map, where it changes while it is looked at.
macro_rules! with_key {
    ($table:expr, $from:expr, |$key:ident| $body:expr) => {{
        let (from, size) = ($from, $table.shape.key_size);
        // SAFETY (of all loads): the caller vouches for `key_size` readable bytes.
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
            _ => {
                let mut words = [0; MAX_KEY_WORDS];
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

impl Hash {
    /// `limit`: bytes that the table may take in all.
    pub(crate) fn new(plan: &Plan, limit: usize) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: plan.max_entries as usize, size: plan.value_size as usize };
        let bucket_bytes = plan.bucket_bytes().ok_or(too_large)?;
        let reserved = Block::reserved_for(bucket_bytes, 64)?;
        let (shape, values, options) = plan.layout(limit.saturating_sub(reserved)).ok_or(too_large)?;
        let pool = Pool::new(&options)?;
        Ok(Self {
            shape,
            buckets: Block::zeroed(bucket_bytes, 64)?,
            mask: (bucket_bytes / size_of::<Bucket>()) as u64 - 1,
            seed: Seed::random(),
            values,
            pool,
            len: Counter::default(),
            max_entries: plan.max_entries,
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size; `cpu` is below the number of CPUs.
    #[inline]
    pub(crate) unsafe fn lookup(&self, key: *const u8, cpu: u32) -> *mut u8 {
        with_key!(self, key, |key| match self.find(key) {
            // SAFETY: an element of this table; the CPU is in range by contract.
            Some(element) => unsafe { self.values.of_cpu(self.values_at(element), cpu) },
            None => ptr::null_mut(),
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size, `out` writable for the host's value size.
    pub(crate) unsafe fn read(&self, key: *const u8, out: *mut u8) -> bool {
        with_key!(self, key, |key| {
            let bucket = self.bucket_of(key);
            bucket.version.read_still(|walk| {
                let found = self.walk(bucket, key, || walk.is_astray());
                if let Outcome::Answer(Some(element)) = found {
                    // SAFETY: memory of an element of this table, whoever's it is by now; `out` by contract.
                    unsafe { self.values.read(self.values_at(element), out) };
                }
                match found {
                    Outcome::Answer(found) => Outcome::Answer(found.is_some()),
                    Outcome::Astray => Outcome::Astray,
                }
            })
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size, `source` as [`Values::write`] demands.
    pub(crate) unsafe fn update(
        &self,
        key: *const u8,
        source: Source,
        mode: UpdateFlags,
    ) -> Result<(), Fault> {
        with_key!(self, key, |key| {
            if self.values.is_per_cpu() {
                // SAFETY: `source` by contract.
                unsafe { self.update_in_place(key, source, mode) }
            } else {
                // SAFETY: `source` by contract.
                unsafe { self.replace(key, source, mode) }
            }
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size.
    pub(crate) unsafe fn delete(&self, key: *const u8) -> Result<(), Fault> {
        with_key!(self, key, |key| {
            let bucket = self.bucket_of(key);
            let lock = bucket.version.lock();
            let (link, Some(element)) = self.find_locked(bucket, key) else { return Err(Fault::Missing) };
            // Before the element is seen to be gone: whoever sees that finds room for another.
            self.len.0.fetch_sub(1, Ordering::Relaxed);
            // Release: pairs with the Acquire in `walk`, for what precedes and for the next element's contents.
            link.store(element.next().load(Ordering::Relaxed), Ordering::Release);
            lock.unlock_changed();
            // SAFETY: unlinked under the lock, hence by nobody else, and the version says so.
            unsafe { self.pool.free(element.0) };
            Ok(())
        })
    }

    /// The key after `after` in the order of buckets; the first one if `after` is not there.
    ///
    /// # Safety
    ///
    /// `after` is readable, and `out` writable, for the key size.
    pub(crate) unsafe fn next_key(&self, after: Option<*const u8>, out: *mut u8) -> bool {
        let from = match after {
            None => 0,
            Some(after) => with_key!(self, after, |key| {
                let index = self.seed.hash(key) & self.mask;
                let lock = self.bucket(index).version.lock();
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
            let Some(_lock) = self.lock_if_used(index) else { continue };
            if let Some(first) = self.bucket(index).first_locked() {
                // SAFETY: `out` by contract.
                unsafe { self.copy_key(first, out) };
                return true;
            }
        }
        false
    }

    /// Copies whole buckets: an element that is there all the time is copied once.
    pub(crate) fn batch(&self, cursor: &mut Cursor, out: &mut Batch) {
        while out.len() < BATCH && cursor.position <= self.mask {
            let index = cursor.position;
            cursor.position += 1;
            let Some(_lock) = self.lock_if_used(index) else { continue };
            let mut next = self.bucket(index).first_locked();
            while let Some(element) = next {
                let (mut key, mut value) = (vec![0; self.shape.key_size], vec![0; self.values.host_size()]);
                // SAFETY: an element of this table; both buffers have the size that is written.
                unsafe {
                    self.copy_key(element, key.as_mut_ptr());
                    self.values.read(self.values_at(element), value.as_mut_ptr());
                }
                out.push_back((key, value));
                next = element.next_locked();
            }
        }
    }

    pub(crate) fn len(&self) -> u32 {
        // At most `max_entries`: `reserve` sees to it.
        self.len.0.load(Ordering::Relaxed) as u32
    }

    pub(crate) fn memory(&self) -> usize {
        self.buckets.reserved() + self.pool.bytes()
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }
}

/// Look-up.
impl Hash {
    #[inline(always)]
    fn find(&self, key: &[u64]) -> Option<Element> {
        let bucket = self.bucket_of(key);
        bucket.version.read(|walk| self.walk(bucket, key, || walk.is_astray()))
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

    /// The element and the link that leads to it; without one, the bucket's last link. The lock is held.
    #[inline(always)]
    fn find_locked<'a>(&'a self, bucket: &'a Bucket, key: &[u64]) -> (&'a AtomicPtr<u8>, Option<Element>) {
        let mut link = &bucket.head;
        // Relaxed: all stores of this list's links were made under the lock that we hold.
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
        // SAFETY: the block has `mask + 1` buckets, all zero at first, which is a valid bucket, and they are
        // only ever accessed as such; it lives as long as `self`.
        unsafe { &*self.buckets.base().as_ptr().cast::<Bucket>().add(index as usize) }
    }

    /// The lock of a bucket that is worth locking. Untouched pages of the bucket array stay untouched.
    fn lock_if_used(&self, index: u64) -> Option<Locked<'_>> {
        let bucket = self.bucket(index);
        (!bucket.head.load(Ordering::Relaxed).is_null()).then(|| bucket.version.lock())
    }
}

/// Change.
impl Hash {
    /// Inserts or replaces: readers see the old element or the new one.
    ///
    /// # Safety
    ///
    /// `source` is as [`Values::write`] demands.
    #[inline(always)]
    unsafe fn replace(&self, key: &[u64], source: Source, mode: UpdateFlags) -> Result<(), Fault> {
        let bucket = self.bucket_of(key);
        // What need not be tried should not take a spare and the lock.
        match mode {
            UpdateFlags::NoExist if self.find(key).is_some() => return Err(Fault::Exists),
            UpdateFlags::Exist if self.find(key).is_none() => return Err(Fault::Missing),
            _ => {}
        }
        for turns in 0.. {
            // Filled before the lock is taken: values may be long.
            let spare = Spare::take(self);
            if let Ok(spare) = &spare {
                // SAFETY: the element is ours and `source` as the caller says.
                unsafe { self.fill(spare.element, key, source) };
            }
            let lock = bucket.version.lock();
            let (link, found) = self.find_locked(bucket, key);
            match (found, spare) {
                (Some(_), _) if mode == UpdateFlags::NoExist => return Err(Fault::Exists),
                (None, _) if mode == UpdateFlags::Exist => return Err(Fault::Missing),
                (Some(old), Ok(spare)) => {
                    let new = spare.keep();
                    new.next().store(old.next().load(Ordering::Relaxed), Ordering::Relaxed);
                    // Release: pairs with the Acquire in `walk`, which then finds the element filled.
                    link.store(new.0.as_ptr(), Ordering::Release);
                    lock.unlock_changed();
                    // SAFETY: unlinked under the lock, hence by nobody else, and the version says so.
                    unsafe { self.pool.free(old.0) };
                    return Ok(());
                }
                (Some(old), Err(_)) => {
                    // SAFETY: an element of this table, which stays linked while the lock is held.
                    unsafe { self.values.write(self.values_at(old), source) };
                    lock.unlock_changed(); // for `read`, which wants values whole
                    return Ok(());
                }
                (None, Ok(spare)) => {
                    if !self.reserve() {
                        return Err(Fault::Full);
                    }
                    self.publish(bucket, spare.keep());
                    return Ok(());
                }
                (None, Err(error)) => {
                    drop(lock);
                    if self.len() >= self.max_entries {
                        return Err(Fault::Full);
                    }
                    if !matches!(error, Error::Exhausted { .. }) {
                        return Err(Fault::NoMemory(error));
                    }
                    // There is room, but updates in flight hold all the spares: they will be back.
                    back_off(turns);
                }
            }
        }
        unreachable!("an endless loop")
    }

    /// Inserts, or overwrites where the element is.
    ///
    /// # Safety
    ///
    /// `source` is as [`Values::write`] demands.
    unsafe fn update_in_place(&self, key: &[u64], source: Source, mode: UpdateFlags) -> Result<(), Fault> {
        let bucket = self.bucket_of(key);
        for turns in 0.. {
            let lock = bucket.version.lock();
            match self.find_locked(bucket, key).1 {
                Some(_) if mode == UpdateFlags::NoExist => return Err(Fault::Exists),
                None if mode == UpdateFlags::Exist => return Err(Fault::Missing),
                Some(element) => {
                    // SAFETY: an element of this table, which stays linked while the lock is held.
                    unsafe { self.values.write(self.values_at(element), source) };
                    return Ok(());
                }
                None if !self.reserve() => return Err(Fault::Full),
                None => {}
            }
            match Spare::take(self) {
                Ok(spare) => {
                    // SAFETY: the element is ours.
                    unsafe { self.fill(spare.element, key, source) };
                    self.publish(bucket, spare.keep());
                    return Ok(());
                }
                Err(error) => {
                    self.len.0.fetch_sub(1, Ordering::Relaxed);
                    if !matches!(error, Error::Exhausted { .. }) {
                        return Err(Fault::NoMemory(error));
                    }
                }
            }
            // There is room: a deletion in flight has counted its element off but not given it back yet.
            drop(lock);
            back_off(turns);
        }
        unreachable!("an endless loop")
    }

    /// Writes key and values of an element that is not linked.
    ///
    /// # Safety
    ///
    /// `element` is the caller's, fresh from the pool; `source` is as [`Values::write`] demands.
    unsafe fn fill(&self, element: Element, key: &[u64], source: Source) {
        before_fill();
        for (i, &word) in key.iter().enumerate() {
            // Relaxed, like the copy of the value: the link that publishes the element has the Release.
            element.key_word(i).store(word, Ordering::Relaxed);
        }
        // SAFETY: the element has room for its values; `source` by contract.
        unsafe { self.values.fill(self.values_at(element), source) };
    }

    /// Makes a filled element the first of its bucket, whose lock is held.
    fn publish(&self, bucket: &Bucket, element: Element) {
        element.next().store(bucket.head.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: pairs with the Acquire in `walk`.
        bucket.head.store(element.0.as_ptr(), Ordering::Release);
    }

    /// Counts one more element, unless there are as many as may be.
    fn reserve(&self) -> bool {
        // Relaxed: a count, which orders nothing.
        let more = |len| (len < u64::from(self.max_entries)).then_some(len + 1);
        self.len.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// # Safety
    ///
    /// `out` is writable for the key size.
    unsafe fn copy_key(&self, element: Element, out: *mut u8) {
        let key = element.key_word(0).as_ptr().cast::<u8>();
        // SAFETY: the key lies in whole words; `out` by contract.
        unsafe { racy::read(key, out, self.shape.key_size) };
    }

    #[inline(always)]
    fn values_at(&self, element: Element) -> *mut u8 {
        // SAFETY: the pool's objects have the size that `layout` computed with this offset.
        unsafe { element.0.as_ptr().add(self.shape.values_at) }
    }
}

/// An element from the pool that goes back unless it is kept.
struct Spare<'a> {
    pool: &'a Pool,
    element: Element,
}

impl<'a> Spare<'a> {
    fn take(table: &'a Hash) -> Result<Self, Error> {
        table.pool.alloc().map(|object| Self { pool: &table.pool, element: Element(object) })
    }

    fn keep(self) -> Element {
        let element = self.element;
        std::mem::forget(self);
        element
    }
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        // SAFETY: taken from this pool in `take` and not kept, so nobody else knows it.
        unsafe { self.pool.free(self.element.0) };
    }
}
