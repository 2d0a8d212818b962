//! Types of programs that see packets in transit: XDP, traffic control, socket filters, lightweight tunnels, flow
//! dissectors.

use super::fields::{layout, narrow_pointer, view, whole};
use super::{Context, Native, ProgramType, SocketMaps, skb};
use crate::context::{ContextField, ContextLayout, FieldKind, XdpContext};
use crate::helpers::sets;
use std::mem::offset_of;

/// The family's types.
pub(super) static TYPES: &[&ProgramType] = &[
    &XDP,
    &ProgramType {
        attach: Some(33),
        sections: &["xdp/devmap"],
        context: Context::Struct(&XDP_MD_OUT),
        ..XDP_LIKE
    },
    &ProgramType { attach: Some(35), sections: &["xdp/cpumap"], ..XDP_LIKE },
    &SCHED_CLS,
    &ProgramType { attach: Some(46), sections: &["tcx/ingress"], ..CLASSIFIER },
    &ProgramType { attach: Some(47), sections: &["tcx/egress"], ..CLASSIFIER },
    &ProgramType { attach: Some(54), sections: &["netkit/primary"], ..CLASSIFIER },
    &ProgramType { attach: Some(55), sections: &["netkit/peer"], ..CLASSIFIER },
    &ProgramType { name: "sched_act", number: Some(4), sections: &["action"], ..CLASSIFIER },
    &SOCKET_FILTER,
    &ProgramType {
        name: "lwt_in",
        number: Some(10),
        sections: &["lwt_in"],
        helpers: sets::TUNNEL_IN,
        ..TUNNEL
    },
    &ProgramType {
        name: "lwt_out",
        number: Some(11),
        sections: &["lwt_out"],
        helpers: sets::TUNNEL_OUT,
        ..TUNNEL
    },
    &ProgramType {
        name: "lwt_xmit",
        number: Some(12),
        sections: &["lwt_xmit"],
        writes_packet: true,
        helpers: sets::TUNNEL_XMIT,
        ..TUNNEL
    },
    &ProgramType {
        name: "lwt_seg6local",
        number: Some(19),
        sections: &["lwt_seg6local"],
        helpers: sets::TUNNEL_LOCAL,
        ..TUNNEL
    },
    &ProgramType {
        name: "flow_dissector",
        socket_maps: SocketMaps::Change,
        number: Some(22),
        attach: Some(17),
        sections: &["flow_dissector"],
        context: Context::Struct(&skb::DISSECTOR),
        native: Some(Native::Struct),
        reads_packet: true,
        helpers: sets::DISSECTOR,
        verdicts: &[(0, "ok"), (2, "drop"), (129, "continue")],
        ..ProgramType::PLAIN
    },
];

/// Packet programs at the earliest hook: `int prog(struct xdp_md *)`.
pub static XDP: ProgramType = ProgramType { attach: Some(37), sections: &["xdp"], ..XDP_LIKE };

/// Classifiers and actions of traffic control: `int prog(struct __sk_buff *)`.
pub static SCHED_CLS: ProgramType =
    ProgramType { sections: &["tc", "classifier", "tcx", "netkit"], ..CLASSIFIER };

/// Socket filters: the result is the number of bytes to keep.
pub static SOCKET_FILTER: ProgramType = ProgramType {
    name: "socket_filter",
    socket_maps: SocketMaps::Change,
    classic_loads: true,
    number: Some(1),
    sections: &["socket"],
    context: Context::Struct(&skb::SOCKET_FILTER),
    native: Some(Native::Skb),
    helpers: sets::SOCKET_FILTER,
    verdicts: &[(0, "drop")],
    ..ProgramType::PLAIN
};

const XDP_LIKE: ProgramType = ProgramType {
    name: "xdp",
    socket_maps: SocketMaps::Change,
    number: Some(6),
    in_pieces: true,
    context: Context::Struct(&XDP_MD_IN),
    native: Some(Native::Xdp),
    reads_packet: true,
    writes_packet: true,
    helpers: sets::XDP,
    verdicts: &[(0, "aborted"), (1, "drop"), (2, "pass"), (3, "tx"), (4, "redirect")],
    ..ProgramType::PLAIN
};

const CLASSIFIER: ProgramType = ProgramType {
    name: "sched_cls",
    socket_maps: SocketMaps::Change,
    classic_loads: true,
    number: Some(3),
    context: Context::Struct(&skb::CLASSIFIER),
    native: Some(Native::Skb),
    reads_packet: true,
    writes_packet: true,
    helpers: sets::CLASSIFIER,
    verdicts: &[
        (-1, "unspec"),
        (0, "ok"),
        (1, "reclassify"),
        (2, "shot"),
        (3, "pipe"),
        (4, "stolen"),
        (5, "queued"),
        (6, "repeat"),
        (7, "redirect"),
        (8, "trap"),
    ],
    ..ProgramType::PLAIN
};

const TUNNEL: ProgramType = ProgramType {
    context: Context::Struct(&skb::TUNNEL),
    native: Some(Native::Skb),
    reads_packet: true,
    from_network: true,
    verdicts: &[(0, "ok"), (2, "drop"), (7, "redirect"), (128, "reroute")],
    ..ProgramType::PLAIN
};

const XDP_MD: &[ContextField] = &[
    narrow_pointer("data", 0, FieldKind::PacketData).at(offset_of!(XdpContext, data)),
    narrow_pointer("data_end", 4, FieldKind::PacketEnd).at(offset_of!(XdpContext, data_end)),
    narrow_pointer("data_meta", 8, FieldKind::PacketMeta).at(offset_of!(XdpContext, data_meta)),
    whole("ingress_ifindex", 12).at(offset_of!(XdpContext, ingress_ifindex)),
    whole("rx_queue_index", 16).at(offset_of!(XdpContext, rx_queue_index)),
    whole("egress_ifindex", 20).at(offset_of!(XdpContext, egress_ifindex)),
];

static XDP_MD_IN: ContextLayout = layout(
    "xdp_md",
    24,
    view!(XDP_MD, &["data", "data_end", "data_meta", "ingress_ifindex", "rx_queue_index"], &[]),
);
static XDP_MD_OUT: ContextLayout = layout("xdp_md", 24, XDP_MD);
