//! Programs and what their runs do.

use crate::context;
use crate::errors::raised;
use crate::values;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use skep::abi::Native;
use skep::{Engine, Packet, Redirect};

/// A loaded program.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Program {
    inner: skep::Program,
}

/// What a run did.
#[pyclass(frozen, get_all, module = "skep._skep")]
pub(crate) struct Outcome {
    /// The result: 64 bits of programs over buffers, 32 bits of others.
    result: u64,
    /// The name of the result, if the program's type gives it one.
    verdict: Option<String>,
    /// The packet or buffer as the program left it.
    data: Py<PyBytes>,
    /// Whether its bytes changed, or their number.
    changed: bool,
    /// Where the packet goes.
    redirect: Option<String>,
    /// The indexes of the devices that it leaves by, if it is redirected to any.
    devices: Vec<u32>,
    /// What was output to rings and arrays of perf events: names of maps, and bytes.
    events: Vec<(String, Py<PyBytes>)>,
    /// Of programs that run on a context: its fields afterwards.
    context: Option<Py<PyDict>>,
}

impl Program {
    pub(crate) fn new(inner: skep::Program) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &skep::Program {
        &self.inner
    }
}

#[pymethods]
impl Program {
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// Its type, as bpftool names it.
    #[getter]
    fn program_type(&self) -> &'static str {
        self.inner.program_type().name
    }

    /// Sixteen hexadecimal digits that name its instructions, as Linux computes them.
    #[getter]
    fn tag(&self) -> String {
        self.inner.verified().tag().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The number of instructions.
    #[getter]
    fn insns(&self) -> usize {
        self.inner.verified().insns().len()
    }

    /// Runs it once: on a packet, a buffer, or a context whose fields are given.
    #[pyo3(signature = (data=None, *, interpret=false, **fields))]
    fn run(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        interpret: bool,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Outcome> {
        let engine = if interpret { Engine::Interpreter } else { Engine::Jit };
        match self.inner.program_type().native {
            Some(Native::Xdp | Native::Skb | Native::Netfilter) => {
                let data = data.ok_or_else(|| self.lacks("the bytes of a packet"))?;
                let mut packet = Packet::new(&values::input(data)?);
                context::describe(&mut packet, fields)?;
                self.on_packet(py, engine, &mut packet)
            }
            Some(Native::Buffer) => {
                let data = data.ok_or_else(|| self.lacks("the bytes of a buffer"))?;
                if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
                    let text = format!("programs over a buffer take no fields: {}", fields.keys());
                    return Err(PyTypeError::new_err(text));
                }
                let before = values::input(data)?;
                let mut buffer = before.clone();
                let result =
                    self.inner.run_raw_with(engine, &mut buffer).map_err(|error| raised(py, &error))?;
                let changed = before != buffer;
                Ok(Outcome { changed, ..Outcome::new(py, result, None, &buffer) })
            }
            _ => {
                let mut filled = context::filled(&self.inner, data, fields)?;
                let result =
                    self.inner.run_context_with(engine, &mut filled).map_err(|error| raised(py, &error))?;
                let verdict = self.inner.program_type().verdict(result);
                let after = context::fields(py, &filled, fields)?;
                let data = filled.data().to_vec();
                Ok(Outcome { context: Some(after), ..Outcome::new(py, result, verdict, &data) })
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("<skep.Program {} ({})>", self.inner.name(), self.inner.program_type().name)
    }
}

impl Program {
    fn lacks(&self, what: &str) -> PyErr {
        PyTypeError::new_err(format!("program {} runs on {what}: give them to run()", self.inner.name()))
    }

    fn on_packet(&self, py: Python<'_>, engine: Engine, packet: &mut Packet) -> PyResult<Outcome> {
        let outcome = self.inner.outcome_with(engine, packet).map_err(|error| raised(py, &error))?;
        let event = |event: &skep::Event| (event.map.clone(), PyBytes::new(py, &event.bytes).unbind());
        let devices = match outcome.redirect {
            Some(
                Redirect::Device { index, .. } | Redirect::Neighbour { index, .. } | Redirect::Peer { index },
            ) => {
                vec![index]
            }
            _ => outcome.devices.clone(),
        };
        Ok(Outcome {
            changed: outcome.changed,
            redirect: outcome.redirect.map(redirection),
            devices,
            events: outcome.events.iter().map(event).collect(),
            ..Outcome::new(py, outcome.result, outcome.verdict, packet.bytes())
        })
    }
}

/// A redirection in words.
fn redirection(redirect: Redirect) -> String {
    match redirect {
        Redirect::Device { index, ingress: false } => format!("device {index}"),
        Redirect::Device { index, ingress: true } => format!("into device {index}"),
        Redirect::Peer { index } => format!("peer of device {index}"),
        Redirect::Neighbour { index, next_hop: None } => format!("neighbour on device {index}"),
        Redirect::Neighbour { index, next_hop: Some(hop) } => format!("neighbour {hop} on device {index}"),
        Redirect::Devices => "devices".to_owned(),
        Redirect::Cpu { cpu } => format!("cpu {cpu}"),
        Redirect::Stream { cookie, .. } => format!("socket {cookie}"),
        other => format!("{other:?}"),
    }
}

impl Outcome {
    fn new(py: Python<'_>, result: u64, verdict: Option<&str>, data: &[u8]) -> Self {
        Self {
            result,
            verdict: verdict.map(str::to_owned),
            data: PyBytes::new(py, data).unbind(),
            changed: false,
            redirect: None,
            devices: Vec::new(),
            events: Vec::new(),
            context: None,
        }
    }
}

#[pymethods]
impl Outcome {
    fn __repr__(&self, py: Python<'_>) -> String {
        let verdict = self.verdict.as_ref().map(|verdict| format!(" {verdict}")).unwrap_or_default();
        let bytes = self.data.bind(py).as_bytes().len();
        format!("<skep.Outcome {}{verdict}, {bytes} bytes>", self.result)
    }

    fn __int__(&self) -> u64 {
        self.result
    }
}
