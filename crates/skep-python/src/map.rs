//! Maps, by the types of their object.

use crate::errors::failed;
use crate::values;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use skep::json::{MapJson, Shape};
use skep::{Map, UpdateFlags};
use std::sync::Arc;

/// A map of a loaded object. `skep.Map` makes a mapping of it.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct RawMap {
    module: Arc<skep::Module>,
    name: String,
    map: Arc<Map>,
}

impl RawMap {
    pub(crate) fn new(module: Arc<skep::Module>, name: &str) -> PyResult<Self> {
        let map =
            module.map_json(name).map_err(|error| PyKeyError::new_err(error.to_string()))?.map().clone();
        Ok(Self { module, name: name.to_owned(), map })
    }

    fn json(&self) -> PyResult<MapJson<'_>> {
        self.module.map_json(&self.name).map_err(failed)
    }

    fn key(&self, json: &MapJson<'_>, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        values::bytes(json.key(), &format!("{}: key", self.name), key)
    }

    /// The bytes of a value: for kinds per CPU, of all CPUs, of which a list has the first.
    fn value(&self, json: &MapJson<'_>, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let name = format!("{}: value", self.name);
        if !self.map.kind().is_per_cpu() {
            return values::bytes(json.value(), &name, value);
        }
        let whole = self.map.host_value_size();
        let each = json.value().size().next_multiple_of(8);
        let mut all = Vec::with_capacity(whole);
        match value.cast::<PyList>() {
            Ok(list) => {
                for (cpu, value) in list.iter().enumerate() {
                    let mut bytes = values::bytes(json.value(), &format!("{name}[{cpu}]"), &value)?;
                    bytes.resize(each, 0);
                    all.extend(bytes);
                }
                if all.len() > whole {
                    let text =
                        format!("{name}: {} values for {} virtual CPUs", all.len() / each, whole / each);
                    return Err(PyValueError::new_err(text));
                }
                all.resize(whole, 0);
            }
            Err(_) => {
                let mut bytes = values::bytes(json.value(), &name, value)?;
                bytes.resize(each, 0);
                all = bytes.repeat(whole / each);
            }
        }
        Ok(all)
    }

    fn shown<'py>(&self, py: Python<'py>, shape: &Shape<'_>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        if !self.map.kind().is_per_cpu() {
            return values::value(py, shape, bytes);
        }
        let each = shape.size().next_multiple_of(8).max(8);
        let values = bytes.chunks_exact(each).map(|value| values::value(py, shape, &value[..shape.size()]));
        Ok(PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }
}

#[pymethods]
impl RawMap {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Its kind, as bpftool names it.
    #[getter]
    fn kind(&self) -> &'static str {
        self.map.kind().name()
    }

    #[getter]
    fn key_size(&self) -> u32 {
        self.map.def().key_size
    }

    #[getter]
    fn value_size(&self) -> u32 {
        self.map.def().value_size
    }

    #[getter]
    fn max_entries(&self) -> u32 {
        self.map.def().max_entries
    }

    fn __len__(&self) -> usize {
        self.map.len() as usize
    }

    /// The value of a key; `None` if there is none.
    fn lookup<'py>(&self, py: Python<'py>, key: &Bound<'_, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let json = self.json()?;
        let found = self.map.lookup(&self.key(&json, key)?).map_err(failed)?;
        found.map(|value| self.shown(py, json.value(), &value)).transpose()
    }

    fn update(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let json = self.json()?;
        let (key, value) = (self.key(&json, key)?, self.value(&json, value)?);
        self.map.update(&key, &value, UpdateFlags::Any).map_err(failed)
    }

    /// Deletes a key. Returns whether it was there.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let json = self.json()?;
        let key = self.key(&json, key)?;
        match self.map.delete(&key) {
            Ok(()) => Ok(true),
            Err(_) if matches!(self.map.lookup(&key), Ok(None)) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// All keys and values at about this time.
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let json = self.json()?;
        let element = |(key, value): (Vec<u8>, Vec<u8>)| {
            Ok((values::value(py, json.key(), &key)?, self.shown(py, json.value(), &value)?))
        };
        self.map.entries().map(element).collect()
    }

    /// Adds a value to a queue, a stack or a bloom filter.
    fn push(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let json = self.json()?;
        let value = values::bytes(json.value(), &format!("{}: value", self.name), value)?;
        self.map.push(&value, UpdateFlags::Any).map_err(failed)
    }

    /// Takes the next value of a queue or a stack; `None` if there is none.
    fn pop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let json = self.json()?;
        let taken = self.map.pop().map_err(failed)?;
        taken.map(|value| values::value(py, json.value(), &value)).transpose()
    }

    /// The next value of a queue or a stack, which stays there.
    fn peek<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let json = self.json()?;
        let seen = self.map.peek().map_err(failed)?;
        seen.map(|value| values::value(py, json.value(), &value)).transpose()
    }
}
