//! Loads with choices: which programs, of which type, with which maps, sizes, variables, tenant and log.
//!
//! Invariant: a linker keeps what it was given, so objects, modules and maps may be freed in any order.

use crate::argument::{bytes, exclusive, give, name, place, shared};
use crate::load::free;
use crate::module::arc;
use crate::status::{Failure, guard};
use crate::tenant::Quotas;
use crate::text::c_string;
use crate::user::{DropFn, User};
use skep::{Map, Module, Object, Runtime, Tenant};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// Receives a line of the verifier's log, without its line end.
pub type LineFn = Option<unsafe extern "C" fn(*mut c_void, *const c_char)>;

/// A line's receiver and its context.
type Lines = (unsafe extern "C" fn(*mut c_void, *const c_char), User);

/// A load in preparation.
#[derive(Debug)]
pub struct LinkerHandle {
    runtime: Runtime,
    object: Object,
    programs: Vec<String>,
    program_type: Option<&'static skep::abi::ProgramType>,
    buffer_len: u32,
    sleepable: bool,
    maps: BTreeMap<String, Arc<Map>>,
    fresh: Vec<String>,
    max_entries: BTreeMap<String, u32>,
    variables: BTreeMap<String, Vec<u8>>,
    older: Option<Module>,
    tenant: Option<Arc<Tenant>>,
    log: Option<Lines>,
}

/// Prepares a load.
///
/// # Safety
///
/// `runtime` and `object` are null or not freed; `linker` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_new(
    runtime: *const Runtime,
    object: *const Object,
    linker: *mut *mut LinkerHandle,
) -> c_int {
    guard(|| {
        let to = place(linker, "skep_linker_new: linker")?;
        // SAFETY: the caller's promise.
        let (runtime, object) = unsafe {
            let object = shared(object, "skep_linker_new: object")?.clone();
            (shared(runtime, "skep_linker_new: runtime")?.clone(), object)
        };
        let made = LinkerHandle {
            runtime,
            object,
            programs: Vec::new(),
            program_type: None,
            buffer_len: 0,
            sleepable: false,
            maps: BTreeMap::new(),
            fresh: Vec::new(),
            max_entries: BTreeMap::new(),
            variables: BTreeMap::new(),
            older: None,
            tenant: None,
            log: None,
        };
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, made) };
        Ok(())
    })
}

/// The linker, and a name.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else; `of` is null or ends in a zero byte.
unsafe fn named<'a>(
    linker: *mut LinkerHandle,
    of: *const c_char,
    function: &str,
) -> Result<(&'a mut LinkerHandle, String), Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        let name = name(of, &format!("{function}: name"))?.to_owned();
        Ok((exclusive(linker, &format!("{function}: linker"))?, name))
    }
}

/// Loads this program, and others of which this is said, instead of all.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else meanwhile; `program` is null or ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_program(linker: *mut LinkerHandle, program: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (linker, name) = unsafe { named(linker, program, "skep_linker_program")? };
        linker.programs.push(name);
        Ok(())
    })
}

/// Sets the type of all programs by its name.
///
/// # Safety
///
/// As for [`skep_linker_program`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_type(linker: *mut LinkerHandle, r#type: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (linker, name) = unsafe { named(linker, r#type, "skep_linker_type")? };
        linker.program_type = Some(crate::context::program_type(&name)?);
        Ok(())
    })
}

/// Sets the length of the buffer of programs of type `raw`.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_buffer_len(linker: *mut LinkerHandle, bytes: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { exclusive(linker, "skep_linker_buffer_len: linker")? }.buffer_len = bytes;
        Ok(())
    })
}

/// Lets programs sleep whose type may.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_sleepable(linker: *mut LinkerHandle, sleepable: c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { exclusive(linker, "skep_linker_sleepable: linker")? }.sleepable = sleepable != 0;
        Ok(())
    })
}

/// Uses an existing map instead of the object's map of that name.
///
/// # Safety
///
/// As for [`skep_linker_program`]; `map` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_map(
    linker: *mut LinkerHandle,
    wanted: *const c_char,
    map: *const Map,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let ((linker, name), map) =
            unsafe { (named(linker, wanted, "skep_linker_map")?, arc(map, "skep_linker_map: map")?) };
        linker.maps.insert(name, map);
        Ok(())
    })
}

/// Takes over the maps of an older module.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else meanwhile; `old` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_reuse_maps(linker: *mut LinkerHandle, old: *const Module) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let old = shared(old, "skep_linker_reuse_maps: old")?.clone();
            exclusive(linker, "skep_linker_reuse_maps: linker")?.older = Some(old);
        }
        Ok(())
    })
}

/// Creates a map anew that the older module has, too.
///
/// # Safety
///
/// As for [`skep_linker_program`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_fresh_map(linker: *mut LinkerHandle, wanted: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (linker, name) = unsafe { named(linker, wanted, "skep_linker_fresh_map")? };
        linker.fresh.push(name);
        Ok(())
    })
}

/// Creates a map with another capacity.
///
/// # Safety
///
/// As for [`skep_linker_program`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_max_entries(
    linker: *mut LinkerHandle,
    map: *const c_char,
    entries: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (linker, name) = unsafe { named(linker, map, "skep_linker_max_entries")? };
        linker.max_entries.insert(name, entries);
        Ok(())
    })
}

/// Sets a global variable before the load, constants included.
///
/// # Safety
///
/// As for [`skep_linker_program`]; `value` is null or readable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_variable(
    linker: *mut LinkerHandle,
    variable: *const c_char,
    value: *const c_void,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let ((linker, name), value) = unsafe {
            let value = bytes(value, size, "skep_linker_variable: value")?;
            (named(linker, variable, "skep_linker_variable")?, value)
        };
        linker.variables.insert(name, value.to_vec());
        Ok(())
    })
}

/// Charges what the load creates to a tenant.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else meanwhile; `tenant` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_tenant(linker: *mut LinkerHandle, tenant: *const Quotas) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let tenant = shared(tenant, "skep_linker_tenant: tenant")?.tenant();
            exclusive(linker, "skep_linker_tenant: linker")?.tenant = Some(Arc::clone(tenant));
        }
        Ok(())
    })
}

/// Sets what receives the verifier's log.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else meanwhile; `line` is null or takes `context`, and
/// `free_context` is null or frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_log(
    linker: *mut LinkerHandle,
    line: LineFn,
    context: *mut c_void,
    free_context: DropFn,
) -> c_int {
    guard(|| {
        let user = User::new(context, free_context);
        let line = line.ok_or_else(|| Failure::argument("skep_linker_log: line is NULL"))?;
        // SAFETY: the caller's promise.
        unsafe { exclusive(linker, "skep_linker_log: linker")? }.log = Some((line, user));
        Ok(())
    })
}

/// Loads. The linker stays, and can load again.
///
/// # Safety
///
/// `linker` is null or not freed, and used by nothing else meanwhile; `module` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_load(linker: *mut LinkerHandle, module: *mut *mut Module) -> c_int {
    guard(|| {
        let to = place(module, "skep_linker_load: module")?;
        // SAFETY: the caller's promise.
        let loaded = unsafe { exclusive(linker, "skep_linker_load: linker")? }.load()?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, loaded) };
        Ok(())
    })
}

impl LinkerHandle {
    fn load(&self) -> Result<Module, skep::Error> {
        let mut linker =
            self.runtime.linker(&self.object).buffer_len(self.buffer_len).sleepable(self.sleepable);
        for (at, program) in self.programs.iter().enumerate() {
            linker = if at == 0 { linker.only(program) } else { linker.and(program) };
        }
        if let Some(program_type) = self.program_type {
            linker = linker.program_type(program_type);
        }
        if let Some(old) = &self.older {
            linker = linker.reuse_maps(old);
        }
        for (name, map) in &self.maps {
            linker = linker.map(name, Arc::clone(map));
        }
        for name in &self.fresh {
            linker = linker.fresh_map(name);
        }
        for (map, entries) in &self.max_entries {
            linker = linker.max_entries(map, *entries);
        }
        for (name, value) in &self.variables {
            linker = linker.variable(name, value);
        }
        if let Some(tenant) = &self.tenant {
            linker = linker.tenant(tenant);
        }
        if let Some((line, user)) = &self.log {
            linker = linker.log(|text| {
                let text = c_string(text);
                // SAFETY: the caller's promise about both.
                unsafe { line(user.get(), text.as_ptr()) };
            });
        }
        linker.load()
    }
}

/// Frees a linker. Modules that it loaded stay usable.
///
/// # Safety
///
/// `linker` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_linker_free(linker: *mut LinkerHandle) {
    // SAFETY: the caller's promise.
    unsafe { free(linker) };
}
