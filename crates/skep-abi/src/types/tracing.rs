//! Types of programs that see the host's objects with their types.

use super::{AttachTo, Context, Native, ProgramType, Results, SocketMaps};
use crate::helpers::{sets, variants};

/// The family's types.
pub(super) static TYPES: &[&ProgramType] = &[
    &ProgramType {
        attach: Some(24),
        sections: &["fentry"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::FunctionEntry },
        helpers: sets::FUNCTION,
        variants: variants::TRACING_STORAGE,
        limited: PATHS,
        barred: SOCKET_STORAGE,
        results: ZERO,
        ..TRACING
    },
    &ProgramType {
        attach: Some(25),
        sections: &["fexit"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::FunctionExit },
        helpers: sets::FUNCTION,
        variants: variants::TRACING_STORAGE,
        limited: PATHS,
        barred: SOCKET_STORAGE,
        results: ZERO,
        ..TRACING
    },
    &ProgramType {
        attach: Some(26),
        sections: &["fmod_ret"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::FunctionModify },
        helpers: sets::FUNCTION_MODIFY,
        limited: PATHS,
        ..TRACING
    },
    &ProgramType {
        attach: Some(23),
        sections: &["tp_btf"],
        context: Context::Arguments { of: AttachTo::Tracepoint },
        helpers: sets::TYPED_TRACEPOINT,
        variants: variants::TRACING_STORAGE,
        ..TRACING
    },
    &ProgramType {
        attach: Some(28),
        socket_maps: SocketMaps::Change,
        sections: &["iter"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::Iterator },
        native: Some(Native::Iterator),
        helpers: sets::ITERATOR,
        limited: &[(49, SOCKET_ITERATORS), (57, SOCKET_ITERATORS)],
        variants: variants::ITERATOR,
        results: FLAG,
        ..TRACING
    },
    &ProgramType {
        name: "lsm",
        number: Some(29),
        attach: Some(27),
        sections: &["lsm"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::SecurityHook },
        helpers: sets::SECURITY_HOOK,
        results: Results::OfAttachment,
        ..TRACING
    },
    &ProgramType {
        name: "lsm",
        number: Some(29),
        attach: Some(43),
        sections: &["lsm_cgroup"],
        context: Context::Arguments { of: AttachTo::SecurityHook },
        helpers: sets::CGROUP_SECURITY_HOOK,
        limited: &[(49, SOCKET_HOOKS), (57, SOCKET_HOOKS)],
        variants: variants::SOCKET_HOOKS,
        results: FLAG,
        ..TRACING
    },
    &ProgramType {
        name: "struct_ops",
        number: Some(27),
        sections: &["struct_ops"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::StructOps },
        native: Some(Native::Arguments),
        helpers: sets::STRUCT_OPS,
        variants: variants::SOCKET_OPTIONS,
        results: Results::OfAttachment,
        ..TRACING
    },
    &ProgramType {
        name: "ext",
        number: Some(28),
        sections: &["freplace"],
        context: Context::Arguments { of: AttachTo::ProgramFunction },
        helpers: sets::COMMON,
        variants: &[],
        results: Results::OfAttachment,
        ..TRACING
    },
];

/// Functions where a path may be resolved to a string.
const PATHS: &[(u32, &[&str])] = &[(
    147,
    &[
        "security_file_permission",
        "security_inode_getattr",
        "security_file_open",
        "security_path_truncate",
        "vfs_truncate",
        "vfs_fallocate",
        "dentry_open",
        "vfs_getattr",
        "filp_close",
    ],
)];
/// Functions that create or free socket storage must not use it.
const SOCKET_STORAGE: &[(u32, &str)] = &[(107, "bpf_sk_storage"), (108, "bpf_sk_storage")];
/// Hooks with a socket whose options may be read and set.
const SOCKET_ITERATORS: &[&str] = &["tcp", "unix"];
const SOCKET_HOOKS: &[&str] =
    &["inet_conn_established", "inet_csk_clone", "sock_graft", "socket_post_create", "socket_socketpair"];

const ZERO: Results = Results::Range { min: 0, max: 0 };
const FLAG: Results = Results::Range { min: 0, max: 1 };

const TRACING: ProgramType = ProgramType {
    name: "tracing",
    number: Some(26),
    may_leak: true,
    variants: variants::TRACING,
    ..ProgramType::PLAIN
};
