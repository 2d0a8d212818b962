//! Records from the host.

use super::callback::call_back;
use super::dynptr::Dynptr;
use super::map::map;
use skep_abi::RunEnv;

/// `bpf_user_ringbuf_drain`: calls `function(dynptr, context)` for each record until it returns something other than 0.
/// Returns the number of records, or an error.
#[inline]
pub(super) unsafe fn drain(handle: u64, function: u64, context: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let mut visit = |record: *mut u8, bytes: u64| {
        let mut sample = Dynptr::over(record, bytes);
        let sample = (&raw mut sample).expose_provenance() as u64;
        // SAFETY: the verifier proved that `function` is one of the program's, takes these arguments, and keeps nothing
        // of the record; `env` is this run's.
        unsafe { call_back(function, [sample, context, 0, 0, 0], env) == 0 }
    };
    // SAFETY: the verifier proved that `handle` is a map.
    unsafe { map(handle) }.user_ring_drain_ptr(flags, &mut visit) as u64
}
