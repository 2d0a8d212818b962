//! Look-ups against their plain definitions, which go through all routes and all sockets.

use crate::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Few addresses, so that prefixes, neighbours and sockets meet.
fn addresses() -> impl Strategy<Value = IpAddr> {
    let v4 = (0u8..4, 0u8..3, prop_oneof![0u8..4, Just(255)]);
    prop_oneof![
        3 => v4.prop_map(|(a, b, c)| Ipv4Addr::new(10 + (a & 1), a >> 1, b, c).into()),
        1 => (0u16..3, 0u16..4).prop_map(|(a, b)| Ipv6Addr::new(0xfd00, a, 0, 0, 0, 0, 0, b).into()),
    ]
}

fn nets() -> impl Strategy<Value = IpNet> {
    (addresses(), prop_oneof![Just(0u8), Just(8), Just(24), Just(31), Just(32), 0u8..=128])
        .prop_map(|(address, length)| {
            IpNet::new(address, length.min(if address.is_ipv4() { 32 } else { 128 }))
        })
        .prop_map(|net| net.expect("the length fits"))
}

fn routes() -> impl Strategy<Value = Route> {
    let kind = prop_oneof![
        4 => Just(RouteKind::Unicast),
        1 => Just(RouteKind::Local),
        1 => Just(RouteKind::Broadcast),
        1 => Just(RouteKind::Blackhole),
        1 => Just(RouteKind::Unreachable),
        1 => Just(RouteKind::Prohibit),
    ];
    let table = prop_oneof![4 => Just(TABLE_MAIN), 1 => Just(TABLE_LOCAL), 1 => Just(7)];
    let mtu = proptest::option::of(Just(1000u32));
    (nets(), 1u32..=4, kind, table, 0u32..3, mtu, proptest::option::of(addresses())).prop_map(
        |(to, device, kind, table, metric, mtu, via)| Route {
            via: via.filter(|via| via.is_ipv4() == to.addr().is_ipv4()),
            mtu,
            ..Route::new(to, device).kind(kind).table(table).metric(metric)
        },
    )
}

/// Four devices in two namespaces, the last of which does not forward.
fn machines() -> impl Strategy<Value = Machine> {
    let own = proptest::collection::vec(proptest::collection::vec(nets(), 0..3), 4);
    let neighbours = proptest::collection::vec((1u32..=4, addresses(), any::<[u8; 6]>()), 0..20);
    (own, proptest::collection::vec(routes(), 0..40), neighbours, any::<bool>()).prop_map(
        |(own, routes, neighbours, late)| {
            let mut machine = Machine::new();
            for (number, own) in (1u32..).zip(own) {
                let mut device = Device::new(format!("eth{number}")).namespace(number & 1);
                device.forwarding = number < 4;
                device.addresses = own;
                let index = machine.add_device(device).unwrap();
                machine.device_mut(index).unwrap().mtu = 900 + 100 * number;
            }
            // Some routes come after the first look-up.
            for (number, route) in routes.into_iter().enumerate() {
                machine.add_route(route).unwrap();
                if number == 5 {
                    machine.prepare();
                }
            }
            for (device, address, mac) in neighbours {
                machine.add_neighbour(device, address, MacAddr(mac)).unwrap();
            }
            if late {
                // An address without routes.
                machine.prepare();
                machine.device_mut(1).unwrap().addresses.push("10.0.1.2/24".parse().unwrap());
            }
            machine
        },
    )
}

/// The route that a packet takes: of those that contain the address the longest, then the lowest metric, then the
/// first.
fn route<'a>(machine: &'a Machine, query: &FibQuery, flags: FibFlags) -> Option<&'a Route> {
    let from = machine.find_device(query.device)?;
    let here = |route: &&Route| {
        machine.find_device(route.device).is_some_and(|device| device.namespace == from.namespace)
            && (!flags.output || route.device == query.device)
    };
    let tables = match query.table {
        _ if !flags.direct => [Some(TABLE_LOCAL), Some(TABLE_MAIN)],
        table => [Some(table.unwrap_or(TABLE_MAIN)), None],
    };
    tables.into_iter().flatten().find_map(|table| {
        let routes = machine.routes().iter().filter(|route| route.table == table);
        let fitting = routes.filter(|route| route.to.contains(&query.destination));
        fitting.filter(here).min_by_key(|route| (Reverse(route.to.prefix_len()), route.metric))
    })
}

/// What a look-up answers, by the plain definition; of a hop only what depends on the route and the neighbour.
fn answer(machine: &Machine, query: &FibQuery, flags: FibFlags) -> FibResult {
    let from = machine.find_device(query.device).unwrap();
    let route = match route(machine, query, flags) {
        _ if !from.forwarding => return FibResult::ForwardingDisabled,
        None => return FibResult::NotForwarded,
        Some(route) => route,
    };
    let device = machine.find_device(route.device).unwrap();
    let mtu = route.mtu.unwrap_or(device.mtu);
    match route.kind {
        RouteKind::Unicast if query.length > mtu => return FibResult::TooLong { device: device.index, mtu },
        RouteKind::Unicast => {}
        RouteKind::Local | RouteKind::Broadcast => return FibResult::NotForwarded,
        RouteKind::Blackhole => return FibResult::Blackhole,
        RouteKind::Unreachable => return FibResult::Unreachable,
        RouteKind::Prohibit => return FibResult::Prohibit,
    }
    let mac = machine.neighbour(route.device, route.via.unwrap_or(query.destination));
    let hop = FibHop {
        device: route.device,
        gateway: route.via,
        source: device.mac,
        destination: mac.filter(|_| !flags.skip_neighbour).unwrap_or_default(),
        metric: route.metric,
        mtu,
        preferred_source: None,
    };
    if mac.is_some() || flags.skip_neighbour { FibResult::Forward(hop) } else { FibResult::NoNeighbour(hop) }
}

/// How well a socket fits a packet that came from `remote` to `local` on that device; `None` if it is not for it.
fn score(
    socket: &Socket,
    protocol: Protocol,
    (local, remote): (SocketAddr, SocketAddr),
    device: Option<u32>,
) -> Option<u32> {
    let on_device = socket.device.is_none() || socket.device == device;
    if socket.protocol != protocol || socket.local.port() != local.port() || !on_device {
        return None;
    }
    let own = socket.local.ip();
    let any = own.is_unspecified() && (own.is_ipv6() || local.is_ipv4());
    if (!any && own != local.ip()) || socket.remote.is_some_and(|end| end != remote) {
        return None;
    }
    let family = u32::from(own.is_ipv4() == local.is_ipv4());
    let (exact, connected, bound) = (!any, socket.remote.is_some(), socket.device.is_some());
    Some(8 * u32::from(connected) + 4 * u32::from(exact) + 2 * u32::from(bound) + family)
}

fn ends() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        Just(IpAddr::from([10, 0, 0, 1])),
        Just(Ipv4Addr::UNSPECIFIED.into()),
        Just(Ipv6Addr::UNSPECIFIED.into()),
        Just(Ipv6Addr::LOCALHOST.into()),
    ];
    (ip, 1u16..3).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn sockets() -> impl Strategy<Value = Socket> {
    let device = proptest::option::of(1u32..3);
    let state = prop_oneof![Just(SocketState::Listen), Just(SocketState::Established)];
    (any::<bool>(), ends(), proptest::option::of(ends()), device, 0u32..2, state).prop_map(
        |(tcp, local, remote, device, namespace, state)| {
            let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
            Socket { remote, device, namespace, state, ..Socket::connected(protocol, local, local) }
        },
    )
}

proptest! {
    #[test]
    fn a_route_is_the_one_that_the_plain_definition_names(
        machine in machines(),
        asked in proptest::collection::vec((1u32..=4, addresses(), 0u8..16, 0u32..1400), 100),
    ) {
        for (device, destination, flags, length) in asked {
            let source = if destination.is_ipv4() { "10.0.0.9" } else { "fd00::9" };
            let mut query = FibQuery::new(device, source.parse().unwrap(), destination);
            query.length = length;
            query.table = (flags & 4 != 0).then_some(7);
            let has = |bit| flags & bit != 0;
            let flags =
                FibFlags { direct: has(1), output: has(2), skip_neighbour: has(8), ..FibFlags::default() };
            prop_assert_eq!(machine.fib(&query, flags), Ok(answer(&machine, &query, flags)), "{:?}", query);

            let plain = FibFlags::default();
            let route = route(&machine, &query, plain).map(|route| route.kind);
            let namespace = machine.device(device).unwrap().namespace;
            let mut here = machine.devices().filter(|device| device.namespace == namespace);
            let own = here.any(|device| device.addresses.iter().any(|own| own.addr() == destination));
            prop_assert_eq!(machine.is_own_address(namespace, destination), own);
            let expected = match route {
                Some(RouteKind::Local | RouteKind::Broadcast) => Arrival::Received,
                _ if own => Arrival::Received,
                _ => match answer(&machine, &query, plain) {
                    FibResult::Forward(hop) => Arrival::Forwarded {
                        device: machine.device(hop.device).unwrap(),
                        destination: hop.destination,
                    },
                    other => Arrival::Stopped(other),
                },
            };
            let from = machine.device(device).unwrap();
            prop_assert_eq!(machine.arrival(from, destination, length), expected, "{:?}", query);
        }
    }

    #[test]
    fn a_socket_is_the_one_that_the_plain_definition_names(
        sockets in proptest::collection::vec(sockets(), 0..30),
        removed in proptest::collection::vec(1u64..30, 0..4),
        asked in proptest::collection::vec(
            (0u32..2, any::<bool>(), ends(), ends(), proptest::option::of(1u32..3)), 60,
        ),
    ) {
        let mut machine = Machine::new();
        for socket in sockets {
            machine.add_socket(socket).unwrap();
        }
        machine.prepare();
        for cookie in removed {
            machine.remove_socket(cookie);
        }
        for (namespace, tcp, local, remote, device) in asked {
            let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
            let here = || machine.sockets().iter().filter(|socket| socket.namespace == namespace);
            let mut best: Option<(u32, &Arc<Socket>)> = None;
            for socket in here() {
                let Some(score) = score(socket, protocol, (local, remote), device) else { continue };
                if best.is_none_or(|(before, _)| score > before) {
                    best = Some((score, socket));
                }
            }
            let found = machine.find_socket(namespace, protocol, local, remote, device);
            let cookie = |socket: &Arc<Socket>| socket.cookie;
            prop_assert_eq!(found.map(cookie), best.map(|(_, socket)| cookie(socket)), "{} {}", local, remote);

            let at = |own: SocketAddr| {
                own.port() == local.port() && (own.ip() == local.ip() || own.ip().is_unspecified())
            };
            let listens = |socket: &&Arc<Socket>| socket.state == SocketState::Listen && at(socket.local);
            prop_assert_eq!(machine.listener(namespace, local).map(cookie), here().find(listens).map(cookie));

            let taken = here().any(|other| {
                let meets = at(other.local) || (other.local.port() == local.port() && local.ip().is_unspecified());
                (other.protocol, other.remote) == (protocol, None) && meets
            });
            prop_assert_eq!(machine.is_bound(namespace, protocol, local), taken);
        }
    }
}
