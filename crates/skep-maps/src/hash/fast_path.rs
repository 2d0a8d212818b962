//! The fast path: operations by programs on keys of common lengths, which the compiler knows, without waiting.

use std::ptr;

use super::Hash;
use super::element::Element;
use crate::caller::Caller;
use crate::op_error::OpError;
use crate::racy;
use crate::update::UpdateFlags;

/// The longest value in bytes that is copied under a bucket's lock.
const SHORT: usize = 64;

/// Keys of `SIZE` bytes, which is the table's key size, in `WORDS` words.
pub(crate) struct FastPath<const SIZE: usize, const WORDS: usize>;

impl<const SIZE: usize, const WORDS: usize> FastPath<SIZE, WORDS> {
    /// The fast path of [`Hash::lookup`]. `None` if it does not apply, for example to an unaligned key or because the
    /// bucket changes.
    ///
    /// # Safety
    ///
    /// As for [`Hash::lookup`].
    #[inline(always)]
    pub(crate) unsafe fn lookup_fast(hash: &Hash, key: *const u8, cpu: u32) -> Option<*mut u8> {
        // SAFETY: by the caller's contract, both.
        if Self::is_aligned(key) { unsafe { hash.lookup_fast(&Self::load(key), cpu) } } else { None }
    }

    /// The fast path of [`Hash::update`] for a program and a table that [replaces simply](Hash::replaces_simply).
    /// `false`, with nothing done, if it does not apply, or if there is an error to report.
    ///
    /// # Safety
    ///
    /// As for [`Hash::update`], with a value that the program passes.
    #[inline(always)]
    pub(crate) unsafe fn replace_fast(
        hash: &Hash,
        key: *const u8,
        value: *const u8,
        mode: UpdateFlags,
        cpu: u32,
    ) -> bool {
        // SAFETY: by the caller's contract, both.
        Self::is_aligned(key) && unsafe { hash.replace_fast(&Self::load(key), value, mode, cpu) }
    }

    /// As [`Hash::delete`].
    ///
    /// # Safety
    ///
    /// As for [`Hash::delete`].
    #[inline(always)]
    pub(crate) unsafe fn delete(hash: &Hash, key: *const u8, caller: Caller) -> Result<(), OpError> {
        // SAFETY: by the caller's contract, both.
        unsafe { hash.delete_key(&Self::load(key), caller) }
    }

    /// Whether a key can be loaded word by word.
    #[inline(always)]
    fn is_aligned(key: *const u8) -> bool {
        key.addr().is_multiple_of(if SIZE == 4 { 4 } else { 8 })
    }

    /// # Safety
    ///
    /// `key` is readable for `SIZE` bytes.
    #[inline(always)]
    unsafe fn load(key: *const u8) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        // SAFETY: by the caller's contract.
        unsafe { racy::load_words(key, SIZE, &mut words) };
        words
    }
}

impl Hash {
    /// Whether an update without a lock only replaces an element, with a short value without special fields.
    pub(crate) fn replaces_simply(&self) -> bool {
        self.clock.is_none() && self.values.are_plain() && self.values.host_size() <= SHORT
    }

    /// The fast path of `lookup_key`; `None` if it does not apply.
    ///
    /// # Safety
    ///
    /// As for `lookup_key`.
    #[inline(always)]
    unsafe fn lookup_fast(&self, key: &[u64], cpu: u32) -> Option<*mut u8> {
        let bucket = self.bucket_of(key);
        let find = || {
            let found = bucket.version.read_once(|walk| self.walk(bucket, key, || walk.is_astray()))?;
            Some(found.map(|element| element.0))
        };
        // SAFETY: by the caller's contract; elements of this table.
        unsafe {
            let found = self.elements.hold_fast(cpu, find)?;
            Some(found.map_or(ptr::null_mut(), |element| self.used(Element(element), cpu)))
        }
    }

    /// The fast path of `replace` for a program and short values. `false`, with nothing done, if the bucket is
    /// locked, no element is ready, or there is an error to report.
    ///
    /// # Safety
    ///
    /// `value` is readable for the value size; `cpu` is the slot of the calling thread, inside a section.
    #[inline(always)]
    unsafe fn replace_fast(&self, key: &[u64], value: *const u8, mode: UpdateFlags, cpu: u32) -> bool {
        let bucket = self.bucket_of(key);
        let may = |found: Option<Element>| match found {
            Some(_) => mode != UpdateFlags::NoExist,
            None => mode != UpdateFlags::Exist,
        };
        // An update that fails should not take the lock.
        if mode != UpdateFlags::Any {
            let walked = bucket.version.read_once(|walk| self.walk(bucket, key, || walk.is_astray()));
            if !walked.is_some_and(may) {
                return false;
            }
        }
        let Some(lock) = bucket.version.try_lock(Caller::Cpu(cpu)) else { return false };
        let (link, found) = self.find_locked(bucket, key);
        if !may(found) {
            return false;
        }
        // SAFETY: by the caller's contract.
        let Some(new) = (unsafe { self.elements.alloc_fast(cpu) }).map(Element) else { return false };
        Self::fill_key(new, key);
        // SAFETY: the element has room for its value, which has no special fields; `value` by the caller's contract.
        unsafe { self.values.fill_plain(self.values_at(new), value) };
        match found {
            // SAFETY: found in this bucket under its lock; `cpu` by contract.
            Some(old) => unsafe { self.exchange(lock, link, old, new, Caller::Cpu(cpu)) },
            None if self.reserve() => self.publish(bucket, new),
            None => {
                drop(lock);
                // SAFETY: allocated above, and no reader has seen it.
                unsafe { self.elements.free_unpublished(Caller::Cpu(cpu), new.0) };
                return false;
            }
        }
        true
    }
}
