//! The tunnel of a packet, beside its bytes.

use std::net::{IpAddr, Ipv4Addr};

/// Where a packet came from through a tunnel, or where a program sends it through one: `struct ip_tunnel_info`.
///
/// Programs read it by `bpf_skb_get_tunnel_key` and `bpf_skb_get_tunnel_opt`, and set it by `bpf_skb_set_tunnel_key`
/// and `bpf_skb_set_tunnel_opt`. The remote address of the former is the source here, that of the latter the
/// destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The tunnel's number, a VNI for instance.
    pub id: u64,
    /// The outer source address. Both addresses are of one family.
    pub source: IpAddr,
    /// The outer destination address.
    pub destination: IpAddr,
    /// The outer type of service.
    pub tos: u8,
    /// The outer time to live.
    pub ttl: u8,
    /// The outer flow label, 20 bits.
    pub label: u32,
    /// `TUNNEL_*` of `linux/if_tunnel.h`, in the order of the machine: `TUNNEL_CSUM` is 1, `TUNNEL_KEY` 4.
    pub flags: u16,
    /// Options of the tunnel's header, at most 255 bytes.
    pub options: Vec<u8>,
    /// Whether a program has set it, so that the packet is to be sent there.
    pub send: bool,
}

impl Default for Tunnel {
    fn default() -> Self {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            id: 0,
            source: nowhere,
            destination: nowhere,
            tos: 0,
            ttl: 0,
            label: 0,
            flags: 0,
            options: Vec::new(),
            send: false,
        }
    }
}
