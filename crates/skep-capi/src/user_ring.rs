//! User ring buffers: records from the host to programs.

use crate::argument::{bytes, exclusive, give, place};
use crate::load::free;
use crate::module::arc;
use crate::status::{Failure, Status, guard};
use skep::{Map, UserRingBuffer};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Becomes the producer of a user ring buffer.
///
/// # Safety
///
/// `map` is null or valid; `ringbuf` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_user_ringbuf_new(map: *const Map, ringbuf: *mut *mut UserRingBuffer) -> c_int {
    guard(|| {
        let to = place(ringbuf, "skep_user_ringbuf_new: ringbuf")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, UserRingBuffer::new(&arc(map, "skep_user_ringbuf_new: map")?)?) };
        Ok(())
    })
}

/// The descriptor that is readable when there is room; -1 for null.
///
/// # Safety
///
/// `ringbuf` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_user_ringbuf_fd(ringbuf: *const UserRingBuffer) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ringbuf.as_ref() }.map_or(-1, UserRingBuffer::as_raw_fd)
}

/// Passes a record to programs. Waits for room, at most `timeout_ms` milliseconds.
///
/// # Safety
///
/// `ringbuf` is null or not freed, and used by nothing else meanwhile; `data` is null or readable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_user_ringbuf_submit(
    ringbuf: *mut UserRingBuffer,
    data: *const c_void,
    size: usize,
    timeout_ms: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (ringbuf, data) = unsafe {
            let ringbuf = exclusive(ringbuf, "skep_user_ringbuf_submit: ringbuf")?;
            (ringbuf, bytes(data, size, "skep_user_ringbuf_submit: data")?)
        };
        let too_long = |_| Failure::argument(format!("skep_user_ringbuf_submit: {size} bytes are too many"));
        let len = u32::try_from(size).map_err(too_long)?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let name = ringbuf.map().name().to_owned();
        let full = || Failure::of(Status::Full, format!("map `{name}`: there is no room for {len} bytes"));
        let mut record = ringbuf.reserve_within(len, timeout).ok_or_else(full)?;
        record.copy_from_slice(data);
        record.submit();
        Ok(())
    })
}

/// Ends the production.
///
/// # Safety
///
/// `ringbuf` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_user_ringbuf_free(ringbuf: *mut UserRingBuffer) {
    // SAFETY: the caller's promise.
    unsafe { free(ringbuf) };
}
