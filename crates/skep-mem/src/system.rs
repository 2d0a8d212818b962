//! Objects of the system's allocator, for [`Policy::None`](crate::Policy::None).

use std::alloc::{Layout, alloc as allocate, dealloc};

use crate::layout::CacheLayout;
use crate::object::HEADER;

/// Allocates an object with its header before it.
pub(crate) fn alloc(layout: &CacheLayout) -> Option<*mut u8> {
    // SAFETY: the layout has at least a header, so it is not empty.
    let start = unsafe { allocate(system_layout(layout)?) };
    // SAFETY: the layout has the object at this offset.
    (!start.is_null()).then(|| unsafe { start.add(layout.first) }).inspect(|object| {
        // Exposed, because lists store addresses.
        object.expose_provenance();
    })
}

/// Frees an object.
///
/// # Safety
///
/// `object` is from `alloc` with the same layout, and no reader or owner has it.
pub(crate) unsafe fn free(layout: &CacheLayout, object: *mut u8) {
    let Some(system) = system_layout(layout) else { return };
    // SAFETY: allocated with this layout, by the caller's contract.
    unsafe { dealloc(object.sub(layout.first), system) };
}

fn system_layout(layout: &CacheLayout) -> Option<Layout> {
    Layout::from_size_align(layout.first + layout.stride - HEADER, layout.align).ok()
}
