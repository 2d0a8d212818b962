//! What was done with frames, in numbers.

use std::collections::BTreeMap;
use std::fmt;

/// Numbers of frames since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Frames that were run.
    pub frames: u64,
    /// Frames by the program's result, of which the lower 32 bits count.
    pub verdicts: BTreeMap<u64, u64>,
    /// Frames that were to be sent and were not, by reason.
    pub lost: BTreeMap<Lost, u64>,
    /// What passed each port, in their order.
    pub ports: Vec<Passage>,
}

/// What passed a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Passage {
    /// The interface.
    pub name: String,
    /// Frames that came in and were run.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that came in while there was no room for more: the program was too slow for them.
    pub dropped: u64,
    /// Frames that could not be read: longer than 128 KiB, or packets of segments of a kind that Linux does not
    /// describe to packet sockets, as of SCTP.
    pub unreadable: u64,
}

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The program redirects it to an interface that is no port.
    NoPort,
    /// The program redirects it, and no helper said where.
    Nowhere,
    /// The program redirects it to what frames cannot be sent to from here: into an interface of the kernel, to a
    /// socket, to a neighbour.
    Unreachable,
    /// It is longer than the interface's MTU.
    TooLong,
    /// The interface's queue is full.
    Full,
    /// The interface is down.
    Down,
    /// The system refuses the frame, for example because it is shorter than its header.
    Refused,
    /// The interface is a loopback, so it would come in again.
    Loop,
}

impl Lost {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoPort => "redirected to an interface that is not attached",
            Self::Nowhere => "redirected without a target",
            Self::Unreachable => "redirected to what cannot be reached from user space",
            Self::TooLong => "longer than the MTU",
            Self::Full => "the interface's queue was full",
            Self::Down => "the interface was down",
            Self::Refused => "refused by the system",
            Self::Loop => "sent to a loopback",
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Passage {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

impl Counts {
    pub(super) fn lose(&mut self, why: Lost) {
        *self.lost.entry(why).or_default() += 1;
    }

    /// Frames that were sent, of all ports.
    pub fn sent(&self) -> u64 {
        self.ports.iter().map(|port| port.sent).sum()
    }
}
