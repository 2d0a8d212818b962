//! Refusals, with their texts and error numbers.

use crate::common::{CPUS, create, def, map, prefix, program_delete, program_lookup, program_update};
use skep_abi::{MapDef, MapFlags, MapKind, SpecialField, SpecialKind};
use skep_maps::{Map, MapError, Options, UpdateFlags, lock};

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, MapError>, errno: i32, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), text);
    assert_eq!(error.errno(), errno, "{text}");
}

fn with_flags(kind: MapKind, flags: u32) -> MapDef {
    let key_size = if kind.is_array() { 4 } else { 8 };
    MapDef { flags: MapFlags(flags), ..def(kind, key_size, 8, 10) }
}

#[test]
fn an_unsupported_kind_is_refused_with_the_list_of_kinds() {
    let provided = [
        MapKind::Hash,
        MapKind::Array,
        MapKind::ProgArray,
        MapKind::ArrayOfMaps,
        MapKind::HashOfMaps,
        MapKind::PercpuHash,
        MapKind::PercpuArray,
        MapKind::LruHash,
        MapKind::LruPercpuHash,
        MapKind::LpmTrie,
        MapKind::Queue,
        MapKind::Stack,
        MapKind::BloomFilter,
        MapKind::Ringbuf,
        MapKind::LruHash,
        MapKind::LruPercpuHash,
    ];
    for &kind in MapKind::ALL {
        let keyless =
            matches!(kind, MapKind::Queue | MapKind::Stack | MapKind::BloomFilter | MapKind::Ringbuf);
        let key_size = if keyless { 0 } else { 8 - 4 * u32::from(kind.is_array()) };
        let refers = matches!(kind, MapKind::ProgArray | MapKind::ArrayOfMaps | MapKind::HashOfMaps);
        let ring = kind == MapKind::Ringbuf;
        let value_size = if refers { 4 } else { 8 * u32::from(!ring) };
        let result = create(&def(kind, key_size, value_size, if ring { 4096 } else { 1 }));
        if provided.contains(&kind) {
            assert_eq!(result.unwrap().kind(), kind);
        } else if let Err(error @ MapError::KindNotProvided { .. }) = result {
            let text = error.to_string();
            let start = format!("map `m`: maps of kind {kind} are not provided yet; hash, array, prog_array");
            assert!(text.starts_with(&start) && text.ends_with(" are"), "{text}");
            assert_eq!(error.errno(), 22);
            assert!(!text[start.len()..].contains(kind.name()), "{text}");
        }
    }
    let storage = create(&def(MapKind::StructOps, 4, 8, 1));
    assert!(matches!(storage, Err(MapError::KindNotProvided { .. })));
}

#[test]
fn invalid_sizes_of_a_kind_are_refused() {
    for key_size in [0, 2, 8] {
        refused(
            create(&def(MapKind::Array, key_size, 8, 10)),
            22,
            &format!("map `m`: key size {key_size} is invalid: kind array requires 4: a u32 index"),
        );
    }
    for (key_size, errno) in [(0, 22), (4_194_241, 7), (u32::MAX, 7)] {
        refused(
            create(&def(MapKind::PercpuHash, key_size, 8, 10)),
            errno,
            &format!("map `m`: key size {key_size} is invalid: kind percpu_hash requires 1 to 4194240"),
        );
    }
    for key_size in [0, 4, 261] {
        refused(
            create(&def(MapKind::LpmTrie, key_size, 8, 10)),
            22,
            &format!(
                "map `m`: key size {key_size} is invalid: kind lpm_trie requires 5 to 260: \
                 a u32 prefix length and 1 to 256 bytes of data"
            ),
        );
    }
    refused(
        create(&def(MapKind::Hash, 4, 0, 10)),
        22,
        "map `m`: value size 0 is invalid: kind hash requires at least 1",
    );
    refused(
        create(&def(MapKind::Hash, 4, 8, 0)),
        22,
        "map `m`: max_entries is 0: set it to the most elements that the map may hold",
    );
    refused(
        Map::create(&def(MapKind::PercpuArray, 4, 8, 1), &Options { cpus: 0, limit: 1 << 20 }),
        22,
        "map `m`: 0 virtual CPUs: request at least 1",
    );
}

#[test]
fn invalid_flags_of_a_kind_are_refused() {
    // BPF_F_NO_PREALLOC (1) on an array; BPF_F_MMAPABLE (0x400) on a hash table; an unknown flag.
    refused(
        create(&with_flags(MapKind::Array, 1)),
        22,
        "map `m`: flags 0x1 contain 0x1, which kind array does not provide; it provides 0x1580",
    );
    refused(
        create(&with_flags(MapKind::Hash, 0x481)),
        22,
        "map `m`: flags 0x481 contain 0x400, which kind hash does not provide; it provides 0x1c1",
    );
    refused(
        create(&with_flags(MapKind::PercpuArray, 1 << 31)),
        22,
        "map `m`: flags 0x80000000 contain 0x80000000, which kind percpu_array does not provide; \
         it provides 0x180",
    );
    refused(
        create(&with_flags(MapKind::LpmTrie, 0)),
        22,
        "map `m`: an lpm_trie needs the flag BPF_F_NO_PREALLOC: add __uint(map_flags, BPF_F_NO_PREALLOC)",
    );
    refused(
        create(&with_flags(MapKind::Array, 0x180)),
        22,
        "map `m`: the flags BPF_F_RDONLY_PROG (0x80) and BPF_F_WRONLY_PROG (0x100) exclude each other: \
         leave one out",
    );
    for (kind, flags) in [
        (MapKind::Array, 0),
        (MapKind::Array, 0x480),
        (MapKind::Array, 0x100),
        (MapKind::PercpuArray, 0x80),
        (MapKind::Hash, 1),
        (MapKind::PercpuHash, 0x81),
        (MapKind::LpmTrie, 0x101),
    ] {
        assert_eq!(create(&with_flags(kind, flags)).unwrap().def().flags, MapFlags(flags));
    }
}

#[test]
fn maps_beyond_the_limit_are_refused_with_their_size() {
    let create = |def: &MapDef| Map::create(def, &Options { cpus: CPUS, limit: 100_000 });
    // An array of 12,500 values of 8 bytes takes the 100,000 bytes, rounded to cache lines, with slack.
    refused(
        create(&def(MapKind::Array, 4, 8, 12_500)),
        7,
        "map `m`: 12500 elements need 100080 bytes, more than the limit of 100000: lower max_entries or raise the limit",
    );
    assert!(create(&def(MapKind::Array, 4, 8, 12_480)).is_ok());
    refused(
        create(&def(MapKind::PercpuArray, 4, 8, 12_480)),
        7,
        "map `m`: 12480 elements need 399408 bytes, more than the limit of 100000: lower max_entries or raise the limit",
    );
    // A preallocated hash table counts all its elements; one that allocates on demand does not.
    let table = MapDef { max_entries: 4_000, ..def(MapKind::Hash, 4, 8, 1) };
    let MapError::TooLarge { bytes, max_entries: 4_000, limit: 100_000, .. } = create(&table).unwrap_err()
    else {
        panic!()
    };
    // 4096 buckets of 16 bytes, 4000 elements of 32, and some pages that each CPU may keep for itself.
    assert!((65_536 + 128_000..290_000).contains(&bytes), "{bytes}");
    assert!(create(&MapDef { flags: MapFlags::NO_PREALLOC, ..table }).is_ok());

    // Sizes that overflow are too large, not small.
    for kind in [MapKind::Array, MapKind::PercpuArray, MapKind::Hash, MapKind::PercpuHash] {
        let huge = def(kind, 4, u32::MAX, u32::MAX);
        let error = Map::create(&huge, &Options { cpus: 1 << 16, limit: 1 << 40 }).unwrap_err();
        assert!(matches!(error, MapError::TooLarge { .. }), "{kind}: {error}");
        assert_eq!(error.errno(), 7);
    }
    // A trie allocates memory as elements are inserted, but here even the first piece is too large.
    let error = Map::create(&def(MapKind::LpmTrie, 8, 8, 1_000_000), &Options { cpus: 1, limit: 1_000 });
    assert!(matches!(error.unwrap_err(), MapError::TooLarge { limit: 1_000, .. }));
}

#[test]
fn insertions_beyond_the_limit_return_enomem() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie] {
        let def = MapDef { flags: MapFlags::NO_PREALLOC, ..def(kind, 8, 1000, 10_000) };
        let map = Map::create(&def, &Options { cpus: CPUS, limit: 2_000_000 }).unwrap();
        let value = vec![7; map.host_value_size()];
        let key = |number: u32| prefix(32, &number.to_be_bytes());
        let mut number = 0;
        let error = loop {
            match map.update(&key(number), &value, UpdateFlags::NoExist) {
                Ok(()) => number += 1,
                Err(error) => break error,
            }
        };
        assert!((350..2_000).contains(&number), "{kind}: {number} elements");
        assert_eq!(error.errno(), 12);
        let text = error.to_string();
        assert!(text.starts_with("map `m`: no memory: "), "{text}");
        assert!(text.contains("exceed its limit of"), "{text}");
        assert_eq!(program_update(&map, &key(number), &value[..1000], 0, 0), -12);
        assert!(map.memory() <= 2_000_000);
        assert_eq!(map.len(), number);
        // Existing elements can still be read, and deleted to make room.
        assert_eq!(map.lookup(&key(number - 1)).unwrap().as_ref(), Some(&value));
        map.delete(&key(0)).unwrap();
        map.delete(&key(1)).unwrap();
        let begin = std::time::Instant::now();
        while let Err(error) = map.update(&key(number), &value, UpdateFlags::Any) {
            // Deleted elements wait for readers, and the keeper may wait for a CPU.
            assert!(error.errno() == 12 && begin.elapsed().as_secs() < 30, "{error}");
        }
    }
}

#[test]
fn keys_and_values_of_wrong_length_are_refused() {
    let map = map(MapKind::PercpuArray, 4, 12, 3);
    let value = vec![0; 16 * CPUS as usize];
    let text = "map `m`: the key has 5 bytes instead of 4";
    refused(map.lookup(&[0; 5]), 22, text);
    refused(map.lookup_into(&[0; 5], &mut [0; 64]), 22, text);
    refused(map.update(&[0; 5], &value, UpdateFlags::Any), 22, text);
    refused(map.delete(&[0; 5]), 22, text);
    refused(map.next_key(Some(&[0; 5])), 22, text);
    let text =
        "map `m`: the value has 12 bytes instead of 64 (4 CPUs with 12 bytes each, in whole words of 8)";
    refused(map.update(&[0; 4], &[0; 12], UpdateFlags::Any), 22, text);
    refused(map.lookup_into(&[0; 4], &mut [0; 12]), 22, text);
    let map = crate::common::map(MapKind::Hash, 4, 12, 3);
    let text = "map `m`: the value has 16 bytes instead of 12";
    refused(map.update(&[0; 4], &[0; 16], UpdateFlags::Any), 22, text);
}

#[test]
fn arrays_refuse_what_linux_refuses() {
    for kind in [MapKind::Array, MapKind::PercpuArray] {
        let map = map(kind, 4, 8, 3);
        let value = vec![1; map.host_value_size()];
        let index = |index: u32| index.to_ne_bytes();
        refused(
            map.update(&index(3), &value, UpdateFlags::Any),
            7,
            "map `m`: index 3 is out of range (3 elements)",
        );
        refused(
            map.update(&index(0), &value, UpdateFlags::NoExist),
            17,
            "map `m`: key 00 00 00 00 exists already: update it with BPF_ANY or BPF_EXIST",
        );
        refused(
            map.delete(&index(0)),
            22,
            "map `m`: elements of an array cannot be deleted: write zeroes instead",
        );
        assert_eq!(map.lookup(&index(3)).unwrap(), None);
        assert_eq!(program_lookup(&map, &index(u32::MAX), 0), None);
        assert_eq!(program_update(&map, &index(3), &[0; 8], 0, 0), -7);
        assert_eq!(program_update(&map, &index(0), &[0; 8], 1, 0), -17);
        assert_eq!(program_update(&map, &index(0), &[0; 8], 2, 0), 0);
        assert_eq!(program_delete(&map, &index(0)), -22);
    }
}

#[test]
fn hash_tables_refuse_what_linux_refuses() {
    for kind in [MapKind::Hash, MapKind::PercpuHash] {
        let map = map(kind, 2, 8, 2);
        let value = vec![1; map.host_value_size()];
        map.update(&[0, 1], &value, UpdateFlags::NoExist).unwrap();
        refused(map.update(&[0, 2], &value, UpdateFlags::Exist), 2, "map `m`: there is no key 00 02");
        map.update(&[0, 2], &value, UpdateFlags::Any).unwrap();
        refused(
            map.update(&[0, 2], &value, UpdateFlags::NoExist),
            17,
            "map `m`: key 00 02 exists already: update it with BPF_ANY or BPF_EXIST",
        );
        refused(
            map.update(&[0xab, 0xcd], &value, UpdateFlags::Any),
            7,
            "map `m`: no room for key ab cd: the map is full (2 elements); delete some or raise max_entries",
        );
        refused(map.delete(&[9, 9]), 2, "map `m`: there is no key 09 09");
        // A full table can still be updated.
        map.update(&[0, 1], &value, UpdateFlags::Any).unwrap();
        assert_eq!(program_update(&map, &[9, 9], &[0; 8], 0, 0), -7);
        assert_eq!(program_update(&map, &[9, 9], &[0; 8], 2, 0), -2);
        assert_eq!(program_update(&map, &[0, 1], &[0; 8], 1, 0), -17);
        assert_eq!(program_delete(&map, &[9, 9]), -2);
    }
    // Messages truncate long keys.
    let map = map(MapKind::Hash, 100, 1, 1);
    let error = map.delete(&[0x5a; 100]).unwrap_err().to_string();
    assert_eq!(error, format!("map `m`: there is no key {}5a ... (100 bytes)", "5a ".repeat(39)));
}

#[test]
fn tries_refuse_what_linux_refuses() {
    let map = map(MapKind::LpmTrie, 8, 8, 2);
    let [a, b, c] = [(8, 10), (9, 10), (32, 11)].map(|(len, first)| prefix(len, &[first, 0, 0, 0]));
    map.update(&a, &[1; 8], UpdateFlags::NoExist).unwrap();
    // A longer or a shorter prefix is another key.
    refused(
        map.update(&b, &[1; 8], UpdateFlags::Exist),
        2,
        "map `m`: there is no key 09 00 00 00 0a 00 00 00",
    );
    map.update(&b, &[2; 8], UpdateFlags::NoExist).unwrap();
    refused(
        map.update(&c, &[1; 8], UpdateFlags::Any),
        28,
        "map `m`: no room for key 20 00 00 00 0b 00 00 00: the map is full (2 elements); delete some or raise max_entries",
    );
    map.update(&a, &[3; 8], UpdateFlags::Exist).unwrap();
    assert_eq!(program_update(&map, &c, &[0; 8], 0, 0), -28);

    let long = prefix(33, &[10, 0, 0, 0]);
    let text = "map `m`: prefix length 33 exceeds the key's 32 bits of data";
    refused(map.lookup(&long), 22, text);
    refused(map.update(&long, &[0; 8], UpdateFlags::Any), 22, text);
    refused(map.delete(&long), 22, text);
    assert_eq!(program_lookup(&map, &long, 0), None);
    assert_eq!(program_update(&map, &long, &[0; 8], 0, 0), -22);
    assert_eq!(program_delete(&map, &long), -22);
    assert_eq!(program_delete(&map, &prefix(10, &[10, 0, 0, 0])), -2);
}

#[test]
fn flags_of_updates_beyond_exist_are_refused_to_programs() {
    for kind in [MapKind::Array, MapKind::PercpuArray, MapKind::Hash, MapKind::PercpuHash, MapKind::LpmTrie] {
        let map = create(&with_flags(kind, if kind == MapKind::LpmTrie { 1 } else { 0 })).unwrap();
        let key = vec![0; map.def().key_size as usize];
        for flags in [3, 4, 8, 1 << 32, u64::MAX] {
            assert_eq!(program_update(&map, &key, &[1; 8], flags, 0), -22, "{kind} {flags:#x}");
        }
        assert_eq!(program_update(&map, &key, &[1; 8], 0, 0), 0);
    }
    for flags in [UpdateFlags::Any, UpdateFlags::NoExist, UpdateFlags::Exist] {
        assert_eq!(UpdateFlags::from_number(flags.number()), Some(flags));
    }
}

#[test]
fn a_frozen_map_is_read_only_for_the_host_alone() {
    for kind in [MapKind::Array, MapKind::Hash, MapKind::LpmTrie] {
        let map = create(&with_flags(kind, if kind == MapKind::LpmTrie { 1 } else { 0 })).unwrap();
        let key = vec![0; map.def().key_size as usize];
        map.update(&key, &[1; 8], UpdateFlags::Any).unwrap();
        assert!(!map.is_frozen());
        map.freeze().unwrap();
        assert!(map.is_frozen());
        let text = "map `m` is frozen: the host can no longer change it";
        refused(map.update(&key, &[2; 8], UpdateFlags::Any), 1, text);
        refused(map.delete(&key), 1, text);
        assert_eq!(map.lookup(&key).unwrap(), Some(vec![1; 8]));
        assert_eq!(program_update(&map, &key, &[3; 8], 0, 0), 0);
        assert_eq!(map.lookup(&key).unwrap(), Some(vec![3; 8]));
    }
}

#[test]
fn maps_of_references_neither_accept_nor_return_bytes() {
    let kinds =
        [(MapKind::ProgArray, "programs"), (MapKind::ArrayOfMaps, "maps"), (MapKind::HashOfMaps, "maps")];
    for (kind, what) in kinds {
        refused(
            create(&def(kind, 4, 8, 1)),
            22,
            &format!("map `m`: value size 8 is invalid: kind {kind} requires 4"),
        );
        let map = create(&def(kind, 4, 4, 3)).unwrap();
        let message = format!("map `m` holds {what}, not bytes: insert {what} instead");
        refused(map.update(&[0; 4], &[0; 4], UpdateFlags::Any), 22, &message);
        refused(map.delete(&[0; 4]), 22, &message);
        refused(map.lookup(&[0; 4]), 22, &message);
        assert_eq!((map.len(), map.entries().count(), map.next_key(None).unwrap()), (0, 0, None));
        let table = map.references().unwrap();
        assert_eq!((table.len(), table.entry(2), table.entry(3)), (3, 0, 0));
        assert_eq!(map.programs().is_some(), kind == MapKind::ProgArray);
    }
}

#[test]
fn look_ups_return_the_reference_that_was_stored() {
    for (kind, key_size) in [(MapKind::ArrayOfMaps, 4), (MapKind::HashOfMaps, 4), (MapKind::HashOfMaps, 13)] {
        let map = create(&def(kind, key_size, 4, 3)).unwrap();
        let key = |number: u8| {
            let mut key = vec![0; key_size as usize];
            key[0] = number;
            key
        };
        // SAFETY: these references are never followed.
        let put = |number: u8, address: u64| unsafe { map.set_reference(&key(number), address) };
        let found = |number: u8| {
            let section = map.reuse().domain.enter().unwrap();
            // SAFETY: the key has the map's size, and the CPU is the thread's.
            unsafe { map.lookup_ptr(key(number).as_ptr(), section.number()) }.addr()
        };
        for number in 0..3 {
            put(number, 100 + u64::from(number)).unwrap();
        }
        put(1, 200).unwrap();
        assert_eq!(([0, 1, 2, 3].map(found), map.len()), ([100, 200, 102, 0], 3), "{kind}");
        let mut keys = map.reference_keys();
        keys.sort_unstable();
        let expected: Vec<_> = (0..3).map(key).filter(|_| kind == MapKind::HashOfMaps).collect();
        assert_eq!(keys, expected);
        let error = put(3, 103).unwrap_err();
        assert_eq!(error.errno(), 7, "{error}");
        for number in [1, 1] {
            put(number, 0).unwrap();
        }
        assert_eq!(([0, 1, 2, 3].map(found), map.len()), ([100, 0, 102, 0], 2));
        // SAFETY: as above.
        let short = unsafe { map.set_reference(&[0; 3], 1) };
        assert!(matches!(short, Err(MapError::KeyLength { .. })), "{short:?}");
    }
    let hash = map(MapKind::Hash, 4, 8, 1);
    // SAFETY: no reference is stored.
    let result = unsafe { hash.set_reference(&[0; 4], 1) };
    refused(result, 22, "map `m`: maps of kind hash hold neither programs nor maps");
}

fn with_fields(kind: MapKind, fields: Vec<SpecialField>) -> MapDef {
    MapDef { fields, ..with_flags(kind, def(kind, 8, 8, 1).flags.0) }
}

fn field(kind: SpecialKind, offset: u32, size: u32) -> SpecialField {
    SpecialField { kind, offset, size }
}

#[test]
fn special_fields_need_their_alignment_and_room() {
    let lock = |offset| field(SpecialKind::SpinLock, offset, 4);
    let kept = |offset, size| field(SpecialKind::KptrUntrusted { to: 1 }, offset, size);
    for kind in [MapKind::Array, MapKind::Hash] {
        create(&with_fields(kind, vec![lock(0)])).unwrap();
        create(&with_fields(kind, vec![lock(4)])).unwrap();
        create(&with_fields(kind, vec![kept(0, 8)])).unwrap();
    }
    let bad = [
        (vec![lock(8)], 8, 4),
        (vec![lock(u32::MAX - 3)], u32::MAX - 3, 4),
        (vec![lock(2)], 2, 4),
        (vec![lock(4), lock(0)], 0, 4),
        (vec![lock(0), field(SpecialKind::Timer, 0, 8)], 0, 8),
        (vec![field(SpecialKind::Timer, 0, 3)], 0, 3),
        (vec![field(SpecialKind::Timer, 0, 0)], 0, 0),
        (vec![field(SpecialKind::SpinLock, 0, 8)], 0, 8),
        (vec![kept(0, 4)], 0, 4),
        (vec![kept(4, 4)], 4, 4),
    ];
    for (fields, offset, size) in bad {
        let text = format!(
            "map `m`: values of 8 bytes cannot hold a special field of {size} bytes at {offset}: fields ascend, begin and \
             end at multiples of 4, and lie inside of the value; a lock has 4 bytes, and a kept pointer 8 at a multiple of 8"
        );
        refused(create(&with_fields(MapKind::Array, fields)), 22, &text);
    }
}

/// Every supported kind, with its key size.
const KINDS: [(MapKind, u32); 14] = [
    (MapKind::Hash, 8),
    (MapKind::Array, 4),
    (MapKind::ProgArray, 4),
    (MapKind::ArrayOfMaps, 4),
    (MapKind::HashOfMaps, 8),
    (MapKind::PercpuHash, 8),
    (MapKind::PercpuArray, 4),
    (MapKind::LruHash, 8),
    (MapKind::LruPercpuHash, 8),
    (MapKind::LpmTrie, 8),
    (MapKind::Queue, 0),
    (MapKind::Stack, 0),
    (MapKind::BloomFilter, 0),
    (MapKind::Ringbuf, 0),
];

/// A map of that kind, valid except for the field.
fn of_kind(kind: MapKind, key_size: u32, value_size: u32, fields: Vec<SpecialField>) -> MapDef {
    let entries = if kind == MapKind::Ringbuf { 65536 } else { 4 };
    let value_size = match kind {
        MapKind::ProgArray | MapKind::ArrayOfMaps | MapKind::HashOfMaps => 4,
        MapKind::Ringbuf => 0,
        _ => value_size,
    };
    let flags = if kind == MapKind::LpmTrie { MapFlags::NO_PREALLOC } else { MapFlags(0) };
    MapDef { fields, flags, ..MapDef::new("m", kind, key_size, value_size, entries) }
}

#[test]
fn kinds_without_special_fields_refuse_them_by_name() {
    let cases = [
        (
            field(SpecialKind::SpinLock, 0, 4),
            "struct bpf_spin_lock",
            "hash, array, sk_storage, inode_storage, task_storage, cgrp_storage and cgroup_storage",
        ),
        (field(SpecialKind::Timer, 0, 16), "struct bpf_timer", "hash, array and lru_hash"),
        (field(SpecialKind::Workqueue, 0, 16), "struct bpf_wq", "hash, array and lru_hash"),
        (
            field(SpecialKind::KptrUntrusted { to: 1 }, 0, 8),
            "__kptr_untrusted pointer",
            "hash, array, percpu_hash, percpu_array, lru_hash, lru_percpu_hash, sk_storage, inode_storage, task_storage and \
             cgrp_storage",
        ),
        (
            field(SpecialKind::Kptr { to: 1 }, 0, 8),
            "__kptr pointer",
            "hash, array, percpu_hash, percpu_array, lru_hash, lru_percpu_hash, sk_storage, inode_storage, task_storage and \
             cgrp_storage",
        ),
    ];
    for (field, name, allowed) in cases {
        for (kind, key_size) in KINDS {
            create(&of_kind(kind, key_size, 24, vec![])).unwrap();
            let made = create(&of_kind(kind, key_size, 24, vec![field.clone()]));
            if allowed.split([',', ' ']).any(|word| word == kind.name()) {
                made.unwrap();
                continue;
            }
            let text = format!(
                "map `m`: values of kind {kind} cannot hold a {name}, as in Linux; those of {allowed} can"
            );
            refused(made, 95, &text);
        }
    }
    let uptr = of_kind(MapKind::Hash, 8, 24, vec![field(SpecialKind::Uptr { to: 1 }, 0, 8)]);
    let text = "map `m`: values of kind hash cannot hold a __uptr pointer, as in Linux; no kind that is provided can";
    let storage = MapDef {
        flags: MapFlags::NO_PREALLOC,
        max_entries: 0,
        fields: vec![field(SpecialKind::Uptr { to: 1 }, 0, 8)],
        ..def(MapKind::TaskStorage, 4, 24, 0)
    };
    assert!(matches!(create(&storage), Err(MapError::FieldNotAllowed { allowed, .. }) if allowed.is_empty()));
    refused(create(&uptr), 95, text);
}

#[test]
fn an_invalid_template_is_refused_with_the_outer_map() {
    let kept = field(SpecialKind::KptrUntrusted { to: 1 }, 0, 8);
    let inner = MapDef { name: "m.inner".into(), ..of_kind(MapKind::LpmTrie, 8, 24, vec![kept]) };
    let outer = MapDef { inner: Some(Box::new(inner)), ..of_kind(MapKind::ArrayOfMaps, 4, 4, vec![]) };
    let error = create(&outer).unwrap_err().to_string();
    assert!(
        error.starts_with("map `m.inner`: values of kind lpm_trie cannot hold a __kptr_untrusted pointer"),
        "{error}"
    );
}

/// After any write the kept pointer is null, and no read shows other bytes in its place.
#[test]
fn no_way_to_write_a_value_writes_a_kept_pointer() {
    let holders = [
        MapKind::Hash,
        MapKind::Array,
        MapKind::PercpuHash,
        MapKind::PercpuArray,
        MapKind::LruHash,
        MapKind::LruPercpuHash,
    ];
    for (kind, key_size) in KINDS.into_iter().filter(|(kind, _)| holders.contains(kind)) {
        let def = of_kind(kind, key_size, 24, vec![field(SpecialKind::KptrUntrusted { to: 1 }, 8, 8)]);
        let map = create(&def).unwrap();
        let copies = map.host_value_size() / 24;
        let key = vec![0; key_size as usize];
        let host = vec![0xaa; map.host_value_size()];
        let one: Vec<u8> = [[0xaa; 8], [0; 8], [0xaa; 8]].concat();
        let seen = one.repeat(copies);
        let check = |door: &str| {
            assert_eq!(map.lookup(&key).unwrap().unwrap()[..24], seen[..24], "{kind} by {door}: the host");
            assert_eq!(program_lookup(&map, &key, 0).unwrap()[8..16], [0; 8], "{kind} by {door}: a program");
        };
        for round in ["a new element", "an old one", "another that was one"] {
            map.update(&key, &host, UpdateFlags::Any).unwrap();
            check(&format!("update of {round}"));
            assert_eq!(program_update(&map, &key, &[0xaa; 24], 0, 0), 0);
            check(&format!("a program's update of {round}"));
            map.update_batch([(&key, &host)], UpdateFlags::Any).unwrap();
            check(&format!("a batch over {round}"));
            let entries: Vec<_> = map.entries().filter(|(found, _)| *found == key).collect();
            assert_eq!(entries, [(key.clone(), map.lookup(&key).unwrap().unwrap())], "{kind}");
            let mut into = vec![0x77; map.host_value_size()];
            assert!(map.lookup_into(&key, &mut into).unwrap());
            assert_eq!(into[8..16], [0; 8], "{kind}");
            if !kind.is_array() {
                match round {
                    "an old one" => drop(map.delete(&key)),
                    _ => assert_eq!(map.lookup_and_delete(&key).unwrap().unwrap()[8..16], [0; 8], "{kind}"),
                }
            }
        }
    }
}

#[test]
fn a_value_has_one_lock_and_maps_of_maps_cannot_nest() {
    let field = |kind, offset| SpecialField { kind, offset, size: 4 };
    let fields = vec![field(SpecialKind::SpinLock, 0), field(SpecialKind::SpinLock, 4)];
    let text = "map `m`: the value has a second struct bpf_spin_lock at offset 4: remove one of them";
    refused(create(&with_fields(MapKind::Array, fields)), 17, text);
    let of = |inner| MapDef { inner: Some(Box::new(inner)), ..def(MapKind::ArrayOfMaps, 4, 4, 1) };
    let text =
        "map `m`: its inner maps are maps of maps: use inner maps of another kind, such as array or hash";
    refused(create(&of(of(def(MapKind::Array, 4, 8, 1)))), 22, text);
    create(&of(def(MapKind::Array, 4, 8, 1))).unwrap();
}

#[test]
fn a_map_created_frozen_has_its_contents() {
    let frozen = |kind, bytes: &[u8]| MapDef { frozen: Some(bytes.into()), ..def(kind, 4, 8, 2) };
    let map = create(&frozen(MapKind::Array, &[7; 8])).unwrap();
    assert_eq!((map.lookup(&[0; 4]), map.is_frozen()), (Ok(Some(vec![7; 8])), true));
    refused(
        map.update(&[0; 4], &[0; 8], UpdateFlags::Any),
        1,
        "map `m` is frozen: the host can no longer change it",
    );
    let text = |kind: &str, given: usize| {
        format!(
            "map `m`: frozen contents of {given} bytes do not fit kind {kind} with values of 8 bytes: only an \
             array without special fields can be created frozen, with one value"
        )
    };
    refused(create(&frozen(MapKind::Array, &[7; 7])), 22, &text("array", 7));
    refused(create(&frozen(MapKind::Hash, &[7; 8])), 22, &text("hash", 8));
    refused(create(&frozen(MapKind::PercpuArray, &[7; 8])), 22, &text("percpu_array", 8));
}

#[test]
fn lock_flags_need_a_lock_in_the_value() {
    for kind in [MapKind::Array, MapKind::PercpuArray, MapKind::Hash, MapKind::PercpuHash] {
        let map = map(kind, 4, 8, 4);
        let (key, value) = ([0; 4], vec![0; map.host_value_size()]);
        let text = "map `m`: values have no lock: leave BPF_F_LOCK out, or declare a struct bpf_spin_lock in their \
                    type";
        refused(map.update(&key, &value, UpdateFlags::Any.locked()), 22, text);
        refused(map.lookup_locked(&key), 22, text);
        assert_eq!(program_update(&map, &key, &[0; 8], 4, 0), -22);
    }
}

#[test]
fn a_thread_takes_one_lock_at_a_time() {
    let fields = vec![SpecialField { kind: SpecialKind::SpinLock, offset: 0, size: 4 }];
    let map = create(&with_fields(MapKind::Array, fields)).unwrap();
    let (key, value) = ([0; 4], [9; 8]);
    // SAFETY: the key has the map's size, and values begin with a lock; an array has no readers.
    let at = unsafe { map.lookup_ptr(key.as_ptr(), 0) };
    // SAFETY: this thread holds no lock.
    unsafe { lock::acquire(at) };
    let text = "map `m`: this thread already holds a value's lock";
    refused(map.update(&key, &value, UpdateFlags::Any.locked()), 16, text);
    refused(map.lookup_locked(&key), 16, text);
    assert_eq!(program_update(&map, &key, &value, 4, 0), -16);
    // Without the flag everything works as before, and the lock stays taken.
    map.update(&key, &value, UpdateFlags::Any).unwrap();
    assert_eq!(map.lookup(&key).unwrap().unwrap(), [0, 0, 0, 0, 9, 9, 9, 9]);
    assert_eq!(program_lookup(&map, &key, 0).unwrap()[..4], 1u32.to_ne_bytes());
    // SAFETY: taken above.
    unsafe { lock::release(at) };
    map.update(&key, &value, UpdateFlags::Any.locked()).unwrap();
    assert_eq!(program_lookup(&map, &key, 0).unwrap()[..4], [0; 4]);
}

#[test]
fn a_lock_in_read_only_values_is_refused() {
    for flag in [MapFlags::RDONLY_PROG, MapFlags::WRONLY_PROG] {
        let fields = vec![SpecialField { kind: SpecialKind::SpinLock, offset: 0, size: 4 }];
        let def = MapDef { fields, flags: flag, ..def(MapKind::Hash, 4, 8, 4) };
        assert_eq!(create(&def).unwrap_err().errno(), 13, "{flag:?}");
    }
}
