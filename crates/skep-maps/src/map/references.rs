//! Maps of programs and of maps.

use std::sync::TryLockError;

use skep_abi::MapKind;

use super::{Map, Unfrozen};
use crate::error::MapError;
use crate::references::References;
use crate::table::Table;

/// Maps of programs and of maps, for the code that fills them.
impl Map {
    /// The table of an array of programs.
    pub fn programs(&self) -> Option<&References> {
        self.references().filter(|_| self.kind() == MapKind::ProgArray)
    }

    /// The table of an array of programs, or of an array or hash table of maps.
    pub fn references(&self) -> Option<&References> {
        match &self.table {
            Table::References(references) => Some(references),
            _ => None,
        }
    }

    /// Makes [`freeze`](Self::freeze) wait until the result is dropped: for code that changes an array of programs
    /// with [`References::set`] together with other state.
    ///
    /// Does not wait, so it may be called, and the result held, under a lock. Fails if a freeze is in progress.
    ///
    /// # Errors
    ///
    /// [`MapError::Frozen`].
    pub fn hold_unfrozen(&self) -> Result<Unfrozen<'_>, MapError> {
        let frozen = match self.frozen.try_read() {
            Ok(frozen) => Some(frozen),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            // Only `freeze` takes it for writing.
            Err(TryLockError::WouldBlock) => None,
        };
        let unfrozen = frozen.filter(|frozen| !**frozen).map(Unfrozen);
        unfrozen.ok_or_else(|| MapError::Frozen { map: self.name().to_owned() })
    }

    /// Sets the address of a key in a table of programs or maps, 0 for none. Running programs see it at once.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::OutOfRange`] beyond the end of an array, [`MapError::Full`],
    /// [`MapError::NoMemory`], [`MapError::NoReferences`], [`MapError::Frozen`], [`MapError::Busy`]. Nothing is
    /// changed then. Removing an address never fails for lack of memory.
    ///
    /// # Safety
    ///
    /// The address must be as for [`References::set`].
    pub unsafe fn set_reference(&self, key: &[u8], address: u64) -> Result<(), MapError> {
        let _unfrozen = self.hold_unfrozen()?;
        // SAFETY: by the caller's contract.
        unsafe { self.put_reference(key, address) }
    }

    /// Removes the address of a key, even if the map is frozen.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::OutOfRange`], [`MapError::NoReferences`], [`MapError::Busy`].
    ///
    /// # Safety
    ///
    /// No host can reach the map any more, so none sees a frozen map change; and the caller keeps the record of what
    /// is in the map.
    #[doc(hidden)]
    pub unsafe fn clear_reference(&self, key: &[u8]) -> Result<(), MapError> {
        // SAFETY: 0 stands for no program and no map.
        unsafe { self.put_reference(key, 0) }
    }

    /// # Safety
    ///
    /// As for [`set_reference`](Self::set_reference).
    unsafe fn put_reference(&self, key: &[u8], address: u64) -> Result<(), MapError> {
        let Some(table) = self.references() else {
            return Err(MapError::NoReferences { map: self.name().to_owned(), kind: self.kind() });
        };
        self.check_key(key)?;
        // SAFETY: the length was checked; the rest by the caller's contract.
        self.inside(|caller| unsafe { table.put(key.as_ptr(), address, caller) })
            .map_err(|error| self.explain(error, key))
    }

    /// The keys of a hash table of maps, in no defined order; none for other kinds.
    pub fn reference_keys(&self) -> Vec<Vec<u8>> {
        // SAFETY: `caller` is this thread.
        self.inside(|caller| self.references().map_or(Vec::new(), |table| unsafe { table.keys(caller) }))
    }
}
