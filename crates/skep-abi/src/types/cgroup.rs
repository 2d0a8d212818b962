//! Types of programs that run for control groups: packets, sockets, addresses, devices, settings, options.

use super::fields::{layout, placed, pointer, surely, view, whole, word};
use super::structs::{BPF_SOCK, BPF_SOCK_SIZE};
use super::{Context, Native, ProgramType, Results, skb};
use crate::context::{ContextField, ContextLayout, FieldKind, StructKind};
use crate::helpers::{HelperSet, sets, variants};

/// The family's types.
pub(super) static TYPES: &[&ProgramType] = &[
    &ProgramType { sections: &["cgroup/skb"], ..PACKET },
    &ProgramType { attach: Some(0), sections: &["cgroup_skb/ingress"], ..PACKET },
    &ProgramType {
        attach: Some(1),
        sections: &["cgroup_skb/egress"],
        results: Results::Range { min: 0, max: 3 },
        verdicts: &[(0, "drop"), (1, "pass"), (2, "drop, congested"), (3, "pass, congested")],
        ..PACKET
    },
    &socket(2, &["cgroup/sock_create", "cgroup/sock"], &SOCK_MADE),
    &socket(34, &["cgroup/sock_release"], &SOCK_MADE),
    &socket(12, &["cgroup/post_bind4"], &SOCK_BOUND4),
    &socket(13, &["cgroup/post_bind6"], &SOCK_BOUND6),
    &address(8, &["cgroup/bind4"], &ADDR4, sets::CGROUP_ADDRESS, BIND),
    &address(9, &["cgroup/bind6"], &ADDR6, sets::CGROUP_ADDRESS, BIND),
    &address(10, &["cgroup/connect4"], &ADDR4, sets::CGROUP_CONNECT, ALLOW),
    &address(11, &["cgroup/connect6"], &ADDR6, sets::CGROUP_CONNECT, ALLOW),
    &address(49, &["cgroup/connect_unix"], &ADDR_UNIX, sets::CGROUP_ADDRESS, ALLOW),
    &address(14, &["cgroup/sendmsg4"], &ADDR4_SEND, sets::CGROUP_ADDRESS, ALLOW),
    &address(15, &["cgroup/sendmsg6"], &ADDR6_SEND, sets::CGROUP_ADDRESS, ALLOW),
    &address(50, &["cgroup/sendmsg_unix"], &ADDR_UNIX, sets::CGROUP_ADDRESS, ALLOW),
    &address(19, &["cgroup/recvmsg4"], &ADDR4, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(20, &["cgroup/recvmsg6"], &ADDR6, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(51, &["cgroup/recvmsg_unix"], &ADDR_UNIX, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(29, &["cgroup/getpeername4"], &ADDR4, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(30, &["cgroup/getpeername6"], &ADDR6, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(52, &["cgroup/getpeername_unix"], &ADDR_UNIX, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(31, &["cgroup/getsockname4"], &ADDR4, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(32, &["cgroup/getsockname6"], &ADDR6, sets::CGROUP_ADDRESS_ONLY, ONE),
    &address(53, &["cgroup/getsockname_unix"], &ADDR_UNIX, sets::CGROUP_ADDRESS_ONLY, ONE),
    &ProgramType {
        name: "cgroup_device",
        number: Some(15),
        attach: Some(6),
        sections: &["cgroup/dev"],
        context: Context::Struct(&CGROUP_DEV),
        native: Some(Native::Struct),
        helpers: sets::CGROUP_DEVICE,
        ..ALLOWING
    },
    &ProgramType {
        name: "cgroup_sysctl",
        number: Some(23),
        attach: Some(18),
        sections: &["cgroup/sysctl"],
        context: Context::Struct(&SYSCTL),
        native: Some(Native::Struct),
        helpers: sets::CGROUP_SYSCTL,
        ..ALLOWING
    },
    &ProgramType {
        attach: Some(21),
        sections: &["cgroup/getsockopt"],
        context: Context::Struct(&GETSOCKOPT),
        native: Some(Native::Struct),
        helpers: sets::CGROUP_GETSOCKOPT,
        ..OPTION
    },
    &ProgramType {
        attach: Some(22),
        sections: &["cgroup/setsockopt"],
        context: Context::Struct(&SETSOCKOPT),
        native: Some(Native::Struct),
        helpers: sets::CGROUP_SETSOCKOPT,
        variants: variants::SOCKET_OPTIONS,
        ..OPTION
    },
];

/// 0 denies, 1 allows.
const ALLOW: Results = Results::Range { min: 0, max: 1 };
/// The same; the second bit allows to bind privileged ports.
const BIND: Results = Results::Range { min: 0, max: 3 };
/// Nothing can be denied.
const ONE: Results = Results::Range { min: 1, max: 1 };

const ALLOWING: ProgramType =
    ProgramType { results: ALLOW, verdicts: &[(0, "deny"), (1, "allow")], ..ProgramType::PLAIN };

const PACKET: ProgramType = ProgramType {
    name: "cgroup_skb",
    number: Some(8),
    context: Context::Struct(&skb::CGROUP),
    native: Some(Native::Skb),
    reads_packet: true,
    from_network: true,
    helpers: sets::CGROUP_PACKET,
    verdicts: &[(0, "drop"), (1, "pass")],
    ..ALLOWING
};

const OPTION: ProgramType = ProgramType {
    name: "cgroup_sockopt",
    number: Some(25),
    reads_packet: true,
    writes_packet: true,
    ..ALLOWING
};

const fn socket(
    attach: u32,
    sections: &'static [&'static str],
    context: &'static ContextLayout,
) -> ProgramType {
    ProgramType {
        name: "cgroup_sock",
        number: Some(9),
        attach: Some(attach),
        sections,
        context: Context::Struct(context),
        native: Some(Native::Struct),
        helpers: sets::CGROUP_SOCKET,
        variants: variants::SOCKET_CONTEXT,
        ..ALLOWING
    }
}

const fn address(
    attach: u32,
    sections: &'static [&'static str],
    context: &'static ContextLayout,
    helpers: HelperSet,
    results: Results,
) -> ProgramType {
    ProgramType {
        name: "cgroup_sock_addr",
        number: Some(18),
        attach: Some(attach),
        sections,
        context: Context::Struct(context),
        native: Some(Native::Struct),
        helpers,
        results,
        ..ALLOWING
    }
}

const fn sock(fields: &'static [ContextField]) -> ContextLayout {
    layout("bpf_sock", BPF_SOCK_SIZE, fields)
}

static SOCK_MADE: ContextLayout = sock(view!(
    BPF_SOCK,
    &[
        "bound_dev_if",
        "family",
        "type",
        "protocol",
        "mark",
        "priority",
        "dst_port",
        "dst_ip4",
        "dst_ip6",
        "state",
        "rx_queue_mapping",
    ],
    &["bound_dev_if", "mark", "priority"]
));
static SOCK_BOUND4: ContextLayout = sock(view!(
    BPF_SOCK,
    &[
        "family",
        "type",
        "protocol",
        "src_ip4",
        "src_port",
        "dst_port",
        "dst_ip4",
        "dst_ip6",
        "state",
        "rx_queue_mapping",
    ],
    &[]
));
static SOCK_BOUND6: ContextLayout = sock(view!(
    BPF_SOCK,
    &[
        "family",
        "type",
        "protocol",
        "src_ip6",
        "src_port",
        "dst_port",
        "dst_ip4",
        "dst_ip6",
        "state",
        "rx_queue_mapping",
    ],
    &[]
));

/// Eight aligned bytes of an IPv6 address may be accessed at once.
const SOCK_ADDR: &[ContextField] = placed!(
    72,
    &[
        whole("user_family", 0),
        word("user_ip4", 4),
        word("user_ip6[0]", 8).wide(),
        word("user_ip6[1]", 12),
        word("user_ip6[2]", 16).wide(),
        word("user_ip6[3]", 20),
        word("user_port", 24),
        whole("family", 28),
        whole("type", 32),
        whole("protocol", 36),
        word("msg_src_ip4", 40),
        word("msg_src_ip6[0]", 44),
        word("msg_src_ip6[1]", 48).wide(),
        word("msg_src_ip6[2]", 52),
        word("msg_src_ip6[3]", 56),
        pointer("sk", 64, surely(StructKind::Sock)),
    ]
);

/// A view of `struct bpf_sock_addr` with these fields in addition to the common ones.
macro_rules! addr {
    ($($field:literal),*) => {
        layout("bpf_sock_addr", 72, view!(
            SOCK_ADDR,
            &["user_family", "user_port", "family", "type", "protocol", "sk", $($field),*],
            &["user_port", $($field),*]
        ))
    };
}

static ADDR4: ContextLayout = addr!("user_ip4");
static ADDR6: ContextLayout = addr!("user_ip6");
static ADDR_UNIX: ContextLayout = addr!();
static ADDR4_SEND: ContextLayout = addr!("user_ip4", "msg_src_ip4");
static ADDR6_SEND: ContextLayout = addr!("user_ip6", "msg_src_ip6");

static CGROUP_DEV: ContextLayout = layout(
    "bpf_cgroup_dev_ctx",
    12,
    placed!(12, &[word("access_type", 0), whole("major", 4), whole("minor", 8)]),
);

static SYSCTL: ContextLayout = layout(
    "bpf_sysctl",
    8,
    view!(placed!(8, &[word("write", 0), word("file_pos", 4)]), &["write", "file_pos"], &["file_pos"]),
);

const SOCKOPT: &[ContextField] = placed!(
    40,
    &[
        pointer("sk", 0, surely(StructKind::Sock)),
        pointer("optval", 8, FieldKind::PacketData),
        pointer("optval_end", 16, FieldKind::PacketEnd),
        whole("level", 24),
        whole("optname", 28),
        whole("optlen", 32),
        whole("retval", 36),
    ]
);

static GETSOCKOPT: ContextLayout = layout(
    "bpf_sockopt",
    40,
    view!(
        SOCKOPT,
        &["sk", "optval", "optval_end", "level", "optname", "optlen", "retval"],
        &["optlen", "retval"]
    ),
);
static SETSOCKOPT: ContextLayout = layout(
    "bpf_sockopt",
    40,
    view!(
        SOCKOPT,
        &["sk", "optval", "optval_end", "level", "optname", "optlen"],
        &["level", "optname", "optlen"]
    ),
);
