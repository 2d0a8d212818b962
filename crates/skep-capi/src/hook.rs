//! Hooks: places in the host where programs are attached, replaced and detached while they run.

use crate::argument::{bytes_mut, exclusive, give, place, shared};
use crate::load::free;
use crate::own_type::{OwnType, Part};
use crate::status::{Failure, guard};
use skep::{Hook, Link, Packet, Program, Runtime};
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

/// Receives a program's result: its context, the program, the result. A result other than 0 ends the run of the hook.
pub type ResultFn = Option<unsafe extern "C" fn(*mut c_void, *const Program, u64) -> c_int>;

/// A hook of this runtime.
///
/// # Safety
///
/// `runtime` is null or not freed; `hook` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_hook_new(runtime: *const Runtime, hook: *mut *mut Hook) -> c_int {
    guard(|| {
        let to = place(hook, "skep_hook_new: hook")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, shared(runtime, "skep_hook_new: runtime")?.hook()) };
        Ok(())
    })
}

/// Attaches a program behind the others.
///
/// # Safety
///
/// `hook` is null or not freed; `program` is null or valid; `link` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_hook_attach(
    hook: *const Hook,
    program: *const Program,
    link: *mut *mut Link,
) -> c_int {
    guard(|| {
        let to = place(link, "skep_hook_attach: link")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let program = shared(program, "skep_hook_attach: program")?;
            give(to, shared(hook, "skep_hook_attach: hook")?.attach(program)?);
        }
        Ok(())
    })
}

/// How many programs are attached.
///
/// # Safety
///
/// `hook` is null or not freed; `count` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_hook_count(hook: *const Hook, count: *mut usize) -> c_int {
    guard(|| {
        let to = place(count, "skep_hook_count: count")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(shared(hook, "skep_hook_count: hook")?.programs()?.len()) };
        Ok(())
    })
}

/// The callback with its context, as a closure.
///
/// # Safety
///
/// `each` is null or takes `context`.
unsafe fn telling(each: ResultFn, context: *mut c_void) -> impl FnMut(&Program, u64) -> ControlFlow<()> {
    move |program, result| {
        let Some(each) = each else { return ControlFlow::Continue(()) };
        // SAFETY: the caller's promise.
        match unsafe { each(context, program, result) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

/// Runs the attached programs on a packet.
///
/// # Safety
///
/// `hook` is null or not freed; `packet` is null or not freed and not used by anything else; `each` is null or takes
/// `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_hook_run(
    hook: *const Hook,
    packet: *mut Packet,
    each: ResultFn,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let packet = exclusive(packet, "skep_hook_run: packet")?;
            Ok(shared(hook, "skep_hook_run: hook")?.run(packet, telling(each, context))?)
        }
    })
}

/// Runs the attached programs of type `raw` on a buffer.
///
/// # Safety
///
/// As for [`skep_hook_run`]; `buffer` is null or initialised and writable for `len` bytes that nothing else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_hook_run_raw(
    hook: *const Hook,
    buffer: *mut c_void,
    len: usize,
    each: ResultFn,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let buffer = bytes_mut(buffer, len, "skep_hook_run_raw: buffer")?;
            Ok(shared(hook, "skep_hook_run_raw: hook")?.run_raw(buffer, telling(each, context))?)
        }
    })
}

/// Runs the attached programs of a type of the host's own.
///
/// # Safety
///
/// As for [`skep_hook_run`]; `type` is null or not freed; `value` is null or the host's structure of this type, as the
/// header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_hook_run_typed(
    hook: *const Hook,
    r#type: *const OwnType,
    value: *mut c_void,
    each: ResultFn,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let hook = shared(hook, "skep_hook_run_typed: hook")?;
            let own = shared(r#type, "skep_hook_run_typed: type")?;
            let value = place(value, "skep_hook_run_typed: value")?;
            let mut tell = telling(each, context);
            let mut lent = own.lent(value);
            Ok(hook.run_data(own.host(), &mut lent, &mut Part(value), |program, result| {
                tell(program, i64::from(result).cast_unsigned())
            })?)
        }
    })
}

/// Frees a hook. It lives as long as its links.
///
/// # Safety
///
/// `hook` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_hook_free(hook: *mut Hook) {
    // SAFETY: the caller's promise.
    unsafe { free(hook) };
}

/// Replaces the attached program. Gives the caller the old one, unless `old` is null.
///
/// # Safety
///
/// `link` is null or not freed; `program` is null or valid; `old` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_link_replace(
    link: *const Link,
    program: *const Program,
    old: *mut *mut Program,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (link, program) = unsafe {
            (shared(link, "skep_link_replace: link")?, shared(program, "skep_link_replace: program")?)
        };
        let replaced = link.replace(program)?;
        if !old.is_null() {
            // SAFETY: not null, and the caller's promise.
            unsafe { give(old, replaced) };
        }
        Ok(())
    })
}

/// Detaches the program.
///
/// # Safety
///
/// `link` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_link_free(link: *mut Link) {
    // SAFETY: the caller's promise.
    unsafe { free(link) };
}

/// Waits until no thread runs a program that was replaced or removed before.
///
/// # Safety
///
/// `runtime` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_synchronize(runtime: *const Runtime) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let runtime = unsafe { shared(runtime, "skep_runtime_synchronize: runtime")? };
        runtime.synchronize().map_err(Failure::from)
    })
}
