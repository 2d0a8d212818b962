//! IPv4, and IPv6 with its extension headers.

use super::{Auto, FieldDef, Kind, LayerDef, Space, Sum, Tail};

/// The protocol of what has none: a number for experiments (RFC 3692).
const EXPERIMENT: u64 = 253;
const NEXT: Auto = Auto::Next(Space::IpProtocol, EXPERIMENT);
const PROTOCOLS: Kind = Kind::Names(&[("icmp", 1), ("tcp", 6), ("udp", 17), ("icmp6", 58), ("none", 59)]);
/// 2001:db8::1, for documentation (RFC 3849).
const FIRST: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;

pub(super) const LAYERS: &[LayerDef] = &[
    LayerDef {
        name: "ip4",
        bytes: 20,
        fields: &[
            FieldDef::dec("version", 0, 4, 4),
            FieldDef::new("ihl", 4, 4, Kind::Decimal, Auto::Header { unit: 4, less: 0 }),
            FieldDef::dec("dscp", 8, 6, 0),
            FieldDef::dec("ecn", 14, 2, 0),
            FieldDef::new("len", 16, 16, Kind::Decimal, Auto::Length(0)),
            FieldDef::dec("id", 32, 16, 0),
            FieldDef::new("flags", 48, 3, Kind::Letters("MDE"), Auto::Const(0)),
            FieldDef::dec("frag", 51, 13, 0),
            FieldDef::dec("ttl", 64, 8, 64),
            FieldDef::new("proto", 72, 8, PROTOCOLS, NEXT),
            FieldDef::new("sum", 80, 16, Kind::Hexadecimal, Auto::Checksum(Sum::Header)),
            FieldDef::new("src", 96, 32, Kind::Ip4, Auto::Const(0x0a00_0001)),
            FieldDef::new("dst", 128, 32, Kind::Ip4, Auto::Const(0x0a00_0002)),
        ],
        tail: Tail::Ip4Options,
        ids: &[(Space::EtherType, 0x0800), (Space::IpProtocol, 4)],
    },
    LayerDef {
        name: "ip6",
        bytes: 40,
        fields: &[
            FieldDef::dec("version", 0, 4, 6),
            FieldDef::dec("dscp", 4, 6, 0),
            FieldDef::dec("ecn", 10, 2, 0),
            FieldDef::hex("flow", 12, 20, 0),
            FieldDef::new("len", 32, 16, Kind::Decimal, Auto::Length(40)),
            FieldDef::new("next", 48, 8, PROTOCOLS, NEXT),
            FieldDef::dec("hop", 56, 8, 64),
            FieldDef::new("src", 64, 128, Kind::Ip6, Auto::Const(FIRST)),
            FieldDef::new("dst", 192, 128, Kind::Ip6, Auto::Const(FIRST + 1)),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::EtherType, 0x86dd), (Space::IpProtocol, 41)],
    },
    LayerDef { name: "hopopts", ids: &[(Space::IpProtocol, 0)], ..OPTIONS },
    LayerDef { name: "dstopts", ids: &[(Space::IpProtocol, 60)], ..OPTIONS },
    LayerDef {
        name: "routing",
        bytes: 4,
        fields: &[
            FieldDef::new("next", 0, 8, PROTOCOLS, NEXT),
            FieldDef::new("len", 8, 8, Kind::Decimal, Auto::Header { unit: 8, less: 1 }),
            FieldDef::dec("type", 16, 8, 0),
            FieldDef::dec("left", 24, 8, 0),
        ],
        tail: Tail::Data { unit: 8, least: 8 },
        ids: &[(Space::IpProtocol, 43)],
    },
    LayerDef {
        name: "fragment",
        bytes: 8,
        fields: &[
            FieldDef::new("next", 0, 8, PROTOCOLS, NEXT),
            FieldDef::dec("reserved", 8, 8, 0),
            FieldDef::dec("offset", 16, 13, 0),
            FieldDef::dec("reserved2", 29, 2, 0),
            FieldDef::dec("more", 31, 1, 0),
            FieldDef::dec("id", 32, 32, 0),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::IpProtocol, 44)],
    },
    LayerDef {
        name: "ah",
        bytes: 12,
        fields: &[
            FieldDef::new("next", 0, 8, PROTOCOLS, NEXT),
            FieldDef::new("len", 8, 8, Kind::Decimal, Auto::Header { unit: 4, less: 2 }),
            FieldDef::dec("reserved", 16, 16, 0),
            FieldDef::hex("spi", 32, 32, 256),
            FieldDef::dec("seq", 64, 32, 1),
        ],
        tail: Tail::Data { unit: 4, least: 12 },
        ids: &[(Space::IpProtocol, 51)],
    },
];

const OPTIONS: LayerDef = LayerDef {
    name: "",
    bytes: 2,
    fields: &[
        FieldDef::new("next", 0, 8, PROTOCOLS, NEXT),
        FieldDef::new("len", 8, 8, Kind::Decimal, Auto::Header { unit: 8, less: 1 }),
    ],
    tail: Tail::Data { unit: 8, least: 8 },
    ids: &[],
};
