//! Worlds as TOML files.
//!
//! ```toml
//! seed = 7          # random numbers follow from it; without it they are the system's
//! clock = "12s"     # a virtual clock that starts there; without it the clock is the system's
//!
//! [[device]]
//! name = "eth0"
//! addresses = ["10.0.0.1/24"]
//!
//! [[device]]
//! name = "eth1"
//! mac = "02:00:00:00:00:01"
//! mtu = 1400
//! addresses = ["192.0.2.1/24", "2001:db8::1/64"]
//!
//! [[route]]
//! to = "0.0.0.0/0"
//! device = "eth1"
//! via = "192.0.2.254"
//!
//! [[neighbour]]
//! device = "eth1"
//! address = "192.0.2.254"
//! mac = "02:00:00:00:00:fe"
//!
//! [[socket]]
//! protocol = "tcp"
//! local = "10.0.0.1:80"
//! ```
//!
//! The table `[probes]` has what programs may probe (`file/probes.rs`).

mod probes;

use crate::{
    Cgroup, Clock, Device, Error, MacAddr, Machine, Netkit, NetkitPolicy, Protocol, Random, Route, RouteKind,
    Socket, SocketState, TABLE_MAIN, Task,
};
use ipnet::IpNet;
use serde::Deserialize;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A machine with its clock and random numbers, as a file describes it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Described {
    /// The machine.
    pub machine: Machine,
    /// Its clock.
    pub clock: Clock,
    /// Its random numbers.
    pub random: Random,
}

/// Why a file describes no world.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is not TOML, or has something that no world has. The text names line and column.
    #[error("{0}")]
    Syntax(#[from] Box<toml::de::Error>),
    /// Its parts do not fit together.
    #[error("{what} {number}: {source}")]
    Part {
        /// `device`, `route`, `neighbour`, `socket`, `memory`, or a part of `probes`.
        what: &'static str,
        /// Which of them, from 1 in the order of the file.
        number: usize,
        /// Why.
        source: Error,
    },
    /// A pair of devices does not name each other.
    #[error(
        "device {name}: its peer {peer} names {back} as its own: name each other, or leave one of them out"
    )]
    Peers {
        /// The device.
        name: String,
        /// Its peer.
        peer: String,
        /// The peer's peer.
        back: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Option<u64>,
    clock: Option<Span>,
    #[serde(default)]
    device: Vec<DeviceOf>,
    #[serde(default)]
    route: Vec<RouteOf>,
    #[serde(default)]
    neighbour: Vec<NeighbourOf>,
    #[serde(default)]
    socket: Vec<SocketOf>,
    #[serde(default)]
    cgroup: Vec<CgroupOf>,
    task: Option<TaskOf>,
    #[serde(default)]
    other_task: Vec<TaskOf>,
    #[serde(default)]
    memory: Vec<MemoryOf>,
    #[serde(default)]
    probes: probes::ProbesOf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceOf {
    name: String,
    #[serde(default)]
    index: u32,
    mac: Option<Mac>,
    mtu: Option<u32>,
    up: Option<bool>,
    forwarding: Option<bool>,
    #[serde(default)]
    namespace: u32,
    #[serde(default)]
    addresses: Vec<Net>,
    peer: Option<String>,
    netkit: Option<NetkitOf>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetkitOf {
    #[serde(default)]
    primary: bool,
    #[serde(default)]
    policy: PolicyOf,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyOf {
    #[default]
    Pass,
    Blackhole,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteOf {
    to: Net,
    device: String,
    via: Option<IpAddr>,
    source: Option<IpAddr>,
    #[serde(default)]
    metric: u32,
    mtu: Option<u32>,
    table: Option<u32>,
    kind: Option<Kind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NeighbourOf {
    device: String,
    address: IpAddr,
    mac: Mac,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SocketOf {
    protocol: Transport,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    state: Option<State>,
    device: Option<String>,
    #[serde(default)]
    cookie: u64,
    #[serde(default)]
    namespace: u32,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    mark: u32,
    #[serde(default)]
    priority: u32,
    #[serde(default)]
    cgroup: u64,
    #[serde(default)]
    reuse_port: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CgroupOf {
    id: u64,
    path: String,
    parent: Option<u64>,
    #[serde(default)]
    classid: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryOf {
    address: Address,
    /// A C string: a zero byte follows.
    text: Option<String>,
    #[serde(default)]
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskOf {
    pid: u32,
    tgid: Option<u32>,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    comm: String,
    #[serde(default)]
    cgroup: u64,
    address: Option<Address>,
    #[serde(default)]
    kernel_stack: Vec<Address>,
    #[serde(default)]
    user_stack: Vec<Address>,
    pid_namespace: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Unicast,
    Local,
    Broadcast,
    Blackhole,
    Unreachable,
    Prohibit,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Transport {
    Tcp,
    Udp,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    NewSynReceived,
}

/// Types that are read from strings by their own rules.
macro_rules! from_text {
    ($name:ident, $of:ty, $read:expr) => {
        #[derive(Deserialize)]
        #[serde(try_from = "String")]
        struct $name($of);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let read: fn(&str) -> Result<$of, String> = $read;
                read(&text).map(Self)
            }
        }
    };
}

from_text!(Mac, MacAddr, |text| text.parse().map_err(|error: crate::NotMac| error.to_string()));
from_text!(Net, IpNet, |text| text.parse().map_err(|_| format!(
    "`{text}` is not an address with a prefix length, like 10.0.0.1/24 or 2001:db8::/32"
)));
from_text!(Address, u64, |text| {
    let read = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| format!("`{text}` is not an address, like 0xffff888000001000"))
});
from_text!(Span, Duration, |text| span(text)
    .ok_or_else(|| format!("`{text}` is not a time: a number with ns, us, ms or s, like 12s")));

fn span(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ns" => Some(Duration::from_nanos(number)),
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

impl Described {
    /// Reads a file's text.
    ///
    /// # Errors
    ///
    /// [`FileError`], which names the line or the part, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let file: File = toml::from_str(text).map_err(Box::new)?;
        let mut machine = Machine::new();
        let at = |what, number| move |source| FileError::Part { what, number: number + 1, source };
        for (number, of) in file.device.iter().enumerate() {
            machine.add_device(device(of)).map_err(at("device", number))?;
        }
        peers(&mut machine, &file.device)?;
        for (number, of) in file.route.iter().enumerate() {
            let at = at("route", number);
            let index = machine.device_named(&of.device).map_err(at)?.index;
            machine.add_route(route(of, index)).map_err(at)?;
        }
        for (number, of) in file.neighbour.iter().enumerate() {
            let at = at("neighbour", number);
            let index = machine.device_named(&of.device).map_err(at)?.index;
            machine.add_neighbour(index, of.address, of.mac.0).map_err(at)?;
        }
        for (number, of) in file.socket.iter().enumerate() {
            let at = at("socket", number);
            let device = of.device.as_ref().map(|name| machine.device_named(name).map(|device| device.index));
            let device = device.transpose().map_err(at)?;
            machine.add_socket(Socket { device, ..socket(of) }).map_err(at)?;
        }
        for of in file.cgroup {
            let CgroupOf { id, path, parent, classid } = of;
            machine.cgroups.insert(id, Cgroup { id, path, parent, classid });
        }
        machine.task = file.task.map(task);
        machine.tasks = file.other_task.into_iter().map(|of| (of.pid, task(of))).collect();
        for (number, of) in (1..).zip(file.memory) {
            let mut bytes = of.bytes;
            bytes.extend(of.text.into_iter().flat_map(|text| text.into_bytes().into_iter().chain([0])));
            let added = machine.memory.add(of.address.0, bytes);
            added.map_err(|source| FileError::Part { what: "memory", number, source })?;
        }
        probes::add(file.probes, &mut machine.probes)?;
        let clock = file.clock.map_or_else(Clock::real, |start| Clock::stepped(start.0));
        let random = file.seed.map_or_else(Random::real, Random::seeded);
        Ok(Self { machine, clock, random })
    }
}

fn task(of: TaskOf) -> Task {
    Task {
        pid: of.pid,
        tgid: of.tgid.unwrap_or(of.pid),
        uid: of.uid,
        gid: of.gid,
        comm: of.comm,
        cgroup: of.cgroup,
        address: of.address.map_or(0, |address| address.0),
        kernel_stack: of.kernel_stack.into_iter().map(|address| address.0).collect(),
        user_stack: of.user_stack.into_iter().map(|address| address.0).collect(),
        pid_namespace: of.pid_namespace,
    }
}

fn device(of: &DeviceOf) -> Device {
    let mut device = Device::new(&of.name).index(of.index).namespace(of.namespace);
    device.mac = of.mac.as_ref().map_or(device.mac, |mac| mac.0);
    device.mtu = of.mtu.unwrap_or(device.mtu);
    device.up = of.up.unwrap_or(device.up);
    device.forwarding = of.forwarding.unwrap_or(device.forwarding);
    device.netkit = of.netkit.map(|of| {
        let policy = match of.policy {
            PolicyOf::Pass => NetkitPolicy::Pass,
            PolicyOf::Blackhole => NetkitPolicy::Blackhole,
        };
        Netkit { primary: of.primary, policy }
    });
    device.addresses = of.addresses.iter().map(|net| net.0).collect();
    device
}

/// Joins the pairs: one end may name the other, or both do.
fn peers(machine: &mut Machine, devices: &[DeviceOf]) -> Result<(), FileError> {
    // What each device says first of its peer, and the first two that name a device as theirs.
    let mut said: HashMap<&str, Option<&str>> = HashMap::new();
    let mut named: HashMap<&str, Vec<&str>> = HashMap::new();
    for of in devices {
        let peer = of.peer.as_deref();
        said.entry(&of.name).or_insert(peer);
        let by = peer.map(|peer| named.entry(peer).or_default());
        if let Some(by) = by.filter(|by| by.len() < 2) {
            by.push(&of.name);
        }
    }
    let mut ends = Vec::new();
    for (number, of) in devices.iter().enumerate() {
        let Some(peer) = &of.peer else { continue };
        let at = |source| FileError::Part { what: "device", number: number + 1, source };
        let (own, other) = (
            machine.device_named(&of.name).map_err(at)?.index,
            machine.device_named(peer).map_err(at)?.index,
        );
        let back = said.get(peer.as_str()).copied().flatten().filter(|back| *back != of.name);
        let rival = || named.get(peer.as_str())?.iter().find(|name| **name != of.name).copied();
        let third = back.or_else(rival).map(str::to_owned);
        if let Some(back) = third {
            return Err(FileError::Peers { name: of.name.clone(), peer: peer.clone(), back });
        }
        ends.push((number, [(own, other), (other, own)]));
    }
    // Afterwards: a device that may change is no longer known by its name.
    for (number, pairs) in ends {
        for (one, end) in pairs {
            let at = |source| FileError::Part { what: "device", number: number + 1, source };
            machine.device_mut(one).map_err(at)?.peer = Some(end);
        }
    }
    Ok(())
}

fn route(of: &RouteOf, device: u32) -> Route {
    let mut route = Route::new(of.to.0, device).metric(of.metric).table(of.table.unwrap_or(TABLE_MAIN));
    (route.via, route.source, route.mtu) = (of.via, of.source, of.mtu);
    route.kind = match of.kind.unwrap_or(Kind::Unicast) {
        Kind::Unicast => RouteKind::Unicast,
        Kind::Local => RouteKind::Local,
        Kind::Broadcast => RouteKind::Broadcast,
        Kind::Blackhole => RouteKind::Blackhole,
        Kind::Unreachable => RouteKind::Unreachable,
        Kind::Prohibit => RouteKind::Prohibit,
    };
    route
}

fn socket(of: &SocketOf) -> Socket {
    let mut socket = match (of.protocol, of.remote) {
        (Transport::Tcp, None) => Socket::listening(of.local),
        (Transport::Udp, None) => Socket::bound(of.local),
        (Transport::Tcp, Some(remote)) => Socket::connected(Protocol::Tcp, of.local, remote),
        (Transport::Udp, Some(remote)) => Socket::connected(Protocol::Udp, of.local, remote),
    };
    if let Some(state) = of.state {
        socket.state = match state {
            State::Established => SocketState::Established,
            State::SynSent => SocketState::SynSent,
            State::SynReceived => SocketState::SynReceived,
            State::FinWait1 => SocketState::FinWait1,
            State::FinWait2 => SocketState::FinWait2,
            State::TimeWait => SocketState::TimeWait,
            State::Closed => SocketState::Closed,
            State::CloseWait => SocketState::CloseWait,
            State::LastAck => SocketState::LastAck,
            State::Listen => SocketState::Listen,
            State::Closing => SocketState::Closing,
            State::NewSynReceived => SocketState::NewSynReceived,
        };
    }
    (socket.cookie, socket.namespace, socket.uid) = (of.cookie, of.namespace, of.uid);
    (socket.mark, socket.priority, socket.cgroup) = (of.mark, of.priority, of.cgroup);
    socket.reuse_port = of.reuse_port;
    socket
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FibFlags, FibQuery, FibResult};

    /// The example of the module's documentation.
    fn example() -> String {
        let lines = include_str!("file.rs").lines().map(|line| line.strip_prefix("//!").unwrap_or_default());
        let inside = lines.skip_while(|line| !line.contains("```toml")).skip(1);
        inside.take_while(|line| !line.contains("```")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_documented_file_is_read() {
        let world = Described::parse(&example()).unwrap();
        let machine = &world.machine;
        assert_eq!((world.clock.now(), world.clock.is_virtual()), (12_000_000_000, true));
        assert_eq!(world.random.next(), Random::seeded(7).next());
        let eth1 = machine.device_named("eth1").unwrap();
        assert_eq!((eth1.index, eth1.mtu, eth1.mac.0[5]), (2, 1400, 1));
        let query = FibQuery::new(1, "10.0.0.9".parse().unwrap(), "8.8.8.8".parse().unwrap());
        let FibResult::Forward(hop) = machine.fib(&query, FibFlags::default()).unwrap() else { panic!() };
        assert_eq!((hop.device, hop.destination.0[5]), (2, 0xfe));
        assert_eq!(machine.sockets()[0].state, SocketState::Listen);
    }

    #[test]
    fn pairs_are_joined_from_one_end_or_from_both() {
        for text in [
            "[[device]]\nname='a'\npeer='b'\n[[device]]\nname='b'",
            "[[device]]\nname='a'\npeer='b'\n[[device]]\nname='b'\npeer='a'",
        ] {
            let machine = Described::parse(text).unwrap().machine;
            assert_eq!(machine.devices().map(|device| device.peer).collect::<Vec<_>>(), [Some(2), Some(1)]);
        }
        for text in [
            "[[device]]\nname='a'\npeer='b'\n[[device]]\nname='b'\npeer='c'\n[[device]]\nname='c'",
            "[[device]]\nname='a'\npeer='b'\n[[device]]\nname='b'\n[[device]]\nname='c'\npeer='b'",
        ] {
            assert!(matches!(Described::parse(text), Err(FileError::Peers { .. })), "{text}");
        }
    }

    #[test]
    fn memory_is_text_or_bytes_at_an_address() {
        let text = "[[memory]]\naddress = \"0xffff888000001000\"\ntext = \"eth0\"\n
                    [[memory]]\naddress = \"4096\"\nbytes = [1, 2]\n";
        let memory = Described::parse(text).unwrap().machine.memory;
        let parts: Vec<_> = memory.parts().collect();
        assert_eq!(parts, [(4096, &[1, 2][..]), (0xffff_8880_0000_1000, &b"eth0\0"[..])]);
        for (text, expected) in [
            ("[[memory]]\naddress = \"0xfg\"", "is not an address"),
            ("[[memory]]\naddress = \"0\"\nbytes = [1]", "memory 1: 1 bytes of memory at 0x0"),
            ("[[memory]]\naddress = \"5\"\nbytes = [256]", "256"),
        ] {
            let error = Described::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_empty_file_is_an_empty_machine_with_the_systems_clock() {
        let world = Described::parse("").unwrap();
        assert_eq!((world.machine.devices().count(), world.clock.is_virtual()), (0, false));
        assert_eq!(world.random.next(), None);
    }

    #[test]
    fn errors_name_the_place_and_what_is_expected() {
        let cases = [
            ("[[device]]\nname='eth0'\nmtus=3", &["line 3", "mtus", "mtu"][..]),
            ("[[device]]\nmtu=3", &["line 1", "name"]),
            ("[[device]]\nname='eth0'\nmac='02:00'", &["line 3", "`02:00` is not an Ethernet address"]),
            ("[[device]]\nname='eth0'\naddresses=['10.0.0.1']", &["line 3", "prefix length"]),
            ("clock='soon'", &["line 1", "`soon` is not a time"]),
            ("[[device]]\nname='a'\n[[device]]\nname='a'", &["device 2", "already a device named a"]),
            (
                "[[route]]\nto='0.0.0.0/0'\ndevice='eth0'",
                &["route 1", "there is no device eth0; devices: none"],
            ),
            ("[[device]]\nname='a'\npeer='b'", &["device 1", "no device b"]),
            ("[[socket]]\nprotocol='sctp'\nlocal='1.2.3.4:5'", &["line 2", "sctp", "tcp"]),
        ];
        for (text, words) in cases {
            let error = Described::parse(text).unwrap_err().to_string();
            for word in words {
                assert!(error.contains(word), "{text:?}: {error}");
            }
        }
    }
}
