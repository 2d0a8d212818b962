//! Batches: whole buckets, so that an element which stays is in one of them, once.

use super::Hash;
use crate::memory::By;
use crate::table::{Batch, Cursor, Fault};

impl Hash {
    /// Copies buckets from the cursor on, `count` elements at most in `out`. Says whether the table was gone through.
    ///
    /// # Safety
    ///
    /// `by` is the calling thread.
    pub(crate) unsafe fn lookup_batch(
        &self,
        cursor: &mut Cursor,
        count: usize,
        out: &mut Batch,
        by: By,
    ) -> Result<bool, Fault> {
        while cursor.position <= self.mask {
            if let Some(bucket) = self.if_used(cursor.position) {
                let _lock = match bucket.version.lock(by) {
                    Ok(lock) => lock,
                    Err(fault) => return if out.is_empty() { Err(fault) } else { Ok(false) },
                };
                let elements = bucket.elements_locked();
                let inside = elements.clone().count();
                if out.len() + inside > count {
                    let larger = Fault::BucketLarger { count, needed: inside };
                    return if out.is_empty() { Err(larger) } else { Ok(false) };
                }
                out.extend(elements.map(|element| self.copy(element)));
            }
            cursor.position += 1;
        }
        Ok(true)
    }
}
