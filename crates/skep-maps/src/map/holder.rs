//! From a value back to its key, for what is kept beside values: timers and work queues.
//!
//! ```text
//!   the value's address --key_at--> key --lookup_ptr--> the same address: the element is still the key's
//! ```

use std::sync::atomic::AtomicU64;

use skep_abi::SpecialKind;

use crate::map::Map;
use crate::table::Table;

impl Map {
    /// Copies the key of a value that all CPUs share. Returns `false` if the map's kind has none, or an array has no
    /// value at that address.
    ///
    /// The element may have been deleted, or may be another key's by now: whether it is the key's, a look-up tells.
    ///
    /// # Safety
    ///
    /// `value` is a result of [`lookup_ptr`](Self::lookup_ptr) of this map, in a section that this thread is still in;
    /// `key` is writable for the key size, at any alignment.
    pub unsafe fn key_at(&self, value: *mut u8, key: *mut u8) -> bool {
        if self.kind().is_per_cpu() {
            return false;
        }
        match &self.table {
            Table::Array(array) => {
                let Some(index) = array.index_at(value) else { return false };
                // SAFETY: by the caller's contract; the key size of arrays is 4.
                unsafe { key.cast::<u32>().write_unaligned(index) };
                true
            }
            Table::Hash(hash) => {
                // SAFETY: by the caller's contract.
                unsafe { hash.key_at(value, key) };
                true
            }
            _ => false,
        }
    }

    /// The offset in bytes of the field of that kind in values, if there is one that has a number
    /// ([`number_at`](Self::number_at)).
    pub fn numbered_field(&self, kind: SpecialKind) -> Option<usize> {
        let field = self.def().fields.iter().find(|field| field.kind == kind)?;
        (field.offset.is_multiple_of(8) && field.size >= 8).then_some(field.offset as usize)
    }

    /// The first word of a timer or work queue, for the number by which its owner finds it; 0 in a new element. No copy
    /// of a value touches it.
    ///
    /// # Safety
    ///
    /// `field` is the address of such a field in a value of a map, found in a section that this thread is still in, and
    /// the result is not used after the section.
    pub unsafe fn number_at<'a>(field: *mut u8) -> &'a AtomicU64 {
        // SAFETY: fields begin at multiples of 8 bytes in values, which do too, and are longer than a word; all
        // accesses are atomic.
        unsafe { &*field.cast::<AtomicU64>() }
    }
}
