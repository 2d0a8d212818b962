//! Helpers about options of sockets, maps of sockets and messages, in all three modes.

use crate::socket_tests::{FROM_MAP, Loaded, at, load, looking_up, machine, sockets, udp_packet};
use crate::world::{Machine, Protocol, Socket, SocketState};
use crate::{Context, Engine, Packet, Redirect, socket_member, socket_of};
use skep_abi::MapKind;
use skep_maps::{Member, UpdateFlags};
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) const EINVAL: i64 = -22;

pub(crate) fn connected() -> Socket {
    Socket::connected(Protocol::Tcp, at("10.0.0.1:80"), at("192.0.2.1:999"))
}

/// Passes 4 bytes of `value` at `r10 - 8` to the helper, with that length.
fn option(helper: u32, level: i32, name: i32, value: i32, len: u32) -> String {
    format!(
        "*(u64 *)(r10 - 8) = 0
         *(u32 *)(r10 - 8) = {value}
         r1 = r6
         r2 = {level}
         r3 = {name}
         r4 = r10
         r4 += -8
         r5 = {len}
         call {helper}
"
    )
}

/// Returns 1 if `r0` is that number, otherwise 0.
pub(crate) fn is(expected: i64) -> String {
    format!("r1 = r0\nr2 = {expected} ll\nr0 = 1\nif r1 == r2 goto +1\nr0 = 0\nexit")
}

pub(crate) fn with(socket: &Arc<Socket>) -> impl Fn(&mut Context) + use<> {
    let socket = Arc::clone(socket);
    move |context: &mut Context| {
        // The options are the socket's: each mode begins with the same.
        let fresh = Arc::new(Socket::clone(&socket));
        context.set_socket("sk", Some(fresh)).expect("it fits");
        let _ = context.set("is_fullsock", 1);
    }
}

#[test]
fn options_keep_what_a_program_sets_within_their_ranges() {
    let tcp = connected();
    let udp = Socket::connected(Protocol::Udp, at("[2001:db8::1]:80"), at("[2001:db8::2]:9"));
    // Socket, level, name, value, and what is read after that; `Err` if it cannot be set.
    let cases = [
        (&tcp, 1, 2, 5, Ok(1)),
        (&tcp, 1, 7, 5000, Ok(10_000)),
        (&tcp, 1, 7, 1, Ok(4608)),
        (&tcp, 1, 8, i32::MAX, Ok(425_984)),
        (&tcp, 1, 9, -1, Ok(1)),
        (&tcp, 1, 12, 3, Ok(3)),
        (&tcp, 1, 18, 0, Ok(1)),
        (&tcp, 1, 18, -5, Ok(i32::MAX)),
        (&tcp, 1, 36, 77, Ok(77)),
        (&tcp, 0, 1, 0x10, Ok(0x10)),
        (&tcp, 0, 1, 256, Err(())),
        (&tcp, 6, 4, 0, Err(())),
        (&tcp, 6, 4, 32_767, Ok(32_767)),
        (&tcp, 6, 6, 128, Err(())),
        (&tcp, 6, 999, 1, Err(())),
        (&tcp, 7, 1, 1, Err(())),
        (&tcp, 41, 67, 1, Err(())), // an IPv4 socket
        (&udp, 41, 67, 1, Ok(1)),
        (&udp, 0, 1, 1, Err(())),  // an IPv6 socket
        (&udp, 6, 4, 60, Err(())), // not TCP
    ];
    for kind in ["sockops", "cgroup/connect4", "cgroup/setsockopt"] {
        // The last has an argument in place of the context.
        let start = if kind == "cgroup/setsockopt" { "r6 = *(u64 *)(r1 + 0)\n" } else { "r6 = r1\n" };
        for (socket, level, name, value, read) in cases {
            let set = option(49, level, name, value, 4);
            let get = option(57, level, name, -1, 4);
            let expected = match read {
                Ok(_) => "if r0 != 0 goto bad".to_owned(),
                Err(()) => format!("if r0 != {EINVAL} goto bad"),
            };
            let value = read.unwrap_or_default();
            let then = if read.is_ok() {
                format!("{get}\nif r0 != 0 goto bad\nr1 = *(s32 *)(r10 - 8)\nif r1 != {value} goto bad")
            } else {
                String::new()
            };
            let text = format!("{start}{set}{expected}\n{then}\nr0 = 1\nexit\nbad: r0 = 0\nexit");
            let (result, context) =
                load(kind, &text, Vec::new(), Machine::new()).on_context(with(&Arc::new(socket.clone())));
            assert_eq!(result, 1, "{kind}: {level} {name}");
            let kept = context.socket("sk").expect("it has one").options.number(level, name);
            assert_eq!(kept, read.ok(), "{kind}: {level} {name}");
        }
    }
}

#[test]
fn options_that_fail_zero_the_programs_memory_and_lengths_are_checked() {
    for (helper, name, len, expected, left) in [
        (57, 999, 4, EINVAL, 0),
        (57, 36, 3, EINVAL, 0),
        (57, 36, 8, EINVAL, 0),
        (49, 36, 3, EINVAL, 7),
        (57, 36, 4, 0, 5),
    ] {
        let text = format!(
            "r6 = r1\n{}\nr1 = *(u32 *)(r10 - 8)\nif r1 != {left} goto bad\n{}\nbad: r0 = 0\nexit",
            option(helper, 1, name, 7, len),
            is(expected)
        );
        let mut socket = connected();
        socket.mark = 5;
        let loaded = load("sockops", &text, Vec::new(), Machine::new());
        assert_eq!(loaded.on_context(with(&Arc::new(socket))).0, 1, "{helper} {name} {len}");
    }
    // Without a socket there are none.
    let text = format!("r6 = r1\n{}\n{}", option(57, 1, 36, 7, 4), is(EINVAL));
    assert_eq!(load("sockops", &text, Vec::new(), Machine::new()).on_context(|_| ()).0, 1);
}

#[test]
fn a_mark_that_is_set_is_read_in_the_socket_by_this_run_and_the_next() {
    let set = format!(
        "r6 = r1
         {}
         r1 = *(u64 *)(r6 + 184)
         if r1 == 0 goto bad
         r1 = *(u32 *)(r1 + 16)
         if r1 != 9 goto bad
         r0 = 1
         exit
    bad: r0 = 0
         exit",
        option(49, 1, 36, 9, 4)
    );
    let (result, context) =
        load("sockops", &set, Vec::new(), Machine::new()).on_context(with(&Arc::new(connected())));
    assert_eq!(result, 1);
    let marked = Arc::clone(context.socket("sk").expect("one"));
    let mut packet = Packet::new(&[0; 64]);
    packet.set_socket(Some(marked));
    let read = "r1 = *(u64 *)(r1 + 168)\nr0 = 0\nif r1 == 0 goto out\ncall 95\nif r0 == 0 goto out\n\
                r0 = *(u32 *)(r0 + 16)\nout: exit";
    let reads = load("tc", read, Vec::new(), Machine::new());
    assert_eq!(reads.program.run(&mut packet).expect("a run"), 9);
}

#[test]
fn names_of_congestion_controls_are_kept_and_cut_off() {
    // "reno" is set; 4 bytes of it are read.
    let text = format!(
        "r6 = r1
         {}
         if r0 != 0 goto bad
         {}
         if r0 != 0 goto bad
         r1 = *(u32 *)(r10 - 8)
         if r1 != 0x6e6572 goto bad
         r0 = 1
         exit
    bad: r0 = 0
         exit",
        option(49, 6, 13, i32::from_ne_bytes(*b"reno"), 5),
        option(57, 6, 13, -1, 4)
    );
    let (result, context) =
        load("sockops", &text, Vec::new(), Machine::new()).on_context(with(&Arc::new(connected())));
    assert_eq!(result, 1);
    assert_eq!(context.socket("sk").expect("one").options.get(6, 13), Some(b"reno".to_vec()));
    // The first letters of what nobody has set.
    let text = format!("r6 = r1\n{}\nr0 = *(u32 *)(r10 - 8)\n{}", option(57, 6, 13, 0, 8), is(0x6962_7563));
    let loaded = load("sockops", &text, Vec::new(), Machine::new());
    assert_eq!(loaded.on_context(with(&Arc::new(connected()))).0, 1);
}

#[test]
fn flags_of_socket_operations_are_set_if_the_socket_is_full() {
    for (flags, full, result, kept) in [(0x7f, 1, 0, 0x7f), (0x181, 1, 0x180, 1), (1, 0, EINVAL, 0)] {
        let text = format!("r2 = {flags}\ncall 59\n{}", is(result));
        let (same, context) = load("sockops", &text, Vec::new(), Machine::new()).on_context(|context| {
            context.set("is_fullsock", full).expect("a field");
        });
        assert_eq!((same, context.field("bpf_sock_ops_cb_flags").expect("a field")), (1, kept), "{flags:x}");
    }
}

#[test]
fn a_connecting_socket_is_bound_to_a_free_address_of_its_machine() {
    let unbound = || Socket::connected(Protocol::Tcp, at("0.0.0.0:0"), at("192.0.2.1:999"));
    let mut machine = machine();
    machine.add_socket(Socket::listening(at("10.0.0.1:81"))).expect("added");
    let cases = [
        (2, "10.0.0.1:0", 16, 0),
        (2, "10.0.0.1:80", 16, 0),
        (2, "10.0.0.1:81", 16, -98),
        (2, "10.0.0.2:0", 16, -99),
        (2, "0.0.0.0:0", 16, 0),
        (2, "10.0.0.1:0", 15, EINVAL),
        (2, "10.0.0.1:0", 1, EINVAL),
        (10, "10.0.0.1:0", 16, EINVAL),
        (1, "10.0.0.1:0", 16, -97),
    ];
    for (family, address, len, expected) in cases {
        let SocketAddr::V4(v4) = at(address) else { panic!("{address}") };
        let text = format!(
            "*(u64 *)(r10 - 16) = 0
             *(u64 *)(r10 - 8) = 0
             *(u16 *)(r10 - 16) = {family}
             *(u16 *)(r10 - 14) = {}
             *(u32 *)(r10 - 12) = {}
             r2 = r10
             r2 += -16
             r3 = {len}
             call 64
             {}",
            u16::from_ne_bytes(v4.port().to_be_bytes()),
            i32::from_ne_bytes(v4.ip().octets()),
            is(expected)
        );
        let loaded = load("cgroup/connect4", &text, Vec::new(), machine.clone());
        let (result, context) = loaded.on_context(with(&Arc::new(unbound())));
        assert_eq!(result, 1, "{family} {address} {len}");
        assert_eq!(context.bound(), (expected == 0).then(|| at(address)));
        // A socket that is bound already.
        let loaded = load(
            "cgroup/connect4",
            &text.replace(&format!("r2 = {expected} ll"), "r2 = -22 ll"),
            Vec::new(),
            machine.clone(),
        );
        if !matches!(expected, -97) {
            assert_eq!(loaded.on_context(with(&Arc::new(connected()))).0, 1, "{family} {address} {len}");
        }
    }
}

#[test]
fn socket_operations_store_connections_when_they_are_established() {
    for (helper, kind) in [(53, MapKind::Sockmap), (70, MapKind::Sockhash)] {
        for (op, flags, expected) in
            [(4, 0, 0), (5, 1, 0), (11, 0, 0), (3, 0, -95), (4, 2, -2), (4, 9, EINVAL)]
        {
            let text = format!(
                "*(u32 *)(r10 - 4) = 2
                 r2 = map[0] ll
                 r3 = r10
                 r3 += -4
                 r4 = {flags}
                 call {helper}
                 {}",
                is(expected)
            );
            for engine in [None, Some(Engine::Jit), Some(Engine::Interpreter)] {
                let loaded = load("sockops", &text, vec![sockets(kind)], Machine::new());
                let mut context = Context::of(&loaded.program).expect("a context");
                let mut socket = connected();
                socket.cookie = 4711;
                with(&Arc::new(socket))(&mut context);
                context.set("op", op).expect("a field");
                let result = match engine {
                    Some(engine) => loaded.program.run_context_with(engine, &mut context).expect("a run"),
                    None => loaded
                        .program
                        .run_context_checked(&mut context)
                        .expect("a run")
                        .expect("no violation"),
                };
                assert_eq!(result, 1, "{helper} {op} {flags} {engine:?}");
                let member = loaded.maps[0].member(&2u32.to_ne_bytes()).expect("of sockets");
                assert_eq!(member.is_some(), expected == 0);
                let same = member.and_then(|member| socket_of(&member));
                assert_eq!(same.as_ref(), context.socket("sk").filter(|_| expected == 0));
                // The context's own socket stays alive in the map.
                drop(context);
                assert_eq!(same.map(|socket| socket.cookie), (expected == 0).then_some(4711));
            }
        }
    }
}

#[test]
fn a_program_copies_a_socket_from_one_map_to_another() {
    let text = format!(
        "{FROM_MAP}
         r1 = map[1] ll
         r2 = r10
         r2 += -4
         r3 = r6
         r4 = 0
         call 2
         r8 = r0
         r1 = r6
         call 86
         r0 = r8
    out: exit"
    );
    let listening = Arc::new(Socket::listening(at("10.0.0.1:80")));
    let closed = Arc::new({
        let mut socket = connected();
        socket.state = SocketState::CloseWait;
        socket
    });
    for kind in [MapKind::Sockmap, MapKind::Sockhash] {
        let mut other = sockets(kind);
        other.name = "other".into();
        for (socket, expected) in [(&listening, 0), (&closed, -95)] {
            let loaded = load("tc", &text, vec![sockets(MapKind::Sockmap), other.clone()], Machine::new());
            loaded.maps[0]
                .set_member(&[0; 4], socket_member(Arc::clone(socket)), UpdateFlags::Any)
                .expect("set");
            assert_eq!(loaded.on_packet(|| udp_packet(1)).0 as i64, expected, "{kind:?}");
            let copy =
                loaded.maps[1].member(&[0; 4]).expect("of sockets").and_then(|member| socket_of(&member));
            assert_eq!(copy.as_ref(), Some(socket).filter(|_| expected == 0));
            // It outlives the first map's element.
            loaded.maps[0].delete(&[0; 4]).expect("removed");
            if let Some(copy) = copy {
                assert_eq!(copy.local, at("10.0.0.1:80"));
                assert!(loaded.maps[1].member(&[0; 4]).expect("of sockets").is_some());
            }
        }
    }
    // A host's bytes are never taken for a socket.
    let loaded =
        load("tc", &text, vec![sockets(MapKind::Sockmap), sockets(MapKind::Sockhash)], Machine::new());
    for map in &loaded.maps {
        assert!(map.update(&[0; 4], &[0x41; 8], UpdateFlags::Any).is_err());
    }
}

/// Redirects to the socket with the key 0.
fn redirecting(helper: u32, flags: u32, by_key: bool) -> String {
    let key = if by_key { "r3 = r10\nr3 += -4" } else { "r3 = 0" };
    format!("*(u32 *)(r10 - 4) = 0\nr2 = map[0] ll\n{key}\nr4 = {flags}\ncall {helper}\nexit")
}

#[test]
fn streams_are_redirected_to_connected_sockets_of_maps() {
    let target = |state| {
        let mut socket = connected();
        (socket.cookie, socket.state) = (55, state);
        Arc::new(socket)
    };
    let to = |ingress| Some(Redirect::Stream { cookie: 55, ingress });
    for (kind, helper, map, by_key) in [
        ("sk_skb", 52, MapKind::Sockmap, false),
        ("sk_skb", 72, MapKind::Sockhash, true),
        ("sk_msg", 60, MapKind::Sockmap, false),
        ("sk_msg", 71, MapKind::Sockhash, true),
    ] {
        for (flags, state, verdict, redirect) in [
            (0, Some(SocketState::Established), 1, to(false)),
            (1, Some(SocketState::Established), 1, to(true)),
            (2, Some(SocketState::Established), 0, None),
            (0, Some(SocketState::Listen), 0, None),
            (0, None, 0, None),
        ] {
            let loaded = load(kind, &redirecting(helper, flags, by_key), vec![sockets(map)], Machine::new());
            let socket = state.map(target);
            if let Some(socket) = &socket {
                let member = socket_member(Arc::clone(socket));
                loaded.maps[0].set_member(&[0; 4], member, UpdateFlags::Any).expect("set");
            }
            let chosen = socket.filter(|_| redirect.is_some());
            if kind == "sk_skb" {
                assert_eq!(loaded.on_packet(|| udp_packet(1)).0, verdict, "{helper} {flags} {state:?}");
                let outcome = loaded.program.outcome(&mut udp_packet(1)).expect("a run");
                assert_eq!((outcome.redirect, outcome.socket), (redirect, chosen));
                let mut packet = udp_packet(1);
                loaded.program.run(&mut packet).expect("a run");
                assert!(packet.socket().is_none(), "it does not become the packet's");
            } else {
                let (result, context) = loaded.on_context(with(&Arc::new(connected())));
                assert_eq!((result, context.redirect()), (verdict, redirect), "{helper} {flags} {state:?}");
                assert_eq!(context.chosen(), chosen.as_ref());
                assert_ne!(context.socket("sk").map(|socket| socket.cookie), Some(55));
            }
        }
    }
}

#[test]
fn a_redirection_to_an_object_of_the_host_has_its_number() {
    let loaded = load("sk_msg", &redirecting(60, 0, false), vec![sockets(MapKind::Sockmap)], Machine::new());
    let own = Member::new(99, Arc::new("a connection of the host"));
    loaded.maps[0].set_member(&[0; 4], own, UpdateFlags::Any).expect("set");
    let (result, context) = loaded.on_context(with(&Arc::new(connected())));
    assert_eq!((result, context.redirect()), (1, Some(Redirect::Stream { cookie: 99, ingress: false })));
    assert_eq!(context.chosen(), None);
}

fn message(loaded: &Loaded, bytes: &[u8]) -> (u64, Context) {
    let socket = with(&Arc::new(connected()));
    loaded.on_context(|context| {
        socket(context);
        context.set_data(bytes).expect("a message");
        context.set("size", bytes.len() as u64).expect("a field");
    })
}

/// The call's result, and then the first byte that is seen, the bytes that are seen and the size; then the result of
/// the whole is a number of them.
fn changing(helper: u32, start: u32, len: u32, flags: u32) -> String {
    format!(
        "r6 = r1
         r2 = {start}
         r3 = {len}
         r4 = {flags}
         call {helper}
         r8 = r0
         r2 = *(u64 *)(r6 + 0)
         r3 = *(u64 *)(r6 + 8)
         r4 = r2
         r4 += 1
         r7 = 0
         if r4 > r3 goto +1
         r7 = *(u8 *)(r2 + 0)
         r8 &= 0xff
         r8 <<= 16
         r0 = *(u32 *)(r6 + 68)
         r0 <<= 8
         r0 += r7
         r0 += r8
         exit"
    )
}

#[test]
fn messages_are_seen_in_part_grow_and_shrink() {
    /// Helper, start, length or end, flags; the result, the first byte seen, the message.
    type Case = (u32, u32, u32, u32, u64, u8, &'static [u8]);
    let failed = EINVAL as u64 & 0xff;
    let cases: [Case; 16] = [
        (63, 2, 5, 0, 0, b'c', b"abcdef"),
        (63, 0, 6, 0, 0, b'a', b"abcdef"),
        (63, 0, 7, 0, failed, b'a', b"abcdef"),
        (63, 3, 3, 0, failed, b'a', b"abcdef"),
        (63, 0, 6, 1, failed, b'a', b"abcdef"),
        (90, 0, 2, 0, 0, 0, b"\0\0abcdef"),
        (90, 3, 1, 0, 0, b'a', b"abc\0def"),
        (90, 6, 1, 0, 0, b'a', b"abcdef\0"),
        (90, 7, 1, 0, failed, b'a', b"abcdef"),
        (90, 0, 0, 0, 0, b'a', b"abcdef"),
        (90, 0, 1, 1, failed, b'a', b"abcdef"),
        (91, 0, 2, 0, 0, b'c', b"cdef"),
        (91, 4, 2, 0, 0, b'a', b"abcd"),
        (91, 5, 2, 0, failed, b'a', b"abcdef"),
        (91, 0, 0x7fff_ffff, 0, failed, b'a', b"abcdef"),
        (91, 0, 6, 0, 0, 0, b""),
    ];
    for (helper, start, len, flags, status, first, bytes) in cases {
        let loaded = load("sk_msg", &changing(helper, start, len, flags), Vec::new(), Machine::new());
        let (result, context) = message(&loaded, b"abcdef");
        let expected = (status << 16) + ((bytes.len() as u64) << 8) + u64::from(first);
        assert_eq!((result, context.data()), (expected, bytes), "{helper} {start} {len} {flags}");
        assert_eq!(context.field("size").expect("a field"), bytes.len() as u64);
    }
    // A loop cannot take the host's memory.
    let text = "r6 = r1\nr7 = 40\nnext: r1 = r6\nr2 = 0\nr3 = 100000\nr4 = 0\ncall 90\nr7 += -1\n\
                if r7 != 0 goto next\nexit";
    let (result, context) = message(&load("sk_msg", text, Vec::new(), Machine::new()), b"abcdef");
    assert_eq!((result as i64, context.data().len()), (-12, 1_000_006));
}

#[test]
fn a_message_cannot_be_read_by_an_address_from_before_it_moved() {
    let text = "r6 = r1\nr7 = *(u64 *)(r1 + 0)\nr8 = *(u64 *)(r1 + 8)\nr2 = 0\nr3 = 8\nr4 = 0\ncall 90\nr1 = r7\n\
                r1 += 1\nif r1 > r8 goto +1\nr0 = *(u8 *)(r7 + 0)\nr0 = 1\nexit";
    let refused = crate::socket_tests::try_load("sk_msg", text, Vec::new(), Machine::new());
    assert!(matches!(refused, Err(crate::Error::Refused { .. })));
}

#[test]
fn verdicts_are_for_as_many_bytes_as_a_program_says() {
    let text = "r6 = r1\nr2 = 100\ncall 61\nr1 = r6\nr2 = 200\ncall 62\nexit";
    let loaded = load("sk_msg", text, Vec::new(), Machine::new());
    let (result, mut context) = message(&loaded, b"abc");
    assert_eq!((result, context.apply_bytes(), context.cork_bytes()), (0, Some(100), Some(200)));
    // The next run has not said so.
    let silent = load("sk_msg", "r0 = 1\nexit", Vec::new(), Machine::new());
    silent.program.run_context(&mut context).expect("a run");
    assert_eq!((context.apply_bytes(), context.cork_bytes()), (None, None));
}

#[test]
fn a_group_chooses_a_socket_of_its_protocol_and_family() {
    let text = |flags: u32, expected: i64| {
        format!(
            "*(u32 *)(r10 - 4) = 0
             r2 = map[0] ll
             r3 = r10
             r3 += -4
             r4 = {flags}
             call 82
             {}",
            is(expected)
        )
    };
    let group = Arc::new(Socket::bound(at("0.0.0.0:53")));
    let (same, tcp, six) = (
        Socket::bound(at("10.0.0.1:53")),
        Socket::listening(at("10.0.0.1:53")),
        Socket::bound(at("[2001:db8::1]:53")),
    );
    for kind in [MapKind::ReuseportSockarray, MapKind::Sockmap, MapKind::Sockhash] {
        for (socket, flags, expected) in [
            (Some(&same), 0, 0),
            (Some(&same), 1, EINVAL),
            (None, 0, -2),
            (Some(&tcp), 0, -91),
            (Some(&six), 0, -97),
        ] {
            let loaded = load("sk_reuseport", &text(flags, expected), vec![sockets(kind)], Machine::new());
            let socket = socket.map(|socket| Arc::new(socket.clone()));
            if let Some(socket) = &socket {
                let member = socket_member(Arc::clone(socket));
                loaded.maps[0].set_member(&[0; 4], member, UpdateFlags::Any).expect("set");
            }
            let (result, context) = loaded
                .on_context(|context| context.set_socket("sk", Some(Arc::clone(&group))).expect("fits"));
            assert_eq!(result, 1, "{kind:?} {flags} {expected}");
            assert_eq!(context.chosen(), socket.as_ref().filter(|_| expected == 0));
        }
    }
}

/// Headers in the stack: 20 bytes of IPv4 at `r10 - 80`, 20 bytes of TCP at `r10 - 60`. `r6` is the socket.
fn headers(helper: u32, flags: u32, acknowledged: &str) -> String {
    format!(
        "*(u32 *)(r10 - 80) = 0x45
         *(u32 *)(r10 - 76) = 0
         *(u32 *)(r10 - 72) = 0
         *(u32 *)(r10 - 68) = 0x010200c0
         *(u32 *)(r10 - 64) = 0x0100000a
         *(u32 *)(r10 - 60) = 0x5000e703
         *(u32 *)(r10 - 56) = 0x01000000
         *(u32 *)(r10 - 52) = 0
         {acknowledged}
         *(u32 *)(r10 - 48) = {}
         *(u32 *)(r10 - 44) = 0
         r1 = r6
         r2 = r10
         r2 += -80
         r3 = 20
         r4 = r10
         r4 += -60
         r5 = 20
         call {helper}
",
        0x50 | flags << 8
    )
}

#[test]
fn a_listening_socket_gives_cookies_and_knows_them_again() {
    let mut machine = machine();
    machine.add_socket(Socket::listening(at("10.0.0.1:80"))).expect("added");
    machine
        .add_socket(Socket::connected(Protocol::Tcp, at("10.0.0.1:81"), at("192.0.2.1:999")))
        .expect("added");
    // The ACK has the sequence number of the SYN and one more, and acknowledges the cookie and one more.
    let known = "r7 += 1\nr7 = be32 r7\n*(u32 *)(r10 - 52) = r7\n*(u32 *)(r10 - 56) = 0x02000000";
    let (syn, ack) = (2, 16);
    let round = |wrong: &str| {
        format!(
            "{}\nr7 = r0\nif r0 s< 0 goto done\n{wrong}\n{}\nr7 = r0\ndone: r1 = r6\ncall 86\nr0 = r7",
            headers(110, syn, ""),
            headers(100, ack, known)
        )
    };
    let run = |to: &str, then: &str| {
        let text = looking_up(84, "192.0.2.1:999", to, -1, 0, then);
        let loaded = load("tc", &text, Vec::new(), machine.clone());
        loaded.program.run(&mut udp_packet(1)).expect("a run") as i64
    };
    let all = |to: &str, then: &str| {
        let text = looking_up(84, "192.0.2.1:999", to, -1, 0, then);
        load("tc", &text, Vec::new(), machine.clone()).on_packet(|| udp_packet(1)).0 as i64
    };
    assert_eq!(all("10.0.0.1:80", &round("")), 0);
    assert_eq!(all("10.0.0.1:80", &round("r7 += 1")), -2);
    assert_eq!(all("10.0.0.1:81", &round("")), EINVAL, "a socket that does not listen");
    let once = |helper, flags| format!("{}\nr7 = r0\nr1 = r6\ncall 86\nr0 = r7", headers(helper, flags, ""));
    assert_eq!(run("10.0.0.1:80", &once(110, ack)), EINVAL, "an ACK gets no cookie");
    assert_eq!(run("10.0.0.1:80", &once(100, syn)), -2, "a SYN acknowledges none");
    assert_eq!(run("10.0.0.1:80", &once(110, syn)) >> 32, 536, "the size of segments");
}

#[test]
fn a_socket_found_in_a_map_stays_the_same_while_the_host_replaces_it() {
    // The port and the numbers of TCP are read far apart: both are those of one socket.
    let text = format!(
        "{FROM_MAP}
         r7 = *(u32 *)(r6 + 44)
         r1 = r6
         call 96
         r8 = 0
         if r0 == 0 goto done
         r8 = *(u32 *)(r0 + 0)
   done: r1 = r6
         call 86
         r0 = 1
         if r7 == r8 goto out
         r0 = 0
    out: exit"
    );
    let loaded = load("tc", &text, vec![sockets(MapKind::Sockmap)], Machine::new());
    let member = |port: u16| {
        let mut socket = Socket::listening(([10, 0, 0, 1], port).into());
        socket.tcp.snd_cwnd = port.into();
        socket_member(Arc::new(socket))
    };
    let (map, program) = (&loaded.maps[0], &loaded.program);
    let done = std::sync::atomic::AtomicBool::new(false);
    let finished = || done.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for engine in [Engine::Jit, Engine::Interpreter] {
            scope.spawn(move || {
                let mut packet = udp_packet(1);
                while !finished() {
                    assert_eq!(program.run_with(engine, &mut packet).expect("a run"), 1);
                }
            });
        }
        for round in 0..20_000u16 {
            map.set_member(&[0; 4], member(round + 1), UpdateFlags::Any).expect("set");
            if round % 16 == 0 {
                map.delete(&[0; 4]).expect("removed");
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
