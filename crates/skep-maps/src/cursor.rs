//! Walking a whole map in batches.

use std::collections::VecDeque;

/// The position of a walk over a whole map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// Arrays: the next index. Hash tables: the next bucket.
    pub(crate) position: u64,
    /// Tries: the last key that was returned.
    pub(crate) after: Option<Vec<u8>>,
}

/// Copies of elements: key and value of each.
pub(crate) type Batch = VecDeque<(Vec<u8>, Vec<u8>)>;

/// About how many elements are copied at a time. Locks are held for at most one batch.
pub(crate) const BATCH: usize = 64;
