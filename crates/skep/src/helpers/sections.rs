//! Read-side critical sections that programs enter and leave themselves.
//!
//! A non-sleepable program is in a normal section for its whole run; the functions here only nest another one in
//! it. A sleepable program is in a sleepable section, which does not delay the reuse or freeing of elements. What
//! it finds between `bpf_rcu_read_lock` and `bpf_rcu_read_unlock` stays unchanged until the latter; what it finds
//! elsewhere remains memory of the map, but may become another element at any time.
//!
//! A region with preemption disabled is a read-side critical section as well, as in Linux. Nothing else is needed
//! for it, since a virtual CPU belongs to its thread.

use crate::shared::Shared;
use skep_abi::RunEnv;
use skep_rcu::{Section, raw};

#[inline]
pub(super) unsafe fn enter(env: *mut RunEnv) -> u64 {
    // SAFETY: `env` is this run's, and its host is the runtime.
    unsafe {
        // A thread in a run has a slot, so it can always enter.
        if raw::enter(&shared(env).domain).is_ok() {
            (*env).sections += 1;
        }
    }
    0
}

#[inline]
pub(super) unsafe fn leave(env: *mut RunEnv) -> u64 {
    // SAFETY: as above; counted sections were entered without a guard, on this thread.
    unsafe {
        if let Some(left) = (*env).sections.checked_sub(1) {
            (*env).sections = left;
            raw::leave(&shared(env).domain);
        }
    }
    0
}

/// A normal section while a helper works on a map, if the run may be in none.
///
/// # Safety
///
/// `env` is the environment of the run in progress.
#[inline(always)]
pub(super) unsafe fn section<'a>(env: *mut RunEnv) -> Option<Section<'a>> {
    // SAFETY: the caller's promise.
    unsafe { if (*env).sleepable == 0 { None } else { shared(env).domain.enter().ok() } }
}

/// The runtime of a run.
///
/// # Safety
///
/// `env` is the environment of the run in progress, made by a program.
unsafe fn shared<'a>(env: *mut RunEnv) -> &'a Shared {
    // SAFETY: the caller's promise.
    unsafe { Shared::of_run(env) }
}
