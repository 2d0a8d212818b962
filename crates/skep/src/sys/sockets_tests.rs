//! Sockets of clients in maps, as clients put them there.

use super::tests::{Attr, File, INT, Process};
use skep_sys::{ClientSocket, ClientState, Command, Errno};

const ARRAY: u32 = 2;
const SOCKMAP: u32 = 15;
const SOCKHASH: u32 = 18;
const REUSEPORT: u32 = 20;
const SK_STORAGE: u32 = 24;
const SK_MSG: u32 = 16;
const SK_SKB: u32 = 14;
/// `BPF_SK_SKB_STREAM_PARSER`, `BPF_SK_SKB_STREAM_VERDICT`, `BPF_SK_MSG_VERDICT`, `BPF_SK_SKB_VERDICT`.
const PARSER: u32 = 4;
const VERDICT: u32 = 5;
const MESSAGE: u32 = 7;
const ANY_VERDICT: u32 = 38;
const NOEXIST: u64 = 1;
const EXIST: u64 = 2;

/// A socket of TCP over IPv4 in that state.
fn tcp(cookie: u64, state: ClientState) -> ClientSocket {
    ClientSocket {
        cookie,
        family: 2,
        kind: 1,
        protocol: 6,
        state,
        reuse_port: false,
        local: Some(([127, 0, 0, 1], 80).into()),
        remote: (state == ClientState::Established).then_some(([127, 0, 0, 1], 999).into()),
    }
}

fn udp(cookie: u64, port: u16) -> ClientSocket {
    let local = Some(([127, 0, 0, 1], port).into());
    ClientSocket { kind: 2, protocol: 17, local, ..tcp(cookie, ClientState::Other) }
}

impl Process {
    fn socket(&mut self, socket: ClientSocket) -> i32 {
        let descriptor = self.free_descriptor();
        self.files.insert(descriptor, File::Socket(socket));
        descriptor
    }

    fn put_socket(&mut self, map: i32, key: u32, descriptor: i64, flags: u64) -> Result<i64, Errno> {
        self.update(map, &key.to_ne_bytes(), &descriptor.to_ne_bytes(), flags)
    }

    /// The cookie in an element.
    fn cookie(&mut self, map: i32, key: u32) -> Result<u64, Errno> {
        let room = self.put(&[0; 8]);
        self.element(Command::MapLookupElem, map, &key.to_ne_bytes(), room, 0)?;
        Ok(u64::from_ne_bytes(self.get(room, 8).try_into().unwrap()))
    }

    fn remove(&mut self, map: i32, key: u32) -> Result<i64, Errno> {
        self.element(Command::MapDeleteElem, map, &key.to_ne_bytes(), 0, 0)
    }

    fn attached(&mut self, map: i32, kind: u32, attach_type: u32) -> i32 {
        let program = self.load_with(kind, "r0 = 1\nexit", 0, 0).0.unwrap() as i32;
        let attr = Attr::default().u32(0, map as u32).u32(4, program as u32).u32(8, attach_type).u32(12, 0);
        self.call(Command::ProgAttach, &attr).unwrap();
        program
    }

    /// The socket is closed: the next call that looks is told so.
    fn close(&mut self, descriptor: i32, cookie: u64) {
        self.files.remove(&descriptor);
        self.closed_sockets.push(cookie);
    }
}

#[test]
fn sockets_that_maps_take_are_those_that_linux_takes() {
    use ClientState::{Established, Listening, Other};
    let unix = |kind: u32, state| ClientSocket { family: 1, kind, protocol: 0, local: None, ..tcp(7, state) };
    let vsock = |kind: u32, state| ClientSocket { family: 40, ..unix(kind, state) };
    let taken = [
        tcp(7, Established),
        tcp(7, Listening),
        ClientSocket { family: 10, ..tcp(7, Established) },
        udp(7, 53),
        ClientSocket { family: 10, ..udp(7, 53) },
        unix(1, Established),
        unix(2, Other),
        unix(5, Other),
        vsock(1, Established),
        vsock(5, Established),
        vsock(2, Other),
    ];
    let refused = [
        tcp(7, Other),
        udp(7, 0),
        unix(1, Listening),
        unix(1, Other),
        vsock(1, Listening),
        vsock(5, Other),
        // SCTP, UDP-Lite, MPTCP, raw, netlink, packets.
        ClientSocket { protocol: 132, ..tcp(7, Established) },
        ClientSocket { protocol: 136, ..udp(7, 53) },
        ClientSocket { protocol: 262, ..tcp(7, Established) },
        ClientSocket { kind: 3, protocol: 17, ..udp(7, 53) },
        ClientSocket { family: 16, kind: 3, protocol: 0, ..udp(7, 53) },
        ClientSocket { family: 17, kind: 3, protocol: 0, ..udp(7, 53) },
    ];
    let mut process = Process::new();
    for kind in [SOCKMAP, SOCKHASH] {
        let map = process.map(kind, 4, 8, 4).unwrap();
        for (sockets, answer) in [(&taken[..], Ok(0)), (&refused[..], Err(Errno::EOPNOTSUPP))] {
            for socket in sockets {
                let descriptor = process.socket(socket.clone());
                assert_eq!(process.put_socket(map, 1, descriptor.into(), 0), answer, "{socket:?}");
                // What cannot be there at all is refused before flags and keys are looked at.
                let wrong = if answer.is_ok() { Errno::EINVAL } else { Errno::EOPNOTSUPP };
                assert_eq!(process.put_socket(map, 99, descriptor.into(), 3), Err(wrong), "{socket:?}");
            }
        }
        assert_eq!(process.cookie(map, 1), Ok(7));
    }
}

#[test]
fn errors_of_updates_come_in_linuxs_order() {
    let mut process = Process::new();
    for kind in [SOCKMAP, SOCKHASH] {
        let map = process.map(kind, 4, 8, 2).unwrap();
        let [one, other, third] =
            [10, 11, 12].map(|cookie| process.socket(tcp(cookie, ClientState::Established)));
        assert_eq!(process.put_socket(map, 99, 1 << 31, 9), Err(Errno::EINVAL));
        assert_eq!(process.put_socket(map, 99, 1 << 32, 9), Err(Errno::EINVAL));
        assert_eq!(process.put_socket(map, 99, -1, 9), Err(Errno::EINVAL));
        assert_eq!(process.put_socket(map, 99, 77, 9), Err(Errno::EBADF));
        assert_eq!(process.put_socket(map, 99, 0, 9), Err(Errno::ENOTSOCK));
        assert_eq!(process.put_socket(map, 99, map.into(), 9), Err(Errno::ENOTSOCK), "an object of bpf(2)");
        assert_eq!(process.put_socket(map, 99, one.into(), 9), Err(Errno::EINVAL));
        let beyond = process.put_socket(map, 99, one.into(), EXIST);
        assert_eq!(beyond, Err(if kind == SOCKMAP { Errno::E2BIG } else { Errno::ENOENT }));
        assert_eq!(process.put_socket(map, 0, one.into(), EXIST), Err(Errno::ENOENT));
        assert_eq!(process.put_socket(map, 0, one.into(), NOEXIST), Ok(0));
        assert_eq!(process.put_socket(map, 0, other.into(), NOEXIST), Err(Errno::EEXIST));
        assert_eq!(process.put_socket(map, 0, other.into(), EXIST), Ok(0));
        assert_eq!(process.cookie(map, 0), Ok(11));
        assert_eq!(process.put_socket(map, 1, other.into(), 0), Ok(0), "it may be there twice");
        if kind == SOCKHASH {
            assert_eq!(process.put_socket(map, 2, third.into(), 0), Err(Errno::E2BIG), "it is full");
        }
        assert_eq!(process.cookie(map, 2), Err(Errno::ENOENT));
        let [beyond, gone] = match kind {
            SOCKMAP => [Errno::EINVAL, Errno::EINVAL],
            _ => [Errno::ENOENT, Errno::ENOENT],
        };
        assert_eq!(process.remove(map, 99), Err(beyond));
        assert_eq!(process.remove(map, 0), Ok(0));
        assert_eq!(process.remove(map, 0), Err(gone));
        let small = process.map(kind, 4, 4, 2).unwrap();
        let key = 0u32.to_ne_bytes();
        process.update(small, &key, &one.to_ne_bytes(), 0).unwrap();
        assert_eq!(process.update(small, &key, &(-1i32).to_ne_bytes(), 0), Err(Errno::EINVAL));
        let room = process.put(&[0; 4]);
        assert_eq!(process.element(Command::MapLookupElem, small, &key, room, 0), Err(Errno::ENOSPC));
    }
}

#[test]
fn a_socket_that_is_closed_is_in_no_map_any_more_not_even_in_a_frozen_one() {
    let mut process = Process::new();
    let [array, table] = [SOCKMAP, SOCKHASH].map(|kind| process.map(kind, 4, 8, 8).unwrap());
    let [one, other] = [10, 11].map(|cookie| process.socket(tcp(cookie, ClientState::Established)));
    let unseen = process.socket(ClientSocket { family: 1, kind: 2, protocol: 0, local: None, ..udp(12, 0) });
    for map in [array, table] {
        for (key, socket) in [(0, one), (1, other), (2, one), (3, unseen)] {
            process.put_socket(map, key, socket.into(), 0).unwrap();
        }
        process.call(Command::MapFreeze, &Attr::default().u32(0, map as u32)).unwrap();
    }
    process.close(one, 10);
    process.close(unseen, 12);
    for map in [array, table] {
        let found = [0, 1, 2, 3].map(|key| process.cookie(map, key));
        assert_eq!(found, [Err(Errno::ENOENT), Ok(11), Err(Errno::ENOENT), Err(Errno::ENOENT)]);
    }
    let room = process.put(&[0; 4]);
    let next = |process: &mut Process, attr: Attr| process.call(Command::MapGetNextKey, &attr.u64(16, room));
    next(&mut process, Attr::default().u32(0, table as u32).u64(8, 0)).unwrap();
    assert_eq!(process.get(room, 4), 1u32.to_ne_bytes());
    process.close(other, 11);
    let none = next(&mut process, Attr::default().u32(0, table as u32).u64(8, 0));
    assert_eq!(none, Err(Errno::ENOENT), "walks take notice as well");
}

#[test]
fn a_socket_takes_one_program_of_each_kind_from_the_maps_that_it_is_put_into() {
    let mut process = Process::new();
    let [plain, streams, other, any, messages] = [(); 5].map(|()| process.map(SOCKMAP, 4, 8, 4).unwrap());
    let socket = process.socket(tcp(10, ClientState::Established));
    let put = |process: &mut Process, map| process.put_socket(map, 0, socket.into(), 0);
    put(&mut process, plain).unwrap();
    for (map, attach_type) in [(streams, PARSER), (streams, VERDICT), (other, VERDICT), (any, ANY_VERDICT)] {
        process.attached(map, SK_SKB, attach_type);
    }
    process.attached(messages, SK_MSG, MESSAGE);
    // A program that comes later is not the socket's.
    process.attached(plain, SK_SKB, VERDICT);
    put(&mut process, streams).unwrap();
    assert_eq!(put(&mut process, other), Err(Errno::EBUSY));
    assert_eq!(put(&mut process, any), Err(Errno::EBUSY), "a verdict of either kind");
    assert_eq!(put(&mut process, streams), Err(Errno::EBUSY), "even where it is");
    assert_eq!(put(&mut process, plain), Err(Errno::EBUSY));
    put(&mut process, messages).unwrap();
    assert_eq!(put(&mut process, messages), Err(Errno::EBUSY));
    // Out of range comes first, what the flags ask for comes later.
    assert_eq!(process.put_socket(other, 9, socket.into(), NOEXIST), Err(Errno::E2BIG));
    assert_eq!(process.put_socket(streams, 0, socket.into(), NOEXIST), Err(Errno::EBUSY));
    process.remove(streams, 0).unwrap();
    put(&mut process, any).unwrap();
    assert_eq!(put(&mut process, messages), Err(Errno::EBUSY), "that one is another kind's");
    for map in [plain, any, messages] {
        process.remove(map, 0).unwrap();
    }
    put(&mut process, messages).unwrap();
    // Another socket in its place, and its own end, let it go.
    let second = process.socket(tcp(11, ClientState::Established));
    process.put_socket(messages, 0, second.into(), 0).unwrap();
    put(&mut process, plain).unwrap();
    process.close(socket, 10);
    assert_eq!(process.cookie(plain, 0), Err(Errno::ENOENT));
    let lacking = process.system.engine().lacking();
    assert!(lacking.iter().any(|(lack, _)| lack.name.contains("a socket of the machine")), "{lacking:?}");
}

#[test]
fn groups_take_sockets_that_receive_for_them_and_each_of_them_once() {
    let mut process = Process::new();
    let [map, second] = [(); 2].map(|()| process.map(REUSEPORT, 4, 8, 2).unwrap());
    let shared = |socket| ClientSocket { reuse_port: true, ..socket };
    let listens = process.socket(shared(tcp(10, ClientState::Listening)));
    let bound = process.socket(shared(udp(11, 53)));
    assert_eq!(process.put_socket(map, 9, -1, 3), Err(Errno::EINVAL));
    assert_eq!(process.put_socket(map, 9, -1, 0), Err(Errno::E2BIG));
    assert_eq!(process.put_socket(map, 0, -1, 0), Err(Errno::EINVAL));
    assert_eq!(process.put_socket(map, 0, 77, EXIST), Err(Errno::EBADF));
    assert_eq!(process.put_socket(map, 0, 0, EXIST), Err(Errno::ENOTSOCK));
    let raw = process.socket(ClientSocket { kind: 3, ..udp(12, 53) });
    assert_eq!(process.put_socket(map, 0, raw.into(), EXIST), Err(Errno::ENOENT));
    assert_eq!(process.put_socket(map, 0, raw.into(), 0), Err(Errno::ENOTSUPP));
    for socket in [
        tcp(13, ClientState::Listening),
        shared(tcp(14, ClientState::Established)),
        shared(udp(15, 0)),
        udp(16, 53),
    ] {
        let descriptor = process.socket(socket.clone());
        assert_eq!(process.put_socket(map, 0, descriptor.into(), 0), Err(Errno::EINVAL), "{socket:?}");
    }
    process.put_socket(map, 0, listens.into(), NOEXIST).unwrap();
    assert_eq!(process.put_socket(map, 0, listens.into(), NOEXIST), Err(Errno::EEXIST));
    for (map, key) in [(map, 0), (map, 1), (second, 0)] {
        assert_eq!(process.put_socket(map, key, listens.into(), 0), Err(Errno::EBUSY));
    }
    process.put_socket(map, 0, bound.into(), EXIST).unwrap();
    assert_eq!(process.cookie(map, 0), Ok(11));
    process.put_socket(second, 0, listens.into(), 0).unwrap();
    process.close(bound, 11);
    assert_eq!((process.cookie(map, 0), process.cookie(second, 0)), (Err(Errno::ENOENT), Ok(10)));
    assert_eq!(process.remove(map, 0), Err(Errno::ENOENT));
    assert_eq!(process.remove(map, 2), Err(Errno::E2BIG));
    let small = process.map(REUSEPORT, 4, 4, 2).unwrap();
    let key = 0u32.to_ne_bytes();
    assert_eq!(process.update(small, &key, &(-1i32).to_ne_bytes(), 0), Err(Errno::EBADF));
}

#[test]
fn values_belong_to_sockets_of_any_kind_and_end_with_them() {
    let mut process = Process::new();
    let types = process.put(INT);
    let attr = Attr::default().u64(0, types).u32(16, INT.len() as u32);
    let types = process.call(Command::BtfLoad, &attr).unwrap() as u32;
    // BPF_F_NO_PREALLOC.
    let attr = Attr::default().u32(0, SK_STORAGE).u32(4, 4).u32(8, 4).u32(16, 1);
    let map = process.call(Command::MapCreate, &attr.u32(48, types).u32(52, 1).u32(56, 1)).unwrap() as i32;
    let [one, other] = [
        process.socket(tcp(10, ClientState::Other)),
        process.socket(ClientSocket { family: 16, kind: 3, protocol: 0, local: None, ..udp(11, 0) }),
    ];
    let far = process.socket(udp(1 << 40, 53));
    let file = process.map(ARRAY, 4, 4, 1).unwrap();
    let set = |process: &mut Process, socket: i32, value: u32, flags| {
        process.update(map, &socket.to_ne_bytes(), &value.to_ne_bytes(), flags)
    };
    let value = |process: &mut Process, socket: i32| {
        let room = process.put(&[0; 4]);
        process.element(Command::MapLookupElem, map, &socket.to_ne_bytes(), room, 0)?;
        Ok(u32::from_ne_bytes(process.get(room, 4).try_into().unwrap()))
    };
    assert_eq!(set(&mut process, 77, 1, 9), Err(Errno::EBADF));
    assert_eq!(set(&mut process, file, 1, 9), Err(Errno::ENOTSOCK));
    assert_eq!(set(&mut process, one, 1, EXIST), Err(Errno::ENOENT));
    assert_eq!(set(&mut process, one, 1, NOEXIST), Ok(0));
    assert_eq!(set(&mut process, one, 2, NOEXIST), Err(Errno::EEXIST));
    assert_eq!(set(&mut process, other, 3, 0), Ok(0));
    assert_eq!(set(&mut process, far, 3, 0), Err(Errno::ENOENT), "a number of more than 32 bits");
    assert_eq!((value(&mut process, one), value(&mut process, other)), (Ok(1), Ok(3)));
    process.closed_sockets.push(10);
    assert_eq!((value(&mut process, one), value(&mut process, other)), (Err(Errno::ENOENT), Ok(3)));
    assert_eq!(process.remove(map, other as u32), Ok(0));
    assert_eq!(process.remove(map, other as u32), Err(Errno::ENOENT));
}

#[test]
fn a_program_reads_a_clients_socket_and_a_world_does_not_take_it_for_its_own() {
    let mut process = Process::new();
    let map = process.map(SOCKMAP, 4, 8, 2).unwrap();
    let socket = process.socket(tcp(10, ClientState::Listening));
    process.put_socket(map, 1, socket.into(), 0).unwrap();
    let text = "
        *(u32 *)(r10 - 4) = 1
        r1 = 0 ll
        r2 = r10
        r2 += -4
        call 1
        r6 = 0
        if r0 == 0 goto out
        r6 = *(u32 *)(r0 + 44)
        r1 = r0
        call 86
   out: r0 = r6
        exit";
    let mut insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    // BPF_PSEUDO_MAP_FD, in the second instruction.
    insns[9] |= 1 << 4;
    insns[12..16].copy_from_slice(&map.to_ne_bytes());
    let program = process.load_bytes(3, &insns, 0, 0).0.unwrap() as i32;
    let data = process.put(&[0; 64]);
    let run = Attr::default().u32(0, program as u32).u32(8, 64).u64(16, data).u32(76, 0);
    process.call(Command::ProgTestRun, &run).unwrap();
    assert_eq!(process.answer(4), 80, "the port");
    process.close(socket, 10);
    process.call(Command::ProgTestRun, &run).unwrap();
    assert_eq!(process.answer(4), 0, "it is gone, and a run takes notice");
}
