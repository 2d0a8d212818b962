//! Helpers about sockets, in all three modes: compiled, interpreted, and in checking mode.

use crate::world::{Device, Machine, Protocol, Socket, SocketState};
use crate::{Context, Engine, Error, Object, Packet, Program, Runtime, World, socket_member, socket_of};
use skep_abi::{MapDef, MapKind, ProgramType};
use skep_maps::{Map, UpdateFlags};
use std::net::SocketAddr;
use std::sync::Arc;

const EINVAL: u64 = -22i64 as u64;
const EEXIST: u64 = -17i64 as u64;

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A machine with a device in each of two namespaces.
pub(crate) fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.add_device(Device::new("eth0").address("10.0.0.1/24".parse().expect("one"))).expect("added");
    machine.add_device(Device::new("eth1").namespace(7)).expect("added");
    machine
}

/// A program in a world, and its maps.
pub(crate) struct Loaded {
    pub(crate) program: Program,
    pub(crate) maps: Vec<Arc<Map>>,
    world: World,
}

pub(crate) fn try_load(kind: &str, text: &str, maps: Vec<MapDef>, machine: Machine) -> Result<Loaded, Error> {
    let kind = ProgramType::from_name(kind).unwrap_or_else(|| panic!("{kind}"));
    let bytes = skep_isa::encode_bytes(&skep_isa::assemble(text).expect("a program")).expect("its bytes");
    let object = Object::from_bytecode_and_maps("program", kind, &bytes, maps)?;
    let world = World::new(machine);
    let runtime = Runtime::builder().world(&world).build()?;
    let module = runtime.load(&object)?;
    Ok(Loaded { program: module.programs()[0].clone(), maps: module.maps().to_vec(), world })
}

pub(crate) fn load(kind: &str, text: &str, maps: Vec<MapDef>, machine: Machine) -> Loaded {
    try_load(kind, text, maps, machine).unwrap_or_else(|error| panic!("{error}"))
}

impl Loaded {
    /// The result in each mode, which must be the same, and the packet of the last run.
    pub(crate) fn on_packet(&self, make: impl Fn() -> Packet) -> (u64, Packet) {
        let mut checked = make();
        let result = self.program.run_checked(&mut checked, &mut [], 1 << 24).expect("it is interpreted");
        let result = result.unwrap_or_else(|violation| panic!("{violation}"));
        for engine in [Engine::Interpreter, Engine::Jit] {
            let mut packet = make();
            assert_eq!(self.program.run_with(engine, &mut packet).expect("a run"), result, "{engine:?}");
            let cookie = |packet: &Packet| packet.socket().map(|socket| socket.cookie);
            assert_eq!((packet.bytes(), cookie(&packet)), (checked.bytes(), cookie(&checked)));
            checked = packet;
        }
        (result, checked)
    }

    /// The same over a context.
    pub(crate) fn on_context(&self, fill: impl Fn(&mut Context)) -> (u64, Context) {
        let make = || {
            let mut context = Context::of(&self.program).expect("a context");
            fill(&mut context);
            context
        };
        let mut checked = make();
        let result = self.program.run_context_checked(&mut checked).expect("it is interpreted");
        let result = result.unwrap_or_else(|violation| panic!("{violation}"));
        for engine in [Engine::Interpreter, Engine::Jit] {
            let mut context = make();
            let other = self.program.run_context_with(engine, &mut context).expect("a run");
            assert_eq!((other, context.data()), (result, checked.data()), "{engine:?}");
            assert_eq!((context.redirect(), context.bytes()), (checked.redirect(), checked.bytes()));
            assert_eq!(context.chosen(), checked.chosen(), "{engine:?}");
            checked = context;
        }
        (result, checked)
    }
}

pub(crate) fn udp_packet(device: u32) -> Packet {
    let mut packet = Packet::new(&[0; 64]);
    packet.info.ingress_ifindex = device;
    packet
}

/// Stores a tuple of two IPv4 ends at `r10 - 36`: `from` and `to` with their ports.
fn tuple(from: &str, to: &str) -> String {
    let word = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => i32::from_ne_bytes(v4.ip().octets()),
        SocketAddr::V6(_) => panic!("{address}"),
    };
    let port = |address: SocketAddr| u16::from_ne_bytes(address.port().to_be_bytes());
    let (from, to) = (at(from), at(to));
    format!(
        "*(u32 *)(r10 - 36) = {}
         *(u32 *)(r10 - 32) = {}
         *(u16 *)(r10 - 28) = {}
         *(u16 *)(r10 - 26) = {}
",
        word(from),
        word(to),
        port(from),
        port(to)
    )
}

/// Looks a socket up, and returns 0 if there is none; otherwise what `then` does with the socket in `r6`.
pub(crate) fn looking_up(helper: u32, from: &str, to: &str, netns: i64, flags: u64, then: &str) -> String {
    format!(
        "r7 = r1
         {}
         r2 = r10
         r2 += -36
         r3 = 12
         r4 = {netns} ll
         r5 = {flags}
         call {helper}
         r6 = r0
         r0 = 0
         if r6 == 0 goto out
         {then}
    out: exit",
        tuple(from, to)
    )
}

/// Returns the socket's own port, and releases it.
const PORT: &str = "
    r8 = *(u32 *)(r6 + 44)
    r1 = r6
    call 86
    r0 = r8";

#[test]
fn sockets_are_found_by_protocol_address_namespace_and_device() {
    let mut machine = machine();
    machine.add_socket(Socket::listening(at("10.0.0.1:80"))).expect("added");
    machine.add_socket(Socket::bound(at("0.0.0.0:53"))).expect("added");
    let mut other = Socket::listening(at("10.0.0.1:81"));
    other.namespace = 7;
    machine.add_socket(other).expect("added");
    let mut on_device = Socket::bound(at("0.0.0.0:54"));
    on_device.device = Some(1);
    machine.add_socket(on_device).expect("added");
    let (tcp, udp) = (84, 85);
    let cases = [
        (tcp, "10.0.0.1:80", -1, 0, 80),
        (tcp, "10.0.0.2:80", -1, 0, 0),
        (udp, "10.0.0.1:80", -1, 0, 0),
        (udp, "10.9.9.9:53", -1, 0, 53),
        (udp, "10.9.9.9:54", -1, 0, 54),
        (tcp, "10.0.0.1:81", -1, 0, 0),
        (tcp, "10.0.0.1:81", 7, 0, 81),
        (tcp, "10.0.0.1:80", 7, 0, 0),
        (tcp, "10.0.0.1:80", 0, 0, 80),
        (tcp, "10.0.0.1:80", 0xffff_ffff, 0, 80), // a negative number of 32 bits
        (tcp, "10.0.0.1:80", 1 << 32, 0, 0),
        (tcp, "10.0.0.1:80", -1, 1, 0),
    ];
    for kind in ["xdp", "tc"] {
        for (helper, to, netns, flags, port) in cases {
            let text = looking_up(helper, "192.0.2.1:999", to, netns, flags, PORT);
            let loaded = load(kind, &text, Vec::new(), machine.clone());
            let (result, _) = loaded.on_packet(|| udp_packet(1));
            assert_eq!(result, port, "{kind}: {helper} {to} {netns} {flags}");
        }
        // From the other namespace.
        let text = looking_up(tcp, "192.0.2.1:999", "10.0.0.1:81", -1, 0, PORT);
        let loaded = load(kind, &text, Vec::new(), machine.clone());
        assert_eq!(loaded.on_packet(|| udp_packet(2)).0, 81);
        assert_eq!(loaded.on_packet(|| udp_packet(1)).0, 0);
        // A change of the machine is seen.
        loaded
            .world
            .change(|machine| machine.add_socket(Socket::listening(at("10.0.0.1:81"))))
            .expect("added");
        assert_eq!(loaded.on_packet(|| udp_packet(1)).0, 81);
    }
}

#[test]
fn both_families_are_found_and_other_sizes_are_not() {
    let mut machine = machine();
    machine.add_socket(Socket::listening(at("[2001:db8::1]:80"))).expect("added");
    // 2001:db8::2 port 999 to 2001:db8::1 port 80.
    let text = |size: u32| {
        format!(
            "*(u32 *)(r10 - 36) = 0xb80d0120
             *(u32 *)(r10 - 32) = 0
             *(u32 *)(r10 - 28) = 0
             *(u32 *)(r10 - 24) = 0x02000000
             *(u32 *)(r10 - 20) = 0xb80d0120
             *(u32 *)(r10 - 16) = 0
             *(u32 *)(r10 - 12) = 0
             *(u32 *)(r10 - 8) = 0x01000000
             *(u32 *)(r10 - 4) = 0x5000e703
             r2 = r10
             r2 += -36
             r3 = {size}
             r4 = -1
             r5 = 0
             call 84
             r6 = r0
             r0 = 0
             if r6 == 0 goto out
             {PORT}
        out: exit"
        )
    };
    for (size, port) in [(36, 80), (12, 0), (16, 0), (0, 0), (35, 0)] {
        let loaded = load("tc", &text(size), Vec::new(), machine.clone());
        assert_eq!(loaded.on_packet(|| udp_packet(1)).0, port, "{size} bytes");
    }
}

fn with_state(state: SocketState, local: &str, remote: Option<&str>) -> Socket {
    let mut socket = match remote {
        Some(remote) => Socket::connected(Protocol::Tcp, at(local), at(remote)),
        None => Socket::listening(at(local)),
    };
    socket.state = state;
    socket.tcp.snd_cwnd = 10;
    socket.tcp.bytes_acked = 1 << 40;
    socket.tcp.icsk_retransmits = 3;
    socket
}

/// What a cast by that helper leads to: the number of `bytes` bytes at `offset` of it, plus 1000; 1 if it is null.
fn casting(helper: u32, bytes: u32, offset: u32) -> String {
    format!(
        "r8 = 1
         r1 = r6
         call {helper}
         if r0 == 0 goto done
         r8 = *(u{} *)(r0 + {offset})
         r8 += 1000
   done: r1 = r6
         call 86
         r0 = r8",
        8 * bytes
    )
}

#[test]
fn requests_and_closing_connections_are_found_as_what_they_are_only_by_the_common_look_up() {
    let mut machine = machine();
    let states = [
        ("10.0.0.1:80", Some("192.0.2.1:1"), SocketState::TimeWait),
        ("10.0.0.1:80", Some("192.0.2.1:2"), SocketState::NewSynReceived),
        ("10.0.0.1:80", Some("192.0.2.1:3"), SocketState::Established),
        ("0.0.0.0:80", None, SocketState::Listen),
    ];
    for (local, remote, state) in states {
        machine.add_socket(with_state(state, local, remote)).expect("added");
    }
    let state = "r8 = *(u32 *)(r6 + 72)\nr1 = r6\ncall 86\nr0 = r8";
    // By client: the state that each look-up finds, and what the casts give.
    let (full, tcp, listener) = (casting(95, 4, 72), casting(96, 4, 0), casting(98, 4, 72));
    let cases = [
        ("192.0.2.1:1", [6, 0, 1, 1, 1]),
        ("192.0.2.1:2", [12, 10, 1, 1, 1010]),
        ("192.0.2.1:3", [1, 1, 1001, 1010, 1]),
        ("192.0.2.1:4", [10, 10, 1010, 1010, 1010]),
    ];
    for (from, expected) in cases {
        let run = |helper, then: &str| {
            let text = looking_up(helper, from, "10.0.0.1:80", -1, 0, then);
            load("tc", &text, Vec::new(), machine.clone()).on_packet(|| udp_packet(1)).0
        };
        let found = [run(99, state), run(84, state), run(99, &full), run(99, &tcp), run(99, &listener)];
        assert_eq!(found, expected, "from {from}");
    }
}

#[test]
fn all_numbers_of_tcp_are_read_also_after_a_cast_of_a_cast() {
    let mut machine = machine();
    machine.add_socket(with_state(SocketState::Listen, "10.0.0.1:80", None)).expect("added");
    for (bytes, offset, value) in [(4, 0, 10), (8, 88, 1 << 40), (4, 108, 3), (4, 96, 0)] {
        // `bpf_tcp_sock` of a `bpf_tcp_sock` is the same.
        let then = format!(
            "r8 = 0
             r1 = r6
             call 96
             if r0 == 0 goto done
             r1 = r0
             call 96
             if r0 == 0 goto done
             r8 = *(u{} *)(r0 + {offset})
       done: r1 = r6
             call 86
             r0 = r8",
            8 * bytes
        );
        let text = looking_up(84, "192.0.2.1:1", "10.0.0.1:80", -1, 0, &then);
        let loaded = load("tc", &text, Vec::new(), machine.clone());
        assert_eq!(loaded.on_packet(|| udp_packet(1)).0, value, "offset {offset}");
    }
}

#[test]
fn a_loop_of_look_ups_keeps_each_socket_once() {
    let mut machine = machine();
    machine.add_socket(Socket::listening(at("10.0.0.1:80"))).expect("added");
    let text = format!(
        "r6 = r1
         r7 = 100
   next: r1 = r6
         {}
         r2 = r10
         r2 += -36
         r3 = 12
         r4 = -1
         r5 = 0
         call 84
         if r0 == 0 goto none
         r1 = r0
         call 86
   none: r7 += -1
         if r7 != 0 goto next
         r0 = 0
         exit",
        tuple("192.0.2.1:1", "10.0.0.1:80")
    );
    let loaded = load("tc", &text, Vec::new(), machine);
    let (_, mut packet) = loaded.on_packet(|| udp_packet(1));
    assert_eq!(packet.effects.sockets.as_ref().map(|sockets| sockets.held.len()), Some(1));
    // A run of a program that finds none holds none.
    let none = load("tc", "r0 = 0\nexit", Vec::new(), Machine::new());
    none.program.run(&mut packet).expect("a run");
    assert!(packet.effects.sockets.is_none());
}

#[test]
fn a_socket_cannot_be_used_after_its_release_nor_be_lost() {
    let then =
        ["r1 = r6\ncall 86\nr0 = *(u32 *)(r6 + 44)", "r1 = r6\ncall 86\nr1 = r6\ncall 86\nr0 = 0", "r0 = 0"];
    for then in then {
        let text = looking_up(84, "192.0.2.1:1", "10.0.0.1:80", -1, 0, then);
        let refused = try_load("tc", &text, Vec::new(), machine());
        assert!(matches!(refused, Err(Error::Refused { .. })), "{then}");
    }
}

#[test]
fn a_look_up_keeps_its_socket_when_the_machine_loses_it() {
    let mut machine = machine();
    let socket = machine.add_socket(Socket::listening(at("10.0.0.1:80"))).expect("added");
    let text = looking_up(84, "192.0.2.1:1", "10.0.0.1:80", -1, 0, PORT);
    let loaded = load("tc", &text, Vec::new(), machine);
    let mut packet = udp_packet(1);
    assert_eq!(loaded.program.run(&mut packet).expect("a run"), 80);
    loaded
        .world
        .change(|machine| machine.remove_socket(socket.cookie).map(drop).ok_or("it is not there"))
        .expect("removed");
    assert_eq!(Arc::strong_count(&socket), 2, "ours, and that of the packet's last run");
    assert_eq!(loaded.program.run(&mut packet).expect("a run"), 0);
    assert_eq!(Arc::strong_count(&socket), 1);
}

const ASSIGN: &str = "
    r1 = r7
    r2 = r6
    r3 = 0
    call 124
    r8 = r0
    r1 = r6
    call 86
    r0 = r8";

#[test]
fn a_classifier_assigns_a_packet_to_a_socket_of_its_namespace() {
    let mut machine = machine();
    let socket = machine.add_socket(Socket::listening(at("10.0.0.1:80"))).expect("added");
    let mut other = Socket::listening(at("10.0.0.1:81"));
    other.namespace = 7;
    machine.add_socket(other).expect("added");
    let text = looking_up(84, "192.0.2.1:1", "10.0.0.1:80", -1, 0, ASSIGN);
    let loaded = load("tc", &text, Vec::new(), machine.clone());
    let (result, mut packet) = loaded.on_packet(|| udp_packet(1));
    assert_eq!((result, packet.socket()), (0, Some(&socket)));
    let outcome = loaded.program.outcome(&mut udp_packet(1)).expect("a run");
    assert_eq!(outcome.socket, Some(socket.clone()));
    // The next program sees it.
    let reads = load(
        "tc",
        "r1 = *(u64 *)(r1 + 168)\nr0 = 0\nif r1 == 0 goto +1\nr0 = *(u32 *)(r1 + 44)\nexit",
        Vec::new(),
        Machine::new(),
    );
    assert_eq!(reads.program.run(&mut packet).expect("a run") & 0xffff_ffff, 80);
    // Fields of the packet's socket change at once.
    let now = ASSIGN
        .replace("r0 = r8", "r1 = *(u64 *)(r7 + 168)\nr0 = 1\nif r1 == 0 goto out\nr0 = *(u32 *)(r1 + 44)");
    let text = looking_up(84, "192.0.2.1:1", "10.0.0.1:80", -1, 0, &now);
    assert_eq!(load("tc", &text, Vec::new(), machine.clone()).on_packet(|| udp_packet(1)).0, 80);
    // A socket of another namespace; a packet that leaves; flags.
    let run = |text: &str, packet: &dyn Fn() -> Packet| {
        let (result, packet) = load("tc", text, Vec::new(), machine.clone()).on_packet(packet);
        assert!(packet.socket().is_none());
        result as i64
    };
    let text = looking_up(84, "192.0.2.1:1", "10.0.0.1:81", 7, 0, ASSIGN);
    assert_eq!(run(&text, &|| udp_packet(1)), -101);
    let text = looking_up(84, "192.0.2.1:1", "10.0.0.1:80", -1, 0, ASSIGN);
    let leaving = || {
        let mut packet = udp_packet(0);
        packet.info.ifindex = 1;
        packet
    };
    assert_eq!(run(&text, &leaving), -95);
    assert_eq!(run(&text.replace("r3 = 0\n", "r3 = 1\n"), &|| udp_packet(1)) as u64, EINVAL);
}

pub(crate) fn sockets(kind: MapKind) -> MapDef {
    MapDef::new("sockets", kind, 4, 8, 4)
}

/// The socket at the key in the map goes to `r6`; 99 is returned if there is none.
pub(crate) const FROM_MAP: &str = "
    r7 = r1
    *(u32 *)(r10 - 4) = 0
    r2 = r10
    r2 += -4
    r1 = map[0] ll
    call 1
    r6 = r0
    r0 = 1
    if r6 == 0 goto out
";

#[test]
fn a_look_up_program_selects_a_socket_that_waits_for_packets() {
    let listening = Arc::new(Socket::listening(at("10.0.0.1:80")));
    let cases = [
        (Arc::clone(&listening), 6, 0, 0),
        (Arc::clone(&listening), 17, 0, -91),
        (Arc::clone(&listening), 6, 8, -22),
        (Arc::new(Socket::connected(Protocol::Tcp, at("10.0.0.1:80"), at("10.0.0.2:9"))), 6, 0, -94),
        (Arc::new(Socket::bound(at("[::]:53"))), 17, 0, 0),
    ];
    for (socket, protocol, flags, expected) in cases {
        // The error is negated: a look-up program returns 0 or 1, so it is compared.
        let text = format!(
            "{FROM_MAP}
             r1 = r7
             r2 = r6
             r3 = {flags}
             call 124
             r8 = r0
             r1 = r6
             call 86
             r0 = 1
             if r8 == {expected} goto out
             r0 = 0
        out: exit"
        );
        let loaded = load("sk_lookup", &text, vec![sockets(MapKind::Sockmap)], Machine::new());
        let member = socket_member(Arc::clone(&socket));
        loaded.maps[0].set_member(&[0; 4], member, UpdateFlags::Any).expect("set");
        let (result, context) = loaded.on_context(|context| {
            context.set("family", 2).expect("a field");
            context.set("protocol", protocol).expect("a field");
        });
        assert_eq!(result, 1, "{socket:?} {protocol} {flags}");
        let chosen = (expected == 0).then_some(&socket);
        assert_eq!((context.chosen(), context.socket("sk")), (chosen, chosen));
    }
}

#[test]
fn a_selected_socket_is_replaced_only_on_demand_and_none_may_be_selected() {
    let listening = || Some(Arc::new(Socket::listening(at("10.0.0.1:80"))));
    let select = |flags: u32, expected: u64| {
        format!(
            "r2 = 0
             r3 = {flags}
             call 124
             r1 = r0
             r0 = 1
             if r1 == {} goto +1
             r0 = 0
             exit",
            expected as i64
        )
    };
    for (flags, expected, kept) in [(0, EEXIST, true), (1, 0, false)] {
        let loaded = load("sk_lookup", &select(flags, expected), Vec::new(), Machine::new());
        let (result, context) = loaded.on_context(|context| {
            context.set_socket("sk", listening()).expect("it fits");
        });
        assert_eq!((result, context.socket("sk").is_some()), (1, kept));
    }
}

#[test]
fn cookies_users_and_namespaces_are_those_of_the_socket() {
    let socket = |state| {
        let mut socket = with_state(state, "10.0.0.1:80", Some("192.0.2.1:1"));
        (socket.cookie, socket.uid, socket.namespace) = (1 << 33, 1234, 7);
        Arc::new(socket)
    };
    let calls = |helper: u32| format!("call {helper}\nexit");
    let run = |kind: &str, helper, with: Option<Arc<Socket>>| {
        let loaded = load(kind, &calls(helper), Vec::new(), machine());
        let packet = || {
            let mut packet = udp_packet(0);
            packet.set_socket(with.clone());
            packet
        };
        loaded.on_packet(packet).0
    };
    for kind in ["tc", "socket", "sk_skb"] {
        assert_eq!(run(kind, 46, Some(socket(SocketState::Established))), 1 << 33);
        assert_eq!(run(kind, 46, None), 0);
        assert_eq!(run(kind, 47, Some(socket(SocketState::Established))), 1234);
        assert_eq!(run(kind, 47, Some(socket(SocketState::TimeWait))), 65534);
        assert_eq!(run(kind, 47, None), 65534);
    }
    // Of contexts: a socket operation, an address, and the socket itself. The results of some are 0 or 1.
    let compared = |helper: u32, expected: u64| {
        format!("call {helper}\nr1 = r0\nr2 = {expected} ll\nr0 = 1\nif r1 == r2 goto +1\nr0 = 0\nexit")
    };
    for kind in ["sockops", "cgroup/connect4", "cgroup/sock_create", "sk_msg"] {
        for (helper, expected) in [(46, 1 << 33), (122, 8)] {
            if kind == "sk_msg" && helper == 46 {
                continue;
            }
            let loaded = load(kind, &compared(helper, expected), Vec::new(), machine());
            let (result, _) = loaded.on_context(|context| {
                context.set_socket("sk", Some(socket(SocketState::Established))).expect("it fits");
            });
            assert_eq!(result, 1, "{kind}: {helper}");
        }
    }
    // Passed as an argument.
    let text = "r1 = *(u64 *)(r1 + 40)\ncall 46\nr1 = 1 ll\nr1 <<= 33\nif r0 == r1 goto +2\nr0 = 0\nexit\nr0 = 1\nexit";
    let (result, _) = load("sk_reuseport", text, Vec::new(), Machine::new()).on_context(|context| {
        context.set_socket("sk", Some(socket(SocketState::Listen))).expect("it fits");
    });
    assert_eq!(result, 1);
    // The namespace of nothing is the first.
    let null = format!("r1 = 0\n{}", compared(122, 1));
    let (result, _) = load("sockops", &null, Vec::new(), Machine::new()).on_context(|_| ());
    assert_eq!(result, 1);
}

#[test]
fn a_context_that_is_a_socket_has_its_fields() {
    let text = "r0 = *(u32 *)(r1 + 16)\nr0 &= 1\n*(u32 *)(r1 + 16) = 6\nexit";
    let loaded = load("cgroup/sock_create", text, Vec::new(), Machine::new());
    let mut socket = Socket::bound(at("10.0.0.1:80"));
    socket.mark = 5;
    let socket = Arc::new(socket);
    let (result, context) =
        loaded.on_context(|context| context.set_socket("sk", Some(Arc::clone(&socket))).expect("it fits"));
    assert_eq!((result, context.field("mark").expect("a field")), (1, 6));
    assert_eq!(context.socket("sk"), Some(&socket));
}

#[test]
fn sockets_that_are_not_the_runtimes_are_refused_as_arguments_at_load() {
    let queues = MapDef::new("queues", MapKind::Xskmap, 4, 4, 4);
    let text = "
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0] ll
        call 1
        if r0 == 0 goto out
        r1 = r0
        call 95
   out: r0 = 0
        exit";
    let refused = try_load("tc", text, vec![queues.clone()], Machine::new());
    let error = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("xskmap"), "{error}");
    // Reading one is allowed.
    let reads = text.replace("r1 = r0\n        call 95", "r0 = *(u32 *)(r0 + 0)");
    load("tc", &reads, vec![queues], Machine::new());
}

#[test]
fn members_of_maps_survive_their_release_and_their_removal() {
    let text = format!("{FROM_MAP}\nr8 = *(u32 *)(r6 + 44)\nr1 = r6\ncall 86\nr0 = r8\nout: exit");
    for kind in [MapKind::Sockmap, MapKind::Sockhash] {
        let loaded = load("tc", &text, vec![sockets(kind)], Machine::new());
        let socket = Arc::new(Socket::listening(at("10.0.0.1:80")));
        assert_eq!(loaded.on_packet(|| udp_packet(1)).0, 1);
        let member = socket_member(Arc::clone(&socket));
        loaded.maps[0].set_member(&[0; 4], member, UpdateFlags::Any).expect("set");
        for _ in 0..3 {
            assert_eq!(loaded.on_packet(|| udp_packet(1)).0, 80);
        }
        let member = loaded.maps[0].member(&[0; 4]).expect("a map of members").expect("one");
        assert_eq!(socket_of(&member), Some(Arc::clone(&socket)));
        loaded.maps[0].delete(&[0; 4]).expect("removed");
        assert_eq!(loaded.on_packet(|| udp_packet(1)).0, 1);
        assert_eq!(socket_of(&member), Some(socket));
    }
}
