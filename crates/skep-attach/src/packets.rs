//! A packet socket (AF_PACKET, packet(7)) on one interface: copies of the frames that come in, and frames to send.

use crate::arrival::Arrival;
use crate::error::{Error, classify};
use crate::interface::Interface;
use crate::sys;
use skep::Vlan;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const CAPABILITY: &str = "CAP_NET_RAW";
/// Room for frames that wait, in bytes.
const ROOM: libc::c_int = 4 << 20;
/// `PACKET_OUTGOING`: a frame that this machine sends.
const OUTGOING: u8 = 4;
const TAG_802_1Q: u16 = 0x8100;

pub(crate) struct Packets {
    name: String,
    socket: OwnedFd,
}

/// What receiving gave.
pub(crate) enum Taken {
    Frame,
    /// No frame is there now.
    Nothing,
    /// A frame that cannot be used: too long, or of segments that its header has no word for.
    Unreadable,
}

impl Packets {
    pub(crate) fn open(interface: &Interface, promiscuous: bool) -> Result<Self, Error> {
        let name = interface.name.clone();
        let failed = |source| classify(&name, "receiving packets from", CAPABILITY, source);
        let socket = sys::packet_socket().map_err(failed)?;
        let fd = socket.as_fd();
        let on: libc::c_int = 1;
        for option in [libc::PACKET_AUXDATA, libc::PACKET_VNET_HDR] {
            sys::set(fd, libc::SOL_PACKET, option, on).map_err(failed)?;
        }
        // Linux before 4.20 lacks it; `receive` looks at each frame as well.
        let _ = sys::set(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, on);
        // Beyond the system's limit only with CAP_NET_ADMIN; less room loses more frames in bursts, which are counted.
        if sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ROOM).is_err() {
            let _ = sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, ROOM);
        }
        if promiscuous {
            let request = sys::promiscuous(interface.index);
            sys::set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request).map_err(failed)?;
        }
        // From here on frames come in.
        sys::bind(fd, interface.index).map_err(failed)?;
        Ok(Self { name, socket })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn receive(&mut self, arrival: &mut Arrival) -> Result<Taken, Error> {
        let mut header = [0; sys::HEADER];
        let received = loop {
            match sys::receive(self.socket.as_fd(), &mut header, arrival.room()) {
                Ok(received) if received.kind == OUTGOING => {}
                Ok(received) => break received,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(Taken::Nothing),
                    Some(libc::EINTR) => {}
                    // A packet of segments for which there is no header, as of SCTP. The kernel has taken it off the
                    // queue.
                    Some(libc::EINVAL) => return Ok(Taken::Unreadable),
                    _ => return Err(classify(&self.name, "receiving packets from", CAPABILITY, error)),
                },
            }
        };
        let Some(len) = received.bytes.checked_sub(sys::HEADER).filter(|_| !received.cut) else {
            return Ok(Taken::Unreadable);
        };
        let tag = received.aux.filter(|aux| aux.tp_status & sys::TAGGED != 0).map(|aux| Vlan {
            protocol: match aux.tp_status & sys::TAG_KIND {
                0 => TAG_802_1Q,
                _ => aux.tp_vlan_tpid,
            },
            tci: aux.tp_vlan_tci,
        });
        arrival.take(len, received.kind.into(), tag, &header);
        Ok(Taken::Frame)
    }

    pub(crate) fn send(&self, header: &[u8; sys::HEADER], bytes: &[u8]) -> io::Result<()> {
        write(self.socket.as_fd(), header, bytes)
    }

    /// The number of frames since the last call that found no room.
    pub(crate) fn dropped(&self) -> u64 {
        sys::dropped(self.socket.as_fd()).unwrap_or(0).into()
    }
}

/// Sends a frame behind its header.
pub(crate) fn write(fd: BorrowedFd<'_>, header: &[u8; sys::HEADER], bytes: &[u8]) -> io::Result<()> {
    loop {
        match rustix::io::writev(fd, &[IoSlice::new(header), IoSlice::new(bytes)]) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}
