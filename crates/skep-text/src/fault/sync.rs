//! The atomics of the index. A model (`models/tests/fault.rs`) replaces them by loom's.

use std::alloc::{Layout, alloc_zeroed};
pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// `N` null pointers, or `None` if there is no memory. Most allocators take large blocks from the system, which
/// commits them as they are touched.
pub(super) fn null_pointers<T, const N: usize>() -> Option<Box<[AtomicPtr<T>; N]>> {
    const { assert!(N > 0) };
    // SAFETY: the layout is not empty.
    let pointers = unsafe { alloc_zeroed(Layout::new::<[AtomicPtr<T>; N]>()) };
    // SAFETY: the layout that the box will free it with; zeros are null pointers.
    (!pointers.is_null()).then(|| unsafe { Box::from_raw(pointers.cast()) })
}
