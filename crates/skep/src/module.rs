//! Modules: what a load has made, by name.

use crate::arrays::{MapArray, MapHash, ProgramArray};
use crate::error::Error;
use crate::object::Variable;
use crate::ops::OpsTable;
use crate::program::Program;
use skep_btf::Btf;
use skep_maps::{Map, MapError};
use std::sync::Arc;

/// The result of a load: programs and maps by name.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) programs: Vec<Program>,
    pub(crate) maps: Vec<Arc<Map>>,
    /// The maps that hold programs.
    pub(crate) arrays: Vec<ProgramArray>,
    /// The maps that hold maps, by index and by key.
    pub(crate) outer: Vec<MapArray>,
    pub(crate) tables: Vec<MapHash>,
    pub(crate) ops: Vec<OpsTable>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) unused: Vec<UnusedMap>,
    /// The object's types.
    pub(crate) types: Option<Arc<Btf>>,
    /// The types of the maps' keys and values in the object, which differ from those in the definition of a map that
    /// another object made.
    pub(crate) map_types: Vec<(Option<u32>, Option<u32>)>,
}

/// A map of the object that was not created, since no loaded program reaches it.
#[derive(Clone, Debug)]
pub struct UnusedMap {
    /// Its name.
    pub name: String,
    /// Why it could not be created. `None` if that was not tried.
    pub error: Option<MapError>,
}

impl Module {
    /// Its programs, in the object's order.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The program with this name.
    pub fn program(&self, name: &str) -> Option<&Program> {
        self.programs.iter().find(|program| program.name() == name)
    }

    /// Its maps, in the object's order, without those [that were not created](Self::unused_maps).
    pub fn maps(&self) -> &[Arc<Map>] {
        &self.maps
    }

    /// The map with this name.
    pub fn map(&self, name: &str) -> Option<&Arc<Map>> {
        self.maps.iter().find(|map| map.def().name == name)
    }

    /// The array of programs with this name.
    pub fn program_array(&self, name: &str) -> Option<&ProgramArray> {
        self.arrays.iter().find(|array| array.map().name() == name)
    }

    /// The array of maps with this name.
    pub fn map_array(&self, name: &str) -> Option<&MapArray> {
        self.outer.iter().find(|array| array.map().name() == name)
    }

    /// The hash table of maps with this name.
    pub fn map_hash(&self, name: &str) -> Option<&MapHash> {
        self.tables.iter().find(|table| table.map().name() == name)
    }

    /// Its tables of functions for the host, in the object's order: those of which all functions were loaded.
    pub fn ops_tables(&self) -> &[OpsTable] {
        &self.ops
    }

    /// The table of functions in the variable of this name.
    pub fn ops_table(&self, name: &str) -> Option<&OpsTable> {
        self.ops.iter().find(|table| table.name() == name)
    }

    /// The object's maps that were not created. [`Linker::load`](crate::Linker::load) says which these are.
    pub fn unused_maps(&self) -> &[UnusedMap] {
        &self.unused
    }

    /// Its global variables, without those in maps that were not created.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The current bytes of a global variable.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`].
    pub fn variable(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.variable_named(name)?.size];
        self.read_variable(name, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets the bytes of a global variable, and no other bytes, while programs run. Aligned pieces of 8, 4, 2 and 1
    /// bytes change at once.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`], [`Error::VariableSize`]; [`Error::ConstantVariable`] for variables that programs may only
    /// read; [`Error::Map`] if the host froze the map.
    pub fn set_variable(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let variable = self.variable_named(name)?;
        if variable.read_only {
            return Err(Error::ConstantVariable { name: name.to_owned() });
        }
        if bytes.len() != variable.size {
            let (expected, given) = (variable.size, bytes.len());
            return Err(Error::VariableSize { name: name.to_owned(), expected, given });
        }
        let map = &self.maps[variable.map];
        match map.arena() {
            Some(arena) => arena.write(arena.start() + variable.offset as u64, bytes)?,
            None => map.write_part(0, variable.offset, bytes)?,
        }
        Ok(())
    }

    /// Copies the bytes of a variable, of which there are as many.
    pub(crate) fn read_variable(&self, name: &str, into: &mut [u8]) -> Result<(), Error> {
        let variable = self.variable_named(name)?;
        let map = &self.maps[variable.map];
        match map.arena() {
            Some(arena) => arena.read(arena.start() + variable.offset as u64, into)?,
            None => map.read_part(0, variable.offset, into)?,
        }
        Ok(())
    }

    pub(crate) fn variable_named(&self, name: &str) -> Result<&Variable, Error> {
        self.variables.iter().find(|variable| variable.name == name).ok_or_else(|| Error::Unknown {
            what: "variable",
            name: name.to_owned(),
            known: self.variables.iter().map(|variable| variable.name.clone()).collect(),
        })
    }

    /// The types of the object, if it has any.
    pub fn types(&self) -> Option<&Btf> {
        self.types.as_deref()
    }

    /// The types of a map's keys and of its values, in [`types`](Self::types).
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`].
    pub fn map_types(&self, name: &str) -> Result<(Option<u32>, Option<u32>), Error> {
        let index = self.maps.iter().position(|map| map.name() == name).ok_or_else(|| self.no_map(name))?;
        Ok(self.map_types.get(index).copied().unwrap_or_default())
    }

    /// Whether a map is a section of the object: variables, strings.
    pub(crate) fn is_section(&self, map: &Map) -> bool {
        let name = map.name();
        name.starts_with('.') || self.variables.iter().any(|variable| self.maps[variable.map].name() == name)
    }

    #[cfg(any(feature = "typed", feature = "json"))]
    pub(crate) fn map_named(&self, name: &str) -> Result<Arc<Map>, Error> {
        self.map(name).cloned().ok_or_else(|| self.no_map(name))
    }

    fn no_map(&self, name: &str) -> Error {
        let known = self.maps.iter().map(|map| map.name().to_owned()).collect();
        Error::Unknown { what: "map", name: name.to_owned(), known }
    }
}
