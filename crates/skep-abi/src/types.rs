//! Program types as data.
//!
//! Each type has one entry for each way of attaching that matters to a program: which context fields it sees, which
//! helpers it may call, what it may return. Each family has its own file.

mod cgroup;
mod fields;
mod net;
mod other;
mod section;
mod skb;
mod socket;
mod structs;
mod trace;
mod tracing;

use crate::context::ContextLayout;
use crate::helper::{HelperFlags, HelperProto};
use crate::helpers::{HelperSet, linux_helper};
pub use net::{SCHED_CLS, SOCKET_FILTER, XDP};
pub use other::RAW;
pub use section::Section;
pub(crate) use structs::{FLOW_KEYS, SOCK, SOCK_COMMON, TCP_SOCK, XDP_SOCK};

/// What programs of a type may do to maps of sockets with the helpers for elements of any map. Linux excludes
/// programs that may run while a socket is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketMaps {
    /// Neither store nor delete sockets.
    Keep,
    /// Delete sockets only.
    Delete,
    /// Store and delete sockets.
    Change,
}

impl SocketMaps {
    /// Whether a helper with those flags may be called.
    pub fn allow(self, helper: HelperFlags) -> bool {
        match self {
            Self::Keep => {
                !helper.has(HelperFlags::STORES_SOCKETS) && !helper.has(HelperFlags::DELETES_SOCKETS)
            }
            Self::Delete => !helper.has(HelperFlags::STORES_SOCKETS),
            Self::Change => true,
        }
    }
}

/// A program type's first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A context structure.
    Struct(&'static ContextLayout),
    /// A buffer of the host in `r1`, its length in `r2`.
    Buffer,
    /// Plain bytes: aligned numbers of up to 8 bytes, anywhere from `first` to before `bytes`.
    Bytes {
        /// Its name for programs.
        name: &'static str,
        /// The first byte that may be accessed.
        first: u32,
        /// One past the last byte.
        bytes: u32,
        /// Whether programs may write them.
        writable: bool,
        /// Whether they may only be read as aligned words of eight bytes (an array of 64-bit arguments).
        words: bool,
    },
    /// The arguments of a function of the host, eight bytes each, with the types that its BTF gives them; after the
    /// call also its result.
    Arguments {
        /// What the program is attached to.
        of: AttachTo,
    },
}

impl Context {
    /// Whether it is a buffer whose length the host gives.
    pub const fn is_buffer(&self) -> bool {
        matches!(self, Self::Buffer)
    }
}

/// The target of a program with [`Context::Arguments`], which decides its arguments and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachTo {
    /// The entry of a function: its arguments; the result is 0.
    FunctionEntry,
    /// The return of a function: its arguments and result; the result is 0.
    FunctionExit,
    /// A function whose result may be overridden: its arguments; any result.
    FunctionModify,
    /// A tracepoint `NAME`: the arguments of the type `btf_trace_NAME` without the first.
    Tracepoint,
    /// A security hook `NAME`: the arguments of the function `bpf_lsm_NAME`; an error number or 0.
    SecurityHook,
    /// An iterator over objects `NAME`: the members of the structure `bpf_iter__NAME`; 0 or 1.
    Iterator,
    /// A member of a `struct_ops` structure: its arguments and result.
    StructOps,
    /// A function of another program: its arguments and result.
    ProgramFunction,
    /// A netfilter hook: the members of the host's `struct bpf_nf_ctx`; 0 or 1.
    Netfilter,
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
    /// What the function allows to which the program is attached.
    OfAttachment,
}

/// The native context that skep provides for program types which it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Native {
    /// [`crate::XdpContext`].
    Xdp,
    /// [`crate::SkbContext`].
    Skb,
    /// A buffer of the host's.
    Buffer,
    /// The structure that [`ContextField::native_offset`](crate::ContextField::native_offset) describes, of
    /// [`ContextLayout::native_size`] bytes.
    Struct,
    /// The bytes of [`Context::Bytes`], from 0 on.
    Bytes,
    /// The words of [`Context::Arguments`].
    Arguments,
    /// The state of a hook of the packet filter, and a [`crate::SkbContext`] that begins with the network header: the
    /// two words of `struct bpf_nf_ctx` lead to them.
    Netfilter,
    /// As [`Native::Struct`], for a type that a host describes: it lends the structure and what that leads to for a
    /// run.
    Host,
    /// The words of [`Context::Arguments`], which lead to what an iterator shows ([`crate::SHOWN_STRUCTS`]).
    Iterator,
}

/// A program type, as one section name selects it: programs of one number differ by attachment.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramType {
    /// Its name, as in bpftool.
    pub name: &'static str,
    /// Its number in Linux's `enum bpf_prog_type`; `None` for skep's own.
    pub number: Option<u32>,
    /// The expected attach type, in Linux's `enum bpf_attach_type`, if it has one.
    pub attach: Option<u32>,
    /// Section names that select it, each alone or followed by `/` and anything ([`Section`]).
    pub sections: &'static [&'static str],
    /// Whether `.s` after the first part of the section name makes it sleepable.
    pub may_sleep: bool,
    /// Whether it is always sleepable.
    pub always_sleeps: bool,
    /// Whether `.frags` after the first part of the section name declares support for packets in several pieces.
    pub in_pieces: bool,
    /// Its context for the verifier.
    pub context: Context,
    /// The structures to which fields of a host's own context lead ([`crate::StructKind::Host`]).
    pub structs: &'static [&'static ContextLayout],
    /// Its context when skep runs it; `None` if skep can only verify it.
    pub native: Option<Native>,
    /// Whether it may read packet memory through `data` and `data_end`.
    pub reads_packet: bool,
    /// Whether it may write packet memory.
    pub writes_packet: bool,
    /// Whether its packets begin with the network header, not with the link layer's.
    pub from_network: bool,
    /// Whether it may use the packet loads of classic filters.
    pub classic_loads: bool,
    /// What it may do to maps of sockets with the helpers for elements of any map.
    pub socket_maps: SocketMaps,
    /// Whether addresses may leave it as numbers. Programs that trace the host see its addresses anyway.
    pub may_leak: bool,
    /// Helpers that it may call. A host's own helpers are open to all types.
    pub helpers: HelperSet,
    /// Of these, helpers that it may call only at some functions, hooks or iterators.
    pub limited: &'static [(u32, &'static [&'static str])],
    /// Of these, helpers that it may not call at functions whose names begin with that prefix.
    pub barred: &'static [(u32, &'static str)],
    /// Prototypes of helpers that differ from those of most types.
    pub variants: &'static [HelperProto],
    /// What it may return.
    pub results: Results,
    /// Names of return values.
    pub verdicts: &'static [(i64, &'static str)],
}

impl ProgramType {
    /// The base of the other entries: no attachment, no packet, any result.
    pub const PLAIN: Self = Self {
        name: "",
        number: None,
        attach: None,
        sections: &[],
        may_sleep: false,
        always_sleeps: false,
        in_pieces: false,
        context: Context::Buffer,
        structs: &[],
        native: None,
        reads_packet: false,
        writes_packet: false,
        from_network: false,
        classic_loads: false,
        socket_maps: SocketMaps::Keep,
        may_leak: false,
        helpers: HelperSet::EMPTY,
        limited: &[],
        barred: &[],
        variants: &[],
        results: Results::Any,
        verdicts: &[],
    };

    /// The type that a section name selects; see [`Section::parse`].
    pub fn from_section(section: &str) -> Option<&'static Self> {
        Section::parse(section).map(|found| found.kind)
    }

    /// The type of that name, which is its own or one of its sections' names.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        let named = TYPES.iter().copied().find(|kind| kind.name == name);
        named.or_else(|| TYPES.iter().copied().find(|kind| kind.sections.contains(&name)))
    }

    /// The type that somebody probably means by a section name that selects none: one with a name, of its own or of a
    /// section, that begins the section's name. Old loaders took many such names, like `xdp_prog` and `socket1`.
    pub fn suggested_by(section: &str) -> Option<&'static Self> {
        /// `tc` begins too many words.
        const SHORTEST: usize = 3;
        let names = |kind: &'static Self| kind.sections.iter().copied().chain([kind.name]);
        let begins = |name: &&str| name.len() >= SHORTEST && section.starts_with(*name);
        let longest = |kind: &'static Self| names(kind).filter(begins).map(str::len).max();
        let found = TYPES.iter().copied().filter_map(|kind| Some((longest(kind)?, kind)));
        // The first of equals: the type's usual form.
        found.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, kind)| kind)
    }

    /// Whether programs of this type may call Linux's helper of that number when attached to `target`, if the
    /// target is known.
    pub fn may_call(&self, id: u32, target: Option<&str>) -> bool {
        let places = self.limited.iter().find(|(limited, _)| *limited == id).map(|(_, places)| *places);
        let here = |places: &[&str]| target.is_none_or(|target| places.contains(&target));
        let barred =
            |(of, start): &(u32, &str)| *of == id && target.is_some_and(|name| name.starts_with(start));
        self.helpers.contains(id) && places.is_none_or(here) && !self.barred.iter().any(barred)
    }

    /// The prototype of Linux's helper of that number for programs of this type; `None` if they may not call it.
    pub fn helper(&self, id: u32) -> Option<&'static HelperProto> {
        if !self.helpers.contains(id) {
            return None;
        }
        self.variants.iter().find(|proto| proto.id == id).or_else(|| linux_helper(id))
    }

    /// The name of a result, if it has one.
    pub fn verdict(&self, value: u64) -> Option<&'static str> {
        let value = i64::from(value as u32 as i32);
        self.verdicts.iter().find(|(number, _)| *number == value).map(|(_, name)| *name)
    }
}

/// Every program type that skep knows. If several have the same name, the name alone stands for the first.
pub static TYPES: &[&ProgramType] = &ALL;

const FAMILIES: [&[&ProgramType]; 6] =
    [net::TYPES, socket::TYPES, cgroup::TYPES, trace::TYPES, tracing::TYPES, other::TYPES];

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

static ALL: [&ProgramType; COUNT] = {
    let mut all = [FAMILIES[0][0]; COUNT];
    let (mut family, mut at, mut next) = (0, 0, 0);
    while family < FAMILIES.len() {
        if at < FAMILIES[family].len() {
            all[next] = FAMILIES[family][at];
            next += 1;
            at += 1;
        } else {
            family += 1;
            at = 0;
        }
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::FieldKind;
    use std::collections::{BTreeSet, HashSet};

    fn names(wanted: impl Fn(&ProgramType) -> bool) -> Vec<&'static str> {
        let names: BTreeSet<_> = TYPES.iter().filter(|kind| wanted(kind)).map(|kind| kind.name).collect();
        names.into_iter().collect()
    }

    #[test]
    fn only_some_types_have_legacy_packet_loads() {
        assert_eq!(names(|kind| kind.classic_loads), ["sched_act", "sched_cls", "socket_filter"]);
    }

    #[test]
    fn only_some_types_change_maps_of_sockets() {
        let changing = names(|kind| kind.socket_maps == SocketMaps::Change);
        let (xdp, iterator) = ("xdp", "tracing");
        let packets =
            ["flow_dissector", "sched_act", "sched_cls", "sk_lookup", "sk_reuseport", "socket_filter"];
        assert_eq!(changing, [&packets[..], &[iterator, xdp]].concat());
        assert_eq!(names(|kind| kind.socket_maps == SocketMaps::Delete), ["sock_ops"]);
        // Of the tracing programs with one type number, only iterators.
        let tracing =
            TYPES.iter().filter(|kind| kind.name == iterator && kind.socket_maps == SocketMaps::Change);
        assert_eq!(tracing.filter_map(|kind| kind.attach).collect::<Vec<_>>(), [28]);
    }

    #[test]
    fn storing_a_socket_is_not_deleting_one() {
        let (store, delete) = (HelperFlags::STORES_SOCKETS, HelperFlags::DELETES_SOCKETS);
        let allowed = |maps: SocketMaps| [HelperFlags::NONE, store, delete].map(|flags| maps.allow(flags));
        assert_eq!(allowed(SocketMaps::Keep), [true, false, false]);
        assert_eq!(allowed(SocketMaps::Delete), [true, false, true]);
        assert_eq!(allowed(SocketMaps::Change), [true, true, true]);
    }

    fn layouts() -> impl Iterator<Item = &'static ContextLayout> {
        let of_types = TYPES.iter().filter_map(|kind| match kind.context {
            Context::Struct(layout) => Some(layout),
            _ => None,
        });
        of_types.chain([&SOCK, &SOCK_COMMON, &TCP_SOCK, &XDP_SOCK, &FLOW_KEYS])
    }

    #[test]
    fn names_stand_for_the_types_without_attachment_first() {
        let attach = |name| ProgramType::from_name(name).map(|kind| (kind.name, kind.attach));
        assert!(std::ptr::eq(ProgramType::from_name("xdp").unwrap(), &XDP));
        assert!(std::ptr::eq(ProgramType::from_name("sched_cls").unwrap(), &SCHED_CLS));
        assert_eq!(attach("tc"), Some(("sched_cls", None)));
        assert_eq!(attach("cgroup/connect6"), Some(("cgroup_sock_addr", Some(11))));
        assert_eq!(attach("nothing"), None);
    }

    #[test]
    fn every_type_of_linux_is_known() {
        let numbers: HashSet<_> = TYPES.iter().filter_map(|kind| kind.number).collect();
        assert_eq!(numbers, (1..=32).collect());
        let same = |a: &ProgramType, b: &ProgramType| (a.name == b.name) == (a.number == b.number);
        assert!(TYPES.iter().all(|a| TYPES.iter().all(|b| same(a, b))), "a number has one name");
    }

    #[test]
    fn fields_ascend_and_lie_inside_their_structures() {
        for layout in layouts() {
            let mut end = 0;
            for field in layout.fields {
                assert!(field.offset >= end, "{} overlaps its predecessor", field.name);
                end = field.offset + field.size.bytes();
                let number = field.kind == FieldKind::Scalar;
                assert!(!number || field.size.bytes() >= field.native_size.bytes(), "{}", field.name);
                assert!(field.allows(0, field.size.bytes(), false), "{} cannot be read", field.name);
            }
            assert!(end <= layout.size);
        }
    }

    #[test]
    fn native_fields_do_not_overlap_and_are_aligned() {
        for layout in layouts() {
            let mut taken = vec![None; layout.native_size() as usize];
            for field in layout.fields {
                let start = field.native_offset.unwrap_or_else(|| panic!("{} {}", layout.name, field.name));
                assert!(start.is_multiple_of(field.native_size.bytes()), "{} {}", layout.name, field.name);
                for byte in start..start + field.native_size.bytes() {
                    let before = taken[byte as usize].replace(field.name);
                    assert_eq!(before, None, "{} {}", layout.name, field.name);
                }
            }
        }
    }

    /// Program arrays take all programs of one name: a tail call passes on the context.
    #[test]
    fn types_of_one_name_run_on_the_same_native_context() {
        let places = |kind: &ProgramType| -> Vec<(u32, u32)> {
            let Context::Struct(layout) = kind.context else { return Vec::new() };
            layout.fields.iter().map(|field| (field.offset, field.native_offset.unwrap())).collect()
        };
        let addresses = |kind: &ProgramType| -> Vec<(&str, FieldKind)> {
            let Context::Struct(layout) = kind.context else { return Vec::new() };
            let fields = layout.fields.iter().filter(|field| field.kind != FieldKind::Scalar);
            fields.map(|field| (field.name, field.kind)).collect()
        };
        let size = |kind: &ProgramType| match (kind.context, kind.native) {
            (Context::Struct(layout), Some(Native::Struct)) => layout.native_size(),
            (Context::Bytes { bytes, .. }, _) => bytes,
            _ => 0, // one structure for all
        };
        // Programs of type tracing run on what they are attached to, and make no tail calls.
        for a in TYPES.iter().filter(|a| a.name != "tracing") {
            for b in TYPES.iter().filter(|b| a.name == b.name) {
                assert_eq!(
                    (a.native, size(a), a.from_network),
                    (b.native, size(b), b.from_network),
                    "{}",
                    a.name
                );
                if a.native == Some(Native::Struct) {
                    assert_eq!(addresses(a), addresses(b), "{}", a.name);
                }
                for (offset, at) in places(a) {
                    let same = |(other, there): (u32, u32)| other != offset || there == at;
                    assert!(places(b).into_iter().all(same), "{} at {offset}", a.name);
                }
            }
        }
    }

    #[test]
    fn only_types_over_objects_of_a_kernel_cannot_run() {
        let arguments = |kind: &&&ProgramType| matches!(kind.context, Context::Arguments { .. });
        // A host has structures of functions of its own.
        let native = |kind: &ProgramType| match kind.name {
            "struct_ops" => Some(Native::Arguments),
            "netfilter" => Some(Native::Netfilter),
            "tracing" if kind.attach == Some(28) => Some(Native::Iterator),
            _ => None,
        };
        assert!(TYPES.iter().filter(arguments).all(|kind| kind.native == native(kind)));
        assert!(TYPES.iter().filter(|kind| !arguments(kind)).all(|kind| kind.native.is_some()));
    }

    #[test]
    fn a_field_is_found_only_where_it_contains_the_access() {
        let of = |kind: &ProgramType| match kind.context {
            Context::Struct(layout) => layout,
            _ => panic!("no structure"),
        };
        let (xdp, skb) = (of(&XDP), of(&SCHED_CLS));
        assert_eq!(xdp.field(4, 4).map(|f| f.name), Some("data_end"));
        assert_eq!(xdp.field(13, 1).map(|f| f.name), Some("ingress_ifindex"));
        assert!(xdp.field(4, 8).is_none());
        assert!(xdp.field(24, 1).is_none());
        assert!(skb.field(136, 4).is_none());
        assert_eq!(skb.field(48, 8).map(|f| f.name), Some("cb[0]"));
        assert!(skb.field(52, 8).is_none(), "cb[1] does not begin at a multiple of 8");
    }

    #[test]
    fn limited_helpers_are_open_at_their_places_alone() {
        let entry = ProgramType::from_name("fentry").unwrap();
        assert!(entry.may_call(147, Some("vfs_getattr")) && entry.may_call(147, None));
        assert!(!entry.may_call(147, Some("vfs_read")));
        assert!(entry.may_call(5, Some("vfs_read")) && !entry.may_call(9, Some("vfs_getattr")));
        assert!(entry.may_call(107, Some("vfs_read")) && !entry.may_call(107, Some("bpf_sk_storage_free")));
        for kind in TYPES {
            assert!(kind.barred.iter().all(|(id, _)| kind.helpers.contains(*id)), "{}", kind.name);
            assert!(kind.limited.iter().all(|(id, _)| kind.helpers.contains(*id)), "{}", kind.name);
        }
    }

    #[test]
    fn variants_are_of_helpers_that_the_type_may_call() {
        for kind in TYPES {
            for proto in kind.variants {
                assert!(kind.helpers.contains(proto.id), "{} {}", kind.name, proto.name);
                let common = linux_helper(proto.id).unwrap();
                assert_eq!(common.name, proto.name);
                assert_ne!(common, proto, "{} of {} is no variant", proto.name, kind.name);
                assert_eq!(kind.helper(proto.id), Some(proto));
            }
            assert_eq!(kind.helper(0), None);
            assert!(kind.helpers.iter().all(|id| linux_helper(id).is_some()), "{}", kind.name);
        }
    }
}
