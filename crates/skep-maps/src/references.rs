//! Arrays of programs, for tail calls, and arrays and hash tables of maps.
//!
//! The map is a table of addresses, which compiled code reads directly if they are addresses of programs
//! ([`ProgramTable`]), and a slot for data of the code that fills it. That code decides which programs and maps fit,
//! and how long they must live.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use skep_abi::ProgramTable;
use skep_mem::CacheStats;

use crate::caller::Caller;
use crate::cursor::Cursor;
use crate::hash::Hash;
use crate::op_error::OpError;
use crate::racy;
use crate::update::UpdateFlags;
use crate::values::{Source, Values};

/// Bytes in an address.
pub(crate) const ADDRESS: u32 = 8;

/// The table of an array of programs, or of an array or hash table of maps.
pub struct References {
    entries: Entries,
    extension: OnceLock<Box<dyn Any + Send + Sync>>,
    values: Values,
}

enum Entries {
    Array(Box<[AtomicU64]>),
    /// The values are addresses, never 0.
    Hash {
        hash: Box<Hash>,
        max_entries: u32,
    },
}

impl References {
    /// The bytes that such an array takes.
    pub(crate) fn bytes(len: u32) -> Option<usize> {
        (len as usize).checked_mul(size_of::<AtomicU64>())
    }

    pub(crate) fn new(len: u32, value_size: u32) -> Result<Self, skep_mem::Error> {
        let mut entries = Vec::new();
        let refused =
            |_| skep_mem::Error::OutOfMemory { bytes: (len as usize).saturating_mul(size_of::<AtomicU64>()) };
        entries.try_reserve_exact(len as usize).map_err(refused)?;
        entries.resize_with(len as usize, AtomicU64::default);
        Ok(Self::of(Entries::Array(entries.into()), value_size))
    }

    /// A hash table whose values are addresses.
    pub(crate) fn keyed(hash: Hash, max_entries: u32, value_size: u32) -> Self {
        Self::of(Entries::Hash { hash: Box::new(hash), max_entries }, value_size)
    }

    fn of(entries: Entries, value_size: u32) -> Self {
        Self { entries, extension: OnceLock::new(), values: Values::shared(value_size) }
    }

    /// The number of entries; for a hash table the most it may have.
    #[expect(clippy::len_without_is_empty, reason = "a table of fixed length")]
    pub fn len(&self) -> u32 {
        match &self.entries {
            Entries::Array(entries) => entries.len() as u32,
            Entries::Hash { max_entries, .. } => *max_entries,
        }
    }

    /// Whether it is a hash table.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.entries, Entries::Hash { .. })
    }

    /// The address at that index of an array; 0 if it is empty or beyond the end.
    pub fn entry(&self, index: u32) -> u64 {
        let Entries::Array(entries) = &self.entries else { return 0 };
        // Acquire: pairs with `set`, for the code that follows the address.
        entries.get(index as usize).map_or(0, |entry| entry.load(Ordering::Acquire))
    }

    /// Sets the address at that index of an array, 0 for none; `false` beyond the end. Running programs see it at
    /// once. A caller that acts for the host holds the map [unfrozen](crate::Map::hold_unfrozen).
    ///
    /// # Safety
    ///
    /// In an array of programs the address is the tail-call entry of a program that accepts the arguments of every
    /// program that makes tail calls through this map; in a table of maps it is the handle of a map that matches the
    /// definition's template. It stays valid until it has been replaced and every run that may have found it has
    /// ended.
    pub unsafe fn set(&self, index: u32, address: u64) -> bool {
        let Entries::Array(entries) = &self.entries else { return false };
        let Some(entry) = entries.get(index as usize) else { return false };
        // Release: the program or map was made before; pairs with the loads of compiled code, which are
        // address-dependent, and with `entry`.
        entry.store(address, Ordering::Release);
        true
    }

    /// The address of a key, 0 for none. In a hash table with immediate reuse it may be that of another key that is
    /// inserted at this moment.
    ///
    /// # Safety
    ///
    /// `key` is readable for the key size; `cpu` is the slot of the calling thread, inside a normal section.
    pub(crate) unsafe fn find(&self, key: *const u8, cpu: u32) -> u64 {
        match &self.entries {
            // SAFETY: keys of arrays have 4 bytes.
            Entries::Array(_) => self.entry(unsafe { racy::load4(key) }),
            Entries::Hash { hash, .. } => {
                // SAFETY: by the caller's contract.
                let value = unsafe { hash.lookup(key, cpu) };
                if value.is_null() {
                    return 0;
                }
                // Acquire: pairs with the fence in `put`, for the code that follows the address.
                // SAFETY: an aligned value of 8 bytes, in memory that belongs to the table as long as it lives.
                unsafe { (*value.cast::<AtomicU64>()).load(Ordering::Acquire) }
            }
        }
    }

    /// Sets the address of a key, 0 for none.
    ///
    /// # Safety
    ///
    /// `key` is readable for the key size; the address as for [`set`](Self::set); `caller` is the calling thread.
    pub(crate) unsafe fn put(&self, key: *const u8, address: u64, caller: Caller) -> Result<(), OpError> {
        match &self.entries {
            // SAFETY: by the caller's contract.
            Entries::Array(_) => match unsafe { self.set(racy::load4(key), address) } {
                true => Ok(()),
                false => Err(OpError::OutOfRange),
            },
            // SAFETY: by the caller's contract.
            Entries::Hash { hash, .. } if address == 0 => match unsafe { hash.delete(key, caller) } {
                Err(OpError::Missing) => Ok(()),
                result => result,
            },
            Entries::Hash { hash, .. } => {
                // Pairs with the Acquire in `find`: the map was made before, and elements are written relaxed.
                fence(Ordering::Release);
                let source = Source::All((&raw const address).cast());
                // SAFETY: by the caller's contract; an address has the size of the values.
                unsafe { hash.update(key, source, UpdateFlags::Any, caller) }
            }
        }
    }

    /// The keys of a hash table that have an address; none for an array.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    pub(crate) unsafe fn keys(&self, caller: Caller) -> Vec<Vec<u8>> {
        let Entries::Hash { hash, .. } = &self.entries else { return Vec::new() };
        let (mut keys, mut cursor) = (Vec::new(), Cursor::default());
        loop {
            let mut batch = crate::cursor::Batch::default();
            // SAFETY: by the caller's contract.
            unsafe { hash.batch(&mut cursor, &mut batch, caller) };
            if batch.is_empty() {
                return keys;
            }
            keys.extend(batch.into_iter().map(|(key, _)| key));
        }
    }

    /// Data that belongs to the table and is dropped with the map. The first call makes it; `None` if it has another
    /// type.
    pub fn extension<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.extension.get_or_init(|| Box::new(make())).downcast_ref()
    }

    pub(crate) fn table(&self) -> ProgramTable {
        match &self.entries {
            Entries::Array(entries) => {
                ProgramTable { entries: entries.as_ptr().expose_provenance() as u64, len: self.len() }
            }
            Entries::Hash { .. } => ProgramTable::default(),
        }
    }

    pub(crate) fn filled(&self) -> u32 {
        match &self.entries {
            // Relaxed: a count that may change at any moment.
            Entries::Array(entries) => {
                entries.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0).count() as u32
            }
            Entries::Hash { hash, .. } => hash.len(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match &self.entries {
            Entries::Array(entries) => size_of_val(&**entries),
            Entries::Hash { hash, .. } => hash.memory(),
        }
    }

    /// For a hash table: bytes besides those of the elements, and the elements' statistics.
    pub(crate) fn stats(&self) -> Option<(usize, CacheStats)> {
        match &self.entries {
            Entries::Array(_) => None,
            Entries::Hash { hash, .. } => Some(hash.stats()),
        }
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
