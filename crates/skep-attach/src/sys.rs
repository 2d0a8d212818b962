//! System calls that the standard library and rustix lack: requests about interfaces, packet sockets, TAP devices.
//!
//! All `unsafe` code of packet sockets and TAP devices is here; that of AF_XDP is in `xsk` and `kernel`. Each
//! function passes the kernel addresses of values that it owns or borrows for the call, with their true sizes.

use libc::{c_int, c_uint};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes of a `struct virtio_net_hdr`, which precedes each frame.
pub(crate) const HEADER: usize = 10;

/// The names and indices of all interfaces of this network namespace.
pub(crate) fn names() -> io::Result<Vec<(String, u32)>> {
    // SAFETY: without arguments.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = list;
    // SAFETY: if_nameindex(3): an array of structures with strings, which ends with an index of 0.
    unsafe {
        while (*at).if_index != 0 {
            found.push((CStr::from_ptr((*at).if_name).to_string_lossy().into_owned(), (*at).if_index));
            at = at.add(1);
        }
        libc::if_freenameindex(list);
    }
    Ok(found)
}

/// A socket to ask about interfaces.
pub(crate) fn control() -> io::Result<OwnedFd> {
    // SAFETY: without addresses.
    owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

/// A packet socket that receives nothing until it is bound.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: without addresses.
    owned(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
}

fn owned(descriptor: c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zeroes are a valid structure of integers and addresses.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let text = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let bytes = text.as_bytes_with_nul();
    if bytes.len() > request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

fn ask(fd: BorrowedFd<'_>, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: these requests read and write one `struct ifreq`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The flags of an interface (`IFF_...`).
pub(crate) fn flags(control: BorrowedFd<'_>, name: &str) -> io::Result<c_int> {
    let mut request = request(name)?;
    ask(control, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the member that this request fills.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Brings an interface up.
pub(crate) fn bring_up(control: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let flags = flags(control, name)?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (flags | libc::IFF_UP) as libc::c_short;
    ask(control, libc::SIOCSIFFLAGS, &mut request)
}

/// The hardware type of an interface (`ARPHRD_...`).
pub(crate) fn hardware(control: BorrowedFd<'_>, name: &str) -> io::Result<u16> {
    let mut request = request(name)?;
    ask(control, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the member that this request fills.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// Makes a descriptor of `/dev/net/tun` a TAP device, whose frames have headers of [`HEADER`] bytes.
pub(crate) fn become_tap(tun: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    ask(tun, libc::TUNSETIFF, &mut request)
}

/// Sets an option.
pub(crate) fn set<T: Copy>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    let address = std::ptr::from_ref(&value).cast();
    // SAFETY: `value` lives through the call and has that size.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, address, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of frames that a packet socket had no room for, since the last time that it was asked.
pub(crate) fn dropped(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut size = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    let address = std::ptr::from_mut(&mut stats).cast();
    // SAFETY: `stats` has that size, and integers may have any value.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, address, &mut size)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(stats.tp_drops) }
}

/// Binds a packet socket to an interface, from which it receives the frames of all protocols.
pub(crate) fn bind(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: zeroes are a valid structure of integers.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call and has that size.
    let result = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What comes with a frame of a packet socket.
pub(crate) struct Received {
    /// Bytes of the header and of the frame in the buffer.
    pub(crate) bytes: usize,
    /// Whether the frame was longer than the buffer.
    pub(crate) cut: bool,
    /// `PACKET_HOST` and the like.
    pub(crate) kind: u8,
    pub(crate) aux: Option<libc::tpacket_auxdata>,
}

/// Room for the one control message that is asked for, aligned as its header.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; 64]);

/// Receives header and frame.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    header: &mut [u8; HEADER],
    frame: &mut [u8],
) -> io::Result<Received> {
    // SAFETY: zeroes are valid structures of integers and addresses.
    let (mut address, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut pieces = [
        libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: HEADER },
        libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() },
    ];
    let mut control = Control([MaybeUninit::zeroed(); 64]);
    message.msg_name = std::ptr::from_mut(&mut address).cast();
    message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len() as _;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: all addresses in the message are those of values that live through the call, with their sizes.
    let bytes = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut aux = None;
    // SAFETY: the kernel wrote control messages into `control` and their total length into the message; CMSG_FIRSTHDR
    // and CMSG_NXTHDR stay inside of that. The data of PACKET_AUXDATA is this structure, at any address.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&message);
        while !at.is_null() {
            if ((*at).cmsg_level, (*at).cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                aux = Some(libc::CMSG_DATA(at).cast::<libc::tpacket_auxdata>().read_unaligned());
            }
            at = libc::CMSG_NXTHDR(&message, at);
        }
    }
    let cut = message.msg_flags & libc::MSG_TRUNC != 0;
    Ok(Received { bytes: bytes as usize, cut, kind: address.sll_pkttype, aux })
}

/// What is wrong with a socket that receives by shared memory: it does not tell in any other way that its interface
/// is gone.
pub(crate) fn check(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: nothing is received, so there is no buffer.
    let result = unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    match result {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::EBUSY)) => Ok(()),
            error => Err(error),
        },
    }
}

/// Asks the kernel to send what is in the ring of a socket that sends by shared memory.
pub(crate) fn send_ring(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (bytes, address) = (std::ptr::null(), std::ptr::null());
    // SAFETY: there is no buffer and no address.
    let result = unsafe { libc::sendto(fd.as_raw_fd(), bytes, 0, libc::MSG_DONTWAIT, address, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The request by which a packet socket receives frames for other hosts as well.
pub(crate) fn promiscuous(index: u32) -> libc::packet_mreq {
    // SAFETY: zeroes are a valid structure of integers.
    let mut request: libc::packet_mreq = unsafe { zeroed() };
    request.mr_ifindex = index as c_int;
    request.mr_type = libc::PACKET_MR_PROMISC as libc::c_ushort;
    request
}

/// Flags that say that an interface is up and that it is a loopback.
pub(crate) const UP: c_int = libc::IFF_UP;
pub(crate) const LOOPBACK: c_int = libc::IFF_LOOPBACK;
/// Status bits of `PACKET_AUXDATA`.
pub(crate) const TAGGED: c_uint = libc::TP_STATUS_VLAN_VALID;
pub(crate) const TAG_KIND: c_uint = libc::TP_STATUS_VLAN_TPID_VALID;
