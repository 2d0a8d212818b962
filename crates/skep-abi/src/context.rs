//! Contexts: the structures that programs see, and the native ones that the verifier maps them onto.
//!
//! A program written for Linux reads `struct xdp_md` or `struct __sk_buff`, in which `data` and `data_end`
//! are 32-bit fields that stand for 64-bit pointers. No such structure exists at run time: the verifier
//! rewrites each access to the field of the native structure that [`ContextField::native_offset`] names.

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
        /// Which.
        kind: StructKind,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The address of an object of the host, by the name of its C type.
    Object {
        /// Its C type.
        of: &'static str,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The address of the value that a storage map has for this run, of the map value's size, or null.
    Memory {
        /// Bytes.
        bytes: u32,
        /// Whether it may be null.
        maybe_null: bool,
    },
}

/// Structures that programs reach by pointers and whose layout is part of the interface, like contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StructKind {
    /// `struct bpf_sock` of which only the first, common part is sure to exist: the result of `skb->sk`.
    SockCommon,
    /// `struct bpf_sock`, a full socket.
    Sock,
    /// `struct bpf_tcp_sock`.
    TcpSock,
    /// `struct bpf_xdp_sock`.
    XdpSock,
    /// `struct bpf_flow_keys`.
    FlowKeys,
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
        }
    }

    /// What it looks like.
    pub fn layout(self) -> &'static ContextLayout {
        match self {
            Self::SockCommon | Self::Sock => &crate::types::SOCK,
            Self::TcpSock | Self::XdpSock | Self::FlowKeys => &crate::types::OPAQUE,
        }
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
    /// Whether programs may write it.
    pub writable: bool,
    /// Whether part of it may be read (scalars only; the native field then has the same size).
    pub narrow: bool,
    /// Where it really lies in the native structure, in bytes.
    pub native_offset: u32,
    /// Its size there: `B8` for pointers.
    pub native_size: Size,
}

/// A context structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLayout {
    /// Its name in the C header.
    pub name: &'static str,
    /// Its size there, in bytes.
    pub size: u32,
    /// Its fields in ascending order of offsets; what lies between may not be accessed.
    pub fields: &'static [ContextField],
}

impl ContextLayout {
    /// The field that wholly contains the `bytes` bytes at `offset`.
    pub fn field(&self, offset: u32, bytes: u32) -> Option<&'static ContextField> {
        let after = self.fields.partition_point(|field| field.offset <= offset);
        let field = self.fields[..after].last()?;
        let end = offset.checked_add(bytes)?;
        (end <= field.offset + field.size.bytes()).then_some(field)
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
    /// First byte of the metadata; `data` where there is none.
    pub data_meta: u64,
    /// First byte that the packet may grow to.
    pub buffer_start: u64,
    /// One past the last byte that the packet may grow to.
    pub buffer_end: u64,
    /// Index of the interface the packet came in on.
    pub ingress_ifindex: u32,
    /// Index of the receive queue.
    pub rx_queue_index: u32,
    /// Index of the interface the packet leaves by.
    pub egress_ifindex: u32,
    /// Unused.
    pub reserved: u32,
}

/// The native context of socket-buffer programs (socket filters and classifiers).
///
/// Invariant as for [`XdpContext`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are those of `struct __sk_buff`
pub struct SkbContext {
    /// First byte of the packet.
    pub data: u64,
    /// One past the last byte of the packet.
    pub data_end: u64,
    /// First byte of the metadata; `data` where there is none.
    pub data_meta: u64,
    /// First byte that the packet may grow to.
    pub buffer_start: u64,
    /// One past the last byte that the packet may grow to.
    pub buffer_end: u64,
    /// Time stamp in nanoseconds.
    pub tstamp: u64,
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
}
