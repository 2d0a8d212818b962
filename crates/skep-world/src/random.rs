//! Random numbers: the system's, or those that follow from a seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Random numbers for programs. They are not for secrets, and neither are those of Linux's helper.
#[derive(Debug, Default)]
pub struct Random {
    /// The state of SplitMix64, for numbers that follow from a seed. Relaxed everywhere: it orders nothing.
    state: Option<AtomicU64>,
}

impl Random {
    /// Numbers that differ from run to run.
    pub const fn real() -> Self {
        Self { state: None }
    }

    /// Numbers that follow from the seed. Threads that draw at the same time share one sequence.
    pub const fn seeded(seed: u64) -> Self {
        Self { state: Some(AtomicU64::new(seed)) }
    }

    /// Whether they follow from a seed.
    pub const fn is_seeded(&self) -> bool {
        self.state.is_some()
    }

    /// The next number of a seeded sequence; `None` for [`Random::real`], whose numbers the caller has to draw.
    #[inline]
    pub fn next(&self) -> Option<u32> {
        let state = self.state.as_ref()?;
        let next = state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        Some(mix(next))
    }
}

/// The step of SplitMix64.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's mixing function; the upper half of its result.
fn mix(state: u64) -> u32 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence() {
        let draw = |seed| {
            let random = Random::seeded(seed);
            (0..64).map(|_| random.next().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(3).iter().fold(0, |all, n| all | n), u32::MAX);
        // The published first number of SplitMix64 for seed 0, 0xe220a8397b1dcdaf.
        assert_eq!(draw(0)[0], 0xe220_a839);
        assert_eq!(Random::real().next(), None);
    }
}
