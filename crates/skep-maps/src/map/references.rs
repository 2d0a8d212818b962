//! Maps of programs and of maps.

use skep_abi::MapKind;

use super::{Map, Table};
use crate::error::MapError;
use crate::references::References;

/// Maps of programs and of maps, for whoever fills them.
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

    /// Sets the address that a key of a table of programs or maps leads to, 0 for none. Programs that run
    /// find it at once.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::OutOfRange`] beyond the end of an array, [`MapError::Full`],
    /// [`MapError::NoMemory`], [`MapError::NoReferences`]. All is as it was then. An address can always be
    /// taken out.
    ///
    /// # Safety
    ///
    /// The address as for [`References::set`].
    pub unsafe fn set_reference(&self, key: &[u8], address: u64) -> Result<(), MapError> {
        let Some(table) = self.references() else {
            return Err(MapError::NoReferences { map: self.name().to_owned(), kind: self.kind() });
        };
        self.check_key(key)?;
        // SAFETY: the length was checked; the caller's promise is passed on.
        self.inside(|by| unsafe { table.put(key.as_ptr(), address, by) })
            .map_err(|fault| self.explain(fault, key))
    }

    /// The keys of a hash table of maps, in no order to rely on; none of other kinds.
    pub fn reference_keys(&self) -> Vec<Vec<u8>> {
        self.references().map_or(Vec::new(), References::keys)
    }
}
