//! Tunnels with headers of their own. IP in IP needs none: `ip4()/ip4()`.

use super::{Auto, FieldDef, Kind, LayerDef, Space, Sum, Tail};

pub(super) const LAYERS: &[LayerDef] = &[
    LayerDef {
        name: "gre",
        bytes: 4,
        fields: &[
            FieldDef::new("has_sum", 0, 1, Kind::Decimal, Auto::Presence),
            FieldDef::dec("has_routing", 1, 1, 0),
            FieldDef::new("has_key", 2, 1, Kind::Decimal, Auto::Presence),
            FieldDef::new("has_seq", 3, 1, Kind::Decimal, Auto::Presence),
            FieldDef::hex("reserved", 4, 9, 0),
            FieldDef::dec("version", 13, 3, 0),
            FieldDef::new("proto", 16, 16, Kind::Hexadecimal, Auto::Next(Space::EtherType, 0x88b5)),
            FieldDef::new("sum", 0, 16, Kind::Hexadecimal, Auto::Checksum(Sum::Rest)).when(0),
            FieldDef::dec("reserved1", 16, 16, 0).when(0),
            FieldDef::dec("key", 0, 32, 0).when(2),
            FieldDef::dec("seq", 0, 32, 0).when(3),
        ],
        tail: Tail::Words,
        ids: &[(Space::IpProtocol, 47)],
    },
    LayerDef {
        name: "vxlan",
        bytes: 8,
        fields: &[
            FieldDef::hex("flags", 0, 8, 8),
            FieldDef::dec("reserved", 8, 24, 0),
            FieldDef::dec("vni", 32, 24, 1),
            FieldDef::dec("reserved2", 56, 8, 0),
        ],
        tail: Tail::Nothing,
        ids: &[(Space::UdpPort, 4789)],
    },
];
