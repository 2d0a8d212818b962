//! The host's handle of hash tables of maps.

use super::LookingForRings;
use crate::contract;
use crate::runtime::Shared;
use crate::{Error, Map};
use std::fmt;
use std::sync::Arc;

/// A hash table of maps of one shape, which programs look up to look up in what they find. Cheap to clone;
/// clones are the same table.
///
/// Elements may be changed while programs run, as those of a [`MapArray`](crate::MapArray): a map that is
/// replaced or removed lives until every run that may have found it has ended.
#[derive(Clone)]
pub struct MapHash {
    map: Arc<Map>,
    // Behind the map: it looks when that is gone.
    shared: LookingForRings,
}

impl MapHash {
    pub(crate) fn new(map: Arc<Map>, shared: Arc<Shared>) -> Self {
        Self { map, shared: LookingForRings(shared) }
    }

    /// Puts a map under a key; returns the one that was there. It must fit the template, as for
    /// [`MapArray::set`](crate::MapArray::set).
    ///
    /// # Errors
    ///
    /// [`Error::MapMismatch`] where the map has another shape than the table's definition says;
    /// [`Error::NoInnerShape`] where that says none; [`Error::WrongPrograms`] for an array of programs that
    /// are given other things than those that are found through this one; [`Error::OtherRuntime`] for arrays
    /// of another runtime; [`Error::Map`] where the key has another length, the table is full or frozen, or
    /// there is no memory. The table is as it was then.
    pub fn set(&self, key: &[u8], map: &Arc<Map>) -> Result<Option<Arc<Map>>, Error> {
        match &self.map.def().inner {
            Some(wanted) => contract::fits(wanted, map, self.shared.0.domain.limit())?,
            // Nobody has said what programs may take what they find for.
            None => return Err(Error::NoInnerShape { map: self.map.name().to_owned() }),
        }
        self.shared.0.set_map(&self.map, key, Some(map))
    }

    /// Removes a key; returns the map that was there.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] where the key has another length, or the table is frozen.
    pub fn remove(&self, key: &[u8]) -> Result<Option<Arc<Map>>, Error> {
        self.shared.0.set_map(&self.map, key, None)
    }

    /// The map under a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Map>> {
        self.shared.0.map_at(&self.map, key)
    }

    /// All keys, in no order to rely on. Others may change the table meanwhile.
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
