//! Why frames cannot be received or sent.

use std::io;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such interface.
    #[error("there is no network interface {name:?} here; there are {}", list(known))]
    NoInterface {
        /// The name asked for.
        name: String,
        /// The interfaces of this network namespace.
        known: Vec<String>,
    },
    /// The interface is down, so no frames come in.
    #[error("the interface {name} is down; bring it up: ip link set {name} up")]
    Down {
        /// Its name.
        name: String,
    },
    /// The frames of the interface are not Ethernet frames.
    #[error(
        "the interface {name} has no Ethernet frames (its hardware type is {kind}), and programs expect an Ethernet header; \
         choose the interface that carries it"
    )]
    NotEthernet {
        /// Its name.
        name: String,
        /// `ARPHRD_...` of Linux.
        kind: u16,
    },
    /// The system does not permit it.
    #[error(
        "{doing} {name} is not permitted; run it as root, or give the process {capability} (capabilities(7))"
    )]
    Permission {
        /// The interface.
        name: String,
        /// What was tried.
        doing: &'static str,
        /// The capability that permits it.
        capability: &'static str,
    },
    /// The interface went down, or was removed, while frames were received.
    #[error(
        "the interface {name} went down or was removed during the run ({source}); bring it up (ip link set {name} up) and \
         attach again"
    )]
    Gone {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no TAP devices.
    #[error(
        "cannot open /dev/net/tun: {source}; load the kernel's module (modprobe tun), or give the container the device"
    )]
    NoTap {
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the TAP device open.
    #[error("the device {name} is in use by another process, or is no TAP device; choose another name")]
    TapTaken {
        /// Its name.
        name: String,
    },
    /// The kernel has no AF_XDP sockets.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS); use a packet socket")]
    NoXdp,
    /// Another program has the queue's frames.
    #[error(
        "the interface {name} has an XDP program, or an AF_XDP socket on that queue, already; detach it (ip link set dev {name} \
         xdp off), or use another queue"
    )]
    XdpTaken {
        /// Its name.
        name: String,
    },
    /// The interface has no such queue.
    #[error(
        "the interface {name} has no queue {queue}, or its frames do not fit into 4 KiB; ethtool -l {name} shows the queues"
    )]
    NoQueue {
        /// Its name.
        name: String,
        /// The number of the queue, from 0.
        queue: u32,
    },
    /// A name that no interface can have.
    #[error(
        "{name:?} cannot be the name of an interface: names have 1 to 15 bytes, without spaces and slashes"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Another failure of the system.
    #[error("{doing} {name} failed: {source}")]
    System {
        /// The interface.
        name: String,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Waiting for frames failed.
    #[error("cannot wait for frames: {0}")]
    Wait(io::Error),
    /// Programs of that type do not run on frames of an interface.
    #[error("program {program} is of type {program_type}; frames of an interface run through {}", TYPES.join(", "))]
    WrongType {
        /// The program.
        program: String,
        /// Its type.
        program_type: &'static str,
    },
    /// Two ports for one interface.
    #[error("the interface {name} is given twice; give each once")]
    Twice {
        /// Its name.
        name: String,
    },
    /// The program, or loading it, failed.
    #[error(transparent)]
    Program(#[from] skep::Error),
}

/// The names of the program types that run on frames.
pub const TYPES: [&str; 4] = ["xdp", "sched_cls", "sched_act", "socket_filter"];

/// The error for what the system said about an interface.
pub(crate) fn classify(
    name: &str,
    doing: &'static str,
    capability: &'static str,
    source: io::Error,
) -> Error {
    let name = name.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::Permission { name, doing, capability },
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EBADFD | libc::EFAULT) => {
            Error::Gone { name, source }
        }
        _ => Error::System { name, doing, source },
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
