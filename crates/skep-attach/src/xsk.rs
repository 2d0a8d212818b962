//! An AF_XDP socket on one queue of an interface: the frames of the queue go to it, and not to the kernel.
//!
//! The rings and the memory that the kernel shares are those of the crate `xdp`, in copy mode, which every driver
//! has. Frames are copied out of the shared memory before a program sees them, so that nothing but this file depends
//! on how long they stay there.
//!
//! ```text
//!   fill ring --frames to fill--> kernel --receive ring--> here, copied; the frame goes to the fill ring again
//!   here, copied --send ring--> kernel --completion ring--> the frame is free
//! ```
//!
//! A frame is in one of these places at a time; this is what keeps the memory sound. Half of the frames are for each
//! direction, so that what is received cannot take all of them.

use crate::arrival::Arrival;
use crate::error::{Error, classify};
use crate::interface::Interface;
use crate::kernel::Redirection;
use crate::packets::Taken;
use crate::sys;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};
use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{SocketError, XdpSocket, XdpSocketBuilder};
use xdp::umem::UmemCfgBuilder;
use xdp::{RingConfigBuilder, Umem, WakableRings};

const CAPABILITIES: &str = "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";
/// Frames of 4 KiB for each direction.
const FRAMES: u32 = 1024;
/// Most frames that are taken at once.
const BATCH: usize = 64;
/// How long a queue may be taken by a socket that is closed already: the kernel lets go of it some 30 to 45 ms later.
const CLOSING: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(10);

/// The order of the fields is that in which they are dropped: the kernel stops using the memory before it is unmapped.
pub(crate) struct Xsk {
    name: String,
    _redirection: Redirection,
    rings: WakableRings,
    received: HeapSlab,
    socket: XdpSocket,
    umem: Umem,
    lost: u64,
    /// Whether the kernel may have left frames in the send ring.
    unsent: bool,
}

// SAFETY: the memory and the rings belong to this value alone, and every method that touches them takes `&mut self`;
// the kernel, at the other end, does not care which thread it is.
unsafe impl Send for Xsk {}

impl Xsk {
    /// Takes the queue. If it is taken, it may be by a socket that was closed just now, so this waits for a while.
    pub(crate) fn open(interface: &Interface, queue: u32) -> Result<Self, Error> {
        let end = Instant::now() + CLOSING;
        loop {
            match Self::open_once(interface, queue) {
                Err(Error::XdpTaken { .. }) if Instant::now() < end => thread::sleep(AGAIN),
                opened => return opened,
            }
        }
    }

    fn open_once(interface: &Interface, queue: u32) -> Result<Self, Error> {
        let name = interface.name.clone();
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => Error::NoXdp,
            Some(libc::EBUSY | libc::EEXIST) => Error::XdpTaken { name: name.clone() },
            _ => classify(&name, "taking the frames of a queue of", CAPABILITIES, source),
        };
        let at_bind = |source: io::Error| match source.raw_os_error() {
            Some(libc::EINVAL) => Error::NoQueue { name: name.clone(), queue },
            _ => failed(source),
        };
        let other = |error: xdp::error::Error| failed(io::Error::other(error.to_string()));
        let memory = UmemCfgBuilder { frame_count: 2 * FRAMES, ..UmemCfgBuilder::default() };
        let mut umem = Umem::map(memory.build().map_err(other)?).map_err(failed)?;
        let sizes = RingConfigBuilder {
            rx_count: FRAMES,
            tx_count: FRAMES,
            fill_count: FRAMES,
            completion_count: FRAMES,
        };
        let sizes = sizes.build().map_err(other)?;
        let mut socket = XdpSocketBuilder::new().map_err(|error| failed(source(error)))?;
        let (mut rings, mut flags) =
            socket.build_wakable_rings(&umem, sizes).map_err(|error| failed(source(error)))?;
        flags.force_copy();
        let bound = socket.bind(NicIndex(interface.index), queue, flags);
        let socket = bound.map_err(|error| at_bind(source(error)))?;
        // SAFETY: the memory is dropped after the socket.
        unsafe { rings.fill_ring.enqueue(&mut umem, FRAMES as usize, false) }.map_err(failed)?;
        // SAFETY: the descriptor is open for as long as the socket, which this call does not drop.
        let fd = unsafe { BorrowedFd::borrow_raw(socket.raw_fd()) };
        let redirection = Redirection::attach(interface.index, queue, fd).map_err(failed)?;
        let received = HeapSlab::with_capacity(BATCH);
        Ok(Self { name, _redirection: redirection, rings, received, socket, umem, lost: 0, unsent: false })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open for as long as the socket, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.socket.raw_fd()) }
    }

    /// Whether frames were taken out of the ring that nobody has had yet: waiting would not show them.
    pub(crate) fn has_more(&self) -> bool {
        !self.received.is_empty()
    }

    pub(crate) fn receive(&mut self, arrival: &mut Arrival) -> Result<Taken, Error> {
        if self.unsent {
            // Another failure is told when frames are received.
            self.unsent = sys::send_ring(self.fd()).is_err_and(|error| is_busy(&error));
        }
        if self.received.is_empty()
            && let Some(ring) = &mut self.rings.rx_ring
        {
            // SAFETY: packets are in `received` alone, which is dropped before the memory, and each is freed below.
            unsafe { ring.recv(&self.umem, &mut self.received) };
        }
        let failed = |source| classify(&self.name, "receiving packets from", CAPABILITIES, source);
        let Some(packet) = self.received.pop_back() else {
            return sys::check(self.fd()).map(|()| Taken::Nothing).map_err(failed);
        };
        let len = packet.len();
        arrival.room()[..len].copy_from_slice(&packet);
        self.umem.free_packet(packet);
        // SAFETY: the memory is dropped after the socket.
        let filled = unsafe { self.rings.fill_ring.enqueue(&mut self.umem, 1, true) };
        filled.map_err(failed)?;
        arrival.take(len, 0, None, &[0; sys::HEADER]);
        Ok(Taken::Frame)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.rings.completion_ring.dequeue(&mut self.umem, FRAMES as usize);
        let full = || io::Error::from_raw_os_error(libc::ENOBUFS);
        // SAFETY: the packet goes into the ring or is freed, before the memory is dropped.
        let mut packet = unsafe { self.umem.alloc() }.ok_or_else(full)?;
        if packet.append(bytes).is_err() {
            self.umem.free_packet(packet);
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let mut one = HeapSlab::with_capacity(1);
        one.push_front(packet);
        let Some(ring) = &mut self.rings.tx_ring else { return Err(full()) };
        // SAFETY: the memory is dropped after the socket.
        let sent = unsafe { ring.send(&mut one, true) };
        if let Some(left) = one.pop_back() {
            self.umem.free_packet(left);
            return Err(full());
        }
        match sent {
            // It is in the ring, and the kernel sends it with the next one, or when it is asked again.
            Err(error) if is_busy(&error) => {
                self.unsent = true;
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// The number of frames since the last call that found no room.
    pub(crate) fn dropped(&mut self) -> u64 {
        let Ok(stats) = self.socket.statistics() else { return 0 };
        let all = stats.rx_dropped + stats.rx_ring_full + stats.rx_fill_ring_empty_descs;
        all.saturating_sub(std::mem::replace(&mut self.lost, all))
    }
}

/// Whether the kernel could not send all frames of the ring now, and will when it is asked again.
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS))
}

fn source(error: SocketError) -> io::Error {
    match error {
        SocketError::SocketCreation(source) | SocketError::Bind(source) => source,
        SocketError::SetSockOpt { inner, .. }
        | SocketError::GetSockOpt { inner, .. }
        | SocketError::RingMap { inner, .. } => inner,
    }
}
