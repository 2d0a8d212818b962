//! Worlds: devices, routes and sockets for programs, and the way of packets through them.

use crate::context;
use crate::errors::{failed, raised};
use crate::program::Program;
use crate::values;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use skep::Packet;
use skep::world::Place;
use skep::world::file::Described;
use std::sync::Mutex;
use std::time::Duration;

/// A machine in which programs run.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct World {
    inner: skep::World,
}

/// What keeps a program attached.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Link {
    inner: Mutex<Option<skep::Link>>,
}

/// The way of a packet.
#[pyclass(frozen, get_all, module = "skep._skep")]
pub(crate) struct Trace {
    /// Where it ended, in words.
    fate: String,
    /// The programs that it met: the program's name, and the verdict's name or its number.
    hops: Vec<(String, String)>,
    /// The packet as it ended.
    data: Py<PyBytes>,
    /// All of it, in words.
    text: String,
}

impl World {
    pub(crate) fn inner(&self) -> &skep::World {
        &self.inner
    }
}

#[pymethods]
impl World {
    /// The world that a TOML text describes.
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let Described { machine, clock, random, .. } = Described::parse(text).map_err(failed)?;
        Ok(Self { inner: skep::World::with(machine, clock, random) })
    }

    /// Attaches a program to a device: at `xdp`, `ingress` or `egress`. It stays until the link is closed.
    fn attach(&self, py: Python<'_>, program: &Program, device: &str, place: &str) -> PyResult<Link> {
        let place = match place {
            "xdp" => Place::Xdp,
            "ingress" => Place::Ingress,
            "egress" => Place::Egress,
            _ => return Err(failed(format!("{place:?} is no place of a device: xdp, ingress or egress"))),
        };
        let link = self.inner.attach(program.inner(), device, place).map_err(|error| raised(py, &error))?;
        Ok(Link { inner: Mutex::new(Some(link)) })
    }

    /// Lets a packet come in on a device.
    #[pyo3(signature = (device, data, **fields))]
    fn inject(
        &self,
        py: Python<'_>,
        device: &str,
        data: &Bound<'_, PyAny>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Trace> {
        let mut packet = Packet::new(&values::input(data)?);
        context::describe(&mut packet, fields)?;
        let trace = self.inner.inject(device, &mut packet).map_err(|error| raised(py, &error))?;
        let machine = self.inner.machine();
        let hop = |hop: &skep::world::Hop| {
            let verdict = hop.verdict().map_or_else(|| hop.result.to_string(), str::to_owned);
            (hop.program.to_string(), verdict)
        };
        Ok(Trace {
            fate: trace.fate.show(&machine),
            hops: trace.hops.iter().map(hop).collect(),
            data: PyBytes::new(py, packet.bytes()).unbind(),
            text: trace.show(&machine).to_string(),
        })
    }

    /// Moves a virtual clock on, by seconds. Returns its time in nanoseconds, or `None` if the clock is the system's.
    fn step(&self, seconds: f64) -> PyResult<Option<u64>> {
        Ok(self.inner.step(Duration::try_from_secs_f64(seconds).map_err(failed)?))
    }
}

#[pymethods]
impl Link {
    /// Detaches the program.
    fn close(&self) {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    }
}

#[pymethods]
impl Trace {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<skep.Trace {}>", self.fate)
    }
}
