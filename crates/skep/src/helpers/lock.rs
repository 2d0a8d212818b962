//! Spin locks in the values of maps.
//!
//! Between the two calls a program makes no calls, and it releases the lock on every path: the verifier proves
//! both. A run that could interrupt the holder on its own thread, in a signal handler, is refused before it begins
//! ([`skep_maps::lock::is_held`]).

use skep_abi::RunEnv;
use skep_maps::lock;

/// The number of [`spin_lock`].
pub(crate) const SPIN_LOCK: u32 = 93;

#[inline]
pub(super) unsafe fn spin_lock(at: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `at` is a lock in a map's value, and that this path holds no lock and
    // releases this one; the run began on a thread that held none.
    unsafe { lock::acquire(at as *mut u8) };
    0
}

#[inline]
pub(super) unsafe fn spin_unlock(at: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that this path holds it.
    unsafe { lock::release(at as *mut u8) };
    0
}
