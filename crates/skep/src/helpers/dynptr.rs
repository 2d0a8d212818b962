//! Dynptrs: pointers to memory whose size is known only at run time. A `struct bpf_dynptr` is in the program's
//! stack.
//!
//! ```text
//!   0  address of the first byte u64, 0 for a view of nothing | 8  bytes u64
//! ```
//!
//! The verifier lets only calls access it, and proves that a record behind one is released exactly once.

use super::errno::{E2BIG, EINVAL};
use super::map::map;
use skep_abi::RunEnv;
use skep_maps::Map;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The most bytes of one dynptr, as in Linux.
const MOST: u64 = (1 << 24) - 1;

#[repr(C)]
pub(super) struct Dynptr {
    data: u64,
    bytes: u64,
}

impl Dynptr {
    const NOTHING: Self = Self { data: 0, bytes: 0 };

    /// Of memory that a helper lends to a function.
    pub(super) fn over(data: *mut u8, bytes: u64) -> Self {
        Self { data: data.expose_provenance() as u64, bytes }
    }

    /// The address of a part, if the part is within bounds.
    fn part(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| self.data + offset)
    }
}

/// Copies bytes one by one. Other threads may write them, and the ranges may overlap.
///
/// # Safety
///
/// Both are valid for that many bytes.
unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: by contract; bytes are always aligned.
    let one = |at: u64| unsafe {
        let byte = (*((from + at) as *const AtomicU8)).load(Relaxed);
        (*((to + at) as *const AtomicU8)).store(byte, Relaxed);
    };
    if from < to { (0..bytes).rev().for_each(one) } else { (0..bytes).for_each(one) }
}

#[inline]
pub(super) unsafe fn from_mem(data: u64, bytes: u64, flags: u64, out: u64, _: *mut RunEnv) -> u64 {
    let (dynptr, result) = match (flags, bytes) {
        (0, 0..=MOST) => (Dynptr { data, bytes }, 0),
        (0, _) => (Dynptr::NOTHING, E2BIG),
        _ => (Dynptr::NOTHING, EINVAL),
    };
    // SAFETY: the verifier proved that `out` is room for a dynptr in the stack, and that `data` has that size and
    // stays valid.
    unsafe { (out as *mut Dynptr).write(dynptr) };
    result
}

#[inline]
pub(super) unsafe fn ringbuf_reserve(handle: u64, bytes: u64, flags: u64, out: u64, _: *mut RunEnv) -> u64 {
    // Only the lower 32 bits count.
    let bytes = u64::from(bytes as u32);
    let (dynptr, result) = if flags != 0 {
        (Dynptr::NOTHING, EINVAL)
    } else if bytes > MOST {
        (Dynptr::NOTHING, E2BIG)
    } else {
        // SAFETY: the verifier proved that `handle` is a map.
        let record = unsafe { map(handle).ring_reserve_ptr(bytes, 0) };
        match record.is_null() {
            true => (Dynptr::NOTHING, EINVAL),
            false => (Dynptr { data: record.expose_provenance() as u64, bytes }, 0),
        }
    };
    // SAFETY: the verifier proved that `out` is room for a dynptr in the stack.
    unsafe { (out as *mut Dynptr).write(dynptr) };
    result
}

/// Releases the record behind a dynptr, if there is one, by submitting or discarding it. The dynptr is null
/// afterwards.
///
/// # Safety
///
/// `dynptr` is the address of a dynptr that the verifier proved to be over a record, or null, and to be released
/// once. `how` is one of the two functions of [`Map`] that release records.
unsafe fn give_back(dynptr: u64, flags: u64, how: unsafe fn(*mut u8, u64)) -> u64 {
    // SAFETY: by contract.
    unsafe {
        let taken = (dynptr as *mut Dynptr).replace(Dynptr::NOTHING);
        if taken.data != 0 {
            how(taken.data as *mut u8, flags);
        }
    }
    0
}

#[inline]
pub(super) unsafe fn ringbuf_submit(dynptr: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is over a record, or null, and is released once.
    unsafe { give_back(dynptr, flags, Map::ring_submit_ptr) }
}

#[inline]
pub(super) unsafe fn ringbuf_discard(dynptr: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { give_back(dynptr, flags, Map::ring_discard_ptr) }
}

#[inline]
pub(super) unsafe fn read(to: u64, bytes: u64, dynptr: u64, offset: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // Only the lower 32 bits count, also in the functions below.
    let (offset, bytes) = (u64::from(offset as u32), u64::from(bytes as u32));
    // SAFETY: the verifier proved that it is initialised.
    let dynptr = unsafe { &*(dynptr as *const Dynptr) };
    let part = dynptr.part(offset, bytes);
    match part.filter(|_| dynptr.data != 0 && flags == 0) {
        // SAFETY: the part is within bounds, and the verifier proved that `to` has room.
        Some(part) => unsafe { copy(part, to, bytes) },
        None => {
            // The program takes the destination for written.
            // SAFETY: as above.
            unsafe { (to as *mut u8).write_bytes(0, bytes as usize) };
            return if dynptr.data == 0 || flags != 0 { EINVAL } else { E2BIG };
        }
    }
    0
}

#[inline]
pub(super) unsafe fn write(
    dynptr: u64,
    offset: u64,
    from: u64,
    bytes: u64,
    flags: u64,
    _: *mut RunEnv,
) -> u64 {
    let (offset, bytes) = (u64::from(offset as u32), u64::from(bytes as u32));
    // SAFETY: the verifier proved that it is initialised; no dynptr of this runtime is read-only.
    let dynptr = unsafe { &*(dynptr as *const Dynptr) };
    if dynptr.data == 0 {
        return EINVAL;
    }
    let Some(part) = dynptr.part(offset, bytes) else { return E2BIG };
    // Checked in this order, unlike in `read`, as in Linux.
    if flags != 0 {
        return EINVAL;
    }
    // SAFETY: the part is within bounds, and the verifier proved that `from` is readable.
    unsafe { copy(from, part, bytes) };
    0
}

#[inline]
pub(super) unsafe fn data(dynptr: u64, offset: u64, bytes: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is initialised.
    let dynptr = unsafe { &*(dynptr as *const Dynptr) };
    let part = dynptr.part(u64::from(offset as u32), u64::from(bytes as u32));
    part.filter(|_| dynptr.data != 0).unwrap_or(0)
}
