//! A map from one Rust type to another.

use super::{same_size, wrong_view};
use crate::error::Error;
use skep_maps::{Map, MapError, UpdateFlags};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A view of an array, a hash table or a trie: [`Module::typed_map`](crate::Module::typed_map). Cheap to clone, and
/// used from any number of threads while programs run.
///
/// ```
/// use skep::abi::{MapDef, MapKind};
/// use skep::{Map, MapOptions, TypedMap, UpdateFlags};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), skep::Error> {
/// let def = MapDef::new("ports", MapKind::Hash, 2, 4, 100);
/// let map = Arc::new(Map::create(&def, &MapOptions { cpus: 1, limit: 1 << 20 })?);
/// let ports = TypedMap::<u16, u32>::new(map)?;
/// ports.insert(&80, &7, UpdateFlags::Any)?;
/// assert_eq!(ports.get(&80)?, Some(7));
/// assert_eq!(ports.iter().collect::<Vec<_>>(), [(80, 7)]);
/// ports.remove(&80)?;
/// assert_eq!(ports.len(), 0);
/// # Ok(())
/// # }
/// ```
pub struct TypedMap<K, V> {
    map: Arc<Map>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> TypedMap<K, V>
where
    K: FromBytes + IntoBytes + Immutable,
    V: FromBytes + IntoBytes + Immutable,
{
    /// A view of any map. Only sizes are compared; [`Module::typed_map`](crate::Module::typed_map) knows the object's
    /// types too.
    ///
    /// # Errors
    ///
    /// [`Error::WrongView`] for per-CPU kinds and for kinds without keys or with references; [`Error::TypeMismatch`].
    pub fn new(map: Arc<Map>) -> Result<Self, Error> {
        let def = map.def();
        if def.kind.is_per_cpu() {
            return Err(wrong_view(&map, "PerCpuMap (Module::per_cpu_map)"));
        }
        if def.key_size == 0 || map.references().is_some() {
            return Err(wrong_view(&map, "a kind with keys and values of bytes"));
        }
        same_size::<K>(&map, "key", def.key_size)?;
        same_size::<V>(&map, "value", def.value_size)?;
        Ok(Self { map, types: PhantomData })
    }

    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`Map::lookup`].
    pub fn get(&self, key: &K) -> Result<Option<V>, MapError> {
        let mut value = V::new_zeroed();
        let found = self.map.lookup_into(key.as_bytes(), value.as_mut_bytes())?;
        Ok(found.then_some(value))
    }

    /// As [`get`](Self::get), under the `struct bpf_spin_lock` of the value: what a program changes under it is seen
    /// as a whole.
    ///
    /// # Errors
    ///
    /// Those of [`Map::lookup_locked`].
    pub fn get_locked(&self, key: &K) -> Result<Option<V>, MapError> {
        let value = self.map.lookup_locked(key.as_bytes())?;
        Ok(value.and_then(|bytes| V::read_from_bytes(&bytes).ok()))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// Those of [`Map::update`].
    pub fn insert(&self, key: &K, value: &V, flags: UpdateFlags) -> Result<(), MapError> {
        self.map.update(key.as_bytes(), value.as_bytes(), flags)
    }

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// Those of [`Map::delete`]: [`MapError::Missing`] if there was none.
    pub fn remove(&self, key: &K) -> Result<(), MapError> {
        self.map.delete(key.as_bytes())
    }

    /// All elements, while others change the map: an element that stays in the map during the whole walk is returned
    /// exactly once; one that is inserted or removed meanwhile may or may not be. A walk by `bpf_map_get_next_key` may
    /// start over where this one does not: see [`Map::entries`].
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.map.entries().filter_map(|(key, value)| {
            Some((K::read_from_bytes(&key).ok()?, V::read_from_bytes(&value).ok()?))
        })
    }

    /// The keys of [`iter`](Self::iter).
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.iter().map(|(key, _)| key)
    }

    /// The values of [`iter`](Self::iter).
    pub fn values(&self) -> impl Iterator<Item = V> + '_ {
        self.iter().map(|(_, value)| value)
    }
}

impl<K, V> TypedMap<K, V> {
    /// The number of elements: see [`Map::len`].
    #[expect(clippy::len_without_is_empty, reason = "as for maps")]
    pub fn len(&self) -> u32 {
        self.map.len()
    }

    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }
}

impl<K, V> Clone for TypedMap<K, V> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for TypedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedMap").field(&self.map).finish()
    }
}
