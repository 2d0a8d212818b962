//! Objects of the system's allocator, for the policy that has no cache.

use std::alloc::{Layout, alloc as allocate, dealloc};

use crate::layout::CacheLayout;
use crate::object::HEADER;

/// An object, with its header before it, or nothing.
pub(crate) fn alloc(layout: &CacheLayout) -> Option<*mut u8> {
    // SAFETY: the layout has at least a header, so it is not empty.
    let start = unsafe { allocate(system_layout(layout)?) };
    // SAFETY: the layout has the object there.
    (!start.is_null()).then(|| unsafe { start.add(layout.first) }).inspect(|object| {
        // Lists keep addresses.
        object.expose_provenance();
    })
}

/// Frees one.
///
/// # Safety
///
/// `object` is from `alloc` with the same layout, and nobody's.
pub(crate) unsafe fn free(layout: &CacheLayout, object: *mut u8) {
    let Some(system) = system_layout(layout) else { return };
    // SAFETY: allocated with this layout; by contract.
    unsafe { dealloc(object.sub(layout.first), system) };
}

fn system_layout(layout: &CacheLayout) -> Option<Layout> {
    Layout::from_size_align(layout.first + layout.stride - HEADER, layout.align).ok()
}
