//! The source of random decisions: a seed, or the bytes of a fuzzer.

/// Edge cases of arithmetic: numbers around zero, the powers of two and the limits of types.
pub const EDGES: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    10,
    31,
    32,
    33,
    63,
    64,
    65,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_fffe,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_fffe,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0001,
    0x7fff_ffff_0000_0000,
    0x7fff_ffff_ffff_fffe,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0x8000_0000_0000_0001,
    0xaaaa_aaaa_5555_5555,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
    0xffff_ffff_7fff_ffff,
    0xffff_ffff_8000_0000,
    0xffff_ffff_ffff_ff7f,
    0xffff_ffff_ffff_ff80,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
];

/// A source of decisions.
///
/// Made from bytes, it draws them in order and returns 0 after their end, which every generator takes as "the
/// simplest, and stop".
#[derive(Clone, Debug)]
pub struct Source {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The state of a SplitMix64 generator.
    Seed(u64),
    Bytes {
        bytes: Vec<u8>,
        at: usize,
    },
}

impl Source {
    /// Decisions derived from a seed.
    pub fn from_seed(seed: u64) -> Self {
        Self { kind: Kind::Seed(seed) }
    }

    /// Decisions derived from a fuzzer's bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { kind: Kind::Bytes { bytes: bytes.to_vec(), at: 0 } }
    }

    /// Any number.
    pub fn word(&mut self) -> u64 {
        self.draw(8)
    }

    /// A number below `limit`, or 0 if the limit is 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        let bytes = if limit <= 0x100 { 1 } else { 4 };
        match limit {
            0 => 0,
            _ => (self.draw(bytes) % u64::from(limit)) as u32,
        }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        // An exhausted source returns false.
        self.below(100) >= 100 - percent.min(100)
    }

    /// One of several. There must be at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    /// A number worth trying: an edge, something near one, a small number or anything.
    pub fn number(&mut self) -> u64 {
        match self.below(8) {
            0..=2 => self.pick(EDGES),
            3 => self.pick(EDGES).wrapping_add(u64::from(self.below(5))).wrapping_sub(2),
            4 | 5 => self.below(256).into(),
            6 => 1 << self.below(64),
            _ => self.word(),
        }
    }

    /// A 32-bit immediate worth trying.
    pub fn imm(&mut self) -> i32 {
        self.number() as i32
    }

    fn draw(&mut self, count: usize) -> u64 {
        match &mut self.kind {
            Kind::Seed(state) => {
                let full = split_mix(state);
                // The upper bits are arbitrary.
                full >> (64 - 8 * count)
            }
            Kind::Bytes { bytes, at } => {
                let mut word = [0; 8];
                let rest = &bytes[(*at).min(bytes.len())..];
                let taken = rest.len().min(count);
                word[..taken].copy_from_slice(&rest[..taken]);
                *at += count;
                u64::from_le_bytes(word)
            }
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_make_equal_numbers_and_others_differ() {
        let numbers = |seed| {
            let mut source = Source::from_seed(seed);
            [(); 16].map(|()| source.word())
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }

    #[test]
    fn numbers_below_a_limit_cover_all_values() {
        let mut source = Source::from_seed(3);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[source.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(source.below(0), 0);
    }

    #[test]
    fn bytes_are_used_in_order_and_then_zeros_follow() {
        let mut source = Source::from_bytes(&[1, 2, 99]);
        assert_eq!([source.below(256), source.below(256)], [1, 2]);
        assert!(source.chance(50));
        assert!(!source.chance(99));
        assert_eq!(source.word(), 0);
    }
}
