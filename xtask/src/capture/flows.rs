//! Conversations: the well-formed part of the traffic. Each flow is one 5-tuple (or one ping) whose packets have a
//! realistic order: a TCP connection opens, exchanges data with growing sequence numbers, and closes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::random::Random;
use skep_packets::{self as wire, Mac};

/// The protocol of a flow.
#[derive(Clone, Copy)]
enum Speech {
    Tcp,
    Udp,
    Ping,
}

/// One conversation and its progress.
pub(crate) struct Flow {
    client: (IpAddr, u16),
    server: (IpAddr, u16),
    speech: Speech,
    tags: Vec<(u16, u16)>,
    /// Bytes of IPv4 options, or none.
    options: &'static [u8],
    /// IPv6 extension headers before the transport header.
    extensions: &'static [u8],
    /// The replies take another route: only the client's packets are captured.
    one_way: bool,
    packets: u32,
    sent: [u32; 2],
    id: u16,
}

/// The service behind the load balancer.
pub(crate) const VIRTUAL4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 80);
pub(crate) const VIRTUAL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x80);

/// Router alert (RFC 2113), and an empty record route with two slots and an end of list.
const IP_OPTIONS: [&[u8]; 2] = [&[148, 4, 0, 0], &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]];

const EXTENSIONS: [&[u8]; 6] = [
    &[wire::protocol::HOP_BY_HOP],
    &[wire::protocol::DESTINATION],
    &[wire::protocol::HOP_BY_HOP, wire::protocol::ROUTING],
    &[wire::protocol::AUTHENTICATION],
    &[
        wire::protocol::HOP_BY_HOP,
        wire::protocol::DESTINATION,
        wire::protocol::ROUTING,
        wire::protocol::AUTHENTICATION,
    ],
    // One more than the examples can follow.
    &[
        wire::protocol::HOP_BY_HOP,
        wire::protocol::DESTINATION,
        wire::protocol::ROUTING,
        wire::protocol::AUTHENTICATION,
        wire::protocol::DESTINATION,
    ],
];

impl Flow {
    /// A new conversation of a kind that `random` chooses.
    pub(crate) fn new(random: &mut Random) -> Self {
        let six = random.chance(35);
        let speech = match random.below(100) {
            0..58 => Speech::Tcp,
            58..91 => Speech::Udp,
            _ => Speech::Ping,
        };
        let to_service = random.chance(25);
        let client_port = random.between(32768, 60999) as u16;
        let server_port = match speech {
            Speech::Tcp if to_service => random.pick(&[80, 80, 443, 443, 443, 8080]),
            Speech::Udp if to_service => random.pick(&[53, 53, 53, 443]),
            Speech::Tcp => random.pick(&[80, 443, 443, 443, 22, 25, 993, 5432, 6379, 8080, 23, 445, 3389]),
            Speech::Udp => random.pick(&[53, 53, 53, 123, 443, 443, 4789, 5353, 51820, 1900, 11211, 19]),
            Speech::Ping => 0,
        };
        let (client, server) = if six {
            (client6(random).into(), if to_service { VIRTUAL6.into() } else { server6(random).into() })
        } else {
            (client4(random).into(), if to_service { VIRTUAL4.into() } else { server4(random).into() })
        };
        let tagged = if to_service { random.below(80) } else { random.below(100) };
        let customer = (wire::ethertype::VLAN, random.between(1, 4094) as u16);
        let service = (wire::ethertype::SERVICE_VLAN, 0x2000 | random.between(1, 4094) as u16);
        let tags = match tagged {
            0..80 => vec![],
            80..93 => vec![customer],
            93..98 => vec![service, customer],
            _ => vec![service, customer, customer],
        };
        Self {
            client: (client, if matches!(speech, Speech::Ping) { 0 } else { client_port }),
            server: (server, server_port),
            speech,
            tags,
            options: if !six && random.chance(4) { random.pick(&IP_OPTIONS) } else { &[] },
            extensions: if six && random.chance(18) { random.pick(&EXTENSIONS) } else { &[] },
            one_way: to_service,
            packets: 0,
            sent: [random.next() as u32, random.next() as u32],
            id: random.next() as u16,
        }
    }

    /// The flow's next packet as a whole frame.
    pub(crate) fn next_frame(&mut self, random: &mut Random) -> Vec<u8> {
        let turn = self.packets;
        self.packets += 1;
        // A connection's second packet and then every other one are replies.
        let back = !self.one_way && turn % 2 == 1;
        let (from, to) = if back { (self.server, self.client) } else { (self.client, self.server) };
        let size = payload_bytes(random);
        let (protocol, segment) = match self.speech {
            Speech::Tcp => (wire::protocol::TCP, self.tcp(from, to, back, turn, size, random)),
            Speech::Udp => (wire::protocol::UDP, wire::udp(from, to, &random.bytes(size.max(12)))),
            Speech::Ping => self.ping(from.0, to.0, back, turn),
        };
        self.frame(from.0, to.0, protocol, &segment, random)
    }

    fn tcp(
        &mut self,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
        back: bool,
        turn: u32,
        size: usize,
        random: &mut Random,
    ) -> Vec<u8> {
        let (flags, payload) = match turn {
            0 => (wire::flag::SYN, vec![]),
            1 if back => (wire::flag::SYN | wire::flag::ACK, vec![]),
            // Most packets of a connection carry data, some only acknowledge, few end it.
            2 => (wire::flag::ACK, vec![]),
            _ if random.chance(2) => (wire::flag::FIN | wire::flag::ACK, vec![]),
            _ if random.chance(1) => (wire::flag::RST, vec![]),
            _ if random.chance(30) => (wire::flag::ACK, vec![]),
            _ => (wire::flag::PSH | wire::flag::ACK, random.bytes(size)),
        };
        let own = usize::from(back);
        let header = wire::Tcp {
            sequence: self.sent[own],
            acknowledged: if flags & wire::flag::ACK == 0 { 0 } else { self.sent[1 - own] },
            flags,
        };
        let counted = payload.len() as u32 + u32::from(flags & (wire::flag::SYN | wire::flag::FIN) != 0);
        self.sent[own] = self.sent[own].wrapping_add(counted);
        wire::tcp(from, to, header, &payload)
    }

    fn ping(&self, from: IpAddr, to: IpAddr, back: bool, turn: u32) -> (u8, Vec<u8>) {
        let mut rest = vec![(self.id >> 8) as u8, self.id as u8, (turn >> 9) as u8, (turn >> 1) as u8];
        rest.extend((0..48).map(|byte| byte + 0x10));
        match (from, to) {
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                (wire::protocol::ICMPV6, wire::icmpv6(from, to, if back { 129 } else { 128 }, 0, &rest))
            }
            _ => (wire::protocol::ICMP, wire::icmp(if back { 0 } else { 8 }, 0, &rest)),
        }
    }

    fn frame(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        protocol: u8,
        segment: &[u8],
        random: &mut Random,
    ) -> Vec<u8> {
        self.id = self.id.wrapping_add(1);
        let (kind, packet) = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = wire::Ipv4 {
                    protocol,
                    ttl: random.pick(&[64, 63, 57, 128, 119, 255]),
                    id: self.id,
                    fragment: wire::DONT_FRAGMENT,
                    options: self.options,
                };
                (wire::ethertype::IPV4, wire::ipv4(from, to, header, segment))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (first, payload) = extend(self.extensions, protocol, segment);
                (wire::ethertype::IPV6, wire::ipv6(from, to, first, random.pick(&[64, 58, 255]), &payload))
            }
            _ => panic!("a flow has one family"),
        };
        wire::ethernet(mac_of(to), mac_of(from), &self.tags, kind, &packet)
    }
}

/// Puts the extension headers `chain` before `segment`; returns the first header's number and the bytes.
fn extend(chain: &[u8], protocol: u8, segment: &[u8]) -> (u8, Vec<u8>) {
    let mut next = protocol;
    let mut payload = segment.to_vec();
    for (index, header) in chain.iter().enumerate().rev() {
        payload = match *header {
            wire::protocol::AUTHENTICATION => wire::authentication(next, index as u32 + 1, &payload),
            _ => wire::extension(next, (index % 3) as u8, &payload),
        };
        next = *header;
    }
    (next, payload)
}

/// A locally administered MAC address made of the host's last bytes, so that a host keeps its own.
pub(crate) fn mac_of(address: IpAddr) -> Mac {
    match address {
        IpAddr::V4(VIRTUAL4) | IpAddr::V6(VIRTUAL6) => [0x02, 0, 0, 0, 0, 0x50],
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [0x02, 0x04, a, b, c, d]
        }
        IpAddr::V6(address) => {
            let bytes = address.octets();
            [0x02, 0x06, bytes[4], bytes[5], bytes[14], bytes[15]]
        }
    }
}

/// Most hosts have ordinary addresses; some are in prefixes that the firewall blocks.
pub(crate) fn client4(random: &mut Random) -> Ipv4Addr {
    let host = random.between(1, 254) as u8;
    match random.below(100) {
        0..4 => Ipv4Addr::new(192, 0, 2, host),
        4..7 => Ipv4Addr::new(198, 51, 100, host),
        7..9 => Ipv4Addr::new(10, 66, random.between(0, 3) as u8, host),
        9..40 => Ipv4Addr::new(10, 20, random.between(0, 7) as u8, host),
        _ => Ipv4Addr::new(198, 18, random.between(0, 15) as u8, host),
    }
}

fn server4(random: &mut Random) -> Ipv4Addr {
    match random.below(40) {
        0 => Ipv4Addr::new(198, 19, 6, 6),
        number => Ipv4Addr::new(198, 19, 0, number as u8),
    }
}

pub(crate) fn client6(random: &mut Random) -> Ipv6Addr {
    let host = random.between(1, 0xfffe) as u16;
    match random.below(100) {
        0..6 => Ipv6Addr::new(0x2001, 0xdb8, 0xbad, random.below(4) as u16, 0, 0, 0, host),
        6..10 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0x66, 0, 0, 0, host),
        number => Ipv6Addr::new(0x2001, 0xdb8, 0x10, number as u16 % 5, 0x200, 0xff, 0xfe00, host),
    }
}

fn server6(random: &mut Random) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x20, 0, 0, 0, 0, random.between(1, 24) as u16)
}

/// Mostly small, sometimes a few hundred bytes, rarely a full frame.
fn payload_bytes(random: &mut Random) -> usize {
    match random.below(1000) {
        0..620 => random.between(1, 60),
        620..900 => random.between(60, 160),
        900..992 => random.between(160, 340),
        _ => random.between(1200, 1400),
    }
}
