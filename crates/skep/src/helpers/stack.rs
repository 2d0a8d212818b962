//! Stacks of the current task, which are the world's.
//!
//! ```text
//!   flags:  0..8 addresses to skip | 8 of the process | 9 compare by hash | 10 replace | 11 with build identifiers
//! ```

use super::errno::{EFAULT, EINVAL};
use super::map::map;
use crate::shared::Shared;
use skep_abi::RunEnv;
use skep_maps::StackMode;
use skep_world::Task;

const SKIP: u64 = 0xff;
const USER: u64 = 1 << 8;
const BY_HASH: u64 = 1 << 9;
const REPLACE: u64 = 1 << 10;
const BUILD_ID: u64 = 1 << 11;

/// The most addresses of a stack (`kernel.perf_event_max_stack`).
const MOST: usize = 127;
/// Bytes of a `struct bpf_stack_build_id`, and its status for an address without the identifier of a file.
const BY_FILE: usize = 32;
const NO_FILE: u32 = 2;

/// Passes the task's stack to `with`, without those addresses that the flags skip. `None` if there is no task, or its
/// stack has fewer.
///
/// # Safety
///
/// `env` is the environment of the run in progress.
unsafe fn stack<R>(flags: u64, env: *mut RunEnv, with: impl FnOnce(&[u64]) -> R) -> Option<R> {
    let of = |task: &Task| {
        let stack = if flags & USER != 0 { &task.user_stack } else { &task.kernel_stack };
        let stack = &stack[..stack.len().min(MOST)];
        stack.get((flags & SKIP) as usize..).map(with)
    };
    // SAFETY: the caller's promise.
    unsafe { Shared::of_run(env) }.surroundings.with(|machine| machine.task.as_ref().and_then(of))
}

/// `long bpf_get_stackid(void *context, struct bpf_map *map, u64 flags)`.
#[inline]
pub(super) unsafe fn id(_context: u64, handle: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags & !(SKIP | USER | BY_HASH | REPLACE) != 0 {
        return EINVAL;
    }
    let mode = StackMode { by_hash: flags & BY_HASH != 0, replace: flags & REPLACE != 0 };
    // SAFETY: the verifier proved that `handle` is a map; `env` is the environment of the run in progress, whose
    // section
    // this thread is in.
    unsafe {
        let _section = super::sections::section(env);
        let id = stack(flags, env, |stack| {
            (!stack.is_empty()).then(|| map(handle).stack_id(stack, mode, (*env).cpu).cast_unsigned())
        });
        id.flatten().unwrap_or(EFAULT)
    }
}

/// `long bpf_get_stack(void *context, void *buffer, u32 size, u64 flags)`. The rest of the buffer is cleared, and on
/// failure all of it.
#[inline]
pub(super) unsafe fn get(_context: u64, buffer: u64, size: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    let by_file = flags & BUILD_ID != 0;
    let each = if by_file { BY_FILE } else { size_of::<u64>() };
    let to = std::ptr::with_exposed_provenance_mut::<u8>(buffer as usize);
    // SAFETY: the verifier proved that `size` bytes are writable there.
    unsafe { to.write_bytes(0, size) };
    if flags & !(SKIP | USER | BUILD_ID) != 0 || by_file && flags & USER == 0 || !size.is_multiple_of(each) {
        return EINVAL;
    }
    let copy = |stack: &[u64]| {
        let stack = &stack[..stack.len().min(size / each)];
        for (number, address) in stack.iter().enumerate() {
            // SAFETY: as above; `size` has room for so many.
            unsafe {
                let to = to.add(number * each);
                if by_file {
                    to.cast::<u32>().write_unaligned(NO_FILE);
                }
                to.add(each - size_of::<u64>()).cast::<u64>().write_unaligned(*address);
            }
        }
        (stack.len() * each) as u64
    };
    // SAFETY: `env` is the environment of the run in progress.
    unsafe { stack(flags, env, copy) }.unwrap_or(EFAULT)
}
