//! The functions that programs call, chosen when a map is made: by its kind, and for hash tables by the key size.
//!
//! One function for all kinds would reserve stack for the longest key and save every register for each map. The
//! functions have the system's calling convention, like helpers, so a helper can end with a jump to them.

use std::fmt;
use std::ptr;

use super::{Map, status};
use crate::caller::Caller;
use crate::hash::FastPath;
use crate::op_error::{OpError, errno};
use crate::table::Table;
use crate::update::UpdateFlags;
use crate::values::Source;

type LookUp = unsafe extern "C" fn(&Map, *const u8, u32) -> *mut u8;
type Update = unsafe extern "C" fn(&Map, *const u8, *const u8, u64, u32) -> i64;
type Delete = unsafe extern "C" fn(&Map, *const u8, u32) -> i64;

/// The functions behind [`Map::lookup_ptr`], [`Map::update_ptr`] and [`Map::delete_ptr`], with their contracts.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    pub(super) look_up: LookUp,
    pub(super) update: Update,
    pub(super) delete: Delete,
}

impl Calls {
    pub(super) fn of(table: &Table, key_size: u32) -> Self {
        match (table, key_size) {
            (Table::Hash(_), 4) => Self::fast_path::<4, 1>(table),
            (Table::Hash(_), 8) => Self::fast_path::<8, 1>(table),
            (Table::Hash(_), 16) => Self::fast_path::<16, 2>(table),
            (Table::Hash(_), _) => Self { look_up: look_up_hash, update, delete },
            (Table::Array(_), _) => Self { look_up: look_up_array, update, delete },
            (Table::Trie(_), _) => Self { look_up: look_up_trie, update, delete },
            (Table::Targets(_), _) => Self { look_up: look_up_target, update, delete },
            (Table::Members(_), _) => Self { look_up: look_up_member, update: update_member, delete },
            (Table::References(_), _) => Self { look_up: look_up_reference, update, delete },
            (
                Table::Queue(_)
                | Table::Bloom(_)
                | Table::Ring(_)
                | Table::UserRing(_)
                | Table::Perf(_)
                | Table::Arena(_),
                _,
            ) => Self { look_up: look_up_nothing, update, delete },
        }
    }

    fn fast_path<const SIZE: usize, const WORDS: usize>(table: &Table) -> Self {
        let replaces = matches!(table, Table::Hash(hash) if hash.replaces_simply());
        Self {
            look_up: look_up_fast_path::<SIZE, WORDS>,
            update: if replaces { replace_fast_path::<SIZE, WORDS> } else { update },
            delete: delete_fast_path::<SIZE, WORDS>,
        }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}

/// A function for one kind of table, which passes its contract on.
macro_rules! look_up {
    ($name:ident, $kind:ident, |$table:ident, $key:ident, $cpu:ident| $call:expr) => {
        unsafe extern "C" fn $name(map: &Map, $key: *const u8, $cpu: u32) -> *mut u8 {
            let Table::$kind($table) = &map.table else { return ptr::null_mut() };
            // SAFETY: by the caller's contract.
            unsafe { $call }
        }
    };
}

look_up!(look_up_hash, Hash, |hash, key, cpu| hash.lookup(key, cpu));
look_up!(look_up_array, Array, |array, key, cpu| array.lookup(key, cpu));
look_up!(look_up_member, Members, |members, key, cpu| members.look_up(key, cpu));
look_up!(look_up_trie, Trie, |trie, key, cpu| trie.lookup(key, cpu));
look_up!(look_up_target, Targets, |targets, key, _cpu| targets.lookup(key));
// Programs cannot look up programs. In a map of maps the result is a handle.
look_up!(look_up_reference, References, |maps, key, cpu| {
    ptr::with_exposed_provenance_mut(maps.find(key, cpu) as usize)
});

unsafe extern "C" fn look_up_nothing(_: &Map, _: *const u8, _: u32) -> *mut u8 {
    ptr::null_mut()
}

unsafe extern "C" fn look_up_fast_path<const SIZE: usize, const WORDS: usize>(
    map: &Map,
    key: *const u8,
    cpu: u32,
) -> *mut u8 {
    let Table::Hash(hash) = &map.table else { return ptr::null_mut() };
    // SAFETY: by the caller's contract; `of` has checked the key size.
    unsafe {
        match FastPath::<SIZE, WORDS>::lookup_fast(hash, key, cpu) {
            Some(value) => value,
            None => look_up_again::<SIZE, WORDS>(map, key, cpu),
        }
    }
}

/// Mostly the first look-up of a section, by a reader that has announced no era yet.
#[cold]
#[inline(never)]
unsafe extern "C" fn look_up_again<const SIZE: usize, const WORDS: usize>(
    map: &Map,
    key: *const u8,
    cpu: u32,
) -> *mut u8 {
    let Table::Hash(hash) = &map.table else { return ptr::null_mut() };
    // SAFETY: as above.
    unsafe {
        hash.announce(cpu);
        match FastPath::<SIZE, WORDS>::lookup_fast(hash, key, cpu) {
            Some(value) => value,
            None => look_up_hash(map, key, cpu),
        }
    }
}

#[inline(never)]
unsafe extern "C" fn update(map: &Map, key: *const u8, value: *const u8, flags: u64, cpu: u32) -> i64 {
    let Some(flags) = UpdateFlags::from_number(flags) else { return -i64::from(errno::EINVAL) };
    if let (true, Table::Array(array)) = (flags.is_locked(), &map.table)
        // Programs are told of an index beyond the end before they are told of a missing lock, hosts of the lock.
        // SAFETY: by the caller's contract.
        && let Err(error) = unsafe { array.admits(key, flags) }
    {
        return status(Err(error));
    }
    // SAFETY: by the caller's contract.
    status(unsafe { map.update_at(key, Source::Cpu(value, cpu), flags, Caller::Cpu(cpu)) })
}

/// The value is an object that a program may pass, which the runtime turns into an element.
unsafe extern "C" fn update_member(map: &Map, key: *const u8, value: *const u8, flags: u64, cpu: u32) -> i64 {
    let Table::Members(members) = &map.table else { return -i64::from(errno::EOPNOTSUPP) };
    let Some(make) = members.maker() else { return -i64::from(errno::EOPNOTSUPP) };
    // SAFETY: by the caller's contract, which for such maps is that of the function and of `set_member_ptr`.
    unsafe {
        match make(value.addr() as u64) {
            Ok(member) => map.set_member_ptr(key, member, flags, cpu),
            Err(errno) => -i64::from(errno),
        }
    }
}

unsafe extern "C" fn replace_fast_path<const SIZE: usize, const WORDS: usize>(
    map: &Map,
    key: *const u8,
    value: *const u8,
    flags: u64,
    cpu: u32,
) -> i64 {
    if let (Table::Hash(hash), Some(mode)) = (&map.table, UpdateFlags::without_lock(flags))
        // SAFETY: by the caller's contract; `fast_path` has checked the key size and the kind of table.
        && unsafe { FastPath::<SIZE, WORDS>::replace_fast(hash, key, value, mode, cpu) }
    {
        return 0;
    }
    // SAFETY: as above.
    unsafe { update(map, key, value, flags, cpu) }
}

unsafe extern "C" fn delete(map: &Map, key: *const u8, cpu: u32) -> i64 {
    // SAFETY: by the caller's contract.
    status(unsafe { map.delete_at(key, Caller::Cpu(cpu)) })
}

unsafe extern "C" fn delete_fast_path<const SIZE: usize, const WORDS: usize>(
    map: &Map,
    key: *const u8,
    cpu: u32,
) -> i64 {
    let Table::Hash(hash) = &map.table else {
        // SAFETY: by the caller's contract.
        return unsafe { delete(map, key, cpu) };
    };
    // SAFETY: by the caller's contract; `of` has checked the key size.
    match unsafe { FastPath::<SIZE, WORDS>::delete(hash, key, Caller::Cpu(cpu)) } {
        Ok(()) => 0,
        Err(error) => refused(error),
    }
}

#[cold]
#[inline(never)]
fn refused(error: OpError) -> i64 {
    status(Err(error))
}
