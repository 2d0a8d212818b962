//! Comparisons, jumps, their lengths, and padding before loops.

use skep_isa::{Cond, Operand, Reg, Size, Width};

use super::encode::{self, Cc, Group1, Mem};
use super::regs::{Gpr, SCRATCH};
use super::{Emitter, gpr};
use crate::layout::{Fragment, Label};
use crate::port::Branches;

/// Bytes that the processor fetches and caches together.
const LINE: u32 = 64;

/// A jump's condition, and what else it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    Always,
    If(Cc),
    /// Where it is taken by mistake, it notes that ([`super::guard`]).
    Guarded(Cc),
}

impl Branches for Emitter<'_> {
    fn jump(&mut self, target: Label) {
        self.code.fragment(Fragment::Jump { jump: Jump::Always, target });
    }

    fn jump_if(
        &mut self,
        width: Width,
        (dst, cond, src): (Reg, Cond, Operand),
        inverted: bool,
        target: Label,
    ) {
        let to = gpr(dst);
        match (cond, src) {
            (Cond::Set, Operand::Reg(src)) => self.put(encode::test_rr(width, to, gpr(src))),
            (Cond::Set, Operand::Imm(imm)) if self.hidden(SCRATCH, width, imm) => {
                self.put(encode::test_rr(width, to, SCRATCH));
            }
            (Cond::Set, Operand::Imm(imm)) => self.put(encode::test_ri(width, to, imm)),
            (Cond::Eq | Cond::Ne, Operand::Imm(0)) if self.flags_tell(width, to) => {}
            // Both leave every flag as a comparison with zero does.
            (_, Operand::Imm(0)) => self.put_result(width, to, encode::test_rr(width, to, to)),
            (_, Operand::Imm(imm)) => self.plain_imm(Group1::Cmp, width, to, imm, SCRATCH),
            (_, Operand::Reg(src)) => self.put(encode::alu_rr(Group1::Cmp, width, to, gpr(src))),
        }
        let condition = condition(cond);
        self.jump_on(if inverted { condition.inverted() } else { condition }, target);
    }

    fn may_goto(&mut self, budget: i32, target: Label) {
        let place = Mem::at(Gpr::RBP, budget);
        self.put(encode::load(Size::B8, false, SCRATCH, place));
        self.put(encode::test_rr(Width::W64, SCRATCH, SCRATCH));
        self.code.fragment(Fragment::Jump { jump: Jump::If(Cc::Equal), target });
        self.put(encode::alu_ri(Group1::Sub, Width::W64, SCRATCH, 1));
        self.put(encode::store_r(Size::B8, place, SCRATCH));
    }
}

impl Emitter<'_> {
    /// Whether the zero flag already tells whether the register is zero. A test of its lower half says nothing of
    /// the upper one; 32-bit results, which have none, are compared in 32 bits.
    fn flags_tell(&self, width: Width, reg: Gpr) -> bool {
        self.zero == Some((reg, width))
    }
}

/// The flags that say that a condition holds after a comparison, or a test for [`Cond::Set`].
fn condition(cond: Cond) -> Cc {
    match cond {
        Cond::Eq => Cc::Equal,
        Cond::Ne | Cond::Set => Cc::NotEqual,
        Cond::Gt => Cc::Above,
        Cond::Ge => Cc::AboveOrEqual,
        Cond::Lt => Cc::Below,
        Cond::Le => Cc::BelowOrEqual,
        Cond::Sgt => Cc::Greater,
        Cond::Sge => Cc::GreaterOrEqual,
        Cond::Slt => Cc::Less,
        Cond::Sle => Cc::LessOrEqual,
    }
}

/// Bytes of the inverted jump and the conditional move of [`Jump::Guarded`].
const GUARD: u32 = 6;

/// See [`crate::layout::Encoding::jump_start`]. A jump to the next byte needs no code.
pub(super) fn jump_start(jump: Jump) -> u32 {
    if matches!(jump, Jump::Guarded(_)) { GUARD + 2 } else { 0 }
}

/// See [`crate::layout::Encoding::jump_count`].
pub(super) fn jump_count(len: u32) -> u32 {
    if len > GUARD { 3 } else { u32::from(len > 0) }
}

/// See [`crate::layout::Encoding::jump_len`].
pub(super) fn jump_len(jump: Jump, distance: i64, forward: bool, len: u32) -> u32 {
    // Distances count from the jump's end. Lengthening a jump moves its end, and its target if that is behind
    // it: so only the distance to a target before it depends on its length.
    let shortest = jump_start(jump).max(2);
    let short = if forward { distance - i64::from(len) } else { distance - i64::from(shortest) };
    if len == 0 && forward && short == 0 {
        0
    } else if len <= shortest && i8::try_from(short).is_ok() {
        shortest
    } else {
        jump_longest(jump)
    }
}

/// See [`crate::layout::Encoding::jump_longest`].
pub(super) fn jump_longest(jump: Jump) -> u32 {
    match jump {
        Jump::Always => 5,
        Jump::If(_) => 6,
        Jump::Guarded(_) => GUARD + 5,
    }
}

/// See [`crate::layout::Encoding::write_jump`].
pub(super) fn write_jump(jump: Jump, distance: i64, out: &mut [u8]) -> Option<()> {
    if let Jump::Guarded(cc) = jump {
        let (guard, last) = out.split_at_mut_checked(GUARD as usize)?;
        let (over, note) = guard.split_at_mut(2);
        let wrong = cc.inverted();
        let over_bytes = encode::jcc8(wrong.number(), (GUARD as usize - 2 + last.len()) as i8);
        over.copy_from_slice(&over_bytes.padded()[..2]);
        note.copy_from_slice(&super::guard::note(wrong).padded()[..4]);
        return write_jump(Jump::Always, distance - i64::from(GUARD), last);
    }
    let distance = distance - out.len() as i64;
    let bytes = match (jump, out.len()) {
        (_, 0) => return Some(()),
        (Jump::Always, 2) => encode::jmp8(distance as i8),
        (Jump::Always, _) => encode::jmp32(distance as i32),
        (Jump::If(cc) | Jump::Guarded(cc), 2) => encode::jcc8(cc.number(), distance as i8),
        (Jump::If(cc) | Jump::Guarded(cc), _) => encode::jcc32(cc.number(), distance as i32),
    };
    out.copy_from_slice(&bytes.padded()[..out.len()]);
    Some(())
}

/// See [`crate::layout::Encoding::write_distance`]. The distance counts from the end of the four bytes.
pub(super) fn write_distance(place: u64, target: u64, out: &mut [u8]) -> Option<()> {
    let distance = target.wrapping_sub(place.wrapping_add(4)).cast_signed();
    let from_end = i32::try_from(distance).ok()?;
    out.copy_from_slice(&from_end.to_le_bytes());
    Some(())
}

/// Bytes of padding before a loop or function of `size` bytes that would start at offset `start`.
///
/// Code within one line needs none. Other code is fastest (by up to 1.4 times, measured on Zen 4) if it begins at a
/// line, or at half a line if it takes no more lines then. Padding of more than a third of a line does not pay.
pub(super) fn alignment_padding(start: u32, size: u32) -> u32 {
    let lines = |start: u32| (start % LINE + size).div_ceil(LINE);
    let before = lines(start);
    if before == 1 {
        return 0;
    }
    [LINE, LINE / 2]
        .map(|unit| start.next_multiple_of(unit) - start)
        .into_iter()
        .find(|&padding| padding <= LINE / 3 && lines(start + padding) <= before)
        .unwrap_or(0)
}

/// Bytes of padding before a branch that can be replaced while it runs and would start at offset `start`: its
/// displacement must be the upper half of an aligned word of eight bytes.
pub(super) fn site_padding(start: u32) -> u32 {
    3u32.wrapping_sub(start) % 8
}

/// Fills the bytes with as few no-operation instructions as possible.
pub(super) fn write_padding(out: &mut [u8]) {
    for chunk in out.chunks_mut(9) {
        let len = chunk.len();
        chunk.copy_from_slice(&encode::nop(len).padded()[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_loops_use_no_more_cache_lines() {
        assert_eq!(alignment_padding(0, 64), 0);
        assert_eq!(alignment_padding(50, 14), 0, "ends with the line");
        assert_eq!(alignment_padding(50, 15), 14);
        assert_eq!(alignment_padding(50, 100), 14, "three lines become two");
        assert_eq!(alignment_padding(50, 78), 14, "two lines either way");
        assert_eq!(alignment_padding(20, 60), 12, "44 bytes to the next line are too much");
        for (start, size) in (0..64).flat_map(|start| (0..300).map(move |size| (start, size))) {
            let padding = alignment_padding(start, size);
            let lines = |start: u32| (start % 64 + size).div_ceil(64);
            assert!(padding <= 21 && lines(start + padding) <= lines(start), "{start} {size}");
            assert!(padding == 0 || (start + padding).is_multiple_of(32), "{start} {size}");
        }
    }

    #[test]
    fn padding_of_every_length_is_filled() {
        for len in 0..64 {
            let mut out = vec![0xcc; len];
            write_padding(&mut out);
            assert!(!out.contains(&0xcc));
        }
    }
}
