//! Sockets of the machine in maps: what a client puts there stays until it is closed, and nothing keeps it open.

use super::mapped::map;
use super::{bpf, first_map, forked, lookup, soon, supervised, update, wait};
use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

const SOCKMAP: u64 = 15;
const SOCKHASH: u64 = 18;
const REUSEPORT: u64 = 20;

fn put(map: i32, key: u32, descriptor: &impl AsRawFd) -> Result<i64, i32> {
    update(map, key, descriptor.as_raw_fd() as u64)
}

/// The cookie that the kernel has given a socket.
fn cookie(socket: &impl AsRawFd) -> u64 {
    let (mut cookie, mut size) = (0u64, 8);
    // SAFETY: memory of this frame.
    let asked = unsafe {
        let to = (&raw mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE, to, &raw mut size)
    };
    assert_eq!((asked, size), (0, 8));
    cookie
}

/// A client's end, a server's end, and the server.
fn connected() -> (TcpStream, TcpStream, TcpListener) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let (accepted, _) = server.accept().unwrap();
    (client, accepted, server)
}

fn raw_socket(family: i32, kind: i32, protocol: i32) -> OwnedFd {
    // SAFETY: numbers.
    let socket = unsafe { libc::socket(family, kind, protocol) };
    assert!(socket >= 0);
    // SAFETY: it was just made, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(socket) }
}

/// The part of the application that is about sockets; whether it knows the scenario.
pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "puts sockets into maps" => puts(),
        "attacks with sockets" => attacks(),
        _ => return false,
    }
    true
}

fn puts() {
    for kind in [SOCKMAP, SOCKHASH] {
        let sockets = map(kind, 4, 8, 8, 0);
        let (client, mut accepted, server) = connected();
        let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (stream, _other) = UnixStream::pair().unwrap();
        let all: [&dyn AsRawFd; 5] = [&client, &accepted, &server, &bound, &stream];
        for (key, socket) in (0..).zip(all) {
            assert_eq!(update(sockets, key, socket.as_raw_fd() as u64), Ok(0), "socket {key}");
        }
        assert_eq!(lookup(sockets, 0), Ok(cookie(&client)));
        assert_eq!(lookup(sockets, 3), Ok(cookie(&bound)));
        // Of these, maps take none.
        let unbound = raw_socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let unconnected = raw_socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let netlink = raw_socket(libc::AF_NETLINK, libc::SOCK_RAW, 0);
        let directory = std::env::temp_dir().join(format!("skep-socket-{}-{kind}", std::process::id()));
        let listening = UnixListener::bind(&directory).unwrap();
        std::fs::remove_file(&directory).unwrap();
        let refused: [&dyn AsRawFd; 4] = [&unbound, &unconnected, &netlink, &listening];
        for (key, socket) in (0..).zip(refused) {
            let answer = update(sockets, key, socket.as_raw_fd() as u64);
            assert_eq!(answer, Err(libc::EOPNOTSUPP), "socket {key}");
        }
        // The map keeps no socket open: its peer reads the end.
        wait(forked(|| assert_eq!(lookup(sockets, 1), Ok(cookie(&accepted)))));
        drop(client);
        assert_eq!(accepted.read(&mut [0; 8]).unwrap(), 0, "the end");
        assert_eq!(lookup(sockets, 0), Err(libc::ENOENT));
        drop(bound);
        assert_eq!(lookup(sockets, 3), Err(libc::ENOENT));
        // A copy, and a child, have the same socket.
        let copy = accepted.try_clone().unwrap();
        drop(accepted);
        assert_eq!(lookup(sockets, 1), Ok(cookie(&copy)));
        drop(copy);
        assert_eq!(lookup(sockets, 1), Err(libc::ENOENT));
    }
    // A group of receivers.
    let group = map(REUSEPORT, 4, 8, 4, 0);
    let receiver = raw_socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
    assert_eq!(put(group, 0, &receiver), Err(libc::EINVAL), "it does not share its address");
    let (one, size) = (1i32, size_of::<i32>() as u32);
    // SAFETY: memory of this frame; zero is an address for any port.
    unsafe {
        let value = (&raw const one).cast();
        libc::setsockopt(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, value, size);
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        let (address, size) = (&raw const address, size_of::<libc::sockaddr_in>() as u32);
        assert_eq!(put(group, 0, &receiver), Err(libc::EINVAL), "it has no port");
        assert_eq!(libc::bind(receiver.as_raw_fd(), address.cast(), size), 0);
    }
    assert_eq!(put(group, 0, &receiver), Ok(0));
    assert_eq!(put(group, 1, &receiver), Err(libc::EBUSY));
    drop(receiver);
    assert_eq!(lookup(group, 0), Err(libc::ENOENT));
}

fn attacks() {
    let sockets = map(SOCKHASH, 4, 8, 64, 0);
    // Descriptors of other kinds, and the supervisor's own sockets: those of a routing socket are not the client's.
    let (reader, _writer) = std::io::pipe().unwrap();
    for other in [reader.as_raw_fd(), sockets] {
        assert_eq!(update(sockets, 0, other as u64), Err(libc::ENOTSOCK));
    }
    // SAFETY: numbers, and a path that ends with zero.
    let path = unsafe { libc::open(c"/proc/self/fd".as_ptr(), libc::O_PATH) };
    assert_eq!(update(sockets, 0, path as u64), Err(libc::ENOTSOCK));
    let (stream, other) = UnixStream::pair().unwrap();
    let name = std::ffi::CString::new(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap();
    // SAFETY: as above.
    let no_socket = unsafe { libc::open(name.as_ptr(), libc::O_PATH) };
    assert_eq!(update(sockets, 0, no_socket as u64), Err(libc::EBADF), "a descriptor of a path");
    for none in [900, 4000, i32::MAX as u64] {
        assert_eq!(update(sockets, 0, none), Err(libc::EBADF));
    }
    assert_eq!(update(sockets, 0, u64::MAX), Err(libc::EINVAL));
    // Nothing is read and nothing is written: what one end has sent the other still finds, and no more.
    assert_eq!(put(sockets, 0, &stream), Ok(0));
    std::io::Write::write_all(&mut &other, b"words").unwrap();
    for _ in 0..3 {
        assert_eq!(put(sockets, 0, &stream), Ok(0));
        assert_eq!(put(sockets, 1, &other), Ok(0));
    }
    let mut found = [0; 16];
    assert_eq!((&stream).read(&mut found).unwrap(), 5);
    stream.set_nonblocking(true).unwrap();
    assert!(
        (&stream).read(&mut found).is_err() && {
            other.set_nonblocking(true).unwrap();
            true
        }
    );
    assert!((&other).read(&mut found).is_err(), "nobody wrote");
    // A socket in a message is open, and its element stays.
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    let sent = cookie(&stream);
    send(&sender, &stream);
    drop(stream);
    assert_eq!(lookup(sockets, 0), Ok(sent));
    drop((sender, receiver));
    assert!(soon(|| lookup(sockets, 0) == Err(libc::ENOENT)), "the message is gone");
    // A descriptor that is replaced while the call looks at it, by a socket, another file, and nothing.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let null = std::fs::File::open("/dev/null").unwrap();
            for _ in 0..300 {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                // SAFETY: numbers; nothing else of this process uses 200.
                unsafe {
                    libc::dup2(socket.as_raw_fd(), 200);
                    drop(socket);
                    libc::dup2(null.as_raw_fd(), 200);
                    libc::close(200);
                }
            }
            // Pairs with the load below.
            done.store(true, Ordering::Release);
        });
        // Pairs with the store above.
        while !done.load(Ordering::Acquire) {
            let answer = update(sockets, 7, 200);
            assert!(matches!(answer, Ok(0) | Err(libc::EBADF | libc::ENOTSOCK)), "{answer:?}");
        }
    });
    assert_eq!(lookup(sockets, 7), Err(libc::ENOENT), "all of them are closed");
    // More sockets than a client may have open, one after the other; then as many as it may.
    let before = descriptors();
    for _ in 0..600 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(put(sockets, 2, &socket), Ok(0));
    }
    assert_eq!(lookup(sockets, 2), Err(libc::ENOENT));
    assert_eq!(descriptors(), before);
    let mut held = Vec::new();
    while let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
        held.push(socket);
        if held.len() == 900 {
            break;
        }
    }
    for socket in &held {
        assert_eq!(put(sockets, 2, socket), Ok(0));
    }
    assert_eq!(lookup(sockets, 2), Ok(cookie(held.last().unwrap())));
    drop(held);
    assert_eq!(lookup(sockets, 2), Err(libc::ENOENT));
    // Processes that are killed in the middle.
    for _ in 0..10 {
        let child = forked(|| {
            loop {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let _any = put(sockets, 3, &socket);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(3));
        // SAFETY: a child of this process.
        unsafe { libc::kill(child, libc::SIGKILL) };
        wait(child);
    }
    assert!(soon(|| lookup(sockets, 3) == Err(libc::ENOENT)), "what it held is gone");
    // SAFETY: a descriptor of this test.
    unsafe { libc::close(sockets) };
    assert!(soon(|| first_map() == Err(libc::ENOENT)), "nothing holds the map");
    let _fresh = bpf(0, &[(0, SOCKMAP, 4), (4, 4, 4), (8, 4, 4), (12, 1, 4)]).unwrap();
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sends a descriptor.
fn send(by: &UnixDatagram, what: &impl AsRawFd) {
    let mut control = [0u64; 4];
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: zero is valid for the structure; all that it points to is of this frame, and large enough.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(what.as_raw_fd());
        assert_eq!(libc::sendmsg(by.as_raw_fd(), &raw const message, 0), 1);
    }
}

#[test]
fn sockets_are_in_maps_until_they_are_closed_and_no_longer() {
    let Some((status, traced, _)) = supervised("puts sockets into maps") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn sockets_that_are_none_or_end_in_the_middle_are_errors_of_the_one_who_passes_them() {
    let Some((status, traced, _)) = supervised("attacks with sockets") else { return };
    assert!(status.success(), "{status}\n{}", traced[traced.len().saturating_sub(20)..].join("\n"));
}
