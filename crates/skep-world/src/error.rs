//! Why a machine refuses a change.

use std::net::IpAddr;

/// An error of [`crate::Machine`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device's name is taken.
    #[error("there is already a device named {name} (index {index}): choose another name")]
    NameTaken {
        /// The name.
        name: String,
        /// The device that has it.
        index: u32,
    },
    /// A device's index is taken.
    #[error("there is already a device with index {index}: {name}")]
    IndexTaken {
        /// The index.
        index: u32,
        /// The name of the device that has it.
        name: String,
    },
    /// A device's name is not one that Linux allows.
    #[error(
        "`{name}` is not a device name: 1 to 15 bytes without `/`, `:` and white space, and not `.` or `..`"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// There is no such device.
    #[error("there is no device with index {index}; devices: {known}")]
    NoDevice {
        /// The index.
        index: u32,
        /// Those that exist.
        known: String,
    },
    /// There is no device of that name.
    #[error("there is no device {name}; devices: {known}")]
    NoDeviceNamed {
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// A next hop is of another family than the route.
    #[error("the next hop {via} is of another family than the route to {to}")]
    OtherFamily {
        /// The next hop.
        via: IpAddr,
        /// The route's destination.
        to: ipnet::IpNet,
    },
    /// A socket's number is taken.
    #[error("there is already a socket with cookie {cookie}: cookies are unique")]
    CookieTaken {
        /// The cookie.
        cookie: u64,
    },
    /// There is no such socket.
    #[error("there is no socket with cookie {cookie}: add one with Machine::add_socket")]
    NoSocket {
        /// The cookie.
        cookie: u64,
    },
    /// A socket is in no group.
    #[error(
        "the socket with cookie {cookie} shares its address with no other: set Socket::reuse_port of one that is not \
         connected"
    )]
    NoGroup {
        /// The cookie.
        cookie: u64,
    },
    /// A device is not the first end of a pair that only programs connect.
    #[error(
        "device {index} is no primary netkit device: programs of both ends of a pair are attached to that one"
    )]
    NoNetkit {
        /// The device's index.
        index: u32,
    },
    /// Something that could be probed is there already.
    #[error("{name} cannot be added: there is {by} already")]
    ProbeTaken {
        /// What was to be added.
        name: String,
        /// What is there.
        by: String,
    },
    /// Nothing of that name can be probed.
    #[error("nothing of the name {name} can be probed: add it to Machine::probes, in a file under [probes]")]
    NoProbe {
        /// The name.
        name: String,
    },
    /// Something cannot be probed, or cannot happen so.
    #[error("{name}: {why}")]
    BadProbe {
        /// What it is.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// Memory cannot be added.
    #[error("{len} bytes of memory at {address:#x}: {why}")]
    Memory {
        /// Where it would begin.
        address: u64,
        /// Its bytes.
        len: usize,
        /// Why not.
        why: &'static str,
    },
}
