//! Metadata of packets.

use skep_abi::SkbContext;

/// Metadata of a packet: fields of `struct xdp_md` and `struct __sk_buff`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInfo {
    /// Index of the interface that the packet came in on.
    pub ingress_ifindex: u32,
    /// Index of the interface that the packet is at; 0: the one that it came in on. For XDP programs of an interface
    /// that sends, that interface.
    pub ifindex: u32,
    /// Index of its receive queue.
    pub rx_queue_index: u32,
    /// Time stamp in nanoseconds; classifiers may set it.
    pub tstamp: u64,
    /// The clock of the time stamp: 0 real time, 1 monotonic, 2 international atomic time. Set by
    /// `bpf_skb_set_tstamp`.
    pub tstamp_type: u8,
    /// The device's own time stamp in nanoseconds.
    pub hwtstamp: u64,
    /// To whom it was addressed: 0 this host, 1 all, 2 a group, 3 another host, as `PACKET_HOST` and the like in
    /// `linux/if_packet.h`. Set by `bpf_skb_change_type`.
    pub pkt_type: u32,
    /// The VLAN tag that the device took from the packet, or that a program gave it to be inserted when it is sent.
    pub vlan: Option<Vlan>,
    /// Mark; classifiers may set it.
    pub mark: u32,
    /// Priority; classifiers may set it.
    pub priority: u32,
    /// Transmit queue; classifiers may set it. The lower 16 bits count.
    pub queue_mapping: u32,
    /// Index of traffic control; classifiers may set it. The lower 16 bits count.
    pub tc_index: u32,
    /// Class of traffic control; classifiers may set it. The lower 16 bits count.
    pub tc_classid: u32,
    /// The receive context of the driver.
    pub napi_id: u32,
    /// Flow hash.
    pub hash: u32,
    /// What the device computed the hash of, as `bpf_xdp_metadata_rx_hash` tells it: bits of `enum xdp_rss_hash_type`.
    pub hash_type: u32,
    /// Bytes on the wire, with the headers of each segment; 0 for the packet's length.
    pub wire_len: u32,
    /// Number of segments in which it is sent; 0 for one.
    pub gso_segs: u32,
    /// Payload of each segment in bytes; 0 if it is sent whole.
    pub gso_size: u32,
    /// Kind of segments: bits of Linux's `SKB_GSO_TCPV4` (1), `SKB_GSO_TCPV6` (16), `SKB_GSO_UDP_L4` (131072).
    pub gso_type: u32,
    /// What is known of its checksums.
    pub checksum: Checksum,
    /// The class of the sender's control group, for `bpf_get_cgroup_classid` and `bpf_skb_cgroup_classid`.
    pub cgroup_classid: u32,
    /// The realm of the packet's route, for `bpf_get_route_realm`.
    pub route_realm: u32,
    /// The hook of the packet filter that programs of type `netfilter` are in: 0 before routing, 1 for packets that are
    /// for this machine, 2 for those that it forwards, 3 for those that it sends, 4 after routing (`enum
    /// nf_inet_hooks`).
    pub netfilter_hook: u8,
    /// Scratch words that one program leaves for the next.
    pub cb: [u32; 5],
}

/// A VLAN tag beside the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vlan {
    /// 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub protocol: u16,
    /// Priority, drop eligibility and number.
    pub tci: u16,
}

/// What a device or the stack knows of a packet's checksums (Linux's `ip_summed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// Nothing (`CHECKSUM_NONE`).
    #[default]
    None,
    /// The outermost checksums are right (`CHECKSUM_UNNECESSARY`).
    Correct {
        /// How many, less one; at most 3.
        level: u8,
    },
    /// The one's-complement sum of all bytes from the network header on, in the order of the machine, not inverted
    /// (`CHECKSUM_COMPLETE`). Helpers keep it up to date as they do in Linux.
    Complete {
        /// The sum.
        sum: u32,
    },
    /// The checksum field has the sum of the pseudo header; a device adds the rest (`CHECKSUM_PARTIAL`).
    Partial,
}

impl Checksum {
    /// The fields `summed`, `sum_level` and `sum` of a context.
    pub(super) fn parts(self) -> (u8, u8, u32) {
        match self {
            Self::None => (SkbContext::UNSUMMED, 0, 0),
            Self::Correct { level } => (SkbContext::CORRECT, level.min(3), 0),
            Self::Complete { sum } => (SkbContext::COMPLETE, 0, sum),
            Self::Partial => (SkbContext::PARTIAL, 0, 0),
        }
    }

    pub(super) fn of(context: &SkbContext) -> Self {
        match context.summed {
            SkbContext::CORRECT => Self::Correct { level: context.sum_level },
            SkbContext::COMPLETE => Self::Complete { sum: context.sum },
            SkbContext::PARTIAL => Self::Partial,
            _ => Self::None,
        }
    }
}
