//! Attachment targets that Linux 6.12 refuses although the program type allows them: functions and members, one by
//! one.
//!
//! The kernel keeps these lists in its own sections, and its BTF does not contain them. Other releases have other
//! lists. A function that is in no table is treated like most functions: attaching to it is allowed, changing its
//! result is not.

use crate::types::AttachTo;

/// Functions that the kernel itself calls around programs. No program can be attached to them.
const AROUND_PROGRAMS: &[&str] =
    &["__rcu_read_lock", "__rcu_read_unlock", "migrate_disable", "migrate_enable"];

/// Functions that never return, so no program can run after them.
const WITHOUT_RETURN: &[&str] = &[
    "__ia32_sys_exit",
    "__ia32_sys_exit_group",
    "__module_put_and_kthread_exit",
    "__x64_sys_exit",
    "__x64_sys_exit_group",
    "do_exit",
    "do_group_exit",
    "kthread_complete_and_exit",
    "kthread_exit",
    "make_task_dead",
];

/// Functions whose results programs may change, in addition to those whose names begin with [`SECURITY`]. A kernel
/// built with error injection (`CONFIG_FUNCTION_ERROR_INJECTION`) allows more; this list is from a kernel without
/// it.
const MODIFIABLE: &[&str] = &[
    "bpf_fentry_test1",
    "bpf_modify_return_test",
    "bpf_modify_return_test2",
    "bpf_modify_return_test_tp",
    "update_socket_protocol",
];

/// Name prefix of the functions that call security modules.
const SECURITY: &str = "security_";

/// Members of `struct_ops` structures that cannot be implemented by a program.
const UNSUPPORTED_MEMBERS: &[&str] = &["tcp_congestion_ops.get_info"];

/// A member of the host's objects that programs of one `struct_ops` structure may write.
#[derive(Debug)]
pub struct WritableMember {
    /// The structure whose functions the program implements.
    pub ops: &'static str,
    /// The object's type.
    pub of: &'static str,
    /// The members that lead to it, as C writes them.
    pub member: &'static str,
    /// Whether a store may begin behind its first byte.
    pub anywhere: bool,
}

const fn writable(
    ops: &'static str,
    of: &'static str,
    member: &'static str,
    anywhere: bool,
) -> WritableMember {
    WritableMember { ops, of, member, anywhere }
}

/// All of them. Linux 6.12 was asked about stores of each size at each offset of `struct tcp_sock`.
pub const WRITABLE_MEMBERS: &[WritableMember] = &[
    writable("bpf_dummy_ops", "bpf_dummy_ops_state", "val", true),
    writable("tcp_congestion_ops", "tcp_sock", "app_limited", false),
    writable("tcp_congestion_ops", "tcp_sock", "ecn_flags", false),
    writable("tcp_congestion_ops", "tcp_sock", "inet_conn.icsk_ack.pending", false),
    writable("tcp_congestion_ops", "tcp_sock", "inet_conn.icsk_ca_priv", true),
    writable("tcp_congestion_ops", "tcp_sock", "inet_conn.icsk_inet.sk.sk_pacing_rate", false),
    writable("tcp_congestion_ops", "tcp_sock", "inet_conn.icsk_inet.sk.sk_pacing_status", false),
    writable("tcp_congestion_ops", "tcp_sock", "snd_cwnd", false),
    writable("tcp_congestion_ops", "tcp_sock", "snd_cwnd_cnt", false),
    writable("tcp_congestion_ops", "tcp_sock", "snd_cwnd_stamp", false),
    writable("tcp_congestion_ops", "tcp_sock", "snd_ssthresh", false),
];

impl AttachTo {
    /// Why no program can be attached there, if the target's name alone decides that.
    pub fn denied(self, target: &str) -> Option<&'static str> {
        let function = matches!(self, Self::FunctionEntry | Self::FunctionExit | Self::FunctionModify);
        if function && AROUND_PROGRAMS.contains(&target) {
            return Some("the kernel calls it around every program, so the program would call itself");
        }
        match self {
            Self::FunctionExit | Self::FunctionModify if WITHOUT_RETURN.contains(&target) => {
                Some("it never returns")
            }
            Self::FunctionModify if !target.starts_with(SECURITY) && !MODIFIABLE.contains(&target) => {
                Some("its result may not be changed")
            }
            Self::StructOps if UNSUPPORTED_MEMBERS.contains(&target) => Some("it cannot be a program"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_ascend() {
        for list in [AROUND_PROGRAMS, WITHOUT_RETURN, MODIFIABLE, UNSUPPORTED_MEMBERS] {
            assert!(list.is_sorted());
        }
    }

    #[test]
    fn what_is_denied_depends_on_how_a_program_is_attached() {
        let denied = |of: AttachTo, target| of.denied(target).is_some();
        let functions = [AttachTo::FunctionEntry, AttachTo::FunctionExit, AttachTo::FunctionModify];
        assert_eq!(functions.map(|of| denied(of, "migrate_disable")), [true; 3]);
        assert_eq!(functions.map(|of| denied(of, "do_exit")), [false, true, true]);
        assert_eq!(functions.map(|of| denied(of, "vfs_read")), [false, false, true]);
        assert_eq!(functions.map(|of| denied(of, "security_file_open")), [false; 3]);
        assert!(!denied(AttachTo::SecurityHook, "migrate_disable"));
        assert!(denied(AttachTo::StructOps, "tcp_congestion_ops.get_info"));
        assert!(!denied(AttachTo::StructOps, "tcp_congestion_ops.ssthresh"));
    }
}
