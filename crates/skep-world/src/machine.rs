//! The machine: all that programs can ask of it.

use crate::device::Device;
use crate::error::Error;
use crate::fib::{self, Arrival, Departure, FibError, FibFlags, FibQuery, FibResult};
use crate::mac::MacAddr;
use crate::memory::Memory;
use crate::neighbours::Neighbours;
use crate::probes::Probes;
use crate::route::{Route, RouteKind, TABLE_LOCAL};
use crate::socket::{Protocol, Socket};
use crate::sockets::Sockets;
use crate::task::{Cgroup, Task};
use crate::views::{Given, Tables, Viewer, Views};
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// A machine as programs see it. An empty one has no devices, routes, sockets or tasks.
///
/// It is a value: a clone is another machine. Device indices and names are unique over all network namespaces.
///
/// How long a look-up takes does not depend on the number of routes, neighbours and sockets. The first one after a
/// change of routes or devices arranges the routes; [`Machine::prepare`] does so before.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    devices: BTreeMap<u32, Device>,
    /// The devices by name: the first of each. Made when it is needed; empty after changes of devices.
    names: OnceLock<HashMap<String, u32>>,
    routes: Arc<Vec<Route>>,
    /// Of these devices and routes: each change of either begins with new ones.
    views: Arc<Views>,
    neighbours: Arc<Neighbours>,
    sockets: Sockets,
    /// The cgroups by number.
    pub cgroups: BTreeMap<u64, Cgroup>,
    /// The task that programs run in, if there is one.
    pub task: Option<Task>,
    /// Other tasks, by the number of their thread (`pid`).
    pub tasks: BTreeMap<u32, Task>,
    /// What programs may read by address.
    pub memory: Memory,
    /// What programs may probe.
    pub probes: Probes,
}

impl Machine {
    /// An empty machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device and returns its index. For each of its addresses, adds a route to the address itself
    /// ([`RouteKind::Local`]) and one to its network.
    ///
    /// # Errors
    ///
    /// [`Error::NameTaken`], [`Error::IndexTaken`], [`Error::BadName`].
    pub fn add_device(&mut self, mut device: Device) -> Result<u32, Error> {
        check_name(&device.name)?;
        if let Some(index) = self.names().get(&device.name).copied() {
            return Err(Error::NameTaken { name: device.name, index });
        }
        if device.index == 0 {
            device.index = self.devices.last_key_value().map_or(1, |(index, _)| index.saturating_add(1));
        }
        let index = device.index;
        if let Some(other) = self.devices.get(&index) {
            return Err(Error::IndexTaken { index, name: other.name.clone() });
        }
        if device.mac == MacAddr::default() {
            let [a, b, c, d] = index.to_be_bytes();
            device.mac = MacAddr([2, 0, a, b, c, d]);
        }
        let routes = device.addresses.iter().flat_map(|address| routes_of(*address, index));
        Arc::make_mut(&mut self.routes).extend(routes);
        if let Some(names) = self.names.get_mut() {
            names.insert(device.name.clone(), index);
        }
        self.devices.insert(index, device);
        self.views = Arc::default();
        Ok(index)
    }

    /// Adds a pair of devices: what one sends comes in at the other. Returns their indices.
    ///
    /// # Errors
    ///
    /// As [`Machine::add_device`]; then neither is added.
    pub fn add_pair(&mut self, first: Device, second: Device) -> Result<(u32, u32), Error> {
        let a = self.add_device(first)?;
        let b = match self.add_device(second) {
            Ok(b) => b,
            Err(error) => {
                self.remove_device(a)?;
                return Err(error);
            }
        };
        for (one, other) in [(a, b), (b, a)] {
            self.device_mut(one)?.peer = Some(other);
        }
        Ok((a, b))
    }

    /// The task whose thread has that number: the one that programs run in, or another.
    pub fn task_numbered(&self, pid: u32) -> Option<&Task> {
        self.task.as_ref().filter(|task| task.pid == pid).or_else(|| self.tasks.get(&pid))
    }

    /// The numbers of all tasks, some of them maybe twice.
    pub fn task_numbers(&self) -> impl Iterator<Item = u32> {
        self.task.iter().map(|task| task.pid).chain(self.tasks.keys().copied())
    }

    /// A cgroup's number and those that it is in, up to the root. Ends where a cgroup is unknown or the numbers go in a
    /// circle.
    pub fn cgroup_path(&self, id: u64) -> impl Iterator<Item = u64> {
        let parent = |id: &u64| self.cgroups.get(id)?.parent;
        std::iter::successors(Some(id), parent).take(self.cgroups.len().max(1))
    }

    /// The number of the cgroup that is that many levels below the root, on the way from the root to `id`. The root is
    /// at level 0. `None` beyond `id` itself.
    pub fn cgroup_at_level(&self, id: u64, level: usize) -> Option<u64> {
        let below = self.cgroup_path(id).count().checked_sub(level + 1)?;
        self.cgroup_path(id).nth(below)
    }

    /// The device with this index.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], which lists those that exist.
    pub fn device(&self, index: u32) -> Result<&Device, Error> {
        self.devices.get(&index).ok_or_else(|| Error::NoDevice { index, known: self.known() })
    }

    /// The device with this index, if there is one.
    #[inline]
    pub fn find_device(&self, index: u32) -> Option<&Device> {
        self.devices.get(&index)
    }

    /// The device with this index, to change it: its state, MTU, peer. Its addresses have routes already, which do not
    /// change with it.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`].
    pub fn device_mut(&mut self, index: u32) -> Result<&mut Device, Error> {
        if !self.devices.contains_key(&index) {
            return Err(Error::NoDevice { index, known: self.known() });
        }
        (self.views, self.names) = (Arc::default(), OnceLock::new());
        self.devices.get_mut(&index).ok_or(Error::NoDevice { index, known: String::new() })
    }

    /// The device of this name.
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceNamed`], which lists those that exist.
    pub fn device_named(&self, name: &str) -> Result<&Device, Error> {
        let found = self.names().get(name).and_then(|index| self.devices.get(index));
        found.ok_or_else(|| Error::NoDeviceNamed { name: name.to_owned(), known: self.known() })
    }

    /// All devices, ascending by index.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// Removes a device with its routes and neighbours. A pair's other end stays, without a peer.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`].
    pub fn remove_device(&mut self, index: u32) -> Result<Device, Error> {
        let removed =
            self.devices.remove(&index).ok_or_else(|| Error::NoDevice { index, known: self.known() })?;
        self.names = OnceLock::new();
        self.retain_routes(|route| route.device != index);
        Arc::make_mut(&mut self.neighbours).remove_device(index);
        for device in self.devices.values_mut().filter(|device| device.peer == Some(index)) {
            device.peer = None;
        }
        Ok(removed)
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::OtherFamily`] if destination and next hop are of different families.
    pub fn add_route(&mut self, route: Route) -> Result<(), Error> {
        self.device(route.device)?;
        match route.via {
            Some(via) if via.is_ipv4() != route.to.addr().is_ipv4() => {
                Err(Error::OtherFamily { via, to: route.to })
            }
            _ => {
                Arc::make_mut(&mut self.routes).push(route);
                self.views = Arc::default();
                Ok(())
            }
        }
    }

    /// All routes, in the order in which they were added.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Removes the routes for which `keep` is false.
    pub fn retain_routes(&mut self, keep: impl FnMut(&Route) -> bool) {
        Arc::make_mut(&mut self.routes).retain(keep);
        self.views = Arc::default();
    }

    /// Says at which Ethernet address an address is reached through a device. Replaces what was said before.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`].
    pub fn add_neighbour(&mut self, device: u32, address: IpAddr, mac: MacAddr) -> Result<(), Error> {
        self.device(device)?;
        Arc::make_mut(&mut self.neighbours).insert(device, address, mac);
        Ok(())
    }

    /// The Ethernet address at which an address is reached through a device.
    #[inline]
    pub fn neighbour(&self, device: u32, address: IpAddr) -> Option<MacAddr> {
        self.neighbours.find(device, address)
    }

    /// Forgets a neighbour, and says whether it was known.
    pub fn remove_neighbour(&mut self, device: u32, address: IpAddr) -> bool {
        Arc::make_mut(&mut self.neighbours).remove(device, address)
    }

    /// Adds a socket and returns it.
    ///
    /// # Errors
    ///
    /// [`Error::CookieTaken`].
    pub fn add_socket(&mut self, socket: Socket) -> Result<Arc<Socket>, Error> {
        self.sockets.add(socket)
    }

    /// Removes a socket and returns it. Programs that hold it keep it.
    pub fn remove_socket(&mut self, cookie: u64) -> Option<Arc<Socket>> {
        self.sockets.remove(cookie)
    }

    /// All sockets, in the order in which they were added.
    pub fn sockets(&self) -> &[Arc<Socket>] {
        self.sockets.all()
    }

    /// The socket with this cookie.
    ///
    /// # Errors
    ///
    /// [`Error::NoSocket`].
    pub fn socket(&self, cookie: u64) -> Result<&Arc<Socket>, Error> {
        self.sockets.with_cookie(cookie).ok_or(Error::NoSocket { cookie })
    }

    /// As [`Machine::find_socket`], among the sockets that are connected to `remote`, or, if that is `None`, among
    /// those that are connected to nobody.
    pub fn find_socket_of(
        &self,
        namespace: u32,
        protocol: Protocol,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        device: Option<u32>,
    ) -> Option<&Arc<Socket>> {
        self.sockets.with_end(namespace, protocol, local, remote, device)
    }

    /// The socket of a namespace that receives what is sent from `remote` to `local` and comes in on that device: a
    /// connected one before others, then the most specific address, then the one that was added first.
    pub fn find_socket(
        &self,
        namespace: u32,
        protocol: Protocol,
        local: SocketAddr,
        remote: SocketAddr,
        device: Option<u32>,
    ) -> Option<&Arc<Socket>> {
        self.sockets.receiver(namespace, protocol, local, remote, device)
    }

    /// The socket of a namespace that listens at this address, or at its port on any address: the one that was added
    /// first.
    pub fn listener(&self, namespace: u32, local: SocketAddr) -> Option<&Arc<Socket>> {
        self.sockets.listener(namespace, local)
    }

    /// Whether an unconnected socket of the namespace has this port, at this address or at one that includes it.
    pub fn is_bound(&self, namespace: u32, protocol: Protocol, to: SocketAddr) -> bool {
        self.sockets.is_bound(namespace, protocol, to)
    }

    /// Whether a namespace has this address on one of its devices.
    pub fn is_own_address(&self, namespace: u32, address: IpAddr) -> bool {
        self.views.is_own(self.given(), namespace, address)
    }

    /// Where a packet goes. Linux's `bpf_fib_lookup` answers from this.
    ///
    /// # Errors
    ///
    /// [`FibError`], for queries that cannot be answered.
    #[inline]
    pub fn fib(&self, query: &FibQuery, flags: FibFlags) -> Result<FibResult, FibError> {
        fib::look_up(self, query, flags)
    }

    /// What becomes of a packet to this address that came in and that no program took. `from` is the device that it
    /// came in on, of this machine; `length` is in bytes without the Ethernet header.
    #[inline]
    pub fn arrival(&self, from: &Device, destination: IpAddr, length: u32) -> Arrival<'_> {
        fib::arrival(self, from, destination, length)
    }

    /// What becomes of a packet of `length` bytes to this address that a socket of the namespace sends. `device`: the
    /// one that the socket is bound to.
    pub fn departure(
        &self,
        namespace: u32,
        device: Option<u32>,
        destination: IpAddr,
        length: u32,
    ) -> Departure<'_> {
        fib::departure(self, (namespace, device), destination, length)
    }

    /// Arranges the routes and sockets for look-ups, unless that has been done. Takes time in proportion to their
    /// number. A look-up does it otherwise, and others wait for it.
    pub fn prepare(&self) {
        self.views.prepare(self.given());
        self.sockets.prepare();
    }

    /// Whether a device of the namespace has this address, although the local table does not say so.
    #[inline]
    pub(crate) fn is_unlisted(&self, namespace: u32, address: IpAddr) -> bool {
        self.views.is_unlisted(self.given(), namespace, address)
    }

    /// The routing tables that somebody sees.
    #[inline]
    pub(crate) fn tables(&self, viewer: Viewer) -> Option<&Tables> {
        self.views.tables(self.given(), viewer)
    }

    #[inline]
    fn given(&self) -> Given<'_> {
        Given { devices: &self.devices, routes: &self.routes }
    }

    fn names(&self) -> &HashMap<String, u32> {
        self.names.get_or_init(|| {
            let mut names = HashMap::new();
            for (index, device) in &self.devices {
                names.entry(device.name.clone()).or_insert(*index);
            }
            names
        })
    }

    fn known(&self) -> String {
        let names: Vec<_> =
            self.devices.values().map(|device| format!("{} ({})", device.name, device.index)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// The routes that come with an address.
fn routes_of(address: IpNet, device: u32) -> impl Iterator<Item = Route> {
    let own = Route::new(address.addr().into(), device).kind(RouteKind::Local).table(TABLE_LOCAL);
    let whole = address.prefix_len() == address.max_prefix_len();
    let network = (!whole).then(|| Route::new(address.trunc(), device).source(address.addr()));
    // All stations of an IPv4 network, unless it is too small to have them.
    let broadcast = match address {
        IpNet::V4(v4) if v4.prefix_len() < 31 => {
            let all = IpAddr::V4(v4.broadcast());
            Some(Route::new(all.into(), device).kind(RouteKind::Broadcast).table(TABLE_LOCAL))
        }
        _ => None,
    };
    [Some(own.source(address.addr())), network, broadcast].into_iter().flatten()
}

fn check_name(name: &str) -> Result<(), Error> {
    let bad = name.is_empty()
        || name.len() > 15
        || [".", ".."].contains(&name)
        || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if bad { Err(Error::BadName { name: name.to_owned() }) } else { Ok(()) }
}
