//! Numbers of `W` bits as known bits, an unsigned and a signed range: the transfer functions.
//!
//! The width is a parameter so that the same code serves 64 and 32 bits, and so that tests can try every
//! operand of four- and five-bit numbers. Unsigned members are kept zero-extended and signed ones
//! sign-extended in 64 bits.
//!
//! Contract of every operator: if `x` is in `a` and `y` is in `b`, then the concrete result is in
//! `op(a, b)`. Results are [normal](Num::normal): each of the three views has narrowed the others.
//! Division by zero gives 0, remainder by zero the dividend, and shift counts are masked to the width
//! (RFC 9669, section 4.1).

use crate::domain::tnum::Tnum;

/// What is known of a number of `W` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Num<const W: u32> {
    pub(crate) bits: Tnum,
    pub(crate) umin: u64,
    pub(crate) umax: u64,
    pub(crate) smin: i64,
    pub(crate) smax: i64,
}

impl<const W: u32> Num<W> {
    pub(crate) const MASK: u64 = u64::MAX >> (64 - W);
    const SIGN: u64 = 1 << (W - 1);
    pub(crate) const SMIN: i64 = i64::MIN >> (64 - W);
    pub(crate) const SMAX: i64 = i64::MAX >> (64 - W);

    pub(crate) const UNKNOWN: Self = Self {
        bits: Tnum { value: 0, mask: Self::MASK },
        umin: 0,
        umax: Self::MASK,
        smin: Self::SMIN,
        smax: Self::SMAX,
    };

    pub(crate) const fn constant(value: u64) -> Self {
        let value = value & Self::MASK;
        let signed = Self::signed(value);
        Self { bits: Tnum::constant(value), umin: value, umax: value, smin: signed, smax: signed }
    }

    /// The value if it is known.
    pub(crate) const fn as_constant(&self) -> Option<u64> {
        if self.umin == self.umax { Some(self.umin) } else { None }
    }

    pub(crate) const fn signed(value: u64) -> i64 {
        ((value << (64 - W)) as i64) >> (64 - W)
    }

    pub(crate) fn from_bits(bits: Tnum) -> Self {
        Self { bits: bits.masked(Self::MASK), ..Self::UNKNOWN }
    }

    fn from_unsigned(umin: u64, umax: u64) -> Self {
        Self { umin, umax, ..Self::UNKNOWN }
    }

    fn from_signed(smin: i64, smax: i64) -> Self {
        Self { smin, smax, ..Self::UNKNOWN }
    }

    /// The normal form of a result. Views that contradict each other describe no number; then nothing is claimed.
    fn settle(mut self) -> Self {
        if self.normal() { self } else { Self::UNKNOWN }
    }

    /// Lets each view narrow the others. False if they contradict each other: no such number exists, and the path
    /// is never taken.
    pub(crate) fn normal(&mut self) -> bool {
        if self.umin == self.umax {
            let value = self.umin;
            let signed = Self::signed(value);
            let exists = (value ^ self.bits.value) & !self.bits.mask == 0
                && self.smin <= signed
                && signed <= self.smax;
            *self = Self::constant(value);
            return exists;
        }
        // From bits to ranges.
        self.umin = self.umin.max(self.bits.value);
        self.umax = self.umax.min(self.bits.value | self.bits.mask);
        let sign_unknown = self.bits.mask & Self::SIGN;
        self.smin = self.smin.max(Self::signed(self.bits.value | sign_unknown));
        self.smax = self.smax.min(Self::signed(self.bits.value | (self.bits.mask & !Self::SIGN)));
        if self.umin > self.umax || self.smin > self.smax {
            return false;
        }
        if !self.exchange() {
            return false;
        }
        // From ranges to bits. The bits may in turn narrow the ranges, which the next operation will see.
        match self.bits.intersect(Tnum::range(self.umin, self.umax)) {
            Some(bits) => self.bits = bits,
            None => return false,
        }
        if self.bits.is_constant() {
            let value = self.bits.value;
            let signed = Self::signed(value);
            let exists =
                self.umin <= value && value <= self.umax && self.smin <= signed && signed <= self.smax;
            *self = Self::constant(value);
            return exists;
        }
        true
    }

    /// Lets the two ranges narrow each other.
    ///
    /// ```text
    ///   unsigned  0 ........ SMAX | SMAX+1 ........ MAX
    ///   signed    0 ........ SMAX | SMIN .......... -1
    /// ```
    fn exchange(&mut self) -> bool {
        if self.smin >= 0 || self.smax < 0 {
            // One half of the unsigned line, in which both orders agree.
            self.umin = self.umin.max(self.smin as u64 & Self::MASK);
            self.umax = self.umax.min(self.smax as u64 & Self::MASK);
        } else if self.umin > self.smax as u64 {
            // Not in [0, smax], so in [smin, -1].
            self.umin = self.umin.max(self.smin as u64 & Self::MASK);
        } else if self.umax < self.smin as u64 & Self::MASK {
            // Not in [smin, -1], so in [0, smax].
            self.umax = self.umax.min(self.smax as u64);
        }
        if self.umin > self.umax {
            return false;
        }
        if (self.umin ^ self.umax) & Self::SIGN == 0 {
            self.smin = self.smin.max(Self::signed(self.umin));
            self.smax = self.smax.min(Self::signed(self.umax));
        }
        self.smin <= self.smax
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        let mut result = Self::from_bits(self.bits.add(other.bits));
        let (low, high) =
            (u128::from(self.umin) + u128::from(other.umin), u128::from(self.umax) + u128::from(other.umax));
        let top = u128::from(Self::MASK);
        if (low > top) == (high > top) {
            // Neither sum wraps, or both do.
            (result.umin, result.umax) = (low as u64 & Self::MASK, high as u64 & Self::MASK);
        }
        let low = i128::from(self.smin) + i128::from(other.smin);
        let high = i128::from(self.smax) + i128::from(other.smax);
        result.set_signed_wrapping(low, high);
        result.settle()
    }

    pub(crate) fn sub(&self, other: &Self) -> Self {
        let mut result = Self::from_bits(self.bits.sub(other.bits));
        let below_low = self.umin < other.umax;
        let below_high = self.umax < other.umin;
        if below_low == below_high {
            result.umin = self.umin.wrapping_sub(other.umax) & Self::MASK;
            result.umax = self.umax.wrapping_sub(other.umin) & Self::MASK;
        }
        let low = i128::from(self.smin) - i128::from(other.smax);
        let high = i128::from(self.smax) - i128::from(other.smin);
        result.set_signed_wrapping(low, high);
        result.settle()
    }

    /// The signed range `low..=high`, if all or none of it wraps around in the same direction.
    fn set_signed_wrapping(&mut self, low: i128, high: i128) {
        let turns = |n: i128| (n - i128::from(Self::SMIN)) >> W;
        if turns(low) == turns(high) {
            self.smin = Self::signed(low as u64);
            self.smax = Self::signed(high as u64);
        }
    }

    pub(crate) fn neg(&self) -> Self {
        Self::constant(0).sub(self)
    }

    pub(crate) fn mul(&self, other: &Self) -> Self {
        let mut result = Self::from_bits(self.bits.mul(other.bits));
        let high = u128::from(self.umax) * u128::from(other.umax);
        if high <= u128::from(Self::MASK) {
            (result.umin, result.umax) = (self.umin * other.umin, high as u64);
        }
        let products = [
            i128::from(self.smin) * i128::from(other.smin),
            i128::from(self.smin) * i128::from(other.smax),
            i128::from(self.smax) * i128::from(other.smin),
            i128::from(self.smax) * i128::from(other.smax),
        ];
        let low = products.iter().copied().fold(i128::MAX, i128::min);
        let high = products.iter().copied().fold(i128::MIN, i128::max);
        if low >= i128::from(Self::SMIN) && high <= i128::from(Self::SMAX) {
            (result.smin, result.smax) = (low as i64, high as i64);
        }
        result.settle()
    }

    pub(crate) fn div(&self, other: &Self) -> Self {
        let (umin, umax) = match (other.umin, other.umax) {
            (0, 0) => (0, 0),
            (0, _) => (0, self.umax), // by zero gives 0, by one the dividend
            (least, most) => (self.umin / most, self.umax / least),
        };
        Self::from_unsigned(umin, umax).settle()
    }

    pub(crate) fn rem(&self, other: &Self) -> Self {
        if other.umax == 0 || self.umax < other.umin {
            return *self;
        }
        if let Some(divisor) = other.as_constant()
            && divisor.is_power_of_two()
        {
            return self.and(&Self::constant(divisor - 1));
        }
        let umax = if other.umin == 0 { self.umax } else { self.umax.min(other.umax - 1) };
        Self::from_unsigned(0, umax).settle()
    }

    pub(crate) fn sdiv(&self, other: &Self) -> Self {
        match other.as_constant() {
            Some(0) => return Self::constant(0),
            Some(divisor) if divisor == Self::MASK => return self.neg(), // SMIN / -1 wraps to SMIN
            Some(divisor) => {
                let divisor = Self::signed(divisor);
                let (a, b) = (self.smin / divisor, self.smax / divisor);
                return Self::from_signed(a.min(b), a.max(b)).settle();
            }
            None => {}
        }
        // A quotient is never further from zero than its dividend, on either side of it.
        let magnitude = self.smin.unsigned_abs().max(self.smax.unsigned_abs());
        if magnitude > Self::SMAX as u64 {
            return Self::UNKNOWN;
        }
        let magnitude = magnitude as i64;
        Self::from_signed(-magnitude, magnitude).settle()
    }

    pub(crate) fn srem(&self, other: &Self) -> Self {
        if other.umax == 0 {
            return *self;
        }
        // A remainder has its dividend's sign and at most its magnitude...
        let (mut smin, mut smax) = (self.smin.min(0), self.smax.max(0));
        if other.smin > 0 || other.smax < 0 {
            // ...and a smaller one than its divisor, unless that is zero.
            let divisor = other.smin.unsigned_abs().max(other.smax.unsigned_abs());
            let most = (divisor - 1).min(Self::SMAX as u64) as i64;
            (smin, smax) = (smin.max(-most), smax.min(most));
        }
        Self::from_signed(smin, smax).settle()
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut result = Self::from_bits(self.bits.and(other.bits));
        result.umax = self.umax.min(other.umax);
        result.sign_run(self, other);
        result.settle()
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        let mut result = Self::from_bits(self.bits.or(other.bits));
        result.umin = self.umin.max(other.umin);
        result.sign_run(self, other);
        result.settle()
    }

    pub(crate) fn xor(&self, other: &Self) -> Self {
        let mut result = Self::from_bits(self.bits.xor(other.bits));
        result.sign_run(self, other);
        result.settle()
    }

    /// Bitwise operators on two numbers whose upper bits all equal their signs make another such number.
    fn sign_run(&mut self, a: &Self, b: &Self) {
        let magnitude = |n: i64| (n ^ (n >> 63)) as u64;
        let widest = magnitude(a.smin) | magnitude(a.smax) | magnitude(b.smin) | magnitude(b.smax);
        if widest < Self::SIGN >> 1 {
            let span = (u64::MAX >> (widest | 1).leading_zeros()) as i64;
            (self.smin, self.smax) = (-span - 1, span);
        }
    }

    /// The least and the greatest shift count, where no masking can come in between.
    fn counts(&self) -> Option<(u32, u32)> {
        (self.umax < u64::from(W)).then_some((self.umin as u32, self.umax as u32))
    }

    pub(crate) fn shl(&self, count: &Self) -> Self {
        let Some((least, most)) = count.counts() else { return self.shift_unknown(count, Self::shl) };
        let mut result = Self::UNKNOWN;
        if least == most {
            result.bits = self.bits.shl(least).masked(Self::MASK);
        } else {
            // Zeroes come in from below, at least that many; known zeroes below stay zeroes.
            let zeroes = (self.bits.value | self.bits.mask).trailing_zeros().min(W) + least;
            result.bits.mask = if zeroes >= W { 0 } else { (Self::MASK << zeroes) & Self::MASK };
        }
        if self.umax <= Self::MASK >> most {
            (result.umin, result.umax) = (self.umin << least, self.umax << most);
        }
        let fits = |n: i64| n >= Self::SMIN >> most && n <= Self::SMAX >> most;
        if fits(self.smin) && fits(self.smax) {
            result.smin = if self.smin < 0 { self.smin << most } else { self.smin << least };
            result.smax = if self.smax < 0 { self.smax << least } else { self.smax << most };
        }
        result.settle()
    }

    pub(crate) fn shr(&self, count: &Self) -> Self {
        let Some((least, most)) = count.counts() else { return self.shift_unknown(count, Self::shr) };
        let mut result = Self::from_unsigned(self.umin >> most, self.umax >> least);
        if least == most {
            result.bits = self.bits.shr(least);
        }
        result.settle()
    }

    pub(crate) fn sar(&self, count: &Self) -> Self {
        let Some((least, most)) = count.counts() else { return self.shift_unknown(count, Self::sar) };
        let smin = if self.smin < 0 { self.smin >> least } else { self.smin >> most };
        let smax = if self.smax < 0 { self.smax >> most } else { self.smax >> least };
        let mut result = Self::from_signed(smin, smax);
        if least == most {
            let bits = self.bits.sign_extend(W);
            let bits = Tnum {
                value: ((bits.value as i64) >> least) as u64,
                mask: ((bits.mask as i64) >> least) as u64,
            };
            result.bits = bits.masked(Self::MASK);
        }
        result.settle()
    }

    /// A shift by a count that may reach the width: the machine masks it.
    fn shift_unknown(&self, count: &Self, shift: fn(&Self, &Self) -> Self) -> Self {
        let low = u64::from(W - 1);
        if !W.is_power_of_two() {
            return Self::UNKNOWN; // no such width exists but in tests
        }
        shift(self, &count.and(&Self::constant(low)))
    }

    /// The intersection; false if it is empty.
    pub(crate) fn meet(&mut self, other: &Self) -> bool {
        let Some(bits) = self.bits.intersect(other.bits) else { return false };
        self.bits = bits;
        self.umin = self.umin.max(other.umin);
        self.umax = self.umax.min(other.umax);
        self.smin = self.smin.max(other.smin);
        self.smax = self.smax.min(other.smax);
        self.umin <= self.umax && self.smin <= self.smax
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: u32 = 4;
    type N = Num<W>;
    const ALL: std::ops::Range<u64> = 0..1 << W;

    fn contains(n: &N, value: u64) -> bool {
        let signed = N::signed(value);
        n.bits.contains(value) && (n.umin..=n.umax).contains(&value) && (n.smin..=n.smax).contains(&signed)
    }

    fn members(n: &N) -> Vec<u64> {
        ALL.filter(|value| contains(n, *value)).collect()
    }

    /// Every unsigned range, every signed range, every pattern of known bits, and mixtures of them.
    fn samples() -> Vec<(N, Vec<u64>)> {
        let mut raw = Vec::new();
        for low in ALL {
            for high in low..1 << W {
                raw.push(N { umin: low, umax: high, ..N::UNKNOWN });
                let (low, high) = (low as i64 + N::SMIN, high as i64 + N::SMIN);
                raw.push(N { smin: low, smax: high, ..N::UNKNOWN });
            }
        }
        for mask in ALL {
            for value in ALL.filter(|value| value & mask == 0) {
                raw.push(N { bits: Tnum { value, mask }, ..N::UNKNOWN });
            }
        }
        let pure = raw.len();
        for at in 0..pure {
            let mut mixed = raw[at];
            let other = &raw[(at * 7 + 3) % pure];
            if mixed.meet(other) {
                raw.push(mixed);
            }
        }
        let mut samples = Vec::new();
        for mut n in raw {
            let before = members(&n);
            let exists = n.normal();
            assert!(exists || before.is_empty(), "{n:?} had {before:?}");
            if exists && !before.is_empty() {
                assert_eq!(members(&n), before, "normal form changed the members of {n:?}");
                if !samples.iter().any(|(known, _)| *known == n) {
                    samples.push((n, before));
                }
            }
        }
        samples
    }

    fn signed_op(a: u64, b: u64, op: fn(i64, i64) -> i64) -> u64 {
        op(N::signed(a), N::signed(b)) as u64
    }

    #[test]
    fn every_operator_contains_every_concrete_result_of_four_bit_numbers() {
        type Op = (&'static str, fn(&N, &N) -> N, fn(u64, u64) -> u64);
        let ops: [Op; 13] = [
            ("+", N::add, u64::wrapping_add),
            ("-", N::sub, u64::wrapping_sub),
            ("*", N::mul, u64::wrapping_mul),
            ("/", N::div, |a, b| a.checked_div(b).unwrap_or(0)),
            ("%", N::rem, |a, b| a.checked_rem(b).unwrap_or(a)),
            ("s/", N::sdiv, |a, b| if b == 0 { 0 } else { signed_op(a, b, i64::wrapping_div) }),
            ("s%", N::srem, |a, b| if b == 0 { a } else { signed_op(a, b, i64::wrapping_rem) }),
            ("&", N::and, |a, b| a & b),
            ("|", N::or, |a, b| a | b),
            ("^", N::xor, |a, b| a ^ b),
            ("<<", N::shl, |a, b| a << (b % 4)),
            (">>", N::shr, |a, b| a >> (b % 4)),
            ("s>>", N::sar, |a, b| (N::signed(a) >> (b % 4)) as u64),
        ];
        let samples = samples();
        for (name, op, concrete) in ops {
            for (a, xs) in &samples {
                for (b, ys) in &samples {
                    let result = op(a, b);
                    for x in xs {
                        for y in ys {
                            let value = concrete(*x, *y) & N::MASK;
                            assert!(
                                contains(&result, value),
                                "{x} {name} {y} = {value}: {a:?} {name} {b:?} = {result:?}"
                            );
                        }
                    }
                }
            }
        }
        for (a, xs) in &samples {
            assert!(xs.iter().all(|x| contains(&a.neg(), x.wrapping_neg() & N::MASK)), "-{a:?}");
        }
    }

    #[test]
    fn meeting_loses_no_common_member() {
        let samples = samples();
        for (a, xs) in &samples {
            for (b, ys) in &samples {
                let mut met = *a;
                let exists = met.meet(b) && met.normal();
                for x in xs.iter().filter(|x| ys.contains(x)) {
                    assert!(exists && contains(&met, *x), "{x} is in {a:?} and {b:?}, not in {met:?}");
                }
            }
        }
    }

    #[test]
    fn comparisons_keep_exactly_the_operands_for_which_they_hold() {
        use crate::domain::comparison::narrow;
        use skep_isa::Cond;
        type Holds = fn(u64, u64) -> bool;
        let conditions: [(Cond, Holds); 11] = [
            (Cond::Eq, |a, b| a == b),
            (Cond::Ne, |a, b| a != b),
            (Cond::Gt, |a, b| a > b),
            (Cond::Ge, |a, b| a >= b),
            (Cond::Lt, |a, b| a < b),
            (Cond::Le, |a, b| a <= b),
            (Cond::Sgt, |a, b| N::signed(a) > N::signed(b)),
            (Cond::Sge, |a, b| N::signed(a) >= N::signed(b)),
            (Cond::Slt, |a, b| N::signed(a) < N::signed(b)),
            (Cond::Sle, |a, b| N::signed(a) <= N::signed(b)),
            (Cond::Set, |a, b| a & b != 0),
        ];
        let samples = samples();
        for (cond, holds) in conditions {
            for (a, xs) in &samples {
                for (b, ys) in &samples {
                    let (mut left, mut right) = (*a, *b);
                    let possible = narrow(cond, &mut left, &mut right) && left.normal() && right.normal();
                    let mut any = false;
                    for x in xs {
                        for y in ys.iter().filter(|y| holds(*x, **y)) {
                            any = true;
                            assert!(possible, "{x} {cond:?} {y} holds in {a:?}, {b:?}");
                            assert!(
                                contains(&left, *x) && contains(&right, *y),
                                "{x} {cond:?} {y}: {a:?}, {b:?} became {left:?}, {right:?}"
                            );
                        }
                    }
                    // Known operands are decided.
                    if a.as_constant().is_some() && b.as_constant().is_some() {
                        assert_eq!(possible, any, "{a:?} {cond:?} {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_smallest_number_is_its_own_negation_and_quotient() {
        let smallest = Num::<64>::constant(1 << 63);
        let minus_one = Num::<64>::constant(u64::MAX);
        assert_eq!(smallest.neg(), smallest);
        assert_eq!(smallest.sdiv(&minus_one), smallest);
        assert_eq!(smallest.srem(&minus_one), Num::constant(0));
        let around = Num::<64> { smin: i64::MIN, smax: i64::MIN + 1, ..Num::UNKNOWN };
        let negated = around.neg();
        assert!(negated.smin == i64::MIN && negated.smax == i64::MAX, "{negated:?}");
    }

    #[test]
    fn counts_that_may_reach_the_width_say_no_more_than_masked_ones() {
        let one = Num::<32>::constant(1);
        let count = Num::<32> { umin: 31, umax: 32, ..Num::UNKNOWN };
        let shifted = one.shl(&count);
        assert!(shifted.umin <= 1 && shifted.umax >= 1 << 31, "{shifted:?}"); // 1 << 32 is 1 << 0
    }
}
