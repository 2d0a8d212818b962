//! Contexts of Linux's types that do not run on packets: sockets, control groups, probes, tracepoints.

use crate::argument::{bytes, exclusive, give, name, place, shared};
use crate::load::free;
use crate::status::{Failure, guard};
use skep::abi::ProgramType;
use skep::{Context, Program};
use std::ffi::{c_char, c_int, c_void};

/// The type of this name.
pub(crate) fn program_type(name: &str) -> Result<&'static ProgramType, Failure> {
    ProgramType::from_name(name).ok_or_else(|| {
        Failure::missing(format!("there is no program type {name:?}; xdp, sched_cls and raw are some"))
    })
}

/// A context for programs of this program's type, all zeroes.
///
/// # Safety
///
/// `program` is null or valid; `context` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_context_new(program: *const Program, context: *mut *mut Context) -> c_int {
    guard(|| {
        let to = place(context, "skep_context_new: context")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, Context::of(shared(program, "skep_context_new: program")?)?) };
        Ok(())
    })
}

/// Sets a number.
///
/// # Safety
///
/// `context` is null or not freed, and used by nothing else meanwhile; `field` is null or ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_context_set(context: *mut Context, field: *const c_char, value: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to both.
        unsafe {
            let field = name(field, "skep_context_set: field")?;
            Ok(exclusive(context, "skep_context_set: context")?.set(field, value)?)
        }
    })
}

/// A number as the host set it or a program left it.
///
/// # Safety
///
/// `context` is null or not freed; `field` is null or ends in a zero byte; `value` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_context_field(
    context: *const Context,
    field: *const c_char,
    value: *mut u64,
) -> c_int {
    guard(|| {
        let to = place(value, "skep_context_field: value")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let field = name(field, "skep_context_field: field")?;
            to.write(shared(context, "skep_context_field: context")?.field(field)?);
        }
        Ok(())
    })
}

/// Sets the bytes between the addresses of data and its end.
///
/// # Safety
///
/// `context` is null or not freed, and used by nothing else meanwhile; `data` is null or readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_context_set_data(
    context: *mut Context,
    data: *const c_void,
    len: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to both.
        unsafe {
            let data = bytes(data, len, "skep_context_set_data: data")?.to_vec();
            Ok(exclusive(context, "skep_context_set_data: context")?.set_data(&data)?)
        }
    })
}

/// Those bytes, as programs left them; null and 0 if `context` is null.
///
/// # Safety
///
/// `context` is null or not freed, and does not change meanwhile; `len` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_context_data(context: *const Context, len: *mut usize) -> *const u8 {
    // SAFETY: the caller's promise.
    let data = unsafe { context.as_ref() }.map(Context::data);
    if !len.is_null() {
        // SAFETY: not null, and the caller's promise.
        unsafe { len.write(data.map_or(0, <[u8]>::len)) };
    }
    data.map_or(std::ptr::null(), <[u8]>::as_ptr)
}

/// Runs a program on a context.
///
/// # Safety
///
/// `program` is null or valid; `context` is null or not freed, and used by nothing else meanwhile; `result` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_run_context(
    program: *const Program,
    context: *mut Context,
    result: *mut u64,
) -> c_int {
    guard(|| {
        let to = place(result, "skep_program_run_context: result")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let context = exclusive(context, "skep_program_run_context: context")?;
            to.write(shared(program, "skep_program_run_context: program")?.run_context(context)?);
        }
        Ok(())
    })
}

/// Frees a context.
///
/// # Safety
///
/// `context` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_context_free(context: *mut Context) {
    // SAFETY: the caller's promise.
    unsafe { free(context) };
}
