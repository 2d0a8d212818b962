//! Modules: what a load has made.

use crate::convert;
use crate::errors;
use crate::map::Map;
use crate::program::Program;
use crate::released::Released;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use skep::json::Shape;
use skep::{Error, Variable};
use std::sync::Arc;

/// The result of a load.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Module {
    pub(crate) module: Released<Arc<skep::Module>>,
    /// Whether runs of its programs can be ended.
    ends: bool,
}

impl Module {
    pub(crate) fn new(module: skep::Module, ends: bool) -> Self {
        Self { module: Released::new(Arc::new(module)), ends }
    }

    fn array(&self, name: &str) -> PyResult<&skep::ProgramArray> {
        let found = self.module.program_array(name);
        found.ok_or_else(|| PyTypeError::new_err(format!("map '{name}' is no array of programs")))
    }
}

#[pymethods]
impl Module {
    /// Its programs, in the object's order.
    fn programs(&self) -> Vec<Program> {
        self.module.programs().iter().map(|program| Program::new(program, self.ends)).collect()
    }

    /// Its maps, in the object's order.
    fn maps(&self) -> Vec<Map> {
        let maps = self.module.maps();
        let holds = |map: &Arc<skep::Map>| {
            self.module.variables().iter().any(|variable| Arc::ptr_eq(&maps[variable.map], map))
        };
        let made = |map| Map::new(map, &self.module, map.name().starts_with('.') || holds(map));
        maps.iter().map(made).collect()
    }

    /// Maps that were not made, and why not, if that was tried.
    fn unused_maps(&self) -> Vec<(String, Option<String>)> {
        let unused = self.module.unused_maps().iter();
        unused.map(|map| (map.name.clone(), map.error.as_ref().map(ToString::to_string))).collect()
    }

    /// Its variables: name, bytes, whether programs rely on the value.
    fn variables(&self) -> Vec<(String, usize, bool)> {
        let of = |variable: &Variable| (variable.name.clone(), variable.size, variable.read_only);
        self.module.variables().iter().map(of).collect()
    }

    /// The value of a variable.
    fn variable(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let read = || Ok::<_, Error>((self.module.variable(name)?, self.module.variable_json(name)?));
        let (bytes, shape) = read().map_err(|error| errors::raise(py, error))?;
        convert::from_bytes(py, &shape, &bytes, false)
    }

    /// Sets a variable.
    fn set_variable(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let shape = self.module.variable_json(name).map_err(|error| errors::raise(py, error))?;
        let bytes = convert::to_bytes(&shape, name, value)?;
        let module = &self.module;
        py.detach(|| module.set_variable(name, &bytes)).map_err(|error| errors::raise(py, error))
    }

    /// The value of bytes, by a type of the object: `struct event`, `event`.
    fn decode(&self, py: Python<'_>, type_name: &str, bytes: &[u8]) -> PyResult<Py<PyAny>> {
        let (types, ty) = self.type_named(type_name)?;
        let shape = Shape::new(Some(types), Some(ty), bytes.len());
        match types.size(ty) {
            Ok(size) if size as usize != bytes.len() => {
                let text = format!("{type_name} has {size} bytes, {} were given", bytes.len());
                Err(PyValueError::new_err(text))
            }
            _ => convert::from_bytes(py, &shape, bytes, false),
        }
    }

    /// The bytes of a value, by a type of the object.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        type_name: &str,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (types, ty) = self.type_named(type_name)?;
        let size = types.size(ty).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let shape = Shape::new(Some(types), Some(ty), size as usize);
        Ok(PyBytes::new(py, &convert::to_bytes(&shape, type_name, value)?))
    }

    /// The program in an element of an array of programs.
    fn array_program(&self, map: &str, index: u32) -> PyResult<Option<Program>> {
        Ok(self.array(map)?.get(index).map(|program| Program::new(&program, self.ends)))
    }

    /// Puts a program into an element of an array of programs, or empties it. Returns whether there was one.
    fn set_array_program(
        &self,
        py: Python<'_>,
        map: &str,
        index: u32,
        program: Option<&Program>,
    ) -> PyResult<bool> {
        let array = self.array(map)?;
        let old = py.detach(|| {
            // Dropped here, detached.
            let old = match program {
                Some(program) => array.set(index, &program.program),
                None => array.remove(index),
            };
            old.map(|old| old.is_some())
        });
        old.map_err(|error| errors::raise(py, error))
    }
}

impl Module {
    fn type_named(&self, name: &str) -> PyResult<(&skep::Btf, u32)> {
        use skep_btf::Kind::{Enum, Int, Struct, Typedef, Union};

        let Some(types) = self.module.types() else {
            return Err(PyTypeError::new_err("the object has no types: compile it with -g"));
        };
        let (kinds, bare): (&[_], &str) = match name.split_once(' ') {
            Some(("struct", bare)) => (&[Struct], bare),
            Some(("union", bare)) => (&[Union], bare),
            Some(("enum", bare)) => (&[Enum], bare),
            _ => (&[Struct, Typedef, Union, Enum, Int], name),
        };
        let found = kinds.iter().find_map(|kind| types.find(bare.trim(), *kind));
        found
            .map(|ty| (types, ty))
            .ok_or_else(|| PyTypeError::new_err(format!("the object has no type '{name}'")))
    }
}
