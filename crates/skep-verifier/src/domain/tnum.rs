//! Known bits: a 64-bit number with known and unknown bits (a tristate number).
//!
//! ```text
//!   value  0 1 0 0      mask  0 0 1 1      stands for 0100, 0101, 0110, 0111
//! ```
//!
//! Invariant: `value & mask == 0`. The operators are those of Vishwanathan et al., "Sound, Precise, and Fast
//! Abstract Interpretation with Tristate Numbers" (CGO 2022): for all concrete operands that the two sides include, the
//! result includes the concrete result.

use std::fmt;

/// A number with known and unknown bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tnum {
    /// The known bits that are set.
    pub(crate) value: u64,
    /// The unknown bits.
    pub(crate) mask: u64,
}

impl Tnum {
    pub(crate) const UNKNOWN: Self = Self { value: 0, mask: u64::MAX };

    pub(crate) const fn constant(value: u64) -> Self {
        Self { value, mask: 0 }
    }

    const fn new(value: u64, mask: u64) -> Self {
        Self { value: value & !mask, mask }
    }

    /// All numbers from `min` to `max`: the bits above the highest in which the two differ are known.
    pub(crate) const fn range(min: u64, max: u64) -> Self {
        let differing = min ^ max;
        if differing == 0 {
            return Self::constant(min);
        }
        Self::new(min, u64::MAX >> differing.leading_zeros())
    }

    pub(crate) const fn is_constant(self) -> bool {
        self.mask == 0
    }

    /// Whether it includes `number`.
    pub(crate) const fn contains(self, number: u64) -> bool {
        number & !self.mask == self.value
    }

    /// Whether it includes every number of `other`.
    pub(crate) const fn includes(self, other: Self) -> bool {
        other.mask & !self.mask == 0 && other.value & !self.mask == self.value
    }

    /// The intersection; `None` if it is empty.
    pub(crate) const fn intersect(self, other: Self) -> Option<Self> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        Some(Self::new(self.value | other.value, self.mask & other.mask))
    }

    /// The bits that are known, and equal, in both.
    pub(crate) const fn union(self, other: Self) -> Self {
        let mask = self.mask | other.mask | (self.value ^ other.value);
        Self { value: self.value & !mask, mask }
    }

    /// The bits of `keep`, the others zero.
    pub(crate) const fn masked(self, keep: u64) -> Self {
        Self { value: self.value & keep, mask: self.mask & keep }
    }

    pub(crate) const fn add(self, other: Self) -> Self {
        let masks = self.mask.wrapping_add(other.mask);
        let values = self.value.wrapping_add(other.value);
        let carries = masks.wrapping_add(values) ^ values;
        Self::new(values, carries | self.mask | other.mask)
    }

    pub(crate) const fn sub(self, other: Self) -> Self {
        let values = self.value.wrapping_sub(other.value);
        let most = values.wrapping_add(self.mask);
        let least = values.wrapping_sub(other.mask);
        Self::new(values, (most ^ least) | self.mask | other.mask)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        let may = (self.value | self.mask) & (other.value | other.mask);
        let must = self.value & other.value;
        Self { value: must, mask: may & !must }
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        let must = self.value | other.value;
        Self { value: must, mask: (self.mask | other.mask) & !must }
    }

    pub(crate) const fn xor(self, other: Self) -> Self {
        Self::new(self.value ^ other.value, self.mask | other.mask)
    }

    /// Long multiplication: the known product, plus for every bit of `self` what it may add beyond.
    pub(crate) const fn mul(self, other: Self) -> Self {
        let product = self.value.wrapping_mul(other.value);
        let (few, many) = if (self.value | self.mask).count_ones() < (other.value | other.mask).count_ones() {
            (self, other)
        } else {
            (other, self)
        };
        let mut doubt = Self::constant(0);
        let mut bits = few.value | few.mask;
        while bits != 0 {
            let bit = bits.trailing_zeros();
            let unsure = if few.value >> bit & 1 != 0 { many.mask } else { many.value | many.mask };
            doubt = doubt.add(Self { value: 0, mask: unsure << bit });
            bits &= bits - 1;
        }
        Self::constant(product).add(doubt)
    }

    pub(crate) const fn shl(self, count: u32) -> Self {
        Self { value: self.value << count, mask: self.mask << count }
    }

    pub(crate) const fn shr(self, count: u32) -> Self {
        Self { value: self.value >> count, mask: self.mask >> count }
    }

    /// The lower `bits` bits, sign-extended to 64.
    pub(crate) const fn sign_extend(self, bits: u32) -> Self {
        let up = 64 - bits;
        Self {
            value: (((self.value << up) as i64) >> up) as u64,
            mask: (((self.mask << up) as i64) >> up) as u64,
        }
    }

    pub(crate) const fn swap_bytes(self, bits: u32) -> Self {
        let down = 64 - bits;
        Self { value: self.value.swap_bytes() >> down, mask: self.mask.swap_bytes() >> down }
    }
}

impl fmt::Debug for Tnum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:#x}; {:#x})", self.value, self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: u32 = 4;

    fn all() -> impl Iterator<Item = Tnum> {
        (0..1u64 << BITS).flat_map(|mask| {
            (0..1u64 << BITS).filter(move |value| value & mask == 0).map(move |value| Tnum { value, mask })
        })
    }

    fn members(t: Tnum) -> impl Iterator<Item = u64> {
        (0..1u64 << BITS).filter(move |n| t.contains(*n))
    }

    #[test]
    fn every_binary_operator_contains_every_concrete_result() {
        type Op = (&'static str, fn(Tnum, Tnum) -> Tnum, fn(u64, u64) -> u64);
        let ops: [Op; 6] = [
            ("add", Tnum::add, u64::wrapping_add),
            ("sub", Tnum::sub, u64::wrapping_sub),
            ("mul", Tnum::mul, u64::wrapping_mul),
            ("and", Tnum::and, |a, b| a & b),
            ("or", Tnum::or, |a, b| a | b),
            ("xor", Tnum::xor, |a, b| a ^ b),
        ];
        for (name, abstract_op, concrete) in ops {
            for a in all() {
                for b in all() {
                    let result = abstract_op(a, b);
                    assert_eq!(result.value & result.mask, 0, "{name} {a:?} {b:?}");
                    for x in members(a) {
                        for y in members(b) {
                            let got = concrete(x, y);
                            assert!(result.contains(got), "{name}: {a:?} {b:?} -> {result:?} lacks {got:#x}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn intersection_and_inclusion_are_exact() {
        for a in all() {
            for b in all() {
                let both: Vec<u64> = members(a).filter(|n| b.contains(*n)).collect();
                let met: Vec<u64> = a.intersect(b).map_or(Vec::new(), |t| members(t).collect());
                assert_eq!(both, met, "{a:?} {b:?}");
                assert_eq!(a.includes(b), members(b).all(|n| a.contains(n)), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_union_knows_the_bits_that_all_members_of_both_share() {
        for a in all() {
            for b in all() {
                let both = a.union(b);
                assert!(members(a).chain(members(b)).all(|n| both.contains(n)), "{a:?} {b:?}");
                let (some, every) = (members(a).chain(members(b)))
                    .fold((0, u64::MAX), |(some, every), n| (some | n, every & n));
                assert_eq!(both, Tnum { value: every, mask: some & !every }, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn ranges_contain_their_members_and_end_at_the_top() {
        for min in 0..64 {
            for max in min..64 {
                let t = Tnum::range(min, max);
                assert!((min..=max).all(|n| t.contains(n)));
            }
        }
        assert_eq!(Tnum::range(0, u64::MAX), Tnum::UNKNOWN);
        assert_eq!(Tnum::range(1 << 63, u64::MAX), Tnum { value: 1 << 63, mask: u64::MAX >> 1 });
    }

    #[test]
    fn sign_extension_knows_the_upper_bits_only_where_it_knows_the_sign() {
        assert_eq!(Tnum::constant(0x80).sign_extend(8), Tnum::constant(u64::MAX << 7));
        assert_eq!(Tnum::constant(0xff7f).sign_extend(8), Tnum::constant(0x7f));
        assert_eq!(Tnum { value: 1, mask: 0x80 }.sign_extend(8), Tnum { value: 1, mask: u64::MAX << 7 });
    }

    #[test]
    fn byte_swaps_move_doubt_along() {
        let t = Tnum { value: 0x12, mask: 0xff00 };
        assert_eq!(t.swap_bytes(16), Tnum { value: 0x1200, mask: 0xff });
        assert_eq!(t.swap_bytes(64), Tnum { value: 0x12 << 56, mask: 0xff << 48 });
    }
}
