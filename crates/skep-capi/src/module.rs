//! What a module has: programs, maps and variables, by name and by index; handles that outlive it; upgrades.

use crate::argument::{bytes, give, name, place, shared};
use crate::load::free;
use crate::options::{self, Options};
use crate::status::{Failure, guard};
use crate::text::{give_text, put};
use skep::{Error, Map, Module, Object, Program};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// Finds a program. It belongs to the module.
///
/// # Safety
///
/// `module` is null or not freed; `wanted` is null or ends in a zero byte; `program` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_program(
    module: *const Module,
    wanted: *const c_char,
    program: *mut *const Program,
) -> c_int {
    guard(|| {
        let to = place(program, "skep_module_program: program")?;
        // SAFETY: the caller's promise.
        let (module, name) = unsafe {
            (shared(module, "skep_module_program: module")?, name(wanted, "skep_module_program: name")?)
        };
        let found = module.program(name).ok_or_else(|| Error::Unknown {
            what: "program",
            name: name.to_owned(),
            known: module.programs().iter().map(|program| program.name().to_owned()).collect(),
        })?;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(found) };
        Ok(())
    })
}

/// Finds a map. It belongs to the module.
///
/// # Safety
///
/// `module` is null or not freed; `wanted` is null or ends in a zero byte; `map` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_map(
    module: *const Module,
    wanted: *const c_char,
    map: *mut *const Map,
) -> c_int {
    guard(|| {
        let to = place(map, "skep_module_map: map")?;
        // SAFETY: the caller's promise.
        let (module, name) =
            unsafe { (shared(module, "skep_module_map: module")?, name(wanted, "skep_module_map: name")?) };
        let found = module.map(name).ok_or_else(|| Error::Unknown {
            what: "map",
            name: name.to_owned(),
            known: module.maps().iter().map(|map| map.name().to_owned()).collect(),
        })?;
        // SAFETY: not null, and the caller's promise. The module holds the `Arc` from which the address comes.
        unsafe { to.write(Arc::as_ptr(found)) };
        Ok(())
    })
}

/// How many programs a module has.
///
/// # Safety
///
/// `module` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_program_count(module: *const Module) -> usize {
    // SAFETY: the caller's promise.
    unsafe { module.as_ref() }.map_or(0, |module| module.programs().len())
}

/// The program of that index, or null. It belongs to the module.
///
/// # Safety
///
/// `module` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_program_at(module: *const Module, index: usize) -> *const Program {
    // SAFETY: the caller's promise.
    let found = unsafe { module.as_ref() }.and_then(|module| module.programs().get(index));
    found.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// How many maps a module has.
///
/// # Safety
///
/// `module` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_map_count(module: *const Module) -> usize {
    // SAFETY: the caller's promise.
    unsafe { module.as_ref() }.map_or(0, |module| module.maps().len())
}

/// The map of that index, or null. It belongs to the module.
///
/// # Safety
///
/// `module` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_map_at(module: *const Module, index: usize) -> *const Map {
    // SAFETY: the caller's promise.
    let found = unsafe { module.as_ref() }.and_then(|module| module.maps().get(index));
    found.map_or(std::ptr::null(), Arc::as_ptr)
}

/// `skep_variable`: what is known of a global variable.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VariableInfo {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Bytes of the variable.
    pub bytes: u64,
    /// 1 if programs can only read it.
    pub read_only: u64,
}

// SAFETY: three words of numbers.
unsafe impl Options for VariableInfo {
    const NAME: &'static str = "skep_variable";
}

/// How many global variables a module has.
///
/// # Safety
///
/// `module` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_variable_count(module: *const Module) -> usize {
    // SAFETY: the caller's promise.
    unsafe { module.as_ref() }.map_or(0, |module| module.variables().len())
}

/// The name of the variable of that index, and what is known of it.
///
/// # Safety
///
/// `module` is null or not freed; `buffer` is null or writable for `size` bytes; `info` is null or writable for the
/// size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_variable_at(
    module: *const Module,
    index: usize,
    buffer: *mut c_char,
    size: usize,
    info: *mut VariableInfo,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let variables = shared(module, "skep_module_variable_at: module")?.variables();
            let beyond = || Failure::missing(format!("variable {index}: the module has {}", variables.len()));
            let variable = variables.get(index).ok_or_else(beyond)?;
            if !info.is_null() {
                let (bytes, read_only) = (variable.size as u64, u64::from(variable.read_only));
                options::write(info, VariableInfo { size: 0, bytes, read_only })?;
            }
            put(&variable.name, buffer, size);
        }
        Ok(())
    })
}

/// How many programs an object has.
///
/// # Safety
///
/// `object` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_object_program_count(object: *const Object) -> usize {
    // SAFETY: the caller's promise.
    unsafe { object.as_ref() }.map_or(0, |object| object.programs().len())
}

/// The name of the program of that index. Returns its length, 0 beyond the end.
///
/// # Safety
///
/// `object` is null or not freed; `buffer` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_object_program_at(
    object: *const Object,
    index: usize,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller's promise, to all.
    unsafe {
        let programs = object.as_ref().map(Object::programs).unwrap_or_default();
        put(programs.get(index).copied().unwrap_or_default(), buffer, size)
    }
}

/// Copies the bytes of a global variable.
///
/// # Safety
///
/// `module` is null or not freed; `wanted` is null or ends in a zero byte; `value` is null or writable for `size`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_variable(
    module: *const Module,
    wanted: *const c_char,
    value: *mut c_void,
    size: usize,
) -> c_int {
    guard(|| {
        let to = place(value, "skep_module_variable: value")?.cast::<u8>();
        // SAFETY: the caller's promise.
        let (module, name) = unsafe {
            (shared(module, "skep_module_variable: module")?, name(wanted, "skep_module_variable: name")?)
        };
        let found = module.variable(name)?;
        if found.len() != size {
            let text = format!("skep_module_variable: {name} has {} bytes, not {size}", found.len());
            return Err(Failure::argument(text));
        }
        // SAFETY: the caller's promise; both have `size` bytes.
        unsafe { to.copy_from_nonoverlapping(found.as_ptr(), size) };
        Ok(())
    })
}

/// Sets a global variable, and nothing else, while programs run.
///
/// # Safety
///
/// `module` is null or not freed; `wanted` is null or ends in a zero byte; `value` is null or readable for `size`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_set_variable(
    module: *const Module,
    wanted: *const c_char,
    value: *const c_void,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (module, name, value) = unsafe {
            let module = shared(module, "skep_module_set_variable: module")?;
            let name = name(wanted, "skep_module_set_variable: name")?;
            (module, name, bytes(value, size, "skep_module_set_variable: value")?)
        };
        Ok(module.set_variable(name, value)?)
    })
}

/// A handle of a program that does not depend on its module.
///
/// # Safety
///
/// `program` is null or valid; `held` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_hold(program: *const Program, held: *mut *mut Program) -> c_int {
    guard(|| {
        let to = place(held, "skep_program_hold: held")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, shared(program, "skep_program_hold: program")?.clone()) };
        Ok(())
    })
}

/// Frees a handle of a program that the caller has.
///
/// # Safety
///
/// `program` is null, or from a function that gives it to the caller and not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_free(program: *mut Program) {
    // SAFETY: the caller's promise.
    unsafe { free(program) };
}

/// A program's name. Returns its length.
///
/// # Safety
///
/// `program` is null or valid; `buffer` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_name(
    program: *const Program,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller's promise, to all.
    unsafe { put(program.as_ref().map_or("", Program::name), buffer, size) }
}

/// The name of a program's type. Returns its length.
///
/// # Safety
///
/// `program` is null or valid; `buffer` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_type(
    program: *const Program,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller's promise, to all.
    unsafe { put(program.as_ref().map_or("", |program| program.program_type().name), buffer, size) }
}

/// A handle of a map that does not depend on its module.
///
/// # Safety
///
/// `map` is null or valid; `held` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_hold(map: *const Map, held: *mut *mut Map) -> c_int {
    guard(|| {
        let to = place(held, "skep_map_hold: held")?;
        // SAFETY: the caller's promise; freed by `skep_map_free`.
        unsafe { give_map(to, arc(map, "skep_map_hold: map")?) };
        Ok(())
    })
}

/// Frees a handle of a map that the caller has.
///
/// # Safety
///
/// `map` is null, or from a function that gives it to the caller and not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_map_free(map: *mut Map) {
    if !map.is_null() {
        guard(|| {
            // SAFETY: the caller's promise; it is from `give_map`.
            drop(unsafe { Arc::from_raw(map.cast_const()) });
            Ok(())
        });
    }
}

/// Another reference to a required map. Each `skep_map` is the address of a map in an `Arc`.
///
/// # Safety
///
/// Null or valid.
pub(crate) unsafe fn arc(map: *const Map, what: &str) -> Result<Arc<Map>, Failure> {
    // SAFETY: the caller's promise: somebody holds the `Arc` from which the address comes.
    unsafe {
        shared(map, what)?;
        Arc::increment_strong_count(map);
        Ok(Arc::from_raw(map))
    }
}

/// Gives the caller a map of its own.
///
/// # Safety
///
/// `to` is writable.
pub(crate) unsafe fn give_map(to: *mut *mut Map, map: Arc<Map>) {
    // SAFETY: the caller's promise.
    unsafe { to.write(Arc::into_raw(map).cast_mut()) };
}

/// Copies the state of an older module.
///
/// # Safety
///
/// `module` and `old` are null or not freed; `report` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_migrate(
    module: *const Module,
    old: *const Module,
    report: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (module, old) = unsafe {
            (shared(module, "skep_module_migrate: module")?, shared(old, "skep_module_migrate: old")?)
        };
        let done = module.migrate_from(old)?;
        if !report.is_null() {
            let mut lines: Vec<String> = done
                .copied
                .iter()
                .map(|(map, elements)| format!("copied map {map}: {elements} elements\n"))
                .collect();
            lines.extend(done.variables.iter().map(|name| format!("copied variable {name}\n")));
            lines.extend(done.dropped.iter().map(|what| format!("dropped {what}\n")));
            lines.extend(done.added.iter().map(|what| format!("added {what}\n")));
            // SAFETY: not null, and the caller's promise.
            unsafe { give_text(report, &lines.concat()) };
        }
        Ok(())
    })
}
