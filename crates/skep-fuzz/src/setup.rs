//! What maps and variables have before a run.

use fastrand::Rng;
use skep::abi::MapKind;
use skep::{Map, Module, UpdateFlags};

/// Elements that are put into maps before the first run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// In the order in which they are put there.
    pub elements: Vec<Element>,
}

/// An element of a map, or the contents of a section of variables (`.data`, `.bss`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The map's name.
    pub map: String,
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The value's bytes.
    pub value: Vec<u8>,
}

/// The most elements of a setup.
const MOST: usize = 6;

impl Setup {
    /// Random elements, for the maps that take bytes.
    pub(crate) fn random(module: &Module, numbers: &[u64], rng: &mut Rng) -> Self {
        let maps: Vec<&Map> = module.maps().iter().map(|map| &**map).filter(|map| is_filled(map)).collect();
        let Some(last) = maps.len().checked_sub(1) else { return Self::default() };
        let count = rng.usize(0..=MOST);
        let elements = (0..count).map(|_| element(maps[rng.usize(0..=last)], numbers, rng)).collect();
        Self { elements }
    }

    /// Puts the elements into the maps. What a map refuses is not there, the same in each run.
    pub(crate) fn apply(&self, module: &Module) {
        for element in &self.elements {
            if let Some(map) = module.map(&element.map) {
                // A full table, or a prefix that is too long: as if the host had tried it.
                let _ = map.update(&element.key, &element.value, UpdateFlags::Any);
            }
        }
    }
}

/// Whether the fuzzer puts elements into a map.
fn is_filled(map: &Map) -> bool {
    use MapKind::{Array, Hash, LpmTrie, LruHash, LruPercpuHash, PercpuArray, PercpuHash};
    let kind =
        matches!(map.kind(), Array | Hash | LpmTrie | LruHash | LruPercpuHash | PercpuArray | PercpuHash);
    // Locks, timers and pointers in values are not for bytes of anybody's choice.
    kind && !map.is_frozen() && map.def().fields.is_empty()
}

fn element(map: &Map, numbers: &[u64], rng: &mut Rng) -> Element {
    let def = map.def();
    let mut key = bytes(def.key_size as usize, numbers, rng);
    if map.kind().is_array() {
        key = rng.u32(0..def.max_entries.max(1)).to_ne_bytes().to_vec();
    }
    if map.kind() == MapKind::LpmTrie && key.len() > 4 {
        let longest = 8 * (key.len() as u32 - 4);
        key[..4].copy_from_slice(&rng.u32(0..=longest).to_ne_bytes());
    }
    let mut value = bytes(map.host_value_size(), numbers, rng);
    if map.name().starts_with('.')
        && let Ok(Some(before)) = map.lookup(&key)
    {
        // Variables keep what they have, but for a few bytes.
        let mut changed = before;
        for _ in 0..rng.usize(1..=4) {
            let at = rng.usize(0..changed.len().max(1));
            if let Some(byte) = changed.get_mut(at) {
                *byte = value.get(at).copied().unwrap_or(1);
            }
        }
        value = changed;
    }
    Element { map: map.name().to_owned(), key, value }
}

/// Zeroes, small numbers, numbers of the program, or anything.
fn bytes(len: usize, numbers: &[u64], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; len];
    match rng.u8(0..4) {
        0 => {}
        1 => bytes.first_mut().into_iter().for_each(|byte| *byte = rng.u8(..4)),
        2 if !numbers.is_empty() => {
            let number = numbers[rng.usize(0..numbers.len())].to_ne_bytes();
            let used = len.min(8);
            bytes[..used].copy_from_slice(&number[..used]);
        }
        _ => rng.fill(&mut bytes),
    }
    bytes
}
