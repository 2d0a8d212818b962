//! Constants: the fewest moves that make a value.
//!
//! One instruction sets a whole register: `movz` (a lane of 16 bits, the others zero), `movn` (the complement of
//! that) and `orr` (a [`Bitmask`]); their 32-bit forms clear the upper half. Each `movk` after it replaces
//! one lane. So the cost of a value is the number of lanes that differ from the nearest value of one instruction.
//!
//! ```text
//!   lane   3          2          1          0
//!          63 .. 48   47 .. 32   31 .. 16   15 .. 0
//! ```

use skep_isa::Width;

use super::{Bitmask, Gpr, Logic, Word, logic_imm};

/// The effect of a move on the lanes that it does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// `movn`: the complement of what `movz` makes.
    N = 0,
    /// `movz`: zeroes.
    Z = 2,
    /// `movk`: they are kept.
    K = 3,
}

/// `movz`, `movn` or `movk rd, imm, lsl 16 * lane`
pub(crate) const fn mov_half(kind: Half, width: Width, rd: Gpr, imm: u16, lane: u8) -> Word {
    debug_assert!((lane as u32) < width.bits() / 16, "no such lane");
    Word(0x1280_0000).width(width).with(kind as u32, 29).with(lane as u32, 21).with(imm as u32, 5).d(rd)
}

/// The instructions that make a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constant {
    words: [Word; 4],
    len: usize,
}

impl Constant {
    const fn one(word: Word) -> Self {
        Self { words: [word, Word(0), Word(0), Word(0)], len: 1 }
    }

    const fn then(mut self, word: Word) -> Self {
        self.words[self.len] = word;
        self.len += 1;
        self
    }

    /// Then `movk` of one lane of the value.
    const fn then_lane(self, width: Width, rd: Gpr, value: u64, at: u8) -> Self {
        self.then(mov_half(Half::K, width, rd, lane(value, at), at))
    }

    /// The instructions, in order.
    pub(crate) fn as_slice(&self) -> &[Word] {
        &self.words[..self.len]
    }
}

/// Sets all 64 bits of `rd`, which is not register 31.
pub(crate) const fn constant(rd: Gpr, value: u64) -> Constant {
    debug_assert!(rd.number() != 31, "the zero register and the stack pointer are not set to constants");
    if value >> 32 == 0 {
        return lower(rd, value);
    }
    let moves = moves_needed(value);
    if moves == 1 {
        return by_moves(rd, value);
    }
    if let Some(mask) = Bitmask::new(Width::W64, value) {
        return masked(Width::W64, rd, mask);
    }
    if moves > 2
        && let Some(two) = with_one_kept(rd, value)
    {
        return two;
    }
    if moves > 3
        && let Some(three) = with_two_kept(rd, value)
    {
        return three;
    }
    by_moves(rd, value)
}

/// A value whose upper half is zero.
const fn lower(rd: Gpr, value: u64) -> Constant {
    let (low, high) = (lane(value, 0), lane(value, 1));
    let word = match (low, high) {
        (_, 0) => mov_half(Half::Z, Width::W32, rd, low, 0),
        (0, _) => mov_half(Half::Z, Width::W32, rd, high, 1),
        (_, 0xffff) => mov_half(Half::N, Width::W32, rd, !low, 0),
        (0xffff, _) => mov_half(Half::N, Width::W32, rd, !high, 1),
        _ => match Bitmask::new(Width::W32, value) {
            Some(mask) => return masked(Width::W32, rd, mask),
            None => {
                let first = mov_half(Half::Z, Width::W32, rd, low, 0);
                return Constant::one(first).then_lane(Width::W32, rd, value, 1);
            }
        },
    };
    Constant::one(word)
}

/// How many instructions [`by_moves`] takes.
const fn moves_needed(value: u64) -> u32 {
    let (zeroes, ones) = (lanes_that_are(value, 0), lanes_that_are(value, 0xffff));
    let kept = if ones > zeroes { ones } else { zeroes };
    if kept == 4 { 1 } else { 4 - kept }
}

/// `movz` or `movn`, then `movk`.
const fn by_moves(rd: Gpr, value: u64) -> Constant {
    let inverted = lanes_that_are(value, 0xffff) > lanes_that_are(value, 0);
    let skipped = if inverted { 0xffff } else { 0 };
    let mut first = 0;
    while first < 3 && lane(value, first) == skipped {
        first += 1;
    }
    let (kind, flip) = if inverted { (Half::N, 0xffff) } else { (Half::Z, 0) };
    let mut all = Constant::one(mov_half(kind, Width::W64, rd, lane(value, first) ^ flip, first));
    let mut at = first + 1;
    while at < 4 {
        if lane(value, at) != skipped {
            all = all.then_lane(Width::W64, rd, value, at);
        }
        at += 1;
    }
    all
}

/// One instruction and one `movk`, for values with at most one lane that is 0 or 0xffff in the other form.
const fn with_one_kept(rd: Gpr, value: u64) -> Option<Constant> {
    // The lower half by one 32-bit instruction, and one lane above it.
    let above = if lane(value, 3) == 0 { 2 } else { 3 };
    if lane(value, above ^ 1) == 0 {
        let half = lower(rd, value & 0xffff_ffff);
        if half.len == 1 {
            return Some(half.then_lane(Width::W64, rd, value, above));
        }
    }
    // A bitmask, and the lane that differs from it. In a bitmask of smaller elements that lane is the one two
    // lanes away. In a run of ones among 64 bits, the other lanes hold one end of the run or both (with none the
    // value is a move), so this lane can be made of one bit.
    let mut at = 0;
    while at < 4 {
        let fills = [0, 0xffff, lane(value, at ^ 2)];
        let mut i = 0;
        while i < fills.len() {
            if let Some(mask) = Bitmask::new(Width::W64, replaced(value, at, fills[i])) {
                return Some(masked(Width::W64, rd, mask).then_lane(Width::W64, rd, value, at));
            }
            i += 1;
        }
        at += 1;
    }
    None
}

/// A bitmask and two `movk`, for values without a lane that is 0 or 0xffff.
const fn with_two_kept(rd: Gpr, value: u64) -> Option<Constant> {
    let mut a = 0;
    while a < 4 {
        let mut b = a + 1;
        while b < 4 {
            // As in [`with_one_kept`]: lanes made of one bit, or the ones that elements of at most 32 bits repeat.
            let other = lane(value, a ^ 1);
            let repeated = if b == a + 2 { (other, other) } else { (lane(value, a ^ 2), lane(value, b ^ 2)) };
            let fills = [(0, 0), (0, 0xffff), (0xffff, 0), (0xffff, 0xffff), repeated];
            let mut i = 0;
            while i < fills.len() {
                let base = replaced(replaced(value, a, fills[i].0), b, fills[i].1);
                if let Some(mask) = Bitmask::new(Width::W64, base) {
                    let first = masked(Width::W64, rd, mask);
                    let second = first.then_lane(Width::W64, rd, value, a);
                    return Some(second.then_lane(Width::W64, rd, value, b));
                }
                i += 1;
            }
            b += 1;
        }
        a += 1;
    }
    None
}

const fn masked(width: Width, rd: Gpr, mask: Bitmask) -> Constant {
    Constant::one(logic_imm(Logic::Orr, width, rd, Gpr::ZR, mask))
}

const fn lane(value: u64, at: u8) -> u16 {
    (value >> (16 * at as u32)) as u16
}

const fn replaced(value: u64, at: u8, with: u16) -> u64 {
    let shift = 16 * at as u32;
    value & !(0xffff << shift) | (with as u64) << shift
}

const fn lanes_that_are(value: u64, wanted: u16) -> u32 {
    let mut count = 0;
    let mut at = 0;
    while at < 4 {
        count += (lane(value, at) == wanted) as u32;
        at += 1;
    }
    count
}
