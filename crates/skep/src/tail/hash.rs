//! The host's handle of hash tables of maps.

use super::CollectOnDrop;
use crate::contract;
use crate::runtime::Shared;
use crate::{Error, Map};
use std::fmt;
use std::sync::Arc;

/// A hash table of inner maps of one shape. Cheap to clone; clones are the same table.
///
/// Elements may be changed while programs run, as those of a [`MapArray`](crate::MapArray). A replaced or removed map
/// lives until every run that may have found it has ended.
#[derive(Clone)]
pub struct MapHash {
    map: Arc<Map>,
    // After the map, so dropped after it: then it requests a collection.
    shared: CollectOnDrop,
}

impl MapHash {
    pub(crate) fn new(map: Arc<Map>, shared: Arc<Shared>) -> Self {
        Self { map, shared: CollectOnDrop(shared) }
    }

    /// Sets the map of a key. Returns the old one. The map must fit the template, as for
    /// [`MapArray::set`](crate::MapArray::set).
    ///
    /// # Errors
    ///
    /// [`Error::MapMismatch`] if the map does not fit the template; [`Error::NoInnerShape`] if there is no template;
    /// [`Error::WrongPrograms`] for an array of programs whose arguments differ from those of programs that are reached
    /// through this table; [`Error::OtherRuntime`] for arrays of another runtime; [`Error::Map`] if the key has the
    /// wrong length, the table is full or frozen, or there is no memory. On an error the table is unchanged.
    pub fn set(&self, key: &[u8], map: &Arc<Map>) -> Result<Option<Arc<Map>>, Error> {
        match &self.map.def().inner {
            Some(wanted) => contract::fits(wanted, map, self.shared.0.domain.limit())?,
            // Without a template the verifier knows nothing of inner maps.
            None => return Err(Error::NoInnerShape { map: self.map.name().to_owned() }),
        }
        self.shared.0.set_map(&self.map, key, Some(map))
    }

    /// Removes a key. Returns its map.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the key has the wrong length, or the table is frozen.
    pub fn remove(&self, key: &[u8]) -> Result<Option<Arc<Map>>, Error> {
        self.shared.0.set_map(&self.map, key, None)
    }

    /// The map under a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Map>> {
        self.shared.0.map_at(&self.map, key)
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
