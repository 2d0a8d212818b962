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
    /// Plain bytes: numbers of up to 8 bytes, aligned, at any place before `bytes`.
    Bytes {
        /// What programs call it.
        name: &'static str,
        /// How many there may be.
        bytes: u32,
        /// Whether programs may write them.
        writable: bool,
        /// Whether they may only be read eight at a time, aligned (an array of 64-bit arguments).
        words: bool,
    },
    /// The arguments of a function of the host, eight bytes each, with the types that its BTF gives them; after
    /// the call its result too.
    Arguments {
        /// What the program is attached to.
        of: AttachTo,
    },
}

impl Context {
    /// Whether it is a buffer, whose length the host says.
    pub const fn is_buffer(&self) -> bool {
        matches!(self, Self::Buffer)
    }
}

/// What a program with [`Context::Arguments`] is attached to, which decides its arguments and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachTo {
    /// The entry of a function: its arguments; the result is 0.
    FunctionEntry,
    /// The return of a function: its arguments and result; the result is 0.
    FunctionExit,
    /// A function that may be overridden: its arguments; any result.
    FunctionModify,
    /// A tracepoint `NAME`: the arguments of the type `btf_trace_NAME` but for its first.
    Tracepoint,
    /// A security hook `NAME`: the arguments of the function `bpf_lsm_NAME`; an error number or 0.
    SecurityHook,
    /// An iterator over objects `NAME`: what the structure `bpf_iter__NAME` holds; 0 or 1.
    Iterator,
    /// A member of a structure of functions: its arguments and result.
    StructOps,
}

/// The results that a program may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// Any number.
    Any,
    /// Numbers from `min` to `max`, both included, as signed 32-bit numbers.
    Range {
        /// Smallest.
        min: i32,
        /// Greatest.
        max: i32,
    },
    /// What the function that the program is attached to allows.
    OfAttachment,
}

/// A type of program, as one section name makes it: programs of one number differ by what they are attached to.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramType {
    /// Its name, as bpftool writes it.
    pub name: &'static str,
    /// Its number in Linux's `enum bpf_prog_type`; `None` for skep's own.
    pub number: Option<u32>,
    /// The expected attach type, in Linux's `enum bpf_attach_type`, if it has one.
    pub attach: Option<u32>,
    /// Section names that stand for it: each alone, or followed by `/` or `.` and anything.
    pub sections: &'static [&'static str],
    /// Whether a section name with `.s` after its first part makes it sleepable.
    pub may_sleep: bool,
    /// What it is given.
    pub context: Context,
    /// Whether it may read packet memory through `data` and `data_end`.
    pub reads_packet: bool,
    /// Whether it may write there.
    pub writes_packet: bool,
    /// Whether addresses may leave it as numbers: programs that trace the host look at its addresses anyway.
    pub may_leak: bool,
    /// Helpers it may call; a host's own are open to all.
    pub helpers: &'static [u32],
    /// What it may return.
    pub results: Results,
    /// Names of return values.
    pub verdicts: &'static [(i64, &'static str)],
}

impl ProgramType {
    /// What others are made from: no attachment, no packet, any result.
    pub const PLAIN: Self = Self {
        name: "",
        number: None,
        attach: None,
        sections: &[],
        may_sleep: false,
        context: Context::Buffer,
        reads_packet: false,
        writes_packet: false,
        may_leak: false,
        helpers: &[],
        results: Results::Any,
        verdicts: &[],
    };

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
    ..ProgramType::PLAIN
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
    ..ProgramType::PLAIN
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
    ..ProgramType::PLAIN
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
    ..ProgramType::PLAIN
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

/// `struct bpf_sock`.
pub(crate) static SOCK: ContextLayout = ContextLayout { name: "bpf_sock", size: 80, fields: &[] };
/// A structure of which nothing may be accessed yet.
pub(crate) static OPAQUE: ContextLayout = ContextLayout { name: "an opaque structure", size: 0, fields: &[] };

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
