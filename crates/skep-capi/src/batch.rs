//! Maps beyond one element: what they are, batches, queues and stacks, freezing.

use crate::argument::{bytes, exclusive, give, place, shared};
use crate::load::free;
use crate::options::{self, Options};
use crate::status::{Failure, guard};
use crate::text::put;
use skep::{BatchCursor, BatchError, Map, MapError, UpdateFlags};
use std::ffi::{c_char, c_int, c_void};

/// `skep_map_info`: what a map is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MapInfo {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Linux's number of its kind.
    pub kind: u64,
    /// Bytes of a key.
    pub key_size: u64,
    /// Bytes of a value of one virtual CPU.
    pub value_size: u64,
    /// The most elements.
    pub max_entries: u64,
    /// Linux's flags.
    pub flags: u64,
    /// Elements now.
    pub len: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// 1 if the host cannot change it.
    pub frozen: u64,
}

// SAFETY: nine words of numbers.
unsafe impl Options for MapInfo {
    const NAME: &'static str = "skep_map_info";
}

/// What a map is.
///
/// # Safety
///
/// `map` is null or valid; `info` is null or writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_info_of(map: *const Map, info: *mut MapInfo) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to both.
        unsafe {
            let map = shared(map, "skep_map_info_of: map")?;
            let def = map.def();
            let found = MapInfo {
                size: 0,
                kind: u64::from(def.kind.number()),
                key_size: def.key_size.into(),
                value_size: def.value_size.into(),
                max_entries: def.max_entries.into(),
                flags: def.flags.0.into(),
                len: map.len().into(),
                memory: map.memory(),
                frozen: map.is_frozen().into(),
            };
            options::write(info, found)
        }
    })
}

/// A map's name. Returns its length.
///
/// # Safety
///
/// `map` is null or valid; `buffer` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_name(map: *const Map, buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's promise, to all.
    unsafe { put(map.as_ref().map_or("", Map::name), buffer, size) }
}

/// Freezes a map: the host cannot change it any more.
///
/// # Safety
///
/// `map` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_freeze(map: *const Map) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        Ok(unsafe { shared(map, "skep_map_freeze: map")? }.freeze()?)
    })
}

/// The position of a walk in batches.
///
/// # Safety
///
/// `cursor` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_cursor_new(cursor: *mut *mut BatchCursor) -> c_int {
    guard(|| {
        let to = place(cursor, "skep_cursor_new: cursor")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, BatchCursor::default()) };
        Ok(())
    })
}

/// Whether a walk is at its end; 1 for null.
///
/// # Safety
///
/// `cursor` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_cursor_at_end(cursor: *const BatchCursor) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { cursor.as_ref() }.is_none_or(BatchCursor::is_at_end).into()
}

/// Frees a cursor.
///
/// # Safety
///
/// `cursor` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_cursor_free(cursor: *mut BatchCursor) {
    // SAFETY: the caller's promise.
    unsafe { free(cursor) };
}

/// The bytes of a list of items of one size.
fn total(count: usize, size: usize, what: &str) -> Result<usize, Failure> {
    let bytes = count.checked_mul(size).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| Failure::argument(format!("{what}: {count} elements exceed the address space")))
}

/// Copies the next elements, at most `*count`.
///
/// # Safety
///
/// `map` is null or valid; `cursor` is null or not freed, and used by nothing else; `keys` and `values` are null or
/// writable for `*count` keys and values of the map; `count` is null or readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_lookup_batch(
    map: *const Map,
    cursor: *mut BatchCursor,
    keys: *mut c_void,
    values: *mut c_void,
    count: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let map = shared(map, "skep_map_lookup_batch: map")?;
            let cursor = exclusive(cursor, "skep_map_lookup_batch: cursor")?;
            let count = place(count, "skep_map_lookup_batch: count")?;
            let most = count.read();
            let (key_size, value_size) = (map.def().key_size as usize, map.host_value_size());
            total(most, key_size, "skep_map_lookup_batch")?;
            total(most, value_size, "skep_map_lookup_batch")?;
            let keys = place(keys, "skep_map_lookup_batch: keys")?.cast::<u8>();
            let values = place(values, "skep_map_lookup_batch: values")?.cast::<u8>();
            let found = map.lookup_batch(cursor, most)?;
            for (at, (key, value)) in found.iter().enumerate() {
                keys.add(at * key_size).copy_from_nonoverlapping(key.as_ptr(), key.len());
                values.add(at * value_size).copy_from_nonoverlapping(value.as_ptr(), value.len());
            }
            count.write(found.len());
        }
        Ok(())
    })
}

fn stopped(error: BatchError, count: &mut usize) -> MapError {
    *count = error.done;
    error.error
}

/// Sets `*count` elements; `*count` is then how many were set.
///
/// # Safety
///
/// `map` is null or valid; `keys` and `values` are null or readable for `*count` keys and values of the map; `count` is
/// null or readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_update_batch(
    map: *const Map,
    keys: *const c_void,
    values: *const c_void,
    count: *mut usize,
    flags: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let map = shared(map, "skep_map_update_batch: map")?;
            let count = exclusive(count, "skep_map_update_batch: count")?;
            let (key_size, value_size) = (map.def().key_size as usize, map.host_value_size());
            keyed(map)?;
            let keys_len = total(*count, key_size, "skep_map_update_batch")?;
            let values_len = total(*count, value_size, "skep_map_update_batch")?;
            let keys = bytes(keys, keys_len, "skep_map_update_batch: keys")?;
            let values = bytes(values, values_len, "skep_map_update_batch: values")?;
            let flags = update_flags(flags, "skep_map_update_batch")?;
            let entries = keys.chunks_exact(key_size).zip(values.chunks_exact(value_size));
            *count = map.update_batch(entries, flags).map_err(|error| stopped(error, count))?;
        }
        Ok(())
    })
}

/// Removes `*count` keys; `*count` is then how many were removed.
///
/// # Safety
///
/// `map` is null or valid; `keys` is null or readable for `*count` keys of the map; `count` is null or readable and
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_delete_batch(
    map: *const Map,
    keys: *const c_void,
    count: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let map = shared(map, "skep_map_delete_batch: map")?;
            let count = exclusive(count, "skep_map_delete_batch: count")?;
            let key_size = map.def().key_size as usize;
            keyed(map)?;
            let len = total(*count, key_size, "skep_map_delete_batch")?;
            let keys = bytes(keys, len, "skep_map_delete_batch: keys")?;
            *count = map.delete_batch(keys.chunks_exact(key_size)).map_err(|error| stopped(error, count))?;
        }
        Ok(())
    })
}

/// Refuses maps whose elements have no keys or no values: there are no lists of nothing.
fn keyed(map: &Map) -> Result<(), Failure> {
    if map.def().key_size > 0 && map.host_value_size() > 0 {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "map `{}`: maps of kind {} have no keys and values",
        map.name(),
        map.kind()
    )))
}

/// Flags of an update.
pub(crate) fn update_flags(flags: u64, function: &str) -> Result<UpdateFlags, Failure> {
    UpdateFlags::from_number(flags).ok_or_else(|| {
        Failure::argument(format!(
            "{function}: flags are {flags:#x}; give SKEP_ANY, SKEP_NOEXIST or SKEP_EXIST, with SKEP_LOCK or without"
        ))
    })
}

/// Copies a value to the caller.
///
/// # Safety
///
/// `value` is null or writable for `size` bytes.
unsafe fn put_value(map: &Map, found: &[u8], value: *mut c_void, size: usize) -> Result<(), Failure> {
    let to = place(value, "value")?;
    crate::map::check_value(map, size)?;
    // SAFETY: not null, and the caller's promise; both have `size` bytes.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(found.as_ptr(), found.len()) };
    Ok(())
}

/// Copies the value of a key, and removes it.
///
/// # Safety
///
/// `map` is null or valid; `key` is null or readable for `key_size` bytes; `value` is null or writable for `value_size`
/// bytes that do not overlap the key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_lookup_and_delete(
    map: *const Map,
    key: *const c_void,
    key_size: usize,
    value: *mut c_void,
    value_size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let map = shared(map, "skep_map_lookup_and_delete: map")?;
            let key = bytes(key, key_size, "skep_map_lookup_and_delete: key")?;
            // What cannot be given must not be removed.
            place(value, "skep_map_lookup_and_delete: value")?;
            crate::map::check_value(map, value_size)?;
            let found = map.lookup_and_delete(key)?;
            let found = found.ok_or_else(|| Failure::not_found(map.name(), "no such key"))?;
            put_value(map, &found, value, value_size)
        }
    })
}

/// Adds a value to a queue, stack or bloom filter.
///
/// # Safety
///
/// `map` is null or valid; `value` is null or readable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_push(
    map: *const Map,
    value: *const c_void,
    size: usize,
    flags: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (map, value) =
            unsafe { (shared(map, "skep_map_push: map")?, bytes(value, size, "skep_map_push: value")?) };
        Ok(map.push(value, update_flags(flags, "skep_map_push")?)?)
    })
}

/// Takes the next value of a queue or stack.
///
/// # Safety
///
/// `map` is null or valid; `value` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_pop(map: *const Map, value: *mut c_void, size: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let map = unsafe { shared(map, "skep_map_pop: map")? };
        // What cannot be given must not be removed.
        place(value, "skep_map_pop: value")?;
        crate::map::check_value(map, size)?;
        let found = map.pop()?.ok_or_else(|| Failure::not_found(map.name(), "it is empty"))?;
        // SAFETY: the caller's promise.
        unsafe { put_value(map, &found, value, size) }
    })
}

/// Copies the next value of a queue or stack.
///
/// # Safety
///
/// As for [`skep_map_pop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_peek(map: *const Map, value: *mut c_void, size: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let map = unsafe { shared(map, "skep_map_peek: map")? };
        let found = map.peek()?.ok_or_else(|| Failure::not_found(map.name(), "it is empty"))?;
        // SAFETY: as above.
        unsafe { put_value(map, &found, value, size) }
    })
}

/// Whether a bloom filter has a value.
///
/// # Safety
///
/// `map` is null or valid; `value` is null or readable for `size` bytes; `has` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_contains(
    map: *const Map,
    value: *const c_void,
    size: usize,
    has: *mut c_int,
) -> c_int {
    guard(|| {
        let to = place(has, "skep_map_contains: has")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let value = bytes(value, size, "skep_map_contains: value")?;
            to.write(shared(map, "skep_map_contains: map")?.contains(value)?.into());
        }
        Ok(())
    })
}
