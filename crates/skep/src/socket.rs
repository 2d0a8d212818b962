//! Sockets as programs see them.
//!
//! A [`Socket`] is a value of the host. A program reads `struct bpf_sock` through a pointer, so each socket that a
//! run can reach has this structure beside it, in one counted object:
//!
//! ```text
//!   NativeSocket   bpf_sock (80 bytes) | Arc<Socket>
//!                  ^ pointer to a socket
//! ```
//!
//! Invariant: the sockets of packets and contexts are such objects, which live as long as the packet or context names
//! them, so until the run ends.

use skep_abi::SkbContext;
use skep_world::{Protocol, Socket, SocketState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A socket with the structures that programs read.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct NativeSocket {
    sock: [u32; SOCK_WORDS],
    socket: Arc<Socket>,
}

const SOCK_WORDS: usize = 20;

impl NativeSocket {
    pub(crate) fn new(socket: Arc<Socket>) -> Arc<Self> {
        Arc::new(Self { sock: sock(&socket), socket })
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// The address that programs get.
    pub(crate) fn address(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).expose_provenance() as u64
    }

    /// Whether it has more than the fields of every socket.
    pub(crate) fn is_full(&self) -> bool {
        !matches!(self.socket.state, SocketState::TimeWait | SocketState::NewSynReceived)
    }

    /// Fills in the fields of a packet's socket.
    pub(crate) fn describe(self: &Arc<Self>, context: &mut SkbContext) {
        let word = |at: usize| self.sock[at];
        context.sk = self.address();
        context.family = word(1);
        context.local_ip4 = word(6);
        context.local_ip6 = [word(7), word(8), word(9), word(10)];
        context.local_port = word(11);
        // In network order, in the upper half, as Linux shifts it.
        context.remote_port = u32::from_ne_bytes({
            let [a, b, ..] = word(12).to_ne_bytes();
            if cfg!(target_endian = "little") { [0, 0, a, b] } else { [a, b, 0, 0] }
        });
        context.remote_ip4 = word(13);
        context.remote_ip6 = [word(14), word(15), word(16), word(17)];
    }
}

/// `struct bpf_sock`. Addresses and the remote port are in network order, the local port is a number.
fn sock(socket: &Socket) -> [u32; SOCK_WORDS] {
    const UNSET: u32 = u32::MAX;
    let mut words = [0; SOCK_WORDS];
    words[0] = socket.device.unwrap_or(0);
    words[1] = if socket.local.is_ipv4() { 2 } else { 10 };
    (words[2], words[3]) = match socket.protocol {
        Protocol::Udp => (2, 17),
        _ => (1, 6),
    };
    words[4] = socket.mark;
    words[5] = socket.priority;
    address(socket.local, &mut words[6..11]);
    words[11] = socket.local.port().into();
    if let Some(remote) = socket.remote {
        let [a, b] = remote.port().to_be_bytes();
        words[12] = u32::from_ne_bytes([a, b, 0, 0]);
        address(remote, &mut words[13..18]);
    }
    words[18] = socket.state as u32;
    words[19] = UNSET;
    words
}

/// Writes the words of an IPv4 address, or the four of an IPv6 address behind it.
fn address(of: SocketAddr, words: &mut [u32]) {
    match of.ip() {
        IpAddr::V4(ip) => words[0] = u32::from_ne_bytes(ip.octets()),
        IpAddr::V6(ip) => {
            for (word, bytes) in words[1..].iter_mut().zip(ip.octets().as_chunks::<4>().0) {
                *word = u32::from_ne_bytes(*bytes);
            }
        }
    }
}
