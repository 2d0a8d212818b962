//! Runtimes with what lists and callbacks need: helpers, types of the host's own, a log, an audit log, a world.
//!
//! ```text
//!   skep_builder_new -> skep_builder_helper, _type, _log ... -> skep_builder_build -> skep_runtime
//! ```
//!
//! Invariant: what a callback's context points to is freed once: with the runtime and all that was loaded into it,
//! or at once if the call that takes it fails, or with a builder that built nothing.

use crate::argument::{exclusive, give, place, shared};
use crate::helper::{self, HelperOptions};
use crate::load::free;
use crate::options::{self, RuntimeOptions};
use crate::own_type::OwnType;
use crate::status::{Failure, guard};
use crate::text::c_string;
use crate::user::{DropFn, User};
use skep::{AuditFailure, AuditRecord, Runtime, RuntimeBuilder, World};
use std::ffi::{c_char, c_int, c_void};

/// A runtime in preparation.
#[derive(Debug)]
pub struct Builder {
    /// `None` after it was built.
    inner: Option<RuntimeBuilder>,
}

/// Receives a message: its context, the program's name, the text without its line end.
pub type LogFn = Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>;

/// Receives a record as a line of JSON. A result other than 0: it was not kept.
pub type AuditFn = Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>;

impl Builder {
    /// Changes what is built.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Result<(), Failure> {
        let inner = self.inner.take().ok_or_else(built)?;
        self.inner = Some(change(inner));
        Ok(())
    }
}

fn built() -> Failure {
    Failure::argument("skep_builder: it has built its runtime; make another with skep_builder_new")
}

/// A builder of a runtime.
///
/// # Safety
///
/// `builder` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_new(builder: *mut *mut Builder) -> c_int {
    guard(|| {
        let to = place(builder, "skep_builder_new: builder")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, Builder { inner: Some(Runtime::builder()) }) };
        Ok(())
    })
}

/// Adds a helper.
///
/// # Safety
///
/// `builder` is null or not freed, and used by nothing else meanwhile; `helper` is null or readable for the size
/// that it gives, its name null or ended by a zero byte, and its function is as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_helper(builder: *mut Builder, helper: *const HelperOptions) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (builder, made) = unsafe {
            let made = helper::read(helper, "skep_builder_helper")?;
            (exclusive(builder, "skep_builder_helper: builder")?, made)
        };
        made.add_to(builder)
    })
}

/// Adds a function of a type of the host's own.
///
/// # Safety
///
/// As for [`skep_builder_helper`]; `type` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_method(
    builder: *mut Builder,
    r#type: *const OwnType,
    helper: *const HelperOptions,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (builder, own, made) = unsafe {
            let made = helper::read(helper, "skep_builder_method")?;
            let own = shared(r#type, "skep_builder_method: type")?;
            (exclusive(builder, "skep_builder_method: builder")?, own, made)
        };
        made.add_method_to(builder, own)
    })
}

/// Adds a type of the host's own.
///
/// # Safety
///
/// `builder` is null or not freed, and used by nothing else meanwhile; `type` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_type(builder: *mut Builder, r#type: *const OwnType) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (builder, own) = unsafe {
            (exclusive(builder, "skep_builder_type: builder")?, shared(r#type, "skep_builder_type: type")?)
        };
        builder.change(|inner| inner.host_type(own.host()))
    })
}

/// Sets what receives the messages of programs.
///
/// # Safety
///
/// `builder` is null or not freed, and used by nothing else meanwhile; `log` is null or takes `context` on any
/// thread, and `free_context` is null or frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_log(
    builder: *mut Builder,
    log: LogFn,
    context: *mut c_void,
    free_context: DropFn,
) -> c_int {
    guard(|| {
        let user = User::new(context, free_context);
        // SAFETY: the caller's promise.
        let builder = unsafe { exclusive(builder, "skep_builder_log: builder")? };
        let log = log.ok_or_else(|| Failure::argument("skep_builder_log: log is NULL"))?;
        builder.change(|inner| {
            inner.log(move |program, message| {
                let (program, message) = (c_string(program), c_string(message));
                // SAFETY: the caller's promise about both.
                unsafe { log(user.get(), program.as_ptr(), message.as_ptr()) };
            })
        })
    })
}

/// Sets what receives records of loads, attachments, replacements and detachments.
///
/// # Safety
///
/// As for [`skep_builder_log`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_audit(
    builder: *mut Builder,
    audit: AuditFn,
    must_keep: c_int,
    context: *mut c_void,
    free_context: DropFn,
) -> c_int {
    guard(|| {
        let user = User::new(context, free_context);
        // SAFETY: the caller's promise.
        let builder = unsafe { exclusive(builder, "skep_builder_audit: builder")? };
        let audit = audit.ok_or_else(|| Failure::argument("skep_builder_audit: audit is NULL"))?;
        let sink = move |record: &AuditRecord| {
            let line = serde_json::to_string(record)?;
            let line = c_string(&line);
            // SAFETY: the caller's promise about both.
            match unsafe { audit(user.get(), line.as_ptr()) } {
                0 => Ok(()),
                number => Err(std::io::Error::other(format!("the host's audit log returned {number}"))),
            }
        };
        let failure = if must_keep != 0 { AuditFailure::Refuse } else { AuditFailure::Count };
        builder.change(|inner| inner.audit(sink, failure))
    })
}

/// Lets programs see a world instead of this machine.
///
/// # Safety
///
/// `builder` is null or not freed, and used by nothing else meanwhile; `world` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_world(builder: *mut Builder, world: *const World) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (builder, world) = unsafe {
            (exclusive(builder, "skep_builder_world: builder")?, shared(world, "skep_builder_world: world")?)
        };
        builder.change(|inner| inner.world(world))
    })
}

/// Makes the runtime. The builder can then only be freed.
///
/// # Safety
///
/// `builder` is null or not freed, and used by nothing else meanwhile; `options` is null or readable for the size
/// that it gives; `runtime` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_build(
    builder: *mut Builder,
    options: *const RuntimeOptions,
    runtime: *mut *mut Runtime,
) -> c_int {
    guard(|| {
        let to = place(runtime, "skep_builder_build: runtime")?;
        // SAFETY: the caller's promise.
        let (builder, options) =
            unsafe { (exclusive(builder, "skep_builder_build: builder")?, options::read(options)?) };
        let inner = match options {
            // Options that are refused leave the builder as it is.
            Some(options) => {
                options.check()?;
                options.apply(builder.inner.take().ok_or_else(built)?)?
            }
            None => builder.inner.take().ok_or_else(built)?,
        };
        let made = options::build(inner)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, made) };
        Ok(())
    })
}

/// Frees a builder. Its runtime stays usable.
///
/// # Safety
///
/// `builder` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_builder_free(builder: *mut Builder) {
    // SAFETY: the caller's promise.
    unsafe { free(builder) };
}
