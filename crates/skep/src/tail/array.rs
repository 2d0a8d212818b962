//! The host's handles of arrays of programs and of maps.

use super::{LookingForRings, entry};
use crate::contract;
use crate::program::Program;
use crate::runtime::Shared;
use crate::{Error, Map};
use skep_maps::References;
use std::fmt;
use std::sync::Arc;

/// An array of programs, where tail calls lead. Cheap to clone; clones are the same array.
///
/// Elements may be changed while programs run, by any thread, and no change waits for a run: who makes a tail call meanwhile
/// goes to the program that was there or to the one that is there now, and other processors may go to the old one for a
/// moment after the change has returned. [`Runtime::synchronize`](crate::Runtime::synchronize)
/// returns when nobody is in a program that was replaced before.
///
/// An array keeps its programs alive. Programs and arrays that refer to each other in a ring, and that the host can reach by no
/// handle any more, are dropped all the same: an array is emptied when neither the host nor a program that the host
/// can reach has it. That is looked for when programs, modules and handles of arrays are dropped; a plain `Arc` of the map
/// ([`map`](Self::map)) keeps the array, and is not missed before the next of these.
#[derive(Clone)]
pub struct ProgramArray {
    map: Arc<Map>,
    // Behind the map: it looks when that is gone.
    shared: LookingForRings,
}

impl ProgramArray {
    pub(crate) fn new(map: Arc<Map>, shared: Arc<Shared>) -> Self {
        Self { map, shared: LookingForRings(shared) }
    }

    /// Puts a program into an element; returns the one that was there.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end; [`Error::WrongProgram`] where the program is given other things than
    /// those that are in the array already, or make tail calls through it, or were the last to do so and runs may
    /// still reach the array ([`Runtime::synchronize`](crate::Runtime::synchronize) waits for these);
    /// [`Error::OtherRuntime`]; [`Error::Map`] where the map is frozen; [`Error::Text`] where code cannot be changed,
    /// or there is no room for it. The element is as it was then.
    pub fn set(&self, index: u32, program: &Program) -> Result<Option<Program>, Error> {
        if !program.is_of(&self.shared.0) {
            return Err(Error::OtherRuntime { map: self.map.name().to_owned() });
        }
        let old = self.shared.0.set_program(&self.map, index, Some(program.inner()))?;
        Ok(old.map(Program::of))
    }

    /// Empties an element; returns the program that was there. Tail calls to it fall through.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end; [`Error::Text`] where code cannot be changed.
    pub fn remove(&self, index: u32) -> Result<Option<Program>, Error> {
        Ok(self.shared.0.set_program(&self.map, index, None)?.map(Program::of))
    }

    /// The program in an element.
    pub fn get(&self, index: u32) -> Option<Program> {
        self.shared.0.program_at(&self.map, index).map(Program::of)
    }

    /// How many elements there are, empty ones counted.
    #[expect(clippy::len_without_is_empty, reason = "an array of fixed length")]
    pub fn len(&self) -> u32 {
        self.map.references().map_or(0, References::len)
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

/// An array of maps of one shape, which programs look up to look up in what they find. Cheap to clone; clones are the same
/// array.
///
/// Elements may be changed while programs run, as those of a [`ProgramArray`]: a map that is replaced lives until every run
/// that may have found it has ended.
#[derive(Clone)]
pub struct MapArray {
    map: Arc<Map>,
    // Behind the map: it looks when that is gone.
    shared: LookingForRings,
}

impl MapArray {
    pub(crate) fn new(map: Arc<Map>, shared: Arc<Shared>) -> Self {
        Self { map, shared: LookingForRings(shared) }
    }

    /// Puts a map into an element; returns the one that was there. It must have the kind, sizes, flags and special
    /// fields of the template ([`MapDef::inner`](crate::abi::MapDef)), and as a plain array its number of elements,
    /// unless both have the flag `BPF_F_INNER_MAP`: programs were verified with the template.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end; [`Error::MapMismatch`] where the map has another shape than the array's
    /// definition says; [`Error::NoInnerShape`] where that says none; [`Error::WrongPrograms`] for an array of programs that are
    /// given other things than those that are found through this one; [`Error::OtherRuntime`] for arrays of another runtime;
    /// [`Error::Map`] where the map is frozen. The element is as it was then.
    pub fn set(&self, index: u32, map: &Arc<Map>) -> Result<Option<Arc<Map>>, Error> {
        match &self.map.def().inner {
            Some(wanted) => contract::fits(wanted, map, self.shared.0.domain.limit())?,
            // Nobody has said what programs may take what they find for.
            None => return Err(Error::NoInnerShape { map: self.map.name().to_owned() }),
        }
        entry(&self.map, index)?;
        self.shared.0.set_map(&self.map, &index.to_ne_bytes(), Some(map))
    }

    /// Empties an element; returns the map that was there.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEntry`] beyond the end.
    pub fn remove(&self, index: u32) -> Result<Option<Arc<Map>>, Error> {
        entry(&self.map, index)?;
        self.shared.0.set_map(&self.map, &index.to_ne_bytes(), None)
    }

    /// The map in an element.
    pub fn get(&self, index: u32) -> Option<Arc<Map>> {
        self.shared.0.map_at(&self.map, &index.to_ne_bytes())
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
