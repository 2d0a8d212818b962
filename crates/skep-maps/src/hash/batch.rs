//! Batches: whole buckets, so that an element which stays is in one of them, once.

use super::Hash;
use crate::table::{Batch, Cursor};

impl Hash {
    /// Copies buckets from the cursor on, `count` elements at most in `out`. Says whether the table was gone through, or
    /// how many elements are in a bucket that has more than fit.
    pub(crate) fn lookup_batch(
        &self,
        cursor: &mut Cursor,
        count: usize,
        out: &mut Batch,
    ) -> Result<bool, usize> {
        while cursor.position <= self.mask {
            if let Some(_lock) = self.lock_if_used(cursor.position) {
                let elements = self.bucket(cursor.position).elements_locked();
                let inside = elements.clone().count();
                if out.len() + inside > count {
                    return if out.is_empty() { Err(inside) } else { Ok(false) };
                }
                out.extend(elements.map(|element| self.copy(element)));
            }
            cursor.position += 1;
        }
        Ok(true)
    }
}
