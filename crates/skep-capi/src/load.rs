//! Runtimes, objects, modules: everything before a run.

use crate::argument::{bytes, name, number, place, shared, text};
use crate::options::{self, LoadOptions, RuntimeOptions};
use crate::status::guard;
use skep::{Module, Object, Runtime};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// The library's version, such as `0.1.0`. The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn skep_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("the version contains a zero byte"),
        };
    VERSION.as_ptr()
}

/// Creates a runtime, with default settings if `options` is null.
///
/// # Safety
///
/// `options` is null or readable for the size it gives; `runtime` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_new(
    options: *const RuntimeOptions,
    runtime: *mut *mut Runtime,
) -> c_int {
    guard(|| {
        let to = place(runtime, "skep_runtime_new: runtime")?;
        // SAFETY: the caller's promise.
        let options = unsafe { options::read(options)? };
        let builder = Runtime::builder();
        let made = options::build(match options {
            Some(options) => options.apply(builder)?,
            None => builder,
        })?;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Releases the calling thread's virtual CPU. Returns 1, or 0 if it has none or is running a program.
///
/// # Safety
///
/// `runtime` is null or a runtime that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_release_cpu(runtime: *const Runtime) -> c_int {
    // SAFETY: the caller's promise.
    let runtime = unsafe { runtime.as_ref() };
    let mut released = false;
    guard(|| {
        released = runtime.is_some_and(Runtime::release_cpu);
        Ok(())
    });
    c_int::from(released)
}

/// Frees a runtime handle. Modules loaded into the runtime stay usable.
///
/// # Safety
///
/// `runtime` is null or a runtime that is not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_free(runtime: *mut Runtime) {
    // SAFETY: the caller's promise.
    unsafe { free(runtime) };
}

/// Reads and parses an object file.
///
/// # Safety
///
/// `path` is null or ends in a zero byte; `object` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_object_open(path: *const c_char, object: *mut *mut Object) -> c_int {
    guard(|| {
        let to = place(object, "skep_object_open: object")?;
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "skep_object_open: path")? };
        let opened = Object::open(OsStr::from_bytes(path.to_bytes()))?;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

/// Parses the bytes of an object file. They may be freed afterwards.
///
/// # Safety
///
/// `data` is null or readable for `len` bytes; `object` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_object_parse(
    data: *const c_void,
    len: usize,
    object: *mut *mut Object,
) -> c_int {
    guard(|| {
        let to = place(object, "skep_object_parse: object")?;
        // SAFETY: the caller's promise.
        let parsed = Object::parse(unsafe { bytes(data, len, "skep_object_parse: data")? })?;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(Box::into_raw(Box::new(parsed))) };
        Ok(())
    })
}

/// Frees an object. Modules made from it stay usable.
///
/// # Safety
///
/// `object` is null or an object that is not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_object_free(object: *mut Object) {
    // SAFETY: the caller's promise.
    unsafe { free(object) };
}

/// Creates an object's maps, verifies and compiles its programs; all or nothing.
///
/// # Safety
///
/// `runtime` and `object` are null or not freed; `options` is null or readable for the size it gives, and the
/// name in it null or ended by a zero byte; `module` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_load(
    runtime: *const Runtime,
    object: *const Object,
    options: *const LoadOptions,
    module: *mut *mut Module,
) -> c_int {
    guard(|| {
        let to = place(module, "skep_module_load: module")?;
        // SAFETY: the caller's promise.
        let (runtime, object, options) = unsafe {
            let runtime = shared(runtime, "skep_module_load: runtime")?;
            (runtime, shared(object, "skep_module_load: object")?, options::read(options)?)
        };
        let mut linker = runtime.linker(object);
        if let Some(options) = options {
            linker = linker.buffer_len(number(options.buffer_len, "skep_load_options: buffer_len")?);
            if !options.program.is_null() {
                // SAFETY: the caller's promise.
                linker = linker.only(unsafe { name(options.program, "skep_load_options: program")? });
            }
        }
        let loaded = linker.load()?;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(Box::into_raw(Box::new(loaded))) };
        Ok(())
    })
}

/// Frees a module with its programs and maps.
///
/// # Safety
///
/// `module` is null or not freed; this is the last use of it and of its programs and maps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_free(module: *mut Module) {
    // SAFETY: the caller's promise.
    unsafe { free(module) };
}

/// Drops what a handle owns.
///
/// # Safety
///
/// Null, or made by `Box::into_raw` and not freed; this is its last use.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // A failure to drop cannot be reported; at least it does not unwind into C.
        guard(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(handle) });
            Ok(())
        });
    }
}
