//! Arrays of programs, where tail calls lead, and of maps.
//!
//! The map is a table of addresses, which compiled code reads where they are those of programs ([`ProgramTable`]), and a place
//! for whoever fills it to keep what belongs to it. Which programs and maps fit, and how long they must live, is not known
//! here.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_abi::ProgramTable;

use crate::values::Values;

/// The table of an array of programs or of maps.
pub struct References {
    entries: Box<[AtomicU64]>,
    keeper: OnceLock<Box<dyn Any + Send + Sync>>,
    values: Values,
}

impl References {
    /// The bytes that such a table takes.
    pub(crate) fn bytes(len: u32) -> Option<usize> {
        (len as usize).checked_mul(size_of::<AtomicU64>())
    }

    pub(crate) fn new(len: u32, value_size: u32) -> Result<Self, skep_mem::Error> {
        let mut entries = Vec::new();
        let too_large = |_| skep_mem::Error::TooLarge { count: len as usize, size: size_of::<AtomicU64>() };
        entries.try_reserve_exact(len as usize).map_err(too_large)?;
        entries.resize_with(len as usize, AtomicU64::default);
        Ok(Self { entries: entries.into(), keeper: OnceLock::new(), values: Values::shared(value_size) })
    }

    /// How many entries there are.
    #[expect(clippy::len_without_is_empty, reason = "a table of fixed length")]
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The address of what is at that index; 0 where there is nothing, or the index is beyond the end.
    pub fn entry(&self, index: u32) -> u64 {
        // Acquire: the partner of `set`, for whoever follows the address.
        self.entries.get(index as usize).map_or(0, |entry| entry.load(Ordering::Acquire))
    }

    /// Sets the address at that index, 0 for none; `false` beyond the end. Programs that run find it at once.
    ///
    /// # Safety
    ///
    /// In an array of programs, the address is the entry for tail calls of one that may be given what the programs that make tail calls
    /// through this map are given; in an array of maps, the handle of one of the shape that the map's definition says. It
    /// stays so until it was replaced and every run that may have found it has ended.
    pub unsafe fn set(&self, index: u32, address: u64) -> bool {
        let Some(entry) = self.entries.get(index as usize) else { return false };
        // Release: what it leads to was made before; the partners are the loads of compiled code, which depend on it, and
        // `entry`.
        entry.store(address, Ordering::Release);
        true
    }

    /// What belongs to the table, made by who asks first, and dropped with the map; `None` where it is of another type.
    pub fn keeper<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.keeper.get_or_init(|| Box::new(make())).downcast_ref()
    }

    pub(crate) fn table(&self) -> ProgramTable {
        ProgramTable { entries: self.entries.as_ptr().expose_provenance() as u64, len: self.len() }
    }

    pub(crate) fn filled(&self) -> u32 {
        // Relaxed: a count of what may change at any moment.
        self.entries.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0).count() as u32
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.entries)
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }
}

impl fmt::Debug for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("References").field("len", &self.len()).field("filled", &self.filled()).finish()
    }
}
