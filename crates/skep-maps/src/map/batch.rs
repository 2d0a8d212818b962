//! Operations on many elements, for hosts.

use std::fmt;

use crate::cursor::{BATCH, Batch, Cursor};
use crate::error::MapError;
use crate::hash::Hash;
use crate::map::Map;
use crate::op_error::OpError;
use crate::table::Table;
use crate::update::UpdateFlags;

/// The position of a walk in batches; `default()` is the beginning.
///
/// It belongs to the map that it was used with. In another map its position is arbitrary.
#[derive(Clone, Debug, Default)]
pub struct BatchCursor {
    cursor: Cursor,
    at_end: bool,
}

/// Why a batch ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// The number of elements that were done; they stay done.
    pub done: usize,
    /// The error of the next one.
    pub error: MapError,
}

/// Key and value of an element, the latter with [`Map::host_value_size`] bytes.
type Entry = (Vec<u8>, Vec<u8>);

/// Batches.
impl Map {
    /// Copies the elements from the cursor on, at most `count`, and advances the cursor.
    ///
    /// As Linux's `BPF_MAP_LOOKUP_BATCH`: it may return fewer, because hash tables return whole buckets. The end is
    /// reached when [`BatchCursor::is_at_end`] is true, which may be with the last elements or with none. An element
    /// that stays during the whole walk is in exactly one batch.
    ///
    /// ```
    /// use skep_abi::{MapDef, MapKind};
    /// use skep_maps::{BatchCursor, Map, Options, UpdateFlags};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let ports = Map::create(&MapDef::new("ports", MapKind::Hash, 2, 4, 100), &Options { cpus: 1, limit: 1 << 20 })?;
    /// let all = (0..50_u16).map(|port| (port.to_ne_bytes(), [7; 4]));
    /// assert_eq!(ports.update_batch(all, UpdateFlags::NoExist)?, 50);
    ///
    /// let (mut cursor, mut found) = (BatchCursor::default(), Vec::new());
    /// while !cursor.is_at_end() {
    ///     found.extend(ports.lookup_batch(&mut cursor, 20)?);
    /// }
    /// assert_eq!(found.len(), 50);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`MapError::BucketLarger`] if a bucket has more elements than `count`: the cursor does not move; request more.
    /// [`MapError::HoldsReferences`].
    pub fn lookup_batch(&self, cursor: &mut BatchCursor, count: usize) -> Result<Vec<Entry>, MapError> {
        let mut out = Batch::new();
        // Elements added behind the end belong to another walk.
        if count == 0 || cursor.at_end {
            return Ok(Vec::new());
        }
        let inside = &mut cursor.cursor;
        let at_end = match &self.table {
            Table::Array(array) => {
                array.batch(inside, count, &mut out);
                Ok(out.len() < count)
            }
            Table::Targets(targets) => {
                targets.batch(inside, count, &mut out);
                Ok(out.len() < count)
            }
            Table::Trie(trie) => {
                // A trie has one lock; hold it for some elements at a time.
                loop {
                    let most = count.min(out.len() + BATCH);
                    // SAFETY: `caller` is this thread.
                    self.inside(|caller| unsafe { trie.batch(inside, most, &mut out, caller) });
                    if out.len() < most || most == count {
                        break;
                    }
                }
                Ok(out.len() < count)
            }
            Table::Hash(hash) => {
                // SAFETY: `caller` is this thread.
                self.inside(|caller| unsafe { hash.lookup_batch(inside, count, &mut out, caller) })
            }
            Table::Members(members) => {
                members.batch(inside, count, &mut out);
                Ok(out.len() < count)
            }
            Table::References(_) => return Err(self.explain(OpError::HoldsReferences, &[])),
            Table::Queue(_)
            | Table::Bloom(_)
            | Table::Ring(_)
            | Table::UserRing(_)
            | Table::Perf(_)
            | Table::Arena(_) => {
                return Err(self.explain(OpError::NoKeys, &[]));
            }
        };
        cursor.at_end = at_end.map_err(|error| self.explain(error, &[]))?;
        Ok(out.into())
    }

    /// Bytes of a position in this map: see [`Map::position_of`].
    pub fn batch_position_size(&self) -> usize {
        match &self.table {
            Table::Trie(_) => self.def.key_size as usize,
            _ => size_of::<u32>(),
        }
    }

    /// The position of a walk that has not reached the end, as bytes that a client keeps: an index, the number of a
    /// bucket, or the last key of a trie.
    pub fn position_of(&self, cursor: &BatchCursor) -> Vec<u8> {
        match &cursor.cursor.after {
            Some(key) => key.clone(),
            None => (cursor.cursor.position as u32).to_ne_bytes().to_vec(),
        }
    }

    /// The walk at a position. Positions that this map never gave are arbitrary ones, and harmless.
    pub fn cursor_at(&self, position: &[u8]) -> BatchCursor {
        let cursor = match &self.table {
            Table::Trie(_) => Cursor { after: Some(position.to_vec()), ..Cursor::default() },
            _ => {
                let number = position.try_into().map_or(u32::MAX, u32::from_ne_bytes);
                Cursor { position: number.into(), after: None }
            }
        };
        BatchCursor { cursor, at_end: false }
    }

    /// As [`lookup_batch`](Self::lookup_batch) for hash tables, and removes the elements that it returns. No other
    /// caller gets the same elements.
    ///
    /// # Errors
    ///
    /// As for [`lookup_batch`](Self::lookup_batch); [`MapError::Frozen`]; [`MapError::NotForKind`].
    pub fn lookup_and_delete_batch(
        &self,
        cursor: &mut BatchCursor,
        count: usize,
    ) -> Result<Vec<Entry>, MapError> {
        let hash = self.takes("looked up and deleted")?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut out = Batch::new();
        self.change(|| {
            // SAFETY: `caller` is this thread.
            let at_end =
                self.inside(|caller| unsafe { hash.take_batch(&mut cursor.cursor, count, &mut out, caller) });
            cursor.at_end = at_end.map_err(|error| self.explain(error, &[]))?;
            Ok(())
        })?;
        Ok(out.into())
    }

    /// Removes a key of a hash table and returns its value; `None` if it was not there. Of concurrent callers, one
    /// gets it.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::Frozen`], [`MapError::NotForKind`].
    pub fn lookup_and_delete(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        self.check_key(key)?;
        let hash = self.takes("looked up and deleted")?;
        let mut value = vec![0; self.host_value_size()];
        let mut found = false;
        self.change(|| {
            // SAFETY: the key's length was checked, the value has the right one, and `caller` is this thread.
            let taken = self.inside(|caller| unsafe { hash.take(key.as_ptr(), value.as_mut_ptr(), caller) });
            found = taken.map_err(|error| self.explain(error, key))?;
            Ok(())
        })?;
        Ok(found.then_some(value))
    }

    /// Updates elements one after the other, each as [`update`](Self::update) does. Returns how many.
    ///
    /// # Errors
    ///
    /// The first error of an update, and the number of updates before it.
    pub fn update_batch<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        flags: UpdateFlags,
    ) -> Result<usize, BatchError> {
        one_by_one(entries, |(key, value)| self.update(key.as_ref(), value.as_ref(), flags))
    }

    /// Deletes keys one after the other, each as [`delete`](Self::delete) does. Returns how many.
    ///
    /// # Errors
    ///
    /// The first error of a deletion, and the number of deletions before it.
    pub fn delete_batch<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<usize, BatchError> {
        one_by_one(keys, |key| self.delete(key.as_ref()))
    }

    /// The table, if its elements can be taken out.
    fn takes(&self, what: &'static str) -> Result<&Hash, MapError> {
        match &self.table {
            Table::Hash(hash) => Ok(hash),
            _ => Err(MapError::NotForKind { map: self.name().to_owned(), kind: self.kind(), what }),
        }
    }
}

fn one_by_one<T>(
    items: impl IntoIterator<Item = T>,
    mut work: impl FnMut(T) -> Result<(), MapError>,
) -> Result<usize, BatchError> {
    let mut done = 0;
    for item in items {
        work(item).map_err(|error| BatchError { done, error })?;
        done += 1;
    }
    Ok(done)
}

impl BatchCursor {
    /// Whether the walk has reached the end (`ENOENT` in Linux).
    pub fn is_at_end(&self) -> bool {
        self.at_end
    }
}

impl BatchError {
    /// Linux's error number, positive.
    pub fn errno(&self) -> i32 {
        self.error.errno()
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (element {} of the batch; those before it are done)", self.error, self.done)
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
