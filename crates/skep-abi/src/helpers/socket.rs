//! Helpers about sockets, TCP and control groups.

use super::kinds::*;
use crate::context::StructKind;
use crate::helper::{ArgKind, HelperFlags as H, HelperProto, RetKind};

const RELEASED: ArgKind = ArgKind::Released { nullable: false };
/// A socket that an acquiring helper found.
const FOUND: RetKind = found(StructKind::Sock);

/// The helpers.
pub(super) static HELPERS: &[HelperProto] = &[
    // Looking up sockets.
    f(84, "sk_lookup_tcp", [Context, READ, SIZE0, Anything, Anything], FOUND).acquiring(),
    f(85, "sk_lookup_udp", [Context, READ, SIZE0, Anything, Anything], FOUND).acquiring(),
    f(99, "skc_lookup_tcp", [Context, READ, SIZE0, Anything, Anything], found(StructKind::SockCommon))
        .acquiring(),
    f(86, "sk_release", [RELEASED], Number),
    f(95, "sk_fullsock", [SOCKET], FOUND).with(H::CAST),
    f(96, "tcp_sock", [SOCKET], found(StructKind::TcpSock)).with(H::CAST),
    f(98, "get_listener_sock", [SOCKET], FOUND),
    f(136, "skc_to_tcp6_sock", [ANY_SOCKET], gives("tcp6_sock")).with(H::CAST),
    f(137, "skc_to_tcp_sock", [ANY_SOCKET], gives("tcp_sock")).with(H::CAST),
    f(138, "skc_to_tcp_timewait_sock", [ANY_SOCKET], gives("tcp_timewait_sock")).with(H::CAST),
    f(139, "skc_to_tcp_request_sock", [ANY_SOCKET], gives("tcp_request_sock")).with(H::CAST),
    f(140, "skc_to_udp6_sock", [ANY_SOCKET], gives("udp6_sock")).with(H::CAST),
    f(178, "skc_to_unix_sock", [ANY_SOCKET], gives("unix_sock")).with(H::CAST),
    f(196, "skc_to_mptcp_sock", [SOCKET], gives("mptcp_sock")).with(H::CAST),
    f(162, "sock_from_file", [object(&["file"])], gives("socket")),
    // Properties and options of sockets.
    f(46, "get_socket_cookie", [Context], Number),
    f(49, "setsockopt", [Context, Anything, Anything, READ, SIZE], Number),
    f(57, "getsockopt", [Context, Anything, Anything, WRITE, SIZE], Number),
    f(59, "sock_ops_cb_flags_set", [Context, Anything], Number),
    f(64, "bind", [Context, READ, SIZE], Number),
    f(122, "get_netns_cookie", [ContextOrNull], Number),
    f(124, "sk_assign", [Context, ANY_SOCKET, Anything], Number),
    f(128, "sk_cgroup_id", [ANY_SOCKET], Number),
    f(129, "sk_ancestor_cgroup_id", [ANY_SOCKET, Anything], Number),
    // TCP.
    f(100, "tcp_check_syncookie", [ANY_SOCKET, READ, SIZE, READ, SIZE], Number).gpl(),
    f(110, "tcp_gen_syncookie", [ANY_SOCKET, READ, SIZE, READ, SIZE], Number).gpl(),
    f(116, "tcp_send_ack", [object(&["tcp_sock"]), Anything], Number),
    f(142, "load_hdr_opt", [Context, UPDATE, SIZE, Anything], Number),
    f(143, "store_hdr_opt", [Context, READ, SIZE, Anything], Number),
    f(144, "reserve_hdr_opt", [Context, Anything, Anything], Number),
    // Maps of sockets, and messages between them.
    f(52, "sk_redirect_map", [Context, Map, Anything, Anything], Number),
    f(53, "sock_map_update", [Context, Map, MapKey, Anything], Number).with(H::WRITES_ELEMENTS),
    f(70, "sock_hash_update", [Context, Map, MapKey, Anything], Number),
    f(72, "sk_redirect_hash", [Context, Map, MapKey, Anything], Number),
    f(60, "msg_redirect_map", [Context, Map, Anything, Anything], Number),
    f(71, "msg_redirect_hash", [Context, Map, MapKey, Anything], Number),
    f(61, "msg_apply_bytes", [Context, Anything], Number),
    f(62, "msg_cork_bytes", [Context, Anything], Number),
    f(63, "msg_pull_data", [Context, Anything, Anything, Anything], Number).moves(),
    f(90, "msg_push_data", [Context, Anything, Anything, Anything], Number).moves(),
    f(91, "msg_pop_data", [Context, Anything, Anything, Anything], Number).moves(),
    f(82, "sk_select_reuseport", [Context, Map, MapKey, Anything], Number),
    // Storage of sockets, inodes, tasks and control groups.
    f(81, "get_local_storage", [Map, Zero], RetKind::MapValue),
    f(107, "sk_storage_get", [Map, ANY_SOCKET, VALUE_OR_NULL, Anything], RetKind::MapValueOrNull),
    f(108, "sk_storage_delete", [Map, ANY_SOCKET], Number),
    f(145, "inode_storage_get", [Map, INODE, VALUE_OR_NULL, Anything], RetKind::MapValueOrNull),
    f(146, "inode_storage_delete", [Map, INODE], Number),
    f(156, "task_storage_get", [Map, TASK, VALUE_OR_NULL, Anything], RetKind::MapValueOrNull)
        .with(H::MACHINE),
    f(157, "task_storage_delete", [Map, TASK], Number).with(H::MACHINE),
    f(210, "cgrp_storage_get", [Map, CGROUP, VALUE_OR_NULL, Anything], RetKind::MapValueOrNull)
        .with(H::MACHINE),
    f(211, "cgrp_storage_delete", [Map, CGROUP], Number).with(H::MACHINE),
    // Control group programs.
    f(101, "sysctl_get_name", [Context, UPDATE, SIZE, Anything], Number),
    f(102, "sysctl_get_current_value", [Context, WRITE, SIZE], Number),
    f(103, "sysctl_get_new_value", [Context, WRITE, SIZE], Number),
    f(104, "sysctl_set_new_value", [Context, READ, SIZE], Number),
    f(186, "get_retval", [], Number),
    f(187, "set_retval", [Anything], Number),
];

const INODE: ArgKind = object_or_null(&["inode"]);
const TASK: ArgKind = object_or_null(&["task_struct"]);
const CGROUP: ArgKind = object_or_null(&["cgroup"]);
