//! Tasks and cgroups as objects: `bpf_get_current_task_btf`, `bpf_task_acquire`, `bpf_cgroup_from_id` and their kin.
//!
//! What programs have are addresses of [`MachineObject`]s. The verifier proved of each argument that it is one of the
//! right type that is alive, or was freed in this section. An object whose last owner is gone cannot be acquired any
//! more.

use crate::machine_objects::MachineObjects;
use crate::shared::Shared;
use skep_abi::RunEnv;
use skep_maps::objects::{self, MachineObject};
use skep_world::Machine;

/// # Safety
///
/// As for all functions here: `env` is the environment of the run in progress.
unsafe fn known<'a>(env: *mut RunEnv) -> &'a MachineObjects {
    // SAFETY: the caller's promise.
    unsafe { &Shared::of_run(env).machine_objects }
}

/// One more share of an object for the program; 0 if there is none, or its last owner is gone.
fn acquired(object: Option<MachineObject>) -> u64 {
    // SAFETY: objects count their owners; this one was found in the current section.
    let object = object.filter(|object| unsafe { objects::acquire(object.address()) });
    object.map_or(0, MachineObject::address)
}

/// `struct task_struct *bpf_get_current_task_btf(void)`.
#[inline]
pub(super) unsafe fn current_task(env: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { known(env) }.current_task()
}

/// `struct task_struct *bpf_task_acquire(struct task_struct *p)`, and `bpf_cgroup_acquire`.
#[inline]
pub(super) unsafe fn acquire(object: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as said above.
    acquired(Some(unsafe { MachineObject::at(object) }))
}

/// `void bpf_task_release(struct task_struct *p)`, and `bpf_cgroup_release`.
#[inline]
pub(super) unsafe fn release(object: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the program had a share.
    unsafe { super::objects::obj_drop(object, env) }
}

/// `struct task_struct *bpf_task_from_pid(s32 pid)`, and `bpf_task_from_vpid`: a world has one namespace.
#[inline]
pub(super) unsafe fn task_from_pid(pid: u64, env: *mut RunEnv) -> u64 {
    let pid = pid as u32;
    // As in Linux, the idle task is not found, nor is what no task has.
    if pid == 0 || pid.cast_signed() < 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let _section = super::sections::section(env);
        acquired(known(env).task(pid))
    }
}

/// `long bpf_task_under_cgroup(struct task_struct *task, struct cgroup *ancestor)`: 1 if the task is in it or below.
#[inline]
pub(super) unsafe fn task_under_cgroup(task: u64, ancestor: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as said above.
    unsafe {
        let (task, ancestor) = (MachineObject::at(task), MachineObject::at(ancestor));
        let Some(group) = task.cgroup() else { return 0 };
        if group.address() == ancestor.address() {
            return 1;
        }
        let below = |machine: &Machine| machine.cgroup_path(group.number()).any(|id| id == ancestor.number());
        (!ancestor.is_gone() && Shared::of_run(env).surroundings.with(below)).into()
    }
}

/// `struct cgroup *bpf_task_get_cgroup1(struct task_struct *task, int hierarchy_id)`: a world has no hierarchies but
/// the one of version 2, so it is null.
#[inline]
pub(super) unsafe fn task_cgroup1(_task: u64, _hierarchy: u64, _: *mut RunEnv) -> u64 {
    0
}

/// `struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level)`.
#[inline]
pub(super) unsafe fn cgroup_ancestor(group: u64, level: u64, env: *mut RunEnv) -> u64 {
    let Ok(level) = usize::try_from(level as u32 as i32) else { return 0 };
    // SAFETY: as said above.
    unsafe {
        let _section = super::sections::section(env);
        let group = MachineObject::at(group);
        if group.is_gone() {
            return 0;
        }
        let number = group.number();
        let found = Shared::of_run(env).surroundings.with(|machine| machine.cgroup_at_level(number, level));
        match found {
            Some(found) if found == number => acquired(Some(group)),
            found => acquired(found.and_then(|found| known(env).cgroup(found))),
        }
    }
}

/// `struct cgroup *bpf_cgroup_from_id(u64 cgid)`.
#[inline]
pub(super) unsafe fn cgroup_from_id(number: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        let _section = super::sections::section(env);
        acquired(known(env).cgroup(number))
    }
}
