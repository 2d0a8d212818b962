//! The host's handles of maps that hold programs or maps: arrays of programs, arrays and hash tables of maps.

use crate::contract;
use crate::dispatch::{CollectOnDrop, Connected, Dispatch, entry};
use crate::error::Error;
use crate::program::Program;
use crate::shared::Shared;
use skep_maps::{Map, References};
use std::fmt;
use std::sync::Arc;

/// An array of programs, the targets of tail calls. Cheap to clone; clones are the same array.
///
/// Any thread may change elements while programs run, and no change waits for a run. A tail call that is made meanwhile
/// reaches the old program or the new one, and other processors may reach the old one for a moment after the change has
/// returned. [`Runtime::synchronize`](crate::Runtime::synchronize) returns when no thread runs a program that was
/// replaced before.
///
/// An array keeps its programs alive. Reference cycles of programs and arrays that no handle of the host leads to are
/// still dropped: an array is emptied when neither the host nor a program that the host can reach refers to it. This is
/// checked when programs, modules and handles of arrays are dropped. A plain `Arc` of the map ([`map`](Self::map))
/// keeps the array too; dropping it starts no check, so the next one of these finds the cycle.
#[derive(Clone)]
pub struct ProgramArray {
    map: Arc<Map>,
    shared: Arc<Shared>,
    // After the map, so dropped after it: then it requests a collection.
    _collect: CollectOnDrop,
}

impl ProgramArray {
    pub(crate) fn new(map: Arc<Map>, shared: Arc<Shared>) -> Self {
        let collect = CollectOnDrop(Arc::clone(&shared.dispatch));
        Self { map, shared, _collect: collect }
    }

    /// Sets an element. Returns the old program.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end; [`Error::WrongProgram`] if the program's arguments differ from those of
    /// the programs in the array, of those that make tail calls through it, or of the last ones to do so while runs may
    /// still reach the array ([`Runtime::synchronize`](crate::Runtime::synchronize) waits for these);
    /// [`Error::OtherRuntime`]; [`Error::Map`] if the map is frozen; [`Error::Text`] if code cannot be changed, or
    /// there is no room for it. On an error the element is unchanged.
    pub fn set(&self, index: u32, program: &Program) -> Result<Option<Program>, Error> {
        if !Arc::ptr_eq(program.shared(), &self.shared) {
            return Err(Error::OtherRuntime { map: self.map.name().to_owned() });
        }
        let old = self.shared.dispatch.set_program(&self.map, index, Some(program.image()))?;
        Ok(old.map(|image| self.program(image)))
    }

    /// Empties an element. Returns the old program. Tail calls of an empty element fall through.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end; [`Error::Text`] if code cannot be changed.
    pub fn remove(&self, index: u32) -> Result<Option<Program>, Error> {
        let old = self.shared.dispatch.set_program(&self.map, index, None)?;
        Ok(old.map(|image| self.program(image)))
    }

    /// The program in an element.
    pub fn get(&self, index: u32) -> Option<Program> {
        self.shared.dispatch.program_at(&self.map, index).map(|image| self.program(image))
    }

    /// How many elements there are, empty ones counted.
    #[expect(clippy::len_without_is_empty, reason = "an array of fixed length")]
    pub fn len(&self) -> u32 {
        self.map.references().map_or(0, References::len)
    }

    fn program(&self, image: Arc<Connected>) -> Program {
        Program::of(image, &self.shared)
    }

    /// The map, to be shared with other objects ([`Linker::map`](crate::Linker::map)).
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }
}

impl fmt::Debug for ProgramArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramArray").field("name", &self.map.name()).field("len", &self.len()).finish()
    }
}

/// An array of inner maps of one shape. Cheap to clone; clones are the same array.
///
/// Elements may be changed while programs run, as those of a [`ProgramArray`]. A replaced map lives until every run
/// that may have found it has ended.
#[derive(Clone)]
pub struct MapArray {
    map: Arc<Map>,
    // After the map, so dropped after it: then it requests a collection.
    dispatch: CollectOnDrop,
}

impl MapArray {
    pub(crate) fn new(map: Arc<Map>, dispatch: Arc<Dispatch>) -> Self {
        Self { map, dispatch: CollectOnDrop(dispatch) }
    }

    /// Sets an element. Returns the old map. The new one must have the kind, sizes, flags and special fields of the
    /// template ([`MapDef::inner`](crate::abi::MapDef)), with which programs were verified. A plain array must also
    /// have its number of elements, unless both have the flag `BPF_F_INNER_MAP`.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end; [`Error::MapMismatch`] if the map does not fit the template;
    /// [`Error::NoInnerShape`] if there is no template; [`Error::WrongPrograms`] for an array of programs whose
    /// arguments differ from those of programs that are reached through this one; [`Error::OtherRuntime`] for arrays of
    /// another runtime; [`Error::Map`] if the map is frozen. On an error the element is unchanged.
    pub fn set(&self, index: u32, map: &Arc<Map>) -> Result<Option<Arc<Map>>, Error> {
        match &self.map.def().inner {
            Some(wanted) => contract::fits(wanted, map, self.dispatch.0.cpus())?,
            // Without a template the verifier knows nothing of inner maps.
            None => return Err(Error::NoInnerShape { map: self.map.name().to_owned() }),
        }
        entry(&self.map, index)?;
        self.dispatch.0.set_map(&self.map, &index.to_ne_bytes(), Some(map))
    }

    /// Empties an element. Returns the old map.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end.
    pub fn remove(&self, index: u32) -> Result<Option<Arc<Map>>, Error> {
        entry(&self.map, index)?;
        self.dispatch.0.set_map(&self.map, &index.to_ne_bytes(), None)
    }

    /// The map in an element.
    pub fn get(&self, index: u32) -> Option<Arc<Map>> {
        self.dispatch.0.map_at(&self.map, &index.to_ne_bytes())
    }

    /// How many elements there are, empty ones counted.
    #[expect(clippy::len_without_is_empty, reason = "an array of fixed length")]
    pub fn len(&self) -> u32 {
        self.map.references().map_or(0, References::len)
    }

    /// The map itself, to be shared with other objects ([`Linker::map`](crate::Linker::map)).
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }
}

impl fmt::Debug for MapArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapArray").field("name", &self.map.name()).field("len", &self.len()).finish()
    }
}

/// A hash table of inner maps of one shape. Cheap to clone; clones are the same table.
///
/// Elements may be changed while programs run, as those of a [`MapArray`]. A replaced or removed map
/// lives until every run that may have found it has ended.
#[derive(Clone)]
pub struct MapHash {
    map: Arc<Map>,
    // After the map, so dropped after it: then it requests a collection.
    dispatch: CollectOnDrop,
}

impl MapHash {
    pub(crate) fn new(map: Arc<Map>, dispatch: Arc<Dispatch>) -> Self {
        Self { map, dispatch: CollectOnDrop(dispatch) }
    }

    /// Sets the map of a key. Returns the old one. The map must fit the template, as for
    /// [`MapArray::set`].
    ///
    /// # Errors
    ///
    /// [`Error::MapMismatch`] if the map does not fit the template; [`Error::NoInnerShape`] if there is no template;
    /// [`Error::WrongPrograms`] for an array of programs whose arguments differ from those of programs that are reached
    /// through this table; [`Error::OtherRuntime`] for arrays of another runtime; [`Error::Map`] if the key has the
    /// wrong length, the table is full or frozen, or there is no memory. On an error the table is unchanged.
    pub fn set(&self, key: &[u8], map: &Arc<Map>) -> Result<Option<Arc<Map>>, Error> {
        match &self.map.def().inner {
            Some(wanted) => contract::fits(wanted, map, self.dispatch.0.cpus())?,
            // Without a template the verifier knows nothing of inner maps.
            None => return Err(Error::NoInnerShape { map: self.map.name().to_owned() }),
        }
        self.dispatch.0.set_map(&self.map, key, Some(map))
    }

    /// Removes a key. Returns its map.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the key has the wrong length, or the table is frozen.
    pub fn remove(&self, key: &[u8]) -> Result<Option<Arc<Map>>, Error> {
        self.dispatch.0.set_map(&self.map, key, None)
    }

    /// The map under a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Map>> {
        self.dispatch.0.map_at(&self.map, key)
    }

    /// All keys, in any order. Other threads may change the table meanwhile.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.map.reference_keys()
    }

    /// How many keys there are.
    #[expect(clippy::len_without_is_empty, reason = "a count that others may change at any moment")]
    pub fn len(&self) -> u32 {
        self.map.len()
    }

    /// The map itself, to be shared with other objects ([`Linker::map`](crate::Linker::map)).
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }
}

impl fmt::Debug for MapHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapHash").field("name", &self.map.name()).field("len", &self.len()).finish()
    }
}
