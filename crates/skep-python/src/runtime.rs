//! Runtimes: settings and loads.

use crate::convert;
use crate::errors;
use crate::map::Map;
use crate::module::Module;
use crate::packet::type_named;
use crate::program::budget_of;
use crate::released::Released;
use crate::tenant::Tenant;
use crate::world::World;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use skep::{Budget, Object};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where programs print to. Shared by the runtime, which programs keep alive, and by the Python object, which owns the
/// one reference: the garbage collector sees it there, and it ends with the object. So a function that leads back to
/// the runtime is collected; in the runtime alone it would be kept for ever. Modules and programs in Python keep the
/// object alive.
type Log = Arc<Mutex<Option<Py<PyAny>>>>;

/// A runtime.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Runtime {
    pub(crate) runtime: Released<skep::Runtime>,
    log: Log,
    ends: bool,
}

/// Settings of a runtime, from a dictionary that has them all.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings<'py> {
    cpus: Option<u32>,
    map_memory: Option<u64>,
    code_memory: Option<usize>,
    max_walked: Option<u64>,
    privileged: bool,
    untrusted: bool,
    /// Seconds.
    clock_granularity: Option<f64>,
    /// Units and seconds.
    budget: Option<(Option<u64>, Option<f64>)>,
    interruptible: bool,
    log: Option<Bound<'py, PyAny>>,
    stats: bool,
    world: Option<Bound<'py, World>>,
}

/// Choices of a load, from a dictionary that has them all.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Choices<'py> {
    /// Instead of an object: a program in assembler, with its name.
    assembly: Option<(String, String)>,
    programs: Option<Vec<String>>,
    program_type: Option<String>,
    variables: Bound<'py, PyDict>,
    max_entries: Vec<(String, u32)>,
    maps: Vec<(String, Bound<'py, Map>)>,
    reuse_maps: Option<Bound<'py, Module>>,
    fresh_maps: Vec<String>,
    buffer_len: u32,
    sleepable: bool,
    tenant: Option<Bound<'py, Tenant>>,
}

#[pymethods]
impl Runtime {
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let settings: Settings<'_> = settings.extract().map_err(|error| errors::of_member(py, error))?;
        let log: Log = Arc::new(Mutex::new(settings.log.as_ref().map(|log| log.clone().unbind())));
        let mut builder = skep::Runtime::builder().privileged(settings.privileged);
        if let Some(cpus) = settings.cpus {
            builder = builder.cpus(cpus);
        }
        if let Some(bytes) = settings.map_memory {
            builder = builder.map_memory(bytes);
        }
        if let Some(bytes) = settings.code_memory {
            builder = builder.code_memory(bytes);
        }
        if let Some(instructions) = settings.max_walked {
            builder = builder.max_walked(instructions);
        }
        if settings.untrusted {
            builder = builder.untrusted();
        }
        if let Some(seconds) = settings.clock_granularity {
            let time = Duration::try_from_secs_f64(seconds);
            builder =
                builder.clock_granularity(time.map_err(|error| PyValueError::new_err(error.to_string()))?);
        }
        let budget = settings.budget.map(budget_of).transpose()?;
        let budget = budget.or(settings.interruptible.then_some(Budget::UNLIMITED));
        if let Some(budget) = budget {
            builder = builder.budget(budget);
        }
        if settings.log.is_some() {
            let log = Arc::clone(&log);
            builder = builder.log(move |program, message| print(&log, program, message));
        }
        if let Some(world) = &settings.world {
            builder = builder.world(&world.get().world);
        }
        let runtime = py.detach(|| builder.build()).map_err(|error| errors::raise(py, error))?;
        runtime.enable_stats(settings.stats);
        Ok(Self { runtime: Released::new(runtime), log, ends: budget.is_some() })
    }

    /// Virtual CPUs.
    #[getter]
    fn cpus(&self) -> u32 {
        self.runtime.cpus()
    }

    /// Loads an object.
    fn load(&self, py: Python<'_>, data: &[u8], choices: &Bound<'_, PyDict>) -> PyResult<Module> {
        let choices: Choices<'_> = choices.extract().map_err(|error| errors::of_member(py, error))?;
        let raise = |error| errors::raise(py, error);
        let program_type = choices.program_type.as_deref().map(type_named).transpose()?;
        let object = match &choices.assembly {
            Some((name, text)) => {
                let insns = skep::isa::assemble(text);
                let insns = insns.map_err(|error| PyValueError::new_err(error.to_string()))?;
                Object::from_insns(name, program_type.unwrap_or(&skep::abi::RAW), insns)
            }
            None => py.detach(|| Object::parse(data)).map_err(raise)?,
        };
        let mut variables = Vec::new();
        for (name, value) in &choices.variables {
            let name: String = name.extract()?;
            let shape = object.variable_json(&name).map_err(raise)?;
            let bytes = convert::to_bytes(&shape, &name, &value)?;
            variables.push((name, bytes));
        }
        let maps = choices.maps.iter().map(|(name, map)| (name.as_str(), Arc::clone(&map.get().map)));
        let maps: Vec<_> = maps.collect();
        let older = choices.reuse_maps.as_ref().map(|older| Arc::clone(&older.get().module));
        let tenant = choices.tenant.as_ref().map(|tenant| Arc::clone(&tenant.get().0));
        let Choices { programs, max_entries, fresh_maps, buffer_len, sleepable, .. } = &choices;
        let runtime = &self.runtime;
        let load = || {
            let mut linker = runtime.linker(&object).buffer_len(*buffer_len).sleepable(*sleepable);
            if let Some(program_type) = program_type {
                linker = linker.program_type(program_type);
            }
            if let Some((first, others)) = programs.as_ref().and_then(|names| names.split_first()) {
                linker = others.iter().fold(linker.only(first), |linker, name| linker.and(name));
            }
            if let Some(older) = &older {
                linker = linker.reuse_maps(older);
            }
            if let Some(tenant) = &tenant {
                linker = linker.tenant(tenant);
            }
            linker = fresh_maps.iter().fold(linker, |linker, name| linker.fresh_map(name));
            linker = max_entries.iter().fold(linker, |linker, (map, most)| linker.max_entries(map, *most));
            linker = maps.into_iter().fold(linker, |linker, (name, map)| linker.map(name, map));
            linker = variables.iter().fold(linker, |linker, (name, bytes)| linker.variable(name, bytes));
            linker.load()
        };
        let module = py.detach(load).map_err(raise)?;
        Ok(Module::new(module, self.ends))
    }

    /// Ends all runs in progress.
    fn interrupt(&self) {
        self.runtime.interrupt();
    }

    /// Waits until no thread runs a program that was replaced or removed before.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let runtime = &self.runtime;
        py.detach(|| runtime.synchronize()).map_err(|error| errors::raise(py, error))
    }

    /// Turns statistics of runs on or off.
    fn enable_stats(&self, on: bool) {
        self.runtime.enable_stats(on);
    }

    /// Bytes of executable memory that are used.
    fn used_code(&self) -> usize {
        self.runtime.occupancy().used_bytes
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Held only to copy the reference, so a failure is rare; then the collector tries again later.
        match self.log.try_lock() {
            Ok(log) => visit.call(&*log),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(log);
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.__clear__();
    }
}

/// Passes a message of a program on to the Python function. Its exceptions go where those of destructors go: there is
/// no Python code that could catch them.
fn print(log: &Log, program: &str, message: &str) {
    let _ = Python::try_attach(|py| {
        let to = log.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|to| to.clone_ref(py));
        let Some(to) = to else { return };
        if let Err(error) = to.call1(py, (program, message)) {
            error.write_unraisable(py, Some(to.bind(py)));
        }
    });
}
