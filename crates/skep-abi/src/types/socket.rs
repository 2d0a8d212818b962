//! Types of programs about sockets: socket maps, TCP events, socket selection.

use super::fields::{double, layout, lower, maybe, number, placed, pointer, surely, view, whole, word};
use super::{Context, Native, ProgramType, Results, SocketMaps, skb};
use crate::context::{ContextField, ContextLayout, FieldKind, Parts, StructKind};
use crate::helpers::{sets, variants};
use skep_isa::Size;

/// The family's types.
pub(super) static TYPES: &[&ProgramType] = &[
    &ProgramType { sections: &["sk_skb"], ..STREAM },
    &ProgramType { attach: Some(4), sections: &["sk_skb/stream_parser"], verdicts: &[], ..STREAM },
    &ProgramType { attach: Some(5), sections: &["sk_skb/stream_verdict"], ..STREAM },
    &ProgramType { attach: Some(38), sections: &["sk_skb/verdict"], ..STREAM },
    &ProgramType {
        name: "sk_msg",
        number: Some(16),
        attach: Some(7),
        sections: &["sk_msg"],
        context: Context::Struct(&SK_MSG_MD),
        native: Some(Native::Struct),
        reads_packet: true,
        writes_packet: true,
        helpers: sets::MESSAGE,
        verdicts: DROP_OR_PASS,
        ..ProgramType::PLAIN
    },
    &ProgramType {
        name: "sock_ops",
        socket_maps: SocketMaps::Delete,
        number: Some(13),
        attach: Some(3),
        sections: &["sockops"],
        context: Context::Struct(&SOCK_OPS),
        native: Some(Native::Struct),
        reads_packet: true,
        helpers: sets::SOCKET_OPS,
        results: Results::Range { min: 0, max: 1 },
        ..ProgramType::PLAIN
    },
    &ProgramType {
        name: "sk_lookup",
        socket_maps: SocketMaps::Change,
        number: Some(30),
        attach: Some(36),
        sections: &["sk_lookup"],
        context: Context::Struct(&SK_LOOKUP),
        native: Some(Native::Struct),
        helpers: sets::SOCKET_LOOKUP,
        variants: variants::SOCKET_LOOKUP,
        results: Results::Range { min: 0, max: 1 },
        verdicts: DROP_OR_PASS,
        ..ProgramType::PLAIN
    },
    &ProgramType { attach: Some(39), sections: &["sk_reuseport"], ..REUSEPORT },
    &ProgramType { attach: Some(40), sections: &["sk_reuseport/migrate"], ..REUSEPORT },
];

const DROP_OR_PASS: &[(i64, &str)] = &[(0, "drop"), (1, "pass")];

const STREAM: ProgramType = ProgramType {
    name: "sk_skb",
    number: Some(14),
    context: Context::Struct(&skb::STREAM),
    native: Some(Native::Skb),
    reads_packet: true,
    writes_packet: true,
    helpers: sets::STREAM,
    verdicts: DROP_OR_PASS,
    ..ProgramType::PLAIN
};

const REUSEPORT: ProgramType = ProgramType {
    name: "sk_reuseport",
    socket_maps: SocketMaps::Change,
    number: Some(21),
    context: Context::Struct(&SK_REUSEPORT_MD),
    native: Some(Native::Struct),
    reads_packet: true,
    helpers: sets::REUSEPORT,
    variants: variants::REUSEPORT,
    verdicts: DROP_OR_PASS,
    ..ProgramType::PLAIN
};

static SK_MSG_MD: ContextLayout = layout(
    "sk_msg_md",
    80,
    placed!(
        80,
        &[
            pointer("data", 0, FieldKind::PacketData),
            pointer("data_end", 8, FieldKind::PacketEnd),
            whole("family", 16),
            whole("remote_ip4", 20),
            whole("local_ip4", 24),
            whole("remote_ip6[0]", 28),
            whole("remote_ip6[1]", 32),
            whole("remote_ip6[2]", 36),
            whole("remote_ip6[3]", 40),
            whole("local_ip6[0]", 44),
            whole("local_ip6[1]", 48),
            whole("local_ip6[2]", 52),
            whole("local_ip6[3]", 56),
            whole("remote_port", 60),
            whole("local_port", 64),
            whole("size", 68),
            pointer("sk", 72, surely(StructKind::Sock)),
        ]
    ),
);

/// `reply` is the first element of `args`.
static SOCK_OPS: ContextLayout = layout(
    "bpf_sock_ops",
    224,
    view!(
        BPF_SOCK_OPS,
        &[
            "op",
            "args",
            "family",
            "remote_ip4",
            "local_ip4",
            "remote_ip6",
            "local_ip6",
            "remote_port",
            "local_port",
            "is_fullsock",
            "snd_cwnd",
            "srtt_us",
            "bpf_sock_ops_cb_flags",
            "state",
            "rtt_min",
            "snd_ssthresh",
            "rcv_nxt",
            "snd_nxt",
            "snd_una",
            "mss_cache",
            "ecn_flags",
            "rate_delivered",
            "rate_interval_us",
            "packets_out",
            "retrans_out",
            "total_retrans",
            "segs_in",
            "data_segs_in",
            "segs_out",
            "data_segs_out",
            "lost_out",
            "sacked_out",
            "sk_txhash",
            "bytes_received",
            "bytes_acked",
            "sk",
            "skb_data",
            "skb_data_end",
            "skb_len",
            "skb_tcp_flags",
            "skb_hwtstamp",
        ],
        &["args[0]", "sk_txhash"]
    ),
);

const BPF_SOCK_OPS: &[ContextField] = placed!(
    224,
    &[
        whole("op", 0),
        whole("args[0]", 4),
        whole("args[1]", 8),
        whole("args[2]", 12),
        whole("args[3]", 16),
        whole("family", 20),
        whole("remote_ip4", 24),
        whole("local_ip4", 28),
        whole("remote_ip6[0]", 32),
        whole("remote_ip6[1]", 36),
        whole("remote_ip6[2]", 40),
        whole("remote_ip6[3]", 44),
        whole("local_ip6[0]", 48),
        whole("local_ip6[1]", 52),
        whole("local_ip6[2]", 56),
        whole("local_ip6[3]", 60),
        whole("remote_port", 64),
        whole("local_port", 68),
        whole("is_fullsock", 72),
        whole("snd_cwnd", 76),
        whole("srtt_us", 80),
        whole("bpf_sock_ops_cb_flags", 84),
        whole("state", 88),
        whole("rtt_min", 92),
        whole("snd_ssthresh", 96),
        whole("rcv_nxt", 100),
        whole("snd_nxt", 104),
        whole("snd_una", 108),
        whole("mss_cache", 112),
        whole("ecn_flags", 116),
        whole("rate_delivered", 120),
        whole("rate_interval_us", 124),
        whole("packets_out", 128),
        whole("retrans_out", 132),
        whole("total_retrans", 136),
        whole("segs_in", 140),
        whole("data_segs_in", 144),
        whole("segs_out", 148),
        whole("data_segs_out", 152),
        whole("lost_out", 156),
        whole("sacked_out", 160),
        whole("sk_txhash", 164),
        double("bytes_received", 168),
        double("bytes_acked", 176),
        pointer("sk", 184, maybe(StructKind::Sock)),
        pointer("skb_data", 192, FieldKind::PacketData),
        pointer("skb_data_end", 200, FieldKind::PacketEnd),
        whole("skb_len", 208),
        lower("skb_tcp_flags", 212),
        double("skb_hwtstamp", 216),
    ]
);

/// `remote_port` has two bytes and may also be read together with the zeroes after it.
static SK_LOOKUP: ContextLayout = layout(
    "bpf_sk_lookup",
    72,
    placed!(
        72,
        &[
            pointer("sk", 0, maybe(StructKind::Sock)),
            word("family", 8),
            word("protocol", 12),
            word("remote_ip4", 16),
            word("remote_ip6[0]", 20),
            word("remote_ip6[1]", 24),
            word("remote_ip6[2]", 28),
            word("remote_ip6[3]", 32),
            number("remote_port", 36, Size::B2, Parts::any(Size::B2)).wide(),
            number("the zeroes after remote_port", 38, Size::B2, Parts::any(Size::B2)),
            word("local_ip4", 40),
            word("local_ip6[0]", 44),
            word("local_ip6[1]", 48),
            word("local_ip6[2]", 52),
            word("local_ip6[3]", 56),
            word("local_port", 60),
            word("ingress_ifindex", 64),
        ]
    ),
);

static SK_REUSEPORT_MD: ContextLayout = layout(
    "sk_reuseport_md",
    56,
    placed!(
        56,
        &[
            pointer("data", 0, FieldKind::PacketData),
            pointer("data_end", 8, FieldKind::PacketEnd),
            word("len", 16),
            number("eth_protocol", 20, Size::B4, Parts::halves()),
            word("ip_protocol", 24),
            word("bind_inany", 28),
            whole("hash", 32),
            pointer("sk", 40, surely(StructKind::Sock)),
            pointer("migrating_sk", 48, maybe(StructKind::SockCommon)),
        ]
    ),
);
