//! Batches of whole buckets, so that an element that stays is in exactly one.

use super::Hash;
use crate::caller::Caller;
use crate::cursor::{Batch, Cursor};
use crate::op_error::OpError;

impl Hash {
    /// Copies buckets from the cursor on, at most `count` elements, to `out`. Returns whether it has reached the end.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    pub(crate) unsafe fn lookup_batch(
        &self,
        cursor: &mut Cursor,
        count: usize,
        out: &mut Batch,
        caller: Caller,
    ) -> Result<bool, OpError> {
        while cursor.position <= self.mask {
            if let Some(bucket) = self.if_used(cursor.position) {
                let _lock = match bucket.version.lock(caller) {
                    Ok(lock) => lock,
                    Err(error) => return if out.is_empty() { Err(error) } else { Ok(false) },
                };
                let elements = bucket.elements_locked();
                let inside = elements.clone().count();
                if out.len() + inside > count {
                    let larger = OpError::BucketLarger { count, needed: inside };
                    return if out.is_empty() { Err(larger) } else { Ok(false) };
                }
                out.extend(elements.map(|element| self.copy(element)));
            }
            cursor.position += 1;
        }
        Ok(true)
    }
}
