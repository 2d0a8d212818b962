//! Storages of sockets, tasks and cgroups, and of the control group that a program is attached to.

use super::errno::{EINVAL, ENOENT};
use super::map::map;
use super::socket::own;
use crate::image::Image;
use crate::packet::Effects;
use crate::socket::NativeSocket;
use skep_abi::{ArgKind, RunEnv};
use skep_maps::Storage;
use skep_maps::objects::MachineObject;

/// `BPF_SK_STORAGE_GET_F_CREATE` and `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const CREATE: u64 = 1;

/// The number of a full socket that a program passes. For some types it is the context itself.
///
/// # Safety
///
/// `argument` is what the type's prototype of the helper says; `env` is the environment of the run in progress.
unsafe fn owner(helper: u32, argument: u64, env: *mut RunEnv) -> Option<u64> {
    // SAFETY: the caller's promise.
    let socket = unsafe {
        let kind = Image::of_run(env).verified.program_type();
        let of_context = kind.helper(helper).is_some_and(|proto| proto.args[1] == ArgKind::Context);
        if of_context { own(argument, env) } else { NativeSocket::of(argument) }
    };
    socket.filter(|socket| socket.is_full()).map(|socket| socket.socket().cookie)
}

/// `void *bpf_sk_storage_get(struct bpf_map *map, void *sk, void *value, u64 flags)`.
#[inline]
pub(super) unsafe fn sk_get(handle: u64, socket: u64, value: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags & !CREATE != 0 {
        return 0;
    }
    let storage = first(value, flags);
    // SAFETY: the verifier proved the arguments by the type's prototype: `value` is null or readable for the map's
    // value size; `env` is the environment of the run in progress.
    unsafe {
        let Some(owner) = owner(107, socket, env) else { return 0 };
        let _section = super::sections::section(env);
        map(handle).storage_ptr(owner, 0, storage, (*env).cpu) as u64
    }
}

/// `long bpf_sk_storage_delete(struct bpf_map *map, void *sk)`.
#[inline]
pub(super) unsafe fn sk_delete(handle: u64, socket: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe {
        let Some(owner) = owner(108, socket, env) else { return EINVAL };
        let _section = super::sections::section(env);
        if map(handle).delete_storage_ptr(owner, (*env).cpu) { 0 } else { ENOENT }
    }
}

/// What a missing element begins with.
fn first(value: u64, flags: u64) -> Storage {
    match (flags & CREATE, value) {
        (0, _) => Storage::Find,
        (_, 0) => Storage::Zeroed,
        (_, value) => Storage::From(value as *const u8),
    }
}

/// `void *bpf_task_storage_get(struct bpf_map *map, struct task_struct *task, void *value, u64 flags)`, and
/// `bpf_cgrp_storage_get`. What the machine no longer has gets no element.
#[inline]
pub(super) unsafe fn machine_get(handle: u64, object: u64, value: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if object == 0 || flags & !CREATE != 0 {
        return 0;
    }
    // SAFETY: as above; the verifier proved that `object` is null, or a task or cgroup that is alive or was freed in
    // this section.
    unsafe {
        let owner = MachineObject::at(object);
        // Its number may be another's by now.
        if owner.is_gone() {
            return 0;
        }
        let _section = super::sections::section(env);
        let (map, cpu) = (map(handle), (*env).cpu);
        let found = map.storage_ptr(owner.number(), 0, first(value, flags), cpu);
        // Whoever ends an owner says so before deleting its elements, so one of the two deletes this one.
        if !found.is_null() && owner.is_gone() {
            map.delete_storage_ptr(owner.number(), cpu);
            return 0;
        }
        found as u64
    }
}

/// `long bpf_task_storage_delete(struct bpf_map *map, struct task_struct *task)`, and `bpf_cgrp_storage_delete`.
#[inline]
pub(super) unsafe fn machine_delete(handle: u64, object: u64, env: *mut RunEnv) -> u64 {
    if object == 0 {
        return EINVAL;
    }
    // SAFETY: as above.
    unsafe {
        let owner = MachineObject::at(object);
        let _section = super::sections::section(env);
        let deleted = !owner.is_gone() && map(handle).delete_storage_ptr(owner.number(), (*env).cpu);
        if deleted { 0 } else { ENOENT }
    }
}

/// `void *bpf_get_local_storage(void *map, u64 flags)`. Never null: if there is no memory for another cgroup's element,
/// it is that of the cgroup 0, which each map has from the start.
#[inline]
pub(super) unsafe fn of_cgroup(handle: u64, _flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe {
        let attach = Image::of_run(env).verified.program_type().attach.unwrap_or(0);
        let cgroup = Effects::of_run(env).map_or(0, |effects| effects.told.cgroup);
        let (map, cpu) = (map(handle), (*env).cpu);
        let _section = super::sections::section(env);
        let found = map.storage_ptr(cgroup, attach, Storage::Zeroed, cpu);
        if found.is_null() { map.storage_ptr(0, 0, Storage::Find, cpu) as u64 } else { found as u64 }
    }
}
