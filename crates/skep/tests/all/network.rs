//! A packet's way through a machine: devices, programs on them, routes, pairs, loops.

use skep::abi::ProgramType;
use skep::isa::assemble;
use skep::world::{Device, Fate, MacAddr, Machine, Place, Route, RouteKind, Trace, World};
use skep::{Error, Link, Object, Packet, Program, Runtime};
use skep_packets::{Ipv4, ethernet, ethertype, ipv4, ipv6, protocol, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The Ethernet address that a machine gives its device with this index.
fn mac(index: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, index]
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn header(ttl: u8) -> Ipv4<'static> {
    Ipv4 { protocol: protocol::UDP, ttl, id: 1, fragment: 0, options: &[] }
}

/// A datagram for the device with that index.
fn datagram(device: u8, from: &str, to: &str, ttl: u8, payload: &[u8]) -> Packet {
    let ports = udp((IpAddr::V4(v4(from)), 1000), (IpAddr::V4(v4(to)), 53), payload);
    let header = header(ttl);
    let packet = ipv4(v4(from), v4(to), header, &ports);
    Packet::new(&ethernet(mac(device), [6; 6], &[], ethertype::IPV4, &packet))
}

struct Net {
    world: World,
    runtime: Runtime,
    links: Vec<Link>,
}

impl Net {
    fn new(machine: Machine) -> Self {
        let world = World::new(machine);
        let runtime = Runtime::builder().world(&world).build().unwrap();
        Self { world, runtime, links: Vec::new() }
    }

    fn program(&self, name: &str, program_type: &str, text: &str) -> Program {
        let insns = assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let kind = ProgramType::from_name(program_type).unwrap();
        self.runtime.load(&Object::from_insns(name, kind, insns)).unwrap().programs()[0].clone()
    }

    fn put(&mut self, name: &str, device: &str, place: Place, text: &str) {
        let program_type = if place == Place::Xdp { "xdp" } else { "tc" };
        let program = self.program(name, program_type, text);
        self.links.push(self.world.attach(&program, device, place).unwrap());
    }

    fn inject(&self, device: &str, packet: &mut Packet) -> Trace {
        self.world.inject(device, packet).unwrap()
    }
}

fn returns(result: i32) -> String {
    format!("r0 = {result}\nexit")
}

fn redirects(helper: &str, device: u32, flags: u32) -> String {
    format!("r1 = {device}\nr2 = {flags}\ncall {helper}\nexit")
}

/// `lan` (1) 10.0.0.1/24 and fd00::1/64, `wan` (2) 192.0.2.1/24; 192.0.2.9 and fd01::9 are known behind `wan`.
fn router() -> Machine {
    let mut machine = Machine::new();
    let net = |text: &str| text.parse().unwrap();
    machine.add_device(Device::new("lan").address(net("10.0.0.1/24")).address(net("fd00::1/64"))).unwrap();
    let wan = Device::new("wan").address(net("192.0.2.1/24")).address(net("fd01::1/64")).mtu(1300);
    let wan = machine.add_device(wan).unwrap();
    let far = MacAddr([2, 9, 9, 9, 9, 9]);
    machine.add_neighbour(wan, "192.0.2.9".parse().unwrap(), far).unwrap();
    machine.add_neighbour(wan, "fd01::9".parse().unwrap(), far).unwrap();
    machine
}

#[test]
fn a_packet_for_another_network_is_routed() {
    let net = Net::new(router());
    let mut packet = datagram(1, "10.0.0.9", "192.0.2.9", 64, b"hello");
    let trace = net.inject("lan", &mut packet);
    assert_eq!(trace.fate, Fate::Sent { device: 2 });
    let expected = {
        let ports = udp((v4("10.0.0.9").into(), 1000), (v4("192.0.2.9").into(), 53), b"hello");
        let header = header(63);
        let packet = ipv4(v4("10.0.0.9"), v4("192.0.2.9"), header, &ports);
        ethernet([2, 9, 9, 9, 9, 9], mac(2), &[], ethertype::IPV4, &packet)
    };
    assert_eq!(packet.bytes(), expected, "one hop less, with a right checksum, and the next hop's header");

    let six = |to: &str| {
        let (from, to): (Ipv6Addr, Ipv6Addr) = ("fd00::9".parse().unwrap(), to.parse().unwrap());
        let inner = udp((from.into(), 1), (to.into(), 2), b"six");
        Packet::new(&ethernet(
            mac(1),
            [6; 6],
            &[],
            ethertype::IPV6,
            &ipv6(from, to, protocol::UDP, 64, &inner),
        ))
    };
    let mut packet = six("fd01::9");
    assert_eq!(net.inject("lan", &mut packet).fate, Fate::Sent { device: 2 });
    assert_eq!(packet.bytes()[14 + 7], 63);
    assert_eq!(net.inject("lan", &mut six("fd00::1")).fate, Fate::Delivered { device: 1 });
}

#[test]
fn every_end_without_a_program_has_its_reason() {
    let mut machine = router();
    let blackhole = Route::new("198.51.100.0/24".parse().unwrap(), 2).kind(RouteKind::Blackhole);
    machine.add_route(blackhole).unwrap();
    machine.device_mut(1).unwrap().forwarding = true;
    let net = Net::new(machine);
    let fate = |to: &str, ttl| net.inject("lan", &mut datagram(1, "10.0.0.9", to, ttl, b"")).fate;
    assert_eq!(fate("10.0.0.1", 64), Fate::Delivered { device: 1 });
    assert_eq!(fate("192.0.2.1", 64), Fate::Delivered { device: 1 });
    assert_eq!(fate("10.0.0.255", 64), Fate::Delivered { device: 1 });
    assert_eq!(fate("224.0.0.1", 64), Fate::Delivered { device: 1 });
    assert_eq!(fate("8.8.8.8", 64), Fate::NoRoute { device: 1 });
    assert_eq!(fate("198.51.100.1", 64), Fate::Prohibited { device: 1 });
    let address = "192.0.2.10".parse().unwrap();
    assert_eq!(fate("192.0.2.10", 64), Fate::NoNeighbour { device: 2, address });
    assert_eq!(fate("192.0.2.9", 1), Fate::Expired { device: 1 });
    let mut long = datagram(1, "10.0.0.9", "192.0.2.9", 64, &[0; 1400]);
    assert_eq!(net.inject("lan", &mut long).fate, Fate::TooLong { device: 2, mtu: 1300 });
    let mut other = datagram(7, "10.0.0.9", "192.0.2.9", 64, b"");
    assert_eq!(net.inject("lan", &mut other).fate, Fate::OtherHost { device: 1 });
    let arp = skep_packets::arp(1, (mac(9), v4("10.0.0.9")), ([0; 6], v4("10.0.0.1")));
    let mut arp = Packet::new(&ethernet([0xff; 6], mac(9), &[], ethertype::ARP, &arp));
    assert_eq!(net.inject("lan", &mut arp).fate, Fate::Delivered { device: 1 });
    for length in [0, 5, 13] {
        let fate = net.inject("lan", &mut Packet::new(&vec![2; length])).fate;
        assert_eq!(fate, Fate::Malformed { device: 1 }, "{length} bytes");
    }
    let whole = datagram(1, "10.0.0.9", "192.0.2.9", 64, b"hello");
    for length in 14..14 + 20 + 8 + 5 {
        let mut cut = Packet::new(&whole.bytes()[..length]);
        assert_eq!(net.inject("lan", &mut cut).fate, Fate::Malformed { device: 1 }, "{length} bytes");
    }
    net.world
        .change(|machine| {
            machine.device_mut(1)?.up = false;
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(fate("10.0.0.1", 64), Fate::Down { device: 1 });
}

#[test]
fn programs_at_each_place_are_met_in_order() {
    let mut net = Net::new(router());
    net.put("first", "lan", Place::Xdp, &returns(2));
    net.put("second", "lan", Place::Xdp, &returns(2));
    net.put("third", "lan", Place::Ingress, &returns(-1));
    net.put("fourth", "lan", Place::Ingress, &returns(0));
    net.put("unreached", "lan", Place::Ingress, &returns(2));
    net.put("fifth", "wan", Place::Egress, &returns(3));
    let mut packet = datagram(1, "10.0.0.9", "192.0.2.9", 64, b"");
    let trace = net.inject("lan", &mut packet);
    assert_eq!(
        trace.show(&net.world.machine()).to_string(),
        "lan xdp: first pass\n\
         lan xdp: second pass\n\
         lan ingress: third unspec\n\
         lan ingress: fourth ok\n\
         wan egress: fifth pipe\n\
         sent by wan"
    );
    assert_eq!(trace.programs(), ["first", "second", "third", "fourth", "fifth"]);
}

#[test]
fn verdicts_end_the_way_as_they_say() {
    let cases = [
        (Place::Xdp, 0, "dropped by p: aborted"),
        (Place::Xdp, 1, "dropped by p: drop"),
        (Place::Xdp, 3, "sent by lan"),
        (Place::Xdp, 4, "dropped: p redirects it and names no target"),
        (Place::Xdp, 9, "dropped by p: aborted"),
        (Place::Ingress, 2, "dropped by p: shot"),
        (Place::Ingress, 4, "kept by p: stolen"),
        (Place::Ingress, 5, "kept by p: queued"),
        (Place::Ingress, 8, "kept by p: trap"),
        (Place::Ingress, 1, "delivered on lan"),
        (Place::Ingress, 77, "delivered on lan"),
        (Place::Ingress, 7, "dropped: p redirects it and names no target"),
    ];
    for (place, result, fate) in cases {
        let mut net = Net::new(router());
        net.put("p", "lan", place, &returns(result));
        let trace = net.inject("lan", &mut datagram(1, "10.0.0.9", "10.0.0.1", 64, b""));
        let text = trace.show(&net.world.machine()).to_string();
        assert_eq!(text.lines().last(), Some(fate), "{place} {result}");
    }
}

#[test]
fn redirections_lead_to_the_right_side_of_a_device() {
    // `a` (1) and `b` (2) are a pair, `out` (3) is alone.
    let machine = || {
        let mut machine = Machine::new();
        machine.add_pair(Device::new("a"), Device::new("b").namespace(1)).unwrap();
        machine.add_device(Device::new("out")).unwrap();
        machine
    };
    let cases = [
        (Place::Xdp, redirects("redirect#23", 3, 0), "sent by out", "p"),
        (Place::Ingress, redirects("redirect#23", 3, 0), "sent by out", "p egress"),
        (
            Place::Ingress,
            redirects("redirect#23", 3, 1),
            "ignored on out: it is for another machine",
            "p ingress",
        ),
        (
            Place::Ingress,
            redirects("redirect_peer#155", 1, 0),
            "ignored on b: it is for another machine",
            "p inside",
        ),
        (Place::Ingress, redirects("redirect_peer#155", 3, 0), "dropped: out has no peer", "p"),
        (Place::Ingress, redirects("redirect#23", 9, 0), "dropped: there is no device 9", "p"),
        (Place::Xdp, redirects("redirect#23", 9, 0), "dropped: there is no device 9", "p"),
    ];
    for (place, text, fate, met) in cases {
        let mut net = Net::new(machine());
        net.put("p", "out", place, &text);
        let copy = net.links.pop();
        net.put("egress", "out", Place::Egress, &returns(0));
        net.put("ingress", "out", Place::Ingress, &returns(0));
        net.put("inside", "b", Place::Ingress, &returns(0));
        // The program under test is on a device of its own.
        drop(copy);
        net.world.change(|machine| machine.add_device(Device::new("in"))).unwrap();
        net.put("p", "in", place, &text);
        let trace = net.inject("in", &mut datagram(9, "10.0.0.9", "10.0.0.1", 64, b""));
        assert_eq!(trace.show(&net.world.machine()).to_string().lines().last(), Some(fate), "{text}");
        assert_eq!(trace.programs().join(" "), met, "{text}");
    }
}

#[test]
fn what_one_end_of_a_pair_sends_comes_in_at_the_other() {
    let mut machine = Machine::new();
    let (_, inner) = machine.add_pair(Device::new("outer"), Device::new("inner").namespace(1)).unwrap();
    machine.device_mut(inner).unwrap().mtu = 1400;
    let mut net = Net::new(machine);
    net.put("back", "outer", Place::Xdp, &returns(3));
    // The ingress index and the mark that the program in the namespace sees, in the packet.
    net.put(
        "see",
        "inner",
        Place::Xdp,
        "r2 = *(u32 *)(r1 + 0)
        r3 = *(u32 *)(r1 + 4)
        r4 = *(u32 *)(r1 + 12)
        r5 = r2
        r5 += 14
        if r5 > r3 goto out
        *(u8 *)(r2 + 0) = r4
        out:
        r0 = 1
        exit",
    );
    let mut packet = datagram(1, "10.0.0.9", "10.0.0.1", 64, b"");
    packet.info.mark = 7;
    let trace = net.inject("outer", &mut packet);
    assert_eq!(trace.programs(), ["back", "see"]);
    assert_eq!((packet.bytes()[0], packet.info.mark), (inner as u8, 0));
    let mut long = Packet::new(&vec![0; 1500 + 14 + 5]);
    assert_eq!(net.inject("outer", &mut long).fate, Fate::TooLong { device: 1, mtu: 1500 });
}

#[test]
fn a_loop_is_cut_and_reported() {
    let mut machine = Machine::new();
    machine.add_pair(Device::new("a"), Device::new("b")).unwrap();
    let mut net = Net::new(machine);
    net.put("ping", "a", Place::Xdp, &returns(3));
    net.put("pong", "b", Place::Xdp, &returns(3));
    let trace = net.inject("a", &mut Packet::new(&[0; 60]));
    assert_eq!(trace.fate, Fate::Loop { steps: 256 });
    assert_eq!(trace.hops.len(), 128, "each program is followed by leaving the device");
    let mut trace = Trace::default();
    net.world.injector().max_steps(4).inject(1, &mut Packet::new(&[0; 60]), &mut trace).unwrap();
    assert_eq!((trace.fate.clone(), trace.programs()), (Fate::Loop { steps: 4 }, vec!["ping", "pong"]));
}

#[test]
fn copies_go_their_own_way() {
    let mut net = Net::new(router());
    let text = "r6 = r1
                r1 = r6
                r2 = 2
                r3 = 0
                call clone_redirect#13
                r1 = r6
                r2 = 1
                r3 = 1
                call clone_redirect#13
                r0 = 2
                exit";
    net.put("mirror", "lan", Place::Egress, text);
    net.put("only", "wan", Place::Egress, &returns(0));
    let program = net.program("out", "tc", &redirects("redirect#23", 1, 0));
    net.links.push(net.world.attach(&program, 2, Place::Ingress).unwrap());
    let mut packet = datagram(2, "192.0.2.9", "10.0.0.1", 64, b"copied");
    let bytes = packet.bytes().to_vec();
    let trace = net.inject("wan", &mut packet);
    assert_eq!(
        trace.show(&net.world.machine()).to_string(),
        "wan ingress: out redirect to lan\n\
         lan egress: mirror shot\n\
         copy 1: wan egress: only ok\n\
         dropped by mirror: shot\n\
         copy 1: sent by wan\n\
         copy 2: ignored on lan: it is for another machine"
    );
    assert!(trace.copies.iter().all(|copy| copy.packet.bytes() == bytes));
}

#[test]
fn copies_of_copies_are_bounded() {
    let mut net = Net::new(router());
    let text = "r6 = r1
                r2 = 2
                r3 = 0
                call clone_redirect#13
                r1 = r6
                r2 = 2
                r3 = 0
                call clone_redirect#13
                r0 = 0
                exit";
    net.put("hydra", "wan", Place::Egress, text);
    let program = net.program("out", "tc", &redirects("redirect#23", 2, 0));
    net.links.push(net.world.attach(&program, "lan", Place::Ingress).unwrap());
    let trace = net.inject("lan", &mut Packet::new(&[0; 60]));
    assert_eq!((trace.copies.len(), trace.fate), (1024, Fate::Sent { device: 2 }));
}

#[test]
fn a_next_hop_is_given_its_ethernet_header() {
    for (text, fate) in [
        (neighbour(Some([192, 0, 2, 9])), "sent by wan"),
        (neighbour(None), "sent by wan"),
        (neighbour(Some([192, 0, 2, 10])), "dropped: wan does not know the Ethernet address of 192.0.2.10"),
    ] {
        let mut net = Net::new(router());
        net.put("p", "lan", Place::Ingress, &text);
        let mut packet = datagram(1, "10.0.0.9", "192.0.2.9", 64, b"");
        let trace = net.inject("lan", &mut packet);
        assert_eq!(trace.show(&net.world.machine()).to_string().lines().last(), Some(fate));
        if fate.starts_with("sent") {
            assert_eq!(packet.bytes()[..12], [[2, 9, 9, 9, 9, 9], mac(2)].concat());
            assert_eq!(packet.bytes()[22], 64, "it was not forwarded by the stack");
        }
    }
}

/// `bpf_redirect_neigh` to device 2.
fn neighbour(next_hop: Option<[u8; 4]>) -> String {
    let Some(address) = next_hop else {
        return "r1 = 2\nr2 = 0\nr3 = 0\nr4 = 0\ncall redirect_neigh#152\nexit".to_owned();
    };
    format!(
        "r1 = 2
         *(u32 *)(r10 - 24) = r1
         r1 = {} ll
         *(u32 *)(r10 - 20) = r1
         r1 = 0
         *(u32 *)(r10 - 16) = r1
         *(u32 *)(r10 - 12) = r1
         *(u32 *)(r10 - 8) = r1
         r1 = 2
         r2 = r10
         r2 += -24
         r3 = 20
         r4 = 0
         call redirect_neigh#152
         exit",
        u32::from_ne_bytes(address)
    )
}

#[test]
fn programs_are_attached_where_they_fit() {
    let net = Net::new(router());
    let xdp = net.program("early", "xdp", &returns(2));
    let tc = net.program("late", "tc", &returns(0));
    let text = |result: Result<Link, Error>| result.unwrap_err().to_string();
    assert_eq!(
        text(net.world.attach(&tc, "lan", Place::Xdp)),
        "program late does not fit the hook: it has xdp programs, found one of type sched_cls"
    );
    assert!(text(net.world.attach(&xdp, 1, Place::Egress)).contains("sched_cls or sched_act programs"));
    assert_eq!(
        text(net.world.attach(&xdp, "eth0", Place::Xdp)),
        "there is no device eth0; devices: lan (1), wan (2)"
    );
    let other = Net::new(router());
    assert!(text(other.world.attach(&xdp, "lan", Place::Xdp)).contains("does not see this world"));
    // Programs of one place are of one runtime, because a run holds its read section.
    let second = Runtime::builder().world(&net.world).build().unwrap();
    let insns = assemble(&returns(2)).unwrap();
    let object = Object::from_insns("foreign", ProgramType::from_name("xdp").unwrap(), insns);
    let foreign = second.load(&object).unwrap().programs()[0].clone();
    let _link = net.world.attach(&xdp, "lan", Place::Xdp).unwrap();
    assert!(matches!(net.world.attach(&foreign, "lan", Place::Xdp), Err(Error::ForeignProgram { .. })));
}

#[test]
fn programs_leave_with_their_link_or_their_device() {
    let mut net = Net::new(router());
    net.put("filter", "lan", Place::Xdp, &returns(1));
    let mut injector = net.world.injector();
    let mut trace = Trace::default();
    let mut fate = || {
        let mut packet = datagram(1, "10.0.0.9", "10.0.0.1", 64, b"");
        injector.inject(1, &mut packet, &mut trace).unwrap();
        trace.fate.clone()
    };
    assert!(matches!(fate(), Fate::Dropped { .. }));
    net.links.clear();
    assert_eq!(fate(), Fate::Delivered { device: 1 });
    net.put("filter", "lan", Place::Xdp, &returns(1));
    assert!(matches!(fate(), Fate::Dropped { .. }));
    net.world.change(|machine| machine.remove_device(1)).unwrap();
    assert_eq!(fate(), Fate::NoDevice { device: 1 });
    let again = Device::new("again").index(1).address("10.0.0.1/24".parse().unwrap());
    net.world.change(|machine| machine.add_device(again)).unwrap();
    assert_eq!(fate(), Fate::Delivered { device: 1 }, "a new device does not have the old one's programs");
    assert_eq!(net.world.attached("again", Place::Xdp).unwrap().len(), 0);
}

#[test]
fn packets_pass_while_programs_and_routes_change() {
    let net = Net::new(router());
    let [drop_it, pass] = [1, 2].map(|result| net.program("p", "xdp", &returns(result)));
    let link = net.world.attach(&pass, "lan", Place::Xdp).unwrap();
    std::thread::scope(|scope| {
        let passing = scope.spawn(|| {
            let mut injector = net.world.injector();
            let mut trace = Trace::default();
            for _ in 0..20_000 {
                let mut packet = datagram(1, "10.0.0.9", "192.0.2.9", 64, b"");
                injector.inject(1, &mut packet, &mut trace).unwrap();
                let fates = matches!(
                    trace.fate,
                    Fate::Sent { device: 2 } | Fate::NoNeighbour { .. } | Fate::Dropped { .. }
                );
                assert!(fates && trace.hops.len() == 1, "{trace:?}");
            }
        });
        let address: IpAddr = "192.0.2.9".parse().unwrap();
        while !passing.is_finished() {
            link.replace(&drop_it).unwrap();
            net.world.change(|machine| Ok::<_, Error>(machine.remove_neighbour(2, address))).unwrap();
            link.replace(&pass).unwrap();
            net.world.change(|machine| machine.add_neighbour(2, address, MacAddr([2; 6]))).unwrap();
        }
    });
}

/// A firewall with a load balancer behind it, from their object files.
#[test]
fn a_firewall_with_a_load_balancer_behind_it() {
    let mut machine = Machine::new();
    machine.add_device(Device::new("eth0").mac("02:00:00:00:00:50".parse().unwrap())).unwrap();
    let world = World::new(machine);
    let runtime = Runtime::builder().world(&world).build().unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let module =
        |name: &str| runtime.load(&Object::open(format!("{examples}/{name}.bpf.o")).unwrap()).unwrap();
    let (firewall, balancer) = (module("firewall"), module("balancer"));
    let _first = world.attach(firewall.program("firewall").unwrap(), "eth0", Place::Xdp).unwrap();
    let _second = world.attach(&balancer.programs()[0], "eth0", Place::Xdp).unwrap();
    let ask = |from: &str, to: &str| {
        let inner = udp((v4(from).into(), 4000), (v4(to).into(), 53), b"who");
        let packet = ipv4(v4(from), v4(to), header(64), &inner);
        let mut packet = Packet::new(&ethernet(mac(0x50), mac(1), &[], ethertype::IPV4, &packet));
        let trace = world.inject("eth0", &mut packet).unwrap();
        (trace.show(&world.machine()).to_string(), packet)
    };
    let (text, packet) = ask("8.8.8.8", "203.0.113.80");
    assert_eq!(text, "eth0 xdp: firewall pass\neth0 xdp: balancer tx\nsent by eth0");
    assert_eq!(
        (packet.bytes()[..5].to_vec(), packet.bytes()[30..33].to_vec()),
        (vec![2, 0, 0, 0, 1], vec![10, 1, 0])
    );
    let (text, _) = ask("10.66.0.1", "203.0.113.80");
    assert_eq!(text, "eth0 xdp: firewall drop\ndropped by firewall: drop");
}

mod delivery;
mod receivers;
mod stack;
mod targets;

#[test]
fn metadata_of_xdp_is_seen_by_tc_and_stays_on_its_machine() {
    let mut machine = router();
    machine.add_pair(Device::new("left"), Device::new("right")).unwrap();
    let mut net = Net::new(machine);
    // Puts 0x2a before the packet.
    let put = "r6 = r1
        r2 = -4
        call xdp_adjust_meta#54
        if r0 != 0 goto out
        r2 = *(u32 *)(r6 + 8)
        r3 = *(u32 *)(r6 + 0)
        r4 = r2
        r4 += 4
        if r4 > r3 goto out
        r5 = 0x2a
        *(u32 *)(r2 + 0) = r5
        out:
        r0 = 2
        exit";
    // The mark becomes the metadata, or 1 if there is none.
    let take = "r2 = *(u32 *)(r1 + 140)
        r3 = *(u32 *)(r1 + 76)
        r5 = 1
        r4 = r2
        r4 += 4
        if r4 > r3 goto none
        r5 = *(u32 *)(r2 + 0)
        none:
        *(u32 *)(r1 + 8) = r5
        r0 = 0
        exit";
    net.put("put", "left", Place::Xdp, put);
    net.put("take", "left", Place::Ingress, take);
    let mut packet = Packet::new(&[1; 60]);
    assert_eq!(net.inject("left", &mut packet).programs(), ["put", "take"]);
    assert_eq!(packet.info.mark, 0x2a);
    // The other end of the pair is another machine's device.
    net.put("take again", "right", Place::Ingress, take);
    let tx = net.program("back", "tc", &redirects("redirect#23", 3, 0));
    net.links.push(net.world.attach(&tx, "lan", Place::Ingress).unwrap());
    let mut packet = Packet::new(&[1; 60]);
    net.put("put", "lan", Place::Xdp, put);
    let trace = net.inject("lan", &mut packet);
    assert_eq!((trace.programs(), packet.info.mark), (vec!["put", "back", "take again"], 1));
}

#[test]
fn a_change_may_ask_the_world_and_a_look_up_does_not_wait_for_it() {
    let net = Net::new(router());
    net.world
        .change(|machine| {
            assert_eq!(net.world.machine().devices().count(), 2, "the machine before the change");
            let trace = net.inject("lan", &mut datagram(1, "10.0.0.9", "192.0.2.9", 64, b""));
            assert_eq!(trace.fate, Fate::Sent { device: 2 });
            machine.remove_device(2)
        })
        .unwrap();
    let trace = net.inject("lan", &mut datagram(1, "10.0.0.9", "192.0.2.9", 64, b""));
    assert_eq!(trace.fate, Fate::NoRoute { device: 1 });
}
