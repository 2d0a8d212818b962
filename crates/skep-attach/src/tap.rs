//! A TAP device: what this machine sends to it is read here, and what is written here comes in there.
//!
//! Linux has `/dev/net/tun` for both TUN and TAP; `Documentation/networking/tuntap.rst` describes it. No offloads are
//! asked for, so frames that are read are finished: checksummed, not longer than the device's MTU, tags inside.

use crate::arrival::Arrival;
use crate::error::{Error, classify};
use crate::interface::Interface;
use crate::packets::{self, Taken};
use crate::sys;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

const CAPABILITY: &str = "CAP_NET_ADMIN";

pub(crate) struct Tap {
    name: String,
    tun: File,
}

impl Tap {
    /// Creates the device, which exists as long as this; opens it if it is there already. Brings it up, if permitted.
    pub(crate) fn open(name: &str) -> Result<(Self, Interface), Error> {
        if name.is_empty() || name.len() > 15 || name.contains(|c: char| c == '/' || c.is_whitespace()) {
            return Err(Error::Name { name: name.to_owned() });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let tun = options.open("/dev/net/tun").map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => classify(name, "opening the TAP device", CAPABILITY, source),
            _ => Error::NoTap { source },
        })?;
        sys::become_tap(tun.as_fd(), name).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY | libc::EINVAL) => Error::TapTaken { name: name.to_owned() },
            _ => classify(name, "creating the TAP device", CAPABILITY, source),
        })?;
        // A device that another user has made for this one is up, or its maker brings it up.
        if let Ok(control) = sys::control() {
            let _ = sys::bring_up(control.as_fd(), name);
        }
        Ok((Self { name: name.to_owned(), tun }, Interface::named(name)?))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    pub(crate) fn receive(&mut self, arrival: &mut Arrival) -> Result<Taken, Error> {
        let mut header = [0; sys::HEADER];
        let read = loop {
            let pieces = &mut [io::IoSliceMut::new(&mut header), io::IoSliceMut::new(arrival.room())];
            match rustix::io::readv(&self.tun, pieces) {
                Ok(read) => break read,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(Taken::Nothing),
                Err(error) => {
                    return Err(classify(&self.name, "receiving packets from", CAPABILITY, error.into()));
                }
            }
        };
        let Some(len) = read.checked_sub(sys::HEADER) else { return Ok(Taken::Unreadable) };
        arrival.take(len, 0, None, &header);
        Ok(Taken::Frame)
    }

    pub(crate) fn send(&self, header: &[u8; sys::HEADER], bytes: &[u8]) -> io::Result<()> {
        packets::write(self.tun.as_fd(), header, bytes)
    }
}
