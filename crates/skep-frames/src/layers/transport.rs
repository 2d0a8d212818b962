//! TCP, UDP, ICMP for both families, neighbour discovery with its options.

use super::{Auto, FieldDef, Kind, LayerDef, Space, Sum, Tail};

const TCP_SUM: Auto = Auto::Checksum(Sum::Transport { protocol: 6, zero_is_none: false });
const UDP_SUM: Auto = Auto::Checksum(Sum::Transport { protocol: 17, zero_is_none: true });
const ICMP6_SUM: Auto = Auto::Checksum(Sum::Transport { protocol: 58, zero_is_none: false });
const ICMP_TYPES: Kind = Kind::Names(&[
    ("echo-reply", 0),
    ("unreachable", 3),
    ("redirect", 5),
    ("echo", 8),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
]);
const ICMP6_TYPES: Kind = Kind::Names(&[
    ("unreachable", 1),
    ("too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo", 128),
    ("echo-reply", 129),
    ("rs", 133),
    ("ra", 134),
    ("ns", 135),
    ("na", 136),
]);
const OPTION_LEN: Auto = Auto::Header { unit: 8, less: 0 };

/// The first three fields of ICMPv6.
macro_rules! icmp6 {
    ($number:literal, $($field:expr),* $(,)?) => {
        &[
            FieldDef::new("type", 0, 8, ICMP6_TYPES, Auto::Const($number)),
            FieldDef::dec("code", 8, 8, 0),
            FieldDef::new("sum", 16, 16, Kind::Hexadecimal, ICMP6_SUM),
            $($field),*
        ]
    };
}

/// The first two fields of an option of neighbour discovery.
macro_rules! option {
    ($number:literal, $($field:expr),* $(,)?) => {
        &[
            FieldDef::dec("type", 0, 8, $number),
            FieldDef::new("len", 8, 8, Kind::Decimal, OPTION_LEN),
            $($field),*
        ]
    };
}

/// 2001:db8::2
const TARGET: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0002;

pub(super) const LAYERS: &[LayerDef] = &[
    LayerDef {
        name: "tcp",
        bytes: 20,
        fields: &[
            FieldDef::dec("sport", 0, 16, 10_000),
            FieldDef::dec("dport", 16, 16, 80),
            FieldDef::dec("seq", 32, 32, 0),
            FieldDef::dec("ack", 64, 32, 0),
            FieldDef::new("off", 96, 4, Kind::Decimal, Auto::Header { unit: 4, less: 0 }),
            FieldDef::dec("reserved", 100, 4, 0),
            FieldDef::new("flags", 104, 8, Kind::Letters("FSRPAUEC"), Auto::Const(0x10)),
            FieldDef::dec("window", 112, 16, 65_535),
            FieldDef::new("sum", 128, 16, Kind::Hexadecimal, TCP_SUM),
            FieldDef::dec("urgent", 144, 16, 0),
        ],
        tail: Tail::TcpOptions,
        ids: &[(Space::IpProtocol, 6)],
    },
    LayerDef {
        name: "udp",
        bytes: 8,
        fields: &[
            FieldDef::dec("sport", 0, 16, 10_000),
            FieldDef::new("dport", 16, 16, Kind::Decimal, Auto::Next(Space::UdpPort, 53)),
            FieldDef::new("len", 32, 16, Kind::Decimal, Auto::Length(0)),
            FieldDef::new("sum", 48, 16, Kind::Hexadecimal, UDP_SUM),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 17)],
    },
    LayerDef {
        name: "icmp",
        bytes: 8,
        fields: &[
            FieldDef::new("type", 0, 8, ICMP_TYPES, Auto::Const(8)),
            FieldDef::dec("code", 8, 8, 0),
            FieldDef::new("sum", 16, 16, Kind::Hexadecimal, Auto::Checksum(Sum::Rest)),
            FieldDef::dec("id", 32, 16, 0),
            FieldDef::dec("seq", 48, 16, 0),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 1)],
    },
    LayerDef {
        name: "icmp6",
        bytes: 8,
        fields: icmp6!(128, FieldDef::dec("id", 32, 16, 0), FieldDef::dec("seq", 48, 16, 0)),
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 58)],
    },
    LayerDef {
        name: "rs",
        bytes: 8,
        fields: icmp6!(133, FieldDef::dec("reserved", 32, 32, 0)),
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 58), (Space::Icmp6Type, 133)],
    },
    LayerDef {
        name: "ra",
        bytes: 16,
        fields: icmp6!(
            134,
            FieldDef::dec("hop", 32, 8, 64),
            FieldDef::hex("flags", 40, 8, 0),
            FieldDef::dec("lifetime", 48, 16, 1800),
            FieldDef::dec("reachable", 64, 32, 0),
            FieldDef::dec("retrans", 96, 32, 0),
        ),
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 58), (Space::Icmp6Type, 134)],
    },
    LayerDef {
        name: "ns",
        bytes: 24,
        fields: icmp6!(
            135,
            FieldDef::dec("reserved", 32, 32, 0),
            FieldDef::new("target", 64, 128, Kind::Ip6, Auto::Const(TARGET)),
        ),
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 58), (Space::Icmp6Type, 135)],
    },
    LayerDef {
        name: "na",
        bytes: 24,
        fields: icmp6!(
            136,
            FieldDef::new("flags", 32, 3, Kind::Letters("OSR"), Auto::Const(3)),
            FieldDef::dec("reserved", 35, 29, 0),
            FieldDef::new("target", 64, 128, Kind::Ip6, Auto::Const(TARGET)),
        ),
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 58), (Space::Icmp6Type, 136)],
    },
    LayerDef {
        name: "sll",
        bytes: 8,
        fields: option!(1, FieldDef::new("mac", 16, 48, Kind::Mac, Auto::Const(0x0200_0000_0001))),
        tail: Tail::Nothing,
        ids: &[(Space::NdOption, 1)],
    },
    LayerDef {
        name: "tll",
        bytes: 8,
        fields: option!(2, FieldDef::new("mac", 16, 48, Kind::Mac, Auto::Const(0x0200_0000_0002))),
        tail: Tail::Nothing,
        ids: &[(Space::NdOption, 2)],
    },
    LayerDef {
        name: "ndprefix",
        bytes: 32,
        fields: option!(
            3,
            FieldDef::dec("bits", 16, 8, 64),
            FieldDef::hex("flags", 24, 8, 0xc0),
            FieldDef::dec("valid", 32, 32, 86_400),
            FieldDef::dec("preferred", 64, 32, 14_400),
            FieldDef::dec("reserved", 96, 32, 0),
            FieldDef::new("prefix", 128, 128, Kind::Ip6, Auto::Const(0x2001_0db8 << 96)),
        ),
        tail: Tail::Nothing,
        ids: &[(Space::NdOption, 3)],
    },
    LayerDef {
        name: "ndmtu",
        bytes: 8,
        fields: option!(5, FieldDef::dec("reserved", 16, 16, 0), FieldDef::dec("mtu", 32, 32, 1500)),
        tail: Tail::Nothing,
        ids: &[(Space::NdOption, 5)],
    },
    LayerDef {
        name: "ndoption",
        bytes: 2,
        fields: option!(14,),
        tail: Tail::Data { unit: 8, least: 8 },
        ids: &[],
    },
];
