//! Which socket receives a packet: look-ups by programs, groups that share an address, filters.

use super::*;
use skep::UpdateFlags;
use skep::abi::{MapDef, MapKind};
use skep::isa::encode_bytes;
use skep::world::{Point, Protocol, Socket};
use std::net::SocketAddr;
use std::sync::Arc;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Assigns the socket of the map to the packet, with these flags, and returns that result.
fn assigns(flags: u32, result: u32) -> String {
    format!(
        "r6 = r1
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0] ll
        call 1
        if r0 == 0 goto out
        r7 = r0
        r1 = r6
        r2 = r7
        r3 = {flags}
        call 124
        r1 = r7
        call 86
   out: r0 = {result}
        exit"
    )
}

/// Chooses the socket at this index of the map, and returns 1, or that result if the choice failed.
fn selects(index: u32, otherwise: u32) -> String {
    format!(
        "*(u32 *)(r10 - 4) = {index}
        r2 = r1
        r3 = map[0] ll
        r1 = r2
        r2 = r3
        r3 = r10
        r3 += -4
        r4 = 0
        call 82
        if r0 == 0 goto out
        r0 = {otherwise}
        exit
   out: r0 = 1
        exit"
    )
}

impl Net {
    /// Attaches a program with a map of these sockets.
    fn put_over(
        &mut self,
        name: &str,
        program_type: &str,
        point: Point,
        text: &str,
        sockets: &[&Arc<Socket>],
    ) {
        let bytes = encode_bytes(&assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"))).unwrap();
        let kind = if program_type == "sk_lookup" { MapKind::Sockmap } else { MapKind::ReuseportSockarray };
        let kind = MapDef::new("sockets", kind, 4, 8, 4);
        let object = Object::from_bytecode_and_maps(
            name,
            ProgramType::from_name(program_type).unwrap(),
            &bytes,
            [kind],
        );
        let module = self.runtime.load(&object.unwrap()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for (index, socket) in (0u32..).zip(sockets) {
            let member = skep::socket_member(Arc::clone(socket));
            module.maps()[0].set_member(&index.to_ne_bytes(), member, UpdateFlags::Any).unwrap();
        }
        self.links.push(self.world.attach_at(&module.programs()[0], point).unwrap());
    }

    fn udp(&self, local: &str) -> Arc<Socket> {
        self.world.change(|machine| machine.add_socket(Socket::bound(at(local)))).unwrap()
    }

    /// Where a datagram to 10.0.0.1:53 ends, and what the programs on its way said.
    fn arrives(&self) -> (Fate, Vec<String>) {
        let trace = self.inject("lan", &mut datagram(1, "10.0.0.9", "10.0.0.1", 64, b"question"));
        let said = trace
            .hops
            .iter()
            .map(|hop| format!("{} {}: {}", hop.place, hop.program, hop.verdict().unwrap_or("a number")));
        (trace.fate.clone(), said.collect())
    }
}

fn received(socket: &Socket) -> Fate {
    Fate::Received { device: 1, socket: socket.cookie }
}

const LOOKUP: Point = Point::Lookup { namespace: 0 };

#[test]
fn a_connected_socket_comes_before_look_ups_and_these_before_sockets_that_wait() {
    let mut net = Net::new(router());
    let waiting = net.udp("10.0.0.1:53");
    let balanced = net.udp("10.0.0.1:5353");
    assert_eq!(net.arrives(), (received(&waiting), vec![]));
    net.put_over("balancer", "sk_lookup", LOOKUP, &assigns(0, 1), &[&balanced]);
    assert_eq!(net.arrives(), (received(&balanced), vec!["socket look-up balancer: pass".to_owned()]));
    let peer = Socket::connected(Protocol::Udp, at("10.0.0.1:53"), at("10.0.0.9:1000"));
    let peer = net.world.change(|machine| machine.add_socket(peer)).unwrap();
    assert_eq!(net.arrives(), (received(&peer), vec![]));
}

/// As Linux 6.12 answers: a choice with a drop is none, the next program does not see it; a drop behind a choice
/// changes nothing; without a choice a single drop decides.
#[test]
fn all_programs_that_look_up_are_asked_and_a_choice_outweighs_a_drop() {
    let ran = |first: (u32, u32), second: (u32, u32)| {
        let mut net = Net::new(router());
        let waiting = net.udp("0.0.0.0:53");
        let chosen = [net.udp("10.0.0.1:1"), net.udp("10.0.0.1:2")];
        for ((name, (choice, result)), socket) in [("first", first), ("second", second)].iter().zip(&chosen) {
            let text = if *choice == 0 { returns(*result as i32) } else { assigns(choice - 1, *result) };
            net.put_over(name, "sk_lookup", LOOKUP, &text, &[socket]);
        }
        let (fate, said) = net.arrives();
        assert_eq!(said.len(), 2, "both are asked");
        match fate {
            Fate::Received { socket, .. } if socket == waiting.cookie => "waiting".to_owned(),
            Fate::Received { socket, .. } => format!("chosen {}", socket - waiting.cookie),
            Fate::Dropped { program, verdict } => format!("{verdict} by {program}"),
            other => format!("{other:?}"),
        }
    };
    // 0: no choice, 1: a choice, 2: one that replaces an earlier one.
    let (none, choice, replacing) = (0, 1, 2);
    assert_eq!(ran((none, 1), (none, 1)), "waiting");
    assert_eq!(ran((none, 0), (none, 1)), "drop by first");
    assert_eq!(ran((none, 1), (none, 0)), "drop by second");
    assert_eq!(ran((none, 0), (choice, 1)), "chosen 2");
    assert_eq!(ran((choice, 1), (none, 0)), "chosen 1");
    assert_eq!(ran((choice, 0), (none, 1)), "drop by first");
    assert_eq!(ran((choice, 1), (choice, 1)), "chosen 1", "one that does not replace finds the place taken");
    assert_eq!(ran((choice, 1), (replacing, 1)), "chosen 2");
    assert_eq!(ran((choice, 1), (replacing, 0)), "chosen 1");
}

#[test]
fn a_look_up_knows_both_ends_and_the_device() {
    let mut net = Net::new(router());
    let fields = [
        (8, "u32", 2),
        (12, "u32", 17),
        (16, "u32", u32::from_ne_bytes([10, 0, 0, 9])),
        (36, "u16", u32::from(1000u16.to_be())),
        (40, "u32", u32::from_ne_bytes([10, 0, 0, 1])),
        (60, "u32", 53),
        (64, "u32", 1),
    ];
    let check = |(at, size, value): &(u32, &str, u32)| {
        format!("r2 = *({size} *)(r1 + {at})\nw3 = {}\nif r2 != r3 goto no\n", value.cast_signed())
    };
    let text: String = fields.iter().map(check).collect();
    net.put_over("knows", "sk_lookup", LOOKUP, &format!("{text}r0 = 1\nexit\nno: r0 = 0\nexit"), &[]);
    assert_eq!(net.arrives().0, Fate::Delivered { device: 1 });
}

#[test]
fn a_socket_that_the_machine_no_longer_has_receives_nothing() {
    let mut net = Net::new(router());
    let (gone, waiting) = (net.udp("10.0.0.1:5353"), net.udp("0.0.0.0:53"));
    net.put_over("balancer", "sk_lookup", LOOKUP, &assigns(0, 1), &[&gone]);
    assert_eq!(net.arrives().0, received(&gone));
    net.world.change(|machine| machine.remove_socket(gone.cookie).ok_or(())).unwrap();
    assert_eq!(net.arrives().0, received(&waiting));
    net.world.change(|machine| machine.remove_socket(waiting.cookie).ok_or(())).unwrap();
    assert_eq!(net.arrives().0, Fate::Delivered { device: 1 });
}

fn sharing(local: &str) -> Socket {
    let mut socket = Socket::bound(at(local));
    socket.reuse_port = true;
    socket
}

#[test]
fn a_group_that_shares_an_address_lets_a_program_choose() {
    let group = |choice: &str| {
        let mut net = Net::new(router());
        let add = |socket| net.world.change(|machine| machine.add_socket(socket)).unwrap();
        let sockets = [sharing("0.0.0.0:53"), sharing("0.0.0.0:53"), sharing("0.0.0.0:54")].map(add);
        let members: Vec<&Arc<Socket>> = sockets.iter().collect();
        let point = Point::ReusePort { socket: sockets[1].cookie };
        net.put_over("spreads", "sk_reuseport", point, choice, &members);
        match net.arrives() {
            (Fate::Received { socket, .. }, _) => {
                format!("{:?}", sockets.iter().position(|other| other.cookie == socket))
            }
            (other, _) => other.show(&net.world.machine()),
        }
    };
    assert_eq!(group(&selects(0, 0)), "Some(0)");
    assert_eq!(group(&selects(1, 0)), "Some(1)");
    // As in Linux 6.12, a socket with another address cannot be chosen, and the program learns that.
    assert_eq!(group(&selects(2, 0)), "dropped by spreads: drop");
    assert_eq!(group(&selects(2, 1)), "Some(0)");
    assert_eq!(group(&selects(3, 1)), "Some(0)", "an element that is not there");
    assert_eq!(group(&returns(0)), "dropped by spreads: drop");
    assert_eq!(group(&returns(1)), "Some(0)");
    // It sees the packet from the transport header on: 8 bytes and the payload.
    let sees = "r2 = *(u32 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 0)\nr4 = *(u64 *)(r1 + 8)\nr0 = 0\nif r2 != 16 goto out\n\
                r5 = r3\nr5 += 8\nif r5 > r4 goto out\nr2 = *(u16 *)(r3 + 2)\nr2 = be16 r2\nif r2 != 53 goto out\n\
                r0 = 1\nout: exit";
    assert_eq!(group(sees), "Some(0)");
}

#[test]
fn only_sockets_that_share_their_address_have_a_group() {
    let net = Net::new(router());
    let alone = net.udp("0.0.0.0:53");
    let program = net.program("spreads", "sk_reuseport", &returns(1));
    let error = net.world.attach_at(&program, Point::ReusePort { socket: alone.cookie }).unwrap_err();
    assert!(error.to_string().contains("reuse_port"), "{error}");
    let error = net.world.attach_at(&program, Point::ReusePort { socket: 99 }).unwrap_err();
    assert!(error.to_string().contains("no socket with cookie 99"), "{error}");
    let error = net.world.attach_at(&program, LOOKUP).unwrap_err();
    assert!(error.to_string().contains("sk_lookup programs"), "{error}");
    let point =
        Point::Netfilter { namespace: 0, family: skep::world::Family::V4, hook: Place::Xdp, priority: 0 };
    let filter = net.program("wall", "netfilter", &returns(1));
    let error = net.world.attach_at(&filter, point).unwrap_err();
    assert!(error.to_string().contains("like Place::LocalIn"), "{error}");
    let error = net.world.attach(&filter, "lan", Place::LocalIn).unwrap_err();
    assert!(error.to_string().contains("World::attach_at"), "{error}");
}

/// In Linux 6.12 a filter that returned 10 for a datagram of 16 bytes left a payload of 2.
#[test]
fn a_sockets_filter_sees_the_transport_header_and_says_how_much_is_kept() {
    let filtered = |text: &str| {
        let mut net = Net::new(router());
        let socket = net.udp("0.0.0.0:53");
        let program = net.program("filter", "socket_filter", text);
        let point = Point::Socket { socket: socket.cookie };
        net.links.push(net.world.attach_at(&program, point).unwrap());
        let mut packet = datagram(1, "10.0.0.9", "10.0.0.1", 64, b"0123456789abcdef");
        let fate = net.inject("lan", &mut packet).fate;
        (fate == received(&socket), packet.bytes().len() as i64 - 42)
    };
    assert_eq!(filtered(&returns(0)), (false, 16));
    assert_eq!(filtered(&returns(0xffff)), (true, 16));
    assert_eq!(filtered(&returns(10)), (true, 2));
    assert_eq!(filtered(&returns(1)), (true, 0), "the header stays");
    // The port, and the version of IP by an offset from the network header.
    let reads = "r6 = r1\nr0 = *(u16 *)skb[2]\nif r0 != 53 goto no\nr0 = *(u8 *)skb[-0x100000]\nif r0 != 0x45 goto no\n\
                 r0 = *(u32 *)(r6 + 0)\nexit\nno: r0 = 0\nexit";
    assert_eq!(filtered(reads), (true, 16));
}

#[test]
fn a_program_that_changes_a_packet_changes_its_way() {
    // tc sends the datagram to another address, and the stack sees that one.
    let mut net = Net::new(router());
    let other = net.udp("192.0.2.1:53");
    let rewrites = format!(
        "r6 = r1\n*(u32 *)(r10 - 4) = {}\nr2 = 30\nr3 = r10\nr3 += -4\nr4 = 4\nr5 = 0\ncall 9\nr0 = 0\nexit",
        u32::from_ne_bytes([192, 0, 2, 1]).cast_signed()
    );
    net.put("rewrites", "lan", Place::Ingress, &rewrites);
    assert_eq!(net.arrives().0, received(&other));
    // One that makes it unreadable for the stack.
    net.put("breaks", "lan", Place::Ingress, "r0 = 0\nexit");
    let breaks =
        "r6 = r1\n*(u32 *)(r10 - 4) = 0\nr2 = 14\nr3 = r10\nr3 += -4\nr4 = 1\nr5 = 0\ncall 9\nr0 = 0\nexit";
    let mut net = Net::new(router());
    net.udp("0.0.0.0:53");
    net.put("breaks", "lan", Place::Ingress, breaks);
    assert_eq!(net.arrives().0, Fate::Malformed { device: 1 });
}

#[test]
fn a_sockets_packets_come_back_to_its_own_machine_or_say_why_not() {
    let net = Net::new(router());
    let (client, server) = (net.udp("10.0.0.1:1000"), net.udp("192.0.2.1:53"));
    let send = |to: &str| {
        let mut packet = datagram(0, "10.0.0.1", to, 64, b"question");
        let fate = net.world.send(client.cookie, &mut packet).unwrap().fate;
        (fate, packet)
    };
    let (fate, packet) = send("192.0.2.1");
    assert_eq!(fate, Fate::Received { device: 2, socket: server.cookie });
    assert_eq!(packet.socket(), Some(&server), "it has left its sender");
    assert_eq!(send("192.0.2.9").0, Fate::Sent { device: 2 });
    let address = "192.0.2.10".parse().unwrap();
    assert_eq!(send("192.0.2.10").0, Fate::NoNeighbour { device: 2, address });
    assert_eq!(send("8.8.8.8").0.show(&net.world.machine()), "dropped: no route from the sender");
    // Nobody listens there: the packet must not be taken for one that was assigned to its sender.
    let (fate, packet) = send("10.0.0.1");
    assert_eq!((fate, packet.socket()), (Fate::Delivered { device: 1 }, None));
    let error = net.world.send(99, &mut Packet::new(&[0; 60])).unwrap_err();
    assert!(error.to_string().contains("cookie 99"), "{error}");
    for length in [0, 13, 14, 20, 33] {
        let fate = net.world.send(client.cookie, &mut Packet::new(&vec![0; length])).unwrap().fate;
        assert_eq!(fate, Fate::Malformed { device: 0 }, "{length} bytes");
    }
}
