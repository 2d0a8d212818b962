//! Operations of programs on all elements, and on elements of other CPUs.

use std::ptr;

use crate::map::Map;
use crate::table::Table;

impl Map {
    /// The address of a key's value on any CPU, in a per-CPU map; null for other maps, and if there is no such key or
    /// CPU.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr), of `own`; `cpu` may be any number.
    pub unsafe fn lookup_percpu_ptr(&self, key: *const u8, cpu: u32, own: u32) -> *mut u8 {
        let values = self.values();
        if !values.is_per_cpu() || cpu >= values.copies() {
            return ptr::null_mut();
        }
        // SAFETY: by the caller's contract.
        let at = unsafe { self.lookup_ptr(key, own) };
        if at.is_null() { at } else { values.of_other_cpu(at, own, cpu) }
    }

    /// Calls `visit` with the addresses of each key and its value, for a per-CPU kind that CPU's value, until it
    /// returns false; for hash tables and arrays. Allocates nothing and holds no lock while `visit` runs, which may
    /// change the map.
    ///
    /// A key that stays in the map during the whole walk is visited exactly once, even if its element is replaced
    /// meanwhile. `visit` could insert elements for ever: the walk ends 8,388,608 visits after the map's capacity.
    ///
    /// A key's address is valid during the visit, a value's as [`lookup_ptr`](Self::lookup_ptr) says.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr), of `cpu`.
    pub unsafe fn for_each_ptr(&self, cpu: u32, visit: &mut dyn FnMut(*const u8, *mut u8) -> bool) {
        match &self.table {
            // SAFETY: by the caller's contract.
            Table::Array(array) => unsafe { array.for_each(cpu, visit) },
            Table::Hash(hash) => {
                let most = u64::from(self.def.max_entries) + u64::from(skep_abi::MAX_LOOPS);
                // SAFETY: by the caller's contract.
                unsafe { hash.for_each(cpu, most, visit) }
            }
            _ => {} // no program can ask for it
        }
    }
}
