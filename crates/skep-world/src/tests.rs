//! Tests of the machine as a whole.

use crate::*;
use std::net::{IpAddr, SocketAddr};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// `lan` 10.0.0.1/24 and fd00::1/64, `wan` 192.0.2.1/30.
fn router() -> (Machine, u32, u32) {
    let mut machine = Machine::new();
    let lan = Device::new("lan").address(net("10.0.0.1/24")).address(net("fd00::1/64"));
    let lan = machine.add_device(lan).unwrap();
    let wan = machine.add_device(Device::new("wan").address(net("192.0.2.1/30")).mtu(1400)).unwrap();
    (machine, lan, wan)
}

fn ask(machine: &Machine, from: u32, to: &str) -> FibResult {
    let source = if to.contains(':') { "fd00::9" } else { "10.0.0.9" };
    machine.fib(&FibQuery::new(from, address(source), address(to)), FibFlags::default()).unwrap()
}

#[test]
fn the_longest_prefix_wins_then_the_lowest_metric() {
    let (mut machine, lan, wan) = router();
    let far = address("192.0.2.2");
    machine.add_neighbour(wan, far, MacAddr([2; 6])).unwrap();
    for (to, metric) in [("0.0.0.0/0", 5), ("203.0.113.0/24", 9), ("203.0.113.0/24", 3)] {
        machine.add_route(Route::new(net(to), wan).via(far).metric(metric)).unwrap();
    }
    machine.add_route(Route::new(net("203.0.113.128/25"), wan).kind(RouteKind::Prohibit)).unwrap();
    let metric = |to| match ask(&machine, lan, to) {
        FibResult::Forward(hop) => Some(hop.metric),
        _ => None,
    };
    assert_eq!(metric("8.8.8.8"), Some(5));
    assert_eq!(metric("203.0.113.1"), Some(3));
    assert_eq!(ask(&machine, lan, "203.0.113.129"), FibResult::Prohibit);
}

#[test]
fn own_addresses_and_unknown_networks_are_not_forwarded() {
    let (machine, lan, _) = router();
    for to in ["10.0.0.1", "192.0.2.1", "10.0.0.255", "8.8.8.8", "fd00::1", "2001:db8::1"] {
        assert_eq!(ask(&machine, lan, to), FibResult::NotForwarded, "{to}");
    }
    assert!(machine.is_own_address(0, address("fd00::1")));
    assert!(!machine.is_own_address(1, address("fd00::1")));
}

#[test]
fn neighbours_are_needed_unless_they_are_skipped() {
    let (mut machine, lan, wan) = router();
    let query = FibQuery::new(lan, address("10.0.0.9"), address("192.0.2.2"));
    let FibResult::NoNeighbour(hop) = machine.fib(&query, FibFlags::default()).unwrap() else { panic!() };
    assert_eq!((hop.device, hop.mtu), (wan, 1400));
    let skip = FibFlags { skip_neighbour: true, ..FibFlags::default() };
    assert_eq!(machine.fib(&query, skip), Ok(FibResult::Forward(hop)));
    machine.add_neighbour(wan, address("192.0.2.2"), MacAddr([2, 0, 0, 0, 9, 9])).unwrap();
    let FibResult::Forward(hop) = machine.fib(&query, FibFlags::default()).unwrap() else { panic!() };
    assert_eq!(hop.destination, MacAddr([2, 0, 0, 0, 9, 9]));
    assert_eq!(hop.source, machine.device(wan).unwrap().mac);
}

#[test]
fn lengths_are_compared_with_the_routes_mtu_or_the_devices() {
    let (mut machine, lan, wan) = router();
    machine.add_route(Route::new(net("203.0.113.0/24"), wan).mtu(1300)).unwrap();
    for (to, mtu) in [("192.0.2.2", 1400), ("203.0.113.1", 1300)] {
        let mut query = FibQuery::new(lan, address("10.0.0.9"), address(to));
        query.length = mtu;
        assert!(matches!(machine.fib(&query, FibFlags::default()), Ok(FibResult::NoNeighbour(_))));
        query.length += 1;
        assert_eq!(machine.fib(&query, FibFlags::default()), Ok(FibResult::TooLong { device: wan, mtu }));
    }
}

#[test]
fn a_device_that_does_not_forward_says_so() {
    let (mut machine, lan, _) = router();
    machine.device_mut(lan).unwrap().forwarding = false;
    assert_eq!(ask(&machine, lan, "192.0.2.2"), FibResult::ForwardingDisabled);
    let query = FibQuery::new(9, address("10.0.0.9"), address("10.0.0.8"));
    assert_eq!(machine.fib(&query, FibFlags::default()), Err(FibError::NoDevice(9)));
    let query = FibQuery::new(lan, address("10.0.0.9"), address("fd00::8"));
    assert_eq!(machine.fib(&query, FibFlags::default()), Err(FibError::MixedFamilies));
}

#[test]
fn namespaces_do_not_see_each_others_routes() {
    let (mut machine, lan, _) = router();
    let inner = Device::new("inner").namespace(7).address(net("198.51.100.1/24"));
    let inner = machine.add_device(inner).unwrap();
    assert_eq!(ask(&machine, lan, "198.51.100.9"), FibResult::NotForwarded);
    assert!(matches!(ask(&machine, inner, "198.51.100.9"), FibResult::NoNeighbour(_)));
    assert_eq!(ask(&machine, inner, "10.0.0.9"), FibResult::NotForwarded);
}

#[test]
fn a_table_can_be_asked_alone() {
    let (mut machine, lan, wan) = router();
    machine.add_route(Route::new(net("0.0.0.0/0"), wan).table(100)).unwrap();
    assert_eq!(ask(&machine, lan, "8.8.8.8"), FibResult::NotForwarded);
    let mut query = FibQuery::new(lan, address("10.0.0.9"), address("8.8.8.8"));
    let direct = FibFlags { direct: true, skip_neighbour: true, ..FibFlags::default() };
    assert_eq!(machine.fib(&query, direct), Ok(FibResult::NotForwarded));
    query.table = Some(100);
    assert!(matches!(machine.fib(&query, direct), Ok(FibResult::Forward(_))));
}

#[test]
fn the_preferred_source_is_the_routes_or_the_devices() {
    let (mut machine, lan, wan) = router();
    machine.add_route(Route::new(net("203.0.113.0/24"), wan)).unwrap();
    let tunnel = machine.add_device(Device::new("tunnel")).unwrap();
    machine.add_route(Route::new(net("2001:db8::/32"), tunnel)).unwrap();
    let flags = FibFlags { source: true, skip_neighbour: true, ..FibFlags::default() };
    let source = |to: &str| {
        let from = if to.contains(':') { "fd00::9" } else { "10.0.0.9" };
        match machine.fib(&FibQuery::new(lan, address(from), address(to)), flags).unwrap() {
            FibResult::Forward(hop) => hop.preferred_source,
            FibResult::NoSource => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(source("203.0.113.1"), Some(address("192.0.2.1")));
    assert_eq!(source("10.0.0.7"), Some(address("10.0.0.1")));
    assert_eq!(source("2001:db8::1"), None);
}

#[test]
fn wrong_devices_are_refused_by_name_and_nothing_changes() {
    let (mut machine, lan, _) = router();
    let taken = machine.add_device(Device::new("lan")).unwrap_err();
    assert_eq!(taken, Error::NameTaken { name: "lan".into(), index: lan });
    let taken = machine.add_device(Device::new("other").index(lan)).unwrap_err();
    assert_eq!(taken.to_string(), "there is already a device with index 1: lan");
    for name in ["", "a/b", "sixteen-bytes-xx", ".", "a b"] {
        assert!(matches!(machine.add_device(Device::new(name)), Err(Error::BadName { .. })), "{name}");
    }
    assert!(machine.add_pair(Device::new("left"), Device::new("lan")).is_err());
    assert_eq!(machine.devices().count(), 2);
    let error = machine.add_route(Route::new(net("0.0.0.0/0"), 9)).unwrap_err();
    assert_eq!(error.to_string(), "there is no device with index 9; devices: lan (1), wan (2)");
    let mixed = Route::new(net("0.0.0.0/0"), lan).via(address("fd00::2"));
    assert!(matches!(machine.add_route(mixed), Err(Error::OtherFamily { .. })));
}

#[test]
fn what_is_removed_leaves_nothing_behind() {
    let (mut machine, lan, wan) = router();
    machine.add_neighbour(wan, address("192.0.2.2"), MacAddr([2; 6])).unwrap();
    let (a, b) = machine.add_pair(Device::new("a"), Device::new("b")).unwrap();
    machine.remove_device(wan).unwrap();
    machine.remove_device(a).unwrap();
    assert_eq!(ask(&machine, lan, "192.0.2.2"), FibResult::NotForwarded);
    assert!(machine.routes().iter().all(|route| route.device == lan));
    assert_eq!(machine.neighbour(wan, address("192.0.2.2")), None);
    assert_eq!(machine.device(b).unwrap().peer, None);
}

#[test]
fn the_most_specific_socket_receives() {
    let mut machine = Machine::new();
    let any = machine.add_socket(Socket::listening(at("[::]:80"))).unwrap();
    let v4 = machine.add_socket(Socket::listening(at("0.0.0.0:80"))).unwrap();
    let own = machine.add_socket(Socket::listening(at("10.0.0.1:80"))).unwrap();
    let connected = Socket::connected(Protocol::Tcp, at("10.0.0.1:80"), at("10.0.0.9:1234"));
    let connected = machine.add_socket(connected).unwrap();
    let find = |protocol, local: &str, remote: &str| {
        machine.find_socket(0, protocol, at(local), at(remote), None).map(|socket| socket.cookie)
    };
    assert_eq!(find(Protocol::Tcp, "10.0.0.1:80", "10.0.0.9:1234"), Some(connected.cookie));
    assert_eq!(find(Protocol::Tcp, "10.0.0.1:80", "10.0.0.9:1235"), Some(own.cookie));
    assert_eq!(find(Protocol::Tcp, "10.0.0.2:80", "10.0.0.9:1234"), Some(v4.cookie));
    assert_eq!(find(Protocol::Tcp, "[fd00::1]:80", "[fd00::9]:1"), Some(any.cookie));
    assert_eq!(find(Protocol::Tcp, "10.0.0.1:81", "10.0.0.9:1234"), None);
    assert_eq!(find(Protocol::Udp, "10.0.0.1:80", "10.0.0.9:1234"), None);
    assert_eq!(machine.find_socket(1, Protocol::Tcp, at("10.0.0.1:80"), at("10.0.0.9:1"), None), None);
    machine.remove_socket(connected.cookie).unwrap();
    let after = machine.find_socket(0, Protocol::Tcp, at("10.0.0.1:80"), at("10.0.0.9:1234"), None);
    assert_eq!(after, Some(&own));
}

#[test]
fn cookies_are_unique() {
    let mut machine = Machine::new();
    let mut socket = Socket::bound(at("0.0.0.0:53"));
    socket.cookie = 7;
    machine.add_socket(socket.clone()).unwrap();
    assert_eq!(machine.add_socket(socket), Err(Error::CookieTaken { cookie: 7 }));
    assert_eq!(machine.add_socket(Socket::bound(at("0.0.0.0:54"))).unwrap().cookie, 8);
}
