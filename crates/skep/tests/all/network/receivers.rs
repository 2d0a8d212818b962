//! The socket that receives a packet which has ended at the machine itself.

use super::*;
use skep::world::{Protocol, Socket};
use std::net::SocketAddr;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_delivered_packet_is_received_by_the_best_socket_or_the_assigned_one() {
    let mut machine = router();
    let any = machine.add_socket(Socket::bound(at("0.0.0.0:53"))).unwrap();
    let own = machine.add_socket(Socket::bound(at("10.0.0.1:53"))).unwrap();
    let peer = Socket::connected(Protocol::Udp, at("10.0.0.1:53"), at("10.0.0.9:1000"));
    let six = machine.add_socket(Socket::bound(at("[fd00::1]:53"))).unwrap();
    let mut net = Net::new(machine);
    let receiver = |net: &Net, mut packet: Packet| {
        let fate = net.inject("lan", &mut packet).fate;
        let receiver = net.world.receiver("lan", &packet).unwrap();
        let expected = match &receiver {
            Some(socket) => Fate::Received { device: 1, socket: socket.cookie },
            None => Fate::Delivered { device: 1 },
        };
        assert_eq!(fate, expected);
        receiver
    };
    let to = |to: &str| datagram(1, "10.0.0.9", to, 64, b"");
    assert_eq!(receiver(&net, to("10.0.0.1")), Some(own.clone()));
    assert_eq!(receiver(&net, to("192.0.2.1")), Some(any.clone()));
    let peer = net.world.change(|machine| machine.add_socket(peer)).unwrap();
    assert_eq!(receiver(&net, to("10.0.0.1")), Some(peer.clone()));

    let ends = ("fd00::9".parse::<Ipv6Addr>().unwrap(), "fd00::1".parse::<Ipv6Addr>().unwrap());
    let inner = udp((ends.0.into(), 1000), (ends.1.into(), 53), b"six");
    let frame = |protocol| {
        let packet = ipv6(ends.0, ends.1, protocol, 64, &inner);
        Packet::new(&ethernet(mac(1), [6; 6], &[], ethertype::IPV6, &packet))
    };
    assert_eq!(receiver(&net, frame(protocol::UDP)), Some(six));
    // Neither TCP nor UDP; a later fragment; too short for ports.
    assert_eq!(receiver(&net, frame(59)), None);
    let fragment = |fragment| {
        let whole = header(64);
        let packet = ipv4(v4("10.0.0.9"), v4("10.0.0.1"), Ipv4 { fragment, ..whole }, &[0; 3]);
        Packet::new(&ethernet(mac(1), [6; 6], &[], ethertype::IPV4, &packet))
    };
    assert_eq!(receiver(&net, fragment(5)), None);
    assert_eq!(receiver(&net, fragment(0)), None);

    // A classifier that looks up the socket of all addresses, and assigns the packet to it.
    let assigns = "
        r6 = r1
        *(u32 *)(r10 - 12) = 0
        *(u32 *)(r10 - 8) = 0
        *(u32 *)(r10 - 4) = 0x35000000
        r2 = r10
        r2 += -12
        r3 = 12
        r4 = -1
        r5 = 0
        call 85
        r7 = r0
        if r7 == 0 goto out
        r1 = r6
        r2 = r7
        r3 = 0
        call 124
        r1 = r7
        call 86
   out: r0 = 0
        exit";
    net.put("assigns", "lan", Place::Ingress, assigns);
    assert_eq!(receiver(&net, to("10.0.0.1")), Some(any));
    assert!(net.world.receiver("nowhere", &to("10.0.0.1")).is_err());
}
