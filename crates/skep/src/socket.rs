//! Sockets as programs see them.
//!
//! A [`Socket`] is a value of the host. A program reads `struct bpf_sock` or `struct bpf_tcp_sock` through a pointer,
//! so each socket that a run can reach has these structures beside it, in one counted object:
//!
//! ```text
//!   NativeSocket   bpf_sock (80 bytes) | ... | bpf_tcp_sock (112 bytes) | Arc<Socket>
//!                  ^ pointer to a socket       ^ pointer to a TCP socket
//!                  0                           128                        240
//! ```
//!
//! The object is aligned to its size, so either pointer leads to it. Helpers therefore take only pointers that this
//! runtime made: what else the verifier takes for a socket is refused at load ([`crate::provides`]).
//!
//! Invariant: a socket lives until the run ends that can reach it. Packets and contexts own theirs; what helpers look
//! up is kept by the run's effects, whether or not the program has released it; members of maps outlive the run's
//! section.

use skep_abi::SkbContext;
use skep_maps::Member;
use skep_world::{Protocol, Socket, SocketState, Tcp};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A socket with the structures that programs read.
#[repr(C, align(256))]
#[derive(Debug)]
pub(crate) struct NativeSocket {
    /// Relaxed everywhere: a helper may change a word while programs of other threads read it.
    sock: [AtomicU32; SOCK_WORDS],
    apart: [u32; 12],
    tcp: Tcp,
    socket: Arc<Socket>,
}

const SOCK_WORDS: usize = 20;
/// Where the structure of TCP begins.
const TCP: u64 = std::mem::offset_of!(NativeSocket, tcp) as u64;
const _: () = assert!(size_of::<NativeSocket>() == 256 && TCP == 128 && size_of::<Tcp>() == 112);
/// `SOL_SOCKET` with `SO_MARK` and `SO_PRIORITY`.
const SO_MARK: (i32, i32) = (1, 36);
const SO_PRIORITY: (i32, i32) = (1, 12);

impl NativeSocket {
    /// Words of `struct bpf_sock` that options change.
    pub(crate) const MARK: usize = 4;
    pub(crate) const PRIORITY: usize = 5;

    pub(crate) fn new(socket: Arc<Socket>) -> Arc<Self> {
        let sock = sock(&socket).map(AtomicU32::new);
        let tcp = socket.tcp;
        let native = Arc::new(Self { sock, apart: [0; 12], tcp, socket });
        #[cfg(test)]
        live::add(native.address());
        native
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// The address that programs get.
    pub(crate) fn address(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).expose_provenance() as u64
    }

    /// The socket of a pointer that a program passes; `None` for null.
    ///
    /// # Safety
    ///
    /// The pointer is null or one that this runtime gave to the run in progress, as `bpf_sock` or as `bpf_tcp_sock`.
    pub(crate) unsafe fn of<'a>(pointer: u64) -> Option<&'a Self> {
        let start = pointer & !(align_of::<Self>() as u64 - 1);
        // SAFETY: the caller's promise, and what runs can reach lives until they end.
        unsafe { std::ptr::with_exposed_provenance::<Self>(start as usize).as_ref() }
    }

    /// The same, to be kept beyond the run.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of).
    pub(crate) unsafe fn keep(pointer: u64) -> Option<Arc<Self>> {
        // SAFETY: the caller's promise.
        let start: *const Self = unsafe { Self::of(pointer) }?;
        let start = std::ptr::with_exposed_provenance::<Self>(start.addr());
        // SAFETY: all of these objects are made by `new`, in an `Arc` that lives during the run.
        Some(unsafe {
            Arc::increment_strong_count(start);
            Arc::from_raw(start)
        })
    }

    /// The pointer to its other fields, for TCP.
    pub(crate) fn tcp_pointer(&self) -> u64 {
        (&raw const self.tcp).addr() as u64
    }

    /// An element of a map of sockets.
    pub(crate) fn member(self: &Arc<Self>) -> Member {
        let object: skep_maps::Object = Arc::clone(self) as _;
        // SAFETY: the object begins with the structure, and only `NativeSocket::of` follows the address.
        unsafe { Member::new(self.socket.cookie, object).at(self.address()) }
    }

    /// Whether it has more than the fields of every socket.
    pub(crate) fn is_full(&self) -> bool {
        !matches!(self.socket.state, SocketState::TimeWait | SocketState::NewSynReceived)
    }

    /// Changes a field that is also an option.
    pub(crate) fn set_word(&self, word: usize, value: u32) {
        self.sock[word].store(value, Ordering::Relaxed);
    }

    /// The structure's words.
    pub(crate) fn words(&self) -> [u32; SOCK_WORDS] {
        std::array::from_fn(|at| self.sock[at].load(Ordering::Relaxed))
    }

    /// Fills in the fields of a packet's socket.
    pub(crate) fn describe(self: &Arc<Self>, context: &mut SkbContext) {
        let words = self.words();
        let word = |at: usize| words[at];
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

/// The element of a `sockmap`, `sockhash` or `reuseport_sockarray` for a socket: [`skep_maps::Map::set_member`] puts it
/// there.
pub fn socket_member(socket: Arc<Socket>) -> Member {
    NativeSocket::new(socket).member()
}

/// The socket of an element that [`socket_member`] or a program made.
pub fn socket_of(member: &Member) -> Option<Arc<Socket>> {
    let native = member.object().downcast_ref::<NativeSocket>()?;
    Some(Arc::clone(native.socket()))
}

/// The element for a socket that a program stores.
///
/// # Safety
///
/// As for [`NativeSocket::of`].
pub(crate) unsafe fn make_member(pointer: u64) -> Result<Member, i32> {
    const EINVAL: i32 = 22;
    const EOPNOTSUPP: i32 = 95;
    // SAFETY: the caller's promise.
    let socket = unsafe { NativeSocket::keep(pointer) }.ok_or(EINVAL)?;
    let state = socket.socket().state;
    let stored = socket.socket().protocol != Protocol::Tcp
        || matches!(state, SocketState::Established | SocketState::Listen);
    if stored { Ok(socket.member()) } else { Err(EOPNOTSUPP) }
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
    let set = |(level, name)| socket.options.number(level, name).map(i32::cast_unsigned);
    words[NativeSocket::MARK] = set(SO_MARK).unwrap_or(socket.mark);
    words[NativeSocket::PRIORITY] = set(SO_PRIORITY).unwrap_or(socket.priority);
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

/// The sockets that exist, for checking mode.
#[cfg(test)]
pub(crate) mod live {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    static LIVE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

    fn all() -> MutexGuard<'static, BTreeSet<u64>> {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(address: u64) {
        all().insert(address);
    }

    /// Whether the bytes are in a structure of a socket that exists.
    pub(crate) fn has(at: u64, bytes: u64) -> bool {
        let inside = |start: u64, len: u64| at >= start && at + bytes <= start + len;
        let known = all().range(..=at).next_back().copied();
        known.is_some_and(|start| inside(start, 80) || inside(start + super::TCP, 112))
    }

    impl Drop for super::NativeSocket {
        fn drop(&mut self) {
            all().remove(&((&raw const *self).addr() as u64));
        }
    }
}
