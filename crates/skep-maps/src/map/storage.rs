//! Storages: elements that belong to sockets, tasks or control groups, by whose numbers they are found.
//!
//! A program never says the number. It passes the owner, and the helper knows the number. Elements are those of a hash
//! table, so an element that is deleted stays as it was until the sections of its readers end. When an owner is gone,
//! the runtime deletes its element.

use std::ptr;

use skep_abi::MapKind;

use super::Map;
use crate::caller::Caller;
use crate::error::MapError;
use crate::op_error::OpError;
use crate::table::Table;
use crate::update::UpdateFlags;
use crate::values::Source;

/// Whether [`Map::storage_ptr`] makes an element that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// It does not.
    Find,
    /// It makes one of zeroes.
    Zeroed,
    /// It makes one with these first contents: an address that is readable for the value size.
    From(*const u8),
}

impl Map {
    /// Whether it is a storage of control groups.
    pub(super) fn is_of_cgroups(&self) -> bool {
        matches!(self.kind(), MapKind::CgroupStorage | MapKind::PercpuCgroupStorage)
    }

    /// The value of the owner with that number, as [`lookup_ptr`](Self::lookup_ptr) returns it; null if there is none,
    /// if there is no memory for one, and in maps that are no storages. In storages of control groups `attach` is
    /// how the program is attached (`enum bpf_attach_type`); in others it is not looked at. The owner of a storage of
    /// sockets, tasks (`BPF_MAP_TYPE_TASK_STORAGE`) or cgroups (`BPF_MAP_TYPE_CGRP_STORAGE`) has a number of 32 bits,
    /// which of a socket is not 0.
    ///
    /// Of threads that make an element at once, all get the same.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr), and [`Storage::From`] is what it says.
    pub unsafe fn storage_ptr(&self, owner: u64, attach: u32, storage: Storage, cpu: u32) -> *mut u8 {
        let Some(key) = self.owner(owner, attach) else { return ptr::null_mut() };
        let Table::Hash(table) = &self.table else { return ptr::null_mut() };
        let at = key.as_ptr();
        // SAFETY: `owner` makes keys of the map's size at least; the rest by the caller's contract.
        let found = unsafe { self.lookup_ptr(at, cpu) };
        if !found.is_null() || storage == Storage::Find {
            return found;
        }
        let zeroes;
        let value = match storage {
            Storage::From(value) => value,
            _ => {
                zeroes = vec![0u8; self.def.value_size as usize];
                zeroes.as_ptr()
            }
        };
        let source = Source::Cpu(value, cpu);
        // SAFETY: as above; the value has the map's value size.
        let made = unsafe { table.update(at, source, UpdateFlags::NoExist, Caller::Cpu(cpu)) };
        match made {
            // Another thread may have been faster.
            // SAFETY: as above.
            Ok(()) | Err(OpError::Exists) => unsafe { self.lookup_ptr(at, cpu) },
            Err(_) => ptr::null_mut(),
        }
    }

    /// Makes the element of the cgroup 0 in a storage of control groups, so that a program that finds no memory for
    /// another has one.
    ///
    /// # Errors
    ///
    /// [`MapError::NoMemory`], [`MapError::Busy`].
    pub fn begin_storage(&self) -> Result<(), MapError> {
        let (Some(key), Table::Hash(table)) = (self.owner(0, 0), &self.table) else { return Ok(()) };
        let zeroes = vec![0u8; self.host_value_size()];
        let source = Source::All(zeroes.as_ptr());
        let made = self.with_retries(|caller| {
            // SAFETY: the key and the value have the map's sizes; `caller` is this thread.
            unsafe { table.update(key.as_ptr(), source, UpdateFlags::NoExist, caller) }
        });
        match made {
            Ok(()) | Err(OpError::Exists) => Ok(()),
            Err(error) => Err(self.explain(error, &key[..self.def.key_size as usize])),
        }
    }

    /// Deletes the element of an owner; returns whether there was one.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr).
    pub unsafe fn delete_storage_ptr(&self, owner: u64, cpu: u32) -> bool {
        let Some(key) = self.owner(owner, 0) else { return false };
        // SAFETY: as above.
        unsafe { self.delete_ptr(key.as_ptr(), cpu) == 0 }
    }

    /// The key of an owner; `None` in maps that are no storages, and for numbers that cannot be keys.
    fn owner(&self, owner: u64, attach: u32) -> Option<[u8; 16]> {
        let mut key = [0; 16];
        match self.kind() {
            MapKind::SkStorage | MapKind::TaskStorage | MapKind::CgrpStorage => {
                let is_owner = |number: &u32| *number != 0 || self.kind() != MapKind::SkStorage;
                let number = u32::try_from(owner).ok().filter(is_owner)?;
                key[..4].copy_from_slice(&number.to_ne_bytes());
            }
            _ if self.is_of_cgroups() => {
                key[..8].copy_from_slice(&owner.to_ne_bytes());
                key[8..12].copy_from_slice(&attach.to_ne_bytes());
            }
            _ => return None,
        }
        Some(key)
    }
}
