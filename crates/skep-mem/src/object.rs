//! The word before each object, which belongs to the cache.
//!
//! ```text
//!   | header | the user's bytes ...        |
//!     odd: allocated; the birth era times two, plus one
//!     even: free; the address of the next object in its list, or 0
//! ```
//!
//! The user's bytes do not change while an object is free: a reader that still has it finds what the last owner left.

use std::ptr;

use crate::sync::{AtomicU64, Ordering};

/// Bytes before each object.
pub(crate) const HEADER: usize = size_of::<u64>();

/// # Safety
///
/// `object` is one of a cache whose memory outlives the use of the result.
#[inline(always)]
pub(crate) unsafe fn header<'a>(object: *mut u8) -> &'a AtomicU64 {
    // SAFETY: every object has an aligned header before it that is only accessed atomically.
    unsafe { &*object.sub(HEADER).cast::<AtomicU64>() }
}

/// The next object in the same list.
///
/// # Safety
///
/// `object` is a free object of a cache, in a list.
#[inline(always)]
pub(crate) unsafe fn next(object: *mut u8) -> *mut u8 {
    // SAFETY: by the caller's contract. Relaxed: the list's owner has synchronised with the last one.
    ptr::with_exposed_provenance_mut(unsafe { header(object) }.load(Ordering::Relaxed) as usize)
}

/// Marks an object free, followed by `next` in its list, which may be null.
///
/// # Safety
///
/// `object` belongs to the caller.
#[inline(always)]
pub(crate) unsafe fn link(object: *mut u8, next: *mut u8) {
    // SAFETY: by the caller's contract. Relaxed: as in `next`.
    unsafe { header(object) }.store(next.expose_provenance() as u64, Ordering::Relaxed);
}

/// Marks an object allocated, with its birth era.
///
/// # Safety
///
/// `object` belongs to the caller.
#[inline(always)]
pub(crate) unsafe fn stamp(object: *mut u8, birth: u64) {
    // SAFETY: by the caller's contract. Relaxed: the object is published to readers after this.
    unsafe { header(object) }.store(birth << 1 | 1, Ordering::Relaxed);
}

/// The birth era of an allocated object; `None` if it is free.
///
/// # Safety
///
/// `object` is one of a cache whose memory is still mapped.
#[inline(always)]
pub(crate) unsafe fn birth_era(object: *mut u8) -> Option<u64> {
    // SAFETY: by the caller's contract. Relaxed: as in `stamp`.
    let header = unsafe { header(object) }.load(Ordering::Relaxed);
    (header & 1 != 0).then_some(header >> 1)
}

/// A list of objects that one thread at a time changes. Any thread may read its length.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct List {
    head: crate::sync::AtomicPtr<u8>,
    len: AtomicU64,
}

// Relaxed throughout: only the owner changes it; a new owner has synchronised with the last one.
impl List {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// # Safety
    ///
    /// `object` is one of the cache, owned by the caller.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, object: *mut u8) {
        // SAFETY: by the caller's contract.
        unsafe { link(object, self.head.load(Ordering::Relaxed)) };
        self.head.store(object, Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<*mut u8> {
        let object = self.head.load(Ordering::Relaxed);
        if object.is_null() {
            return None;
        }
        // SAFETY: a list contains free objects of the cache.
        self.head.store(unsafe { next(object) }, Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(object)
    }

    /// Removes and returns the whole list, with its length.
    pub(crate) fn take(&self) -> (*mut u8, usize) {
        let all = (self.head.load(Ordering::Relaxed), self.len());
        self.set(std::ptr::null_mut(), 0);
        all
    }

    /// Replaces the list by another of the given length.
    pub(crate) fn set(&self, head: *mut u8, len: usize) {
        self.head.store(head, Ordering::Relaxed);
        self.len.store(len as u64, Ordering::Relaxed);
    }
}
