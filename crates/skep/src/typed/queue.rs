//! A queue or stack of a Rust type.

use super::{same_size, wrong_view};
use crate::error::Error;
use skep_abi::MapKind;
use skep_maps::{Map, MapError, UpdateFlags};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A view of a queue or stack: [`Module::queue`](crate::Module::queue).
///
/// ```
/// use skep::abi::{MapDef, MapKind};
/// use skep::{Map, MapOptions, TypedQueue};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), skep::Error> {
/// let def = MapDef::new("jobs", MapKind::Queue, 0, 8, 2);
/// let map = Arc::new(Map::create(&def, &MapOptions { cpus: 1, limit: 1 << 20 })?);
/// let jobs = TypedQueue::<u64>::new(map)?;
/// jobs.push(&1)?;
/// jobs.push(&2)?;
/// assert!(jobs.push(&3).is_err()); // it is full
/// assert_eq!([jobs.peek()?, jobs.pop()?, jobs.pop()?, jobs.pop()?], [Some(1), Some(1), Some(2), None]);
/// # Ok(())
/// # }
/// ```
pub struct TypedQueue<V> {
    map: Arc<Map>,
    types: PhantomData<fn() -> V>,
}

impl<V: FromBytes + IntoBytes + Immutable> TypedQueue<V> {
    /// A view of any queue or stack. Only sizes are compared.
    ///
    /// # Errors
    ///
    /// [`Error::WrongView`] for other kinds; [`Error::TypeMismatch`].
    pub fn new(map: Arc<Map>) -> Result<Self, Error> {
        if !matches!(map.kind(), MapKind::Queue | MapKind::Stack) {
            return Err(wrong_view(&map, "a queue or stack"));
        }
        same_size::<V>(&map, "value", map.def().value_size)?;
        Ok(Self { map, types: PhantomData })
    }

    /// Adds an element.
    ///
    /// # Errors
    ///
    /// Those of [`Map::push`]: [`MapError::QueueFull`].
    pub fn push(&self, value: &V) -> Result<(), MapError> {
        self.map.push(value.as_bytes(), UpdateFlags::Any)
    }

    /// Adds an element; a full queue or stack drops its oldest one.
    ///
    /// # Errors
    ///
    /// Those of [`Map::push`].
    pub fn push_over(&self, value: &V) -> Result<(), MapError> {
        self.map.push(value.as_bytes(), UpdateFlags::Exist)
    }

    /// Removes the oldest element of a queue, the newest of a stack; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`Map::pop`].
    pub fn pop(&self) -> Result<Option<V>, MapError> {
        Ok(self.map.pop()?.and_then(|bytes| V::read_from_bytes(&bytes).ok()))
    }

    /// What [`pop`](Self::pop) would return.
    ///
    /// # Errors
    ///
    /// Those of [`Map::peek`].
    pub fn peek(&self) -> Result<Option<V>, MapError> {
        Ok(self.map.peek()?.and_then(|bytes| V::read_from_bytes(&bytes).ok()))
    }
}

impl<V> TypedQueue<V> {
    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }
}

impl<V> Clone for TypedQueue<V> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map), types: PhantomData }
    }
}

impl<V> fmt::Debug for TypedQueue<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedQueue").field(&self.map).finish()
    }
}
