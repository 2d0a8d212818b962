//! Records of ring buffers.

use super::map::map;
use skep_abi::RunEnv;
use skep_maps::Map;

#[inline]
pub(super) unsafe fn output(handle: u64, data: u64, bytes: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map, and `data` is readable for `bytes`.
    unsafe { map(handle).ring_output_ptr(data as *const u8, bytes, flags) as u64 }
}

#[inline]
pub(super) unsafe fn reserve(handle: u64, bytes: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map.
    unsafe { map(handle).ring_reserve_ptr(bytes, flags).expose_provenance() as u64 }
}

#[inline]
pub(super) unsafe fn submit(record: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it comes from `reserve`, is released once and not accessed afterwards; its
    // map lives as long as the run.
    unsafe { Map::ring_submit_ptr(record as *mut u8, flags) };
    0
}

#[inline]
pub(super) unsafe fn discard(record: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { Map::ring_discard_ptr(record as *mut u8, flags) };
    0
}

#[inline]
pub(super) unsafe fn query(handle: u64, what: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map.
    unsafe { map(handle).ring_query(what) }
}
