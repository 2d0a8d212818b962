//! The packets, with the flows that a dissector must find in them. `skep-packets` makes the headers; here are
//! addresses, ports and what each packet is made of.

use skep_packets::ethertype::{BRIDGED, IPV4, IPV6, MPLS, SERVICE_VLAN, VLAN};
use skep_packets::protocol::*;
use skep_packets::{self as wire, MORE_FRAGMENTS};

/// IPv4's field of a third fragment and of a first one.
const LATER: u16 = MORE_FRAGMENTS | 370;
const FIRST: u16 = MORE_FRAGMENTS;

/// `flags` in `struct flow`: a fragment, the first one, and a packet in another.
const PLAIN: u32 = 0;
const IS_FRAGMENT: u32 = 1;
const IS_FIRST: u32 = 2;
const IS_INNER: u32 = 4;

/// A packet and what is to be found in it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name in the report.
    pub(crate) name: &'static str,
    /// Its bytes from the Ethernet header on.
    pub(crate) frame: Vec<u8>,
    /// Its flow; `None` where there is none to be found.
    pub(crate) flow: Option<Flow>,
}

/// A flow as `examples/dissector.bpf.c` stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The bytes of `struct flow_key`.
    pub(crate) key: [u8; 40],
    /// Those of `struct flow`.
    pub(crate) value: [u8; 8],
}

/// The kinds of packets that are measured.
pub(crate) fn kinds() -> Vec<Case> {
    vec![
        found("ipv4", ethernet(IPV4, ipv4(1, TCP, 0, tcp())), ip4(1, TCP, PORTS), (14, 34), PLAIN),
        found(
            "ipv6_extensions",
            ethernet(IPV6, ipv6(2, HOP_BY_HOP, extensions(FIRST, tcp()))),
            ip6(2, TCP, PORTS),
            (14, 102),
            IS_FRAGMENT | IS_FIRST,
        ),
        found(
            "vlan",
            ethernet(VLAN, vlan(100, IPV4, ipv4(3, UDP, 0, udp()))),
            ip4(3, UDP, PORTS),
            (18, 38),
            PLAIN,
        ),
        found(
            "vlan_double",
            ethernet(SERVICE_VLAN, vlan(7, VLAN, vlan(100, IPV6, ipv6(4, UDP, udp())))),
            ip6(4, UDP, PORTS),
            (22, 62),
            PLAIN,
        ),
        found("mpls", ethernet(MPLS, mpls(2, ipv4(5, UDP, 0, udp()))), ip4(5, UDP, PORTS), (22, 42), PLAIN),
        found(
            "gre",
            ethernet(IPV4, ipv4(6, GRE, 0, gre(BRIDGED, ethernet(IPV6, ipv6(7, TCP, tcp()))))),
            ip6(7, TCP, PORTS),
            (64, 104),
            IS_INNER,
        ),
        found(
            "ip_in_ip",
            ethernet(IPV4, ipv4(8, IP_IN_IP, 0, ipv4(9, UDP, 0, udp()))),
            ip4(9, UDP, PORTS),
            (34, 54),
            IS_INNER,
        ),
        found(
            "fragment",
            ethernet(IPV4, ipv4(10, UDP, LATER, vec![0xda; 64])),
            ip4(10, UDP, [0; 4]),
            (14, 34),
            IS_FRAGMENT,
        ),
    ]
}

/// 4660 and 443, as bytes.
const PORTS: [u8; 4] = [0x12, 0x34, 0x01, 0xbb];

fn found(name: &'static str, frame: Vec<u8>, key: [u8; 40], (nhoff, thoff): (u16, u16), flags: u32) -> Case {
    let mut value = [0; 8];
    value[..2].copy_from_slice(&nhoff.to_ne_bytes());
    value[2..4].copy_from_slice(&thoff.to_ne_bytes());
    value[4..].copy_from_slice(&flags.to_ne_bytes());
    Case { name, frame, flow: Some(Flow { key, value }) }
}

/// The key of a flow between the hosts of a network.
fn ip4(network: u8, protocol: u8, ports: [u8; 4]) -> [u8; 40] {
    let mut key = [0; 40];
    key[12..16].copy_from_slice(&host4(network, 1));
    key[28..32].copy_from_slice(&host4(network, 2));
    end_of_key(key, IPV4, protocol, ports)
}

fn ip6(network: u8, protocol: u8, ports: [u8; 4]) -> [u8; 40] {
    let mut key = [0; 40];
    key[..16].copy_from_slice(&host6(network, 1));
    key[16..32].copy_from_slice(&host6(network, 2));
    end_of_key(key, IPV6, protocol, ports)
}

fn end_of_key(mut key: [u8; 40], network: u16, protocol: u8, ports: [u8; 4]) -> [u8; 40] {
    key[32..36].copy_from_slice(&ports);
    key[36..38].copy_from_slice(&network.to_be_bytes());
    key[38] = protocol;
    key
}

fn host4(network: u8, host: u8) -> [u8; 4] {
    [10, network, 0, host]
}

fn host6(network: u8, host: u8) -> [u8; 16] {
    [0x20, 0x01, 0x0d, 0xb8, 0, network, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]
}

fn ethernet(ethertype: u16, payload: Vec<u8>) -> Vec<u8> {
    wire::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[], ethertype, &payload)
}

fn vlan(id: u16, ethertype: u16, payload: Vec<u8>) -> Vec<u8> {
    [&id.to_be_bytes()[..], &ethertype.to_be_bytes(), &payload].concat()
}

fn mpls(labels: u32, payload: Vec<u8>) -> Vec<u8> {
    wire::mpls(labels, &payload)
}

/// Between the first two hosts of a network.
fn ipv4(network: u8, protocol: u8, fragment: u16, payload: Vec<u8>) -> Vec<u8> {
    let header = wire::Ipv4 { protocol, ttl: 64, id: 0, fragment, options: &[] };
    wire::ipv4(host4(network, 1).into(), host4(network, 2).into(), header, &payload)
}

fn ipv6(network: u8, next: u8, payload: Vec<u8>) -> Vec<u8> {
    wire::ipv6(host6(network, 1).into(), host6(network, 2).into(), next, 64, &payload)
}

/// Hop-by-hop options, a routing header, destination options and a fragment header before TCP.
fn extensions(fragment: u16, payload: Vec<u8>) -> Vec<u8> {
    let payload = fragment6(TCP, fragment, payload);
    let payload = wire::extension(FRAGMENT, 0, &payload);
    let payload = wire::extension(DESTINATION, 2, &payload);
    wire::extension(ROUTING, 0, &payload)
}

/// The fragment header of IPv6, with the fields of IPv4's.
fn fragment6(next: u8, fragment: u16, payload: Vec<u8>) -> Vec<u8> {
    wire::fragment6(next, (fragment & 0x1fff) << 3, fragment & MORE_FRAGMENTS != 0, 9, &payload)
}

/// With checksum, key and sequence number.
fn gre(ethertype: u16, payload: Vec<u8>) -> Vec<u8> {
    let fields = [0, 0, 0, 0, 0, 0, 0, 42, 0, 0, 0, 7];
    wire::gre(0xb000, ethertype, &[&fields[..], &payload].concat())
}

fn tcp() -> Vec<u8> {
    let mut header = [0; 20];
    header[..4].copy_from_slice(&PORTS);
    (header[12], header[13]) = (0x50, 0x10);
    [&header[..], &[0xda; 16]].concat()
}

fn udp() -> Vec<u8> {
    [&PORTS[..], &[0, 24, 0, 0], &[0xda; 16]].concat()
}

/// Odd packets, and some that a dissector must leave alone.
#[cfg(test)]
pub(crate) fn odd() -> Vec<Case> {
    let nothing = |name, frame| Case { name, frame, flow: None };
    let plain4 = || ipv4(1, UDP, 0, udp());
    let mut with_options = ipv4(1, UDP, 0, [vec![1; 8], udp()].concat());
    with_options[0] = 0x47;
    let mut other_version = plain4();
    other_version[0] = 0x55;
    let mut short_header = plain4();
    short_header[0] = 0x44;
    let gre_with = |flags: u16, payload: Vec<u8>| wire::gre(flags, IPV4, &payload);
    let (first, later) = (IS_FRAGMENT | IS_FIRST, IS_FRAGMENT);
    vec![
        found("sctp", ethernet(IPV4, ipv4(1, SCTP, 0, udp())), ip4(1, SCTP, PORTS), (14, 34), PLAIN),
        found("icmp", ethernet(IPV4, ipv4(1, ICMP, 0, udp())), ip4(1, ICMP, [0; 4]), (14, 34), PLAIN),
        found("ipv4 with options", ethernet(IPV4, with_options), ip4(1, UDP, PORTS), (14, 42), PLAIN),
        found("first", ethernet(IPV4, ipv4(1, UDP, FIRST, udp())), ip4(1, UDP, PORTS), (14, 34), first),
        found(
            "later fragment of a tunnel",
            ethernet(IPV4, ipv4(1, IP_IN_IP, LATER, vec![0xda; 64])),
            ip4(1, IP_IN_IP, [0; 4]),
            (14, 34),
            later,
        ),
        found(
            "later fragment in a first one",
            ethernet(IPV4, ipv4(1, IP_IN_IP, FIRST, ipv4(2, UDP, LATER, vec![0xda; 64]))),
            ip4(2, UDP, [0; 4]),
            (34, 54),
            later | IS_INNER,
        ),
        found(
            "later fragment, ipv6",
            ethernet(IPV6, ipv6(1, HOP_BY_HOP, extensions(LATER, vec![0xda; 64]))),
            ip6(1, TCP, [0; 4]),
            (14, 102),
            later,
        ),
        found(
            "a whole packet with a fragment header",
            ethernet(IPV6, ipv6(1, FRAGMENT, fragment6(UDP, 0, udp()))),
            ip6(1, UDP, PORTS),
            (14, 62),
            PLAIN,
        ),
        found(
            "ipv6 in ipv4",
            ethernet(IPV4, ipv4(1, IPV6_IN_IP, 0, ipv6(2, UDP, udp()))),
            ip6(2, UDP, PORTS),
            (34, 74),
            IS_INNER,
        ),
        found(
            "ipv4 in ipv6",
            ethernet(IPV6, ipv6(1, IP_IN_IP, ipv4(2, UDP, 0, udp()))),
            ip4(2, UDP, PORTS),
            (54, 74),
            IS_INNER,
        ),
        found(
            "gre without options",
            ethernet(IPV4, ipv4(1, GRE, 0, gre_with(0, ipv4(2, UDP, 0, udp())))),
            ip4(2, UDP, PORTS),
            (38, 58),
            IS_INNER,
        ),
        found(
            "gre with a key",
            ethernet(IPV4, ipv4(1, GRE, 0, gre_with(0x2000, [vec![0; 4], ipv4(2, UDP, 0, udp())].concat()))),
            ip4(2, UDP, PORTS),
            (42, 62),
            IS_INNER,
        ),
        found(
            "two tags inside and two outside of a bridge",
            ethernet(
                SERVICE_VLAN,
                vlan(
                    1,
                    VLAN,
                    vlan(2, IPV4, ipv4(1, GRE, 0, gre(BRIDGED, ethernet(VLAN, vlan(3, IPV4, plain4()))))),
                ),
            ),
            ip4(1, UDP, PORTS),
            (76, 96),
            IS_INNER,
        ),
        found(
            "as many jumps as may be",
            ethernet(MPLS, mpls(31, plain4())),
            ip4(1, UDP, PORTS),
            (138, 158),
            PLAIN,
        ),
        nothing("a jump too many", ethernet(MPLS, mpls(32, plain4()))),
        nothing("three tags", ethernet(VLAN, vlan(1, VLAN, vlan(2, VLAN, vlan(3, IPV4, plain4()))))),
        nothing("arp", ethernet(0x0806, vec![0; 46])),
        nothing("no version 4", ethernet(IPV4, other_version)),
        nothing("a header too short", ethernet(IPV4, short_header)),
        nothing("no version 6", ethernet(IPV6, plain4())),
        nothing("what is no IP under labels", ethernet(MPLS, mpls(1, vec![0x17; 46]))),
        nothing("gre of another version", ethernet(IPV4, ipv4(1, GRE, 0, gre_with(1, plain4())))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_packets_have_one_name() {
        let mut names: Vec<_> = kinds().iter().chain(&odd()).map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kinds().len() + odd().len());
    }

    #[test]
    fn packets_of_two_kinds_are_of_two_flows() {
        let mut flows: Vec<_> = kinds().iter().map(|case| case.flow.unwrap().key).collect();
        flows.sort_unstable();
        flows.dedup();
        assert_eq!(flows.len(), kinds().len());
    }
}
