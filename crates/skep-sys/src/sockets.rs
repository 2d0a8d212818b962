//! Sockets of callers as elements of maps: `sockmap`, `sockhash`, `reuseport_sockarray`, and the owners of values in
//! `sk_storage`.
//!
//! A socket is known by its cookie, which no other socket gets. An element holds no socket open: it ends when the
//! socket is closed, as in Linux. Who serves callers says so ([`System::end_socket`], [`Caller::closed_sockets`]).
//!
//! A socket that is put into a map takes the programs that the map has at that moment, and has one of each kind. In
//! which maps it is, only the engine knows, since programs change them too. So what is kept here of a socket's programs
//! is believed only while some map has the socket.
//!
//! What would break it: an element that is put after its socket's end was told. It would stay for ever. So a caller
//! tells of a socket's end only once the call that has named it is over.

use crate::attach::Places;
use crate::caller::Caller;
use crate::engine::{Engine, Value};
use crate::errno::Errno;
use crate::maps::{MapObject, index_of, kind};
use crate::place::attach_type as at;
use crate::system::{Shared, System};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_VSOCK: u32 = 40;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_SEQPACKET: u32 = 5;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
/// `BPF_NOEXIST` and `BPF_EXIST`.
const NOEXIST: u64 = 1;
const EXIST: u64 = 2;

/// A socket of a caller, by the words of the system's own interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSocket {
    /// Its number, which no other socket of the system has (`SO_COOKIE`).
    pub cookie: u64,
    /// Its family (`AF_INET`).
    pub family: u32,
    /// Its type (`SOCK_STREAM`).
    pub kind: u32,
    /// Its protocol (`IPPROTO_TCP`).
    pub protocol: u32,
    /// Whether it is connected or listens.
    pub state: ClientState,
    /// Whether it shares its address with others (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// Its own address, if it is one of IP.
    pub local: Option<SocketAddr>,
    /// The other end's, if it is connected to one of IP.
    pub remote: Option<SocketAddr>,
}

/// What a socket can do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// It is connected.
    Established,
    /// It takes connections.
    Listening,
    /// Neither.
    Other,
}

impl ClientSocket {
    /// Whether it is one of TCP.
    pub fn is_tcp(&self) -> bool {
        self.is_ip() && self.kind == SOCK_STREAM && self.protocol == IPPROTO_TCP
    }

    /// Whether it is one of UDP.
    pub fn is_udp(&self) -> bool {
        self.is_ip() && self.kind == SOCK_DGRAM && self.protocol == IPPROTO_UDP
    }

    fn is_ip(&self) -> bool {
        matches!(self.family, AF_INET | AF_INET6)
    }

    /// Whether it has a port, by which it receives.
    fn is_bound(&self) -> bool {
        self.local.is_some_and(|local| local.port() != 0)
    }

    /// Whether maps of sockets take it, in its state.
    fn fits_sockmap(&self) -> bool {
        let connected = self.state == ClientState::Established;
        match (self.family, self.kind) {
            _ if self.is_tcp() => connected || self.state == ClientState::Listening,
            _ if self.is_udp() => self.is_bound(),
            (AF_UNIX, SOCK_STREAM) => connected,
            (AF_VSOCK, SOCK_STREAM | SOCK_SEQPACKET) => connected,
            (AF_UNIX | AF_VSOCK, _) => true,
            _ => false,
        }
    }

    /// Whether it is one that a group receives by.
    fn fits_group(&self) -> Result<(), Errno> {
        let known = matches!(self.protocol, IPPROTO_TCP | IPPROTO_UDP)
            && self.is_ip()
            && matches!(self.kind, SOCK_STREAM | SOCK_DGRAM);
        if !known {
            return Err(Errno::ENOTSUPP);
        }
        let receives =
            if self.kind == SOCK_STREAM { self.state == ClientState::Listening } else { self.is_bound() };
        if receives && self.reuse_port { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// The kinds of programs that sockets have of the maps that they were put into, by attach types.
pub(crate) type Taken = BTreeMap<u64, BTreeSet<u32>>;

/// Kinds of maps with sockets as elements.
const SOCKETS: [u32; 2] = [kind::SOCKMAP, kind::SOCKHASH];

/// Whether sockets of callers may be in maps of that kind.
pub(crate) fn is_of_sockets(kind: u32) -> bool {
    SOCKETS.contains(&kind) || matches!(kind, kind::REUSEPORT_SOCKARRAY | kind::SK_STORAGE)
}

impl<E: Engine> Places<E> {
    /// The attach types of the programs of a map of sockets.
    fn of_map(&self, map: u32) -> BTreeSet<u32> {
        self.sockets.range((map, 0)..=(map, u32::MAX)).map(|((_, attach_type), _)| *attach_type).collect()
    }
}

/// Whether a socket that has programs cannot take others as well.
fn collide(has: &BTreeSet<u32>, takes: &BTreeSet<u32>) -> bool {
    let verdict = |of: &BTreeSet<u32>| of.contains(&at::VERDICT) || of.contains(&at::ANY_VERDICT);
    let both = |what| has.contains(&what) && takes.contains(&what);
    both(at::MESSAGE) || both(at::PARSER) || verdict(has) && verdict(takes)
}

impl<E: Engine> Shared<E> {
    fn maps_of(&self, is_one: impl Fn(u32) -> bool) -> Vec<Arc<MapObject<E>>> {
        let mut maps = self.registry.lock().maps.all();
        maps.retain(|map| is_one(map.kind()));
        maps
    }

    /// Whether a map of sockets has that one.
    fn is_held(&self, cookie: u64) -> bool {
        let maps = self.maps_of(|kind| SOCKETS.contains(&kind));
        maps.iter().any(|map| self.engine.holds_socket(map.map(), cookie))
    }
}

impl<E: Engine> System<E> {
    /// Says that a caller's socket is closed: it is in no map any more, and its values are gone.
    pub fn end_socket(&self, cookie: u64) {
        let shared = self.shared();
        for map in shared.maps_of(is_of_sockets) {
            shared.engine.forget_socket(map.map(), cookie);
        }
        shared.taken.lock().remove(&cookie);
    }

    /// Takes notice of sockets that were closed, before anybody looks at them.
    pub(crate) fn settle_sockets<C: Caller<E> + ?Sized>(&self, caller: &mut C) {
        caller.closed_sockets().into_iter().for_each(|cookie| self.end_socket(cookie));
    }

    /// The number of the owner of a value that belongs to a socket.
    pub(crate) fn socket_owner<C: Caller<E> + ?Sized>(
        &self,
        caller: &mut C,
        descriptor: i32,
    ) -> Result<u64, Errno> {
        Ok(caller.socket(descriptor)?.cookie)
    }

    /// Puts a socket into a `sockmap` or `sockhash`.
    pub(crate) fn store_socket(
        &self,
        caller: &mut impl Caller<E>,
        map: &MapObject<E>,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let descriptor = i32::try_from(number(value)).or(Err(Errno::EINVAL))?;
        let socket = caller.socket(descriptor)?;
        if !socket.fits_sockmap() {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags > EXIST {
            return Err(Errno::EINVAL);
        }
        if map.kind() == kind::SOCKMAP && index_of(key) >= map.create().max_entries {
            return Err(Errno::E2BIG);
        }
        let shared = self.shared();
        let takes = shared.places.lock().of_map(map.id());
        let has = shared.taken.lock().get(&socket.cookie).cloned().unwrap_or_default();
        let held = !has.is_empty() && shared.is_held(socket.cookie);
        if held && collide(&has, &takes) {
            return Err(Errno::EBUSY);
        }
        let old = self.engine().socket_at(map.map(), key);
        let value = Value::Socket { socket: &socket, runs: !takes.is_empty() };
        self.engine().update(map.map(), key, value, flags)?;
        if let Some(old) = old {
            self.socket_left(map, old);
        }
        let has = if held { has } else { BTreeSet::new() };
        let all: BTreeSet<u32> = has.union(&takes).copied().collect();
        if !all.is_empty() {
            shared.taken.lock().insert(socket.cookie, all);
        }
        Ok(())
    }

    /// A socket has left a map: it has no longer what it has taken from it.
    pub(crate) fn socket_left(&self, map: &MapObject<E>, cookie: u64) {
        let shared = self.shared();
        let mut ended = shared.places.lock().of_map(map.id());
        // What a socket sends is its own matter until no map has it.
        ended.remove(&at::MESSAGE);
        let held = shared.is_held(cookie);
        let mut all = shared.taken.lock();
        if let Some(taken) = all.get_mut(&cookie) {
            taken.retain(|attach_type| held && !ended.contains(attach_type));
            if taken.is_empty() {
                all.remove(&cookie);
            }
        }
    }

    /// Puts a socket into a `reuseport_sockarray`.
    pub(crate) fn store_in_group(
        &self,
        caller: &mut impl Caller<E>,
        map: &MapObject<E>,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        if flags > EXIST {
            return Err(Errno::EINVAL);
        }
        if index_of(key) >= map.create().max_entries {
            return Err(Errno::E2BIG);
        }
        let descriptor = match value.len() {
            8 => i32::try_from(number(value)).or(Err(Errno::EINVAL))?,
            _ => number(value) as u32 as i32,
        };
        let socket = caller.socket(descriptor)?;
        match self.engine().socket_at(map.map(), key) {
            Some(_) if flags == NOEXIST => return Err(Errno::EEXIST),
            None if flags == EXIST => return Err(Errno::ENOENT),
            _ => {}
        }
        socket.fits_group()?;
        let shared = self.shared();
        let arrays = shared.maps_of(|kind| kind == kind::REUSEPORT_SOCKARRAY);
        if arrays.iter().any(|map| shared.engine.holds_socket(map.map(), socket.cookie)) {
            return Err(Errno::EBUSY);
        }
        let value = Value::Socket { socket: &socket, runs: false };
        self.engine().update(map.map(), key, value, flags)
    }
}

/// The number in a value of four or eight bytes.
fn number(value: &[u8]) -> u64 {
    match *value {
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => value.first_chunk().map_or(u64::MAX, |bytes| u64::from_ne_bytes(*bytes)),
    }
}
