//! Pages of arenas.

use super::map::map;
use skep_abi::RunEnv;

/// `void *bpf_arena_alloc_pages(void *map, void *addr, u32 page_cnt, int node_id, u64 flags)`.
#[inline]
pub(super) unsafe fn alloc_pages(
    handle: u64,
    address: u64,
    pages: u64,
    node: u64,
    flags: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map.
    unsafe { map(handle) }.arena_alloc_ptr(address, pages as u32, node as i32, flags)
}

/// `void bpf_arena_free_pages(void *map, void *ptr, u32 page_cnt)`.
#[inline]
pub(super) unsafe fn free_pages(handle: u64, address: u64, pages: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map.
    unsafe { map(handle) }.arena_free_ptr(address, pages as u32);
    0
}
