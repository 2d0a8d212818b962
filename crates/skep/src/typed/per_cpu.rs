//! A map with a value for each virtual CPU.
//!
//! ```text
//!   bytes of an element   | CPU 0: V, zeroes up to 8 | CPU 1: V, zeroes | ...
//! ```

use super::{same_size, wrong_view};
use crate::error::Error;
use skep_maps::{Map, MapError, UpdateFlags};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The values of all virtual CPUs, in their order: a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerCpu<V>(Vec<V>);

/// A view of a per-CPU array or hash table, LRU or not: [`Module::per_cpu_map`](crate::Module::per_cpu_map).
///
/// ```
/// use skep::abi::{MapDef, MapKind};
/// use skep::{Map, MapOptions, PerCpu, PerCpuMap, UpdateFlags};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), skep::Error> {
/// let def = MapDef::new("hits", MapKind::PercpuArray, 4, 4, 8);
/// let map = Arc::new(Map::create(&def, &MapOptions { cpus: 2, limit: 1 << 20 })?);
/// let hits = PerCpuMap::<u32, u32>::new(map)?;
/// hits.insert(&3, &PerCpu::from(vec![5, 6]), UpdateFlags::Any)?;
/// let of_cpus = hits.get(&3)?.unwrap();
/// assert_eq!((of_cpus[1], of_cpus.iter().sum::<u32>()), (6, 11));
/// # Ok(())
/// # }
/// ```
pub struct PerCpuMap<K, V> {
    map: Arc<Map>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> PerCpuMap<K, V>
where
    K: FromBytes + IntoBytes + Immutable,
    V: FromBytes + IntoBytes + Immutable,
{
    /// A view of any per-CPU map. Only sizes are compared.
    ///
    /// # Errors
    ///
    /// [`Error::WrongView`] for other kinds; [`Error::TypeMismatch`].
    pub fn new(map: Arc<Map>) -> Result<Self, Error> {
        let def = map.def();
        if !def.kind.is_per_cpu() || def.key_size == 0 {
            return Err(wrong_view(&map, "TypedMap (Module::typed_map)"));
        }
        same_size::<K>(&map, "key", def.key_size)?;
        same_size::<V>(&map, "value", def.value_size)?;
        Ok(Self { map, types: PhantomData })
    }

    /// How many virtual CPUs there are.
    pub fn cpus(&self) -> usize {
        self.map.host_value_size().checked_div(Self::padded()).unwrap_or(0)
    }

    /// The values of a key; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`Map::lookup`].
    pub fn get(&self, key: &K) -> Result<Option<PerCpu<V>>, MapError> {
        Ok(self.map.lookup(key.as_bytes())?.map(|bytes| Self::read(&bytes)))
    }

    /// Sets the values of a key.
    ///
    /// # Errors
    ///
    /// Those of [`Map::update`]: [`MapError::ValueLength`] if there are more or fewer values than virtual CPUs.
    pub fn insert(&self, key: &K, values: &PerCpu<V>, flags: UpdateFlags) -> Result<(), MapError> {
        let mut bytes = vec![0; values.len() * Self::padded()];
        for (value, place) in values.iter().zip(bytes.chunks_exact_mut(Self::padded())) {
            place[..size_of::<V>()].copy_from_slice(value.as_bytes());
        }
        self.map.update(key.as_bytes(), &bytes, flags)
    }

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// Those of [`Map::delete`].
    pub fn remove(&self, key: &K) -> Result<(), MapError> {
        self.map.delete(key.as_bytes())
    }

    /// All elements, as [`TypedMap::iter`](crate::TypedMap::iter) walks.
    pub fn iter(&self) -> impl Iterator<Item = (K, PerCpu<V>)> + '_ {
        self.map
            .entries()
            .filter_map(|(key, value)| Some((K::read_from_bytes(&key).ok()?, Self::read(&value))))
    }

    /// The keys of [`iter`](Self::iter).
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.iter().map(|(key, _)| key)
    }

    /// The values of [`iter`](Self::iter).
    pub fn values(&self) -> impl Iterator<Item = PerCpu<V>> + '_ {
        self.iter().map(|(_, values)| values)
    }

    fn read(bytes: &[u8]) -> PerCpu<V> {
        // Each part is as long as the value: `new` compared the sizes.
        let values = bytes.chunks_exact(Self::padded());
        PerCpu(values.filter_map(|bytes| V::read_from_prefix(bytes).ok()).map(|(value, _)| value).collect())
    }

    fn padded() -> usize {
        // Values without bytes do not exist: `new` compared the sizes.
        size_of::<V>().next_multiple_of(8).max(8)
    }
}

impl<K, V> PerCpuMap<K, V> {
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

impl<V> From<Vec<V>> for PerCpu<V> {
    fn from(values: Vec<V>) -> Self {
        Self(values)
    }
}

impl<V> FromIterator<V> for PerCpu<V> {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<V> Deref for PerCpu<V> {
    type Target = [V];

    fn deref(&self) -> &[V] {
        &self.0
    }
}

impl<V> DerefMut for PerCpu<V> {
    fn deref_mut(&mut self) -> &mut [V] {
        &mut self.0
    }
}

impl<K, V> Clone for PerCpuMap<K, V> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for PerCpuMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerCpuMap").field(&self.map).finish()
    }
}
