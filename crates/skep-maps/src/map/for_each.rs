//! What programs do besides with single elements of their own: all elements, and those of other CPUs.

use std::ptr;

use crate::map::Map;
use crate::table::Table;

impl Map {
    /// The address of a key's value of any CPU, in a map with a value for each; null for another map, if there is no such
    /// key, or no such CPU.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr), of `own`; `cpu` may be any number.
    pub unsafe fn lookup_percpu_ptr(&self, key: *const u8, cpu: u32, own: u32) -> *mut u8 {
        let values = self.values();
        if !values.is_per_cpu() || cpu >= values.copies() {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promises.
        let at = unsafe { self.lookup_ptr(key, own) };
        if at.is_null() { at } else { values.of_other_cpu(at, own, cpu) }
    }

    /// Calls `visit` with the addresses of each key and its value, for a per-CPU kind that CPU's value, until it says
    /// false; of hash tables and arrays. No memory is allocated, and no lock is held while `visit` runs, which may change
    /// the map as it likes.
    ///
    /// A key that is in the map from the first call to the last is visited exactly once, also if its element is
    /// replaced meanwhile. `visit` could insert for ever what comes next: after 8,388,608 visits more than the map has
    /// room for, the walk ends.
    ///
    /// A key's address is good for the visit, a value's as [`lookup_ptr`](Self::lookup_ptr) says.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr), of `cpu`.
    pub unsafe fn for_each_ptr(&self, cpu: u32, visit: &mut dyn FnMut(*const u8, *mut u8) -> bool) {
        match &self.table {
            // SAFETY: the caller's promise.
            Table::Array(array) => unsafe { array.for_each(cpu, visit) },
            Table::Hash(hash) => {
                let most = u64::from(self.def.max_entries) + u64::from(skep_abi::MAX_LOOPS);
                // SAFETY: the caller's promise.
                unsafe { hash.for_each(cpu, most, visit) }
            }
            _ => {} // no program can ask for it
        }
    }
}
