//! Contexts: the structures that programs see, and the native ones that the verifier maps them onto.
//!
//! A program written for Linux reads `struct xdp_md` or `struct __sk_buff`, in which `data` and `data_end` are
//! 32-bit fields that stand for 64-bit pointers. No such structure exists at run time: the verifier rewrites each
//! access to the field of the native structure that [`ContextField::native_offset`] names. Packets have structures of
//! their own ([`XdpContext`], [`SkbContext`]). All other native structures follow one rule, which a `const fn` applies:
//!
//! ```text
//!   number, address of 8 bytes        where the C header has it
//!   address for which C has 4 bytes   behind the structure, in the order of the fields, 8 bytes each
//! ```

use crate::types::ProgramType;
use skep_isa::Size;

/// What a field of a context holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// A number.
    Scalar,
    /// The start of the packet.
    PacketData,
    /// The end of the packet.
    PacketEnd,
    /// The start of the metadata before the packet.
    PacketMeta,
    /// The address of a structure with a stable layout.
    Struct {
        /// The structure.
        kind: StructKind,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The address of an object of the host, by the name of its C type.
    Object {
        /// The name of its C type.
        of: &'static str,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The address of this run's value in a storage map, or null. The value has the map's value size.
    Memory {
        /// Size in bytes.
        bytes: u32,
        /// Whether programs may write it.
        writable: bool,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The start of bytes that a host lends for a run. A pointer to them is compared with the [`FieldKind::SliceEnd`]
    /// of the same number.
    SliceData {
        /// Its number among the slices of the program type.
        slice: u8,
        /// Whether programs may write it.
        writable: bool,
    },
    /// One past the last of these bytes.
    SliceEnd {
        /// The number of the slice.
        slice: u8,
    },
}

/// Structures that programs reach through pointers and whose layout is part of the interface, like contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StructKind {
    /// `struct bpf_sock` of which only the first, common part is known to exist: the result of `skb->sk`.
    SockCommon,
    /// `struct bpf_sock`, a full socket.
    Sock,
    /// `struct bpf_tcp_sock`.
    TcpSock,
    /// `struct bpf_xdp_sock`.
    XdpSock,
    /// `struct bpf_flow_keys`.
    FlowKeys,
    /// A structure of a host's own context, by its number in [`crate::ProgramType::structs`].
    Host(u8),
}

impl StructKind {
    /// Its name in the logs of Linux's verifier.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SockCommon => "sock_common",
            Self::Sock => "sock",
            Self::TcpSock => "tcp_sock",
            Self::XdpSock => "xdp_sock",
            Self::FlowKeys => "flow_keys",
            Self::Host(_) => "host_struct",
        }
    }

    /// Its layout in programs of that type; `None` if the type has no structure of that number.
    pub fn layout(self, program_type: &ProgramType) -> Option<&'static ContextLayout> {
        Some(match self {
            Self::SockCommon => &crate::types::SOCK_COMMON,
            Self::Sock => &crate::types::SOCK,
            Self::TcpSock => &crate::types::TCP_SOCK,
            Self::XdpSock => &crate::types::XDP_SOCK,
            Self::FlowKeys => &crate::types::FLOW_KEYS,
            Self::Host(number) => return program_type.structs.get(usize::from(number)).copied(),
        })
    }
}

/// The aligned parts of a field, of 1, 2, 4 and 8 bytes, that may be accessed.
///
/// ```text
///   bits 0..8     8..12          12..14     14
///   1 byte at 0.. 2 at 0,2,4,6   4 at 0,4   8 at 0
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parts(u16);

impl Parts {
    /// Not at all.
    pub const NONE: Self = Self(0);
    /// From its start, with 1, 2, 4 or 8 bytes.
    pub const BYTE: Self = Self(1);
    /// See [`Parts::BYTE`].
    pub const HALF: Self = Self(1 << 8);
    /// See [`Parts::BYTE`].
    pub const WORD: Self = Self(1 << 12);
    /// See [`Parts::BYTE`].
    pub const DOUBLE: Self = Self(1 << 14);

    /// The whole field of that size, and no part of it.
    pub const fn whole(size: Size) -> Self {
        match size {
            Size::B1 => Self::BYTE,
            Size::B2 => Self::HALF,
            Size::B4 => Self::WORD,
            Size::B8 => Self::DOUBLE,
        }
    }

    /// A whole field of that size, and every aligned part of it.
    pub const fn any(size: Size) -> Self {
        match size {
            Size::B1 => Self(1),
            Size::B2 => Self(0x103),
            Size::B4 => Self(0x130f),
            Size::B8 => Self(0x7fff),
        }
    }

    /// Four bytes and each half of them.
    pub const fn halves() -> Self {
        Self(0x1300)
    }

    /// The union of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `bytes` bytes may be accessed, starting `inside` bytes after the field's start.
    pub const fn allows(self, inside: u32, bytes: u32) -> bool {
        let bit = match (bytes, inside) {
            (1, 0..=7) => inside,
            (2, 0 | 2 | 4 | 6) => 8 + inside / 2,
            (4, 0 | 4) => 12 + inside / 4,
            (8, 0) => 14,
            _ => return false,
        };
        self.0 >> bit & 1 != 0
    }

    /// Whether no part may be accessed.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One field of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextField {
    /// Its name in the C header.
    pub name: &'static str,
    /// Its offset in the structure that programs are compiled against, in bytes.
    pub offset: u32,
    /// Its size there.
    pub size: Size,
    /// What it holds.
    pub kind: FieldKind,
    /// How it may be read. An access larger than the field also reads the bytes after it.
    pub reads: Parts,
    /// How programs may write it.
    pub writes: Parts,
    /// Its offset in the native structure, in bytes. `None` if that lacks it: a program that accesses it can be
    /// verified, but skep cannot run it.
    pub native_offset: Option<u32>,
    /// Its size in the native structure: `B8` for pointers, `size` for numbers.
    pub native_size: Size,
}

impl ContextField {
    /// Whether programs may access `bytes` bytes, starting `inside` bytes after the field's start.
    pub const fn allows(&self, inside: u32, bytes: u32, write: bool) -> bool {
        if write { self.writes.allows(inside, bytes) } else { self.reads.allows(inside, bytes) }
    }
}

/// A context structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLayout {
    /// Its name in the C header.
    pub name: &'static str,
    /// Its size there, in bytes.
    pub size: u32,
    /// Its fields in ascending order of offsets. Bytes between fields may not be accessed.
    pub fields: &'static [ContextField],
}

impl ContextLayout {
    /// The size of the native structure in bytes: a multiple of 8 that contains the C structure and all native fields.
    pub fn native_size(&self) -> u32 {
        let end = |field: &ContextField| Some(field.native_offset? + field.native_size.bytes());
        let last = self.fields.iter().filter_map(end).max().unwrap_or(0);
        last.max(self.size).next_multiple_of(8)
    }

    /// The field in which an access to the `bytes` bytes at `offset` begins, if programs may access that field at
    /// all. [`ContextField::allows`] decides about this access.
    pub fn field(&self, offset: u32, bytes: u32) -> Option<&'static ContextField> {
        let after = self.fields.partition_point(|field| field.offset <= offset);
        let field = self.fields[..after].last()?;
        let end = offset.checked_add(bytes)?;
        let inside = offset < field.offset + field.size.bytes();
        let fits = end <= field.offset + field.size.bytes();
        let allowed = || field.allows(offset - field.offset, bytes, false);
        (inside && (fits || allowed())).then_some(field)
    }
}

/// The native context of XDP programs. Addresses are of this process.
///
/// Invariant: `buffer_start <= data_meta <= data <= data_end <= buffer_end`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpContext {
    /// First byte of the packet.
    pub data: u64,
    /// One past the last byte of the packet.
    pub data_end: u64,
    /// First byte of the metadata; equal to `data` if there is none.
    pub data_meta: u64,
    /// First byte that the packet may grow to.
    pub buffer_start: u64,
    /// One past the last byte that the packet may grow to.
    pub buffer_end: u64,
    /// Index of the interface that received the packet.
    pub ingress_ifindex: u32,
    /// Index of the receive queue.
    pub rx_queue_index: u32,
    /// Index of the interface that transmits the packet.
    pub egress_ifindex: u32,
    /// Unused.
    pub reserved: u32,
    /// Address of the packet that owns the buffer, for helpers that make it larger, or 0.
    pub packet: u64,
}

/// The native context of socket-buffer programs (socket filters and classifiers).
///
/// The invariant of [`XdpContext`] holds here too.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are those of `struct __sk_buff`
pub struct SkbContext {
    /// First byte of the packet.
    pub data: u64,
    /// One past the last byte of the packet.
    pub data_end: u64,
    /// First byte of the metadata; equal to `data` if there is none.
    pub data_meta: u64,
    /// First byte that the packet may grow to.
    pub buffer_start: u64,
    /// One past the last byte that the packet may grow to.
    pub buffer_end: u64,
    /// Address of the packet that owns the buffer, for helpers that make it larger, or 0.
    pub packet: u64,
    /// Address of the socket that the packet belongs to, or 0.
    pub sk: u64,
    /// Time stamp in nanoseconds.
    pub tstamp: u64,
    /// The device's own time stamp.
    pub hwtstamp: u64,
    pub len: u32,
    pub pkt_type: u32,
    pub mark: u32,
    pub queue_mapping: u32,
    pub protocol: u32,
    pub vlan_present: u32,
    pub vlan_tci: u32,
    pub vlan_proto: u32,
    pub priority: u32,
    pub ingress_ifindex: u32,
    pub ifindex: u32,
    pub tc_index: u32,
    pub cb: [u32; 5],
    pub hash: u32,
    pub tc_classid: u32,
    pub napi_id: u32,
    pub family: u32,
    pub remote_ip4: u32,
    pub local_ip4: u32,
    pub remote_ip6: [u32; 4],
    pub local_ip6: [u32; 4],
    pub remote_port: u32,
    pub local_port: u32,
    pub wire_len: u32,
    pub gso_segs: u32,
    pub gso_size: u32,
    /// How its segments are made: bits of [`SkbContext::GSO_TCP`].
    pub gso_type: u32,
    /// Bytes from the link-layer header to `data`: 0 for programs that see this header.
    pub link: u32,
    /// Bytes from `data` to the network header.
    pub network: u32,
    /// The sum of the packet's bytes from its network header on, where `summed` says that it is known.
    pub sum: u32,
    /// What is known of the packet's checksums: one of [`SkbContext::UNSUMMED`] and the like.
    pub summed: u8,
    /// How many checksums are known to be right, less one, with [`SkbContext::CORRECT`].
    pub sum_level: u8,
    pub tstamp_type: u8,
    /// Not 0 if the packet has been put into another one: 1, or the length of the new IP header if one of transport
    /// follows it.
    pub encapsulated: u8,
}

impl SkbContext {
    /// Nothing is known (`CHECKSUM_NONE`).
    pub const UNSUMMED: u8 = 0;
    /// Checksums have been found right (`CHECKSUM_UNNECESSARY`).
    pub const CORRECT: u8 = 1;
    /// The sum of all bytes is known (`CHECKSUM_COMPLETE`).
    pub const COMPLETE: u8 = 2;
    /// The checksum is to be filled in by the device (`CHECKSUM_PARTIAL`).
    pub const PARTIAL: u8 = 3;
    /// Segments of TCP over IPv4 (`SKB_GSO_TCPV4`).
    pub const GSO_TCPV4: u32 = 1;
    /// Segments of TCP over IPv6 (`SKB_GSO_TCPV6`).
    pub const GSO_TCPV6: u32 = 1 << 4;
    /// Segments of UDP (`SKB_GSO_UDP_L4`).
    pub const GSO_UDP: u32 = 1 << 17;
    /// Segments of TCP.
    pub const GSO_TCP: u32 = Self::GSO_TCPV4 | Self::GSO_TCPV6;
}
