//! Maps to compare, and random operations on them.

use std::fmt;
use std::str::FromStr;

use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, MapError, Options};
use skep_testkit::LinuxDef;

use crate::ops::Op;

/// A map to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) kind: MapKind,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
}

const NO_PREALLOC: u32 = 1;

/// One line for each map: add a line to compare another map or kind.
pub(crate) const CASES: &[Case] = &[
    case(MapKind::Hash, 4, 8, 16, 0),
    case(MapKind::Hash, 8, 24, 11, NO_PREALLOC),
    case(MapKind::Hash, 13, 5, 1, 0),
    case(MapKind::Hash, 40, 7, 20, NO_PREALLOC),
    case(MapKind::PercpuHash, 4, 8, 12, 0),
    case(MapKind::PercpuHash, 16, 24, 9, NO_PREALLOC),
    case(MapKind::Array, 4, 8, 8, 0),
    case(MapKind::Array, 4, 5, 7, 0),
    case(MapKind::PercpuArray, 4, 16, 8, 0),
    case(MapKind::LpmTrie, 5, 4, 12, NO_PREALLOC),
    case(MapKind::LpmTrie, 8, 8, 16, NO_PREALLOC),
    case(MapKind::LpmTrie, 20, 6, 14, NO_PREALLOC),
    case(MapKind::Queue, 0, 8, 5, 0),
    case(MapKind::Queue, 0, 3, 1, 0),
    case(MapKind::Stack, 0, 12, 6, 0),
    case(MapKind::BloomFilter, 0, 4, 64, 0),
    case(MapKind::LruHash, 4, 8, 1000, 0),
    case(MapKind::LruPercpuHash, 6, 8, 1000, 0),
    case(MapKind::HashOfMaps, 4, 4, 7, 0),
    case(MapKind::HashOfMaps, 9, 4, 5, NO_PREALLOC),
];

const fn case(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32, flags: u32) -> Case {
    Case { kind, key_size, value_size, max_entries, flags }
}

impl Case {
    /// Maps of random kinds and sizes.
    pub(crate) fn random(seed: u64, count: usize) -> Vec<Self> {
        let mut random = Random(!seed);
        let one = || {
            // Maps that evict and maps of maps come last.
            let like = CASES[random.below(CASES.len() as u64 - 4) as usize];
            let key_size = match like.kind {
                MapKind::LpmTrie => 5 + random.below(40) as u32,
                _ if matches!(like.key_size, 0 | 4) => like.key_size,
                _ => 1 + random.below(100) as u32,
            };
            let (value_size, max_entries) = (1 + random.below(100) as u32, 1 + random.below(60) as u32);
            Self { key_size, value_size, max_entries, ..like }
        };
        std::iter::repeat_with(one).take(count).collect()
    }

    pub(crate) fn linux(&self) -> LinuxDef {
        LinuxDef {
            kind: self.kind.number(),
            key_size: self.key_size,
            value_size: self.value_size,
            max_entries: self.max_entries,
            flags: self.flags,
            extra: 0,
        }
    }

    pub(crate) fn def(&self) -> MapDef {
        let def = MapDef::new("m", self.kind, self.key_size, self.value_size, self.max_entries);
        // The inner maps: arrays with one element.
        let inner = (self.kind == MapKind::HashOfMaps)
            .then(|| Box::new(MapDef::new("inner", MapKind::Array, 4, 8, 1)));
        MapDef { flags: MapFlags(self.flags), inner, ..def }
    }

    pub(crate) fn create(&self, cpus: u32) -> Result<Map, MapError> {
        Map::create(&self.def(), &Options { cpus, limit: 1 << 30 })
    }

    /// Whether the kind has a defined order of elements.
    pub(crate) fn has_order(&self) -> bool {
        !matches!(
            self.kind,
            MapKind::Hash
                | MapKind::PercpuHash
                | MapKind::LruHash
                | MapKind::LruPercpuHash
                | MapKind::HashOfMaps
        )
    }

    /// Random operations, the same for the same seed, on few keys.
    pub(crate) fn ops(&self, seed: u64, cpus: u32) -> impl Iterator<Item = Op> {
        let mut random = Random(seed);
        let case = *self;
        let keys: Vec<_> = if self.key_size == 0 {
            Vec::new()
        } else {
            // Maps that evict get so few keys that they never have to: the choice of the victim is not specified.
            let makes_room = matches!(case.kind, MapKind::LruHash | MapKind::LruPercpuHash);
            let count = if makes_room { 40 } else { 2 * u64::from(case.max_entries) + 2 };
            (0..count).map(|at| case.key(at, &mut random)).collect()
        };
        // From a bloom filter only pushed values: for others its answer may be wrong.
        let mut pushed: Vec<Vec<u8>> = Vec::new();
        std::iter::repeat_with(move || {
            match case.kind {
                MapKind::Queue | MapKind::Stack => {
                    return match random.below(20) {
                        // Operations that these kinds lack.
                        0 => [Op::Delete(Vec::new()), Op::Next(None)][random.below(2) as usize].clone(),
                        1..10 => Op::Push(case.value(cpus, &mut random), random.flags()),
                        10..16 => Op::Pop,
                        _ => Op::Peek,
                    };
                }
                MapKind::BloomFilter => {
                    let known = pushed.get(random.below(pushed.len() as u64 + 1) as usize);
                    if let Some(value) = known.filter(|_| random.below(2) == 0) {
                        return Op::Contains(value.clone());
                    }
                    let (value, flags) = (case.value(cpus, &mut random), random.flags());
                    if flags == 0 {
                        pushed.push(value.clone());
                    }
                    return Op::Push(value, flags);
                }
                _ => {}
            }
            let key = |random: &mut Random| keys[random.below(keys.len() as u64) as usize].clone();
            let several = |random: &mut Random| {
                let count = 1 + random.below(5);
                (0..count).map(|_| key(random)).collect::<Vec<_>>()
            };
            // Changes of maps of maps take no flags, and have no batches.
            let of_maps = case.kind == MapKind::HashOfMaps;
            let size = match case.has_order() {
                true => 1 + random.below(u64::from(case.max_entries)) as usize,
                // One bucket may contain all elements.
                false => case.max_entries as usize,
            };
            match random.below(100) {
                0..25 => Op::Lookup(key(&mut random)),
                25..65 if of_maps => Op::Update(key(&mut random), vec![random.below(2) as u8, 0, 0, 0], 0),
                25..65 => Op::Update(key(&mut random), case.value(cpus, &mut random), random.flags()),
                65..80 => Op::Delete(key(&mut random)),
                80..86 if case.has_order() => {
                    Op::Next(Some(key(&mut random)).filter(|_| random.below(4) > 0))
                }
                86..90 if !of_maps => Op::Take(key(&mut random)),
                90..92 if !of_maps => Op::LookupBatch(size),
                92..94 if !of_maps => {
                    let keys = several(&mut random);
                    let values = keys.iter().map(|_| case.value(cpus, &mut random)).collect();
                    // Linux's batches have no conditions; skep's have those of its updates.
                    let flags = Some(random.flags()).filter(|flags| !matches!(flags, 1 | 2));
                    Op::UpdateBatch(keys, values, flags.unwrap_or(0))
                }
                94..96 if !of_maps => Op::DeleteBatch(several(&mut random)),
                96 if !of_maps => Op::TakeBatch(size),
                _ => Op::Walk,
            }
        })
    }

    /// One of the keys; some of them are invalid.
    fn key(&self, number: u64, random: &mut Random) -> Vec<u8> {
        let mut key: Vec<u8> = (0..self.key_size).map(|at| at as u8).collect();
        match self.kind {
            MapKind::LpmTrie => {
                // Few distinct bits, so that prefixes contain each other; one length in twenty is too long.
                let bits = (self.key_size - 4) * 8;
                let len = match random.below(20) {
                    0 => bits + 1 + random.below(3) as u32,
                    1 => bits,
                    _ => random.below(u64::from(bits) + 1) as u32,
                };
                key[..4].copy_from_slice(&len.to_ne_bytes());
                key[4] = [0, 0x80, 0xc0, 0xc1][random.below(4) as usize];
                let last = self.key_size as usize - 1;
                key[last] ^= [0, 1, 0x80][random.below(3) as usize];
            }
            kind if kind.is_array() => {
                let beyond = number == 2 * u64::from(self.max_entries);
                let index = if beyond { u32::MAX } else { (number % u64::from(self.max_entries + 1)) as u32 };
                key = index.to_ne_bytes().to_vec();
            }
            _ => {
                let last = key.len() - 1;
                key[last] = number as u8;
            }
        }
        key
    }

    /// The value as the system call returns it, with zero padding.
    fn value(&self, cpus: u32, random: &mut Random) -> Vec<u8> {
        let size = self.value_size as usize;
        let (copies, stride) =
            if self.kind.is_per_cpu() { (cpus, size.next_multiple_of(8)) } else { (1, size) };
        let mut value = vec![0; copies as usize * stride];
        for copy in value.chunks_mut(stride) {
            copy[..size].fill_with(|| random.next() as u8);
        }
        value
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, key_size, value_size, max_entries, flags } = self;
        write!(f, "{kind} key {key_size} value {value_size} entries {max_entries} flags {flags:#x}")
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let [kind, "key", key, "value", value, "entries", entries, "flags", flags] = words[..] else {
            return Err(format!("not a map: {text}"));
        };
        let number = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16);
        Ok(Self {
            kind: *MapKind::ALL.iter().find(|known| known.name() == kind).ok_or("an unknown kind")?,
            key_size: number(key)?,
            value_size: number(value)?,
            max_entries: number(entries)?,
            flags: flags.map_err(|error| error.to_string())?,
        })
    }
}

/// Numbers by SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Flags of an update, mostly valid ones.
    fn flags(&mut self) -> u64 {
        match self.below(16) {
            0..7 => 0,
            7..10 => 1,
            10..13 => 2,
            13 => 3,
            14 => 4 + self.below(4),
            _ => 1 << self.below(64),
        }
    }
}
