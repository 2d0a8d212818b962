//! What readers announce, one step nearer than through the domain: for those who ask at every look-up.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::readers::{FENCED, Readers, Record};

/// The [horizons](crate::Domain::horizon) of a domain's readers. Does not keep the domain open.
pub struct Horizons {
    /// The records of `readers`.
    records: NonNull<Record>,
    readers: Arc<Readers>,
}

// SAFETY: the records are those of `readers`, which may be shared and sent; they are only ever read and written atomically.
unsafe impl Send for Horizons {}
// SAFETY: as above.
unsafe impl Sync for Horizons {}

impl Horizons {
    pub(crate) fn new(readers: &Arc<Readers>) -> Self {
        let readers = Arc::clone(readers);
        Self { records: readers.records(), readers }
    }

    /// As [`Domain::horizon`](crate::Domain::horizon).
    ///
    /// # Safety
    ///
    /// The domain has a slot of that number.
    #[inline(always)]
    pub unsafe fn of(&self, slot: u32) -> Option<u64> {
        // SAFETY: one of the records by contract, which live as long as `readers`.
        let record = unsafe { self.records.add(slot as usize).as_ref() };
        record.horizon().map(|seen| seen & !FENCED)
    }

    /// As [`Domain::look_further`](crate::Domain::look_further).
    ///
    /// # Panics
    ///
    /// Where there is no slot of that number.
    #[inline]
    pub fn look_further(&self, slot: u32) {
        self.readers.look_further(slot);
    }
}

impl fmt::Debug for Horizons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Horizons")
    }
}
