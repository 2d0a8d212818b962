//! Maps: elements by key, values of each virtual CPU, and what queues and filters do.
//!
//! Each method is one operation of the map, so that the mappings in Python need not look first and act then. Only
//! `take` is two for kinds that have no such operation: tries and maps of devices.

use crate::convert;
use crate::errors;
use crate::released::Released;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use skep::abi::MapKind;
use skep::json::Shape;
use skep::{MapError, UpdateFlags};
use std::sync::Arc;

/// A map of a module.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Map {
    pub(crate) map: Released<Arc<skep::Map>>,
    /// Has the types that the next two numbers are of.
    module: Released<Arc<skep::Module>>,
    key: Option<u32>,
    value: Option<u32>,
    section: bool,
}

impl Map {
    pub(crate) fn new(map: &Arc<skep::Map>, module: &Arc<skep::Module>, section: bool) -> Self {
        let (key, value) = module.map_types(map.name()).unwrap_or_default();
        let (map, module) = (Released::new(Arc::clone(map)), Released::new(Arc::clone(module)));
        Self { map, module, key, value, section }
    }

    fn key_shape(&self) -> Shape<'_> {
        Shape::new(self.module.types(), self.key, self.map.def().key_size as usize)
    }

    /// That of one virtual CPU.
    fn value_shape(&self) -> Shape<'_> {
        Shape::new(self.module.types(), self.value, self.map.def().value_size as usize)
    }

    fn key_bytes(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        convert::to_bytes(&self.key_shape(), &format!("key of {}", self.map.name()), key)
    }

    /// The values of all virtual CPUs, of which each has so many bytes.
    fn padded(&self) -> usize {
        self.value_shape().size().next_multiple_of(8).max(8)
    }

    fn value_object(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyAny>> {
        let shape = self.value_shape();
        if !self.map.kind().is_per_cpu() {
            return convert::from_bytes(py, &shape, bytes, false);
        }
        let of_cpus = bytes.chunks_exact(self.padded());
        let of_cpus = of_cpus.map(|value| convert::from_bytes(py, &shape, &value[..shape.size()], false));
        Ok(PyTuple::new(py, of_cpus.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
    }

    fn value_bytes(&self, value: &Bound<'_, PyAny>, each: bool) -> PyResult<Vec<u8>> {
        let (shape, name) = (self.value_shape(), format!("value of {}", self.map.name()));
        if !self.map.kind().is_per_cpu() {
            return convert::to_bytes(&shape, &name, value);
        }
        let padded = self.padded();
        let mut all = vec![0; self.map.host_value_size()];
        if !each {
            let value = convert::to_bytes(&shape, &name, value)?;
            all.chunks_exact_mut(padded).for_each(|slot| slot[..value.len()].copy_from_slice(&value));
            return Ok(all);
        }
        let (values, cpus) = (value.try_iter()?.collect::<PyResult<Vec<_>>>()?, all.len() / padded);
        if values.len() > cpus {
            let text = format!("{name}: {} values, but there are {cpus} virtual CPUs", values.len());
            return Err(PyValueError::new_err(text));
        }
        for (cpu, (value, slot)) in values.iter().zip(all.chunks_exact_mut(padded)).enumerate() {
            let value = convert::to_bytes(&shape, &format!("{name} for CPU {cpu}"), value)?;
            slot[..value.len()].copy_from_slice(&value);
        }
        Ok(all)
    }
}

/// What an operation says of a key that is not there: not an error.
fn absent<T>(result: Result<Option<T>, MapError>) -> Result<Option<T>, MapError> {
    match result {
        Err(MapError::Missing { .. } | MapError::OutOfRange { .. }) => Ok(None),
        other => other,
    }
}

#[pymethods]
impl Map {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.map.name()
    }

    /// Its kind, as bpftool writes it.
    #[getter]
    fn kind(&self) -> &'static str {
        self.map.kind().name()
    }

    /// Bytes in a key.
    #[getter]
    fn key_size(&self) -> u32 {
        self.map.def().key_size
    }

    /// Bytes in a value, of one CPU.
    #[getter]
    fn value_size(&self) -> u32 {
        self.map.def().value_size
    }

    /// The most elements.
    #[getter]
    fn max_entries(&self) -> u32 {
        self.map.def().max_entries
    }

    /// Bytes of memory.
    #[getter]
    fn memory(&self) -> u64 {
        self.map.memory()
    }

    /// Whether it is a section of the object: variables, strings.
    #[getter]
    fn is_section(&self) -> bool {
        self.section
    }

    /// Whether both are the same map.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.map, &other.map)
    }

    fn __len__(&self) -> usize {
        self.map.len() as usize
    }

    /// The value of a key, or `None`.
    fn get(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let key = self.key_bytes(key)?;
        let map = &self.map;
        let found = py.detach(|| absent(map.lookup(&key))).map_err(|error| errors::of_map(py, &error))?;
        found.map(|value| self.value_object(py, &value)).transpose()
    }

    /// Sets the value of a key: for per-CPU kinds that of all CPUs, or with `each` a list of values. `flags` are those
    /// of `bpf_map_update_elem`. Returns whether the flags allowed it.
    #[pyo3(signature = (key, value, *, each=false, flags=0))]
    fn set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        each: bool,
        flags: u64,
    ) -> PyResult<bool> {
        let Some(flags) = UpdateFlags::from_number(flags) else {
            return Err(PyValueError::new_err(format!("there are no flags {flags:#x}")));
        };
        let (key, value, map) = (self.key_bytes(key)?, self.value_bytes(value, each)?, &self.map);
        match py.detach(|| map.update(&key, &value, flags)) {
            Ok(()) => Ok(true),
            Err(MapError::Exists { .. }) => Ok(false),
            Err(MapError::Missing { .. }) if flags != UpdateFlags::Any => Ok(false),
            Err(error) => Err(errors::of_map(py, &error)),
        }
    }

    /// Removes a key. Returns whether it was there.
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (key, map) = (self.key_bytes(key)?, &self.map);
        match py.detach(|| map.delete(&key)) {
            Ok(()) => Ok(true),
            Err(MapError::Missing { .. }) => Ok(false),
            Err(error) => Err(errors::of_map(py, &error)),
        }
    }

    /// Removes a key and returns its value, or `None`. Of several callers at once, one gets it. One operation for hash
    /// tables; other kinds look up first, so the value may be one that was replaced before the key was removed.
    fn take(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let (key, map) = (self.key_bytes(key)?, &self.map);
        let taken = py.detach(|| match map.lookup_and_delete(&key) {
            Err(MapError::NotForKind { .. }) => take_slowly(map, &key),
            taken => taken,
        });
        let taken = taken.map_err(|error| errors::of_map(py, &error))?;
        taken.map(|value| self.value_object(py, &value)).transpose()
    }

    /// All elements, as pairs of key and value, at about this time.
    fn entries(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, Py<PyAny>)>> {
        let map = &self.map;
        let entries = py.detach(|| map.entries().collect::<Vec<_>>());
        let pair = |(key, value): (Vec<u8>, Vec<u8>)| {
            let key = convert::from_bytes(py, &self.key_shape(), &key, true)?;
            Ok((key, self.value_object(py, &value)?))
        };
        entries.into_iter().map(pair).collect()
    }

    /// The bytes of a key.
    fn encode_key<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.key_bytes(key)?))
    }

    /// The key of bytes.
    fn decode_key(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyAny>> {
        if bytes.len() != self.key_shape().size() {
            let text = format!("a key of {} has {} bytes", self.map.name(), self.key_shape().size());
            return Err(PyValueError::new_err(text));
        }
        convert::from_bytes(py, &self.key_shape(), bytes, true)
    }

    /// The value of bytes of another length than the map's values: a record of a ring.
    fn decode_record(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyAny>> {
        let shape = Shape::new(self.module.types(), self.value, bytes.len());
        match self.value {
            Some(ty) if self.module.types().is_some_and(|btf| btf.size(ty) == Ok(bytes.len() as u32)) => {
                convert::from_bytes(py, &shape, bytes, false)
            }
            _ => Ok(PyBytes::new(py, bytes).into_any().unbind()),
        }
    }

    /// Adds a value to a queue, a stack or a filter. With `replace`, a full queue loses its oldest value.
    #[pyo3(signature = (value, *, replace=false))]
    fn push(&self, py: Python<'_>, value: &Bound<'_, PyAny>, replace: bool) -> PyResult<()> {
        let flags = if replace { UpdateFlags::Exist } else { UpdateFlags::Any };
        let (value, map) = (self.value_bytes(value, false)?, &self.map);
        py.detach(|| map.push(&value, flags)).map_err(|error| errors::of_map(py, &error))
    }

    /// Removes the next value of a queue or a stack.
    fn pop(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let map = &self.map;
        let popped = py.detach(|| map.pop()).map_err(|error| errors::of_map(py, &error))?;
        popped.map(|value| self.value_object(py, &value)).transpose()
    }

    /// The next value of a queue or a stack.
    fn peek(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let map = &self.map;
        let found = py.detach(|| map.peek()).map_err(|error| errors::of_map(py, &error))?;
        found.map(|value| self.value_object(py, &value)).transpose()
    }

    /// Whether a filter may have the value.
    fn contains(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (value, map) = (self.value_bytes(value, false)?, &self.map);
        py.detach(|| map.contains(&value)).map_err(|error| errors::of_map(py, &error))
    }

    fn __repr__(&self) -> String {
        format!("<skep._skep.Map {} ({})>", skep::escaped(self.map.name()), self.map.kind())
    }
}

/// For kinds that have no such operation: of several callers at once, one deletes the key.
fn take_slowly(map: &skep::Map, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
    debug_assert_ne!(map.kind(), MapKind::Hash);
    let Some(value) = map.lookup(key)? else { return Ok(None) };
    absent(map.delete(key).map(|()| Some(value)))
}
