//! The current task, which is the world's, and control groups: the task's and those of sockets.

use super::buffer::skb;
use super::client;
use super::errno::{E2BIG, EAGAIN, EINVAL, ENOENT};
use super::map::map;
use crate::shared::Shared;
use crate::socket::NativeSocket;
use skep_abi::RunEnv;
use skep_world::{Machine, Task};

/// Bytes of a task's name with the zero at its end (`TASK_COMM_LEN`).
const NAME: usize = 16;

/// What the machine's task gives, or `otherwise` without one.
///
/// # Safety
///
/// `env` is the environment of the run in progress.
unsafe fn of_task(env: *mut RunEnv, otherwise: u64, ask: impl FnOnce(&Machine, &Task) -> u64) -> u64 {
    // SAFETY: the caller's promise.
    let shared = unsafe { Shared::of_run(env) };
    shared.surroundings.with(|machine| machine.task.as_ref().map_or(otherwise, |task| ask(machine, task)))
}

/// In a test run for a client, without a task of the world, the client's.
#[inline]
pub(super) unsafe fn pid_tgid(env: *mut RunEnv) -> u64 {
    let both = |tgid: u32, pid: u32| u64::from(tgid) << 32 | u64::from(pid);
    let otherwise = client::task().map_or(EINVAL, |(tgid, pid)| both(tgid, pid));
    // SAFETY: `env` is the environment of the run in progress.
    unsafe { of_task(env, otherwise, |_, task| both(task.tgid, task.pid)) }
}

#[inline]
pub(super) unsafe fn uid_gid(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { of_task(env, EINVAL, |_, task| u64::from(task.gid) << 32 | u64::from(task.uid)) }
}

/// The address of the task's structure; 0 without a task.
#[inline]
pub(super) unsafe fn address(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { of_task(env, 0, |_, task| task.address) }
}

/// `long bpf_get_ns_current_pid_tgid(u64 dev, u64 ino, struct bpf_pidns_info *to, u32 size)`.
#[inline]
pub(super) unsafe fn namespace_pid_tgid(
    device: u64,
    inode: u64,
    to: u64,
    size: u64,
    env: *mut RunEnv,
) -> u64 {
    let mut numbers = [0, 0];
    let ask = |_: &Machine, task: &Task| {
        if size as u32 as usize != size_of::<[u32; 2]>()
            || task.pid_namespace.is_some_and(|namespace| namespace != (device, inode))
        {
            return EINVAL;
        }
        numbers = [task.pid, task.tgid];
        0
    };
    // SAFETY: as above; the verifier proved that `size` bytes are writable at `to`.
    unsafe {
        let status = of_task(env, EINVAL, ask);
        let to = to as *mut u8;
        to.write_bytes(0, size as u32 as usize);
        if status == 0 {
            to.cast::<[u32; 2]>().write_unaligned(numbers);
        }
        status
    }
}

/// The task's name, padded with zeroes.
#[inline]
pub(super) unsafe fn comm(to: u64, len: u64, env: *mut RunEnv) -> u64 {
    let mut name = [0; NAME];
    let ask = |_: &Machine, task: &Task| {
        let bytes = &task.comm.as_bytes()[..task.comm.len().min(NAME - 1)];
        name[..bytes.len()].copy_from_slice(bytes);
        0
    };
    // SAFETY: as above; the verifier proved that `to` is writable for `len` bytes.
    unsafe {
        let status = of_task(env, EINVAL, ask);
        let (to, len) = (to as *mut u8, len as u32 as usize);
        to.write_bytes(0, len);
        to.copy_from(name.as_ptr(), len.saturating_sub(1).min(NAME));
        status
    }
}

#[inline]
pub(super) unsafe fn cgroup_id(env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { of_task(env, 0, |_, task| task.cgroup) }
}

#[inline]
pub(super) unsafe fn ancestor_cgroup_id(level: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { of_task(env, 0, |machine, task| at_level(machine, task.cgroup, level)) }
}

/// Whether the task is in an element of a `cgroup_array`, or below it.
#[inline]
pub(super) unsafe fn under_cgroup(handle: u64, index: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above; the verifier proved that `handle` is a map.
    unsafe {
        let within = match element(handle, index, env) {
            Ok(within) => within,
            Err(errno) => return errno,
        };
        of_task(env, 0, |machine, task| machine.cgroup_path(task.cgroup).any(|id| id == within).into())
    }
}

/// Whether the packet's socket is in an element of a `cgroup_array`, or below it.
#[inline]
pub(super) unsafe fn skb_under_cgroup(context: u64, handle: u64, index: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above; the verifier proved that `context` is the run's own.
    unsafe {
        let Some(of) = sender(context) else { return ENOENT };
        let within = match element(handle, index, env) {
            Ok(within) => within,
            Err(errno) => return errno,
        };
        let under = |machine: &Machine| machine.cgroup_path(of).any(|id| id == within);
        Shared::of_run(env).surroundings.with(under).into()
    }
}

/// The cgroup of the packet's socket; 0 without one.
#[inline]
pub(super) unsafe fn skb_cgroup_id(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { sender(context).unwrap_or(0) }
}

#[inline]
pub(super) unsafe fn skb_ancestor_cgroup_id(context: u64, level: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe {
        let Some(of) = sender(context) else { return 0 };
        Shared::of_run(env).surroundings.with(|machine| at_level(machine, of, level))
    }
}

/// The cgroup of a socket.
#[inline]
pub(super) unsafe fn sk_cgroup_id(pointer: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is a socket of this runtime.
    unsafe { NativeSocket::of(pointer) }.map_or(0, |socket| socket.socket().cgroup)
}

#[inline]
pub(super) unsafe fn sk_ancestor_cgroup_id(pointer: u64, level: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above; `env` is the environment of the run in progress.
    unsafe {
        let Some(socket) = NativeSocket::of(pointer) else { return 0 };
        Shared::of_run(env).surroundings.with(|machine| at_level(machine, socket.socket().cgroup, level))
    }
}

/// The cgroup of the packet's socket.
///
/// # Safety
///
/// `context` is a packet's, in a run on it.
unsafe fn sender(context: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    let socket = unsafe { NativeSocket::of(skb(context).sk)? };
    Some(socket.socket().cgroup)
}

/// The number of the cgroup in an element of a `cgroup_array`.
///
/// # Safety
///
/// `handle` is a map of the program in a run with that environment.
unsafe fn element(handle: u64, index: u64, env: *mut RunEnv) -> Result<u64, u64> {
    let index = index as u32;
    // SAFETY: the caller's promise; the key has the size of an array's.
    unsafe {
        let map = map(handle);
        if index >= map.def().max_entries {
            return Err(E2BIG);
        }
        let _section = super::sections::section(env);
        let member = map.member_ptr((&raw const index).cast(), (*env).cpu);
        member.map(skep_maps::Member::id).ok_or(EAGAIN)
    }
}

/// The ancestor at a level; 0 where there is none.
fn at_level(machine: &Machine, id: u64, level: u64) -> u64 {
    let level = usize::try_from(level as u32 as i32);
    level.ok().and_then(|level| machine.cgroup_at_level(id, level)).unwrap_or(0)
}
