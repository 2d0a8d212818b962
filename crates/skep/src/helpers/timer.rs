//! Timers and work queues in values of maps. They allocate: a program that uses them should not run in a signal
//! handler, which may have
//! interrupted the allocator.

use super::errno::EINVAL;
use super::sections::section;
use crate::shared::Shared;
use crate::timers::{Field, Flavour, Function};
use skep_abi::RunEnv;
use skep_interp::Interpreter;

const CLOCK_REALTIME: u64 = 0;
const CLOCK_MONOTONIC: u64 = 1;
const CLOCK_BOOTTIME: u64 = 7;
/// `BPF_F_TIMER_ABS`
const ABSOLUTE: u64 = 1;
/// `BPF_F_TIMER_CPU_PIN`: callbacks run wherever the runtime has a thread for them.
const PINNED: u64 = 2;

#[inline]
pub(super) unsafe fn init(timer: u64, map: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let flavour = match flags {
        CLOCK_MONOTONIC | CLOCK_BOOTTIME => Flavour::Timer,
        CLOCK_REALTIME => Flavour::WallTimer,
        _ => return EINVAL,
    };
    // SAFETY: the verifier proved that `timer` is one in a value of the map; `env` is this run's.
    unsafe {
        let shared = Shared::of_run(env);
        let Some(map) = shared.dispatch.holders.find(map) else { return EINVAL };
        let _section = section(env);
        shared.timers.init(&map, Field::new(timer), flavour, (*env).cpu)
    }
}

#[inline]
pub(super) unsafe fn set_callback(timer: u64, function: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above, and that `function` is one of the program's.
    unsafe {
        let _section = section(env);
        let function = Function::new(function, Interpreter::of_run(env));
        Shared::of_run(env).timers.set_callback(Field::new(timer), &function)
    }
}

#[inline]
pub(super) unsafe fn start(timer: u64, nanoseconds: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags & !(ABSOLUTE | PINNED) != 0 {
        return EINVAL;
    }
    // SAFETY: as for `init`.
    unsafe {
        let _section = section(env);
        let shared = Shared::of_run(env);
        let clock = &shared.surroundings.clock;
        let expiry = |flavour| match (flags & ABSOLUTE != 0, flavour) {
            (false, _) => clock.now().saturating_add(nanoseconds),
            (true, Flavour::Timer | Flavour::Work) => nanoseconds,
            (true, Flavour::WallTimer) => {
                clock.now().saturating_add(nanoseconds.saturating_sub(clock.wall()))
            }
        };
        shared.timers.start(Field::new(timer), expiry)
    }
}

#[inline]
pub(super) unsafe fn cancel(timer: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as for `init`.
    unsafe {
        let _section = section(env);
        Shared::of_run(env).timers.cancel(Field::new(timer), (*env).cpu)
    }
}

/// `int bpf_wq_init(struct bpf_wq *queue, struct bpf_map *map, unsigned int flags)`.
#[inline]
pub(super) unsafe fn work_init(queue: u64, map: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags as u32 != 0 {
        return EINVAL;
    }
    // SAFETY: the verifier proved that `queue` is one in a value of the map; `env` is this run's.
    unsafe {
        let shared = Shared::of_run(env);
        let Some(map) = shared.dispatch.holders.find(map) else { return EINVAL };
        let _section = section(env);
        shared.timers.init(&map, Field::new(queue), Flavour::Work, (*env).cpu)
    }
}

/// `int bpf_wq_set_callback_impl(struct bpf_wq *queue, function, unsigned int flags, ...)`.
#[inline]
pub(super) unsafe fn work_callback(queue: u64, function: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags as u32 != 0 {
        return EINVAL;
    }
    // SAFETY: as for `set_callback`.
    unsafe { set_callback(queue, function, env) }
}

/// `int bpf_wq_start(struct bpf_wq *queue, unsigned int flags)`.
#[inline]
pub(super) unsafe fn work_start(queue: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags as u32 != 0 {
        return EINVAL;
    }
    // SAFETY: as for `init`.
    unsafe {
        let _section = section(env);
        let shared = Shared::of_run(env);
        shared.timers.start(Field::new(queue), |_| shared.surroundings.clock.now())
    }
}
