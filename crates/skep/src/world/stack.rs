//! What the machine's own network stack does with a packet that no program took: it receives or forwards it.

use super::point::Family;
use super::trace::Fate;
use crate::packet::Packet;
use skep_world::{
    Arrival, Departure, Device, FibFlags, FibQuery, FibResult, MacAddr, Machine, Protocol, Socket,
};
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

impl Ip {
    fn family(&self) -> Family {
        if self.destination.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// The device by which a packet leaves that came in on `device`; its time to live and Ethernet header are changed.
/// `None` if it ends here, and `fate` says where.
#[inline]
pub(super) fn receive(
    machine: &Machine,
    device: &Device,
    packet: &mut Packet,
    fate: &mut Fate,
) -> Option<u32> {
    let index = device.index;
    let bytes = packet.bytes();
    let (Some(to), Some(kind)) = (bytes.first_chunk().copied().map(MacAddr), kind(bytes)) else {
        return end(fate, Fate::Malformed { device: index });
    };
    let group = to.is_multicast();
    if !group && to != device.mac {
        return end(fate, Fate::OtherHost { device: index });
    }
    // In two places, so that each knows the family of the addresses.
    match kind {
        IPV4 => forward(machine, device, group, v4(bytes), packet, fate),
        IPV6 => forward(machine, device, group, v6(bytes), packet, fate),
        _ => end(fate, Fate::Delivered { device: index }),
    }
}

/// Forwards a packet with this header that came in on `from`, perhaps to a group of stations.
#[inline(always)]
fn forward(
    machine: &Machine,
    from: &Device,
    group: bool,
    header: Result<Ip, ()>,
    packet: &mut Packet,
    fate: &mut Fate,
) -> Option<u32> {
    let device = from.index;
    let Ok(ip) = header else { return end(fate, Fate::Malformed { device }) };
    if group || is_group(ip.destination) {
        return end(fate, Fate::Delivered { device });
    }
    let (out, destination) = match machine.arrival(from, ip.destination, ip.length) {
        Arrival::Forwarded { device, destination } => (device, destination),
        Arrival::Received => return end(fate, Fate::Delivered { device }),
        Arrival::Stopped(found) => return end(fate, stopped(found, device, ip.destination)),
        _ => return end(fate, Fate::NoRoute { device }),
    };
    if ip.ttl <= 1 {
        return end(fate, Fate::Expired { device });
    }
    let bytes = packet.bytes_mut();
    one_hop_less(bytes);
    put_macs(bytes, destination, out.mac);
    Some(out.index)
}

#[cold]
fn end<T>(fate: &mut Fate, ended: Fate) -> Option<T> {
    *fate = ended;
    None
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
            match machine.fib(&query, flags) {
                Ok(FibResult::Forward(hop)) => hop.destination,
                Ok(found) => return Err(stopped(found, index, ip.destination)),
                Err(_) => return Err(Fate::NoRoute { device: index }),
            }
        }
    };
    put_macs(packet.bytes_mut(), destination, device.mac);
    Ok(())
}

/// Where a packet ends that came in on `from`, if it is not forwarded.
fn stopped(found: FibResult, from: u32, destination: IpAddr) -> Fate {
    match found {
        FibResult::NoNeighbour(hop) => {
            Fate::NoNeighbour { device: hop.device, address: hop.gateway.unwrap_or(destination) }
        }
        FibResult::TooLong { device, mtu } => Fate::TooLong { device, mtu },
        FibResult::Blackhole | FibResult::Unreachable | FibResult::Prohibit => {
            Fate::Prohibited { device: from }
        }
        _ => Fate::NoRoute { device: from },
    }
}

/// The IP header of an Ethernet frame; `None` if it is of another protocol.
fn parse(bytes: &[u8]) -> Result<Option<Ip>, ()> {
    match kind(bytes).ok_or(())? {
        IPV4 => v4(bytes).map(Some),
        IPV6 => v6(bytes).map(Some),
        _ => Ok(None),
    }
}

/// What an Ethernet header says of the protocol behind it.
#[inline(always)]
fn kind(bytes: &[u8]) -> Option<[u8; 2]> {
    bytes.get(12..)?.first_chunk().copied()
}

/// The IPv4 header behind an Ethernet header.
#[inline(always)]
fn v4(bytes: &[u8]) -> Result<Ip, ()> {
    let ip = bytes.get(ETHERNET..).ok_or(())?;
    let header: &[u8; 20] = ip.first_chunk().ok_or(())?;
    let length = u32::from(u16::from_be_bytes([header[2], header[3]]));
    let words = usize::from(header[0] & 0xf) * 4;
    if header[0] >> 4 != 4 || words < 20 || (length as usize) < words || ip.len() < length as usize {
        return Err(());
    }
    let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]].into();
    Ok(Ip { source: address(12), destination: address(16), length, ttl: header[8] })
}

/// The IPv6 header behind an Ethernet header.
#[inline(always)]
fn v6(bytes: &[u8]) -> Result<Ip, ()> {
    let ip = bytes.get(ETHERNET..).ok_or(())?;
    let header: &[u8; 40] = ip.first_chunk().ok_or(())?;
    let length = 40 + u32::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || ip.len() < length as usize {
        return Err(());
    }
    let address = |range: Range<usize>| -> Result<IpAddr, ()> {
        let sixteen: [u8; 16] = header[range].try_into().map_err(|_| ())?;
        Ok(Ipv6Addr::from(sixteen).into())
    };
    Ok(Ip { source: address(8..24)?, destination: address(24..40)?, length, ttl: header[7] })
}

/// What an Ethernet frame says of its ends.
pub(super) struct Ends {
    pub(super) protocol: Protocol,
    /// The one that it is sent to.
    pub(super) local: SocketAddr,
    /// The one that sends it.
    pub(super) remote: SocketAddr,
    /// Its bytes from the transport header on.
    pub(super) transport: Range<usize>,
}

/// The ends of an Ethernet frame. `None` for what is neither TCP nor UDP behind an IP header without extensions, and
/// for later fragments.
pub(super) fn ends(bytes: &[u8]) -> Option<Ends> {
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
    Some(Ends {
        protocol,
        local: SocketAddr::new(ip.destination, port(header + 2)?),
        remote: SocketAddr::new(ip.source, port(header)?),
        transport: ETHERNET + header..ETHERNET + ip.length as usize,
    })
}

/// Whether a packet is for a group of stations.
pub(super) fn is_for_many(bytes: &[u8]) -> bool {
    let group = bytes.first().is_some_and(|first| first & 1 != 0);
    group || parse(bytes).is_ok_and(|ip| ip.is_some_and(|ip| is_group(ip.destination)))
}

/// Checks that a packet which came in on `device` is one that the stack takes. Returns its family, if it is IP; then it
/// has no more bytes than its header says.
pub(super) fn enter(device: &Device, packet: &mut Packet) -> Result<Option<Family>, Fate> {
    let (index, bytes) = (device.index, packet.bytes());
    let (Some(to), Ok(ip)) = (bytes.first_chunk().copied().map(MacAddr), parse(bytes)) else {
        return Err(Fate::Malformed { device: index });
    };
    if !to.is_multicast() && to != device.mac {
        return Err(Fate::OtherHost { device: index });
    }
    let Some(ip) = ip else { return Ok(None) };
    packet.shorten(ETHERNET + ip.length as usize);
    Ok(Some(ip.family()))
}

/// Where the stack takes a packet that came in.
pub(super) enum Way {
    /// It is for the machine itself.
    Own,
    /// It leaves by this device; the Ethernet address of the next hop, or what becomes of it without one.
    Out(u32, Result<MacAddr, Fate>),
}

/// Where a packet goes that came in on `from` and has passed [`enter`]. One that is forwarded has one hop less.
pub(super) fn way(machine: &Machine, from: &Device, packet: &mut Packet) -> Result<Way, Fate> {
    let device = from.index;
    if is_for_many(packet.bytes()) {
        return Ok(Way::Own);
    }
    let Ok(Some(ip)) = parse(packet.bytes()) else { return Err(Fate::Malformed { device }) };
    let (out, next) = match machine.arrival(from, ip.destination, ip.length) {
        Arrival::Received => return Ok(Way::Own),
        Arrival::Forwarded { device, destination } => (device.index, Ok(destination)),
        Arrival::Stopped(found) => match (found, stopped(found, device, ip.destination)) {
            // Linux asks for the address last.
            (FibResult::NoNeighbour(hop), fate) => (hop.device, Err(fate)),
            (_, fate) => return Err(fate),
        },
        _ => return Err(Fate::NoRoute { device }),
    };
    if ip.ttl <= 1 {
        return Err(Fate::Expired { device });
    }
    one_hop_less(packet.bytes_mut());
    Ok(Way::Out(out, next))
}

/// Where a packet goes that a socket sends, with its family. The error says where it ended.
pub(super) fn departure<'a>(
    machine: &'a Machine,
    socket: &Socket,
    bytes: &[u8],
) -> Result<(Family, Departure<'a>), Fate> {
    let Ok(Some(ip)) = parse(bytes) else { return Err(Fate::Malformed { device: 0 }) };
    match machine.departure(socket.namespace, socket.device, ip.destination, ip.length) {
        Departure::Stopped(found) => Err(stopped(found, 0, ip.destination)),
        departure => Ok((ip.family(), departure)),
    }
}

fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4 == Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => v6.is_multicast(),
    }
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

pub(super) fn put_macs(bytes: &mut [u8], destination: MacAddr, source: MacAddr) {
    bytes[..6].copy_from_slice(&destination.0);
    bytes[6..12].copy_from_slice(&source.0);
}
