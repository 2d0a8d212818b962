//! Programs in the machine's own network stack: the packet filter, look-ups of sockets, cgroups, filters of sockets.

use super::*;
use skep::world::{Cgroup, Family, Netkit, NetkitPolicy, Point, Socket};
use std::net::SocketAddr;
use std::sync::Arc;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

impl Net {
    /// Attaches a program that is made of this text.
    fn put_at(&mut self, name: &str, program_type: &str, point: Point, text: &str) {
        let program = self.program(name, program_type, text);
        self.links.push(self.world.attach_at(&program, point).unwrap());
    }

    fn filter(&mut self, name: &str, hook: Place, priority: i32, result: i32) {
        let point = Point::Netfilter { namespace: 0, family: Family::V4, hook, priority };
        self.put_at(name, "netfilter", point, &returns(result));
    }

    fn group(&mut self, name: &str, cgroup: u64, hook: Place, result: i32) {
        self.put_at(name, "cgroup/skb", Point::Cgroup { cgroup, hook }, &returns(result));
    }

    fn socket(&self, socket: Socket) -> Arc<Socket> {
        self.world.change(|machine| machine.add_socket(socket)).unwrap()
    }

    /// The way of a datagram to this address, port 53, that comes in at `lan`, as text.
    fn way(&self, to: &str) -> String {
        let trace = self.inject("lan", &mut datagram(1, "10.0.0.9", to, 64, b"question"));
        trace.show(&self.world.machine()).to_string()
    }

    /// The way of what a socket sends to this address, port 53.
    fn sends(&self, socket: &Socket, to: &str) -> String {
        let mut packet = datagram(0, "192.0.2.1", to, 64, b"answer");
        let trace = self.world.send(socket.cookie, &mut packet).unwrap();
        trace.show(&self.world.machine()).to_string()
    }
}

/// `outer` (10) with `inner` (11) in it.
fn grouped() -> Machine {
    let mut machine = router();
    for (id, path, parent) in [(1, "/", None), (10, "/outer", Some(1)), (11, "/outer/inner", Some(10))] {
        machine.cgroups.insert(id, Cgroup { id, path: path.to_owned(), parent, classid: 0 });
    }
    machine
}

fn in_group(mut socket: Socket, cgroup: u64) -> Socket {
    socket.cgroup = cgroup;
    socket
}

const HOOKS: [Place; 5] =
    [Place::PreRouting, Place::LocalIn, Place::Forward, Place::LocalOut, Place::PostRouting];

#[test]
fn the_packet_filter_runs_at_its_hooks_in_the_order_of_the_priorities() {
    let mut net = Net::new(router());
    for hook in HOOKS {
        net.filter("late", hook, 100, 1);
        net.filter("early", hook, -100, 1);
    }
    let server = net.socket(Socket::bound(at("0.0.0.0:53")));
    let both =
        |device: &str, hook: &str| format!("{device} {hook}: early accept\n{device} {hook}: late accept\n");
    assert_eq!(
        net.way("10.0.0.1"),
        both("lan", "prerouting")
            + &both("lan", "input")
            + &format!("received on lan by socket {} (udp 0.0.0.0:53)", server.cookie)
    );
    assert_eq!(
        net.way("192.0.2.9"),
        both("lan", "prerouting") + &both("lan", "forward") + &both("wan", "postrouting") + "sent by wan"
    );
    assert_eq!(
        net.sends(&server, "192.0.2.9"),
        both("wan", "output") + &both("wan", "postrouting") + "sent by wan"
    );
    // Nobody routes what is for a group, and nobody but the filter sees it.
    assert_eq!(net.way("224.0.0.1"), both("lan", "prerouting") + &both("lan", "input") + "delivered on lan");
    let routed = net.way("8.8.8.8");
    assert_eq!(routed, both("lan", "prerouting") + "dropped: no route from lan");
    net.links.clear();
    assert_eq!(net.way("192.0.2.9"), "sent by wan");
}

#[test]
fn each_hook_of_the_packet_filter_can_drop_a_packet() {
    for (hook, to, expected) in [
        (Place::PreRouting, "10.0.0.1", "lan prerouting: wall drop\ndropped by wall: drop"),
        (Place::LocalIn, "10.0.0.1", "lan input: wall drop\ndropped by wall: drop"),
        (Place::Forward, "192.0.2.9", "lan forward: wall drop\ndropped by wall: drop"),
        (Place::PostRouting, "192.0.2.9", "wan postrouting: wall drop\ndropped by wall: drop"),
    ] {
        let mut net = Net::new(router());
        net.filter("behind", hook, 5, 1);
        net.filter("wall", hook, 0, 0);
        assert_eq!(net.way(to), expected);
    }
    let mut net = Net::new(router());
    net.filter("wall", Place::LocalOut, 0, 0);
    let socket = net.socket(Socket::bound(at("192.0.2.1:53")));
    assert_eq!(net.sends(&socket, "192.0.2.9"), "wan output: wall drop\ndropped by wall: drop");
    // The other family has hooks of its own.
    let mut net = Net::new(router());
    let point = Point::Netfilter { namespace: 0, family: Family::V6, hook: Place::PreRouting, priority: 0 };
    net.put_at("wall", "netfilter", point, &returns(0));
    assert_eq!(net.way("192.0.2.9"), "sent by wan");
    // So has the other namespace.
    let point = Point::Netfilter { namespace: 7, family: Family::V4, hook: Place::PreRouting, priority: 0 };
    net.put_at("wall", "netfilter", point, &returns(0));
    assert_eq!(net.way("192.0.2.9"), "sent by wan");
}

#[test]
fn a_filtered_packet_ends_where_an_unfiltered_one_does() {
    let fate = |net: &Net, to: &str, ttl| {
        let mut packet = datagram(1, "10.0.0.9", to, ttl, b"as long as a frame");
        let fate = net.inject("lan", &mut packet).fate;
        (fate, packet.bytes().to_vec())
    };
    let plain = Net::new(router());
    let mut filtered = Net::new(router());
    for hook in HOOKS {
        filtered.filter("passes", hook, 0, 1);
    }
    for (to, ttl) in [
        ("10.0.0.1", 64),
        ("192.0.2.9", 64),
        ("192.0.2.9", 1),
        ("192.0.2.10", 64),
        ("8.8.8.8", 64),
        ("10.0.0.255", 64),
        ("224.0.0.1", 64),
    ] {
        let (fate_then, bytes) = fate(&filtered, to, ttl);
        let (expected, unfiltered) = fate(&plain, to, ttl);
        assert_eq!(fate_then, expected, "{to} {ttl}");
        if !matches!(expected, Fate::NoNeighbour { .. }) {
            assert_eq!(bytes, unfiltered, "{to} {ttl}");
        }
    }
    for length in [0, 5, 13, 20] {
        let mut bytes = vec![2; length];
        bytes.iter_mut().zip(mac(1)).for_each(|(to, from)| *to = from);
        bytes.iter_mut().skip(12).zip([8, 0]).for_each(|(to, from)| *to = from);
        let fate = filtered.inject("lan", &mut Packet::new(&bytes)).fate;
        assert_eq!(fate, Fate::Malformed { device: 1 }, "{length} bytes");
    }
    let mut other = datagram(7, "10.0.0.9", "192.0.2.9", 64, b"");
    assert_eq!(filtered.inject("lan", &mut other).fate, Fate::OtherHost { device: 1 });
}

/// Reads the devices of the hook's state and drops the packet unless they are these.
fn between(inward: u32, outward: u32) -> String {
    let read =
        |at, device| format!("r2 = *(u64 *)(r1 + {at})\nr2 = *(s32 *)(r2 + 0)\nif r2 != {device} goto no\n");
    format!("r1 = *(u64 *)(r1 + 0)\n{}{}r0 = 1\nexit\nno: r0 = 0\nexit", read(8, inward), read(16, outward))
}

#[test]
fn a_program_of_the_packet_filter_knows_the_devices() {
    let mut net = Net::new(router());
    let mut put = |hook, inward, outward| {
        let point = Point::Netfilter { namespace: 0, family: Family::V4, hook, priority: 0 };
        net.put_at("between", "netfilter", point, &between(inward, outward));
    };
    put(Place::PreRouting, 1, 0);
    put(Place::LocalIn, 1, 0);
    put(Place::Forward, 1, 2);
    put(Place::PostRouting, 1, 2);
    put(Place::LocalOut, 0, 2);
    assert!(net.way("10.0.0.1").ends_with("delivered on lan"));
    assert!(net.way("192.0.2.9").ends_with("sent by wan"));
    // What a socket sends came in nowhere.
    let socket = net.socket(Socket::bound(at("192.0.2.1:53")));
    assert!(
        net.sends(&socket, "192.0.2.9").contains("wan output: between accept\nwan postrouting: between drop")
    );
}

#[test]
fn programs_of_a_cgroup_and_of_those_around_it_see_what_its_sockets_receive_and_send() {
    let mut net = Net::new(grouped());
    let server = net.socket(in_group(Socket::bound(at("0.0.0.0:53")), 11));
    let outside = net.socket(Socket::bound(at("0.0.0.0:54")));
    for (name, cgroup) in [("root", 1), ("outer", 10), ("inner", 11)] {
        net.group(name, cgroup, Place::CgroupIngress, 1);
        net.group(name, cgroup, Place::CgroupEgress, 1);
    }
    let names = |trace: &str, hook: &str| -> Vec<String> {
        let lines = trace.lines().filter(|line| line.contains(hook));
        lines.map(|line| line.split(": ").nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(names(&net.way("10.0.0.1"), "cgroup ingress"), ["inner pass", "outer pass", "root pass"]);
    let sent = net.sends(&server, "192.0.2.9");
    assert_eq!(names(&sent, "cgroup egress"), ["inner pass", "outer pass", "root pass"]);
    assert!(sent.ends_with("sent by wan"));
    assert_eq!(net.sends(&outside, "192.0.2.9"), "sent by wan", "it is in no cgroup");
    // All of them run, and the first that refuses is named.
    net.group("refuses", 11, Place::CgroupIngress, 0);
    net.group("too", 10, Place::CgroupIngress, 0);
    let way = net.way("10.0.0.1");
    let ran = ["inner pass", "refuses drop", "outer pass", "too drop", "root pass"];
    assert_eq!(names(&way, "cgroup ingress"), ran);
    assert!(way.ends_with("dropped by refuses: drop"), "{way}");
    // Congestion is the second bit of a result: 2 drops, 3 passes.
    let egress = Point::Cgroup { cgroup: 11, hook: Place::CgroupEgress };
    net.put_at("congested", "cgroup_skb/egress", egress, &returns(3));
    assert!(net.sends(&server, "192.0.2.9").ends_with("sent by wan"));
    net.put_at("full", "cgroup_skb/egress", egress, &returns(2));
    assert!(net.sends(&server, "192.0.2.9").ends_with("dropped by full: drop"));
}

/// A pair in one namespace; packets for `wan`'s neighbour go through it.
fn connected_by(policy: NetkitPolicy) -> Net {
    let mut machine = Machine::new();
    let end = |name: &str, primary| Device::new(name).netkit(Netkit { primary, policy });
    machine.add_pair(end("nk0", true), end("nk1", false)).unwrap();
    Net::new(machine)
}

/// In Linux 6.12 programs of both ends are attached to the primary one, run where a packet is sent, and see it at the
/// other end (`ifindex`).
#[test]
fn only_programs_connect_the_ends_of_a_netkit_pair() {
    let sent = |net: &Net, device: &str| {
        // tc sends it by the device.
        let trace = net.inject(device, &mut datagram(1, "10.0.0.9", "192.0.2.9", 64, b"hello"));
        trace.show(&net.world.machine()).to_string()
    };
    let bounced = |policy| {
        let mut net = connected_by(policy);
        // What comes in at an end leaves by it.
        net.put("back", "nk0", Place::Xdp, &returns(3));
        net.put("ends", "nk1", Place::Xdp, &returns(1));
        net
    };
    let net = bounced(NetkitPolicy::Pass);
    assert_eq!(sent(&net, "nk0"), "nk0 xdp: back tx\nnk1 xdp: ends drop\ndropped by ends: drop");
    let mut net = bounced(NetkitPolicy::Blackhole);
    assert_eq!(sent(&net, "nk0"), "nk0 xdp: back tx\ndropped: no program lets it pass from nk0 to its peer");
    // -1 leaves it to the next one, 0 lets it pass.
    net.put("next", "nk0", Place::NetkitPrimary, &returns(-1));
    assert!(sent(&net, "nk0").ends_with("dropped: no program lets it pass from nk0 to its peer"));
    let seen = "r2 = *(u32 *)(r1 + 40)\nr0 = 2\nif r2 != 2 goto out\nr0 = 0\nout: exit";
    net.put("passes", "nk0", Place::NetkitPrimary, seen);
    net.put("peers", "nk0", Place::NetkitPeer, &returns(2));
    let way = sent(&net, "nk0");
    let lines = ["nk0 netkit primary: next unspec", "nk0 netkit primary: passes ok", "nk1 xdp: ends drop"];
    assert_eq!(way.lines().skip(1).take(3).collect::<Vec<_>>(), lines, "{way}");
    // The other direction.
    let mut net = connected_by(NetkitPolicy::Pass);
    net.put("back", "nk1", Place::Xdp, &returns(3));
    net.put("peers", "nk0", Place::NetkitPeer, &returns(2));
    assert_eq!(sent(&net, "nk1"), "nk1 xdp: back tx\nnk1 netkit peer: peers shot\ndropped by peers: shot");
    net.links.clear();
    net.put("back", "nk1", Place::Xdp, &returns(3));
    net.put("turns", "nk0", Place::NetkitPeer, &redirects("redirect#23", 2, 1));
    assert!(sent(&net, "nk1").contains("turns redirect into nk1"), "{}", sent(&net, "nk1"));
    // A result that is none drops.
    net.put("odd", "nk0", Place::NetkitPrimary, &returns(99));
    // Programs are attached to the primary end of such a pair, and to no other device.
    let program = net.program("passes", "tc", &returns(0));
    let error = net.world.attach(&program, "nk1", Place::NetkitPrimary).unwrap_err();
    assert!(error.to_string().contains("no primary netkit device"), "{error}");
}
