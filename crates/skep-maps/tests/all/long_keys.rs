//! Keys that no program's stack has room for: of more than 512 bytes, up to Linux's limit.

use skep_abi::{MapDef, MapKind};
use skep_maps::{BatchCursor, Map, MapError, Options, UpdateFlags};

const TABLES: [MapKind; 4] = [MapKind::Hash, MapKind::PercpuHash, MapKind::LruHash, MapKind::LruPercpuHash];

fn create(kind: MapKind, key_size: u32) -> Map {
    let def = MapDef::new("long", kind, key_size, 8, 8);
    Map::create(&def, &Options { cpus: 1, limit: 1 << 27 }).unwrap()
}

/// Keys that are the same but for one byte: the first, the last of the first 512, the one behind, the last.
fn keys(key_size: usize) -> [Vec<u8>; 4] {
    [0, 511, 512, key_size - 1].map(|at| {
        let mut key = vec![7; key_size];
        key[at] = 8;
        key
    })
}

#[test]
fn keys_of_any_length_are_told_apart_by_every_byte() {
    for kind in TABLES {
        for key_size in [514, 520, 4113, 1 << 20] {
            let map = create(kind, key_size);
            let keys = keys(key_size as usize);
            for (value, key) in (1u64..).zip(&keys) {
                assert_eq!(map.lookup(key), Ok(None), "{kind} {key_size}");
                map.update(key, &value.to_ne_bytes(), UpdateFlags::NoExist).unwrap();
            }
            for (value, key) in (1u64..).zip(&keys) {
                let again = map.update(key, &[0; 8], UpdateFlags::NoExist);
                assert!(matches!(again, Err(MapError::Exists { .. })), "{kind} {key_size}: {again:?}");
                assert_eq!(map.lookup(key).unwrap().unwrap(), value.to_ne_bytes(), "{kind} {key_size}");
            }
            let mut seen = Vec::new();
            let mut last = map.next_key(None).unwrap();
            while let Some(key) = last {
                last = map.next_key(Some(&key)).unwrap();
                seen.push(key);
            }
            seen.sort_unstable();
            let mut all = keys.to_vec();
            all.sort_unstable();
            assert_eq!(seen, all, "{kind} {key_size}");
            let mut cursor = BatchCursor::default();
            let mut batch = map.lookup_batch(&mut cursor, 8).unwrap();
            batch.sort_unstable();
            assert_eq!(batch.iter().map(|(key, _)| key).collect::<Vec<_>>(), all.iter().collect::<Vec<_>>());
            map.delete(&keys[2]).unwrap();
            assert_eq!(map.lookup(&keys[2]), Ok(None));
            assert_eq!(map.lookup_and_delete(&keys[3]).unwrap().unwrap(), 4u64.to_ne_bytes());
            let left = [0, 1].map(|at| map.lookup(&keys[at]).unwrap().is_some());
            assert_eq!((left, map.lookup(&keys[3])), ([true, true], Ok(None)), "{kind} {key_size}");
        }
    }
}

#[test]
fn the_longest_key_is_linuxs_and_a_longer_one_is_too_big() {
    const MOST: u32 = (4 << 20) - 64;
    for kind in TABLES {
        let def = MapDef::new("long", kind, MOST + 1, 8, 1);
        let error = Map::create(&def, &Options { cpus: 1, limit: 1 << 30 }).unwrap_err();
        assert_eq!(error.errno(), 7, "{kind}");
    }
    let map = create(MapKind::Hash, MOST);
    let key = vec![1; MOST as usize];
    map.update(&key, &[9; 8], UpdateFlags::Any).unwrap();
    assert_eq!(map.lookup(&key).unwrap().unwrap(), [9; 8]);
}
