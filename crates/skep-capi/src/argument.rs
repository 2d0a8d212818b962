//! Checks of arguments from C before Rust uses them: null pointers, lengths, names.
//!
//! What can be checked is refused with a message. That a pointer is valid cannot be checked: it is the caller's
//! promise, and every function here passes it on.

use crate::status::Failure;
use std::ffi::{CStr, c_char, c_void};

/// A required handle.
///
/// # Safety
///
/// Null, or valid for `'a` and not changed meanwhile.
#[inline]
pub(crate) unsafe fn shared<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| null(what))
}

/// A required handle, for exclusive use.
///
/// # Safety
///
/// Null, or valid for `'a` and not used by anything else meanwhile.
#[inline]
pub(crate) unsafe fn exclusive<'a, T>(handle: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| null(what))
}

/// A required place for a result; it may be uninitialised.
#[inline]
pub(crate) fn place<T>(place: *mut T, what: &str) -> Result<*mut T, Failure> {
    if place.is_null() { Err(null(what)) } else { Ok(place) }
}

/// Bytes to read. Null means no bytes if the length is 0.
///
/// # Safety
///
/// Null, or readable for `len` bytes that are not written during `'a`.
#[inline]
pub(crate) unsafe fn bytes<'a>(start: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    check_len(start, len, what)?;
    // SAFETY: the caller's promise; null and overlong were refused.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start.cast(), len) } })
}

/// Bytes to write, which the caller has initialised. Null means no bytes if the length is 0.
///
/// # Safety
///
/// Null, or initialised and writable for `len` bytes that nothing else uses during `'a`.
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

/// A name or path as a C string.
///
/// # Safety
///
/// Null, or a pointer to a string that ends in a zero byte and is not written during `'a`.
pub(crate) unsafe fn text<'a>(start: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if start.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(start) })
}

/// A name in UTF-8, as all names in objects are.
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
            "{what}: the length of {len} bytes exceeds the address space"
        )));
    }
    Ok(())
}

#[cold]
fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is NULL"))
}

/// Gives the caller a handle of its own.
///
/// # Safety
///
/// `to` is writable, as [`place`] cannot check.
pub(crate) unsafe fn give<T>(to: *mut *mut T, value: T) {
    // SAFETY: the caller's promise.
    unsafe { to.write(Box::into_raw(Box::new(value))) };
}

/// A number of a narrower type.
pub(crate) fn number<T: TryFrom<u64>>(given: u64, what: &str) -> Result<T, Failure> {
    T::try_from(given).map_err(|_| Failure::argument(format!("{what}: {given} is too large")))
}
