//! Maps for tests.
#![allow(dead_code, unreachable_pub, reason = "every test file uses some of it")]

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, MapError, Options};
use skep_rcu::Section;

pub const CPUS: u32 = 4;

/// A definition of a map named `m`, with the flags that its kind needs.
pub fn def(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    let flags = if kind == MapKind::LpmTrie { MapFlags::NO_PREALLOC } else { MapFlags::default() };
    MapDef { flags, ..MapDef::new("m", kind, key_size, value_size, max_entries) }
}

pub fn create(def: &MapDef) -> Result<Map, MapError> {
    Map::create(def, &Options { cpus: CPUS, limit: 1 << 30 })
}

pub fn map(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> Map {
    create(&def(kind, key_size, value_size, max_entries)).unwrap()
}

/// The key of a trie.
pub fn prefix(len: u32, data: &[u8]) -> Vec<u8> {
    [&len.to_ne_bytes(), data].concat()
}

/// The calling thread, as [`stays_asleep`] knows it.
pub fn thread_id() -> libc::pid_t {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process sleeps in the kernel and stays asleep for `looks` checks, at least a millisecond
/// apart. A woken thread does not count as asleep, even while it waits for a CPU.
pub fn stays_asleep(thread: libc::pid_t, looks: u32) -> bool {
    (0..looks).all(|_| {
        std::thread::sleep(Duration::from_millis(1));
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
    })
}

/// For a CPU: the thread's own.
pub const OWN: u32 = u32::MAX;

/// Runs the closure as a program does, inside a section. Its CPU is the given one for per-CPU kinds (no other thread
/// may use or own that CPU meanwhile), and the thread's own for other kinds.
pub fn inside<R>(map: &Map, cpu: u32, work: impl FnOnce(u32) -> R) -> R {
    let section = enter(map);
    work(if map.kind().is_per_cpu() && cpu != OWN { cpu } else { section.number() })
}

/// Enters a section. Threads that have ended but were not joined yet may still have their slots.
fn enter(map: &Map) -> Section<'_> {
    loop {
        match map.reuse().domain.enter() {
            Ok(section) => return section,
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Looks up as a program does; returns a copy of the value.
pub fn program_lookup(map: &Map, key: &[u8], cpu: u32) -> Option<Vec<u8>> {
    assert_eq!(key.len(), map.def().key_size as usize);
    let mut value = vec![0; map.def().value_size as usize];
    // SAFETY: the key has the map's size, the CPU is the thread's, and values are read byte by byte with atomic loads
    // because other threads of a test may write there.
    inside(map, cpu, |cpu| unsafe {
        let at = map.lookup_ptr(key.as_ptr(), cpu);
        if at.is_null() {
            return None;
        }
        for (i, byte) in value.iter_mut().enumerate() {
            *byte = (*at.add(i).cast::<AtomicU8>()).load(Ordering::Relaxed);
        }
        Some(())
    })?;
    Some(value)
}

/// Updates as a program does.
pub fn program_update(map: &Map, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> i64 {
    assert_eq!((key.len(), value.len()), (map.def().key_size as usize, map.def().value_size as usize));
    // SAFETY: both have the map's sizes, and the CPU is the thread's.
    inside(map, cpu, |cpu| unsafe { map.update_ptr(key.as_ptr(), value.as_ptr(), flags, cpu) })
}

/// Deletes as a program does, on the thread's own CPU.
pub fn program_delete(map: &Map, key: &[u8]) -> i64 {
    assert_eq!(key.len(), map.def().key_size as usize);
    let section = enter(map);
    // SAFETY: the key has the map's size, and the CPU is the thread's.
    unsafe { map.delete_ptr(key.as_ptr(), section.number()) }
}
