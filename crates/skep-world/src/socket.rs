//! Sockets.

use crate::options::SocketOptions;
use crate::tcp::Tcp;
use std::net::SocketAddr;

/// The transport protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// The state of a TCP socket, with Linux's numbers; of UDP sockets, `Established` and `Closed` are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the states of RFC 9293
pub enum SocketState {
    #[default]
    Established = 1,
    SynSent = 2,
    SynReceived = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Closed = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
    NewSynReceived = 12,
}

/// A socket. Machines and programs share it as `Arc<Socket>`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Socket {
    /// Its number, which no other socket has; 0 lets the machine choose one.
    pub cookie: u64,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its state.
    pub state: SocketState,
    /// Its own address.
    pub local: SocketAddr,
    /// The other end, if it is connected.
    pub remote: Option<SocketAddr>,
    /// The device that it is bound to.
    pub device: Option<u32>,
    /// The network namespace that it is in.
    pub namespace: u32,
    /// The user that owns it.
    pub uid: u32,
    /// Its mark.
    pub mark: u32,
    /// Its priority.
    pub priority: u32,
    /// Its cgroup, by number.
    pub cgroup: u64,
    /// Whether it shares its address with others (`SO_REUSEPORT`): those of a namespace with the same protocol, address
    /// and device are a group.
    pub reuse_port: bool,
    /// The options that programs read and set.
    pub options: SocketOptions,
    /// The numbers of its connection, for TCP.
    pub tcp: Tcp,
}

impl Socket {
    /// A TCP socket that listens at this address.
    pub const fn listening(local: SocketAddr) -> Self {
        Self::new(Protocol::Tcp, SocketState::Listen, local, None)
    }

    /// A connected socket.
    pub const fn connected(protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Self {
        Self::new(protocol, SocketState::Established, local, Some(remote))
    }

    /// A UDP socket that receives at this address from anybody.
    pub const fn bound(local: SocketAddr) -> Self {
        Self::new(Protocol::Udp, SocketState::Closed, local, None)
    }

    const fn new(
        protocol: Protocol,
        state: SocketState,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Self {
        Self {
            cookie: 0,
            protocol,
            state,
            local,
            remote,
            device: None,
            namespace: 0,
            uid: 0,
            mark: 0,
            priority: 0,
            cgroup: 0,
            reuse_port: false,
            options: SocketOptions::new(),
            tcp: Tcp::new(),
        }
    }
}
