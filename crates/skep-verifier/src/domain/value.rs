//! What is known of the value in a register or a spilled register.
//!
//! A pointer points `offset + num` bytes into its object: `offset` is the same in every run, `num` was added at run
//! time. Two values with the same `id` (not 0) are linked:
//!
//! | kind | equal ids say |
//! |---|---|
//! | scalar | the values differ by the difference of their `offset`s: a check of one narrows the other |
//! | pointer into a packet or slice | the variable parts are the same number: a range of one holds for the other |
//! | maybe-null pointer | they come from the same call: both are null or neither is |
//! | value of a map with a lock, inner map | they are the same value, the same map |
//! | part of an object in the stack | they are parts or slices of the same object |
//! | stale address in a packet | they lay in the same packet, before the move that ended them |

use crate::domain::scalar::Scalar;
use skep_abi::{CPU_MASK, DynptrKind, StructKind, machine_type_name};
use std::fmt;

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Never written.
    Uninit,
    /// Clobbered by the call in this slot, which does not preserve the register.
    Clobbered { slot: u32 },
    /// An address that the instruction in this slot made useless. It may be copied, spilled and moved; [`Stale`] says
    /// what else. In programs that may leak addresses it is a number instead.
    Stale { slot: u32, of: Stale },
    /// A number.
    Scalar,
    /// The program's context.
    Context,
    /// The stack of that frame; offset 0 is its end, where `r10` points.
    Stack { frame: u8 },
    /// Packet data; offset 0 is the start of the packet.
    Packet,
    /// Packet metadata; offset 0 is its start.
    PacketMeta,
    /// One past the end of the packet.
    PacketEnd,
    /// Bytes that the host lends, by their number in the program's type; offset 0 is the first.
    Slice { slice: u8, writable: bool },
    /// One past the last of these bytes.
    SliceEnd { slice: u8 },
    /// The lower half of an address in or at the end of the packet: only for 32-bit distances.
    PacketHalf,
    /// A map, to be passed to helpers.
    Map { map: u32 },
    /// A value of a map.
    MapValue { map: u32, maybe_null: bool },
    /// The host's buffer of that many bytes.
    Buffer { bytes: u32 },
    /// The key of an element of a map, as callbacks are given it.
    MapKey { map: u32 },
    /// Memory of that many bytes that the host handed out: a ring buffer's record, what a dynptr shows.
    Memory { bytes: u32, read_only: bool, maybe_null: bool },
    /// A map found in a map of maps, defined like the outer map's inner map.
    InnerMap { map: u32, maybe_null: bool },
    /// A function of the program.
    Function { function: u32 },
    /// A structure with a stable layout.
    Struct { of: StructKind, maybe_null: bool },
    /// An object of the host, by the number of its type in the host's BTF.
    Object { ty: u32, trust: Trust, maybe_null: bool },
    /// A byte of the program's arena, as its loads and stores name it. Which one is never known, so all such values are
    /// equal. The bits say nothing about the host: except as an address, it is an unknown number.
    Arena,
    /// An object that the program allocated, by the number of its type in the program's own BTF. `per_cpu`: it is no
    /// address yet, each CPU has its own object.
    Own { ty: u32, held: Hold, per_cpu: bool, maybe_null: bool },
    /// An 8-byte part of an object in the stack that only calls may touch. Its `offset` says which part, its `id` which
    /// object.
    Opaque { of: Opaque },
}

/// What a stale address was. It decides which uses are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// The address of an object that ended: may be compared with null and with addresses of other objects.
    Object,
    /// The address of a place in a packet that may have moved since: the same, and subtraction from others in the same
    /// packet, which have its `id`.
    Packet,
    /// The bits that arithmetic made of an address: no use is left.
    Bits,
}

/// How far the address of a host's object can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// Not at all: it was made from a number, or what kept its object alive has ended. No call takes it.
    Untrusted,
    /// It was found by following pointers. Helpers trust its type; kfuncs do not.
    Walked,
    /// It is no address yet: each CPU has its own object, and a helper returns its address.
    PerCpu,
    /// Its object is alive inside of the read section that it was found in.
    ReadSection,
    /// Its object is alive as long as the program runs, or holds a reference.
    Trusted,
}

/// How a path holds an object that the program allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// The path owns it, or one of its counted shares: a reference.
    Owned,
    /// A list or tree owns it. It is known until the lock is released, since another CPU may take it out then.
    Borrowed,
    /// It was found in a map's value, and is alive in the read section.
    Found,
    /// The same, of a type with nodes: it may be in a list or tree, and is forgotten with the lock as well.
    FoundNode,
    /// What kept it alive has ended: it may only be read, by probe loads.
    Untrusted,
}

impl Hold {
    /// How Linux's logs show it.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Owned => "alloc_",
            Self::Borrowed => "non_own_",
            Self::Found => "rcu_",
            Self::FoundNode => "rcu_non_own_",
            Self::Untrusted => "untrusted_",
        }
    }

    /// Whether it may be in a list or tree of the lock that is held.
    pub(crate) const fn is_borrowed(self) -> bool {
        matches!(self, Self::Borrowed | Self::FoundNode)
    }
}

/// An object in the stack that only calls make, use and end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opaque {
    /// `struct bpf_dynptr`, 16 bytes.
    Dynptr { of: DynptrKind, read_only: bool },
    /// An open-coded iterator: the type of its structure in the host's BTF, whether it has ended, and what it needs.
    Iterator { ty: u32, ended: bool, needs: Needs },
}

/// What an iterator needs to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// Nothing.
    Nothing,
    /// The read section in which it was made.
    ReadSection,
    /// The same, and that section was left: the iterator is useless.
    LeftSection,
}

impl Kind {
    pub(crate) const fn is_maybe_null(self) -> bool {
        matches!(
            self,
            Self::MapValue { maybe_null: true, .. }
                | Self::Memory { maybe_null: true, .. }
                | Self::InnerMap { maybe_null: true, .. }
                | Self::Struct { maybe_null: true, .. }
                | Self::Object { maybe_null: true, .. }
                | Self::Own { maybe_null: true, .. }
        )
    }

    /// The same before a check for null, for objects.
    pub(crate) const fn maybe_null(self) -> Self {
        match self {
            Self::Object { ty, trust, .. } => Self::Object { ty, trust, maybe_null: true },
            Self::Own { ty, held, per_cpu, .. } => Self::Own { ty, held, per_cpu, maybe_null: true },
            other => other,
        }
    }

    /// The same once it was found not to be null.
    pub(crate) const fn not_null(self) -> Self {
        match self {
            Self::MapValue { map, .. } => Self::MapValue { map, maybe_null: false },
            Self::Memory { bytes, read_only, .. } => Self::Memory { bytes, read_only, maybe_null: false },
            Self::InnerMap { map, .. } => Self::InnerMap { map, maybe_null: false },
            Self::Struct { of, .. } => Self::Struct { of, maybe_null: false },
            Self::Object { ty, trust, .. } => Self::Object { ty, trust, maybe_null: false },
            Self::Own { ty, held, per_cpu, .. } => Self::Own { ty, held, per_cpu, maybe_null: false },
            other => other,
        }
    }
}

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    /// Links values with the same number; 0 for none.
    pub(crate) id: u32,
    /// Pointers: the fixed part of the offset. Scalars with an id: the number added to the linked one.
    pub(crate) offset: i32,
    /// Packet pointers: this many bytes from offset 0 (with the same variable part) are inside of the packet; likewise
    /// for pointers into a slice. Memory: not 0 if it is a part of the packet.
    pub(crate) range: u32,
    /// The reference that it holds or was derived from, or the dynptr that it is a slice of; 0 for none. The end of
    /// that invalidates it. Values of inner maps: the id of the map's pointer. Loans to callbacks: [`lent`].
    pub(crate) reference: u32,
    /// Scalars: the number. Pointers: the variable part of the offset.
    pub(crate) num: Scalar,
}

/// Offsets, fixed and variable, stay below this, so that no sum or address can wrap.
pub(crate) const MAX_OFFSET: i64 = 1 << 29;

/// Smaller numbers are ids, of which a walk makes a new one each time.
pub(crate) const IDS: u32 = 1 << 31;

/// The `reference` of what a helper lends to the callback in that frame, and of all that is made from it: it ends with
/// the callback, and nothing gives it back. It is the same in each call, so that it is known at the end without a value
/// that still has it.
pub(crate) const fn lent(frame: u8) -> u32 {
    IDS | frame as u32
}

/// Whether a `reference` is that of something lent to a callback.
pub(crate) const fn is_lent(reference: u32) -> bool {
    reference >= IDS
}

impl Value {
    pub(crate) const UNINIT: Self = Self::pointer(Kind::Uninit, 0);
    pub(crate) const UNKNOWN: Self = Self::scalar(Scalar::UNKNOWN);

    pub(crate) const fn scalar(num: Scalar) -> Self {
        Self { kind: Kind::Scalar, id: 0, offset: 0, range: 0, reference: 0, num }
    }

    pub(crate) const fn constant(value: u64) -> Self {
        Self::scalar(Scalar::constant(value))
    }

    pub(crate) const fn pointer(kind: Kind, offset: i32) -> Self {
        Self { kind, id: 0, offset, range: 0, reference: 0, num: Scalar::constant(0) }
    }

    pub(crate) const fn is_scalar(&self) -> bool {
        matches!(self.kind, Kind::Scalar)
    }

    /// Whether it is a value, even if a stale address.
    pub(crate) const fn is_made(&self) -> bool {
        !matches!(self.kind, Kind::Uninit | Kind::Clobbered { .. })
    }

    pub(crate) const fn is_stale(&self) -> bool {
        matches!(self.kind, Kind::Stale { .. })
    }

    /// Whether instructions that do not handle stale addresses may read it.
    pub(crate) const fn is_readable(&self) -> bool {
        self.is_made() && !self.is_stale()
    }

    pub(crate) const fn is_pointer(&self) -> bool {
        self.is_made() && !self.is_scalar()
    }

    /// Whether a pointer has no variable part. A variable part that a comparison or an addition narrowed to a constant
    /// other than 0 does not count.
    pub(crate) fn is_fixed(&self) -> bool {
        self.num.as_constant() == Some(0)
    }

    /// The number, if it is one and known.
    pub(crate) const fn as_constant(&self) -> Option<u64> {
        if self.is_scalar() { self.num.as_constant() } else { None }
    }

    /// What it is to everything but accesses to memory: an address in an arena is an unknown number.
    pub(crate) const fn outside_of_arena(&self) -> Self {
        if matches!(self.kind, Kind::Arena) { Self::UNKNOWN } else { *self }
    }

    pub(crate) const fn is_packet(&self) -> bool {
        matches!(self.kind, Kind::Packet | Kind::PacketMeta | Kind::PacketEnd)
    }

    /// The number of the slice that it points into or behind.
    pub(crate) const fn slice(&self) -> Option<u8> {
        match self.kind {
            Kind::Slice { slice, .. } | Kind::SliceEnd { slice } => Some(slice),
            _ => None,
        }
    }

    /// Whether its `range` says how many bytes a comparison with an end found.
    pub(crate) const fn has_range(&self) -> bool {
        matches!(self.kind, Kind::Packet | Kind::PacketMeta | Kind::Slice { .. })
    }

    /// Whether it was derived from a packet's address, so that a move of the packet invalidates it.
    pub(crate) const fn is_of_packet(&self) -> bool {
        self.is_packet() || matches!(self.kind, Kind::PacketHalf)
    }

    /// Whether a move of the packet invalidates it: derived from its address, or memory found in it.
    pub(crate) const fn dies_with_packet(&self) -> bool {
        self.is_of_packet() || (matches!(self.kind, Kind::Memory { .. }) && self.range & OF_PACKET != 0)
    }

    /// Of memory that may be a copy in the program's own stack: where that lies.
    pub(crate) fn copy_in_stack(&self) -> Option<StackBytes> {
        if !matches!(self.kind, Kind::Memory { .. }) || self.range <= OF_PACKET {
            return None;
        }
        let part = |shift: u32| self.range >> shift & 0x3ff;
        Some(StackBytes { frame: (part(21) & 0xff) as u8, start: part(1), end: part(11) })
    }

    pub(crate) const fn is_maybe_null(&self) -> bool {
        self.kind.is_maybe_null()
    }
}

/// Bytes of a frame's stack, counted from its bottom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StackBytes {
    pub(crate) frame: u8,
    pub(crate) start: u32,
    /// The one after the last.
    pub(crate) end: u32,
}

/// In the `range` of memory: a move of the packet invalidates it.
const OF_PACKET: u32 = 1;

/// The `range` of memory that a dynptr shows: whether it is a packet's, and where the stack may hold a copy of it.
pub(crate) fn range_of_slice(of_packet: bool, copy: Option<StackBytes>) -> u32 {
    let packet = if of_packet { OF_PACKET } else { 0 };
    // The end is above 0, so the range is never 0.
    copy.map_or(packet, |copy| packet | copy.start << 1 | copy.end << 11 | u32::from(copy.frame) << 21)
}

impl fmt::Display for Value {
    /// The short form that Linux's verifier prints in its logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Uninit => return f.write_str("an uninitialised register"),
            Kind::Clobbered { slot } => return write!(f, "a register clobbered by the call in {slot}"),
            Kind::Stale { slot, of: Stale::Object } => {
                return write!(f, "the address of an object that the call in {slot} released or ended");
            }
            Kind::Stale { slot, of: Stale::Packet } => {
                return write!(f, "an address in the packet before the call in {slot}");
            }
            Kind::Stale { slot, of: Stale::Bits } => {
                return write!(f, "a number that the instruction in {slot} computed from an address");
            }
            Kind::Scalar => return fmt::Display::fmt(&self.num, f),
            Kind::Stack { frame } => {
                f.write_str("fp")?;
                if self.offset != 0 {
                    write!(f, "{:+}", self.offset)?;
                }
                write!(f, "(frame={frame}")?;
                return self.variable_part(f);
            }
            Kind::Context => f.write_str("ctx(")?,
            Kind::Packet => f.write_str("pkt(")?,
            Kind::PacketMeta => f.write_str("pkt_meta(")?,
            Kind::PacketEnd => return f.write_str("pkt_end()"),
            Kind::Slice { slice, .. } => write!(f, "slice(slice={slice},")?,
            Kind::SliceEnd { slice } => return write!(f, "slice_end({slice})"),
            Kind::PacketHalf => return f.write_str("half of a packet pointer"),
            Kind::Map { map } => return write!(f, "map_ptr(map={map})"),
            Kind::MapValue { map, maybe_null: false } => write!(f, "map_value(map={map},")?,
            Kind::MapValue { map, maybe_null: true } => write!(f, "map_value_or_null(map={map},")?,
            Kind::Buffer { bytes } => write!(f, "mem(sz={bytes},")?,
            Kind::MapKey { map } => write!(f, "map_key(map={map},")?,
            Kind::Memory { bytes, read_only, maybe_null } => {
                let or_null = if maybe_null { "_or_null" } else { "" };
                let read_only = if read_only { "rdonly_" } else { "" };
                write!(f, "{read_only}mem{or_null}(sz={bytes},")?;
            }
            Kind::InnerMap { map, maybe_null } => {
                write!(f, "map_ptr{}(inner of map={map},", if maybe_null { "_or_null" } else { "" })?;
            }
            Kind::Function { function } => return write!(f, "func({function})"),
            Kind::Struct { of, maybe_null } => {
                write!(f, "{}{}(", of.name(), if maybe_null { "_or_null" } else { "" })?;
            }
            Kind::Object { ty, trust, maybe_null } => {
                let trust = match trust {
                    Trust::Untrusted => "untrusted_",
                    Trust::Walked => "",
                    Trust::PerCpu => "percpu_",
                    Trust::ReadSection => "rcu_",
                    Trust::Trusted => "trusted_",
                };
                write!(f, "{trust}ptr{}_", if maybe_null { "_or_null" } else { "" })?;
                match machine_type_name(ty) {
                    Some(name) => write!(f, "{name}(")?,
                    None => write!(f, "#{ty}(")?,
                }
            }
            Kind::Arena => return f.write_str("arena"),
            Kind::Own { ty, held, per_cpu, maybe_null } => {
                let per_cpu = if per_cpu { "percpu_" } else { "" };
                let or_null = if maybe_null { "_or_null" } else { "" };
                write!(f, "{}{per_cpu}ptr{or_null}", held.prefix())?;
                match ty {
                    CPU_MASK => f.write_str("_bpf_cpumask(")?,
                    ty => write!(f, "_@{ty}(")?,
                }
            }
            Kind::Opaque { of: Opaque::Dynptr { .. } } => return f.write_str("dynptr"),
            Kind::Opaque { of: Opaque::Iterator { .. } } => return f.write_str("iter"),
        }
        if self.reference != 0 && !is_lent(self.reference) {
            write!(f, "ref_obj_id={},", self.reference)?;
        }
        if self.id != 0 {
            write!(f, "id={},", self.id)?;
        }
        write!(f, "off={}", self.offset)?;
        if self.has_range() {
            write!(f, ",r={}", self.range)?;
        }
        self.variable_part(f)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Value {
    fn variable_part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num != Scalar::constant(0) {
            self.num.limits(f, ",")?;
        }
        f.write_str(")")
    }
}
