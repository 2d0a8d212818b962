//! Where sleepable programs can be attached, and which maps they can use.
//!
//! Both limits apply to Linux's program types: the host decides where it may block, and elements of some kinds of
//! maps are kept alive only by a read-side critical section. A runtime's own types have neither limit. The lists
//! were determined by querying Linux 6.12.

use crate::{AttachTo, MapKind};

/// Security hooks at which a program may sleep.
const HOOKS: &[&str] = &[
    "bpf",
    "bpf_map",
    "bpf_map_create",
    "bpf_map_free",
    "bpf_prog",
    "bpf_prog_free",
    "bpf_prog_load",
    "bpf_token_capable",
    "bpf_token_cmd",
    "bpf_token_create",
    "bpf_token_free",
    "bprm_check_security",
    "bprm_committed_creds",
    "bprm_committing_creds",
    "bprm_creds_for_exec",
    "bprm_creds_from_file",
    "capget",
    "capset",
    "cred_prepare",
    "current_getsecid_subj",
    "file_ioctl",
    "file_lock",
    "file_open",
    "file_post_open",
    "file_receive",
    "inet_conn_established",
    "inode_create",
    "inode_free_security",
    "inode_getattr",
    "inode_getxattr",
    "inode_mknod",
    "inode_post_setxattr",
    "inode_readlink",
    "inode_rename",
    "inode_rmdir",
    "inode_setattr",
    "inode_setxattr",
    "inode_symlink",
    "inode_unlink",
    "kernel_module_request",
    "kernel_read_file",
    "kernfs_init_security",
    "mmap_file",
    "netlink_send",
    "path_chmod",
    "path_chown",
    "path_link",
    "path_mkdir",
    "path_notify",
    "path_rename",
    "path_rmdir",
    "path_symlink",
    "path_truncate",
    "path_unlink",
    "release_secctx",
    "sb_alloc_security",
    "sb_eat_lsm_opts",
    "sb_kern_mount",
    "sb_mount",
    "sb_remount",
    "sb_set_mnt_opts",
    "sb_show_options",
    "sb_statfs",
    "sb_umount",
    "settime",
    "socket_accept",
    "socket_bind",
    "socket_connect",
    "socket_create",
    "socket_getpeername",
    "socket_getpeersec_dgram",
    "socket_getsockname",
    "socket_getsockopt",
    "socket_listen",
    "socket_post_create",
    "socket_recvmsg",
    "socket_sendmsg",
    "socket_shutdown",
    "socket_socketpair",
    "syslog",
    "task_alloc",
    "task_getsecid_obj",
    "task_prctl",
    "task_setscheduler",
    "task_to_inode",
    "userns_create",
];

/// Name prefixes of functions at which a program may sleep: system calls, and the kernel's own tests. Linux allows
/// the system calls if it was built with error injection.
const FUNCTIONS: &[&str] = &[
    "__arm64_compat_sys_",
    "__arm64_sys_",
    "__ia32_compat_sys_",
    "__ia32_sys_",
    "__x64_sys_",
    "bpf_fentry_test",
    "bpf_modify_return_test",
    "should_fail",
];

/// Members of `struct_ops` structures at which a program must not sleep.
const MEMBERS: &[&str] = &["bpf_dummy_ops.test_1", "bpf_dummy_ops.test_2"];

/// Whether a program attached to `target` in that way may sleep there.
pub fn may_sleep_at(of: AttachTo, target: &str) -> bool {
    match of {
        AttachTo::SecurityHook => HOOKS.binary_search(&target).is_ok(),
        AttachTo::FunctionEntry | AttachTo::FunctionExit | AttachTo::FunctionModify => {
            FUNCTIONS.iter().any(|begin| target.starts_with(begin))
        }
        AttachTo::StructOps => !MEMBERS.contains(&target),
        AttachTo::Iterator => true,
        AttachTo::Tracepoint | AttachTo::ProgramFunction | AttachTo::Netfilter => false,
    }
}

/// Whether sleepable programs of Linux's types can use maps of that kind.
pub fn sleepers_use(kind: MapKind) -> bool {
    matches!(
        kind,
        MapKind::Hash
            | MapKind::LruHash
            | MapKind::Array
            | MapKind::PercpuHash
            | MapKind::PercpuArray
            | MapKind::LruPercpuHash
            | MapKind::ArrayOfMaps
            | MapKind::HashOfMaps
            | MapKind::Ringbuf
            | MapKind::UserRingbuf
            | MapKind::InodeStorage
            | MapKind::SkStorage
            | MapKind::TaskStorage
            | MapKind::CgrpStorage
            | MapKind::Queue
            | MapKind::Stack
            | MapKind::Arena
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_sorted_for_binary_search() {
        assert!(HOOKS.is_sorted());
        assert!(may_sleep_at(AttachTo::SecurityHook, "file_open"));
        assert!(!may_sleep_at(AttachTo::SecurityHook, "task_free"));
    }
}
