//! What the machine's own network stack does with a packet that no program took: it receives or forwards it.

use super::trace::Fate;
use crate::packet::Packet;
use skep_world::{Arrival, Device, FibFlags, FibHop, FibQuery, FibResult, MacAddr, Machine, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// What the stack reads of an IP packet.
struct Ip {
    source: IpAddr,
    destination: IpAddr,
    /// Bytes without the Ethernet header.
    length: u32,
    /// The time to live, or hop limit.
    ttl: u8,
}

/// The device by which a packet leaves that came in on `device`; its time to live and Ethernet header are changed. Or
/// where it ends.
pub(super) fn receive(machine: &Machine, device: &Device, packet: &mut Packet) -> Result<u32, Fate> {
    let index = device.index;
    let bytes = packet.bytes();
    let Some(to) = bytes.get(..ETHERNET).and_then(|header| mac(&header[..6])) else {
        return Err(Fate::Malformed { device: index });
    };
    if !to.is_multicast() && to != device.mac {
        return Err(Fate::OtherHost { device: index });
    }
    let Some(ip) = parse(bytes).map_err(|()| Fate::Malformed { device: index })? else {
        return Err(Fate::Delivered { device: index });
    };
    let group = match ip.destination {
        IpAddr::V4(v4) => v4.is_multicast() || v4 == Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    if group || to.is_multicast() {
        return Err(Fate::Delivered { device: index });
    }
    let mut query = FibQuery::new(index, ip.source, ip.destination);
    query.length = ip.length;
    let hop = match machine.arrival(&query) {
        Ok(Arrival::Received) => return Err(Fate::Delivered { device: index }),
        Ok(Arrival::Routed(found)) => hop_of(found, index, ip.destination)?,
        _ => return Err(Fate::NoRoute { device: index }),
    };
    if ip.ttl <= 1 {
        return Err(Fate::Expired { device: index });
    }
    let bytes = packet.bytes_mut();
    one_hop_less(bytes);
    put_macs(bytes, hop.destination, hop.source);
    Ok(hop.device)
}

/// Gives a packet the Ethernet header of the next hop on `device`: that of `hop`, or of the route to its destination.
pub(super) fn address(
    machine: &Machine,
    device: &Device,
    hop: Option<IpAddr>,
    packet: &mut Packet,
) -> Result<(), Fate> {
    let index = device.index;
    let malformed = Fate::Malformed { device: index };
    let Ok(Some(ip)) = parse(packet.bytes()) else { return Err(malformed) };
    let destination = match hop {
        Some(hop) => {
            machine.neighbour(index, hop).ok_or(Fate::NoNeighbour { device: index, address: hop })?
        }
        None => {
            let query = FibQuery::new(index, ip.source, ip.destination);
            let flags = FibFlags { output: true, ..FibFlags::default() };
            let found = machine.fib(&query, flags).map_err(|_| Fate::NoRoute { device: index })?;
            hop_of(found, index, ip.destination)?.destination
        }
    };
    put_macs(packet.bytes_mut(), destination, device.mac);
    Ok(())
}

/// The next hop of a packet that came in on `from`; or where it ends.
#[inline]
fn hop_of(found: FibResult, from: u32, destination: IpAddr) -> Result<FibHop, Fate> {
    match found {
        FibResult::Forward(hop) => Ok(hop),
        FibResult::NoNeighbour(hop) => {
            Err(Fate::NoNeighbour { device: hop.device, address: hop.gateway.unwrap_or(destination) })
        }
        FibResult::TooLong { device, mtu } => Err(Fate::TooLong { device, mtu }),
        FibResult::Blackhole | FibResult::Unreachable | FibResult::Prohibit => {
            Err(Fate::Prohibited { device: from })
        }
        _ => Err(Fate::NoRoute { device: from }),
    }
}

/// The IP header of an Ethernet frame; `None` if it is of another protocol.
fn parse(bytes: &[u8]) -> Result<Option<Ip>, ()> {
    let kind = bytes.get(12..ETHERNET).ok_or(())?;
    let ip = &bytes[ETHERNET..];
    let at = |range: Range<usize>| ip.get(range).ok_or(());
    if kind == IPV4 {
        let length = u32::from(u16::from_be_bytes([at(2..4)?[0], at(2..4)?[1]]));
        let header = usize::from(at(0..1)?[0] & 0xf) * 4;
        if at(0..20)?[0] >> 4 != 4 || header < 20 || (length as usize) < header || ip.len() < length as usize
        {
            return Err(());
        }
        let v4 = |range| -> Result<IpAddr, ()> {
            let four: [u8; 4] = at(range)?.try_into().map_err(|_| ())?;
            Ok(Ipv4Addr::from(four).into())
        };
        return Ok(Some(Ip { source: v4(12..16)?, destination: v4(16..20)?, length, ttl: ip[8] }));
    }
    if kind == IPV6 {
        let length = 40 + u32::from(u16::from_be_bytes([at(4..6)?[0], at(4..6)?[1]]));
        if at(0..40)?[0] >> 4 != 6 || ip.len() < length as usize {
            return Err(());
        }
        let v6 = |range| -> Result<IpAddr, ()> {
            let sixteen: [u8; 16] = at(range)?.try_into().map_err(|_| ())?;
            Ok(Ipv6Addr::from(sixteen).into())
        };
        return Ok(Some(Ip { source: v6(8..24)?, destination: v6(24..40)?, length, ttl: ip[7] }));
    }
    Ok(None)
}

/// What an Ethernet frame says of its ends: protocol, the one that it is sent to, the one that sends it. `None` for
/// what is neither TCP nor UDP behind an IP header without extensions, and for later fragments.
pub(super) fn ends(bytes: &[u8]) -> Option<(Protocol, SocketAddr, SocketAddr)> {
    let ip = parse(bytes).ok()??;
    let packet = bytes.get(ETHERNET..)?;
    let (protocol, header) = match ip.source {
        IpAddr::V4(_) if packet[6] & 0x1f == 0 && packet[7] == 0 => {
            (packet[9], usize::from(packet[0] & 0xf) * 4)
        }
        IpAddr::V4(_) => return None,
        IpAddr::V6(_) => (packet[6], 40),
    };
    let protocol = match protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    Some((
        protocol,
        SocketAddr::new(ip.destination, port(header + 2)?),
        SocketAddr::new(ip.source, port(header)?),
    ))
}

/// Counts the time to live down, and mends the checksum of an IPv4 header (RFC 1624).
fn one_hop_less(bytes: &mut [u8]) {
    let ip = &mut bytes[ETHERNET..];
    if ip[0] >> 4 == 6 {
        ip[7] -= 1;
        return;
    }
    ip[8] -= 1;
    let sum = u32::from(u16::from_be_bytes([ip[10], ip[11]])) + 0x100;
    let folded = (sum & 0xffff) + (sum >> 16);
    // Both 0 and 0xffff stand for zero; Linux writes 0.
    let folded = if folded == 0xffff { 0 } else { folded as u16 };
    ip[10..12].copy_from_slice(&folded.to_be_bytes());
}

fn put_macs(bytes: &mut [u8], destination: MacAddr, source: MacAddr) {
    bytes[..6].copy_from_slice(&destination.0);
    bytes[6..12].copy_from_slice(&source.0);
}

fn mac(bytes: &[u8]) -> Option<MacAddr> {
    bytes.try_into().ok().map(MacAddr)
}
