//! Everything except well-behaved conversations: neighbour discovery, fragments, other protocols, truncated frames,
//! and malformed frames.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::flows::{Flow, VIRTUAL4, client4, client6, mac_of};
use crate::random::Random;
use skep_packets::{self as wire, Ipv4};

const BROADCAST: wire::Mac = [0xff; 6];
const PLAIN: Ipv4<'static> =
    Ipv4 { protocol: wire::protocol::UDP, ttl: 64, id: 0, fragment: 0, options: &[] };

/// An ARP request or reply.
pub(crate) fn arp(random: &mut Random) -> Vec<u8> {
    let (asker, asked) = (client4(random), client4(random));
    let (from, to) = (mac_of(asker.into()), mac_of(asked.into()));
    if random.chance(60) {
        let message = wire::arp(1, (from, asker), ([0; 6], asked));
        wire::ethernet(BROADCAST, from, &[], wire::ethertype::ARP, &message)
    } else {
        wire::ethernet(from, to, &[], wire::ethertype::ARP, &wire::arp(2, (to, asked), (from, asker)))
    }
}

/// A neighbour solicitation or router advertisement (RFC 4861), or a link-layer discovery frame.
pub(crate) fn discovery(random: &mut Random) -> Vec<u8> {
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x200, 0xff, 0xfe00, random.between(1, 99) as u16);
    let source = mac_of(from.into());
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let to = [0x33, 0x33, 0, 0, 0, 1];
    match random.below(3) {
        0 => {
            let mut rest = vec![0; 4];
            rest.extend_from_slice(&client6(random).octets());
            rest.extend_from_slice(&[1, 1]);
            rest.extend_from_slice(&source);
            let message = wire::icmpv6(from, all_nodes, 135, 0, &rest);
            wire::ethernet(
                to,
                source,
                &[],
                wire::ethertype::IPV6,
                &wire::ipv6(from, all_nodes, wire::protocol::ICMPV6, 255, &message),
            )
        }
        1 => {
            let message = wire::icmpv6(from, all_nodes, 134, 0, &[64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
            wire::ethernet(
                to,
                source,
                &[],
                wire::ethertype::IPV6,
                &wire::ipv6(from, all_nodes, wire::protocol::ICMPV6, 255, &message),
            )
        }
        _ => {
            let message = [2, 7, 4, 2, 0, 0, 0, 0, 1, 4, 2, 5, b'1', 6, 2, 0, 120, 0, 0];
            wire::ethernet([1, 0x80, 0xc2, 0, 0, 0x0e], source, &[], wire::ethertype::LLDP, &message)
        }
    }
}

/// Protocols without ports, an ICMP error that quotes a packet, an IPv6 packet with no payload at all.
pub(crate) fn other_protocol(random: &mut Random) -> Vec<u8> {
    let (from, to) = (client4(random), Ipv4Addr::new(198, 19, 0, 1));
    let quoted = wire::udp((to.into(), 53), (from.into(), 40000), b"not here");
    let quoted = wire::ipv4(to, from, PLAIN, &quoted);
    let (protocol, payload) = match random.below(5) {
        0 => (2, vec![0x16, 0, 0x09, 0xfb, 224, 0, 0, 251]), // IGMP: a membership report
        1 => (wire::protocol::GRE, [&[0, 0, 0x08, 0][..], &quoted].concat()),
        2 => (wire::protocol::ESP, random.bytes(64)),
        3 => (wire::protocol::ICMP, wire::icmp(3, 3, &[&[0; 4][..], &quoted].concat())),
        _ => {
            let (from, to) = (client6(random), Ipv6Addr::new(0x2001, 0xdb8, 0x20, 0, 0, 0, 0, 1));
            let packet = wire::ipv6(from, to, wire::protocol::NO_NEXT, 64, &[]);
            return wire::ethernet(
                mac_of(to.into()),
                mac_of(from.into()),
                &[],
                wire::ethertype::IPV6,
                &packet,
            );
        }
    };
    let packet = wire::ipv4(from, to, Ipv4 { protocol, ..PLAIN }, &payload);
    wire::ethernet(mac_of(to.into()), mac_of(from.into()), &[], wire::ethertype::IPV4, &packet)
}

/// All fragments of one datagram, in order; sometimes only a first fragment too small for its ports.
pub(crate) fn fragments(random: &mut Random) -> Vec<Vec<u8>> {
    const PIECE: usize = 184;
    let id = random.next();
    if random.chance(50) {
        let (from, to) = (client4(random), Ipv4Addr::new(198, 19, 0, random.between(1, 39) as u8));
        let data = random.bytes(PIECE * 2 + 60);
        let datagram = wire::udp((from.into(), 5060), (to.into(), 5060), &data);
        let tiny = random.chance(15);
        let piece = if tiny { 8 } else { PIECE };
        let pieces = datagram.chunks(piece).take(if tiny { 2 } else { 3 }).enumerate();
        pieces
            .map(|(index, payload)| {
                let offset = index * piece;
                let more = offset + payload.len() < datagram.len();
                let fragment = (offset / 8) as u16 | if more { wire::MORE_FRAGMENTS } else { 0 };
                let packet = wire::ipv4(from, to, Ipv4 { id: id as u16, fragment, ..PLAIN }, payload);
                wire::ethernet(mac_of(to.into()), mac_of(from.into()), &[], wire::ethertype::IPV4, &packet)
            })
            .collect()
    } else {
        let (from, to) = (client6(random), Ipv6Addr::new(0x2001, 0xdb8, 0x20, 0, 0, 0, 0, 9));
        let data = random.bytes(PIECE * 2 + 60);
        let datagram = wire::udp((from.into(), 5060), (to.into(), 5060), &data);
        let pieces = datagram.chunks(PIECE).enumerate();
        pieces
            .map(|(index, payload)| {
                let offset = index * PIECE;
                let more = offset + payload.len() < datagram.len();
                let payload = wire::fragment6(wire::protocol::UDP, offset as u16, more, id as u32, payload);
                let packet = wire::ipv6(from, to, wire::protocol::FRAGMENT, 64, &payload);
                wire::ethernet(mac_of(to.into()), mac_of(from.into()), &[], wire::ethertype::IPV6, &packet)
            })
            .collect()
    }
}

/// A frame of a regular flow, truncated by the capture (the length on the wire shows it) or on the wire itself. The
/// bytes and the length on the wire.
pub(crate) fn truncated(random: &mut Random) -> (Vec<u8>, usize) {
    let frame = Flow::new(random).next_frame(random);
    let wire_bytes = frame.len();
    // More often inside the headers than in the payload; sometimes even before the end of a MAC address.
    let kept = if random.chance(80) { random.between(1, 54) } else { random.between(1, wire_bytes - 1) };
    let bytes = frame[..kept].to_vec();
    if random.chance(50) { (bytes, wire_bytes) } else { (bytes, kept) }
}

/// A malformed frame.
pub(crate) fn malformed(random: &mut Random) -> Vec<u8> {
    const IP: usize = 14;
    let (from, to) = (client4(random), Ipv4Addr::new(198, 19, 0, 7));
    let (six_from, six_to) = (client6(random), Ipv6Addr::new(0x2001, 0xdb8, 0x20, 0, 0, 0, 0, 7));
    let make = |from: Ipv4Addr, to: Ipv4Addr, flags: u8| {
        let header = wire::Tcp { sequence: 1, acknowledged: 0, flags };
        let segment = wire::tcp((from.into(), 1024), (to.into(), 80), header, b"GET / HTTP/1.0\r\n\r\n");
        let packet = wire::ipv4(from, to, Ipv4 { protocol: wire::protocol::TCP, ..PLAIN }, &segment);
        wire::ethernet(mac_of(to.into()), mac_of(from.into()), &[], wire::ethertype::IPV4, &packet)
    };
    let make_six = |next: u8, payload: &[u8]| {
        let packet = wire::ipv6(six_from, six_to, next, 64, payload);
        wire::ethernet(mac_of(six_to.into()), mac_of(six_from.into()), &[], wire::ethertype::IPV6, &packet)
    };
    let mut frame = make(from, to, wire::flag::ACK);
    match random.below(16) {
        0 => frame[IP] = 0x55,      // version 5
        1 => frame[IP] = 0x43,      // a header of 12 bytes
        2 => frame[IP] = 0x4f,      // a header longer than the total length
        3 => frame[IP + 3] = 10,    // a total length shorter than the header
        4 => frame[IP + 2] = 0x40,  // a total length far beyond the end
        5 => frame[IP + 32] = 0x40, // a TCP header of 16 bytes
        6 => frame = make(from, to, wire::flag::SYN | wire::flag::FIN),
        7 => frame = make(from, to, wire::flag::SYN | wire::flag::RST),
        8 => frame = make(to, to, wire::flag::SYN), // "land": source and destination are equal
        9 => frame = make(Ipv4Addr::new(239, 1, 1, 1), to, wire::flag::ACK),
        10 => frame = make(Ipv4Addr::LOCALHOST, VIRTUAL4, wire::flag::ACK),
        11 => {
            frame = make_six(wire::protocol::UDP, &[0x30, 0x39, 0, 53, 0, 4, 0, 0, 1, 2]); // a UDP length below its header's
        }
        12 => {
            frame = make_six(wire::protocol::TCP, &random.bytes(40));
            frame[IP] = 0x40; // IPv4 where the EtherType says IPv6
        }
        13 => {
            // An extension header that reaches beyond the end.
            frame = make_six(
                wire::protocol::DESTINATION,
                &[wire::protocol::TCP, 255, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0],
            );
        }
        14 => {
            // Extension headers without an end.
            let mut chain = Vec::new();
            for _ in 0..8 {
                chain = wire::extension(wire::protocol::DESTINATION, 0, &chain);
            }
            frame = make_six(wire::protocol::DESTINATION, &chain);
        }
        _ => {
            // Random bytes.
            let length = random.between(1, 90);
            frame = random.bytes(length);
        }
    }
    frame
}
