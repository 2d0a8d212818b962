//! Packet headers as bytes; each function wraps the result of the one inside it:
//!
//! ```text
//!   ethernet( tags, type, ipv4( addresses, protocol, tcp( ports, flags, payload ) ) )
//! ```
//!
//! All packets made here are valid, checksums included; tests that need malformed packets damage them afterwards.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// EtherTypes.
#[allow(missing_docs)]
pub mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    /// Ethernet frames in GRE.
    pub const BRIDGED: u16 = 0x6558;
    /// A VLAN tag of the customer (802.1Q).
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    /// A VLAN tag of the provider (802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    pub const LLDP: u16 = 0x88cc;
}

/// Protocol numbers of IPv4 and IPv6.
#[allow(missing_docs)]
pub mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IP_IN_IP: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6_IN_IP: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NO_NEXT: u8 = 59;
    pub const DESTINATION: u8 = 60;
    pub const SCTP: u8 = 132;
}

/// Flags of TCP.
#[allow(missing_docs)]
pub mod flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
}

/// "More fragments follow" in an IPv4 header's fragment field.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// "Don't fragment" in the same field.
pub const DONT_FRAGMENT: u16 = 0x4000;

/// The shortest Ethernet frame without its check sequence; shorter ones are padded with zeroes.
pub const SHORTEST_FRAME: usize = 60;

/// An Ethernet frame. `tags` are (EtherType of the tag, tag control information), the outermost first.
pub fn ethernet(to: Mac, from: Mac, tags: &[(u16, u16)], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    for (tag, control) in tags {
        push16(&mut frame, *tag);
        push16(&mut frame, *control);
    }
    push16(&mut frame, kind);
    frame.extend_from_slice(payload);
    if frame.len() < SHORTEST_FRAME {
        frame.resize(SHORTEST_FRAME, 0);
    }
    frame
}

/// The fields of an IPv4 header besides addresses and lengths.
#[derive(Clone, Copy)]
pub struct Ipv4<'a> {
    /// One of [`protocol`].
    pub protocol: u8,
    /// The time to live (hop limit).
    pub ttl: u8,
    /// The identification that fragments share.
    pub id: u16,
    /// Flags and offset, as in the header.
    pub fragment: u16,
    /// A multiple of four bytes.
    pub options: &'a [u8],
}

/// An IPv4 packet (RFC 791).
pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, header: Ipv4<'_>, payload: &[u8]) -> Vec<u8> {
    let header_bytes = 20 + header.options.len();
    let mut packet = vec![0x40 | (header_bytes / 4) as u8, 0];
    push16(&mut packet, (header_bytes + payload.len()) as u16);
    push16(&mut packet, header.id);
    push16(&mut packet, header.fragment);
    packet.extend_from_slice(&[header.ttl, header.protocol, 0, 0]);
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(header.options);
    let check = !sum(&packet, 0);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 packet (RFC 8200); extension headers are part of the payload.
pub fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    push16(&mut packet, payload.len() as u16);
    packet.extend_from_slice(&[next, hops]);
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(payload);
    packet
}

/// An extension header of `units` x 8 bytes more than its first 8, made of padding options, before `payload`.
pub fn extension(next: u8, units: u8, payload: &[u8]) -> Vec<u8> {
    let body = 6 + usize::from(units) * 8;
    let mut packet = vec![next, units, 1, (body - 2) as u8];
    packet.resize(2 + body, 0);
    packet.extend_from_slice(payload);
    packet
}

/// A stack of MPLS labels (RFC 3032), 101 and so on from the top, before `payload`.
pub fn mpls(labels: u32, payload: &[u8]) -> Vec<u8> {
    let stack = (1..=labels).flat_map(|label| {
        let bottom = u32::from(label == labels) << 8;
        ((100 + label) << 12 | bottom | 64).to_be_bytes()
    });
    stack.chain(payload.iter().copied()).collect()
}

/// A GRE header (RFC 2784, RFC 2890) with these flags before `payload`, which begins with the optional fields.
pub fn gre(flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&flags.to_be_bytes()[..], &kind.to_be_bytes(), payload].concat()
}

/// An authentication header (RFC 4302) with a check value of 12 bytes before `payload`; its length counts words.
pub fn authentication(next: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![next, 4, 0, 0];
    packet.extend_from_slice(&0x0000_0100_u32.to_be_bytes());
    packet.extend_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&[0xa5; 12]);
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 fragment header before `payload`. `offset` is in bytes, a multiple of 8.
pub fn fragment6(next: u8, offset: u16, more: bool, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![next, 0];
    push16(&mut packet, offset | u16::from(more));
    packet.extend_from_slice(&id.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// The fields of a TCP header besides ports.
#[derive(Clone, Copy)]
pub struct Tcp {
    /// The sequence number of the first byte.
    pub sequence: u32,
    /// The acknowledgement number: that of the next expected byte.
    pub acknowledged: u32,
    /// Bits of [`flag`].
    pub flags: u8,
}

/// A TCP segment (RFC 9293); one that opens a connection carries a maximum segment size.
pub fn tcp(from: (IpAddr, u16), to: (IpAddr, u16), header: Tcp, payload: &[u8]) -> Vec<u8> {
    let options: &[u8] = if header.flags & flag::SYN != 0 { &[2, 4, 0x05, 0xb4] } else { &[] };
    let mut segment = Vec::new();
    push16(&mut segment, from.1);
    push16(&mut segment, to.1);
    segment.extend_from_slice(&header.sequence.to_be_bytes());
    segment.extend_from_slice(&header.acknowledged.to_be_bytes());
    segment.extend_from_slice(&[((20 + options.len()) as u8 / 4) << 4, header.flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend_from_slice(options);
    segment.extend_from_slice(payload);
    let check = !sum(&segment, pseudo_header(from.0, to.0, protocol::TCP, segment.len()));
    segment[16..18].copy_from_slice(&check.to_be_bytes());
    segment
}

/// A UDP datagram (RFC 768).
pub fn udp(from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    push16(&mut datagram, from.1);
    push16(&mut datagram, to.1);
    push16(&mut datagram, (8 + payload.len()) as u16);
    push16(&mut datagram, 0);
    datagram.extend_from_slice(payload);
    let check = match !sum(&datagram, pseudo_header(from.0, to.0, protocol::UDP, datagram.len())) {
        0 => 0xffff, // 0 would mean that there is no checksum
        check => check,
    };
    datagram[6..8].copy_from_slice(&check.to_be_bytes());
    datagram
}

/// An ICMP message (RFC 792): `rest` is everything after the checksum.
pub fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(rest);
    let check = !sum(&message, 0);
    message[2..4].copy_from_slice(&check.to_be_bytes());
    message
}

/// An ICMPv6 message (RFC 4443): `rest` is everything after the checksum.
pub fn icmpv6(from: Ipv6Addr, to: Ipv6Addr, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(rest);
    let check = !sum(&message, pseudo_header(from.into(), to.into(), protocol::ICMPV6, message.len()));
    message[2..4].copy_from_slice(&check.to_be_bytes());
    message
}

/// An ARP message for IPv4 over Ethernet (RFC 826): operation 1 asks, 2 answers.
pub fn arp(operation: u16, from: (Mac, Ipv4Addr), to: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut message = vec![0, 1, 8, 0, 6, 4];
    push16(&mut message, operation);
    for (mac, address) in [from, to] {
        message.extend_from_slice(&mac);
        message.extend_from_slice(&address.octets());
    }
    message
}

fn push16(bytes: &mut Vec<u8>, value: u16) {
    bytes.extend_from_slice(&value.to_be_bytes());
}

/// The one's-complement sum of `bytes` on top of `start` (RFC 1071).
fn sum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The part of a transport checksum that the addresses make, not yet folded.
fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, length: usize) -> u32 {
    let addresses = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
        _ => panic!("a packet from {from} to {to} mixes address families"),
    };
    u32::from(sum(&addresses, 0)) + u32::from(protocol) + length as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ipv4_checksum_is_that_of_a_known_header() {
        // 45 00 00 73 00 00 40 00 40 11 b8 61 c0 a8 00 01 c0 a8 00 c7, widely used as the worked example.
        let header = Ipv4 { protocol: protocol::UDP, ttl: 64, id: 0, fragment: DONT_FRAGMENT, options: &[] };
        let packet =
            ipv4(Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(192, 168, 0, 199), header, &[0; 0x73 - 20]);
        assert_eq!(packet[10..12], [0xb8, 0x61]);
    }

    #[test]
    fn tcp_and_udp_checksums_verify_over_both_families() {
        let v4 = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        let v6 = [
            IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
            IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]),
        ];
        for [from, to] in [v4, v6] {
            for payload in [&b""[..], b"odd", b"even"] {
                let header = Tcp { sequence: 7, acknowledged: 9, flags: flag::SYN };
                let segment = tcp((from, 1), (to, 2), header, payload);
                assert_eq!(sum(&segment, pseudo_header(from, to, protocol::TCP, segment.len())), 0xffff);
                let datagram = udp((from, 1), (to, 2), payload);
                assert_eq!(sum(&datagram, pseudo_header(from, to, protocol::UDP, datagram.len())), 0xffff);
            }
        }
    }

    #[test]
    fn short_frames_are_padded_and_tags_precede_the_type() {
        let frame = ethernet(
            [1; 6],
            [2; 6],
            &[(ethertype::SERVICE_VLAN, 5), (ethertype::VLAN, 7)],
            ethertype::IPV4,
            &[0xee],
        );
        assert_eq!(frame.len(), SHORTEST_FRAME);
        assert_eq!(frame[12..23], [0x88, 0xa8, 0, 5, 0x81, 0, 0, 7, 8, 0, 0xee]);
    }

    #[test]
    fn only_the_last_mpls_label_is_marked_bottom_of_stack() {
        assert_eq!(mpls(2, &[]), [0, 6, 0x50, 64, 0, 6, 0x61, 64]);
    }

    #[test]
    fn a_fragment_s_offset_is_above_its_flags() {
        assert_eq!(fragment6(protocol::UDP, 0, true, 9, &[]), [17, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(fragment6(protocol::UDP, 24, true, 9, &[])[2..4], [0, 0x19]);
    }

    #[test]
    fn extension_headers_have_their_declared_length() {
        assert_eq!(extension(protocol::TCP, 0, &[]).len(), 8);
        assert_eq!(extension(protocol::TCP, 2, &[]).len(), 24);
        assert_eq!(authentication(protocol::TCP, 1, &[]).len(), (4 + 2) * 4);
    }
}
