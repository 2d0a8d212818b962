//! Keys of tries: the first bits of an address.
//!
//! ```text
//!   key at the host and in programs     | prefix length, u32 in native order | data: 1 to 256 bytes |
//!   in a trie                           length | words: bit 0 is the top bit of the first word
//! ```
//!
//! Bits beyond the prefix length affect no comparison; they are kept as given.

use crate::racy;

/// Bytes of a key before its data.
pub(crate) const LENGTH_BYTES: u32 = 4;

/// The most bytes of data in a key.
pub(crate) const MAX_DATA: u32 = 256;

const MAX_WORDS: usize = MAX_DATA as usize / 8;

/// A prefix in a buffer of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix<const WORDS: usize = MAX_WORDS> {
    /// Length in bits.
    pub(crate) len: u32,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Prefix<WORDS> {
    /// Loads the key at an address. Its length may exceed the bits of its data.
    ///
    /// # Safety
    ///
    /// `key` is readable for 4 bytes and `data_size` more, at any alignment; others may write there.
    #[inline(always)]
    pub(crate) unsafe fn load(key: *const u8, data_size: usize) -> Self {
        let mut words = [0; WORDS];
        let used = data_size.div_ceil(8);
        // SAFETY: by the caller's contract.
        let len = unsafe {
            racy::load_words(key.add(LENGTH_BYTES as usize), data_size, &mut words[..used]);
            racy::load4(key)
        };
        for word in &mut words[..used] {
            *word = u64::from_be(*word);
        }
        Self { len, words }
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Bit `index`, counted from the first: 0 or 1. The index is below the length.
    #[inline(always)]
    pub(crate) fn bit(&self, index: u32) -> usize {
        bit_of(self.words[index as usize / 64], index)
    }

    /// How many bits this and another prefix have in common, at most `limit`. The caller knows that it is at least
    /// `from`.
    ///
    /// `other` returns the other prefix's words.
    #[inline(always)]
    pub(crate) fn common(&self, other: impl Fn(usize) -> u64, from: u32, limit: u32) -> u32 {
        let mut word = from as usize / 64;
        while (word as u32) * 64 < limit {
            let differing = self.words[word] ^ other(word);
            if differing != 0 {
                return limit.min(word as u32 * 64 + differing.leading_zeros());
            }
            word += 1;
        }
        limit
    }
}

/// Bit `index` of a prefix, given the word that contains it.
#[inline(always)]
pub(crate) fn bit_of(word: u64, index: u32) -> usize {
    (word >> (63 - index % 64)) as usize & 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(len: u32, data: &[u8]) -> Prefix {
        let mut key = len.to_ne_bytes().to_vec();
        key.extend(data);
        // SAFETY: the key has a length and as much data as it says.
        unsafe { Prefix::load(key.as_ptr(), data.len()) }
    }

    #[test]
    fn bits_are_counted_from_the_top_of_the_first_byte() {
        let key = prefix(24, &[0b1010_0000, 0, 1]);
        let ones: Vec<u32> = (0..24).filter(|&index| key.bit(index) == 1).collect();
        assert_eq!(ones, [0, 2, 23]);
        assert_eq!(key.len, 24);
    }

    #[test]
    fn common_bits_are_counted_over_words_and_up_to_the_limit() {
        let mut data = [0x5a; 20];
        let one = prefix(160, &data);
        for differing in 0..160 {
            data[differing / 8] ^= 0x80 >> (differing % 8);
            let other = prefix(160, &data);
            data[differing / 8] ^= 0x80 >> (differing % 8);
            for limit in [1, 63, 64, 65, 128, 130, 160] {
                for from in [0, differing as u32 / 2, differing as u32].map(|from| from.min(limit)) {
                    let common = one.common(|word| other.words()[word], from, limit);
                    assert_eq!(
                        common,
                        limit.min(differing as u32),
                        "bit {differing}, from {from} to {limit}"
                    );
                }
            }
        }
        assert_eq!(one.common(|word| one.words()[word], 0, 160), 160);
    }
}
