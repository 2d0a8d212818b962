//! Look-up, update and delete; push, pop and peek.
//!
//! The first three need a read-side critical section. A sleepable run may be in none, and then enters one for the
//! call.

use super::sections::section;
use skep_abi::RunEnv;
use skep_maps::Map;

/// The map behind a handle.
///
/// # Safety
///
/// `handle` is the result of [`Map::link`] for a map that outlives the run: programs keep their maps alive.
pub(super) unsafe fn map<'a>(handle: u64) -> &'a Map {
    // SAFETY: the caller's promise.
    unsafe { &*(handle as *const Map) }
}

/// Slow path: does something for a run that may be in no section. A separate function, so that the fast path saves
/// no registers for it.
///
/// # Safety
///
/// As for [`section`].
#[cold]
#[inline(never)]
unsafe fn inside(env: *mut RunEnv, work: impl FnOnce(u32) -> u64) -> u64 {
    // SAFETY: by contract, both.
    unsafe {
        let _section = section(env);
        work((*env).cpu)
    }
}

/// `s64 bpf_map_sum_elem_count(const struct bpf_map *map)`. Kinds that do not count their elements say 0, as in Linux.
#[inline]
pub(super) unsafe fn sum_elem_count(handle: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map.
    let map = unsafe { map(handle) };
    if map.kind().counts_elements() { map.len().into() } else { 0 }
}

#[inline]
pub(super) unsafe fn lookup_elem(handle: u64, key: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map and `key` is readable for its key size; `env` is this
    // run's.
    unsafe {
        if (*env).sleepable != 0 {
            return inside(env, move |cpu| map(handle).lookup_ptr(key as *const u8, cpu) as u64);
        }
        map(handle).lookup_ptr(key as *const u8, (*env).cpu) as u64
    }
}

/// `bpf_map_lookup_percpu_elem`: the value of another CPU.
#[inline]
pub(super) unsafe fn lookup_percpu_elem(handle: u64, key: u64, cpu: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe {
        let _section = section(env);
        map(handle).lookup_percpu_ptr(key as *const u8, cpu as u32, (*env).cpu) as u64
    }
}

#[inline]
pub(super) unsafe fn update_elem(handle: u64, key: u64, value: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let (from, value) = (key as *const u8, value as *const u8);
    // SAFETY: as above, and `value` is readable for the map's value size.
    unsafe {
        if (*env).sleepable != 0 {
            return inside(env, move |cpu| map(handle).update_ptr(from, value, flags, cpu) as u64);
        }
        map(handle).update_ptr(from, value, flags, (*env).cpu) as u64
    }
}

#[inline]
pub(super) unsafe fn delete_elem(handle: u64, key: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as for look-up.
    unsafe {
        if (*env).sleepable != 0 {
            return inside(env, move |cpu| map(handle).delete_ptr(key as *const u8, cpu) as u64);
        }
        map(handle).delete_ptr(key as *const u8, (*env).cpu) as u64
    }
}

#[inline]
pub(super) unsafe fn push_elem(handle: u64, value: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map and `value` is readable for its value size.
    unsafe { map(handle).push_ptr(value as *const u8, flags) as u64 }
}

#[inline]
pub(super) unsafe fn pop_elem(handle: u64, value: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map and `value` is writable for its value size.
    unsafe { map(handle).pop_ptr(value as *mut u8) as u64 }
}

#[inline]
pub(super) unsafe fn peek_elem(handle: u64, value: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above; a bloom filter only reads the value.
    unsafe { map(handle).peek_ptr(value as *mut u8) as u64 }
}
