//! Walking a whole map, some elements at a time.

use std::collections::VecDeque;

/// Where a walk over a whole map has come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// Arrays: the next index. Hash tables: the next bucket.
    pub(crate) position: u64,
    /// Tries: the last key that was given out.
    pub(crate) after: Option<Vec<u8>>,
}

/// Copies of elements, key and value each.
pub(crate) type Batch = VecDeque<(Vec<u8>, Vec<u8>)>;

/// About how many elements are copied at a time. Locks are held for one batch at most.
pub(crate) const BATCH: usize = 64;
