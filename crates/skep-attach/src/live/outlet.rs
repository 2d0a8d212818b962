//! Ports as places to send packets to, and the account of what was sent.

use super::counts::{Counts, Lost};
use crate::arrival::{Offload, tagged};
use crate::error::{Error, classify};
use crate::port::Port;
use skep::{Packet, Redirect};
use std::io;

/// The ports, and what was done with them.
pub(super) struct Outlet {
    pub(super) ports: Vec<Port>,
    pub(super) counts: Counts,
}

/// A packet to send, and what is left to the device.
#[derive(Clone, Copy)]
pub(super) struct Sent<'a> {
    pub(super) packet: &'a Packet,
    pub(super) offload: Offload,
}

impl Outlet {
    /// Sends a packet where the program said.
    pub(super) fn redirect(&mut self, to: Redirect, devices: &[u32], sent: Sent<'_>) -> Result<(), Error> {
        let index = match to {
            Redirect::Devices => {
                for index in devices {
                    self.leave(*index, sent)?;
                }
                return Ok(());
            }
            Redirect::Device { index, ingress: false } | Redirect::Peer { index } => index,
            // What is written to a TAP device comes in there.
            Redirect::Device { index, ingress: true }
                if self.place(index).is_some_and(|at| self.ports[at].faces_the_machine()) =>
            {
                index
            }
            _ => {
                self.counts.lose(Lost::Unreachable);
                return Ok(());
            }
        };
        self.leave(index, sent)
    }

    fn place(&self, index: u32) -> Option<usize> {
        self.ports.iter().position(|port| port.interface().index == index)
    }

    fn leave(&mut self, index: u32, sent: Sent<'_>) -> Result<(), Error> {
        match self.place(index) {
            Some(at) => self.send(at, sent),
            None => {
                self.counts.lose(Lost::NoPort);
                Ok(())
            }
        }
    }

    /// Sends a packet out of a port.
    pub(super) fn send(&mut self, at: usize, sent: Sent<'_>) -> Result<(), Error> {
        if self.ports[at].interface().loopback {
            self.counts.lose(Lost::Loop);
            return Ok(());
        }
        let Sent { packet, mut offload } = sent;
        let mut bytes = packet.bytes();
        let with_tag;
        if let Some(vlan) = packet.info.vlan
            && let Some(bytes_with_tag) = tagged(bytes, vlan)
        {
            with_tag = bytes_with_tag;
            bytes = &with_tag;
            offload = offload.behind_a_tag();
        }
        let port = &mut self.ports[at];
        match port.send(bytes, &offload) {
            Ok(()) => {
                self.counts.ports[at].sent += 1;
                self.counts.ports[at].sent_bytes += bytes.len() as u64;
            }
            Err(error) => self.counts.lose(lost(&port.interface().name, error)?),
        }
        Ok(())
    }
}

/// Why a frame was not sent; an error if none can be.
fn lost(name: &str, error: io::Error) -> Result<Lost, Error> {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => Ok(Lost::TooLong),
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Ok(Lost::Full),
        // A TAP device that is down.
        Some(libc::EIO) => Ok(Lost::Down),
        Some(libc::EINVAL) => Ok(Lost::Refused),
        _ => Err(classify(name, "sending packets to", "CAP_NET_RAW", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_of_one_frame_does_not_end_the_run_and_a_lost_device_does() {
        let lost = |number| super::lost("x", io::Error::from_raw_os_error(number));
        assert_eq!(lost(libc::EMSGSIZE).unwrap(), Lost::TooLong);
        assert_eq!(lost(libc::ENOBUFS).unwrap(), Lost::Full);
        assert_eq!(lost(libc::EIO).unwrap(), Lost::Down);
        assert_eq!(lost(libc::EINVAL).unwrap(), Lost::Refused);
        for gone in [libc::ENETDOWN, libc::ENXIO] {
            let Err(error) = lost(gone) else { panic!("goes on") };
            assert!(matches!(error, Error::Gone { .. }) && error.to_string().contains("ip link set x up"));
        }
    }
}
