//! A table as other processes see it.

use std::mem::offset_of;

use super::Hash;
use super::element::Bucket;
use crate::map::SharedTable;

impl Hash {
    /// Whether the table is in files.
    pub(crate) fn is_shared(&self) -> bool {
        self.buckets.file().is_some()
    }

    /// The files, from now on for readers alone.
    pub(crate) fn shared(&self) -> Option<SharedTable<'_>> {
        const { assert!(offset_of!(Bucket, head) == 0 && offset_of!(Bucket, version) == 8) };
        let buckets = self.buckets.file()?;
        let elements = self.elements.shared()?;
        self.buckets.refuse_writers();
        Some(SharedTable {
            buckets,
            bucket_count: self.mask + 1,
            elements: elements.file,
            offset: elements.offset,
            len: elements.len,
            address: elements.address,
            seed: self.seed.numbers(),
            values_at: self.layout.values_at,
            cpu_stride: self.values.cpu_stride(),
            cpus: self.values.copies(),
        })
    }
}
