//! An interface that frames come from and go to, in whichever way.

use crate::arrival::{Arrival, Offload};
use crate::error::Error;
use crate::interface::Interface;
use crate::packets::{Packets, Taken};
use crate::tap::Tap;
use crate::xsk::Xsk;
use std::io;
use std::os::fd::BorrowedFd;

/// An interface that frames come from and go to.
pub struct Port {
    interface: Interface,
    way: Way,
}

enum Way {
    Packets(Packets),
    Tap(Tap),
    Xdp(Box<Xsk>),
}

impl Port {
    /// A packet socket on that interface: it gets copies of the frames that come in, and sends frames. `promiscuous`:
    /// those for other machines as well, which come in only then on most networks.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`], [`Error::Down`], [`Error::NotEthernet`], [`Error::Permission`] (the capability
    /// CAP_NET_RAW is needed), and [`Error::System`].
    pub fn packets(name: &str, promiscuous: bool) -> Result<Self, Error> {
        let interface = Interface::named(name)?.usable()?;
        let packets = Packets::open(&interface, promiscuous)?;
        Ok(Self { interface, way: Way::Packets(packets) })
    }

    /// The TAP device of that name, created unless it exists: frames that this machine sends to it come here, and
    /// those sent here come in there. A device that was created is removed when the port is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Name`], [`Error::NoTap`], [`Error::TapTaken`], [`Error::Permission`] (the capability CAP_NET_ADMIN is
    /// needed to create one), and [`Error::System`].
    pub fn tap(name: &str) -> Result<Self, Error> {
        let (tap, interface) = Tap::open(name)?;
        Ok(Self { interface, way: Way::Tap(tap) })
    }

    /// An AF_XDP socket: the frames that come in on that queue are taken from the kernel, which no longer handles
    /// them. A small program of the kernel's, in XDP's generic mode, redirects them; it is gone when the port is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`Port::packets`] (CAP_NET_ADMIN and CAP_BPF are needed as well), [`Error::NoXdp`], [`Error::XdpTaken`], and
    /// [`Error::NoQueue`].
    pub fn queue(name: &str, queue: u32) -> Result<Self, Error> {
        let interface = Interface::named(name)?.usable()?;
        let xsk = Xsk::open(&interface, queue)?;
        Ok(Self { interface, way: Way::Xdp(Box::new(xsk)) })
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Whether this machine is at the other end: what is sent here comes in at the device.
    pub(crate) fn faces_the_machine(&self) -> bool {
        matches!(self.way, Way::Tap(_))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Packets(packets) => packets.fd(),
            Way::Tap(tap) => tap.fd(),
            Way::Xdp(xsk) => xsk.fd(),
        }
    }

    /// Whether it has frames that a wait does not show.
    pub(crate) fn has_more(&self) -> bool {
        matches!(&self.way, Way::Xdp(xsk) if xsk.has_more())
    }

    /// Whether a wait does not show that its interface is gone: only the next call to receive does.
    pub(crate) fn ends_silently(&self) -> bool {
        matches!(self.way, Way::Xdp(_))
    }

    pub(crate) fn receive(&mut self, arrival: &mut Arrival) -> Result<Taken, Error> {
        match &mut self.way {
            Way::Packets(packets) => packets.receive(arrival),
            Way::Tap(tap) => tap.receive(arrival),
            Way::Xdp(xsk) => xsk.receive(arrival),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], offload: &Offload) -> io::Result<()> {
        match &mut self.way {
            Way::Packets(packets) => packets.send(&offload.header(), bytes),
            Way::Tap(tap) => tap.send(&offload.header(), bytes),
            Way::Xdp(xsk) => xsk.send(bytes),
        }
    }

    /// The number of frames since the last call that came in and found no room.
    pub(crate) fn dropped(&mut self) -> u64 {
        match &mut self.way {
            Way::Packets(packets) => packets.dropped(),
            Way::Tap(_) => 0,
            Way::Xdp(xsk) => xsk.dropped(),
        }
    }
}
