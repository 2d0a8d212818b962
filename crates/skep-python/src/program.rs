//! Programs, and their runs.

use crate::errors;
use crate::interrupt::{self, Pulse};
use crate::packet;
use crate::released::Released;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use skep::abi::Native;
use skep::{Budget, Engine, Error, Packet};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A loaded program.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Program {
    /// Boxed: it is aligned to a cache line.
    pub(crate) program: Released<Box<skep::Program>>,
    /// Whether its runs can be ended from another thread.
    ends: bool,
}

/// What a run fails with: an error of the runtime, or the exception of a signal's handler.
enum Failure {
    Run(Error),
    Signal(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Run(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Signal(error)
    }
}

/// The runs before the last one, which is looked at.
struct Repeats {
    left: u64,
    pulse: Pulse,
}

impl Repeats {
    /// Whether one more is to be made.
    fn more(&mut self, stop: &AtomicBool) -> Result<bool, Failure> {
        // Relaxed: see `interrupt::watched`, which stores it.
        if self.left == 0 || stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.left -= 1;
        self.pulse.check()?;
        Ok(true)
    }
}

impl Program {
    pub(crate) fn new(program: &skep::Program, ends: bool) -> Self {
        Self { program: Released::new(Box::new(program.clone())), ends }
    }

    /// Runs it detached, `repeat` times: `each` for all runs but the last, then `last`. Returns what `last` made, and
    /// the nanoseconds of one run.
    fn detached<S: Send, T: Send>(
        &self,
        py: Python<'_>,
        repeat: u64,
        state: &mut S,
        each: impl Fn(&mut S) -> Result<(), Error> + Send + Sync,
        last: impl Fn(&mut S) -> Result<T, Error> + Send + Sync,
    ) -> PyResult<(T, f64)> {
        let Some(left) = repeat.checked_sub(1) else {
            return Err(PyValueError::new_err("repeat must be at least 1"));
        };
        let mut work = |stop: &AtomicBool| {
            let started = Instant::now();
            let mut repeats = Repeats { left, pulse: Pulse::new() };
            while repeats.more(stop)? {
                each(state)?;
            }
            let made = last(state)?;
            Ok::<_, Failure>((made, started.elapsed().as_nanos() as f64 / repeat as f64))
        };
        let ran = if self.ends && interrupt::is_main(py)? {
            // It fails only in runtimes without budgets.
            interrupt::watched(py, work, || drop(self.program.interrupt()))?
        } else {
            py.detach(|| work(&AtomicBool::new(false)))
        };
        ran.map_err(|failure| match failure {
            Failure::Run(error) => errors::raise(py, error),
            Failure::Signal(error) => error,
        })
    }

    /// The same program with another budget, or this one: a handle less is a reference less to drop.
    fn budgeted(
        &self,
        py: Python<'_>,
        budget: Option<(Option<u64>, Option<f64>)>,
    ) -> PyResult<Cow<'_, skep::Program>> {
        let Some(budget) = budget else { return Ok(Cow::Borrowed(&self.program)) };
        let made = self.program.with_budget(budget_of(budget)?);
        made.map(Cow::Owned).map_err(|error| errors::raise(py, error))
    }
}

/// A budget of units and seconds.
pub(crate) fn budget_of((units, seconds): (Option<u64>, Option<f64>)) -> PyResult<Budget> {
    let budget = units.map_or(Budget::UNLIMITED, Budget::units);
    let Some(seconds) = seconds else { return Ok(budget) };
    let time =
        Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(budget.and_time(time))
}

#[pymethods]
impl Program {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.program.name()
    }

    /// The name of its type.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.program.program_type().name
    }

    /// What it runs on: `packet`, `buffer`, `context`, or nothing that Python can give.
    #[getter]
    fn input(&self) -> Option<&'static str> {
        match self.program.program_type().native? {
            Native::Xdp | Native::Skb | Native::Netfilter => Some("packet"),
            Native::Buffer => Some("buffer"),
            Native::Struct | Native::Bytes => Some("context"),
            _ => None,
        }
    }

    /// Runs it on a packet.
    #[pyo3(signature = (data, *, info=None, repeat=1, budget=None, interpreter=false))]
    fn run_packet<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        info: Option<&Bound<'py, PyDict>>,
        repeat: u64,
        budget: Option<(Option<u64>, Option<f64>)>,
        interpreter: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let info = info.map(packet::info_of).transpose()?.unwrap_or_default();
        let (program, engine) = (self.budgeted(py, budget)?, engine(interpreter));
        let mut packet = Packet::new(data);
        let renew = |packet: &mut Packet| {
            packet.set(data);
            packet.info = info;
        };
        let each = |packet: &mut Packet| {
            renew(packet);
            program.run_with(engine, packet).map(drop)
        };
        let last = |packet: &mut Packet| {
            renew(packet);
            program.outcome_with(engine, packet)
        };
        let (outcome, time) = self.detached(py, repeat, &mut packet, each, last)?;
        let dict = packet::outcome_dict(py, &outcome, &packet)?;
        dict.set_item(intern!(py, "nanoseconds"), time)?;
        Ok(dict)
    }

    /// Runs a program of type `raw` on a buffer.
    #[pyo3(signature = (data, *, repeat=1, budget=None, interpreter=false))]
    fn run_buffer<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        repeat: u64,
        budget: Option<(Option<u64>, Option<f64>)>,
        interpreter: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (program, engine) = (self.budgeted(py, budget)?, engine(interpreter));
        let mut buffer = data.to_vec();
        let run = |buffer: &mut Vec<u8>| {
            buffer.copy_from_slice(data);
            program.run_raw_with(engine, buffer)
        };
        let (result, time) = self.detached(py, repeat, &mut buffer, |buffer| run(buffer).map(drop), run)?;
        let dict = packet::plain_dict(py, self.program.program_type(), result)?;
        dict.set_item(intern!(py, "packet"), PyBytes::new(py, &buffer))?;
        dict.set_item(intern!(py, "nanoseconds"), time)?;
        Ok(dict)
    }

    /// Runs it on a context.
    #[pyo3(signature = (fields=None, data=None, *, budget=None, interpreter=false))]
    fn run_context<'py>(
        &self,
        py: Python<'py>,
        fields: Option<&Bound<'py, PyDict>>,
        data: Option<&[u8]>,
        budget: Option<(Option<u64>, Option<f64>)>,
        interpreter: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (program, engine) = (self.budgeted(py, budget)?, engine(interpreter));
        let kind = program.program_type();
        let mut context = packet::context_of(py, kind, fields, data)?;
        let run = |context: &mut skep::Context| program.run_context_with(engine, context);
        let (result, time) = self.detached(py, 1, &mut context, |_| Ok(()), run)?;
        let dict = packet::context_dict(py, kind, result, &context)?;
        dict.set_item(intern!(py, "nanoseconds"), time)?;
        Ok(dict)
    }

    /// Ends all its runs that are in progress, on any thread.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        self.program.interrupt().map_err(|error| errors::raise(py, error))
    }

    /// Runs that ended and their nanoseconds, while statistics were on.
    fn stats(&self) -> (u64, u64) {
        let stats = self.program.stats();
        (stats.run_cnt, stats.run_time_ns)
    }

    /// Counts from 0 again.
    fn reset_stats(&self) {
        self.program.reset_stats();
    }
}

fn engine(interpreter: bool) -> Engine {
    if interpreter { Engine::Interpreter } else { Engine::Jit }
}
