//! Maps as the host reads and changes them, while programs run.

use crate::argument::{bytes, bytes_mut, place, shared};
use crate::batch::update_flags;
use crate::status::{Failure, guard};
use skep::{Map, MapError};
use std::ffi::{c_int, c_void};

/// Size of a key in bytes; 0 if `map` is null.
///
/// # Safety
///
/// `map` is null or of a module that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_key_size(map: *const Map) -> usize {
    // SAFETY: the caller's promise.
    unsafe { map.as_ref() }.map_or(0, |map| map.def().key_size as usize)
}

/// Size of a value in bytes as the host reads and writes it, for per-CPU kinds over all CPUs; 0 if `map` is null.
///
/// # Safety
///
/// `map` is null or of a module that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_value_size(map: *const Map) -> usize {
    // SAFETY: the caller's promise.
    unsafe { map.as_ref() }.map_or(0, Map::host_value_size)
}

/// Copies the value of a key.
///
/// # Safety
///
/// `map` is null or of a module that is not freed; `key` is null or readable for `key_size` bytes; `value` is
/// null or writable for `value_size` bytes that do not overlap the key and that nothing else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_lookup(
    map: *const Map,
    key: *const c_void,
    key_size: usize,
    value: *mut c_void,
    value_size: usize,
) -> c_int {
    guard(|| {
        let value = place(value, "skep_map_lookup: value")?;
        // SAFETY: the caller's promise.
        let (map, key) =
            unsafe { (shared(map, "skep_map_lookup: map")?, bytes(key, key_size, "skep_map_lookup: key")?) };
        check_value(map, value_size)?;
        // SAFETY: the caller's promise. C need not have initialised the bytes, so they are zeroed first.
        let value = unsafe {
            value.cast::<u8>().write_bytes(0, value_size);
            bytes_mut(value, value_size, "skep_map_lookup: value")?
        };
        let found = map.lookup_into(key, value)?;
        if found { Ok(()) } else { Err(Failure::not_found(map.name(), "no such key")) }
    })
}

/// Sets the value of a key.
///
/// # Safety
///
/// `map` is null or of a module that is not freed; `key` is null or readable for `key_size` bytes; `value` is
/// null or readable for `value_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_update(
    map: *const Map,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    flags: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (map, key, value) = unsafe {
            let map = shared(map, "skep_map_update: map")?;
            let key = bytes(key, key_size, "skep_map_update: key")?;
            (map, key, bytes(value, value_size, "skep_map_update: value")?)
        };
        let flags = update_flags(flags, "skep_map_update")?;
        Ok(map.update(key, value, flags)?)
    })
}

/// Removes a key.
///
/// # Safety
///
/// `map` is null or of a module that is not freed; `key` is null or readable for `key_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_delete(map: *const Map, key: *const c_void, key_size: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (map, key) =
            unsafe { (shared(map, "skep_map_delete: map")?, bytes(key, key_size, "skep_map_delete: key")?) };
        Ok(map.delete(key)?)
    })
}

/// Copies the key that follows `key`, or the first one if `key` is null.
///
/// # Safety
///
/// `map` is null or of a module that is not freed; `key` is null or readable, and `next` null or writable, for
/// `key_size` bytes; they may be the same place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_next_key(
    map: *const Map,
    key: *const c_void,
    next: *mut c_void,
    key_size: usize,
) -> c_int {
    guard(|| {
        let to = place(next, "skep_map_next_key: next")?.cast::<u8>();
        // SAFETY: the caller's promise.
        let map = unsafe { shared(map, "skep_map_next_key: map")? };
        check_key(map, key_size)?;
        let after = if key.is_null() {
            None
        } else {
            // SAFETY: the caller's promise. The slice is not used after `next` is written.
            Some(unsafe { bytes(key, key_size, "skep_map_next_key: key")? })
        };
        let found = map.next_key(after)?.ok_or_else(|| Failure::not_found(map.name(), "no further key"))?;
        // SAFETY: the caller's promise: a key has `key_size` bytes. `found` is a copy and does not overlap `next`.
        unsafe { to.copy_from_nonoverlapping(found.as_ptr(), found.len()) };
        Ok(())
    })
}

fn check_key(map: &Map, given: usize) -> Result<(), MapError> {
    let key_size = map.def().key_size;
    if given == key_size as usize {
        return Ok(());
    }
    Err(MapError::KeyLength { map: map.name().to_owned(), key_size, given })
}

/// Checked before anything is written, so a wrong size has no effect.
pub(crate) fn check_value(map: &Map, given: usize) -> Result<(), Failure> {
    let wanted = map.host_value_size();
    if given == wanted {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "map `{}`: the value has {given} bytes instead of {wanted}; call skep_map_value_size",
        map.name()
    )))
}
