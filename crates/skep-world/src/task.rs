//! Tasks and cgroups.

/// A task: what the helpers about the current task tell of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The number of the thread (`pid` in the kernel's words).
    pub pid: u32,
    /// The number of its process (`tgid`).
    pub tgid: u32,
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Its name, of which programs see the first 15 bytes.
    pub comm: String,
    /// Its cgroup, by number.
    pub cgroup: u64,
    /// The address of its structure, as `bpf_get_current_task` returns it. What programs read there is in
    /// [`Machine::memory`](crate::Machine::memory).
    pub address: u64,
    /// The addresses of the functions that it is in within the kernel, the innermost first.
    pub kernel_stack: Vec<u64>,
    /// The same of its process.
    pub user_stack: Vec<u64>,
    /// The namespace of its numbers, by the device and the inode of `/proc/self/ns/pid`; `None`: any that a program
    /// asks for.
    pub pid_namespace: Option<(u64, u64)>,
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Its number, as helpers return it.
    pub id: u64,
    /// Its path below the root, `/` for the root itself.
    pub path: String,
    /// The number of the cgroup that it is in; `None` for the root.
    pub parent: Option<u64>,
    /// Its class for traffic control.
    pub classid: u32,
}
