//! The word before each object, which is the cache's.
//!
//! ```text
//!   | header | the user's bytes ...        |
//!     odd: handed out; the time at which it was made, times two, plus one
//!     even: free; the address of the next object of the list, or 0
//! ```
//!
//! The user's bytes are never touched while an object is free: who still reads it finds what its last owner left.

use std::ptr;

use crate::sync::{AtomicU64, Ordering};

/// Bytes before each object.
pub(crate) const HEADER: usize = size_of::<u64>();

/// # Safety
///
/// `object` is one of a cache whose memory outlives the result's use.
#[inline(always)]
pub(crate) unsafe fn header<'a>(object: *mut u8) -> &'a AtomicU64 {
    // SAFETY: objects have a header before them, aligned, that is only ever accessed atomically.
    unsafe { &*object.sub(HEADER).cast::<AtomicU64>() }
}

/// The next object of the list that this one is in.
///
/// # Safety
///
/// `object` is a free object of a cache, in a list.
#[inline(always)]
pub(crate) unsafe fn next(object: *mut u8) -> *mut u8 {
    // SAFETY: by contract. Relaxed: whoever has the list got it with what is in it.
    ptr::with_exposed_provenance_mut(unsafe { header(object) }.load(Ordering::Relaxed) as usize)
}

/// Makes an object free, with the next one of its list, or null.
///
/// # Safety
///
/// `object` belongs to the caller.
#[inline(always)]
pub(crate) unsafe fn link(object: *mut u8, next: *mut u8) {
    // SAFETY: by contract. Relaxed: as in `next`.
    unsafe { header(object) }.store(next.expose_provenance() as u64, Ordering::Relaxed);
}

/// Makes an object handed out, made at that time.
///
/// # Safety
///
/// `object` belongs to the caller.
#[inline(always)]
pub(crate) unsafe fn stamp(object: *mut u8, birth: u64) {
    // SAFETY: by contract. Relaxed: readers get the object by a publication that comes after this.
    unsafe { header(object) }.store(birth << 1 | 1, Ordering::Relaxed);
}

/// When it was made; `None` where it is free.
///
/// # Safety
///
/// `object` is one of a cache whose memory is there.
#[inline(always)]
pub(crate) unsafe fn birth_era(object: *mut u8) -> Option<u64> {
    // SAFETY: by contract. Relaxed: as in `stamp`.
    let header = unsafe { header(object) }.load(Ordering::Relaxed);
    (header & 1 != 0).then_some(header >> 1)
}

/// A list of objects, which one thread at a time changes and all may ask for its length.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct List {
    head: crate::sync::AtomicPtr<u8>,
    len: AtomicU64,
}

// Relaxed throughout: the owner's; whoever takes a list over has synchronised with the last owner.
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
    /// `object` is the caller's, of the cache.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, object: *mut u8) {
        // SAFETY: by contract.
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
        // SAFETY: what is in a list is a free object of the cache.
        self.head.store(unsafe { next(object) }, Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(object)
    }

    /// Takes all of it.
    pub(crate) fn take(&self) -> (*mut u8, usize) {
        let all = (self.head.load(Ordering::Relaxed), self.len());
        self.set(std::ptr::null_mut(), 0);
        all
    }

    /// Replaces it by another, whose length is given.
    pub(crate) fn set(&self, head: *mut u8, len: usize) {
        self.head.store(head, Ordering::Relaxed);
        self.len.store(len as u64, Ordering::Relaxed);
    }
}
