//! Look-up, update and delete.

use skep_abi::RunEnv;
use skep_maps::Map;

/// The map behind a handle.
///
/// # Safety
///
/// `handle` is what [`Map::link`] gave for a map that outlives the run: programs hold their maps.
pub(super) unsafe fn map<'a>(handle: u64) -> &'a Map {
    // SAFETY: the caller's promise.
    unsafe { &*(handle as *const Map) }
}

pub(super) unsafe extern "C" fn lookup_elem(
    handle: u64,
    key: u64,
    _: u64,
    _: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved `handle` a map and `key` readable for its key size; `env` is this run's.
    unsafe { map(handle).lookup_ptr(key as *const u8, (*env).cpu) as u64 }
}

pub(super) unsafe extern "C" fn update_elem(
    handle: u64,
    key: u64,
    value: u64,
    flags: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: as above, and `value` readable for the map's value size.
    unsafe { map(handle).update_ptr(key as *const u8, value as *const u8, flags, (*env).cpu) as u64 }
}

pub(super) unsafe extern "C" fn delete_elem(
    handle: u64,
    key: u64,
    _: u64,
    _: u64,
    _: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: as for look-up.
    unsafe { map(handle).delete_ptr(key as *const u8) as u64 }
}
