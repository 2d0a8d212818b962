//! Modules: what a load has made, by name.

use crate::arrays::{MapArray, MapHash, ProgramArray};
use crate::error::Error;
use crate::object::Variable;
use crate::ops::OpsTable;
use crate::program::Program;
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
        let variable = self.find(name)?;
        let map = &self.maps[variable.map];
        if let Some(arena) = map.arena() {
            let mut bytes = vec![0; variable.size];
            arena.read(arena.start() + variable.offset as u64, &mut bytes)?;
            return Ok(bytes);
        }
        let value = map.lookup(&0u32.to_ne_bytes())?.unwrap_or_default();
        Ok(value[variable.offset..variable.offset + variable.size].to_vec())
    }

    fn find(&self, name: &str) -> Result<&Variable, Error> {
        self.variables.iter().find(|variable| variable.name == name).ok_or_else(|| Error::Unknown {
            what: "variable",
            name: name.to_owned(),
            known: self.variables.iter().map(|variable| variable.name.clone()).collect(),
        })
    }
}
