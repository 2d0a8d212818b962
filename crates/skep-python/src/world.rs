//! Worlds: a machine for programs to run in, and the way of packets through it.

use crate::errors;
use crate::packet;
use crate::program::Program;
use crate::released::Released;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use skep::world::file::Described;
use skep::world::{DeviceId, Fate, Machine, Place, Trace};
use skep::{Error, Packet};
use std::sync::Mutex;
use std::time::Duration;

/// A machine that programs run in.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct World {
    pub(crate) world: Released<skep::World>,
}

/// Programs at places of a world, until it is detached or dropped.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Link(Mutex<Option<Released<Vec<skep::Link>>>>);

/// A device, by index or by name.
#[derive(FromPyObject)]
enum Device {
    #[pyo3(transparent, annotation = "int")]
    Index(u32),
    #[pyo3(transparent, annotation = "str")]
    Name(String),
}

impl Device {
    fn index(&self, py: Python<'_>, machine: &Machine) -> PyResult<u32> {
        let found = match self {
            Self::Index(index) => index.index_in(machine),
            Self::Name(name) => name.as_str().index_in(machine),
        };
        found.map_err(|error| errors::raise(py, Error::from(error)))
    }
}

/// The places of a device, by their names.
const PLACES: [(&str, Place); 7] = [
    ("xdp", Place::Xdp),
    ("ingress", Place::Ingress),
    ("egress", Place::Egress),
    ("devmap", Place::Devmap),
    ("cpumap", Place::Cpumap),
    ("netkit primary", Place::NetkitPrimary),
    ("netkit peer", Place::NetkitPeer),
];

#[pymethods]
impl World {
    /// The world that a TOML file describes.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        let described = Described::parse(text).map_err(|error| errors::of_world(py, &error.to_string()))?;
        let Described { machine, clock, random, .. } = described;
        Ok(Self { world: Released::new(skep::World::with(machine, clock, random)) })
    }

    /// Its devices: index, name, Ethernet address, MTU, whether it is up, addresses.
    fn devices(&self) -> Vec<(u32, String, String, u32, bool, Vec<String>)> {
        let machine = self.world.machine();
        let row = |device: &skep::world::Device| {
            let addresses = device.addresses.iter().map(ToString::to_string).collect();
            (device.index, device.name.clone(), device.mac.to_string(), device.mtu, device.up, addresses)
        };
        machine.devices().map(row).collect()
    }

    /// Attaches a program to a device, at a place or where packets that come in meet such programs.
    #[pyo3(signature = (program, device=None, place=None))]
    fn attach(
        &self,
        py: Python<'_>,
        program: &Program,
        device: Option<Device>,
        place: Option<&str>,
    ) -> PyResult<Link> {
        let machine = self.world.machine();
        let index = match device {
            Some(device) => device.index(py, &machine)?,
            None => first(py, &machine)?,
        };
        let place = place.map(place_named).transpose()?;
        let (world, program) = (&self.world, &program.program);
        let links = py.detach(|| match place {
            Some(place) => Ok(vec![world.attach(program, index, place)?]),
            None => world.attach_incoming(program, index),
        });
        let links: Vec<skep::Link> = links.map_err(|error| errors::raise(py, error))?;
        if links.is_empty() {
            let kind = program.program_type().name;
            let text = format!("no packet that comes in meets programs of type {kind} in this world");
            return Err(errors::of_world(py, &text));
        }
        Ok(Link(Mutex::new(Some(Released::new(links)))))
    }

    /// Sends a packet into a device, as if it had come in there.
    #[pyo3(signature = (data, device=None, info=None))]
    fn inject<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        device: Option<Device>,
        info: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let machine = self.world.machine();
        let index = match device {
            Some(device) => device.index(py, &machine)?,
            None => first(py, &machine)?,
        };
        let mut packet = Packet::new(data);
        packet.info = info.map(packet::info_of).transpose()?.unwrap_or_default();
        let world = &self.world;
        let trace =
            py.detach(|| world.inject(index, &mut packet)).map_err(|error| errors::raise(py, error))?;
        trace_dict(py, &self.world.machine(), &trace, &packet)
    }

    /// Moves the virtual clock by seconds. Returns the number of timers' callbacks, or `None` for a real clock.
    /// Another step in progress is an error.
    fn step(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<u64>> {
        let by =
            Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let world = &self.world;
        let called = py.detach(|| world.step(by));
        if called.is_none() && world.clock().is_virtual() {
            return Err(errors::of_world(py, "another step is in progress"));
        }
        Ok(called)
    }

    /// The nanoseconds that its clock says, as `bpf_ktime_get_ns` does.
    fn now(&self) -> u64 {
        self.world.clock().now()
    }
}

#[pymethods]
impl Link {
    /// Detaches the programs. Does nothing the second time.
    fn detach(&self) {
        // Taken first: no lock is held while it is dropped.
        let links = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        drop(links);
    }
}

fn first(py: Python<'_>, machine: &Machine) -> PyResult<u32> {
    let first = machine.devices().next().map(|device| device.index);
    first.ok_or_else(|| errors::of_world(py, "the world has no devices: add a [[device]] with a name"))
}

fn place_named(name: &str) -> PyResult<Place> {
    let found = PLACES.iter().find(|(known, _)| *known == name);
    found.map(|(_, place)| *place).ok_or_else(|| {
        let known = PLACES.map(|(known, _)| known).join(", ");
        PyValueError::new_err(format!("a device has no place '{name}'; it has: {known}"))
    })
}

/// The name of a fate: what tests compare.
fn fate_name(fate: &Fate) -> &'static str {
    match fate {
        Fate::Waiting => "waiting",
        Fate::Sent { .. } => "sent",
        Fate::Delivered { .. } => "delivered",
        Fate::Received { .. } => "received",
        Fate::Dropped { .. } => "dropped",
        Fate::Consumed { .. } => "consumed",
        Fate::Socket { .. } => "socket",
        Fate::NoProgram { .. } => "no program",
        Fate::NoTarget { .. } => "no target",
        Fate::NoDevice { .. } => "no device",
        Fate::Down { .. } => "down",
        Fate::NoPeer { .. } => "no peer",
        Fate::NotConnected { .. } => "not connected",
        Fate::OtherHost { .. } => "other host",
        Fate::Malformed { .. } => "malformed",
        Fate::NoRoute { .. } => "no route",
        Fate::Prohibited { .. } => "prohibited",
        Fate::NoNeighbour { .. } => "no neighbour",
        Fate::Expired { .. } => "expired",
        Fate::TooLong { .. } => "too long",
        Fate::Loop { .. } => "loop",
        _ => "unknown",
    }
}

/// The device of a fate, if it names one.
fn fate_device(fate: &Fate) -> Option<u32> {
    match fate {
        Fate::Sent { device } | Fate::Delivered { device } | Fate::Received { device, .. } => Some(*device),
        _ => None,
    }
}

fn trace_dict<'py>(
    py: Python<'py>,
    machine: &Machine,
    trace: &Trace,
    packet: &Packet,
) -> PyResult<Bound<'py, PyDict>> {
    let name = |index: u32| machine.find_device(index).map(|device| device.name.clone());
    let end = |fate: &Fate, packet: &Packet| {
        let device = fate_device(fate).and_then(name);
        (fate_name(fate), fate.show(machine), device, PyBytes::new(py, packet.bytes()))
    };
    let hops = trace.hops.iter().map(|hop| {
        let row = PyDict::new(py);
        row.set_item("copy", hop.copy)?;
        row.set_item("device", name(hop.device))?;
        row.set_item("place", hop.place.to_string())?;
        row.set_item("program", &*hop.program)?;
        row.set_item("result", hop.result)?;
        row.set_item("name", hop.verdict())?;
        row.set_item("redirect", hop.redirect.map(|to| packet::redirect_dict(py, to)).transpose()?)?;
        Ok(row)
    });
    let dict = PyDict::new(py);
    dict.set_item("hops", hops.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("end", end(&trace.fate, packet))?;
    let copies: Vec<_> = trace.copies.iter().map(|copy| end(&copy.fate, &copy.packet)).collect();
    dict.set_item("copies", copies)?;
    dict.set_item("text", trace.show(machine).to_string())?;
    Ok(dict)
}
