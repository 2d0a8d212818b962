//! Devices of a world, and programs that the application attaches to them by routing sockets.

use super::mapped::close;
use super::{bpf, forked, supervised, wait};
use skep::world::{Device, Machine, World};
use std::io;

/// Kinds and flags of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEWLINK: u16 = 16;
const GETLINK: u16 = 18;
const SETLINK: u16 = 19;
const NEWQDISC: u16 = 36;
const DELQDISC: u16 = 37;
const GETQDISC: u16 = 38;
const NEWTFILTER: u16 = 44;
const DELTFILTER: u16 = 45;
const GETTFILTER: u16 = 46;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const ECHO: u16 = 8;
const DUMP: u16 = 0x300;
const REPLACE: u16 = 0x100;
const EXCL: u16 = 0x200;
const CREATE: u16 = 0x400;
const XDP: u64 = 6;
const SCHED_CLS: u64 = 3;
const CLSACT: [u32; 2] = [0xffff_0000, 0xffff_fff1];
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// A priority of 7, for all protocols.
const SEVEN: u32 = 7 << 16 | 0x0300;

/// Whether a scenario's application sees the world's devices.
pub(super) fn is_seen(scenario: &str) -> bool {
    scenario.starts_with("network")
}

/// The world of scenarios that have one.
pub(super) fn world(scenario: &str) -> Option<World> {
    (is_seen(scenario) || scenario == "keeps its network").then(|| {
        let mut machine = Machine::new();
        machine.add_device(Device::new("lo").index(1).mtu(65536)).unwrap();
        let address = "10.1.2.3/24".parse().unwrap();
        machine.add_device(Device::new("skep7").index(70).mtu(1400).address(address)).unwrap();
        machine.add_device(Device::new("hidden").index(71).namespace(1)).unwrap();
        World::new(machine)
    })
}

/// A routing socket, and its address.
struct Socket {
    file: i32,
    port: u32,
}

fn failed<T>() -> Result<T, i32> {
    Err(io::Error::last_os_error().raw_os_error().unwrap())
}

type Message = (u16, Vec<u8>);

impl Socket {
    fn new() -> Self {
        let mut address = [16u32, 0, 0];
        let mut len = 12;
        // SAFETY: addresses of that size, and numbers.
        let file = unsafe {
            let file = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(file >= 896, "{file}: {}", io::Error::last_os_error());
            let one = 1u32;
            let set =
                libc::setsockopt(file, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, (&raw const one).cast(), 4);
            assert_eq!(set, 0);
            assert_eq!(libc::bind(file, address.as_ptr().cast(), 12), 0);
            assert_eq!(libc::getsockname(file, address.as_mut_ptr().cast(), &raw mut len), 0);
            file
        };
        assert_eq!((address[0], len), (16, 12));
        Self { file, port: address[1] }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), i32> {
        // SAFETY: the bytes live.
        let sent = unsafe { libc::send(self.file, bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent == bytes.len() as isize { Ok(()) } else { failed() }
    }

    /// What was sent in one piece, and the sender's port.
    fn receive(&self) -> (Vec<u8>, u32) {
        let (mut bytes, mut from, mut len) = (vec![0u8; 8192], [9u32; 3], 12);
        // SAFETY: room for as many bytes, and for an address.
        let got = unsafe {
            let (to, from) = (bytes.as_mut_ptr().cast(), from.as_mut_ptr().cast());
            libc::recvfrom(self.file, to, bytes.len(), 0, from, &raw mut len)
        };
        assert!(got > 0, "{}", io::Error::last_os_error());
        bytes.truncate(got as usize);
        (bytes, from[1])
    }

    /// Sends a request and returns the messages of its answer, until the last of them.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> Result<Vec<Message>, i32> {
        let header = [16 + body.len() as u32, u32::from(kind) | u32::from(flags | REQUEST) << 16, 99, 0];
        let header: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.send(&[&header[..], body].concat())?;
        let mut messages = Vec::new();
        loop {
            let (bytes, sender) = self.receive();
            assert_eq!(sender, 0, "as if the kernel had sent it");
            let mut rest = &bytes[..];
            while rest.len() >= 16 {
                let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
                assert_eq!((word(8), word(12)), (99, self.port));
                let (len, kind) = (word(0) as usize, word(4) as u16);
                match kind {
                    DONE => return Ok(messages),
                    ERROR => {
                        let number = -(word(16) as i32);
                        return if number == 0 { Ok(messages) } else { Err(number) };
                    }
                    _ => messages.push((kind, rest[16..len].to_vec())),
                }
                rest = &rest[len.next_multiple_of(4).min(rest.len())..];
            }
            if flags & (ACK | DUMP) == 0 {
                return Ok(messages);
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        close(self.file);
    }
}

/// An attribute.
fn attribute(kind: u16, contents: &[u8]) -> Vec<u8> {
    let mut all = [&(4 + contents.len() as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), contents].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// The contents of an attribute behind a structure of that size.
fn get(body: &[u8], size: usize, kind: u16) -> Option<Vec<u8>> {
    let mut rest = &body[size..];
    while rest.len() >= 4 {
        let half = |at: usize| u16::from_ne_bytes(rest[at..at + 2].try_into().unwrap());
        let (len, found) = (usize::from(half(0)), half(2));
        if found == kind {
            return Some(rest[4..len].to_vec());
        }
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    }
    None
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

/// A program that returns 2.
fn program(kind: u64) -> i32 {
    let insns: [u64; 2] = [0xb7 | 2 << 32, 0x95];
    let (text, at) = (c"GPL".as_ptr() as u64, insns.as_ptr() as u64);
    bpf(5, &[(0, kind, 4), (4, 2, 4), (8, at, 8), (16, text, 8)]).unwrap() as i32
}

/// The identifier of a program, from its information.
fn id(program: i32) -> u32 {
    let info = [0u32; 58];
    bpf(15, &[(0, program as u64, 4), (4, 232, 4), (8, info.as_ptr() as u64, 8)]).unwrap();
    // SAFETY: the supervisor has written to it.
    unsafe { info.as_ptr().add(1).read_volatile() }
}

fn link(index: u32, more: &[u8]) -> Vec<u8> {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    [&body[..], more].concat()
}

/// What bpf_xdp_attach(3) of libbpf sends.
fn set_xdp(socket: &Socket, index: u32, program: i32, flags: u32, expected: Option<i32>) -> Result<(), i32> {
    let mut xdp = [attribute(1, &program.to_ne_bytes()), attribute(3, &flags.to_ne_bytes())].concat();
    if let Some(expected) = expected {
        xdp.extend(attribute(8, &expected.to_ne_bytes()));
    }
    socket.ask(SETLINK, ACK, &link(index, &attribute(43 | 0x8000, &xdp))).map(drop)
}

/// How a program is attached to a device, and its identifier.
fn xdp(socket: &Socket, index: u32) -> (u8, Option<u32>) {
    let found = socket.ask(GETLINK, 0, &link(index, &[])).unwrap();
    let xdp = get(&found[0].1, 16, 43).unwrap();
    (get(&xdp, 0, 2).unwrap()[0], get(&xdp, 0, 4).map(|id| number(&id)))
}

fn tc(index: u32, handle: u32, parent: u32, info: u32, more: &[Vec<u8>]) -> Vec<u8> {
    let words = [0, index, handle, parent, info];
    let body: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    [body, more.concat()].concat()
}

fn filter(program: i32, name: &str) -> [Vec<u8>; 2] {
    let options = [
        attribute(6, &program.to_ne_bytes()),
        attribute(7, &[name.as_bytes(), &[0]].concat()),
        attribute(8, &1u32.to_ne_bytes()),
    ];
    [attribute(1, b"bpf\0"), attribute(2, &options.concat())]
}

/// What the supervised application does.
pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "network: devices" => devices(),
        "network: xdp" => attaches_xdp(),
        "network: tc" => attaches_filters(),
        "network: attacks" => attacks(),
        "keeps its network" => {
            // SAFETY: numbers.
            let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) };
            assert!((0..896).contains(&socket), "the kernel's");
        }
        _ => return false,
    }
    true
}

fn devices() {
    let socket = Socket::new();
    let all = socket.ask(GETLINK, DUMP, &link(0, &[])).unwrap();
    let names = all.iter().map(|(kind, body)| {
        assert_eq!(*kind, NEWLINK);
        (number(&body[4..]), String::from_utf8(get(body, 16, 3).unwrap()).unwrap())
    });
    let names = names.collect::<Vec<_>>();
    assert_eq!(names, [(1, "lo\0".to_owned()), (70, "skep7\0".to_owned())]);
    assert_eq!(number(&get(&all[1].1, 16, 4).unwrap()), 1400);
    let named = socket.ask(GETLINK, 0, &link(0, &attribute(3, b"skep7\0"))).unwrap();
    assert_eq!(number(&named[0].1[4..]), 70);
    assert_eq!(socket.ask(GETLINK, 0, &link(71, &[])), Err(libc::ENODEV), "in another namespace");
    assert_eq!(socket.ask(24, DUMP, &[0; 12]), Err(libc::EOPNOTSUPP), "routes");
    // SAFETY: texts that end with zero, and room for names.
    unsafe {
        assert_eq!(libc::if_nametoindex(c"skep7".as_ptr()), 70);
        assert_eq!(libc::if_nametoindex(c"hidden".as_ptr()), 0);
        let mut name = [0; 16];
        assert!(!libc::if_indextoname(70, name.as_mut_ptr()).is_null());
        assert_eq!(std::ffi::CStr::from_ptr(name.as_ptr()), c"skep7");
        // The C library asks by a socket, and wants answers from the kernel alone.
        let mut addresses = std::ptr::null_mut();
        assert_eq!(libc::getifaddrs(&raw mut addresses), 0);
        let (mut at, mut found) = (addresses, Vec::new());
        while let Some(address) = at.as_ref() {
            found.push(std::ffi::CStr::from_ptr(address.ifa_name).to_str().unwrap().to_owned());
            at = address.ifa_next;
        }
        libc::freeifaddrs(addresses);
        assert_eq!(
            found.iter().filter(|name| *name == "skep7").count(),
            2,
            "a device and an address: {found:?}"
        );
    }
}

fn attaches_xdp() {
    let socket = Socket::new();
    let (first, second) = (program(XDP), program(XDP));
    assert_eq!(xdp(&socket, 70), (0, None));
    set_xdp(&socket, 70, first, 0, None).unwrap();
    assert_eq!(xdp(&socket, 70), (1, Some(id(first))));
    assert_eq!(set_xdp(&socket, 70, second, 1, None), Err(libc::EBUSY), "only if there is none");
    assert_eq!(socket.ask(NEWLINK, ACK, &link(0, &[])), Err(libc::ENODEV), "as iproute2 asks");
    assert_eq!(set_xdp(&socket, 70, second, 16, Some(second)), Err(libc::EEXIST), "another is expected");
    set_xdp(&socket, 70, second, 16, Some(first)).unwrap();
    assert_eq!(xdp(&socket, 70), (1, Some(id(second))));
    assert_eq!(set_xdp(&socket, 70, first, 2, None), Err(libc::EEXIST), "in another mode");
    let held = id(second);
    close(second);
    close(bpf(13, &[(0, held.into(), 4)]).expect("the device holds it") as i32);
    // BPF_LINK_CREATE finds the device taken, and a link keeps requests away.
    let create = |program: i32| bpf(28, &[(0, program as u64, 4), (4, 70, 4), (8, 37, 4)]);
    assert_eq!(create(first), Err(libc::EBUSY));
    set_xdp(&socket, 70, -1, 1, None).unwrap();
    assert_eq!(xdp(&socket, 70), (0, None), "a flag about programs is none about their end");
    assert!(super::soon(|| bpf(13, &[(0, held.into(), 4)]) == Err(libc::ENOENT)), "nobody holds it");
    let linked = create(first).unwrap();
    assert_eq!(xdp(&socket, 70), (1, Some(id(first))));
    assert_eq!(set_xdp(&socket, 70, first, 0, None), Err(libc::EBUSY));
    assert_eq!(set_xdp(&socket, 70, -1, 0, None), Err(libc::EBUSY));
    close(linked as i32);
    assert!(super::soon(|| set_xdp(&socket, 70, first, 2, None).is_ok()), "the link has ended");
    assert_eq!(xdp(&socket, 70), (2, Some(id(first))), "the generic mode");
    assert_eq!(set_xdp(&socket, 70, first, 6, None), Err(libc::EINVAL), "two modes");
    assert_eq!(set_xdp(&socket, 70, first, 8, None), Err(libc::EOPNOTSUPP), "no hardware takes it");
    assert_eq!(set_xdp(&socket, 70, program(SCHED_CLS), 0, None), Err(libc::EINVAL));
    assert_eq!(set_xdp(&socket, 70, 4000, 0, None), Err(libc::EBADF));
    assert_eq!(set_xdp(&socket, 99, first, 0, None), Err(libc::ENODEV));
    // A fork has the same socket, under the same number.
    wait(forked(|| set_xdp(&socket, 70, -1, 2, None).unwrap()));
    assert_eq!(xdp(&socket, 70), (0, None));
}

fn attaches_filters() {
    let socket = Socket::new();
    let (first, second) = (program(SCHED_CLS), program(SCHED_CLS));
    let clsact = tc(70, CLSACT[0], CLSACT[1], 0, &[attribute(1, b"clsact\0")]);
    let add = |handle, info, flags, program, name| {
        socket.ask(
            NEWTFILTER,
            ACK | ECHO | CREATE | flags,
            &tc(70, handle, INGRESS, info, &filter(program, name)),
        )
    };
    assert_eq!(add(0, SEVEN, EXCL, first, "early"), Err(libc::EINVAL), "there is no clsact");
    socket.ask(NEWQDISC, ACK | CREATE | EXCL, &clsact).unwrap();
    assert_eq!(socket.ask(NEWQDISC, ACK | CREATE | EXCL, &clsact), Err(libc::EEXIST));
    assert_eq!(socket.ask(GETQDISC, DUMP, &tc(0, 0, 0, 0, &[])).unwrap().len(), 1);
    let told = add(0, SEVEN, EXCL, first, "one").unwrap();
    let about = |message: &Message| (number(&message.1[8..]), number(&message.1[16..]) >> 16);
    assert_eq!((told.len(), told[0].0, about(&told[0])), (1, NEWTFILTER, (1, 7)));
    assert_eq!(add(1, SEVEN, EXCL, second, "two"), Err(libc::EEXIST));
    assert_eq!(about(&add(1, SEVEN, REPLACE, second, "two").unwrap()[0]), (1, 7));
    assert_eq!(about(&add(0, SEVEN, EXCL, first, "three").unwrap()[0]), (2, 7));
    assert_eq!(about(&add(0, 0x0300, EXCL, first, "first").unwrap()[0]), (1, 6), "before the others");
    let name_of = |message: &Message| {
        let options = get(&message.1, 20, 2).unwrap();
        (number(&get(&options, 0, 11).unwrap()), String::from_utf8(get(&options, 0, 7).unwrap()).unwrap())
    };
    let all = socket.ask(GETTFILTER, DUMP, &tc(70, 0, INGRESS, 0, &[])).unwrap();
    let all: Vec<_> = all.iter().map(name_of).collect();
    let (one, two) = (id(first), id(second));
    assert_eq!(all, [(one, "first\0".into()), (two, "two\0".into()), (one, "three\0".into())]);
    let kind = [attribute(1, b"bpf\0")];
    let found = socket.ask(GETTFILTER, 0, &tc(70, 1, INGRESS, SEVEN, &kind)).unwrap();
    assert_eq!(name_of(&found[0]), (two, "two\0".into()));
    assert_eq!(socket.ask(GETTFILTER, 0, &tc(70, 9, INGRESS, SEVEN, &kind)), Err(libc::ENOENT));
    assert_eq!(socket.ask(GETTFILTER, 0, &tc(70, 1, EGRESS, SEVEN, &kind)), Err(libc::ENOENT));
    socket.ask(DELTFILTER, ACK, &tc(70, 1, INGRESS, SEVEN, &kind)).unwrap();
    assert_eq!(socket.ask(DELTFILTER, ACK, &tc(70, 1, INGRESS, SEVEN, &kind)), Err(libc::ENOENT));
    assert_eq!(add(0, SEVEN, EXCL, program(XDP), "wrong"), Err(libc::EINVAL));
    assert_eq!(add(0, SEVEN, EXCL, -1, "none"), Err(libc::EBADF));
    let classic = [attribute(1, b"u32\0"), attribute(2, &[])];
    let classic = tc(70, 0, INGRESS, SEVEN, &classic);
    assert_eq!(socket.ask(NEWTFILTER, ACK | CREATE, &classic), Err(libc::EOPNOTSUPP));
    socket.ask(DELQDISC, ACK, &clsact).unwrap();
    assert_eq!(socket.ask(DELQDISC, ACK, &clsact), Err(libc::ENOENT));
    close(second);
    assert!(super::soon(|| bpf(13, &[(0, two.into(), 4)]) == Err(libc::ENOENT)), "its filters are gone");
}

fn attacks() {
    let socket = Socket::new();
    // SAFETY: the supervisor reads the memory, if there is any.
    let send = |at: u64, len: usize| unsafe {
        match libc::send(socket.file, at as *const libc::c_void, len, 0) {
            -1 => failed(),
            sent => Ok(sent),
        }
    };
    assert_eq!(send(8, 32), Err(libc::EFAULT));
    assert_eq!(send(u64::MAX - 3, 32), Err(libc::EFAULT));
    assert_eq!(send(8, usize::MAX), Err(libc::EMSGSIZE));
    let mut random = 88172645463325252u64;
    for _ in 0..2000 {
        let words = (0..24).map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as u32
        });
        let mut words = words.collect::<Vec<u32>>();
        // So that much of it is understood.
        (words[0], words[2]) = (96, 0);
        words[1] =
            [GETLINK, SETLINK, NEWQDISC, NEWTFILTER, DELTFILTER, GETTFILTER][random as usize % 6].into();
        words[1] |= 0x0005_0000;
        let message = [words[5] % 80, words[6]];
        (words[5], words[8]) = (message[0], 8 | (message[1] & 0x2f) << 16);
        send(words.as_ptr() as u64, 96).unwrap();
        socket.receive();
    }
    // No more is written of the sender's address than there is room for.
    let (get, mut from, mut len) =
        ([&32u32.to_ne_bytes()[..], &[18, 0, 1, 0], &[0; 12], &[1], &[0; 11]].concat(), [7u8; 12], 2u32);
    send(get.as_ptr() as u64, 32).unwrap();
    let mut room = [0u8; 4096];
    // SAFETY: room for as many bytes.
    let got = unsafe {
        let (to, from) = (room.as_mut_ptr().cast(), from.as_mut_ptr().cast());
        libc::recvfrom(socket.file, to, 4096, 0, from, &raw mut len)
    };
    assert!(got > 0);
    assert_eq!((from, len), ([16, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7], 12));
    // A message whose parts are everywhere.
    let mut header = [0u64; 7];
    header[2] = 8;
    for count in [1, 5000, u64::MAX] {
        header[3] = count;
        // SAFETY: as above.
        let sent = unsafe { libc::sendmsg(socket.file, header.as_ptr().cast(), 0) };
        assert_eq!(sent, -1);
    }
    // The numbers of descriptors are nobody's own.
    // SAFETY: numbers.
    unsafe {
        let other = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
        assert_eq!(libc::dup2(other, 1000), 1000);
        assert_eq!(libc::send(1000, header.as_ptr().cast(), 8, 0), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOTCONN), "the kernel's answer");
        assert_eq!(libc::send(1001, header.as_ptr().cast(), 8, 0), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
        let copy = libc::dup(socket.file);
        assert_eq!(libc::send(copy, header.as_ptr().cast(), 56, 0), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ECONNREFUSED));
    }
    assert_eq!(xdp(&socket, 70), (0, None), "and all is as ever");
    for _ in 0..300 {
        drop(Socket::new());
    }
    // SAFETY: numbers, and a structure of this test.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = 64;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        assert_eq!(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0), -1);
    }
    assert_eq!(failed::<()>(), Err(libc::EMFILE));
}

#[test]
fn devices_of_the_world_are_those_that_applications_find() {
    let Some((status, ..)) = supervised("network: devices") else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn xdp_programs_are_attached_by_routing_sockets() {
    let Some((status, traced, _)) = supervised("network: xdp") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn filters_of_traffic_control_are_attached_by_routing_sockets() {
    let Some((status, traced, _)) = supervised("network: tc") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn requests_of_any_bytes_harm_nobody() {
    let Some((status, ..)) = supervised("network: attacks") else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn routing_sockets_are_the_kernel_s_unless_the_world_s_devices_are_shown() {
    let Some((status, ..)) = supervised("keeps its network") else { return };
    assert!(status.success(), "{status}");
}
