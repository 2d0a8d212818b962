//! Ethernet, its tags, and address resolution.

use super::{Auto, FieldDef, Kind, LayerDef, Space, Tail};

const ETHER_TYPE: Kind = Kind::Hexadecimal;
/// The type of what has none: a number for experiments (IEEE 802).
const EXPERIMENT: u64 = 0x88b5;
const OPERATIONS: Kind = Kind::Names(&[("request", 1), ("reply", 2)]);

pub(super) const LAYERS: &[LayerDef] = &[
    LayerDef {
        name: "eth",
        bytes: 14,
        fields: &[
            FieldDef::new("dst", 0, 48, Kind::Mac, Auto::Const(0x0200_0000_0002)),
            FieldDef::new("src", 48, 48, Kind::Mac, Auto::Const(0x0200_0000_0001)),
            FieldDef::new("type", 96, 16, ETHER_TYPE, Auto::Next(Space::EtherType, EXPERIMENT)),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::EtherType, 0x6558)],
    },
    LayerDef { name: "vlan", ids: &[(Space::EtherType, 0x8100)], ..TAG },
    LayerDef { name: "qinq", ids: &[(Space::EtherType, 0x88a8)], ..TAG },
    LayerDef {
        name: "mpls",
        bytes: 4,
        fields: &[
            FieldDef::dec("label", 0, 20, 16),
            FieldDef::dec("tc", 20, 3, 0),
            FieldDef::new("bottom", 23, 1, Kind::Decimal, Auto::Bottom),
            FieldDef::dec("ttl", 24, 8, 64),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::EtherType, 0x8847), (Space::EtherType, 0x8848), (Space::IpProtocol, 137)],
    },
    LayerDef {
        name: "arp",
        bytes: 28,
        fields: &[
            FieldDef::dec("htype", 0, 16, 1),
            FieldDef::hex("ptype", 16, 16, 0x0800),
            FieldDef::dec("hlen", 32, 8, 6),
            FieldDef::dec("plen", 40, 8, 4),
            FieldDef::new("op", 48, 16, OPERATIONS, Auto::Const(1)),
            FieldDef::new("sha", 64, 48, Kind::Mac, Auto::Const(0x0200_0000_0001)),
            FieldDef::new("spa", 112, 32, Kind::Ip4, Auto::Const(0x0a00_0001)),
            FieldDef::new("tha", 144, 48, Kind::Mac, Auto::Const(0)),
            FieldDef::new("tpa", 192, 32, Kind::Ip4, Auto::Const(0x0a00_0002)),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::EtherType, 0x0806)],
    },
];

const TAG: LayerDef = LayerDef {
    name: "",
    bytes: 4,
    fields: &[
        FieldDef::dec("pcp", 0, 3, 0),
        FieldDef::dec("dei", 3, 1, 0),
        FieldDef::dec("id", 4, 12, 1),
        FieldDef::new("type", 16, 16, ETHER_TYPE, Auto::Next(Space::EtherType, EXPERIMENT)),
    ],
    tail: Tail::Nothing,
    ids: &[],
};
