//! Helpers of programs that see packets: socket buffers, XDP, lightweight tunnels, redirection.

use super::kinds::*;
use crate::helper::{Access, ArgKind, HelperProto};

/// A 32-bit number that the helper reads and changes.
const U32_INOUT: ArgKind = fixed(Access::ReadWrite, 4);
/// IPv4 and IPv6 headers without options, and TCP headers.
const IPV4: ArgKind = fixed(Access::Read, 20);
const IPV6: ArgKind = fixed(Access::Read, 40);
const TCP: ArgKind = fixed(Access::Read, 20);

/// The helpers.
pub(super) static HELPERS: &[HelperProto] = &[
    // What is in a packet.
    f(9, "skb_store_bytes", [Context, Scalar, READ, SIZE, Scalar], STATUS).moves(),
    f(10, "l3_csum_replace", [Context, Scalar, Scalar, Scalar, Scalar], STATUS).moves(),
    f(11, "l4_csum_replace", [Context, Scalar, Scalar, Scalar, Scalar], STATUS).moves(),
    f(26, "skb_load_bytes", [Context, Scalar, WRITE, SIZE], STATUS),
    f(68, "skb_load_bytes_relative", [Context, Anything, WRITE, SIZE, Anything], Number),
    f(28, "csum_diff", [READ_OR_NULL, SIZE0, READ_OR_NULL, SIZE0, Scalar], Number),
    f(40, "csum_update", [Context, Anything], Number),
    f(135, "csum_level", [Context, Anything], Number),
    f(188, "xdp_get_buff_len", [Context], Number),
    f(189, "xdp_load_bytes", [Context, Anything, WRITE, SIZE], Number),
    f(190, "xdp_store_bytes", [Context, Anything, READ, SIZE], Number),
    f(204, "tcp_raw_gen_syncookie_ipv4", [IPV4, READ, SIZE0], Number).gpl(),
    f(205, "tcp_raw_gen_syncookie_ipv6", [IPV6, READ, SIZE0], Number).gpl(),
    f(206, "tcp_raw_check_syncookie_ipv4", [IPV4, TCP], Number).gpl(),
    f(207, "tcp_raw_check_syncookie_ipv6", [IPV6, TCP], Number).gpl(),
    // Its size and headers.
    f(18, "skb_vlan_push", [Context, Anything, Anything], Number).moves(),
    f(19, "skb_vlan_pop", [Context], Number).moves(),
    f(31, "skb_change_proto", [Context, Anything, Anything], Number).moves(),
    f(38, "skb_change_tail", [Context, Anything, Anything], Number).moves(),
    f(39, "skb_pull_data", [Context, Anything], Number).moves(),
    f(43, "skb_change_head", [Context, Anything, Anything], Number).moves(),
    f(44, "xdp_adjust_head", [Context, Scalar], STATUS).moves(),
    f(50, "skb_adjust_room", [Context, Anything, Anything, Anything], Number).moves(),
    f(54, "xdp_adjust_meta", [Context, Scalar], STATUS).moves(),
    f(65, "xdp_adjust_tail", [Context, Scalar], STATUS).moves(),
    f(97, "skb_ecn_set_ce", [Context], Number),
    // Its metadata.
    f(17, "get_cgroup_classid", [Context], Number),
    f(20, "skb_get_tunnel_key", [Context, WRITE, SIZE, Anything], Number),
    f(21, "skb_set_tunnel_key", [Context, READ, SIZE, Anything], Number),
    f(24, "get_route_realm", [Context], Number),
    f(29, "skb_get_tunnel_opt", [Context, WRITE, SIZE], Number),
    f(30, "skb_set_tunnel_opt", [Context, READ, SIZE], Number),
    f(32, "skb_change_type", [Context, Anything], Number),
    f(33, "skb_under_cgroup", [Context, Map, Anything], Number),
    f(34, "get_hash_recalc", [Context], Number),
    f(41, "set_hash_invalid", [Context], Number),
    f(47, "get_socket_uid", [Context], Number),
    f(48, "set_hash", [Context, Anything], Number),
    f(66, "skb_get_xfrm_state", [Context, Anything, WRITE, SIZE, Anything], Number),
    f(79, "skb_cgroup_id", [Context], Number),
    f(83, "skb_ancestor_cgroup_id", [Context, Anything], Number),
    f(151, "skb_cgroup_classid", [Context], Number),
    f(192, "skb_set_tstamp", [Context, Anything, Anything], Number),
    // Redirection.
    f(13, "clone_redirect", [Context, Anything, Anything], Number).moves(),
    f(23, "redirect", [Anything, Anything], Number),
    f(51, "redirect_map", [Map, Anything, Anything], Number),
    f(69, "fib_lookup", [Context, UPDATE, SIZE, Anything], Number).gpl(),
    f(152, "redirect_neigh", [Anything, READ_OR_NULL, SIZE0, Anything], Number),
    f(155, "redirect_peer", [Anything, Anything], Number),
    f(163, "check_mtu", [Context, Anything, U32_INOUT, Anything, Anything], Number).gpl(),
    // Lightweight tunnels.
    f(73, "lwt_push_encap", [Context, Anything, READ, SIZE], Number).moves(),
    f(74, "lwt_seg6_store_bytes", [Context, Anything, READ, SIZE], Number).moves(),
    f(75, "lwt_seg6_adjust_srh", [Context, Anything, Anything], Number).moves(),
    f(76, "lwt_seg6_action", [Context, Anything, READ, SIZE], Number).moves(),
    // Infrared remote controls.
    f(77, "rc_repeat", [Context], Number).gpl(),
    f(78, "rc_keydown", [Context, Anything, Anything, Anything], Number).gpl(),
    f(92, "rc_pointer_rel", [Context, Anything, Anything], Number).gpl(),
];
