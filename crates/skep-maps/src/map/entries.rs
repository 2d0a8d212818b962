//! Elements of a map, one after the other, a batch at a time.

use super::Map;
use crate::cursor::{BATCH, Batch, Cursor};
use crate::table::Table;

/// An iterator over a map's elements; see [`Map::entries`].
#[derive(Debug)]
pub struct Entries<'a> {
    map: &'a Map,
    cursor: Cursor,
    batch: Batch,
}

impl<'a> Entries<'a> {
    pub(super) fn new(map: &'a Map) -> Self {
        Self { map, cursor: Cursor::default(), batch: Batch::default() }
    }
}

impl Iterator for Entries<'_> {
    /// Key and value, the latter with [`Map::host_value_size`] bytes.
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() {
            let (map, cursor, batch) = (self.map, &mut self.cursor, &mut self.batch);
            match &map.table {
                Table::Array(array) => array.batch(cursor, BATCH, batch),
                Table::Targets(targets) => targets.batch(cursor, BATCH, batch),
                Table::Members(members) => members.batch(cursor, BATCH, batch),
                // SAFETY: `caller` is this thread.
                Table::Hash(hash) => map.inside(|caller| unsafe { hash.batch(cursor, batch, caller) }),
                // SAFETY: `caller` is this thread.
                Table::Trie(trie) => map.inside(|caller| unsafe { trie.batch(cursor, BATCH, batch, caller) }),
                Table::References(_)
                | Table::Queue(_)
                | Table::Bloom(_)
                | Table::Ring(_)
                | Table::UserRing(_)
                | Table::Perf(_)
                | Table::Arena(_) => {}
            }
        }
        self.batch.pop_front()
    }
}
