//! Maps of devices, CPUs and AF_XDP sockets: what redirections find in them.

use std::sync::atomic::{AtomicU32, Ordering};

use skep_abi::MapKind;

use super::Map;
use crate::error::{Key, MapError};
use crate::table::Table;
use crate::update::UpdateFlags;
use crate::values::Source;

/// An element of a map of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// The device's index, the length of the CPU's queue in packets, or the element's own index for sockets.
    pub first: u32,
    /// The number of a program, 0 for none; for sockets the number of the socket.
    pub second: u32,
}

/// Targets of redirections.
impl Map {
    /// Whether its elements are targets of redirections.
    pub fn holds_targets(&self) -> bool {
        use MapKind::{Cpumap, Devmap, DevmapHash, Xskmap};
        matches!(self.kind(), Devmap | DevmapHash | Cpumap | Xskmap)
    }

    /// The target with this key; `None` in other kinds of maps.
    ///
    /// # Safety
    ///
    /// `cpu` is the calling thread's slot in the map's [domain](Self::reuse), and the thread is inside a section.
    pub unsafe fn target(&self, key: u32, cpu: u32) -> Option<Target> {
        if !self.holds_targets() {
            return None;
        }
        // SAFETY: keys of these kinds have 4 bytes; the rest by the caller's contract.
        let at = unsafe { self.lookup_ptr((&raw const key).cast(), cpu) };
        if at.is_null() {
            return None;
        }
        // Relaxed: numbers alone.
        let word = |offset: usize| {
            // SAFETY: an element of these kinds is aligned memory of 8 bytes, or of 4 in a hash table with such values.
            unsafe { (*at.add(offset).cast::<AtomicU32>()).load(Ordering::Relaxed) }
        };
        let short = matches!(self.table, Table::Hash(_)) && self.def.value_size < 8;
        Some(Target { first: word(0), second: if short { 0 } else { word(4) } })
    }

    /// Gives an existing element of devices or CPUs a program by its number, 0 for none. The caller keeps what the
    /// number means.
    ///
    /// # Errors
    ///
    /// [`MapError::BadTarget`] for other kinds, and if values have no room for a program; [`MapError::Missing`] if the
    /// element is empty; [`MapError::Frozen`].
    pub fn set_target_program(&self, key: u32, number: u32) -> Result<(), MapError> {
        let bytes = key.to_ne_bytes();
        let holds = self.holds_targets() && self.kind() != MapKind::Xskmap && self.def.value_size == 8;
        if !holds {
            return Err(self.no_target(&bytes));
        }
        self.change(|| {
            let missing = || MapError::Missing { map: self.def.name.clone(), key: Key(bytes.to_vec()) };
            let mut value = self.lookup(&bytes)?.ok_or_else(missing)?;
            value[4..8].copy_from_slice(&number.to_ne_bytes());
            let source = Source::All(value.as_ptr());
            let result = match &self.table {
                // SAFETY: the sizes are those of the definition.
                Table::Targets(targets) => unsafe { targets.put(bytes.as_ptr(), source) },
                // SAFETY: as above; `caller` is this thread.
                _ => self.with_retries(|caller| unsafe {
                    self.update_at(bytes.as_ptr(), source, UpdateFlags::Exist, caller)
                }),
            };
            result.map_err(|error| self.explain(error, &bytes))
        })
    }

    /// Refuses values of hash tables of devices that name no device, or a program.
    pub(super) fn check_target(&self, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        if self.kind() != MapKind::DevmapHash {
            return Ok(());
        }
        let (device, program) = value.split_at(4);
        if device == [0; 4] || program.iter().any(|byte| *byte != 0) {
            return Err(self.no_target(key));
        }
        Ok(())
    }

    fn no_target(&self, key: &[u8]) -> MapError {
        MapError::BadTarget { map: self.def.name.clone(), kind: self.kind(), key: Key(key.to_vec()) }
    }
}
