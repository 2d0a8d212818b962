//! Tests over network interfaces: a namespace for each test, and frames as bytes.
//!
//! A namespace belongs to a thread, and to the processes that it starts. It goes with them, and its interfaces with
//! it, so names cannot collide and nothing is left behind.

use crate::skip::skip;
use libc::{c_int, sockaddr_ll};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for a frame or for a link. Far more than it takes: who waits longer has found a defect.
const DEADLINE: Duration = Duration::from_secs(30);
/// The family of sockets that take the frames of a queue.
pub const AF_XDP: i32 = libc::AF_XDP;
/// Bytes of `struct virtio_net_hdr`.
const HEADER: usize = 10;
const NEEDS_SUM: u8 = 1;

/// Runs a test on a thread in a network namespace of its own, in which pairs of Ethernet devices are up.
///
/// Skips it if no namespace or no pair can be made here.
///
/// # Panics
///
/// If the test does, or a link does not come up.
pub fn in_network(what: &str, pairs: &[(&str, &str)], test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let run = scope.spawn(|| match prepare(pairs) {
            Ok(()) => test(),
            Err(why) => skip(what, &why),
        });
        if let Err(panic) = run.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn prepare(pairs: &[(&str, &str)]) -> Result<(), String> {
    // SAFETY: it changes the network namespace of this thread alone, which has no sockets.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(format!("no network namespace can be made: {}", io::Error::last_os_error()));
    }
    // Otherwise the system sends frames of its own. Without IPv6 there is nothing to turn off.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for (one, other) in pairs {
        try_ip(&format!("link add name {one} type veth peer name {other}"))?;
        ip(&format!("link set dev {one} up"));
        ip(&format!("link set dev {other} up"));
    }
    for (one, other) in pairs {
        wait_for_link(one);
        wait_for_link(other);
    }
    Ok(())
}

fn try_ip(arguments: &str) -> Result<String, String> {
    let run = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = run.map_err(|error| format!("ip (Debian: iproute2) cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Runs `ip` with these arguments in this thread's namespace, and returns what it prints.
///
/// # Panics
///
/// If it fails.
pub fn ip(arguments: &str) -> String {
    try_ip(arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until an interface has a carrier and sends: its state is DOWN until it has its queue discipline, which comes
/// after the carrier. That of a TAP device is UNKNOWN then, not UP.
///
/// # Panics
///
/// If that takes more than 30 seconds.
pub fn wait_for_link(name: &str) {
    let end = Instant::now() + DEADLINE;
    let is_ready = |shown: String| shown.contains("LOWER_UP") && !shown.contains("DOWN");
    while !try_ip(&format!("-o link show dev {name}")).is_ok_and(is_ready) {
        assert!(Instant::now() < end, "{name} has no carrier");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the kernel has sockets of this family (`libc::AF_...`), and this process may make one.
pub fn has_sockets(family: i32) -> bool {
    // SAFETY: without addresses; the descriptor has no other owner.
    unsafe {
        let fd = libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if fd >= 0 {
            drop(OwnedFd::from_raw_fd(fd));
        }
        fd >= 0
    }
}

/// A frame as a socket receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Kind (0x8100 for 802.1Q) and number of the tag that the system took out of it.
    pub tag: Option<(u16, u16)>,
}

/// A packet socket on an interface: sends frames, and receives those that come in.
#[derive(Debug)]
pub struct Raw(OwnedFd);

impl Raw {
    /// Opens one. Frames that come in from here on are kept for it.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    pub fn open(name: &str) -> Self {
        let text = std::ffi::CString::new(name).expect("a name");
        // SAFETY: a string; the socket has no other owner.
        let (index, socket) = unsafe {
            let index = libc::if_nametoindex(text.as_ptr());
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(index != 0 && fd >= 0, "{name}: {}", io::Error::last_os_error());
            (index, OwnedFd::from_raw_fd(fd))
        };
        for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            set(&socket, libc::SOL_PACKET, option, &1_i32);
        }
        // A wait has this end; `receive` has its own as well.
        let wait = libc::timeval { tv_sec: DEADLINE.as_secs() as libc::time_t, tv_usec: 0 };
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &wait);
        // SAFETY: zeroes are a valid structure; the address lives through the call and has that size.
        let bound = unsafe {
            let mut address: sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = index as c_int;
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<sockaddr_ll>() as u32)
        };
        assert_eq!(bound, 0, "{name}: {}", io::Error::last_os_error());
        Self(socket)
    }

    /// Sends a frame.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    pub fn send(&self, frame: &[u8]) {
        self.send_behind([0; HEADER], frame);
    }

    /// Sends a frame as a stack does that leaves the checksum to the device: `field` has the sum of the pseudo
    /// header, and what is summed begins at `start`.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    pub fn send_unfinished(&self, frame: &[u8], start: u16, field: u16) {
        let mut header = [0; HEADER];
        header[0] = NEEDS_SUM;
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..10].copy_from_slice(&(field - start).to_ne_bytes());
        self.send_behind(header, frame);
    }

    fn send_behind(&self, header: [u8; HEADER], frame: &[u8]) {
        let bytes = [&header[..], frame].concat();
        // SAFETY: the bytes live through the call.
        let sent = unsafe { libc::write(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        assert_eq!(sent, bytes.len() as isize, "{}", io::Error::last_os_error());
    }

    /// The next frame with an EtherType, which is taken from the bytes 12 and 13. Others are passed over.
    ///
    /// # Panics
    ///
    /// If none comes within 30 seconds.
    pub fn receive(&self, protocol: u16) -> Caught {
        let end = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < end, "no frame has come");
            let caught = self.next();
            if caught.bytes.get(12..14) == Some(&protocol.to_be_bytes()) {
                return caught;
            }
        }
    }

    fn next(&self) -> Caught {
        let mut buffer = vec![0; 70_000];
        let mut control = [0_u64; 8];
        // SAFETY: the addresses in the message are those of values that live through the call, with their sizes; the
        // kernel's control messages end within the length that it wrote, and the data of this one is this structure.
        let (got, tag) = unsafe {
            let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let mut message: libc::msghdr = zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let got = libc::recvmsg(self.0.as_raw_fd(), &mut message, 0);
            assert!(got >= HEADER as isize, "no frame has come: {}", io::Error::last_os_error());
            let mut tag = None;
            let mut at = libc::CMSG_FIRSTHDR(&message);
            while !at.is_null() {
                if ((*at).cmsg_level, (*at).cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                    let aux = libc::CMSG_DATA(at).cast::<libc::tpacket_auxdata>().read_unaligned();
                    let valid = aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
                    tag = valid.then_some((aux.tp_vlan_tpid, aux.tp_vlan_tci));
                }
                at = libc::CMSG_NXTHDR(&message, at);
            }
            (got, tag)
        };
        Caught { bytes: buffer[HEADER..got as usize].to_vec(), tag }
    }
}

fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call and has that size.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), size)
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}
