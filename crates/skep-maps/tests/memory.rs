//! Addresses of values, and memory use of maps.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use common::{CPUS, create, def, map, prefix, program_lookup, program_update};
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, Options, Reclamation, UpdateFlags};

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PROVIDED: [MapKind; 5] =
    [MapKind::Array, MapKind::PercpuArray, MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie];

fn key(map: &Map, number: u32) -> Vec<u8> {
    match map.def().key_size {
        4 => number.to_ne_bytes().to_vec(),
        _ => prefix(32, &number.to_be_bytes()),
    }
}

#[test]
fn an_array_reports_and_frees_every_byte() {
    let memory = memory();
    for kind in [MapKind::Array, MapKind::PercpuArray] {
        let def = def(kind, 4, 100, 5_000);
        let before = LIVE.get();
        let map = Map::create_in(&memory, &def, &Options { cpus: 0, limit: 1 << 30 }).unwrap();
        // The copy of the definition (here a name of one byte) does not count as the map's memory.
        assert_eq!(LIVE.get() - before - 1, map.memory() as usize, "{kind}");
        drop(map);
        assert_eq!(LIVE.get(), before);
    }
}

#[test]
fn a_table_reports_its_pages_and_frees_unused_ones() {
    let memory = memory();
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie] {
        let def = def(kind, 8, 100, 5_000);
        let map = Map::create_in(&memory, &def, &Options { cpus: 0, limit: 1 << 30 }).unwrap();
        let empty = map.memory();
        let key = |number| key(&map, number);
        let value = vec![1; map.host_value_size()];
        for number in 0..5_000 {
            map.update(&key(number), &value, UpdateFlags::Any).unwrap();
        }
        let full = map.memory();
        let least = 5_000 * (8 + map.host_value_size() as u64);
        assert!((least..3 * least).contains(&(full - empty)), "{kind}: {full} of {least}");
        let stats = map.stats();
        assert_eq!((stats.bytes, stats.in_use >= 5_000), (full, true));
        for number in 0..5_000 {
            map.delete(&key(number)).unwrap();
        }
        let begin = std::time::Instant::now();
        while map.memory() > empty + (full - empty) / 4 {
            assert!(begin.elapsed().as_secs() < 30, "{kind}: {:?}", map.stats());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(map.stats().peak_bytes, stats.peak_bytes);
    }
}

fn memory() -> Reclamation {
    Reclamation::new(skep_rcu::Domain::new(CPUS).unwrap())
}

#[test]
fn a_hash_table_that_fits_the_limit_never_runs_out_of_memory() {
    for kind in [MapKind::Hash, MapKind::PercpuHash] {
        let def = def(kind, 8, 100, 3_000);
        let too_low = Map::create(&def, &Options { cpus: CPUS, limit: 1 }).unwrap_err();
        let skep_maps::MapError::TooLarge { bytes, .. } = too_low else { panic!("{too_low}") };
        let map = Map::create(&def, &Options { cpus: CPUS, limit: bytes }).unwrap();
        let value = vec![1; map.host_value_size()];
        for number in 0..3_000 {
            map.update(&key(&map, number), &value, UpdateFlags::NoExist).unwrap();
        }
        for number in 0..3_000 {
            map.update(&key(&map, number), &value, UpdateFlags::Exist).unwrap();
        }
        assert!(map.memory() <= bytes);
        assert!(Map::create(&def, &Options { cpus: CPUS, limit: bytes - 1 }).is_err());
    }
}

#[test]
fn compiled_code_and_the_helper_find_equal_addresses() {
    for (kind, value_size) in [(MapKind::Array, 13), (MapKind::PercpuArray, 13), (MapKind::PercpuArray, 8)] {
        let map = Arc::new(map(kind, 4, value_size, 50));
        let link = map.link();
        assert_eq!(link.handle, Arc::as_ptr(&map) as u64);
        let inline = link.inline.unwrap();
        assert_eq!(inline.max_entries, 50);
        assert!(inline.stride >= value_size && inline.stride.is_multiple_of(8));
        for cpu in 0..CPUS {
            for index in 0..50_u32 {
                let computed = inline.base
                    + u64::from(index) * u64::from(inline.stride)
                    + u64::from(cpu) * u64::from(inline.cpu_stride);
                // SAFETY: the key has 4 bytes, and the CPU is one that the map was made for.
                let found = unsafe { map.lookup_ptr(index.to_ne_bytes().as_ptr(), cpu) };
                assert_eq!(computed, found as u64);
            }
        }
        if kind == MapKind::Array {
            assert_eq!((link.value_base, inline.cpu_stride), (Some(inline.base), 0));
        } else {
            // No CPU's values share a cache line with another's.
            assert_eq!((inline.base % 64, inline.cpu_stride % 64, link.value_base), (0, 0, None));
        }
    }
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie] {
        let link = map(kind, 8, 8, 5).link();
        assert!(link.inline.is_none() && link.value_base.is_none());
    }
}

#[test]
fn values_are_aligned_for_atomic_instructions() {
    for kind in PROVIDED {
        for value_size in [1, 8, 12, 60] {
            let map = create(&def(kind, if kind.is_array() { 4 } else { 8 }, value_size, 9)).unwrap();
            for number in 0..9 {
                let key = key(&map, number);
                map.update(&key, &vec![1; map.host_value_size()], UpdateFlags::Any).unwrap();
                for cpu in 0..CPUS {
                    // SAFETY: the key has the map's size, and the CPU is one that it was made for.
                    let at = unsafe { map.lookup_ptr(key.as_ptr(), cpu) };
                    assert!(!at.is_null() && at.addr() % 8 == 0, "{kind}, {value_size} bytes");
                }
            }
        }
    }
}

#[test]
fn keys_and_values_of_programs_may_be_unaligned() {
    for kind in PROVIDED {
        for key_size in if kind.is_array() { 4..=4 } else { 5..=21 } {
            let map = create(&def(kind, key_size, 21, 9)).unwrap();
            let mut buffer = [0_u8; 96];
            for offset in 0..8 {
                let key = vec![offset as u8; key_size as usize];
                let mut key = if kind == MapKind::LpmTrie { prefix(8, &key[4..]) } else { key };
                if kind.is_array() {
                    key = (offset as u32).to_ne_bytes().to_vec();
                }
                buffer[offset..][..key.len()].copy_from_slice(&key);
                let value: Vec<u8> = (0..21).map(|i| i * 3 + offset as u8).collect();
                buffer[40 + offset..][..21].copy_from_slice(&value);
                let (key_at, value_at) = (&buffer[offset..], &buffer[40 + offset..]);
                // SAFETY: both slices are longer than the map's key and value.
                let done = unsafe { map.update_ptr(key_at.as_ptr(), value_at.as_ptr(), 0, 1) };
                assert_eq!(done, 0);
                assert_eq!(program_lookup(&map, &key, 1).as_ref(), Some(&value), "{kind} at {offset}");
                // SAFETY: as above.
                assert!(!unsafe { map.lookup_ptr(key_at.as_ptr(), 1) }.is_null());
            }
        }
    }
}

#[test]
fn a_value_may_be_copied_within_one_map() {
    for kind in PROVIDED {
        let map = create(&def(kind, if kind.is_array() { 4 } else { 8 }, 24, 9)).unwrap();
        let (from, to) = (key(&map, 1), key(&map, 2));
        let value: Vec<u8> = (1..25).collect();
        assert_eq!(program_update(&map, &from, &value, 0, 2), 0);
        // SAFETY: keys have the map's size; the value is at the address that the map returned.
        unsafe {
            let at = map.lookup_ptr(from.as_ptr(), 2);
            assert_eq!(map.update_ptr(to.as_ptr(), at, 0, 2), 0);
            assert_eq!(map.update_ptr(from.as_ptr(), at, 0, 2), 0);
        }
        assert_eq!(program_lookup(&map, &to, 2).as_ref(), Some(&value));
        assert_eq!(program_lookup(&map, &from, 2).as_ref(), Some(&value));
    }
}

#[test]
fn a_new_per_cpu_element_is_zero_on_other_cpus() {
    let map = create(&MapDef { flags: MapFlags::NO_PREALLOC, ..def(MapKind::PercpuHash, 4, 12, 1) }).unwrap();
    map.update(&[1; 4], &[0xee; 16 * CPUS as usize], UpdateFlags::Any).unwrap();
    map.delete(&[1; 4]).unwrap();
    assert_eq!(program_update(&map, &[2; 4], &[5; 12], 0, 3), 0);
    let mut expected = vec![0; 16 * CPUS as usize];
    expected[48..60].fill(5);
    assert_eq!(map.lookup(&[2; 4]).unwrap(), Some(expected));
}

#[test]
fn huge_maps_cost_nothing_until_they_are_used() {
    // 64 GiB of values. Under strict overcommit the refusal is correct.
    let def = def(MapKind::Array, 4, 1 << 20, 1 << 16);
    match Map::create(&def, &Options { cpus: 1, limit: 1 << 40 }) {
        Ok(map) => {
            let last = (u32::from(u16::MAX)).to_ne_bytes();
            assert_eq!(program_update(&map, &last, &vec![1; 1 << 20], 0, 0), 0);
            assert_eq!(program_lookup(&map, &last, 0), Some(vec![1; 1 << 20]));
            assert!(map.link().inline.is_some());
        }
        Err(error) => assert_eq!(error.errno(), 12),
    }
}

#[test]
fn arrays_too_large_for_inlined_look_ups_use_the_helper() {
    // 5 GiB for each CPU: too much for an InlineArray's 32 bits. Only the last value is touched.
    let def = def(MapKind::PercpuArray, 4, 1 << 20, 5 << 10);
    match Map::create(&def, &Options { cpus: 2, limit: 1 << 40 }) {
        Ok(map) => {
            assert!(map.link().inline.is_none());
            let last = ((5_u32 << 10) - 1).to_ne_bytes();
            assert_eq!(program_update(&map, &last, &vec![9; 1 << 20], 0, 1), 0);
            assert_eq!(program_lookup(&map, &last, 1), Some(vec![9; 1 << 20]));
        }
        Err(error) => assert_eq!(error.errno(), 12),
    }
}
