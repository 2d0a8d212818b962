//! Time, CPU number and random numbers: those of the runtime's world.

use crate::shared::Shared;
use skep_abi::RunEnv;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

#[inline]
pub(super) unsafe fn ktime_get_ns(env: *mut RunEnv) -> u64 {
    // SAFETY: `env` is the environment of the run in progress.
    let shared = unsafe { Shared::of_run(env) };
    shared.shown(shared.now())
}

#[inline]
pub(super) unsafe fn ktime_get_boot_ns(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let shared = unsafe { Shared::of_run(env) };
    shared.shown(shared.surroundings.clock.since_boot())
}

#[inline]
pub(super) unsafe fn ktime_get_tai_ns(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let shared = unsafe { Shared::of_run(env) };
    shared.shown(shared.surroundings.clock.atomic_time())
}

#[inline]
pub(super) unsafe fn ktime_get_coarse_ns(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let shared = unsafe { Shared::of_run(env) };
    shared.shown(shared.surroundings.clock.coarse())
}

/// Time in units of 4 ms, like that of kernels with the most common configuration (`CONFIG_HZ=250`).
#[inline]
pub(super) unsafe fn jiffies64(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { Shared::of_run(env) }.surroundings.clock.coarse() / 4_000_000
}

/// Programs see a single node.
#[inline]
pub(super) unsafe fn get_numa_node_id(_: *mut RunEnv) -> u64 {
    0
}

#[inline]
pub(super) unsafe fn get_smp_processor_id(env: *mut RunEnv) -> u64 {
    // SAFETY: `env` is the environment of the run in progress.
    unsafe { (*env).cpu.into() }
}

#[inline]
pub(super) unsafe fn get_prandom_u32(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    if let Some(number) = unsafe { Shared::of_run(env) }.surroundings.random.next() {
        return number.into();
    }
    thread_local! {
        // The system seeds `RandomState`, anew for each thread.
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0u8));
    }
    // A thread without thread-local storage cannot run programs any more, so its numbers need not be random.
    STATE.try_with(|state| u64::from(split_mix(state))).unwrap_or(0)
}

/// SplitMix64: a counter through a mixing function. Not for secrets, and neither is Linux's helper.
fn split_mix(state: &Cell<u64>) -> u32 {
    let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    state.set(next);
    let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ_and_use_every_bit() {
        let state = Cell::new(1);
        let numbers: Vec<u32> = (0..64).map(|_| split_mix(&state)).collect();
        assert_eq!(numbers.iter().fold(0, |all, n| all | n), u32::MAX);
        assert_eq!(numbers.iter().fold(u32::MAX, |all, n| all & n), 0);
    }
}
