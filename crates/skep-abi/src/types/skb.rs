//! `struct __sk_buff`, and its fields that each program type may access.

use super::fields::{
    double, layout, maybe, narrow_pointer, number, placed, pointer, surely, view, whole, word,
};
use crate::context::{ContextField, ContextLayout, FieldKind, Parts, SkbContext, StructKind};
use skep_isa::Size;
use std::mem::offset_of;

/// A 32-bit field at its place in skep's context.
macro_rules! skb {
    ($name:literal, $offset:literal, $field:ident) => {
        word($name, $offset).at(offset_of!(SkbContext, $field))
    };
    ($name:literal, $offset:literal, $field:ident [ $i:literal ]) => {
        word($name, $offset).at(offset_of!(SkbContext, $field) + 4 * $i)
    };
}

/// The fields from `family` to `local_port` are those of the packet's socket. Only flow dissectors have `flow_keys`.
const SKB: &[ContextField] = &[
    skb!("len", 0, len),
    skb!("pkt_type", 4, pkt_type),
    skb!("mark", 8, mark),
    skb!("queue_mapping", 12, queue_mapping).of_two_bytes(),
    skb!("protocol", 16, protocol),
    skb!("vlan_present", 20, vlan_present),
    skb!("vlan_tci", 24, vlan_tci),
    skb!("vlan_proto", 28, vlan_proto),
    skb!("priority", 32, priority),
    skb!("ingress_ifindex", 36, ingress_ifindex),
    skb!("ifindex", 40, ifindex),
    skb!("tc_index", 44, tc_index).of_two_bytes(),
    skb!("cb[0]", 48, cb[0]).in_parts().wide(),
    skb!("cb[1]", 52, cb[1]).in_parts(),
    skb!("cb[2]", 56, cb[2]).in_parts().wide(),
    skb!("cb[3]", 60, cb[3]).in_parts(),
    skb!("cb[4]", 64, cb[4]).in_parts(),
    skb!("hash", 68, hash),
    skb!("tc_classid", 72, tc_classid).of_two_bytes(),
    narrow_pointer("data", 76, FieldKind::PacketData).at(offset_of!(SkbContext, data)),
    narrow_pointer("data_end", 80, FieldKind::PacketEnd).at(offset_of!(SkbContext, data_end)),
    skb!("napi_id", 84, napi_id),
    skb!("family", 88, family),
    whole("remote_ip4", 92).at(offset_of!(SkbContext, remote_ip4)),
    whole("local_ip4", 96).at(offset_of!(SkbContext, local_ip4)),
    whole("remote_ip6[0]", 100).at(offset_of!(SkbContext, remote_ip6)),
    whole("remote_ip6[1]", 104).at(offset_of!(SkbContext, remote_ip6) + 4),
    whole("remote_ip6[2]", 108).at(offset_of!(SkbContext, remote_ip6) + 8),
    whole("remote_ip6[3]", 112).at(offset_of!(SkbContext, remote_ip6) + 12),
    whole("local_ip6[0]", 116).at(offset_of!(SkbContext, local_ip6)),
    whole("local_ip6[1]", 120).at(offset_of!(SkbContext, local_ip6) + 4),
    whole("local_ip6[2]", 124).at(offset_of!(SkbContext, local_ip6) + 8),
    whole("local_ip6[3]", 128).at(offset_of!(SkbContext, local_ip6) + 12),
    skb!("remote_port", 132, remote_port),
    skb!("local_port", 136, local_port),
    narrow_pointer("data_meta", 140, FieldKind::PacketMeta).at(offset_of!(SkbContext, data_meta)),
    pointer("flow_keys", 144, surely(StructKind::FlowKeys)),
    double("tstamp", 152).at(offset_of!(SkbContext, tstamp)),
    skb!("wire_len", 160, wire_len),
    skb!("gso_segs", 164, gso_segs),
    pointer("sk", 168, maybe(StructKind::SockCommon)).at(offset_of!(SkbContext, sk)),
    skb!("gso_size", 176, gso_size),
    number("tstamp_type", 180, Size::B1, Parts::BYTE).at(offset_of!(SkbContext, tstamp_type)),
    double("hwtstamp", 184).at(offset_of!(SkbContext, hwtstamp)),
];

const fn skb(fields: &'static [ContextField]) -> ContextLayout {
    layout("__sk_buff", 192, fields)
}

/// The fields for classifiers and actions.
pub(super) static CLASSIFIER: ContextLayout = skb(view!(
    SKB,
    &[
        "len",
        "pkt_type",
        "mark",
        "queue_mapping",
        "protocol",
        "vlan_present",
        "vlan_tci",
        "vlan_proto",
        "priority",
        "ingress_ifindex",
        "ifindex",
        "tc_index",
        "cb",
        "hash",
        "tc_classid",
        "data",
        "data_end",
        "napi_id",
        "data_meta",
        "tstamp",
        "wire_len",
        "gso_segs",
        "sk",
        "gso_size",
        "tstamp_type",
        "hwtstamp",
    ],
    &["mark", "queue_mapping", "priority", "tc_index", "cb", "tc_classid", "tstamp"]
));

/// The fields for socket filters.
pub(super) static SOCKET_FILTER: ContextLayout = skb(view!(
    SKB,
    &[
        "len",
        "pkt_type",
        "mark",
        "queue_mapping",
        "protocol",
        "vlan_present",
        "vlan_tci",
        "vlan_proto",
        "priority",
        "ingress_ifindex",
        "ifindex",
        "tc_index",
        "cb",
        "hash",
        "napi_id",
        "gso_segs",
        "sk",
        "gso_size",
    ],
    &["cb"]
));

/// The fields for control group programs.
pub(super) static CGROUP: ContextLayout = skb(view!(
    SKB,
    &[
        "len",
        "pkt_type",
        "mark",
        "queue_mapping",
        "protocol",
        "vlan_present",
        "vlan_tci",
        "vlan_proto",
        "priority",
        "ingress_ifindex",
        "ifindex",
        "tc_index",
        "cb",
        "hash",
        "data",
        "data_end",
        "napi_id",
        "family",
        "remote_ip4",
        "local_ip4",
        "remote_ip6",
        "local_ip6",
        "remote_port",
        "local_port",
        "tstamp",
        "gso_segs",
        "sk",
        "gso_size",
        "hwtstamp",
    ],
    &["mark", "priority", "cb", "tstamp"]
));

/// The fields for lightweight tunnels.
pub(super) static TUNNEL: ContextLayout = skb(view!(
    SKB,
    &[
        "len",
        "pkt_type",
        "mark",
        "queue_mapping",
        "protocol",
        "vlan_present",
        "vlan_tci",
        "vlan_proto",
        "priority",
        "ingress_ifindex",
        "ifindex",
        "tc_index",
        "cb",
        "hash",
        "data",
        "data_end",
        "napi_id",
        "gso_segs",
        "sk",
        "gso_size",
    ],
    &["mark", "priority", "cb"]
));

/// The fields for socket map programs that see a stream.
pub(super) static STREAM: ContextLayout = skb(view!(
    SKB,
    &[
        "len",
        "pkt_type",
        "queue_mapping",
        "protocol",
        "vlan_present",
        "vlan_tci",
        "vlan_proto",
        "priority",
        "ingress_ifindex",
        "ifindex",
        "tc_index",
        "cb",
        "hash",
        "data",
        "data_end",
        "napi_id",
        "family",
        "remote_ip4",
        "local_ip4",
        "remote_ip6",
        "local_ip6",
        "remote_port",
        "local_port",
        "gso_segs",
        "sk",
        "gso_size",
    ],
    &["priority", "tc_index"]
));

/// The fields for flow dissectors, which run on a structure of their own.
pub(super) static DISSECTOR: ContextLayout =
    skb(placed!(192, view!(SKB, &["data", "data_end", "flow_keys"], &[])));
