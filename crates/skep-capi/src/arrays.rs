//! Arrays of programs, which tail calls lead to, and maps of maps.

use crate::argument::{bytes, give, name, place, shared};
use crate::load::free;
use crate::module::{arc, give_map};
use crate::status::{Failure, guard};
use skep::{Error, Map, MapArray, MapHash, Module, Program, ProgramArray, Runtime};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// A map whose elements are maps.
#[derive(Debug)]
pub enum OuterMap {
    /// By index.
    Array(MapArray),
    /// By key.
    Hash(MapHash),
}

fn unknown(what: &'static str, name: &str, known: Vec<String>) -> Error {
    Error::Unknown { what, name: name.to_owned(), known }
}

/// A module's array of programs.
///
/// # Safety
///
/// `module` is null or not freed; `wanted` is null or ends in a zero byte; `array` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_program_array(
    module: *const Module,
    wanted: *const c_char,
    array: *mut *mut ProgramArray,
) -> c_int {
    guard(|| {
        let to = place(array, "skep_module_program_array: array")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let module = shared(module, "skep_module_program_array: module")?;
            let name = name(wanted, "skep_module_program_array: name")?;
            let known = || module.maps().iter().filter(|map| module.program_array(map.name()).is_some());
            let known = || known().map(|map| map.name().to_owned()).collect();
            let found = module.program_array(name);
            give(to, found.ok_or_else(|| unknown("array of programs", name, known()))?.clone());
        }
        Ok(())
    })
}

/// How many elements it has, empty ones counted.
///
/// # Safety
///
/// `array` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_array_len(array: *const ProgramArray) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { array.as_ref() }.map_or(0, ProgramArray::len)
}

/// Sets an element.
///
/// # Safety
///
/// `array` is null or not freed; `program` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_array_set(
    array: *const ProgramArray,
    index: u32,
    program: *const Program,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (array, program) = unsafe {
            let program = shared(program, "skep_program_array_set: program")?;
            (shared(array, "skep_program_array_set: array")?, program)
        };
        array.set(index, program)?;
        Ok(())
    })
}

/// Gives the caller the program of an element.
///
/// # Safety
///
/// `array` is null or not freed; `program` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_array_get(
    array: *const ProgramArray,
    index: u32,
    program: *mut *mut Program,
) -> c_int {
    guard(|| {
        let to = place(program, "skep_program_array_get: program")?;
        // SAFETY: the caller's promise.
        let array = unsafe { shared(array, "skep_program_array_get: array")? };
        let empty = || Failure::not_found(array.map().name(), &format!("no program at index {index}"));
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, array.get(index).ok_or_else(empty)?) };
        Ok(())
    })
}

/// Empties an element.
///
/// # Safety
///
/// `array` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_array_remove(array: *const ProgramArray, index: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let array = unsafe { shared(array, "skep_program_array_remove: array")? };
        let empty = || Failure::not_found(array.map().name(), &format!("no program at index {index}"));
        array.remove(index)?.ok_or_else(empty)?;
        Ok(())
    })
}

/// Frees a handle of an array.
///
/// # Safety
///
/// `array` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_array_free(array: *mut ProgramArray) {
    // SAFETY: the caller's promise.
    unsafe { free(array) };
}

/// A module's array or hash table of maps.
///
/// # Safety
///
/// `module` is null or not freed; `wanted` is null or ends in a zero byte; `outer` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_outer_map(
    module: *const Module,
    wanted: *const c_char,
    outer: *mut *mut OuterMap,
) -> c_int {
    guard(|| {
        let to = place(outer, "skep_module_outer_map: outer")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let module = shared(module, "skep_module_outer_map: module")?;
            let name = name(wanted, "skep_module_outer_map: name")?;
            let find = |name: &str| match (module.map_array(name), module.map_hash(name)) {
                (Some(array), _) => Some(OuterMap::Array(array.clone())),
                (None, hash) => hash.cloned().map(OuterMap::Hash),
            };
            let known = || module.maps().iter().filter(|map| find(map.name()).is_some());
            let known = || known().map(|map| map.name().to_owned()).collect();
            give(to, find(name).ok_or_else(|| unknown("map of maps", name, known()))?);
        }
        Ok(())
    })
}

impl OuterMap {
    fn map(&self) -> &Arc<Map> {
        match self {
            Self::Array(array) => array.map(),
            Self::Hash(hash) => hash.map(),
        }
    }

    /// The index that a key is.
    fn index(&self, key: &[u8]) -> Result<u32, Failure> {
        let index = key.try_into().map(u32::from_ne_bytes);
        index.map_err(|_| Failure::argument(format!("map `{}`: its keys have 4 bytes", self.map().name())))
    }
}

/// Makes a map of the shape of the elements.
///
/// # Safety
///
/// `outer` and `runtime` are null or not freed; `map` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_outer_map_new_inner(
    outer: *const OuterMap,
    runtime: *const Runtime,
    map: *mut *mut Map,
) -> c_int {
    guard(|| {
        let to = place(map, "skep_outer_map_new_inner: map")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let outer = shared(outer, "skep_outer_map_new_inner: outer")?.map();
            let runtime = shared(runtime, "skep_outer_map_new_inner: runtime")?;
            let none = || Error::NoInnerShape { map: outer.name().to_owned() };
            let def = outer.def().inner.as_deref().ok_or_else(none)?;
            let options = skep::MapOptions { cpus: runtime.cpus(), limit: runtime.map_memory() };
            give_map(to, Arc::new(Map::create_in(&runtime.memory(), def, &options)?));
        }
        Ok(())
    })
}

/// Sets the map of a key.
///
/// # Safety
///
/// `outer` is null or not freed; `key` is null or readable for `key_size` bytes; `map` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_outer_map_set(
    outer: *const OuterMap,
    key: *const c_void,
    key_size: usize,
    map: *const Map,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (outer, key, map) = unsafe {
            let outer = shared(outer, "skep_outer_map_set: outer")?;
            let key = bytes(key, key_size, "skep_outer_map_set: key")?;
            (outer, key, arc(map, "skep_outer_map_set: map")?)
        };
        match outer {
            OuterMap::Array(array) => drop(array.set(outer.index(key)?, &map)?),
            OuterMap::Hash(hash) => drop(hash.set(key, &map)?),
        }
        Ok(())
    })
}

/// Gives the caller the map of a key.
///
/// # Safety
///
/// `outer` is null or not freed; `key` is null or readable for `key_size` bytes; `map` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_outer_map_get(
    outer: *const OuterMap,
    key: *const c_void,
    key_size: usize,
    map: *mut *mut Map,
) -> c_int {
    guard(|| {
        let to = place(map, "skep_outer_map_get: map")?;
        // SAFETY: the caller's promise.
        let (outer, key) = unsafe {
            let outer = shared(outer, "skep_outer_map_get: outer")?;
            (outer, bytes(key, key_size, "skep_outer_map_get: key")?)
        };
        let found = match outer {
            OuterMap::Array(array) => array.get(outer.index(key)?),
            OuterMap::Hash(hash) => hash.get(key),
        };
        let found = found.ok_or_else(|| Failure::not_found(outer.map().name(), "no such key"))?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give_map(to, found) };
        Ok(())
    })
}

/// Removes the map of a key.
///
/// # Safety
///
/// `outer` is null or not freed; `key` is null or readable for `key_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_outer_map_remove(
    outer: *const OuterMap,
    key: *const c_void,
    key_size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (outer, key) = unsafe {
            let outer = shared(outer, "skep_outer_map_remove: outer")?;
            (outer, bytes(key, key_size, "skep_outer_map_remove: key")?)
        };
        let removed = match outer {
            OuterMap::Array(array) => array.remove(outer.index(key)?)?,
            OuterMap::Hash(hash) => hash.remove(key)?,
        };
        removed.ok_or_else(|| Failure::not_found(outer.map().name(), "no such key"))?;
        Ok(())
    })
}

/// Frees a handle of a map of maps.
///
/// # Safety
///
/// `outer` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_outer_map_free(outer: *mut OuterMap) {
    // SAFETY: the caller's promise.
    unsafe { free(outer) };
}
