//! What C hands over, looked at before Rust uses it: null pointers, lengths, names.
//!
//! What can be checked is checked and refused in words; what cannot (that a pointer leads where it says) is
//! the caller's promise, and every function here hands that promise on.

use crate::status::Failure;
use std::ffi::{CStr, c_char, c_void};

/// A handle that must be there.
///
/// # Safety
///
/// Null, or valid for `'a` and not changed meanwhile.
#[inline]
pub(crate) unsafe fn shared<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| null(what))
}

/// A handle that must be there, to be changed.
///
/// # Safety
///
/// Null, or valid for `'a` and used by nobody else meanwhile.
#[inline]
pub(crate) unsafe fn exclusive<'a, T>(handle: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| null(what))
}

/// A place for a result, which must be there; it may be uninitialised.
#[inline]
pub(crate) fn place<T>(place: *mut T, what: &str) -> Result<*mut T, Failure> {
    if place.is_null() { Err(null(what)) } else { Ok(place) }
}

/// Bytes to read. Null is no bytes where the length is 0.
///
/// # Safety
///
/// Null, or readable for `len` bytes that nobody writes during `'a`.
#[inline]
pub(crate) unsafe fn bytes<'a>(start: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    check_len(start, len, what)?;
    // SAFETY: the caller's promise; null and overlong were refused.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start.cast(), len) } })
}

/// Bytes to write, which the caller has initialised. Null is no bytes where the length is 0.
///
/// # Safety
///
/// Null, or initialised and writable for `len` bytes that nobody else uses during `'a`.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(
    start: *mut c_void,
    len: usize,
    what: &str,
) -> Result<&'a mut [u8], Failure> {
    check_len(start, len, what)?;
    // SAFETY: the caller's promise; null and overlong were refused.
    Ok(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(start.cast(), len) } })
}

/// A name or path, as C has them.
///
/// # Safety
///
/// Null, or leads to a zero byte, with nobody writing during `'a`.
pub(crate) unsafe fn text<'a>(start: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if start.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(start) })
}

/// A name, which is UTF-8 as all names in objects are.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn name<'a>(start: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(start, what)? };
    name.to_str().map_err(|_| Failure::argument(format!("{what} {name:?} is not UTF-8")))
}

#[inline]
fn check_len(start: *const c_void, len: usize, what: &str) -> Result<(), Failure> {
    if start.is_null() && len != 0 {
        return Err(null(what));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::argument(format!(
            "{what}: a length of {len} bytes is more than any memory has"
        )));
    }
    Ok(())
}

#[cold]
fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is NULL"))
}
