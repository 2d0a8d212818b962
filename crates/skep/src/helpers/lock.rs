//! Spin locks in the values of maps.
//!
//! Between the two calls a program calls nothing, and gives the lock back on every path: the verifier sees to both. A
//! run that could interrupt the holder on its own thread, in a handler of a signal, is refused before it begins
//! ([`skep_maps::lock::is_held`]).

use skep_abi::RunEnv;
use skep_maps::lock;

/// The number of [`spin_lock`].
pub(crate) const SPIN_LOCK: u32 = 93;

pub(super) unsafe extern "C" fn spin_lock(at: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved `at` a lock in a map's value, that this path holds none and gives it back; the run
    // began on a thread that held none.
    unsafe { lock::acquire(at as *mut u8) };
    0
}

pub(super) unsafe extern "C" fn spin_unlock(at: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that this path took it.
    unsafe { lock::release(at as *mut u8) };
    0
}
