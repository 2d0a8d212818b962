//! Division by a constant as a multiplication.
//!
//! For a divisor `d` and a word of `w` bits, `x / d` is the upper part of `x * m`, where `m` is 2^(w + s) / d
//! rounded up: the rounding error, at most `d` parts in 2^(w + s), does not reach the quotient as long as
//! `m * d - 2^(w + s) <= 2^s` (Granlund and Montgomery, "Division by Invariant Integers using
//! Multiplication", 1994, theorem 4.2). With `s` as the bits of `d` that always holds, but `m` may then need
//! one bit more than a word has. Dividing an even `d` by two first, with `x`, gains that bit; an odd `d` needs
//! the correction of figure 4.1.

use skep_isa::Width;

/// How to divide by a constant: `x` is shifted right by `before`, multiplied with `multiplier`, of whose product
/// the upper word `t` is taken, and
///
/// - without `wide`, the quotient is `t >> after`;
/// - with `wide`, for multipliers that are greater by 2^w, it is `(((x - t) >> 1) + t) >> after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Magic {
    pub(crate) before: u8,
    pub(crate) multiplier: u64,
    pub(crate) wide: bool,
    pub(crate) after: u8,
}

impl Magic {
    /// For a divisor that is at least 3 and no power of two, fits the width and is less than 2^63.
    pub(crate) fn new(width: Width, divisor: u64) -> Self {
        let w = width.bits();
        if let Some((multiplier, after)) = multiplier(w, w, divisor) {
            return Self { before: 0, multiplier, wide: false, after };
        }
        let before = divisor.trailing_zeros();
        if before > 0
            && let Some((multiplier, after)) = multiplier(w, w - before, divisor >> before)
        {
            return Self { before: before as u8, multiplier, wide: false, after };
        }
        let bits = u64::BITS - divisor.leading_zeros();
        let multiplier = (1u128 << (w + bits)).div_ceil(divisor.into()) - (1 << w);
        Self { before: 0, multiplier: multiplier as u64, wide: true, after: (bits - 1) as u8 }
    }

    /// The quotient, computed in this way.
    #[cfg(test)]
    fn divide(self, width: Width, x: u64) -> u64 {
        let w = width.bits();
        let mask = u64::MAX >> (u64::BITS - w);
        let shifted = x >> self.before;
        let t = ((u128::from(shifted) * u128::from(self.multiplier)) >> w) as u64 & mask;
        if self.wide { (((x - t) >> 1) + t) >> self.after } else { t >> self.after }
    }
}

/// The smallest multiplier of a word of `w` bits that divides numbers of `n` bits, and its shift.
fn multiplier(w: u32, n: u32, divisor: u64) -> Option<(u64, u8)> {
    let bits = u64::BITS - divisor.leading_zeros();
    (0..bits).find_map(|s| {
        let power = 1u128 << (w + s);
        let m = power.div_ceil(divisor.into());
        let error = m * u128::from(divisor) - power;
        (m < 1 << w && error <= 1 << (w + s - n)).then_some((m as u64, s as u8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EDGES;

    #[test]
    fn quotients_are_right_at_all_edges() {
        let small = (3..2000u64).chain((0..31).flat_map(|n| [(1 << n) + 1, (1 << n) - 1, 3 << n, 7 << n]));
        let large =
            [641, 10_000, 1_000_000_007, 0x7fff_ffff, 0xffff_fffe, 0xffff_ffff, 0x8000_0001, 28, 56, 14];
        let mut kinds = [0; 3];
        for divisor in small.chain(large) {
            for width in [Width::W32, Width::W64] {
                let mask = u64::MAX >> (u64::BITS - width.bits());
                if divisor < 3 || divisor.is_power_of_two() || divisor > mask {
                    continue;
                }
                let magic = Magic::new(width, divisor);
                kinds[if magic.wide { 2 } else { usize::from(magic.before > 0) }] += 1;
                // An error would show around multiples of the divisor.
                let multiples = [0, 1, 2, 1000, mask / divisor / 2, mask / divisor - 1, mask / divisor];
                let around = multiples.into_iter().flat_map(|n| {
                    let multiple = n.saturating_mul(divisor);
                    [multiple.saturating_sub(1), multiple, multiple.saturating_add(1)]
                });
                for x in EDGES.into_iter().chain(around).map(|x| x & mask) {
                    assert_eq!(magic.divide(width, x), x / divisor, "{x} / {divisor} by {magic:?}");
                }
            }
        }
        assert!(kinds.iter().all(|count| *count > 10), "{kinds:?}");
    }
}
