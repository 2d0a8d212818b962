//! Runs that end early: the charges, and what ends a run ([`skep_abi::EndsLink`]).

use skep_abi::{RunEnv, call_weight};

use crate::code::Code;

/// Charges a weight, which may be 0. Returns whether the run is over.
///
/// # Safety
///
/// `env` is the environment of the run in progress.
#[inline]
pub(super) unsafe fn charged(code: &Code, env: *mut RunEnv, weight: u32) -> bool {
    if weight == 0 {
        return false;
    }
    let Some(charge) = code.linkage.ends.as_ref().and_then(|ends| ends.charge) else { return false };
    // SAFETY: the caller's promise.
    unsafe {
        (*env).units -= weight as i32;
        (*env).units < 0 && charge(0, 0, 0, 0, 0, env) != 0
    }
}

/// Charges a call of the function that starts at a slot. Returns whether the run is over.
///
/// # Safety
///
/// As for [`charged`].
pub(super) unsafe fn charged_call(code: &Code, env: *mut RunEnv, slot: usize) -> bool {
    if code.linkage.ends.is_none() {
        return false;
    }
    let function = code.function(slot);
    // SAFETY: the caller's promise.
    unsafe { charged(code, env, call_weight(function.start, function.end)) }
}

/// Whether something that was called has ended the run.
///
/// # Safety
///
/// As for [`charged`].
#[inline]
pub(super) unsafe fn is_over(code: &Code, env: *mut RunEnv) -> bool {
    // SAFETY: the caller's promise.
    code.linkage.ends.is_some() && unsafe { (*env).thrown == RunEnv::ENDED }
}
