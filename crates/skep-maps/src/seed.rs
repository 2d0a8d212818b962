//! The hash function of hash tables.
//!
//! Keys come from the network: an attacker who can predict their buckets can fill one bucket. So every map hashes
//! with a secret of its own. The mixer multiplies two 64-bit halves to 128 bits and folds them with exclusive or, the
//! step at the core of wyhash and its relatives, once for every 16 bytes and once more at the end: after a single
//! step, keys that differ in few bits may still share their low bits, which select the bucket.
//!
//! It is fast and hard to attack blindly, but no cryptographic function: an attacker who can time single look-ups
//! precisely may learn enough to collide keys.

use skep_abi::MapFlags;
use std::hash::{BuildHasher, RandomState};

/// The secrets of one map.
#[derive(Clone, Copy)]
pub(crate) struct Seed {
    a: u64,
    /// Odd, like `c`.
    b: u64,
    c: u64,
}

impl Seed {
    /// A seed from the randomness that the standard library uses against the same attack.
    pub(crate) fn random() -> Self {
        let state = RandomState::new();
        Self { a: state.hash_one(0), b: state.hash_one(1) | 1, c: state.hash_one(2) | 1 }
    }

    /// The seed of a map with these flags.
    pub(crate) fn of(flags: MapFlags) -> Self {
        if flags.contains(MapFlags::ZERO_SEED) { Self::FIXED } else { Self::random() }
    }

    /// The same in every map and process, for numbers that must not differ from run to run.
    pub(crate) const FIXED: Self =
        Self { a: 0x243f_6a88_85a3_08d3, b: 0x1319_8a2e_0370_7345, c: 0xa409_3822_299f_31d1 };

    /// The numbers that [`hash`](Self::hash) computes with, for a process that computes the same.
    pub(crate) fn numbers(self) -> [u64; 3] {
        [self.a, self.b, self.c]
    }

    /// The hash of a key in whole words.
    ///
    /// Keys of different lengths may collide: a map's keys all have the same length.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &[u64]) -> u64 {
        let mixed = match *key {
            [word] => fold(word ^ self.a, self.b),
            [first, second] => fold(first ^ self.a, second ^ self.b),
            _ => {
                let (pairs, rest) = key.as_chunks::<2>();
                let mut state = self.a;
                for [first, second] in pairs {
                    // Adding keeps a product of zero from erasing the state so far.
                    state = state.wrapping_add(fold(first ^ state, second ^ self.b)).rotate_left(23);
                }
                match rest {
                    [last] => fold(state ^ last, self.b),
                    _ => state,
                }
            }
        };
        fold(mixed, self.c)
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(secret)")
    }
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills buckets as a map would, and returns chi squared over its degrees of freedom: about 1 for a random
    /// function.
    fn unevenness(seed: &Seed, keys: &[Vec<u64>]) -> f64 {
        let buckets = 1024;
        let mut counts = vec![0_u32; buckets];
        for key in keys {
            counts[seed.hash(key) as usize % buckets] += 1;
        }
        let expected = keys.len() as f64 / buckets as f64;
        let sum: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        sum / (buckets - 1) as f64
    }

    type Pattern = (&'static str, fn(u64) -> u64);

    #[test]
    fn ordinary_keys_spread_evenly_over_buckets() {
        // Fixed patterns: random ones would only now and then show what a pattern shows.
        let seeds = [
            Seed { a: 0x0123_4567_89ab_cdef, b: 0xfedc_ba98_7654_3211, c: 0x0f1e_2d3c_4b5a_6979 },
            Seed { a: 0x9e37_79b9_7f4a_7c15, b: 0x6a09_e667_f3bc_c909, c: 0xbb67_ae85_84ca_a73b },
        ];
        let patterns: [Pattern; 6] = [
            ("counting", |i| i),
            ("counting in the upper half", |i| i << 32),
            ("strides of a page", |i| i << 12),
            ("multiples of 10", |i| i * 10),
            ("IPv4 addresses in network order", |i| u64::from((0x0a00_0000 + i as u32).swap_bytes())),
            ("an address and a port", |i| (i & 0xff) << 32 | (i >> 8) << 16 | 0x5000),
        ];
        for (name, pattern) in patterns {
            for words in [1, 2, 3, 4, 5, 8] {
                for varying in 0..words {
                    let key = |i| {
                        let mut key = vec![0x11; words];
                        key[varying] = pattern(i);
                        key
                    };
                    let keys: Vec<_> = (0..10_000).map(key).collect();
                    let unevenness = seeds.iter().map(|seed| unevenness(seed, &keys)).fold(0.0, f64::max);
                    assert!(
                        unevenness < 1.4,
                        "{name}, word {varying} of {words}: chi squared is {unevenness:.2} times what is expected"
                    );
                }
            }
        }
    }

    #[test]
    fn every_map_has_secrets_of_its_own() {
        let (one, other) = (Seed::random(), Seed::random());
        assert!((0..8).any(|key| one.hash(&[key]) != other.hash(&[key])));
        assert_eq!(format!("{one:?}"), "Seed(secret)");
    }
}
