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
