//! Reading and writing elements in place, under the lock in their value.
//!
//! The bucket's lock is taken first, so that the element keeps its key. Under it the value's lock is only *tried*:
//! its holder may be preempted for long, or be interrupted by an operation that wants the bucket.

use super::element::STACK_KEY_WORDS;
use super::{Hash, with_key};
use crate::caller::Caller;
use crate::op_error::OpError;
use crate::racy;
use crate::update::UpdateFlags;
use crate::values::Source;
use crate::version::back_off;

impl Hash {
    /// # Safety
    ///
    /// `key` is readable for the key size, `out` writable for the host's value size; `caller` is the calling thread,
    /// which holds no value's lock.
    pub(crate) unsafe fn read_locked(
        &self,
        key: *const u8,
        out: *mut u8,
        caller: Caller,
    ) -> Result<bool, OpError> {
        with_key!(self, key, |key| {
            let bucket = self.bucket_of(key);
            for turns in 0.. {
                let lock = bucket.version.lock(caller)?;
                let Some(element) = self.find_locked(bucket, key).1 else { return Ok(false) };
                // SAFETY: an element of this table, which stays linked while the bucket's lock is held; `out` by
                // contract.
                if unsafe { self.values.try_read_locked(self.values_at(element), out) } {
                    return Ok(true);
                }
                drop(lock);
                back_off(turns);
            }
            unreachable!("an endless loop")
        })
    }

    /// Writes an element in place, or inserts it.
    ///
    /// # Safety
    ///
    /// `source` is as [`Values::write`](crate::values::Values::write) demands; `caller` is the calling thread, which
    /// holds no value's lock.
    pub(super) unsafe fn update_locked(
        &self,
        key: &[u64],
        source: Source,
        mode: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        let condition = mode.condition();
        for turns in 0.. {
            if condition != UpdateFlags::NoExist {
                let bucket = self.bucket_of(key);
                let lock = bucket.version.lock(caller)?;
                if let Some(element) = self.find_locked(bucket, key).1 {
                    // SAFETY: an element of this table, which stays linked while the bucket's lock is held; `source` by
                    // contract.
                    if unsafe { self.values.try_write_locked(self.values_at(element), source) } {
                        lock.unlock_changed(); // for `read`, which wants values whole
                        return Ok(());
                    }
                    drop(lock);
                    back_off(turns);
                    continue;
                }
                if condition == UpdateFlags::Exist {
                    return Err(OpError::Missing);
                }
            }
            // SAFETY: by the caller's contract.
            match unsafe { self.replace(key, source, UpdateFlags::NoExist, caller) } {
                // Another thread inserted it first: write it in place.
                Err(OpError::Exists) if condition == UpdateFlags::Any => {}
                done => return done,
            }
        }
        unreachable!("an endless loop")
    }
}
