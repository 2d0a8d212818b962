//! Parts of a value, for hosts: a variable in the value that holds all variables of a section.
//!
//! Programs write to the other parts meanwhile. So nothing but the part is written, in the largest aligned pieces of
//! 8, 4, 2 and 1 bytes, each in one access: a number at a multiple of its size is read and written as a whole.

use super::Map;
use crate::error::MapError;
use crate::op_error::OpError;
use crate::racy;
use crate::table::Table;

/// Parts of values, for the host.
impl Map {
    /// Copies bytes of the value at an index of an array. Each aligned piece of 8, 4, 2 or 1 bytes is from one moment.
    ///
    /// # Errors
    ///
    /// [`MapError::OutOfRange`] for the index, [`MapError::OutsideValue`] for the bytes, [`MapError::NotForKind`] for
    /// all kinds but plain arrays.
    pub fn read_part(&self, index: u32, offset: usize, into: &mut [u8]) -> Result<(), MapError> {
        let at = self.part(index, offset, into.len())?;
        // SAFETY: `part` checked that the bytes are in the array's memory; `into` is borrowed exclusively.
        unsafe { racy::read_any(at, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Replaces bytes of the value at an index of an array, and no other byte. Each aligned piece of 8, 4, 2 or 1 bytes
    /// changes at once.
    ///
    /// ```
    /// use skep_abi::{MapDef, MapKind};
    /// use skep_maps::{Map, MapError, Options};
    ///
    /// # fn main() -> Result<(), MapError> {
    /// let def = MapDef::new(".bss", MapKind::Array, 4, 16, 1);
    /// let variables = Map::create(&def, &Options { cpus: 1, limit: 1 << 20 })?;
    /// variables.write_part(0, 4, &7u32.to_ne_bytes())?;
    /// let mut limit = [0; 4];
    /// variables.read_part(0, 4, &mut limit)?;
    /// assert_eq!(u32::from_ne_bytes(limit), 7);
    /// assert!(variables.write_part(0, 14, &limit).is_err()); // ends behind the value
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_part`](Self::read_part), and [`MapError::Frozen`].
    pub fn write_part(&self, index: u32, offset: usize, bytes: &[u8]) -> Result<(), MapError> {
        let at = self.part(index, offset, bytes.len())?;
        self.change(|| {
            // SAFETY: `part` checked that the bytes are in the array's memory and no special field; the map is not
            // frozen.
            unsafe { racy::write_any(bytes.as_ptr(), at, bytes.len()) };
            Ok(())
        })
    }

    /// The address of plain bytes of a value.
    fn part(&self, index: u32, offset: usize, len: usize) -> Result<*mut u8, MapError> {
        let Table::Array(array) = &self.table else { return Err(self.no_parts()) };
        if self.kind().is_per_cpu() {
            return Err(self.no_parts());
        }
        let value =
            array.element(index).ok_or_else(|| self.explain(OpError::OutOfRange, &index.to_ne_bytes()))?;
        let end = offset.checked_add(len).filter(|end| *end <= self.def.value_size as usize);
        let special = |end: usize| {
            let overlaps = |at: usize, size: usize| at < end && offset < at + size;
            self.def.fields.iter().any(|field| overlaps(field.offset as usize, field.size as usize))
        };
        match end {
            Some(end) if !special(end) => Ok(value.wrapping_add(offset)),
            _ => Err(MapError::OutsideValue {
                map: self.def.name.clone(),
                offset,
                len,
                value_size: self.def.value_size,
            }),
        }
    }

    fn no_parts(&self) -> MapError {
        let what = "read and written in parts";
        MapError::NotForKind { map: self.def.name.clone(), kind: self.kind(), what }
    }
}
