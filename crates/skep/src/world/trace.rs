//! What happened to a packet: the programs that it met, and where it ended.

use crate::packet::{Packet, Redirect};
use skep_abi::ProgramType;
use skep_world::Machine;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A place where a packet meets programs: of a device ([`World::attach`](super::World::attach)) or of the machine's own
/// network stack ([`World::attach_at`](super::World::attach_at)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// XDP: before everything else.
    Xdp,
    /// tc, for packets that come in.
    Ingress,
    /// tc, for packets that leave.
    Egress,
    /// XDP, on a packet that was redirected to the device through a map.
    Devmap,
    /// XDP, on the CPU that a packet was redirected to; the device is the one that it came in on.
    Cpumap,
    /// The primary end of a pair that only programs connect, for packets that it sends.
    NetkitPrimary,
    /// The other end of such a pair, for packets that that one sends. Programs are attached to the primary end.
    NetkitPeer,
    /// The packet filter, before the route of a packet that came in is looked up.
    PreRouting,
    /// The packet filter, for packets to the machine itself.
    LocalIn,
    /// The packet filter, for packets that the machine forwards.
    Forward,
    /// The packet filter, for packets that a socket sends.
    LocalOut,
    /// The packet filter, for packets that leave.
    PostRouting,
    /// The look-up of the socket that receives a packet.
    Lookup,
    /// The choice among sockets that share an address.
    ReusePort,
    /// A socket's own filter.
    Filter,
    /// A cgroup, for packets that its sockets receive.
    CgroupIngress,
    /// A cgroup, for packets that its sockets send.
    CgroupEgress,
}

/// The way of a packet and of its copies.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The programs that they met, in order.
    pub hops: Vec<Hop>,
    /// Where the packet ended.
    pub fate: Fate,
    /// Where copies of it ended (`bpf_clone_redirect`), in the order in which they were made.
    pub copies: Vec<Ended>,
}

/// One program on the way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hop {
    /// 0 for the packet itself, from 1 for copies: an index into [`Trace::copies`], plus one.
    pub copy: u32,
    /// The device's index.
    pub device: u32,
    /// Where on the device.
    pub place: Place,
    /// The program's name.
    pub program: Arc<str>,
    /// Its type.
    pub program_type: &'static ProgramType,
    /// Its result.
    pub result: u32,
    /// Where it redirected the packet.
    pub redirect: Option<Redirect>,
}

impl Hop {
    /// The name of the result, if the program's type gives it one.
    pub fn verdict(&self) -> Option<&'static str> {
        self.program_type.verdict(self.result.into())
    }
}

/// The hops of a trace while a packet is on its way. Those of the packet before are overwritten: a name that stays is
/// not counted again.
pub(super) struct Hops<'a> {
    hops: &'a mut Vec<Hop>,
    used: usize,
}

impl<'a> Hops<'a> {
    pub(super) const fn over(hops: &'a mut Vec<Hop>) -> Self {
        Self { hops, used: 0 }
    }

    /// Adds a hop of the program with that name and type. The caller fills in the rest.
    #[inline]
    pub(super) fn add(&mut self, name: &Arc<str>, program_type: &'static ProgramType) -> &mut Hop {
        let place = self.used;
        self.used += 1;
        if self.hops.get(place).is_none_or(|old| !Arc::ptr_eq(&old.program, name)) {
            self.hops.truncate(place);
            let program = Arc::clone(name);
            let (copy, device, result, redirect) = (0, 0, 0, None);
            self.hops.push(Hop { copy, device, place: Place::Xdp, program, program_type, result, redirect });
        }
        let hop = &mut self.hops[place];
        hop.program_type = program_type;
        hop
    }
}

impl Drop for Hops<'_> {
    fn drop(&mut self) {
        self.hops.truncate(self.used);
    }
}

/// A copy that ended somewhere.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// Where.
    pub fate: Fate,
    /// The packet as it was then.
    pub packet: Packet,
}

/// Where a packet ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// Nothing has happened to it yet.
    #[default]
    Waiting,
    /// It left by this device, which has no peer.
    Sent {
        /// The device's index.
        device: u32,
    },
    /// The machine itself received it on this device, and it is for none of its sockets: it is for all stations,
    /// neither TCP nor UDP, or for an address where nobody listens.
    Delivered {
        /// The device's index.
        device: u32,
    },
    /// A socket of the machine received it.
    Received {
        /// The index of the device that it came in on.
        device: u32,
        /// The socket's cookie.
        socket: u64,
    },
    /// A program dropped it.
    Dropped {
        /// The program's name.
        program: Arc<str>,
        /// Its verdict.
        verdict: &'static str,
    },
    /// A program kept it: its verdict is `stolen`, `queued` or `trap`.
    Consumed {
        /// The program's name.
        program: Arc<str>,
        /// Its verdict.
        verdict: &'static str,
    },
    /// An AF_XDP socket has it.
    Socket {
        /// The socket's number, as the host wrote it into the map.
        socket: u32,
    },
    /// The target that it was redirected to has a program that the host no longer keeps.
    NoProgram {
        /// The device of the target, or the one that it came in on.
        device: u32,
    },
    /// A program asked for a redirection and named no target.
    NoTarget {
        /// The program's name.
        program: Arc<str>,
    },
    /// It should come in or leave by a device that does not exist.
    NoDevice {
        /// The device's index.
        device: u32,
    },
    /// The device is down.
    Down {
        /// The device's index.
        device: u32,
    },
    /// It should go to the peer of a device that has none.
    NoPeer {
        /// The device's index.
        device: u32,
    },
    /// No program let it pass from this end of a pair that only programs connect.
    NotConnected {
        /// The device's index.
        device: u32,
    },
    /// Its Ethernet destination is another machine's.
    OtherHost {
        /// The device's index.
        device: u32,
    },
    /// It is not a packet that the machine can forward: too short, or of a wrong length.
    Malformed {
        /// The device's index.
        device: u32,
    },
    /// There is no route to its destination, or the device does not forward.
    NoRoute {
        /// The device that it came in on.
        device: u32,
    },
    /// A route says that it is dropped.
    Prohibited {
        /// The device that it came in on.
        device: u32,
    },
    /// The Ethernet address of the next hop is not known.
    NoNeighbour {
        /// The device that would send it.
        device: u32,
        /// The next hop.
        address: IpAddr,
    },
    /// Its time to live is over.
    Expired {
        /// The device that it came in on.
        device: u32,
    },
    /// It is longer than the MTU.
    TooLong {
        /// The device that would send it.
        device: u32,
        /// The MTU in bytes.
        mtu: u32,
    },
    /// It went on for so many steps that it was cut off.
    Loop {
        /// The steps, from place to place.
        steps: u32,
    },
}

impl Trace {
    /// Forgets everything, and keeps the memory for the next packet.
    pub fn clear(&mut self) {
        self.hops.clear();
        self.copies.clear();
        self.fate = Fate::Waiting;
    }

    /// The names of the programs that the packet itself met, in order.
    pub fn programs(&self) -> Vec<&str> {
        self.hops.iter().filter(|hop| hop.copy == 0).map(|hop| &*hop.program).collect()
    }

    /// The trace as lines of text, with the names of the machine's devices.
    pub fn show<'a>(&'a self, machine: &'a Machine) -> impl fmt::Display + 'a {
        Shown { trace: self, machine }
    }
}

impl Fate {
    /// The fate as text, with the names of the machine's devices.
    pub fn show(&self, machine: &Machine) -> String {
        Names { machine }.fate(self)
    }
}

struct Shown<'a> {
    trace: &'a Trace,
    machine: &'a Machine,
}

/// Names of devices.
struct Names<'a> {
    machine: &'a Machine,
}

impl Names<'_> {
    fn name(&self, index: u32) -> String {
        match self.machine.find_device(index) {
            Some(device) => device.name.clone(),
            None if index == 0 => "the sender".to_owned(),
            None => format!("device {index}"),
        }
    }

    fn fate(&self, fate: &Fate) -> String {
        let name = |device: &u32| self.name(*device);
        match fate {
            Fate::Waiting => "not moved yet".to_owned(),
            Fate::Sent { device } => format!("sent by {}", name(device)),
            Fate::Delivered { device } => format!("delivered on {}", name(device)),
            Fate::Received { device, socket } => self.received(*device, *socket),
            Fate::Dropped { program, verdict } => format!("dropped by {program}: {verdict}"),
            Fate::Consumed { program, verdict } => format!("kept by {program}: {verdict}"),
            Fate::Socket { socket } => format!("received by socket {socket}"),
            Fate::NoProgram { device } => {
                format!("dropped: the program of the target on {} is gone", name(device))
            }
            Fate::NoTarget { program } => format!("dropped: {program} redirects it and names no target"),
            Fate::NoDevice { device } => format!("dropped: there is no device {device}"),
            Fate::Down { device } => format!("dropped: {} is down", name(device)),
            Fate::NoPeer { device } => format!("dropped: {} has no peer", name(device)),
            Fate::NotConnected { device } => {
                format!("dropped: no program lets it pass from {} to its peer", name(device))
            }
            Fate::OtherHost { device } => format!("ignored on {}: it is for another machine", name(device)),
            Fate::Malformed { device } => format!("dropped on {}: it is malformed", name(device)),
            Fate::NoRoute { device } => format!("dropped: no route from {}", name(device)),
            Fate::Prohibited { device } => format!("dropped by a route from {}", name(device)),
            Fate::NoNeighbour { device, address } => {
                format!("dropped: {} does not know the Ethernet address of {address}", name(device))
            }
            Fate::Expired { device } => format!("dropped on {}: its time to live is over", name(device)),
            Fate::TooLong { device, mtu } => {
                format!("dropped: too long for {}, whose MTU is {mtu}", name(device))
            }
            Fate::Loop { steps } => format!("cut off after {steps} steps: a loop"),
        }
    }

    /// The socket with its address.
    fn received(&self, device: u32, cookie: u64) -> String {
        let device = self.name(device);
        match self.machine.socket(cookie) {
            Ok(socket) => {
                let (protocol, local) = (socket.protocol, socket.local);
                format!("received on {device} by socket {cookie} ({protocol} {local})")
            }
            Err(_) => format!("received on {device} by socket {cookie}"),
        }
    }

    fn redirect(&self, redirect: Redirect) -> String {
        match redirect {
            Redirect::Device { index, ingress: false } => format!("to {}", self.name(index)),
            Redirect::Device { index, ingress: true } => format!("into {}", self.name(index)),
            Redirect::Devices => "to several devices".to_owned(),
            Redirect::Cpu { cpu } => format!("to CPU {cpu}"),
            Redirect::Socket { socket } => format!("to socket {socket}"),
            Redirect::Stream { cookie, .. } => format!("to the socket with the cookie {cookie}"),
            Redirect::Peer { index } => format!("into the peer of {}", self.name(index)),
            Redirect::Neighbour { index, next_hop: None } => {
                format!("to a neighbour on {}", self.name(index))
            }
            Redirect::Neighbour { index, next_hop: Some(address) } => {
                format!("to {address} on {}", self.name(index))
            }
        }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Names { machine: self.machine };
        for hop in &self.trace.hops {
            if hop.copy > 0 {
                write!(f, "copy {}: ", hop.copy)?;
            }
            write!(f, "{} {}: {} ", names.name(hop.device), hop.place, hop.program)?;
            match hop.verdict() {
                Some(verdict) => f.write_str(verdict)?,
                None => write!(f, "{}", hop.result)?,
            }
            if let Some(redirect) = hop.redirect {
                write!(f, " {}", names.redirect(redirect))?;
            }
            writeln!(f)?;
        }
        write!(f, "{}", names.fate(&self.trace.fate))?;
        for (index, copy) in self.trace.copies.iter().enumerate() {
            write!(f, "\ncopy {}: {}", index + 1, names.fate(&copy.fate))?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xdp => "xdp",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
            Self::Devmap => "devmap",
            Self::Cpumap => "cpumap",
            Self::NetkitPrimary => "netkit primary",
            Self::NetkitPeer => "netkit peer",
            Self::PreRouting => "prerouting",
            Self::LocalIn => "input",
            Self::Forward => "forward",
            Self::LocalOut => "output",
            Self::PostRouting => "postrouting",
            Self::Lookup => "socket look-up",
            Self::ReusePort => "reuseport",
            Self::Filter => "socket filter",
            Self::CgroupIngress => "cgroup ingress",
            Self::CgroupEgress => "cgroup egress",
        })
    }
}
