//! `bpf_trace_printk` and `bpf_trace_vprintk`: messages to the host's log.

use super::errno::EINVAL;
use super::format::{copy_string, copy_values, print, take_printed};
use crate::ending;
use crate::image::Image;
use crate::shared::Shared;
use skep_abi::{MAX_FORMAT, MAX_PRINTED, Printed, RunEnv};

/// The most bytes of a message that reach the log.
const MESSAGE_MAX: usize = 1023;

#[inline]
pub(super) unsafe fn trace_printk(format: u64, size: u64, a: u64, b: u64, c: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `format` is readable for `size` bytes; `env` is this run's, with the record
    // of this call.
    unsafe { log(format, size, &[a, b, c], &take_printed(env), env) }
}

#[inline]
pub(super) unsafe fn trace_vprintk(format: u64, size: u64, values: u64, bytes: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `values` is readable for `bytes`, or null with 0 bytes; the rest as above.
    unsafe {
        let printed = take_printed(env);
        let mut copies = [0; MAX_PRINTED];
        let Some(copies) = values_of(bytes).and_then(|count| copies.get_mut(..count)) else {
            return EINVAL;
        };
        copy_values(values, copies);
        log(format, size, copies, &printed, env)
    }
}

/// The number of values in that many bytes.
pub(super) fn values_of(bytes: u64) -> Option<usize> {
    let bytes = bytes as u32 as usize;
    bytes.is_multiple_of(size_of::<u64>()).then_some(bytes / size_of::<u64>())
}

/// Formats a message and passes it to the log; returns its length in bytes.
///
/// # Safety
///
/// `format` is readable for `size` bytes, what `printed` says of the values holds, and `env` is the environment of a
/// run.
unsafe fn log(format: u64, size: u64, values: &[u64], printed: &Printed, env: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    // SAFETY: the caller's promise; the bytes are copied before anything else can run.
    let format = unsafe { copy_string(format, size.min(MAX_FORMAT)) };
    if format.len() == size || format.len() == MAX_FORMAT {
        return EINVAL; // nothing ends it
    }
    // SAFETY: the caller's promise.
    let Ok(text) = (unsafe { print(&format, values, printed, MESSAGE_MAX) }) else { return EINVAL };
    // SAFETY: the caller's promise.
    let (program, shared) = unsafe { (Image::of_run(env), Shared::of_run(env)) };
    let message = String::from_utf8_lossy(text.kept());
    if let Err(payload) = shared.log(program.name(), message.trim_end_matches('\n')) {
        // SAFETY: the caller's promise.
        unsafe { ending::log_panicked(payload, env) };
    }
    text.len as u64
}
