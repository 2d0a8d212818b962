//! Reading values under their lock.

use crate::error::MapError;
use crate::map::Map;
use crate::op_error::OpError;
use crate::table::Table;

impl Map {
    /// As [`lookup`](Self::lookup) with Linux's `BPF_F_LOCK`: the value is copied while its lock is held, and so
    /// never between two changes that a program makes under the lock. Locks and other special fields are zero in the
    /// copy, as in [`lookup`](Self::lookup).
    ///
    /// # Errors
    ///
    /// As for [`lookup`](Self::lookup); [`MapError::NoLock`] if values have none; [`MapError::LockHeld`].
    pub fn lookup_locked(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        self.check_key(key)?;
        self.may_lock().map_err(|error| self.explain(error, key))?;
        let mut value = vec![0; self.host_value_size()];
        let (from, to) = (key.as_ptr(), value.as_mut_ptr());
        // SAFETY: the key's length was checked, the value has the right one, and this thread holds no lock.
        let found = unsafe {
            match &self.table {
                Table::Array(array) => Ok(array.read_locked(from, to)),
                Table::Hash(hash) => self.inside(|caller| hash.read_locked(from, to, caller)),
                _ => Ok(false), // they have no locks
            }
        };
        Ok(found.map_err(|error| self.explain(error, key))?.then_some(value))
    }

    /// Whether values have a lock, and this thread may take it.
    pub(super) fn may_lock(&self) -> Result<(), OpError> {
        match () {
            () if !self.values().has_lock() => Err(OpError::NoLock),
            () if crate::lock::is_held() => Err(OpError::LockHeld),
            () => Ok(()),
        }
    }
}
