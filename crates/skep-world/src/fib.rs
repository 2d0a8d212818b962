//! Where a packet goes: the forwarding information base.
//!
//! ```text
//!   device that it came in on --> its namespace's tables: the longest prefix, then the lowest metric
//!     --> kind of route --> MTU --> next hop --> the neighbour's Ethernet address
//! ```
//!
//! The answers are those that `bpf-helpers(7)` and `linux/bpf.h` document for `bpf_fib_lookup`.

use crate::device::Device;
use crate::mac::MacAddr;
use crate::machine::Machine;
use crate::route::{Route, RouteKind, TABLE_MAIN};
use crate::views::Viewer;
use std::net::{IpAddr, Ipv4Addr};

/// A question: where does this packet go?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FibQuery {
    /// The device that the packet came in on; with [`FibFlags::output`] the one that it leaves by.
    pub device: u32,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Its length in bytes without the Ethernet header; 0 if it should not be compared with the MTU.
    pub length: u32,
    /// The table, if [`FibFlags::direct`] is set: `None` is the main table.
    pub table: Option<u32>,
}

/// How to look up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FibFlags {
    /// In one table alone (`BPF_FIB_LOOKUP_DIRECT`).
    pub direct: bool,
    /// From the view of packets that leave (`BPF_FIB_LOOKUP_OUTPUT`).
    pub output: bool,
    /// Without the neighbour (`BPF_FIB_LOOKUP_SKIP_NEIGH`).
    pub skip_neighbour: bool,
    /// With the source address that this machine would use (`BPF_FIB_LOOKUP_SRC`).
    pub source: bool,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FibResult {
    /// It is forwarded.
    Forward(FibHop),
    /// It would be forwarded, but the next hop's Ethernet address is not known.
    NoNeighbour(FibHop),
    /// It is longer than the MTU in bytes.
    TooLong {
        /// The device that would send it.
        device: u32,
        /// The MTU.
        mtu: u32,
    },
    /// No source address is known for it.
    NoSource,
    /// It is not forwarded: there is no route, or this machine receives it.
    NotForwarded,
    /// The device that it came in on does not forward.
    ForwardingDisabled,
    /// It is dropped.
    Blackhole,
    /// It is dropped as unreachable.
    Unreachable,
    /// It is dropped as forbidden.
    Prohibit,
}

/// What a machine does with a packet that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrival<'a> {
    /// It is for the machine itself: the route says so ([`RouteKind::Local`], [`RouteKind::Broadcast`]), or a device of
    /// the namespace has the address.
    Received,
    /// It is forwarded.
    Forwarded {
        /// The device that sends it.
        device: &'a Device,
        /// The Ethernet address of the next hop.
        destination: MacAddr,
    },
    /// It goes nowhere, because of this; not [`FibResult::Forward`].
    Stopped(FibResult),
}

/// What a machine does with a packet that one of its sockets sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Departure<'a> {
    /// It is for the machine itself.
    Own {
        /// The device that has the address.
        device: &'a Device,
    },
    /// It is sent.
    Sent {
        /// The device that sends it.
        device: &'a Device,
        /// The next hop, by address.
        next_hop: IpAddr,
        /// Its Ethernet address, if that is known.
        destination: Option<MacAddr>,
    },
    /// It goes nowhere, because of this; not [`FibResult::Forward`] and not [`FibResult::NoNeighbour`].
    Stopped(FibResult),
}

/// The next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FibHop {
    /// The device that sends it.
    pub device: u32,
    /// The router that receives it, unless the destination itself does.
    pub gateway: Option<IpAddr>,
    /// The Ethernet address of the sending device.
    pub source: MacAddr,
    /// The Ethernet address of the next hop; zero if it was not looked up or is not known.
    pub destination: MacAddr,
    /// The route's metric.
    pub metric: u32,
    /// The MTU in bytes, of the route or of the device.
    pub mtu: u32,
    /// The source address that this machine would use.
    pub preferred_source: Option<IpAddr>,
}

/// A question without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// The device is not there.
    #[error("there is no device with index {0}")]
    NoDevice(u32),
    /// Source and destination are of different families.
    #[error("source and destination are of different families")]
    MixedFamilies,
}

impl FibQuery {
    /// A question about a packet that came in on that device.
    pub const fn new(device: u32, source: IpAddr, destination: IpAddr) -> Self {
        Self { device, source, destination, length: 0, table: None }
    }
}

/// See [`Machine::fib`].
#[inline]
pub(crate) fn look_up(machine: &Machine, query: &FibQuery, flags: FibFlags) -> Result<FibResult, FibError> {
    let from = machine.find_device(query.device).ok_or(FibError::NoDevice(query.device))?;
    if query.source.is_ipv4() != query.destination.is_ipv4() {
        return Err(FibError::MixedFamilies);
    }
    if !from.forwarding {
        return Ok(FibResult::ForwardingDisabled);
    }
    let viewer = if flags.output { Viewer::Device(query.device) } else { Viewer::Namespace(from.namespace) };
    let (routes, to) = (machine.routes(), query.destination);
    let route = machine.tables(viewer).and_then(|tables| match query.table {
        _ if !flags.direct => tables.route(routes, to),
        table => tables.in_table(routes, table.unwrap_or(TABLE_MAIN), to),
    });
    Ok(route.map_or(FibResult::NotForwarded, |route| taken(machine, route, query, flags)))
}

/// See [`Machine::arrival`]. What goes on takes the short way, whose answer is small.
#[inline]
pub(crate) fn arrival<'a>(machine: &'a Machine, from: &Device, to: IpAddr, length: u32) -> Arrival<'a> {
    let tables = machine.tables(Viewer::Namespace(from.namespace));
    let route = tables.and_then(|tables| tables.route(machine.routes(), to));
    let received = |route: &Route| matches!(route.kind, RouteKind::Local | RouteKind::Broadcast);
    if route.is_some_and(received) || machine.is_unlisted(from.namespace, to) {
        return Arrival::Received;
    }
    if let Some(route) = route.filter(|route| from.forwarding && route.kind == RouteKind::Unicast)
        && let Some(device) = machine.find_device(route.device)
        && length <= route.mtu.unwrap_or(device.mtu)
        && let Some(destination) = machine.neighbour(device.index, route.via.unwrap_or(to))
    {
        return Arrival::Forwarded { device, destination };
    }
    Arrival::Stopped(stopped(machine, from, route, to, length))
}

/// See [`Machine::departure`].
pub(crate) fn departure(
    machine: &Machine,
    (namespace, bound): (u32, Option<u32>),
    to: IpAddr,
    length: u32,
) -> Departure<'_> {
    let find = |viewer| machine.tables(viewer)?.route(machine.routes(), to);
    let route = match bound {
        Some(device) => find(Viewer::Device(device)),
        None => find(Viewer::Namespace(namespace)),
    };
    let found = route.and_then(|route| Some((route, machine.find_device(route.device)?)));
    let Some((route, device)) = found else { return Departure::Stopped(FibResult::NotForwarded) };
    if route.kind == RouteKind::Local {
        return Departure::Own { device };
    }
    if route.kind == RouteKind::Broadcast {
        let everybody = MacAddr([0xff; 6]);
        return Departure::Sent { device, next_hop: to, destination: Some(everybody) };
    }
    let query = FibQuery { length, ..FibQuery::new(device.index, to, to) };
    let flags = FibFlags { skip_neighbour: true, ..FibFlags::default() };
    match taken(machine, route, &query, flags) {
        FibResult::Forward(hop) => {
            let next_hop = hop.gateway.unwrap_or(to);
            let destination = machine.neighbour(device.index, next_hop);
            Departure::Sent { device, next_hop, destination }
        }
        stopped => Departure::Stopped(stopped),
    }
}

/// Why a packet goes nowhere.
#[cold]
fn stopped(machine: &Machine, from: &Device, route: Option<&Route>, to: IpAddr, length: u32) -> FibResult {
    match route {
        _ if !from.forwarding => FibResult::ForwardingDisabled,
        None => FibResult::NotForwarded,
        Some(route) => {
            // Its source makes no difference without [`FibFlags::source`].
            let query = FibQuery { length, ..FibQuery::new(from.index, to, to) };
            taken(machine, route, &query, FibFlags::default())
        }
    }
}

/// What becomes of a packet that takes this route.
#[inline]
fn taken(machine: &Machine, route: &Route, query: &FibQuery, flags: FibFlags) -> FibResult {
    match route.kind {
        RouteKind::Unicast => through(machine, route, query, flags),
        RouteKind::Local | RouteKind::Broadcast => FibResult::NotForwarded,
        RouteKind::Blackhole => FibResult::Blackhole,
        RouteKind::Unreachable => FibResult::Unreachable,
        RouteKind::Prohibit => FibResult::Prohibit,
    }
}

/// What becomes of a packet that is sent by this route.
#[inline]
fn through(machine: &Machine, route: &Route, query: &FibQuery, flags: FibFlags) -> FibResult {
    let Some(device) = machine.find_device(route.device) else { return FibResult::NotForwarded };
    let mtu = route.mtu.unwrap_or(device.mtu);
    if query.length > mtu {
        return FibResult::TooLong { device: device.index, mtu };
    }
    let mut preferred_source = None;
    if flags.source {
        let of_family = |address: &IpAddr| address.is_ipv4() == query.destination.is_ipv4();
        let own = || device.addresses.iter().map(|own| own.addr()).find(of_family);
        preferred_source = route.source.or_else(own);
        match (preferred_source, query.destination) {
            (None, IpAddr::V6(_)) => return FibResult::NoSource,
            (None, IpAddr::V4(_)) => preferred_source = Some(Ipv4Addr::UNSPECIFIED.into()),
            _ => {}
        }
    }
    let mut hop = FibHop {
        device: device.index,
        gateway: route.via,
        source: device.mac,
        destination: MacAddr::default(),
        metric: route.metric,
        mtu,
        preferred_source,
    };
    if flags.skip_neighbour {
        return FibResult::Forward(hop);
    }
    match machine.neighbour(device.index, route.via.unwrap_or(query.destination)) {
        Some(mac) => {
            hop.destination = mac;
            FibResult::Forward(hop)
        }
        None => FibResult::NoNeighbour(hop),
    }
}
