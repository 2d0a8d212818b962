//! Every kind against a plain model, from the host's side and from the programs', on random operations.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{CPUS, map, prefix, program_delete, program_lookup, program_update};
use proptest::prelude::*;
use skep_abi::MapKind;
use skep_maps::{Map, MapError, UpdateFlags};

/// One operation on one of few keys.
#[derive(Clone, Debug)]
enum Op {
    Lookup { key: usize, cpu: u32 },
    Update { key: usize, value: u8, flags: u64, program: Option<u32> },
    Delete { key: usize, program: bool },
    Walk,
}

fn ops(keys: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (0..keys, 0..CPUS).prop_map(|(key, cpu)| Op::Lookup { key, cpu }),
        6 => (0..keys, any::<u8>(), prop_oneof![4 => Just(0_u64), 1 => 0_u64..5], proptest::option::of(0..CPUS))
            .prop_map(|(key, value, flags, program)| Op::Update { key, value, flags, program }),
        3 => (0..keys, any::<bool>()).prop_map(|(key, program)| Op::Delete { key, program }),
        1 => Just(Op::Walk),
    ];
    proptest::collection::vec(op, 1..200)
}

/// What a map should be.
struct Model {
    kind: MapKind,
    value_size: usize,
    max_entries: usize,
    elements: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Model {
    fn of(map: &Map) -> Self {
        let def = map.def();
        let elements = if def.kind.is_array() {
            let zero = vec![0; map.host_value_size()];
            (0..def.max_entries).map(|index| (index.to_ne_bytes().to_vec(), zero.clone())).collect()
        } else {
            BTreeMap::new()
        };
        let (value_size, max_entries) = (def.value_size as usize, def.max_entries as usize);
        Self { kind: def.kind, value_size, max_entries, elements }
    }

    /// The key that an element is found under: of a trie, without the bits beyond its length.
    fn canonical(&self, key: &[u8]) -> Vec<u8> {
        if self.kind != MapKind::LpmTrie {
            return key.to_vec();
        }
        let (len, data) = split(key);
        let masked = data.iter().enumerate().map(|(i, byte)| {
            let bits = (len as usize).saturating_sub(i * 8).min(8);
            byte & !(0xff_u16 >> bits) as u8
        });
        prefix(len, &masked.collect::<Vec<u8>>())
    }

    fn find(&self, key: &[u8]) -> Option<&Vec<u8>> {
        if self.kind != MapKind::LpmTrie {
            return self.elements.get(key);
        }
        let (len, data) = split(key);
        (0..=len).rev().find_map(|len| self.elements.get(&self.canonical(&prefix(len, data))))
    }

    fn update(&mut self, key: &[u8], value: u8, flags: u64, program: Option<u32>) -> i32 {
        let Some(flags) = UpdateFlags::from_number(flags) else { return 22 };
        let key = self.canonical(key);
        if self.kind == MapKind::LpmTrie && split(&key).0 as usize > split(&key).1.len() * 8 {
            return 22;
        }
        let exists = self.elements.contains_key(&key);
        match flags {
            _ if self.kind.is_array() && !exists => return 7,
            UpdateFlags::NoExist if exists => return 17,
            UpdateFlags::Exist if !exists => return 2,
            _ if !exists && self.elements.len() == self.max_entries => {
                return if self.kind == MapKind::LpmTrie { 28 } else { 7 };
            }
            _ => {}
        }
        let cpus = if self.kind.is_per_cpu() { CPUS as usize } else { 1 };
        let stride = if cpus > 1 { self.value_size.next_multiple_of(8) } else { self.value_size };
        let element = self.elements.entry(key).or_insert_with(|| vec![0; cpus * stride]);
        for (cpu, of_cpu) in element.chunks_mut(stride).enumerate() {
            if cpus == 1 || program.is_none_or(|program| program as usize == cpu) {
                let bytes = value_bytes(value, if program.is_some() { 0 } else { cpu }, self.value_size);
                of_cpu[..self.value_size].copy_from_slice(&bytes);
            }
        }
        0
    }

    fn delete(&mut self, key: &[u8]) -> i32 {
        if self.kind.is_array() {
            return 22;
        }
        if self.kind == MapKind::LpmTrie && split(key).0 as usize > split(key).1.len() * 8 {
            return 22;
        }
        if self.elements.remove(&self.canonical(key)).is_some() { 0 } else { 2 }
    }
}

fn split(key: &[u8]) -> (u32, &[u8]) {
    let (len, data) = key.split_first_chunk().unwrap();
    (u32::from_ne_bytes(*len), data)
}

fn value_bytes(value: u8, cpu: usize, size: usize) -> Vec<u8> {
    (0..size).map(|i| value.wrapping_mul(31).wrapping_add((i * 7 + cpu * 13) as u8)).collect()
}

fn errno(result: Result<(), MapError>) -> i32 {
    result.map_or_else(|error| error.errno(), |()| 0)
}

/// Plays the operations on map and model.
fn play(map: &Map, keys: &[Vec<u8>], ops: &[Op]) -> Result<(), TestCaseError> {
    let mut model = Model::of(map);
    let size = model.value_size;
    for op in ops {
        match *op {
            Op::Lookup { key, cpu } => {
                let key = &keys[key];
                let expected = model.find(key);
                match map.lookup(key) {
                    Ok(found) => prop_assert_eq!(found.as_ref(), expected),
                    Err(error) => {
                        prop_assert_eq!(error.errno(), 22);
                        prop_assert!(split(key).0 as usize > split(key).1.len() * 8);
                        prop_assert_eq!(program_lookup(map, key, cpu), None);
                        continue;
                    }
                }
                let at = if model.kind.is_per_cpu() { cpu as usize * size.next_multiple_of(8) } else { 0 };
                let expected = expected.map(|value| value[at..at + size].to_vec());
                prop_assert_eq!(program_lookup(map, key, cpu), expected);
            }
            Op::Update { key, value, flags, program } => {
                let key = &keys[key];
                let done = match (program, UpdateFlags::from_number(flags)) {
                    (Some(cpu), _) => {
                        -program_update(map, key, &value_bytes(value, 0, size), flags, cpu) as i32
                    }
                    (None, None) => continue, // the host cannot even say it
                    (None, Some(flags)) => {
                        let bytes = if model.kind.is_per_cpu() {
                            let padded = |cpu| {
                                let mut bytes = value_bytes(value, cpu, size);
                                bytes.resize(size.next_multiple_of(8), 0xdd); // padding must not come back
                                bytes
                            };
                            (0..CPUS as usize).flat_map(padded).collect()
                        } else {
                            value_bytes(value, 0, size)
                        };
                        errno(map.update(key, &bytes, flags))
                    }
                };
                prop_assert_eq!(done, model.update(key, value, flags, program));
            }
            Op::Delete { key, program } => {
                let key = &keys[key];
                let done = if program { -program_delete(map, key) as i32 } else { errno(map.delete(key)) };
                prop_assert_eq!(done, model.delete(key));
            }
            Op::Walk => walk(map, &model)?,
        }
        prop_assert_eq!(map.len() as usize, model.elements.len());
    }
    walk(map, &model)
}

/// Both ways of going through a map give what is in the model, once each, in the same order.
fn walk(map: &Map, model: &Model) -> Result<(), TestCaseError> {
    let entries: Vec<_> = map.entries().collect();
    let mut keys = Vec::new();
    while let Some(key) = map.next_key(keys.last().map(Vec::as_slice)).unwrap() {
        keys.push(key);
        prop_assert!(keys.len() <= entries.len());
    }
    prop_assert_eq!(&keys, &entries.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
    let found: BTreeMap<_, _> =
        entries.into_iter().map(|(key, value)| (model.canonical(&key), value)).collect();
    prop_assert_eq!(found.len(), keys.len());
    prop_assert_eq!(&found, &model.elements);

    if model.kind == MapKind::LpmTrie {
        // What begins with a prefix comes before it, else the smaller address first.
        let order = |key: &Vec<u8>| {
            let (len, data) = split(key);
            let bit = |i: u32| u8::from(data[i as usize / 8] & 0x80 >> (i % 8) != 0);
            (0..len).map(bit).chain([2]).collect::<Vec<u8>>()
        };
        prop_assert!(keys.is_sorted_by_key(order), "{:?}", keys);
    } else if model.kind.is_array() {
        prop_assert!(keys.is_sorted_by_key(|key| u32::from_ne_bytes(key[..].try_into().unwrap())));
    }
    Ok(())
}

fn numbered_keys(count: usize, size: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| (0..size).map(|at| if at == size - 1 { i as u8 } else { at as u8 }).collect())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn arrays_do_what_a_vector_would(ops in ops(12), value_size in 1_u32..40) {
        // Keys 8 and up are beyond the end.
        let keys: Vec<_> = (0..12_u32).map(|index| if index == 11 { u32::MAX } else { index })
            .map(|index| index.to_ne_bytes().to_vec()).collect();
        for kind in [MapKind::Array, MapKind::PercpuArray] {
            play(&map(kind, 4, value_size, 8), &keys, &ops)?;
        }
    }

    #[test]
    fn hash_tables_do_what_a_tree_would(
        ops in ops(24),
        key_size in prop_oneof![4 => 1_u32..24, 1 => Just(4), 1 => Just(8), 1 => Just(16), 1 => 24_u32..=512],
        value_size in 1_u32..40,
        max_entries in 1_u32..24,
    ) {
        let keys = numbered_keys(24, key_size as usize);
        for kind in [MapKind::Hash, MapKind::PercpuHash] {
            play(&map(kind, key_size, value_size, max_entries), &keys, &ops)?;
        }
    }

    #[test]
    fn tries_do_what_a_list_of_prefixes_would(
        ops in ops(32),
        data in proptest::collection::vec((0_u32..=33, prop_oneof![0_u8..4, any::<u8>()], any::<u8>()), 32),
        value_size in 1_u32..40,
        max_entries in 1_u32..32,
        data_size in prop_oneof![2 => Just(4_usize), 1 => Just(1), 1 => Just(8), 1 => Just(16), 1 => Just(19)],
    ) {
        // Few distinct bits, so that prefixes contain each other; one length in thirty is too long.
        let bits = data_size as u32 * 8;
        let keys: Vec<_> = data.iter().map(|&(len, first, last)| {
            let mut bytes = vec![0x55; data_size];
            bytes[0] = first;
            bytes[data_size - 1] ^= last & 0x81;
            let len = if len == 33 { bits + 1 } else { len * bits / 32 };
            prefix(len, &bytes)
        }).collect();
        play(&map(MapKind::LpmTrie, 4 + data_size as u32, value_size, max_entries), &keys, &ops)?;
    }
}

#[test]
fn a_trie_of_all_short_prefixes_agrees_with_counting_bits() {
    // All 511 prefixes of one byte, inserted and deleted in different orders.
    let map = map(MapKind::LpmTrie, 5, 4, 511);
    let all: Vec<(u32, u8)> = (0..=8_u32)
        .flat_map(|len| (0..1_u16 << len).map(move |top| (len, (top << (8 - len)) as u8)))
        .collect();
    assert_eq!(all.len(), 511);
    let mut present = BTreeSet::new();
    let check = |present: &BTreeSet<(u32, u8)>| {
        for address in 0..=255_u8 {
            let expected = (0..=8_u32)
                .rev()
                .map(|len| (len, address & !(0xff_u16 >> len) as u8))
                .find(|prefix| present.contains(prefix))
                .map(|(len, bits)| vec![len as u8, bits, 0, 0]);
            assert_eq!(map.lookup(&prefix(8, &[address])).unwrap(), expected, "{address:#010b}");
        }
    };
    for step in [3, 100, 509] {
        // Neither these nor three more have a factor in common with 511 = 7 * 73: all prefixes are reached.
        for i in 0..511 {
            let (len, bits) = all[i * step % 511];
            map.update(&prefix(len, &[bits]), &[len as u8, bits, 0, 0], UpdateFlags::NoExist).unwrap();
            present.insert((len, bits));
            if i % 73 == 0 {
                check(&present);
            }
        }
        assert_eq!(map.len(), 511);
        for i in 0..511 {
            let (len, bits) = all[i * (step + 3) % 511];
            map.delete(&prefix(len, &[bits])).unwrap();
            present.remove(&(len, bits));
            if i % 73 == 0 {
                check(&present);
            }
        }
        assert_eq!(map.len(), 0);
        assert_eq!(map.next_key(None).unwrap(), None);
    }
}
