//! Scalars: what is known of the number in a register, as a 64-bit number and as its lower half.
//!
//! ```text
//!   63               32 31                0
//!   [      upper       |      lower       ]
//!   '------- word: bits, u64, s64 --------'
//!                      '-- half: u32, s32 '     (its bits are the lower bits of the word)
//! ```
//!
//! Invariant: both views are normal and have narrowed each other ([`Scalar::from_views`]). A 32-bit operator clears the
//! upper half, so the two views of its result agree.

use crate::domain::num::Num;
use crate::domain::tnum::Tnum;
use skep_isa::{AluOp, ByteOrder, Size, Width, semantics};
use std::fmt;

/// The 64-bit view.
pub(crate) type Word = Num<64>;
/// The 32-bit view.
pub(crate) type Half = Num<32>;

/// What is known of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) bits: Tnum,
    pub(crate) umin: u64,
    pub(crate) umax: u64,
    pub(crate) smin: i64,
    pub(crate) smax: i64,
    pub(crate) umin32: u32,
    pub(crate) umax32: u32,
    pub(crate) smin32: i32,
    pub(crate) smax32: i32,
}

const LOW: u64 = 0xffff_ffff;

impl Scalar {
    pub(crate) const UNKNOWN: Self = Self {
        bits: Tnum::UNKNOWN,
        umin: 0,
        umax: u64::MAX,
        smin: i64::MIN,
        smax: i64::MAX,
        umin32: 0,
        umax32: u32::MAX,
        smin32: i32::MIN,
        smax32: i32::MAX,
    };

    pub(crate) const fn constant(value: u64) -> Self {
        Self {
            bits: Tnum::constant(value),
            umin: value,
            umax: value,
            smin: value as i64,
            smax: value as i64,
            umin32: value as u32,
            umax32: value as u32,
            smin32: value as i32,
            smax32: value as i32,
        }
    }

    /// Any number that fits `size`, zero-extended.
    pub(crate) const fn of_size(size: Size) -> Self {
        match size {
            Size::B8 => Self::UNKNOWN,
            Size::B4 => Self {
                bits: Tnum { value: 0, mask: LOW },
                umin: 0,
                umax: LOW,
                smin: 0,
                smax: LOW as i64,
                ..Self::UNKNOWN
            },
            Size::B2 => Self::up_to(u16::MAX as u32),
            Size::B1 => Self::up_to(u8::MAX as u32),
        }
    }

    /// Numbers from 0 to `max`, which is one less than a power of two below 2^31.
    const fn up_to(max: u32) -> Self {
        Self {
            bits: Tnum { value: 0, mask: max as u64 },
            umin: 0,
            umax: max as u64,
            smin: 0,
            smax: max as i64,
            umin32: 0,
            umax32: max,
            smin32: 0,
            smax32: max as i32,
        }
    }

    /// Numbers from `min` to `max`, both included.
    pub(crate) fn signed_range(min: i64, max: i64) -> Self {
        Self::from_views(Word { smin: min, smax: max, ..Word::UNKNOWN }, Half::UNKNOWN)
            .unwrap_or(Self::UNKNOWN)
    }

    pub(crate) const fn as_constant(&self) -> Option<u64> {
        if self.umin == self.umax { Some(self.umin) } else { None }
    }

    pub(crate) const fn is_constant(&self) -> bool {
        self.umin == self.umax
    }

    pub(crate) const fn is_unknown(&self) -> bool {
        self.bits.mask == u64::MAX
            && self.umin == 0
            && self.umax == u64::MAX
            && self.smin == i64::MIN
            && self.smax == i64::MAX
            && self.umin32 == 0
            && self.umax32 == u32::MAX
            && self.smin32 == i32::MIN
            && self.smax32 == i32::MAX
    }

    /// Whether its lower half may be anything.
    const fn low_is_unknown(&self) -> bool {
        self.bits.mask & LOW == LOW
            && self.umin32 == 0
            && self.umax32 == u32::MAX
            && self.smin32 == i32::MIN
            && self.smax32 == i32::MAX
    }

    /// Whether it stands for `value` among others.
    pub(crate) fn contains(&self, value: u64) -> bool {
        self.bits.contains(value)
            && (self.umin..=self.umax).contains(&value)
            && (self.smin..=self.smax).contains(&(value as i64))
            && (self.umin32..=self.umax32).contains(&(value as u32))
            && (self.smin32..=self.smax32).contains(&(value as i32))
    }

    /// Whether it includes every number of `other`.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        self.umin <= other.umin
            && self.umax >= other.umax
            && self.smin <= other.smin
            && self.smax >= other.smax
            && self.umin32 <= other.umin32
            && self.umax32 >= other.umax32
            && self.smin32 <= other.smin32
            && self.smax32 >= other.smax32
            && self.bits.includes(other.bits)
    }

    pub(crate) const fn word(&self) -> Word {
        Num { bits: self.bits, umin: self.umin, umax: self.umax, smin: self.smin, smax: self.smax }
    }

    pub(crate) const fn half(&self) -> Half {
        Num {
            bits: self.bits.masked(LOW),
            umin: self.umin32 as u64,
            umax: self.umax32 as u64,
            smin: self.smin32 as i64,
            smax: self.smax32 as i64,
        }
    }

    /// The number that both views describe; `None` if they contradict each other.
    pub(crate) fn from_views(word: Word, half: Half) -> Option<Self> {
        if word.umax <= LOW || word.bits.value | word.bits.mask <= LOW {
            return Self::from_low(&word, half);
        }
        Self::from_views_in_full(word, half)
    }

    fn from_views_in_full(mut word: Word, mut half: Half) -> Option<Self> {
        if !word.normal() {
            return None;
        }
        if let Some(value) = word.as_constant() {
            let low = Half::constant(value);
            return half.meet(&low).then(|| Self::constant(value));
        }
        if !half.learn_from(&word) || !half.normal() {
            return None;
        }
        if word.learn_from(&half) {
            if !word.normal() || !half.learn_from(&word) || !half.normal() {
                return None;
            }
            if let Some(value) = word.as_constant() {
                return Some(Self::constant(value));
            }
        }
        Some(Self {
            bits: Tnum {
                value: (word.bits.value & !LOW) | half.bits.value,
                mask: (word.bits.mask & !LOW) | half.bits.mask,
            },
            umin: word.umin,
            umax: word.umax,
            smin: word.smin,
            smax: word.smax,
            umin32: half.umin as u32,
            umax32: half.umax as u32,
            smin32: half.smin as i32,
            smax32: half.smax as i32,
        })
    }

    /// The same where the upper half is clear: both views describe the lower half.
    fn from_low(word: &Word, mut half: Half) -> Option<Self> {
        if word.bits.value > LOW || word.smax < 0 {
            return None;
        }
        half.bits = half.bits.intersect(word.bits.masked(LOW))?;
        half.umin = half.umin.max(word.umin).max(word.smin.max(0) as u64);
        half.umax = half.umax.min(word.umax).min(word.smax as u64);
        if half.umin > half.umax || !half.normal() {
            return None;
        }
        // What the ranges say of the bits may narrow the ranges.
        let narrower = half.umin < half.bits.value || half.umax > half.bits.value | half.bits.mask;
        if narrower && !half.normal() {
            return None;
        }
        Some(Self {
            bits: half.bits,
            umin: half.umin,
            umax: half.umax,
            smin: half.umin as i64,
            smax: half.umax as i64,
            umin32: half.umin as u32,
            umax32: half.umax as u32,
            smin32: half.smin as i32,
            smax32: half.smax as i32,
        })
    }

    fn settle(word: Word, half: Half) -> Self {
        Self::from_views(word, half).unwrap_or(Self::UNKNOWN)
    }

    /// The 64-bit number that a 32-bit result makes: its upper half is clear.
    pub(crate) fn from_half(half: Half) -> Self {
        let word = Word {
            bits: half.bits,
            umin: half.umin,
            umax: half.umax,
            smin: half.umin as i64,
            smax: half.umax as i64,
        };
        Self::settle(word, half)
    }

    /// Some number of which only the bits are known that are equal in both. It can grow 64 times.
    pub(crate) fn common_bits(&self, other: &Self) -> Self {
        Self::settle(Word::from_bits(self.bits.union(other.bits)), Half::UNKNOWN)
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn meet(&self, other: &Self) -> Option<Self> {
        let (mut word, mut half) = (self.word(), self.half());
        if !word.meet(&other.word()) || !half.meet(&other.half()) {
            return None;
        }
        Self::from_views(word, half)
    }

    /// The result of `self op other`; 32-bit results are zero-extended.
    pub(crate) fn alu(&self, op: AluOp, width: Width, other: &Self) -> Self {
        if let (Some(a), Some(b)) = (self.as_constant(), other.as_constant()) {
            return Self::constant(semantics::alu(width, op, a, b));
        }
        if matches!(op, AluOp::Add | AluOp::Sub | AluOp::Xor) {
            // Fast path: the result may be any number. Hash functions are made of such steps.
            match width {
                Width::W64 if self.is_unknown() || other.is_unknown() => return Self::UNKNOWN,
                Width::W32 if self.low_is_unknown() || other.low_is_unknown() => {
                    return Self::of_size(Size::B4);
                }
                _ => {}
            }
        }
        self.alu_in_full(op, width, other)
    }

    /// The same without the fast path.
    fn alu_in_full(&self, op: AluOp, width: Width, other: &Self) -> Self {
        match width {
            Width::W32 => Self::from_half(apply(op, &self.half(), &other.half())),
            Width::W64 => {
                let word = apply(op, &self.word(), &other.word());
                // The lower half of the result follows from the lower halves alone for these.
                let half = match op {
                    AluOp::Add | AluOp::Sub | AluOp::Mul | AluOp::And | AluOp::Or | AluOp::Xor => {
                        apply(op, &self.half(), &other.half())
                    }
                    AluOp::Mov => other.half(),
                    _ => Half::UNKNOWN,
                };
                Self::settle(word, half)
            }
        }
    }

    pub(crate) fn neg(&self, width: Width) -> Self {
        match width {
            Width::W32 => Self::from_half(self.half().neg()),
            Width::W64 => Self::settle(self.word().neg(), self.half().neg()),
        }
    }

    /// The lower 32 bits, zero-extended.
    pub(crate) fn truncated(&self) -> Self {
        if self.umax <= LOW { *self } else { Self::from_half(self.half()) }
    }

    /// The lower `size` bytes, zero-extended.
    pub(crate) fn low_bytes(&self, size: Size) -> Self {
        match size {
            Size::B8 => *self,
            Size::B4 => self.truncated(),
            _ => {
                let mask = (1u64 << size.bits()) - 1;
                if self.umax <= mask {
                    *self
                } else if let Some(value) = self.as_constant() {
                    Self::constant(value & mask)
                } else if self.is_unknown() {
                    Self::of_size(size)
                } else {
                    self.alu(AluOp::And, Width::W64, &Self::constant(mask))
                }
            }
        }
    }

    /// The lower `from` bytes, sign-extended to `width`.
    pub(crate) fn sign_extended(&self, from: Size, width: Width) -> Self {
        let bits = from.bits();
        let (min, max) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
        let mut word = Word { bits: self.bits.sign_extend(bits), smin: min, smax: max, ..Word::UNKNOWN };
        if from == Size::B4 {
            (word.smin, word.smax) = (self.smin32.into(), self.smax32.into());
        } else if self.smin >= min && self.smax <= max {
            (word.smin, word.smax) = (self.smin, self.smax);
        } else if i64::from(self.smin32) >= min && i64::from(self.smax32) <= max {
            (word.smin, word.smax) = (self.smin32.into(), self.smax32.into());
        }
        let wide = Self::settle(word, Half::UNKNOWN);
        match width {
            Width::W64 => wide,
            Width::W32 => Self::from_half(wide.half()),
        }
    }

    /// A byte-order conversion on a little-endian machine.
    pub(crate) fn endian(&self, order: ByteOrder, size: Size) -> Self {
        let low = self.low_bytes(size);
        if order == ByteOrder::ToLittle {
            return low;
        }
        Self::settle(Word { bits: low.bits.swap_bytes(size.bits()), ..Word::UNKNOWN }, Half::UNKNOWN)
    }
}

impl Half {
    /// Narrows the lower half by the 64-bit view; false if they contradict each other.
    fn learn_from(&mut self, word: &Word) -> bool {
        let Some(bits) = self.bits.intersect(word.bits.masked(LOW)) else { return false };
        self.bits = bits;
        // Within one upper half, the lower halves are ordered like the whole.
        if word.umin >> 32 == word.umax >> 32 {
            self.umin = self.umin.max(word.umin & LOW);
            self.umax = self.umax.min(word.umax & LOW);
        }
        if word.smin >> 32 == word.smax >> 32 {
            self.umin = self.umin.max(word.smin as u64 & LOW);
            self.umax = self.umax.min(word.smax as u64 & LOW);
        }
        if word.smin >= Self::SMIN && word.smax <= Self::SMAX {
            self.smin = self.smin.max(word.smin);
            self.smax = self.smax.min(word.smax);
        }
        self.umin <= self.umax && self.smin <= self.smax
    }
}

impl Word {
    /// Narrows the 64-bit view by the lower half; true if it changed.
    fn learn_from(&mut self, half: &Half) -> bool {
        let before = *self;
        self.bits.value |= half.bits.value;
        self.bits.mask &= !LOW | half.bits.mask;
        // The least number not below umin whose lower half lies in the half's range, and so on.
        if let Some(umin) = round_up(self.umin, half.umin, half.umax) {
            self.umin = umin;
        }
        if let Some(umax) = round_down(self.umax, half.umin, half.umax) {
            self.umax = umax;
        }
        const FLIP: u64 = 1 << 63; // orders signed numbers like unsigned ones; the lower half stays as it is
        if let Some(smin) = round_up(self.smin as u64 ^ FLIP, half.umin, half.umax) {
            self.smin = (smin ^ FLIP) as i64;
        }
        if let Some(smax) = round_down(self.smax as u64 ^ FLIP, half.umin, half.umax) {
            self.smax = (smax ^ FLIP) as i64;
        }
        if self.smin >= Half::SMIN && self.smax <= Half::SMAX {
            self.smin = self.smin.max(half.smin);
            self.smax = self.smax.min(half.smax);
        }
        *self != before
    }
}

/// The least number from `number` upwards whose lower half is in `min..=max`; `None` if there is none.
fn round_up(number: u64, min: u64, max: u64) -> Option<u64> {
    let (upper, lower) = (number & !LOW, number & LOW);
    if lower < min {
        Some(upper | min)
    } else if lower > max {
        Some(upper.checked_add(LOW + 1)? | min)
    } else {
        Some(number)
    }
}

/// The greatest number from `number` downwards whose lower half is in `min..=max`; `None` if there is none.
fn round_down(number: u64, min: u64, max: u64) -> Option<u64> {
    let (upper, lower) = (number & !LOW, number & LOW);
    if lower > max {
        Some(upper | max)
    } else if lower < min {
        Some(upper.checked_sub(LOW + 1)? | max)
    } else {
        Some(number)
    }
}

fn apply<const W: u32>(op: AluOp, a: &Num<W>, b: &Num<W>) -> Num<W> {
    match op {
        AluOp::Add => a.add(b),
        AluOp::Sub => a.sub(b),
        AluOp::Mul => a.mul(b),
        AluOp::Div => a.div(b),
        AluOp::Sdiv => a.sdiv(b),
        AluOp::Or => a.or(b),
        AluOp::And => a.and(b),
        AluOp::Lsh => a.shl(b),
        AluOp::Rsh => a.shr(b),
        AluOp::Arsh => a.sar(b),
        AluOp::Mod => a.rem(b),
        AluOp::Smod => a.srem(b),
        AluOp::Xor => a.xor(b),
        AluOp::Mov => *b,
    }
}

impl fmt::Display for Scalar {
    /// `7`, or `scalar(umin=1,umax=9,var_off=(0x0; 0xf))`, without what the width implies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(value) = self.as_constant() {
            return write!(f, "{}", value as i64);
        }
        f.write_str("scalar(")?;
        self.limits(f, "")?;
        f.write_str(")")
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Scalar {
    /// The limits that say something, after `separator` if there are any.
    pub(crate) fn limits(&self, f: &mut fmt::Formatter<'_>, separator: &str) -> fmt::Result {
        let mut before = separator;
        let mut item = |name: &str, value: i128| -> fmt::Result {
            write!(f, "{before}{name}={value}")?;
            before = ",";
            Ok(())
        };
        if self.smin != i64::MIN && !(self.smin == 0 && self.smax as u64 == self.umax) {
            item("smin", self.smin.into())?;
        }
        if self.smax != i64::MAX && self.smax as u64 != self.umax {
            item("smax", self.smax.into())?;
        }
        if self.umin != 0 {
            item("umin", self.umin.into())?;
        }
        if self.umax != u64::MAX {
            item("umax", self.umax.into())?;
        }
        if self.umax > LOW {
            if self.smin32 != i32::MIN {
                item("smin32", self.smin32.into())?;
            }
            if self.smax32 != i32::MAX {
                item("smax32", self.smax32.into())?;
            }
            if self.umin32 != 0 {
                item("umin32", self.umin32.into())?;
            }
            if self.umax32 != u32::MAX {
                item("umax32", self.umax32.into())?;
            }
        }
        if self.bits.mask != u64::MAX {
            write!(f, "{before}var_off={:?}", self.bits)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::comparison::{assume, assume_not};
    use skep_isa::Cond;

    /// A small generator of numbers, most of them near the places where things go wrong.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn pick<T: Copy>(&mut self, from: &[T]) -> T {
            from[(self.next() >> 33) as usize % from.len()]
        }

        fn number(&mut self) -> u64 {
            let edge = self.pick(&[0, 1 << 7, 1 << 15, 1 << 31, 1 << 32, 1 << 63, u64::MAX, 0xffff]);
            match self.next() >> 61 {
                0 => self.next(),
                1 => self.next() >> 32,
                2 => self.next() >> (self.next() & 63),
                3 => (self.next() as i64 >> (self.next() & 63)) as u64,
                4 => self.next() & 0x3f,
                _ => edge.wrapping_add(self.next() & 7).wrapping_sub(3),
            }
        }
    }

    const WIDTHS: [Width; 2] = [Width::W32, Width::W64];

    fn sign_extend(value: u64, from: Size, width: Width) -> u64 {
        let wide = match from {
            Size::B1 => i64::from(value as i8),
            Size::B2 => i64::from(value as i16),
            Size::B4 => i64::from(value as i32),
            Size::B8 => value as i64,
        };
        if width == Width::W32 { u64::from(wide as u32) } else { wide as u64 }
    }

    fn swap(value: u64, order: ByteOrder, size: Size) -> u64 {
        let value = value & (u64::MAX >> (64 - size.bits()));
        match order {
            ByteOrder::ToLittle => value,
            ByteOrder::ToBig | ByteOrder::Swap => value.swap_bytes() >> (64 - size.bits()),
        }
    }

    /// Random programs over four scalars, each run on numbers and on what is known of them: the number must
    /// never leave what is known.
    #[test]
    fn no_sequence_of_operations_and_comparisons_loses_the_concrete_value() {
        let mut random = Random(0x5eed_0001);
        let mut narrowed = 0;
        for round in 0..40_000 {
            let mut known = [Scalar::UNKNOWN; 4];
            let mut real: [u64; 4] = std::array::from_fn(|_| random.number());
            let mut log = format!("{real:x?}");
            for _ in 0..24 {
                let (a, b) = ((random.next() & 3) as usize, (random.next() >> 9 & 3) as usize);
                let width = random.pick(&WIDTHS);
                match random.next() % 8 {
                    0 | 1 => {
                        let op = random.pick(&AluOp::ALL);
                        log += &format!("\n r{a} {op:?} {width:?} r{b}");
                        known[a] = known[a].alu(op, width, &known[b]);
                        real[a] = semantics::alu(width, op, real[a], real[b]);
                    }
                    2 => {
                        let (op, imm) = (random.pick(&AluOp::ALL), random.number() as i32 as i64 as u64);
                        log += &format!("\n r{a} {op:?} {width:?} {imm:#x}");
                        known[a] = known[a].alu(op, width, &Scalar::constant(imm));
                        real[a] = semantics::alu(width, op, real[a], imm);
                    }
                    3 => match random.next() % 4 {
                        0 => {
                            log += &format!("\n r{a} = -r{a} {width:?}");
                            known[a] = known[a].neg(width);
                            real[a] = semantics::alu(width, AluOp::Sub, 0, real[a]);
                        }
                        1 => {
                            let from = random.pick(&[Size::B1, Size::B2, Size::B4]);
                            log += &format!("\n r{a} = {width:?} s{from:?} r{b}");
                            known[a] = known[b].sign_extended(from, width);
                            real[a] = sign_extend(real[b], from, width);
                        }
                        2 => {
                            let order =
                                random.pick(&[ByteOrder::ToLittle, ByteOrder::ToBig, ByteOrder::Swap]);
                            let size = random.pick(&[Size::B2, Size::B4, Size::B8]);
                            log += &format!("\n r{a} {order:?} {size:?}");
                            known[a] = known[a].endian(order, size);
                            real[a] = swap(real[a], order, size);
                        }
                        _ => {
                            let size = random.pick(&Size::ALL);
                            log += &format!("\n r{a} = r{a} as {size:?}");
                            known[a] = known[a].low_bytes(size);
                            real[a] = swap(real[a], ByteOrder::ToLittle, size);
                        }
                    },
                    kind => {
                        let cond = random.pick(&Cond::ALL);
                        // Comparisons with numbers close by narrow most.
                        let near = real[a].wrapping_add(random.next() & 15).wrapping_sub(7);
                        let (other, value) =
                            if kind > 5 { (known[b], real[b]) } else { (Scalar::constant(near), near) };
                        let taken = semantics::holds(width, cond, real[a], value);
                        log +=
                            &format!("\n r{a} {cond:?} {width:?} {value:#x} (r{b}? {}): {taken}", kind > 5);
                        let learned = if taken {
                            assume(cond, width, &known[a], &other)
                        } else {
                            assume_not(cond, width, &known[a], &other)
                        };
                        let Some((left, right)) = learned else {
                            panic!("round {round}: taken for impossible\n{log}\n{known:?}");
                        };
                        assert!(right.contains(value), "round {round}: {right:?}\n{log}");
                        narrowed += u32::from(left != known[a]);
                        known[a] = left;
                        if kind > 5 && a != b {
                            known[b] = right;
                        }
                    }
                }
                for (known, real) in known.iter().zip(&real) {
                    assert!(known.contains(*real), "round {round}: {known:?} lacks {real:#x}\n{log}");
                }
            }
        }
        assert!(narrowed > 100_000, "the comparisons say too little to test anything: {narrowed}");
    }

    #[test]
    fn short_cuts_lead_to_where_the_long_way_does() {
        let mut random = Random(0x5eed_0002);
        let unknown = [Scalar::UNKNOWN, Scalar::of_size(Size::B4), Scalar::UNKNOWN.neg(Width::W32)];
        for _ in 0..20_000 {
            let mut other = Scalar::constant(random.number());
            for _ in 0..random.next() % 4 {
                let constant = Scalar::constant(random.number());
                other = random.pick(&[other, Scalar::UNKNOWN]).alu_in_full(
                    random.pick(&AluOp::ALL),
                    random.pick(&WIDTHS),
                    &constant,
                );
            }
            let one = random.pick(&unknown);
            for (a, b) in [(one, other), (other, one)] {
                for op in AluOp::ALL {
                    for width in WIDTHS {
                        let (short, long) = (a.alu(op, width, &b), a.alu_in_full(op, width, &b));
                        assert_eq!(short, long, "{a:?} {op:?} {width:?} {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_with_a_clear_upper_half_is_as_narrow_as_the_long_way_makes_it() {
        let mut random = Random(0x5eed_0003);
        let mut wider = 0;
        for _ in 0..100_000 {
            let value = random.number() & LOW;
            let mut near = |by: u32| (value.saturating_sub(random.next() >> by), random.next() >> by);
            let ((umin, up), (low, high)) = (near(40), near(34));
            let smin = i64::from(value as i32);
            let smax = smin + (high & 0xff) as i64;
            let mut bits = |all: u64| {
                let mask = random.next() & random.next() & all;
                Tnum { value: value & !mask, mask }
            };
            let word = Word { bits: bits(LOW), umin, umax: value + up, ..Word::UNKNOWN };
            let half =
                Half { bits: bits(LOW), umin: low & LOW, smin, smax: smax.min(Half::SMAX), ..Half::UNKNOWN };
            let short = Scalar::from_views(word, half).expect("the number exists");
            let long = Scalar::from_views_in_full(word, half).expect("the number exists");
            assert!(short.contains(value) && long.contains(value), "{value:#x}: {word:?} {half:?}");
            assert!(short.umax <= long.umax && short.umin >= long.umin, "{short:?} {long:?}");
            wider += u32::from(!long.includes(&short));
        }
        assert_eq!(wider, 0, "numbers of which it knows less");
        // The two views contradict each other.
        let half = Half { umin: 8, ..Half::UNKNOWN };
        assert!(Scalar::from_views(Scalar::constant(7).word(), half).is_none());
        assert!(Scalar::from_views(Word { umax: 7, ..Word::UNKNOWN }, half).is_none());
        assert!(Scalar::from_views(Word { umax: 9, smax: -1, ..Word::UNKNOWN }, half).is_none());
    }

    #[test]
    fn what_one_view_learns_reaches_the_other() {
        // 64 -> 32: one upper half.
        let word = Word { umin: 5 << 32 | 10, umax: 5 << 32 | 20, ..Word::UNKNOWN };
        let n = Scalar::from_views(word, Half::UNKNOWN).expect("exists");
        assert_eq!((n.umin32, n.umax32, n.smin32, n.smax32), (10, 20, 10, 20));
        // Two upper halves say nothing of the lower one.
        let word = Word { umin: 10, umax: 5 << 32 | 20, ..Word::UNKNOWN };
        let n = Scalar::from_views(word, Half::UNKNOWN).expect("exists");
        assert_eq!((n.umin32, n.umax32), (0, u32::MAX));
        // 32 -> 64: where the upper half is known.
        let half = Half { umin: 3, umax: 7, ..Half::UNKNOWN };
        let n = Scalar::from_views(Scalar::of_size(Size::B4).word(), half).expect("exists");
        assert_eq!((n.umin, n.umax, n.smin, n.smax), (3, 7, 3, 7));
        // And where it is not, nothing but the lower half.
        let n = Scalar::from_views(Word::UNKNOWN, half).expect("exists");
        assert_eq!((n.umin, n.umax32, n.smin), (3, 7, i64::MIN + 3));
        // Signed, across zero.
        let n = Scalar::signed_range(-5, 5);
        assert_eq!((n.smin32, n.smax32), (-5, 5));
        // A negative lower half says nothing of the sign of the whole.
        let half = Half { smin: -1, smax: -1, ..Half::UNKNOWN };
        let n = Scalar::from_views(Word::UNKNOWN, half).expect("exists");
        assert!(n.contains(0xffff_ffff) && n.contains(u64::MAX), "{n:?}");
    }

    #[test]
    fn sign_extension_forgets_the_upper_half() {
        let n =
            Scalar::constant(0x1234_5678_0000_00ff).alu(AluOp::Or, Width::W64, &Scalar::of_size(Size::B1));
        let extended = n.sign_extended(Size::B1, Width::W64);
        assert_eq!(extended, Scalar::constant(u64::MAX));
        let unknown = Scalar::of_size(Size::B4).sign_extended(Size::B4, Width::W64);
        assert_eq!((unknown.smin, unknown.smax), (i32::MIN.into(), i32::MAX.into()));
        let half = Scalar::UNKNOWN.sign_extended(Size::B1, Width::W32);
        assert_eq!((half.umax, half.smin32, half.smax32), (0xffff_ffff, -128, 127));
    }

    #[test]
    fn text_is_short() {
        assert_eq!(Scalar::constant(u64::MAX).to_string(), "-1");
        assert_eq!(Scalar::UNKNOWN.to_string(), "scalar()");
        assert_eq!(Scalar::of_size(Size::B1).to_string(), "scalar(umax=255,var_off=(0x0; 0xff))");
    }
}
