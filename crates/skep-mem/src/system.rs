//! Objects of the system's allocator, for the policy that has no cache.

use std::alloc::{Layout, alloc as allocate, dealloc};

use crate::object::HEADER;
use crate::store::Shape;

/// An object, with its header before it, or nothing.
pub(crate) fn alloc(shape: &Shape) -> Option<*mut u8> {
    // SAFETY: the layout has at least a header, so it is not empty.
    let start = unsafe { allocate(layout(shape)?) };
    // SAFETY: the layout has the object there.
    (!start.is_null()).then(|| unsafe { start.add(shape.first) }).inspect(|object| {
        // Lists keep addresses.
        object.expose_provenance();
    })
}

/// Frees one.
///
/// # Safety
///
/// `object` is from `alloc` with the same shape, and nobody's.
pub(crate) unsafe fn free(shape: &Shape, object: *mut u8) {
    let Some(layout) = layout(shape) else { return };
    // SAFETY: allocated with this layout; by contract.
    unsafe { dealloc(object.sub(shape.first), layout) };
}

fn layout(shape: &Shape) -> Option<Layout> {
    Layout::from_size_align(shape.first + shape.stride - HEADER, shape.align).ok()
}
