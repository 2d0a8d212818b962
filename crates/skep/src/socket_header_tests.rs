//! Helpers about options of TCP headers, and control groups of sockets, in all three modes.

use crate::Context;
use crate::socket_map_tests::{EINVAL, connected, is, with};
use crate::socket_tests::{at, load, machine, udp_packet};
use crate::world::{Machine, Socket};
use std::sync::Arc;

/// A TCP header of 20 bytes, and these options.
fn header(options: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[12] = 0x50;
    header.extend_from_slice(options);
    header
}

/// A program over a header, whose option of 8 bytes is at `r10 - 8`.
fn with_option(helper: u32, bytes: [u8; 8], len: u32, flags: u32, expected: i64, then: &str) -> String {
    format!(
        "r6 = r1
         r1 = {} ll
         *(u64 *)(r10 - 8) = r1
         r1 = r6
         r2 = r10
         r2 += -8
         r3 = {len}
         r4 = {flags}
         call {helper}
         r1 = {expected}
         if r0 != r1 goto bad
         {then}
         r0 = 1
         exit
    bad: r0 = 0
         exit",
        u64::from_ne_bytes(bytes)
    )
}

fn over_header(text: &str, op: u64, options: &[u8], room: u8) -> (u64, Context) {
    let loaded = load("sockops", text, Vec::new(), Machine::new());
    let mut socket = connected();
    socket.options = crate::world::SocketOptions::new();
    socket.options.set(6, 1005, &header(&[2, 4, 5, 0xb4]));
    let socket = with(&Arc::new(socket));
    loaded.on_context(|context| {
        socket(context);
        context.set("op", op).expect("a field");
        context.set_data(&header(options)).expect("data");
        context.set_option_room(room);
    })
}

/// The header's options; what is asked for, in how many bytes, with flags; the result, and a check of the bytes.
type Search<'a> = (&'a [u8], [u8; 8], u32, u32, i64, String);

#[test]
fn options_of_headers_are_found_by_their_kind_and_magic() {
    let all = [1, 3, 3, 7, 254, 6, 0xeb, 0x9f, 1, 2, 253, 4, 0xeb, 0x9f];
    let found = |bytes: &[u8]| {
        let checks = bytes
            .iter()
            .enumerate()
            .map(|(at, byte)| format!("r1 = *(u8 *)(r10 - {})\nif r1 != {byte} goto bad\n", 8 - at));
        checks.collect::<String>()
    };
    let none = String::new();
    let one = |kind| [kind, 0, 0, 0, 0, 0, 0, 0];
    let magic = |kind, len, a, b| [kind, len, a, b, 0, 0, 0, 0];
    let cases: [Search<'_>; 14] = [
        (&all, one(3), 8, 0, 3, found(&[3, 3, 7, 0])),
        (&all, one(3), 2, 0, -28, found(&[3, 3, 0])),
        (&all, one(8), 8, 0, -42, none.clone()),
        (&all, magic(254, 4, 0xeb, 0x9f), 8, 0, 6, found(&[254, 6, 0xeb, 0x9f, 1, 2])),
        (&all, magic(253, 4, 0xeb, 0x9f), 8, 0, 4, found(&[253, 4])),
        (&all, magic(254, 4, 0xeb, 0x9e), 8, 0, -42, none.clone()),
        (&all, magic(254, 5, 0xeb, 0x9f), 8, 0, EINVAL, none.clone()),
        (&all, magic(254, 6, 0xeb, 0x9f), 4, 0, EINVAL, none.clone()),
        (&all, magic(3, 3, 0, 0), 8, 0, EINVAL, none.clone()),
        (&all, one(1), 8, 0, EINVAL, none.clone()),
        (&all, one(3), 8, 2, EINVAL, none.clone()),
        (&all, one(2), 8, 1, 4, found(&[2, 4, 5, 0xb4])), // of the SYN
        (&[0, 3, 3, 7], one(3), 8, 0, -42, none.clone()), // behind the end
        (&[5, 9], one(3), 8, 0, -14, none.clone()),       // longer than the header
    ];
    for (options, bytes, len, flags, expected, then) in cases {
        let text = with_option(142, bytes, len, flags, expected, &then);
        assert_eq!(over_header(&text, 13, options, 0).0, 1, "{bytes:?} {len} {flags}");
    }
    // An operation without a header.
    let text = with_option(142, one(3), 8, 0, -1, "");
    assert_eq!(over_header(&text, 14, &all, 0).0, 1);
}

/// The operation, the header's options, the new one with its size and flags, the room, the result.
type Append<'a> = (u64, &'a [u8], [u8; 8], u32, u32, u8, i64);

#[test]
fn options_are_appended_to_headers_with_room() {
    let option = [254, 6, 0xeb, 0x9f, 1, 2, 0, 0];
    // The program sees the new end.
    let seen = "r2 = *(u64 *)(r6 + 192)\nr3 = *(u64 *)(r6 + 200)\nr4 = r2\nr4 += 26\nif r4 > r3 goto bad\n\
                r1 = *(u8 *)(r2 + 25)\nif r1 != 2 goto bad";
    let (result, context) = over_header(&with_option(143, option, 8, 0, 0, seen), 15, &[], 12);
    assert_eq!((result, context.data(), context.option_room()), (1, &*header(&option[..6]), 6));
    let cases: [Append<'_>; 8] = [
        (14, &[], option, 8, 0, 12, -1),
        (15, &[], option, 8, 1, 12, EINVAL),
        (15, &[], option, 5, 0, 12, EINVAL),
        (15, &[], [254, 3, 1, 0, 0, 0, 0, 0], 8, 0, 12, EINVAL),
        (15, &[], [0, 2, 0, 0, 0, 0, 0, 0], 8, 0, 12, EINVAL),
        (15, &[], option, 8, 0, 5, -28),
        (15, &option[..6], option, 8, 0, 12, -17),
        (15, &[0, 0], option, 8, 0, 12, -28),
    ];
    for (op, options, bytes, len, flags, room, expected) in cases {
        let text = with_option(143, bytes, len, flags, expected, "");
        let (result, context) = over_header(&text, op, options, room);
        assert_eq!((result, context.data()), (1, &*header(options)), "{op} {options:?} {bytes:?}");
        assert_eq!(context.option_room(), room);
    }
}

#[test]
fn room_for_options_is_taken_once() {
    for (op, bytes, flags, expected, left) in [
        (14, 12, 0, 0, 28),
        (14, 41, 0, -28, 40),
        (14, 1, 0, EINVAL, 40),
        (14, 4, 1, EINVAL, 40),
        (15, 4, 0, -1, 40),
    ] {
        let text = format!("r2 = {bytes}\nr3 = {flags}\ncall 144\n{}", is(expected));
        let (result, context) = over_header(&text, op, &[], 200);
        assert_eq!((result, context.option_room()), (1, left), "{op} {bytes} {flags}");
    }
}

#[test]
fn control_groups_of_sockets_are_found_by_level() {
    let mut machine = machine();
    for (id, parent) in [(1, None), (5, Some(1))] {
        machine.cgroups.insert(id, crate::world::Cgroup { id, parent, ..crate::world::Cgroup::default() });
    }
    let mut socket = Socket::listening(at("10.0.0.1:80"));
    socket.cgroup = 5;
    let socket = Arc::new(socket);
    for (call, expected) in [
        ("call 128", 5),
        ("r2 = 0\ncall 129", 1),
        ("r2 = 1\ncall 129", 5),
        ("r2 = 2\ncall 129", 0),
        ("r2 = -1\ncall 129", 0),
    ] {
        let text = format!(
            "r1 = *(u64 *)(r1 + 168)\nr0 = 0\nif r1 == 0 goto out\ncall 95\nif r0 == 0 goto out\nr1 = r0\n{call}\n{}\n\
             out: exit",
            is(expected)
        );
        let loaded = load("cgroup_skb/ingress", &text, Vec::new(), machine.clone());
        let (result, _) = loaded.on_packet(|| {
            let mut packet = udp_packet(1);
            packet.set_socket(Some(Arc::clone(&socket)));
            packet
        });
        assert_eq!(result, 1, "{call}");
    }
}
