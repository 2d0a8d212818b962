//! Bloom filters: sets without false negatives and with few false positives (Bloom, CACM 1970).
//!
//! A value sets some bits, at positions that hash functions of it compute. A value may be in the set if all of its
//! bits are set. So a pushed value is always found, and now and then another one.
//!
//! ```text
//!   positions of a value:   a,  a + b,  a + 2b,  ...  modulo the number of bits       a, b: the halves of one hash
//! ```
//!
//! With `n` values and `k` functions, half of `n * k / ln 2` bits are set when all values are in: the fewest false
//! positives that so many bits allow, about 1 in `2^k`. The number is rounded up to a power of two. No bit is ever
//! cleared, so one atomic operation sets each bit and plain loads test it: no locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use skep_mem::{Block, Error};

use crate::racy;
use crate::seed::Seed;
use crate::values::Values;

/// The number of hash functions if the definition names none.
pub(crate) const USUAL_HASHES: u32 = 5;
/// The most hash functions: the number has four bits.
pub(crate) const MAX_HASHES: u32 = 15;

/// Positions have 32 bits: more bits than this would never be set.
const MAX_BITS: u64 = 1 << 32;
const LINE: usize = 64;
/// Words that are hashed at a time.
const CHUNK: usize = 64;

#[derive(Debug)]
pub(crate) struct Bloom {
    memory: Block,
    /// The number of bits minus one.
    mask: u32,
    hashes: u32,
    seed: Seed,
    values: Values,
}

impl Bloom {
    /// The bytes that a filter for this many values takes.
    pub(crate) fn bytes(entries: u32, hashes: u32) -> Option<usize> {
        Block::reserved_for(Self::len_of(entries, hashes)?, LINE).ok()
    }

    pub(crate) fn new(entries: u32, value_size: u32, hashes: u32, seed: Seed) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: entries as usize, size: value_size as usize };
        let len = Self::len_of(entries, hashes).ok_or(too_large)?;
        Ok(Self {
            memory: Block::zeroed(len, LINE)?,
            mask: (len as u64 * 8 - 1) as u32,
            hashes,
            seed,
            values: Values::shared(value_size),
        })
    }

    /// # Safety
    ///
    /// `value` is readable for the value size, at any alignment; others may write there.
    pub(crate) unsafe fn push(&self, value: *const u8) {
        // SAFETY: by the caller's contract.
        for place in unsafe { self.places(value) } {
            let (word, bit) = self.bit(place);
            // Relaxed, here and below: bits order no other memory. A thread that learns otherwise that a value was
            // pushed sees its bits. The load avoids a write to the cache line if the bit is set already.
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    /// Whether the value was pushed: `false` is certain, `true` is likely.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push).
    pub(crate) unsafe fn contains(&self, value: *const u8) -> bool {
        // SAFETY: by the caller's contract.
        unsafe { self.places(value) }.all(|place| {
            let (word, bit) = self.bit(place);
            word.load(Relaxed) & bit != 0
        })
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory.reserved()
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    fn len_of(entries: u32, hashes: u32) -> Option<usize> {
        // 1 / ln 2, in millionths.
        let bits = (u128::from(entries) * u128::from(hashes) * 1_442_695).div_ceil(1_000_000);
        let bits = u64::try_from(bits).ok()?.clamp(64, MAX_BITS).next_power_of_two();
        usize::try_from(bits / 8).ok()
    }

    /// # Safety
    ///
    /// As for [`push`](Self::push).
    unsafe fn places(&self, value: *const u8) -> impl Iterator<Item = u32> + use<> {
        let (size, mut at) = (self.values.host_size(), 0);
        let mut words = [0; CHUNK];
        let mut hash = 0;
        while at < size {
            let bytes = (size - at).min((CHUNK - 1) * 8);
            let used = bytes.div_ceil(8);
            // Chains the hash of the words before.
            words[0] = hash;
            // SAFETY: these bytes are within the value.
            unsafe { racy::load_words(value.add(at), bytes, &mut words[1..=used]) };
            hash = self.seed.hash(&words[..=used]);
            at += bytes;
        }
        // Odd, so that positions differ.
        let (mut place, step, mask) = (hash as u32, (hash >> 32) as u32 | 1, self.mask);
        (0..self.hashes).map(move |_| {
            let this = place & mask;
            place = place.wrapping_add(step);
            this
        })
    }

    fn bit(&self, place: u32) -> (&AtomicU64, u64) {
        // SAFETY: positions are below the number of bits, which the memory has in words that only this file accesses.
        // touches.
        let word = unsafe { &*self.memory.base().cast::<AtomicU64>().as_ptr().add(place as usize / 64) };
        (word, 1 << (place % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_are_documented() {
        // n * k / ln 2, rounded up to a power of two.
        for (entries, hashes, bits) in [(1, 1, 64), (1000, 5, 8192), (100, 3, 512), (u32::MAX, 15, 1 << 32)] {
            assert_eq!(
                Bloom::len_of(entries, hashes),
                Some(bits / 8),
                "{entries} values, {hashes} functions"
            );
        }
    }

    #[test]
    fn false_positives_are_rare() {
        // 1000 values: at least 7.2 bits each. With `k` functions at most 1 in 2^k is a false positive.
        for (hashes, limit) in [(1, 0.55), (3, 0.14), (5, 0.04), (8, 0.008)] {
            for size in [4_usize, 8, 700] {
                let filter = Bloom::new(1000, size as u32, hashes, Seed::random()).unwrap();
                let value = |number: u32| {
                    let mut bytes = vec![0x33; size];
                    bytes[size - 4..].copy_from_slice(&number.to_ne_bytes());
                    bytes
                };
                // SAFETY: values have the filter's size.
                (0..1000).for_each(|number| unsafe { filter.push(value(number).as_ptr()) });
                // SAFETY: as above.
                let has = |number: &u32| unsafe { filter.contains(value(*number).as_ptr()) };
                assert!((0..1000).all(|number| has(&number)));
                let wrong = (1000..11_000).filter(has).count();
                assert!(
                    (wrong as f64) < limit * 10_000.0,
                    "{wrong} of 10,000 with {hashes} functions, {size} bytes"
                );
            }
        }
    }
}
