//! A plain model of maps: the oracle of the tests in `model.rs` and of a fuzz target.

#[path = "../common/mod.rs"]
pub(crate) mod common;

use std::collections::BTreeMap;

use common::{CPUS, create, def, prefix, program_delete, program_lookup, program_update};
use skep_abi::{MapDef, MapKind, SpecialField, SpecialKind};
use skep_maps::{BatchCursor, Map, MapError, Options, Policy, Reclamation, UpdateFlags};
use skep_rcu::Domain;

/// An operation on one of a few keys.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Lookup {
        key: usize,
        cpu: u32,
    },
    Update {
        key: usize,
        value: u8,
        flags: u64,
        program: Option<u32>,
    },
    Delete {
        key: usize,
        program: bool,
    },
    /// Look-up and deletion in one operation, for hash tables.
    Take {
        key: usize,
    },
    Walk,
    /// Reads all elements in batches of that size.
    Batches {
        count: usize,
    },
}

/// A map and operations on it from a fuzzer's bytes. Any bytes are valid.
pub(crate) fn check(data: &[u8]) {
    let Some((header, ops)) = data.split_first_chunk::<8>() else { return };
    let [kind, key_size, value_size, max_entries, ..] = header.map(usize::from);
    let kind = KINDS[kind % KINDS.len()];
    let (value_size, max_entries) = (1 + value_size as u32 % 48, 1 + max_entries as u32 % 24);
    let (key_size, keys) = match kind {
        MapKind::LpmTrie => {
            let data_size = [1, 4, 8, 16, 19][key_size % 5];
            (4 + data_size as u32, prefixes(data_size, &header[4..]))
        }
        kind if kind.is_array() => (4, (0..28_u32).map(|index| index.to_ne_bytes().to_vec()).collect()),
        _ => {
            let key_size = [1, 2, 4, 7, 8, 12, 16, 24, 64, 65, 512][key_size % 11];
            (key_size as u32, numbered_keys(24, key_size))
        }
    };
    let ops: Vec<_> = ops.chunks_exact(4).map(|bytes| Op::from_bytes(bytes, keys.len())).collect();
    let policy = Policy::ALL[usize::from(header[7]) % Policy::ALL.len()];
    match kind {
        MapKind::Hash | MapKind::Array if header[4] & 0x80 != 0 => {
            let def = def(kind, key_size, value_size, max_entries);
            play(&with_lock(&def, u32::from(header[4]) % 24), &keys, &ops);
        }
        _ => play(&map_of(policy, kind, key_size, value_size, max_entries), &keys, &ops),
    }
}

/// A map with that reuse policy, in a domain that all such maps of a thread share.
pub(crate) fn map_of(policy: Policy, kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> Map {
    thread_local! {
        static DOMAIN: Domain = Domain::new(CPUS).unwrap();
    }
    let memory = Reclamation { policy, ..Reclamation::new(DOMAIN.with(Domain::clone)) };
    let def = def(kind, key_size, value_size, max_entries);
    Map::create_in(&memory, &def, &Options { cpus: CPUS, limit: 1 << 30 }).unwrap()
}

const KINDS: [MapKind; 7] = [
    MapKind::Hash,
    MapKind::PercpuHash,
    MapKind::Array,
    MapKind::PercpuArray,
    MapKind::LpmTrie,
    MapKind::LruHash,
    MapKind::LruPercpuHash,
];

impl Op {
    fn from_bytes(bytes: &[u8], keys: usize) -> Self {
        let [choice, key, value, more] = [0, 1, 2, 3].map(|at| bytes[at]);
        let key = usize::from(key) % keys;
        let cpu = u32::from(more) % CPUS;
        match choice % 16 {
            0..4 => Self::Lookup { key, cpu },
            4..11 => {
                let flags = if choice & 0x10 == 0 { 0 } else { u64::from(more >> 4) % 9 };
                Self::Update { key, value, flags, program: (choice & 0x20 != 0).then_some(cpu) }
            }
            11..14 => Self::Delete { key, program: choice & 0x20 != 0 },
            14 => Self::Take { key },
            _ if choice & 0x10 == 0 => Self::Walk,
            _ => Self::Batches { count: 1 + usize::from(value) },
        }
    }
}

/// Prefixes with few distinct bits, which contain each other; one of them is too long.
fn prefixes(data_size: usize, seed: &[u8]) -> Vec<Vec<u8>> {
    let bits = data_size as u32 * 8;
    let one = |number: u32| {
        let at = |index: usize| u32::from(seed[index % seed.len()]).rotate_left(number);
        let mut data = vec![0x55; data_size];
        data[0] = (at(0) % 4) as u8;
        data[data_size - 1] ^= (at(1) & 0x81) as u8;
        let len = if number == 31 { bits + 1 } else { (at(2) ^ number) % (bits + 1) };
        prefix(len, &data)
    };
    (0..32).map(one).collect()
}

/// A map whose values have a lock at a multiple of 4, if they have room for it.
pub(crate) fn with_lock(def: &MapDef, words: u32) -> Map {
    let lock = SpecialField { kind: SpecialKind::SpinLock, offset: words * 4, size: 4 };
    let fields = if lock.offset + 4 <= def.value_size { vec![lock] } else { Vec::new() };
    create(&MapDef { fields, ..def.clone() }).unwrap()
}

/// The expected contents of a map.
struct Model {
    kind: MapKind,
    value_size: usize,
    max_entries: usize,
    /// The offset of the lock in values.
    lock: Option<usize>,
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
        let lock = def.fields.first().map(|field| field.offset as usize);
        Self { kind: def.kind, value_size, max_entries, lock, elements }
    }

    fn makes_room(&self) -> bool {
        matches!(self.kind, MapKind::LruHash | MapKind::LruPercpuHash)
    }

    /// Removes a key that was evicted.
    fn forget_if_gone(&mut self, map: &Map, key: &[u8]) {
        if self.makes_room() && self.elements.contains_key(key) && map.lookup(key) == Ok(None) {
            assert!(self.elements.len() > map.len() as usize, "an element is gone that did not make room");
            self.elements.remove(key);
        }
    }

    /// The key of an element; in a trie without the bits beyond its length.
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
        let flags = match UpdateFlags::from_number(flags) {
            None => return 22,
            // Programs are told of the index first.
            Some(locked) if locked.is_locked() && self.lock.is_none() => {
                let array = self.kind.is_array() && program.is_some();
                return match self.elements.contains_key(key) {
                    false if array => 7,
                    true if array && flags & 3 == 1 => 17,
                    _ => 22,
                };
            }
            Some(_) => UpdateFlags::from_number(flags & 3).unwrap(),
        };
        let key = self.canonical(key);
        if self.kind == MapKind::LpmTrie && split(&key).0 as usize > split(&key).1.len() * 8 {
            return 22;
        }
        let exists = self.elements.contains_key(&key);
        match flags {
            _ if self.kind.is_array() && !exists => return 7,
            UpdateFlags::NoExist if exists => return 17,
            UpdateFlags::Exist if !exists => return 2,
            _ if !exists && !self.makes_room() && self.elements.len() == self.max_entries => {
                return if self.kind == MapKind::LpmTrie { 28 } else { 7 };
            }
            _ => {}
        }
        let cpus = if self.kind.is_per_cpu() { CPUS as usize } else { 1 };
        let stride = if cpus > 1 { self.value_size.next_multiple_of(8) } else { self.value_size };
        let element = self.elements.entry(key).or_insert_with(|| vec![0; cpus * stride]);
        for (cpu, of_cpu) in element.chunks_mut(stride).enumerate() {
            if cpus == 1 || program.is_none_or(|program| program as usize == cpu) {
                let mut bytes = value_bytes(value, if program.is_some() { 0 } else { cpu }, self.value_size);
                if let Some(lock) = self.lock {
                    bytes[lock..lock + 4].fill(0); // it is free, and writes skip it
                }
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
pub(crate) fn play(map: &Map, keys: &[Vec<u8>], ops: &[Op]) {
    let mut model = Model::of(map);
    let size = model.value_size;
    for op in ops {
        if let Op::Lookup { key, .. } | Op::Update { key, .. } | Op::Delete { key, .. } | Op::Take { key } =
            *op
        {
            model.forget_if_gone(map, &keys[key]);
        } else {
            keys.iter().for_each(|key| model.forget_if_gone(map, key));
        }
        let before = (map.len() as usize, model.elements.len());
        match *op {
            Op::Lookup { key, cpu } => {
                let key = &keys[key];
                let expected = model.find(key);
                match map.lookup_locked(key) {
                    Ok(found) => assert!(model.lock.is_some() && found.as_ref() == expected),
                    Err(error) => assert!(model.lock.is_none() && error.errno() == 22),
                }
                match map.lookup(key) {
                    Ok(found) => assert_eq!(found.as_ref(), expected),
                    Err(error) => {
                        assert_eq!(error.errno(), 22);
                        assert!(split(key).0 as usize > split(key).1.len() * 8);
                        assert_eq!(program_lookup(map, key, cpu), None);
                        continue;
                    }
                }
                let at = if model.kind.is_per_cpu() { cpu as usize * size.next_multiple_of(8) } else { 0 };
                let expected = expected.map(|value| value[at..at + size].to_vec());
                assert_eq!(program_lookup(map, key, cpu), expected);
            }
            Op::Update { key, value, flags, program } => {
                let key = &keys[key];
                let done = match (program, UpdateFlags::from_number(flags)) {
                    (Some(cpu), _) => {
                        -program_update(map, key, &value_bytes(value, 0, size), flags, cpu) as i32
                    }
                    (None, None) => continue, // the host's interface cannot express it
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
                assert_eq!(done, model.update(key, value, flags, program));
            }
            Op::Delete { key, program } => {
                let key = &keys[key];
                let done = if program { -program_delete(map, key) as i32 } else { errno(map.delete(key)) };
                assert_eq!(done, model.delete(key));
            }
            Op::Take { key } if !model.kind.is_array() && model.kind != MapKind::LpmTrie => {
                let taken = map.lookup_and_delete(&keys[key]).unwrap();
                assert_eq!(taken, model.elements.remove(&keys[key]));
            }
            Op::Take { key } => assert!(map.lookup_and_delete(&keys[key]).is_err()),
            Op::Walk => walk(map, &model),
            Op::Batches { count } => batches(map, &model, count),
        }
        let (here, there) = (map.len() as usize, model.elements.len());
        assert!(here == there || (model.makes_room() && here < there), "{here} elements, not {there}");
        assert!(here <= model.max_entries);
        if before.0 < model.max_entries {
            assert_eq!(there - here, before.1 - before.0, "an element has made room, and there was room");
        }
    }
    keys.iter().for_each(|key| model.forget_if_gone(map, key));
    walk(map, &model);
}

/// Checks that batches return each element of the model once. A batch smaller than a bucket is enlarged and repeated.
fn batches(map: &Map, model: &Model, mut count: usize) {
    let (mut found, mut given, mut cursor) = (BTreeMap::new(), 0, BatchCursor::default());
    while !cursor.is_at_end() {
        match map.lookup_batch(&mut cursor, count) {
            Ok(batch) => {
                assert!(batch.len() <= count);
                given += batch.len();
                found.extend(batch.into_iter().map(|(key, value)| (model.canonical(&key), value)));
            }
            Err(MapError::BucketLarger { needed, .. }) => {
                assert!(needed > count && needed <= model.elements.len());
                count = needed;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((given, &found), (model.elements.len(), &model.elements));
}

/// Checks that both kinds of iteration return each element of the model once, in the same order.
fn walk(map: &Map, model: &Model) {
    let entries: Vec<_> = map.entries().collect();
    let mut keys = Vec::new();
    while let Some(key) = map.next_key(keys.last().map(Vec::as_slice)).unwrap() {
        keys.push(key);
        assert!(keys.len() <= entries.len());
    }
    assert_eq!(&keys, &entries.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
    let found: BTreeMap<_, _> =
        entries.into_iter().map(|(key, value)| (model.canonical(&key), value)).collect();
    assert_eq!(found.len(), keys.len());
    assert_eq!(&found, &model.elements);

    if model.kind == MapKind::LpmTrie {
        // Longer prefixes come before those that contain them, otherwise smaller addresses come first.
        let order = |key: &Vec<u8>| {
            let (len, data) = split(key);
            let bit = |i: u32| u8::from(data[i as usize / 8] & 0x80 >> (i % 8) != 0);
            (0..len).map(bit).chain([2]).collect::<Vec<u8>>()
        };
        assert!(keys.is_sorted_by_key(order), "{:?}", keys);
    } else if model.kind.is_array() {
        assert!(keys.is_sorted_by_key(|key| u32::from_ne_bytes(key[..].try_into().unwrap())));
    }
}

pub(crate) fn numbered_keys(count: usize, size: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| (0..size).map(|at| if at == size - 1 { i as u8 } else { at as u8 }).collect())
        .collect()
}
