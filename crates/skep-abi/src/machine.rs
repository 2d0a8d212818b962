//! Objects of a runtime's machine that programs hold: tasks and cgroups.
//!
//! ```text
//!   task     0 owners u32 | 4 gone u32 | 8 number u64 | 16 pid u32 | 20 tgid u32 | 24 cgroups u64 | 32 css_set
//!   css_set  0 dfl_cgrp u64
//!   cgroup   0 owners u32 | 4 gone u32 | 8 kernfs_node | 16 level u32 | 20 unused | 24 kn u64
//!   kernfs_node  0 number u64
//! ```
//!
//! Their types are numbers that no file has ([`TASK`], [`CGROUP`], [`CSS_SET`], [`KERNFS_NODE`]). Calls take their
//! addresses, and programs load the members below. Where a member is in a program's structure is what the host's
//! types say, or the program's own without them; the verifier finds its name there, and the load becomes one at the
//! native place.

use crate::{CGROUP, CSS_SET, KERNFS_NODE, TASK};

/// A member that programs may load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineField {
    /// The type that it is a member of.
    pub of: u32,
    /// Its name, or the names that lead to it.
    pub member: &'static str,
    /// Its size in bytes.
    pub bytes: u32,
    /// Where it is, in bytes from the object's start.
    pub offset: u16,
    /// The type of the object that it points to, which lives in the same read section; `None` for a number.
    pub to: Option<u32>,
}

/// Bytes of a task.
pub const TASK_BYTES: u32 = 40;
/// Bytes of a cgroup.
pub const CGROUP_BYTES: u32 = 32;
/// Where the number of an object's owners is.
pub const MACHINE_OWNERS: u32 = 0;
/// Where a word is that is not 0 once the machine no longer has the object.
pub const MACHINE_GONE: u32 = 4;
/// Where the object's number is.
pub const MACHINE_NUMBER: u32 = 8;
/// Where a task has the number of its thread, and a cgroup its level.
pub const MACHINE_MEMBERS: u32 = 16;
/// Where a task has the number of its process.
pub const TASK_TGID: u32 = 20;
/// Where a task has the address of its set of cgroups.
pub const TASK_CGROUPS: u32 = 24;
/// Where a task has its set of cgroups, which is the address of its cgroup.
pub const TASK_CSS_SET: u32 = 32;

/// Where a cgroup has the address of its number.
pub const CGROUP_KN: u32 = 24;

/// All of them.
pub static MACHINE_FIELDS: [MachineField; 8] = [
    MachineField { of: TASK, member: "pid", bytes: 4, offset: MACHINE_MEMBERS as u16, to: None },
    MachineField { of: TASK, member: "tgid", bytes: 4, offset: TASK_TGID as u16, to: None },
    MachineField { of: TASK, member: "cgroups", bytes: 8, offset: TASK_CGROUPS as u16, to: Some(CSS_SET) },
    MachineField { of: CSS_SET, member: "dfl_cgrp", bytes: 8, offset: 0, to: Some(CGROUP) },
    MachineField { of: CGROUP, member: "level", bytes: 4, offset: MACHINE_MEMBERS as u16, to: None },
    MachineField { of: CGROUP, member: "self.id", bytes: 4, offset: MACHINE_NUMBER as u16, to: None },
    MachineField { of: CGROUP, member: "kn", bytes: 8, offset: CGROUP_KN as u16, to: Some(KERNFS_NODE) },
    MachineField { of: KERNFS_NODE, member: "id", bytes: 8, offset: 0, to: None },
];
