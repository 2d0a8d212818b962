//! The sockets of a machine, found by what they receive.
//!
//! What a packet says of a socket that may receive it is one of a few things: the address that it was sent to, or any;
//! the end that it came from, or any; the device that it came in on, or any. Each of these is a key, and the keys are
//! asked in the order of preference. So a look-up does not depend on the number of sockets.

use crate::error::Error;
use crate::socket::{Protocol, Socket, SocketState};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// Sockets in the order in which they were added. Clones share what is not changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets {
    all: Arc<Vec<Arc<Socket>>>,
    cookies: Arc<BTreeSet<u64>>,
    highest: u64,
    found: Arc<OnceLock<Found>>,
}

/// The places of the first sockets with each key.
#[derive(Debug, Default)]
struct Found {
    receivers: HashMap<Receiver, usize>,
    listeners: HashMap<(u32, SocketAddr), usize>,
    cookies: HashMap<u64, usize>,
    /// The addresses at which unconnected sockets are, by namespace, protocol and port.
    bound: BTreeMap<(u32, Protocol, u16), BTreeSet<IpAddr>>,
}

/// What a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Receiver {
    namespace: u32,
    protocol: Protocol,
    ip: IpAddr,
    port: u16,
    remote: Option<SocketAddr>,
    device: Option<u32>,
}

/// An address as a socket's own.
const fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

impl Found {
    fn new(sockets: &[Arc<Socket>]) -> Self {
        let mut new = Self::default();
        for (place, socket) in sockets.iter().enumerate() {
            let Socket { namespace, protocol, local, remote, device, .. } = **socket;
            let (ip, port) = (local.ip(), local.port());
            let receiver = Receiver { namespace, protocol, ip, port, remote, device };
            new.receivers.entry(receiver).or_insert(place);
            new.cookies.insert(socket.cookie, place);
            if socket.state == SocketState::Listen {
                new.listeners.entry((namespace, plain(local))).or_insert(place);
            }
            if remote.is_none() {
                new.bound.entry((namespace, protocol, port)).or_default().insert(ip);
            }
        }
        new
    }
}

/// Where a socket receives what is sent to `to` and comes in on `device`, the best first: the address alone counts more
/// than the device, and the device more than the family.
fn places(to: IpAddr, device: Option<u32>) -> impl Iterator<Item = (IpAddr, Option<u32>)> {
    let exact = (!to.is_unspecified()).then_some(to);
    let any_v4 = to.is_ipv4().then_some(Ipv4Addr::UNSPECIFIED.into());
    let any = Some(Ipv6Addr::UNSPECIFIED.into());
    // A device that is not known is none.
    let bound = |ip: Option<IpAddr>| Some((ip?, Some(device?)));
    let unbound = |ip: Option<IpAddr>| Some((ip?, None));
    let all = [bound(exact), unbound(exact), bound(any_v4), bound(any), unbound(any_v4), unbound(any)];
    all.into_iter().flatten()
}

impl Sockets {
    pub(crate) fn all(&self) -> &[Arc<Socket>] {
        &self.all
    }

    /// See [`crate::Machine::add_socket`].
    pub(crate) fn add(&mut self, mut socket: Socket) -> Result<Arc<Socket>, Error> {
        if socket.cookie == 0 {
            self.highest = self.highest.max(self.cookies.last().copied().unwrap_or(0)) + 1;
            socket.cookie = self.highest;
        }
        if !Arc::make_mut(&mut self.cookies).insert(socket.cookie) {
            return Err(Error::CookieTaken { cookie: socket.cookie });
        }
        let socket = Arc::new(socket);
        Arc::make_mut(&mut self.all).push(Arc::clone(&socket));
        self.found = Arc::default();
        Ok(socket)
    }

    /// See [`crate::Machine::remove_socket`].
    pub(crate) fn remove(&mut self, cookie: u64) -> Option<Arc<Socket>> {
        let at = self.all.iter().position(|socket| socket.cookie == cookie)?;
        Arc::make_mut(&mut self.cookies).remove(&cookie);
        self.found = Arc::default();
        Some(Arc::make_mut(&mut self.all).remove(at))
    }

    /// Makes what look-ups need, so that none has to.
    pub(crate) fn prepare(&self) {
        self.found();
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| Found::new(&self.all))
    }

    /// See [`crate::Machine::find_socket`].
    pub(crate) fn receiver(
        &self,
        namespace: u32,
        protocol: Protocol,
        local: SocketAddr,
        remote: SocketAddr,
        device: Option<u32>,
    ) -> Option<&Arc<Socket>> {
        self.with_end(namespace, protocol, local, Some(remote), device)
            .or_else(|| self.with_end(namespace, protocol, local, None, device))
    }

    /// The best socket that is connected to `remote`, or to nobody.
    pub(crate) fn with_end(
        &self,
        namespace: u32,
        protocol: Protocol,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        device: Option<u32>,
    ) -> Option<&Arc<Socket>> {
        if self.all.is_empty() {
            return None;
        }
        let receivers = &self.found().receivers;
        let port = local.port();
        let first = places(local.ip(), device).find_map(|(ip, device)| {
            receivers.get(&Receiver { namespace, protocol, ip, port, remote, device })
        });
        self.all.get(*first?)
    }

    /// See [`crate::Machine::socket`].
    pub(crate) fn with_cookie(&self, cookie: u64) -> Option<&Arc<Socket>> {
        self.all.get(*self.found().cookies.get(&cookie)?)
    }

    /// See [`crate::Machine::listener`].
    pub(crate) fn listener(&self, namespace: u32, local: SocketAddr) -> Option<&Arc<Socket>> {
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let listeners = &self.found().listeners;
        let at = |ip| listeners.get(&(namespace, SocketAddr::new(ip, local.port())));
        self.all.get(*[local.ip(), v4, v6].into_iter().filter_map(at).min()?)
    }

    /// See [`crate::Machine::is_bound`].
    pub(crate) fn is_bound(&self, namespace: u32, protocol: Protocol, to: SocketAddr) -> bool {
        let bound = &self.found().bound;
        bound.get(&(namespace, protocol, to.port())).is_some_and(|at| {
            let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            to.ip().is_unspecified() || at.contains(&to.ip()) || any.iter().any(|any| at.contains(any))
        })
    }
}
