//! What BPF programs see of a machine, as a value that a host or a test fills.
//!
//! A [`Machine`] has network devices, routes, neighbours, sockets, cgroups and tasks. It is plain data: nothing here
//! opens a real device or asks the system. Look-ups are pure functions of it, so a test that fills the same machine
//! gets the same answers everywhere. A [`Clock`] is that of the system, or a virtual one that the host steps;
//! [`Random`] numbers are the system's, or follow from a seed.
//!
//! ```
//! use skep_world::{Device, FibFlags, FibQuery, FibResult, Machine, Route};
//!
//! let mut machine = Machine::new();
//! let eth0 = machine.add_device(Device::new("eth0").address("10.0.0.1/24".parse()?))?;
//! let eth1 = machine.add_device(Device::new("eth1").address("192.0.2.1/24".parse()?))?;
//! machine.add_route(Route::new("0.0.0.0/0".parse()?, eth1).via("192.0.2.254".parse()?))?;
//! machine.add_neighbour(eth1, "192.0.2.254".parse()?, "02:00:00:00:00:fe".parse()?)?;
//!
//! // Where does a packet go that came in on eth0?
//! let query = FibQuery::new(eth0, "10.0.0.7".parse()?, "198.51.100.1".parse()?);
//! let FibResult::Forward(hop) = machine.fib(&query, FibFlags::default())? else { panic!("there is a route") };
//! assert_eq!((hop.device, hop.gateway), (eth1, Some("192.0.2.254".parse()?)));
//! assert_eq!(hop.destination.to_string(), "02:00:00:00:00:fe");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod clock;
mod device;
mod error;
mod fib;
#[cfg(feature = "file")]
pub mod file;
#[cfg(test)]
mod look_up_tests;
mod mac;
mod machine;
mod memory;
mod neighbours;
mod options;
mod prefixes;
mod probes;
mod random;
mod route;
mod socket;
mod sockets;
mod task;
mod tcp;
#[cfg(test)]
mod tests;
mod views;

pub use clock::Clock;
pub use device::{Device, Netkit, NetkitPolicy};
pub use error::Error;
pub use fib::{Arrival, Departure, FibError, FibFlags, FibHop, FibQuery, FibResult};
pub use ipnet::{IpNet, Ipv4Net, Ipv6Net};
pub use mac::{MacAddr, NotMac};
pub use machine::Machine;
pub use memory::Memory;
pub use options::SocketOptions;
pub use probes::{
    Event, FIRST_TRACEPOINT, FieldValue, Function, Happening, ProbePoint, Probes, RecordField, Tracepoint,
};
pub use random::Random;
pub use route::{Route, RouteKind, TABLE_LOCAL, TABLE_MAIN};
pub use socket::{Protocol, Socket, SocketState};
pub use task::{Cgroup, Task};
pub use tcp::Tcp;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
