//! Program types as data.

use crate::context::{ContextField, ContextLayout, FieldKind, SkbContext, XdpContext};
use skep_isa::Size;
use std::mem::offset_of;

/// What a program type's first argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A context structure.
    Struct(&'static ContextLayout),
    /// A buffer of the host in `r1`, its length in `r2`.
    Buffer,
}

/// A type of program.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramType {
    /// Its name, as bpftool writes it.
    pub name: &'static str,
    /// Its number in Linux's `enum bpf_prog_type`; `None` for skep's own.
    pub number: Option<u32>,
    /// Section names that stand for it: each alone, or followed by `/` or `.` and anything.
    pub sections: &'static [&'static str],
    /// What it is given.
    pub context: Context,
    /// Whether it may read packet memory through `data` and `data_end`.
    pub reads_packet: bool,
    /// Whether it may write there.
    pub writes_packet: bool,
    /// Helpers it may call; a host's own are open to all.
    pub helpers: &'static [u32],
    /// Names of return values.
    pub verdicts: &'static [(i64, &'static str)],
}

impl ProgramType {
    /// The type that a section name stands for.
    pub fn from_section(section: &str) -> Option<&'static Self> {
        TYPES.iter().copied().find(|kind| {
            kind.sections.iter().any(|prefix| {
                section
                    .strip_prefix(prefix)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
            })
        })
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        TYPES.iter().copied().find(|kind| kind.name == name || kind.sections.contains(&name))
    }

    /// The name of a return value, if it has one.
    pub fn verdict(&self, value: u64) -> Option<&'static str> {
        let value = i64::from(value as u32 as i32);
        self.verdicts.iter().find(|(number, _)| *number == value).map(|(_, name)| *name)
    }
}

/// Every program type that skep knows.
pub static TYPES: &[&ProgramType] = &[&XDP, &SCHED_CLS, &SOCKET_FILTER, &RAW];

/// Packet programs of the earliest hook: `int prog(struct xdp_md *)`.
pub static XDP: ProgramType = ProgramType {
    name: "xdp",
    number: Some(6),
    sections: &["xdp"],
    context: Context::Struct(&XDP_MD),
    reads_packet: true,
    writes_packet: true,
    helpers: &[1, 2, 3, 5, 6, 7, 8, 12, 28, 44, 54, 65, 125, 177],
    verdicts: &[(0, "aborted"), (1, "drop"), (2, "pass"), (3, "tx"), (4, "redirect")],
};

/// Classifiers and actions of traffic control: `int prog(struct __sk_buff *)`.
pub static SCHED_CLS: ProgramType = ProgramType {
    name: "sched_cls",
    number: Some(3),
    sections: &["tc", "classifier", "action", "tcx"],
    context: Context::Struct(&SKB_CLS),
    reads_packet: true,
    writes_packet: true,
    helpers: &[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 26, 28, 125, 177],
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
};

/// Socket filters: the result is the number of bytes to keep.
pub static SOCKET_FILTER: ProgramType = ProgramType {
    name: "socket_filter",
    number: Some(1),
    sections: &["socket"],
    context: Context::Struct(&SKB_SOCKET),
    reads_packet: false,
    writes_packet: false,
    helpers: &[1, 2, 3, 5, 6, 7, 8, 12, 26, 125, 177],
    verdicts: &[(0, "drop")],
};

/// Programs over a host's buffer: `long prog(void *buffer, unsigned long len)`.
pub static RAW: ProgramType = ProgramType {
    name: "raw",
    number: None,
    sections: &["raw"],
    context: Context::Buffer,
    reads_packet: false,
    writes_packet: false,
    helpers: &[1, 2, 3, 5, 6, 7, 8, 12, 28, 125, 177],
    verdicts: &[],
};

const fn pointer(name: &'static str, offset: u32, kind: FieldKind, native: usize) -> ContextField {
    ContextField {
        name,
        offset,
        size: Size::B4,
        kind,
        writable: false,
        narrow: false,
        native_offset: native as u32,
        native_size: Size::B8,
    }
}

const fn scalar(name: &'static str, offset: u32, size: Size, writable: bool, native: usize) -> ContextField {
    ContextField {
        name,
        offset,
        size,
        kind: FieldKind::Scalar,
        writable,
        narrow: true,
        native_offset: native as u32,
        native_size: size,
    }
}

const fn word(name: &'static str, offset: u32, native: usize) -> ContextField {
    scalar(name, offset, Size::B4, false, native)
}

static XDP_MD: ContextLayout = ContextLayout {
    name: "xdp_md",
    size: 24,
    fields: &[
        pointer("data", 0, FieldKind::PacketData, offset_of!(XdpContext, data)),
        pointer("data_end", 4, FieldKind::PacketEnd, offset_of!(XdpContext, data_end)),
        pointer("data_meta", 8, FieldKind::PacketMeta, offset_of!(XdpContext, data_meta)),
        word("ingress_ifindex", 12, offset_of!(XdpContext, ingress_ifindex)),
        word("rx_queue_index", 16, offset_of!(XdpContext, rx_queue_index)),
        word("egress_ifindex", 20, offset_of!(XdpContext, egress_ifindex)),
    ],
};

/// A 32-bit field of `struct __sk_buff`, writable by classifiers where `$w` says so.
macro_rules! skb {
    ($name:literal, $offset:literal, $field:ident, $w:expr) => {
        scalar($name, $offset, Size::B4, $w, offset_of!(SkbContext, $field))
    };
    ($name:literal, $offset:literal, $field:ident [ $i:literal ], $w:expr) => {
        scalar($name, $offset, Size::B4, $w, offset_of!(SkbContext, $field) + 4 * $i)
    };
}

static SKB_CLS: ContextLayout = ContextLayout {
    name: "__sk_buff",
    size: 192,
    fields: &[
        skb!("len", 0, len, false),
        skb!("pkt_type", 4, pkt_type, false),
        skb!("mark", 8, mark, true),
        skb!("queue_mapping", 12, queue_mapping, true),
        skb!("protocol", 16, protocol, false),
        skb!("vlan_present", 20, vlan_present, false),
        skb!("vlan_tci", 24, vlan_tci, false),
        skb!("vlan_proto", 28, vlan_proto, false),
        skb!("priority", 32, priority, true),
        skb!("ingress_ifindex", 36, ingress_ifindex, false),
        skb!("ifindex", 40, ifindex, false),
        skb!("tc_index", 44, tc_index, true),
        skb!("cb[0]", 48, cb[0], true),
        skb!("cb[1]", 52, cb[1], true),
        skb!("cb[2]", 56, cb[2], true),
        skb!("cb[3]", 60, cb[3], true),
        skb!("cb[4]", 64, cb[4], true),
        skb!("hash", 68, hash, false),
        skb!("tc_classid", 72, tc_classid, true),
        pointer("data", 76, FieldKind::PacketData, offset_of!(SkbContext, data)),
        pointer("data_end", 80, FieldKind::PacketEnd, offset_of!(SkbContext, data_end)),
        skb!("napi_id", 84, napi_id, false),
        pointer("data_meta", 140, FieldKind::PacketMeta, offset_of!(SkbContext, data_meta)),
        scalar("tstamp", 152, Size::B8, true, offset_of!(SkbContext, tstamp)),
        skb!("wire_len", 160, wire_len, false),
        skb!("gso_segs", 164, gso_segs, false),
        skb!("gso_size", 176, gso_size, false),
    ],
};

static SKB_SOCKET: ContextLayout = ContextLayout {
    name: "__sk_buff",
    size: 192,
    fields: &[
        skb!("len", 0, len, false),
        skb!("pkt_type", 4, pkt_type, false),
        skb!("mark", 8, mark, false),
        skb!("queue_mapping", 12, queue_mapping, false),
        skb!("protocol", 16, protocol, false),
        skb!("vlan_present", 20, vlan_present, false),
        skb!("vlan_tci", 24, vlan_tci, false),
        skb!("vlan_proto", 28, vlan_proto, false),
        skb!("priority", 32, priority, false),
        skb!("ingress_ifindex", 36, ingress_ifindex, false),
        skb!("ifindex", 40, ifindex, false),
        skb!("tc_index", 44, tc_index, false),
        skb!("cb[0]", 48, cb[0], true),
        skb!("cb[1]", 52, cb[1], true),
        skb!("cb[2]", 56, cb[2], true),
        skb!("cb[3]", 60, cb[3], true),
        skb!("cb[4]", 64, cb[4], true),
        skb!("hash", 68, hash, false),
        skb!("napi_id", 84, napi_id, false),
        skb!("gso_segs", 164, gso_segs, false),
        skb!("gso_size", 176, gso_size, false),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_name_their_types() {
        let name = |section| ProgramType::from_section(section).map(|kind| kind.name);
        assert_eq!(name("xdp"), Some("xdp"));
        assert_eq!(name("xdp/firewall"), Some("xdp"));
        assert_eq!(name("xdp.frags"), Some("xdp"));
        assert_eq!(name("tc"), Some("sched_cls"));
        assert_eq!(name("tcx/ingress"), Some("sched_cls"));
        assert_eq!(name("socket"), Some("socket_filter"));
        assert_eq!(name("raw"), Some("raw"));
        assert_eq!(name("xdpfoo"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn fields_ascend_and_lie_inside_their_structures() {
        for layout in [&XDP_MD, &SKB_CLS, &SKB_SOCKET] {
            let mut end = 0;
            for field in layout.fields {
                assert!(field.offset >= end, "{} overlaps its predecessor", field.name);
                end = field.offset + field.size.bytes();
                assert!(!field.narrow || field.size == field.native_size, "{}", field.name);
            }
            assert!(end <= layout.size);
        }
    }

    #[test]
    fn a_field_is_found_only_where_it_contains_the_access() {
        assert_eq!(XDP_MD.field(4, 4).map(|f| f.name), Some("data_end"));
        assert_eq!(XDP_MD.field(13, 1).map(|f| f.name), Some("ingress_ifindex"));
        assert!(XDP_MD.field(4, 8).is_none());
        assert!(XDP_MD.field(24, 1).is_none());
        assert!(SKB_CLS.field(136, 4).is_none());
    }

    #[test]
    fn helpers_named_by_types_have_prototypes() {
        for kind in TYPES {
            for id in kind.helpers {
                assert!(crate::linux_helper(*id).is_some(), "{} names helper {id}", kind.name);
            }
        }
    }
}
