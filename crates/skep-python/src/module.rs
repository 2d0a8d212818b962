//! Runtimes, and loaded objects.

use crate::errors::{failed, raised};
use crate::events::RingBuffer;
use crate::map::RawMap;
use crate::program::Program;
use crate::values;
use crate::world::World;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use skep::abi::ProgramType;
use skep::{Btf, Object};
use std::path::PathBuf;
use std::sync::Arc;

/// Programs, maps and code memory.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Runtime {
    inner: skep::Runtime,
}

/// A loaded object.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Module {
    inner: Arc<skep::Module>,
}

/// A file to read, or its bytes.
#[derive(FromPyObject)]
enum Source<'py> {
    Bytes(Bound<'py, PyBytes>),
    Path(PathBuf),
}

impl Source<'_> {
    fn object(&self) -> Result<Object, skep::Error> {
        match self {
            Self::Bytes(bytes) => Object::parse(bytes.as_bytes()),
            Self::Path(path) => Object::open(path),
        }
    }
}

#[pymethods]
impl Runtime {
    #[new]
    #[pyo3(signature = (*, world=None, cpus=None, log=None, privileged=false))]
    fn new(
        py: Python<'_>,
        world: Option<&World>,
        cpus: Option<u32>,
        log: Option<Py<PyAny>>,
        privileged: bool,
    ) -> PyResult<Self> {
        let mut builder = skep::Runtime::builder().privileged(privileged);
        if let Some(world) = world {
            builder = builder.world(world.inner());
        }
        if let Some(cpus) = cpus {
            builder = builder.cpus(cpus);
        }
        if let Some(log) = log {
            builder = builder.log(move |program, message| {
                Python::attach(|py| {
                    // There is nobody to raise it to: a program runs.
                    if let Err(error) = log.call1(py, (program, message)) {
                        error.write_unraisable(py, None);
                    }
                });
            });
        }
        let inner = builder.build().map_err(|error| raised(py, &error))?;
        Ok(Self { inner })
    }

    /// Verifies, compiles and installs programs of an object.
    #[pyo3(signature = (source, *, programs=None, program_type=None, buffer_len=None, sleepable=false, variables=None,
                        max_entries=None, btf=None, kconfig=None, kernel=None))]
    #[allow(clippy::too_many_arguments)] // keywords of Python
    fn load(
        &self,
        py: Python<'_>,
        source: Source<'_>,
        programs: Option<Vec<String>>,
        program_type: Option<&str>,
        buffer_len: Option<u32>,
        sleepable: bool,
        variables: Option<&Bound<'_, PyDict>>,
        max_entries: Option<&Bound<'_, PyDict>>,
        btf: Option<PathBuf>,
        kconfig: Option<&str>,
        kernel: Option<&str>,
    ) -> PyResult<Module> {
        let known = |error: skep::Error| raised(py, &error);
        let mut object = source.object().map_err(known)?;
        if let Some(path) = btf {
            let bytes =
                std::fs::read(&path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
            let types = Btf::parse(bytes).map_err(|error| failed(format!("{}: {error}", path.display())))?;
            object.set_host_types(Arc::new(types));
        }
        if kconfig.is_some() || kernel.is_some() {
            object.set_config(kconfig.unwrap_or_default(), kernel).map_err(known)?;
        }
        let mut linker = self.inner.linker(&object);
        if let Some(names) = programs {
            let mut names = names.iter();
            if let Some(first) = names.next() {
                linker = linker.only(first);
            }
            linker = names.fold(linker, |linker, name| linker.and(name));
        }
        if let Some(name) = program_type {
            let kind = ProgramType::from_name(name).ok_or_else(|| {
                failed(format!("{name:?} is no type of programs, such as xdp, sched_cls, raw"))
            })?;
            linker = linker.program_type(kind);
        }
        if let Some(bytes) = buffer_len {
            linker = linker.buffer_len(bytes);
        }
        if sleepable {
            linker = linker.sleepable(true);
        }
        for (name, value) in variables.into_iter().flatten() {
            let name: String = name.extract()?;
            let bytes = variable_bytes(&object, &name, &value)?;
            linker = linker.variable(&name, &bytes);
        }
        for (name, entries) in max_entries.into_iter().flatten() {
            linker = linker.max_entries(&name.extract::<String>()?, entries.extract()?);
        }
        // A linker may hold what belongs to this thread, so it does not leave it; the interpreter waits for the verifier.
        let inner = linker.load().map_err(known)?;
        Ok(Module { inner: Arc::new(inner) })
    }

    /// Waits until everything that was freed is gone.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.synchronize()).map_err(|error| raised(py, &error))
    }
}

/// The bytes of a variable of an object that is not loaded.
fn variable_bytes(object: &Object, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let shape = object.variable_json(name).map_err(|error| PyKeyError::new_err(error.to_string()))?;
    values::bytes(&shape, name, value)
}

#[pymethods]
impl Module {
    /// The programs, in the object's order.
    #[getter]
    fn programs(&self) -> Vec<Program> {
        self.inner.programs().iter().map(|program| Program::new(program.clone())).collect()
    }

    /// The names of the maps.
    #[getter]
    fn map_names(&self) -> Vec<String> {
        self.inner.maps().iter().map(|map| map.name().to_owned()).collect()
    }

    /// The names of the global variables.
    #[getter]
    fn variable_names(&self) -> Vec<String> {
        self.inner.variables().iter().map(|variable| variable.name.clone()).collect()
    }

    fn map(&self, name: &str) -> PyResult<RawMap> {
        RawMap::new(Arc::clone(&self.inner), name)
    }

    fn ring(&self, py: Python<'_>, name: &str) -> PyResult<RingBuffer> {
        RingBuffer::new(py, Arc::clone(&self.inner), name)
    }

    fn variable<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let shape = self.inner.variable_json(name).map_err(|error| PyKeyError::new_err(error.to_string()))?;
        let bytes = self.inner.variable(name).map_err(|error| raised(py, &error))?;
        values::value(py, &shape, &bytes)
    }

    fn set_variable(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let shape = self.inner.variable_json(name).map_err(|error| PyKeyError::new_err(error.to_string()))?;
        let bytes = values::bytes(&shape, name, value)?;
        self.inner.set_variable(name, &bytes).map_err(|error| raised(py, &error))
    }
}
