//! Removing elements and copying them out in one step: each element goes to one caller.
//!
//! The copy is made between the unlinking, which only one thread can do, and the freeing. A program that found the
//! element before may still write to it; what it writes after the copy is lost.

use super::element::STACK_KEY_WORDS;
use super::{Element, Hash, with_key};
use crate::caller::Caller;
use crate::cursor::{Batch, Cursor};
use crate::op_error::OpError;
use crate::racy;
use std::ptr;
use std::sync::atomic::Ordering;

impl Hash {
    /// Removes a key and copies its values out. Returns whether it was there.
    ///
    /// # Safety
    ///
    /// `key` is readable for the key size, `out` writable for the host's value size; `caller` is the calling thread.
    pub(crate) unsafe fn take(&self, key: *const u8, out: *mut u8, caller: Caller) -> Result<bool, OpError> {
        with_key!(self, key, |key| {
            let bucket = self.bucket_of(key);
            let lock = bucket.version.lock(caller)?;
            let (link, Some(element)) = self.find_locked(bucket, key) else { return Ok(false) };
            self.unlink(lock, link, element);
            // SAFETY: an element of this table; `out` by contract. This thread unlinked it under the lock.
            unsafe {
                self.values.read(self.values_at(element), out);
                self.retire(caller, element);
            }
            Ok(true)
        })
    }

    /// As [`lookup_batch`](Self::lookup_batch), and removes what it copies.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    pub(crate) unsafe fn take_batch(
        &self,
        cursor: &mut Cursor,
        count: usize,
        out: &mut Batch,
        caller: Caller,
    ) -> Result<bool, OpError> {
        while cursor.position <= self.mask {
            if let Some(bucket) = self.if_used(cursor.position) {
                let lock = match bucket.version.lock(caller) {
                    Ok(lock) => lock,
                    Err(error) => return if out.is_empty() { Err(error) } else { Ok(false) },
                };
                let inside = bucket.elements_locked().count();
                if out.len() + inside > count {
                    let larger = OpError::BucketLarger { count, needed: inside };
                    return if out.is_empty() { Err(larger) } else { Ok(false) };
                }
                self.len.0.fetch_sub(inside as u64, Ordering::Relaxed);
                let mut next = bucket.first_locked();
                // Release: as in `unlink`. All of them at once.
                bucket.head.store(ptr::null_mut(), Ordering::Release);
                lock.unlock_changed();
                while let Some(element) = next {
                    // No other writer has the list any more; freeing an element overwrites its link.
                    next = element.next_locked();
                    out.push_back(self.copy(element));
                    // SAFETY: this thread unlinked it under the lock.
                    unsafe { self.retire(caller, element) };
                }
            }
            cursor.position += 1;
        }
        Ok(true)
    }

    /// Key and value of an element that no thread can unlink or free meanwhile.
    pub(super) fn copy(&self, element: Element) -> (Vec<u8>, Vec<u8>) {
        let (mut key, mut value) = (vec![0; self.layout.key_size], vec![0; self.values.host_size()]);
        // SAFETY: an element of this table; both buffers have the right size.
        unsafe {
            self.copy_key(element, key.as_mut_ptr());
            self.values.read(self.values_at(element), value.as_mut_ptr());
        }
        (key, value)
    }
}
