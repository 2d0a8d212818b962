//! Comparisons, jumps, their lengths, and padding before loops.

use skep_isa::{Cond, Operand, Reg, Size, Width};

use super::Emitter;
use super::alu::operand;
use super::encode::{self, Bitmask, Cc, Imm12, Mem, Shifted, Sum, Word};
use super::regs::{Gpr, SCRATCH};
use crate::layout::{Fragment, Label};
use crate::port::Branches;

/// Bytes that processors fetch together: the optimisation guides of Arm's Neoverse cores ask for branch targets
/// that are multiples of this.
const FETCH: u32 = 32;

/// The condition of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// Always.
    Always,
    /// By the flags.
    Flags(Cc),
    /// A register is zero, or not.
    Zero { nonzero: bool, width: Width, reg: Gpr },
    /// A bit of a register is clear, or set.
    Bit { set: bool, reg: Gpr, bit: u8 },
    /// By the flags; where it is taken by mistake, it notes that ([`super::guard`]).
    Guarded(Cc),
}

impl Jump {
    /// The opposite; nothing is the opposite of always.
    fn inverted(self) -> Option<Self> {
        match self {
            Self::Always => None,
            Self::Flags(cc) => Some(Self::Flags(cc.inverted())),
            Self::Zero { nonzero, width, reg } => Some(Self::Zero { nonzero: !nonzero, width, reg }),
            Self::Bit { set, reg, bit } => Some(Self::Bit { set: !set, reg, bit }),
            Self::Guarded(cc) => Some(Self::Guarded(cc.inverted())),
        }
    }

    /// Whether one instruction jumps that far.
    fn reaches(self, distance: i64) -> bool {
        match self {
            Self::Always => encode::reaches_26(distance),
            Self::Flags(_) | Self::Guarded(_) | Self::Zero { .. } => encode::reaches_19(distance),
            Self::Bit { .. } => encode::reaches_14(distance),
        }
    }

    fn encode(self, distance: i64) -> Word {
        match self {
            Self::Always => encode::b(distance),
            Self::Flags(cc) | Self::Guarded(cc) => encode::b_cond(cc, distance),
            Self::Zero { nonzero, width, reg } => encode::cbz(nonzero, width, reg, distance),
            Self::Bit { set, reg, bit } => encode::tbz(set, reg, bit, distance),
        }
    }
}

impl Branches for Emitter<'_> {
    fn jump(&mut self, target: Label) {
        self.settle();
        self.code.fragment(Fragment::Jump { jump: Jump::Always, target });
    }

    fn jump_if(
        &mut self,
        width: Width,
        (dst, cond, src): (Reg, Cond, Operand),
        inverted: bool,
        target: Label,
    ) {
        let a = self.read(dst);
        let jump = match src {
            Operand::Imm(imm) => match self.without_flags(width, a, cond, imm) {
                Some(jump) if !self.options.mask_speculation => jump,
                _ => self.compare_imm(width, a, cond, imm),
            },
            Operand::Reg(src) => {
                // `r10` against itself needs no second register either.
                let b = self.read(src);
                match cond {
                    Cond::Set => self.put(encode::test_reg(width, a, Shifted::plain(b))),
                    _ => self.put(encode::sum_reg_flags(Sum::Sub, width, Gpr::ZR, a, Shifted::plain(b))),
                }
                Jump::Flags(condition(cond))
            }
        };
        self.settle();
        let jump = if inverted { jump.inverted().unwrap_or(jump) } else { jump };
        if let Jump::Flags(cc) = jump {
            return self.jump_on(cc, target);
        }
        self.code.fragment(Fragment::Jump { jump, target });
    }

    fn may_goto(&mut self, budget: i32, target: Label) {
        self.settle();
        let place = Mem::At(Gpr::SP, self.frame.top() as i32 + budget);
        self.put(encode::load(Size::B8, None, SCRATCH, place));
        let jump = Jump::Zero { nonzero: false, width: Width::W64, reg: SCRATCH };
        self.code.fragment(Fragment::Jump { jump, target });
        self.add_imm(Width::W64, SCRATCH, SCRATCH, -1);
        self.put(encode::store(Size::B8, SCRATCH, place));
    }
}

impl Emitter<'_> {
    /// The jump that tests a register itself, if there is one.
    fn without_flags(&self, width: Width, reg: Gpr, cond: Cond, imm: i32) -> Option<Jump> {
        let sign = width.bits() as u8 - 1;
        match (cond, imm) {
            (Cond::Eq | Cond::Le, 0) | (Cond::Lt, 1) => Some(Jump::Zero { nonzero: false, width, reg }),
            (Cond::Ne | Cond::Gt, 0) | (Cond::Ge, 1) => Some(Jump::Zero { nonzero: true, width, reg }),
            (Cond::Slt, 0) | (Cond::Sle, -1) => Some(Jump::Bit { set: true, reg, bit: sign }),
            (Cond::Sge, 0) | (Cond::Sgt, -1) => Some(Jump::Bit { set: false, reg, bit: sign }),
            (Cond::Set, _) => {
                let mask = operand(width, imm);
                mask.is_power_of_two().then(|| Jump::Bit { set: true, reg, bit: mask.trailing_zeros() as u8 })
            }
            _ => None,
        }
    }

    fn compare_imm(&mut self, width: Width, a: Gpr, cond: Cond, imm: i32) -> Jump {
        let value = operand(width, imm);
        let (positive, negative) = (Imm12::new(value), Imm12::new(i64::from(imm).unsigned_abs()));
        match (cond, positive, negative) {
            (Cond::Set, ..) => match Bitmask::new(width, value) {
                Some(mask) if !self.hides(value) => self.put(encode::test_imm(width, a, mask)),
                _ => {
                    self.constant(SCRATCH, value);
                    self.put(encode::test_reg(width, a, Shifted::plain(SCRATCH)));
                }
            },
            (_, Some(imm), _) => self.put(encode::sum_imm_flags(Sum::Sub, width, Gpr::ZR, a, imm)),
            // Adding a number sets every flag as subtracting its negation does, zero excepted.
            (_, None, Some(negated)) if imm < 0 => {
                self.put(encode::sum_imm_flags(Sum::Add, width, Gpr::ZR, a, negated));
            }
            _ => {
                self.constant(SCRATCH, value);
                self.put(encode::sum_reg_flags(Sum::Sub, width, Gpr::ZR, a, Shifted::plain(SCRATCH)));
            }
        }
        Jump::Flags(condition(cond))
    }
}

/// The flags that say that a condition holds after a comparison, or a test for [`Cond::Set`].
fn condition(cond: Cond) -> Cc {
    match cond {
        Cond::Eq => Cc::Eq,
        Cond::Ne | Cond::Set => Cc::Ne,
        Cond::Gt => Cc::Hi,
        Cond::Ge => Cc::Hs,
        Cond::Lt => Cc::Lo,
        Cond::Le => Cc::Ls,
        Cond::Sgt => Cc::Gt,
        Cond::Sge => Cc::Ge,
        Cond::Slt => Cc::Lt,
        Cond::Sle => Cc::Le,
    }
}

/// Bytes of the inverted jump and the note of [`Jump::Guarded`].
const GUARD: u32 = 12;

/// See [`crate::layout::Encoding::jump_start`]. A jump to the next instruction needs no code.
pub(super) fn jump_start(jump: Jump) -> u32 {
    if matches!(jump, Jump::Guarded(_)) { GUARD + 4 } else { 0 }
}

/// See [`crate::layout::Encoding::jump_len`].
pub(super) fn jump_len(jump: Jump, distance: i64, forward: bool, len: u32) -> u32 {
    // Distances count from the jump's start. Lengthening a jump moves its target if that is after it.
    let short = if forward { distance - i64::from(len) + 4 } else { distance };
    if matches!(jump, Jump::Guarded(_)) {
        return jump_longest(jump);
    }
    if len == 0 && forward && distance == 0 {
        0
    } else if len <= 4 && jump.reaches(short) {
        4
    } else {
        jump_longest(jump)
    }
}

/// See [`crate::layout::Encoding::jump_longest`].
pub(super) fn jump_longest(jump: Jump) -> u32 {
    match jump {
        Jump::Always => 4,
        Jump::Guarded(_) => GUARD + 4,
        _ => 8,
    }
}

/// See [`crate::layout::Encoding::write_jump`]. The long form is the opposite jump over an unconditional one.
pub(super) fn write_jump(jump: Jump, distance: i64, out: &mut [u8]) -> Option<()> {
    if let Jump::Guarded(cc) = jump {
        let (guard, last) = out.split_at_mut_checked(GUARD as usize)?;
        let [note, settled] = super::guard::note(cc.inverted());
        let words = [encode::b_cond(cc.inverted(), i64::from(GUARD) + 4), note, settled];
        guard.chunks_mut(4).zip(words).for_each(|(out, word)| out.copy_from_slice(&word.0.to_le_bytes()));
        return write_jump(Jump::Always, distance - i64::from(GUARD), last);
    }
    let (over, last) = match (out.len(), jump.inverted()) {
        (0, _) => return Some(()),
        (8, Some(inverted)) => (Some(inverted.encode(8)), Jump::Always),
        _ => (None, jump),
    };
    let distance = distance - if over.is_some() { 4 } else { 0 };
    if !last.reaches(distance) {
        return None;
    }
    let words = over.into_iter().chain([last.encode(distance)]);
    out.chunks_mut(4).zip(words).for_each(|(out, word)| out.copy_from_slice(&word.0.to_le_bytes()));
    Some(())
}

/// See [`crate::layout::Encoding::write_distance`]. The instruction is a `BL`, `ADR` or `ADRP` without its
/// distance, or an `ADD` without the address within the page.
pub(super) fn write_distance(place: u64, target: u64, out: &mut [u8]) -> Option<()> {
    let word = u32::from_le_bytes(<[u8; 4]>::try_from(&*out).ok()?);
    let rd = Gpr::numbered((word & 31) as u8);
    let distance = target.wrapping_sub(place).cast_signed();
    let completed = if word == encode::bl(0).0 {
        encode::reaches_26(distance).then(|| encode::bl(distance))?
    } else if word == encode::adr(rd, 0).0 {
        // One bit more than a conditional branch, and no multiple of four.
        (-(1 << 20)..1 << 20).contains(&distance).then(|| encode::adr(rd, distance))?
    } else if word == encode::adrp(rd, 0).0 {
        let pages = (target >> 12).wrapping_sub(place >> 12).cast_signed();
        (-(1 << 20)..1 << 20).contains(&pages).then(|| encode::adrp(rd, pages))?
    } else {
        let within = Imm12::new(target & 0xfff)?;
        encode::sum_imm(Sum::Add, Width::W64, rd, rd, within)
    };
    out.copy_from_slice(&completed.0.to_le_bytes());
    Some(())
}

/// Padding before a loop or function of `size` bytes at offset `start`: at most two instructions, if that saves
/// a fetch in each iteration.
pub(super) fn alignment_padding(start: u32, size: u32) -> u32 {
    let fetches = |start: u32| (start % FETCH + size).div_ceil(FETCH);
    let padding = start.next_multiple_of(FETCH) - start;
    if padding <= 8 && fetches(start + padding) < fetches(start) { padding } else { 0 }
}

/// Fills the bytes with no-operation instructions.
pub(super) fn write_padding(out: &mut [u8]) {
    out.chunks_mut(4).for_each(|chunk| {
        let nop = encode::nop().0.to_le_bytes();
        chunk.copy_from_slice(&nop[..chunk.len()]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUMPS: [(Jump, i64); 4] = [
        (Jump::Always, 1 << 27),
        (Jump::Flags(Cc::Lt), 1 << 20),
        (Jump::Zero { nonzero: true, width: Width::W64, reg: Gpr::X3 }, 1 << 20),
        (Jump::Bit { set: false, reg: Gpr::X3, bit: 40 }, 1 << 15),
    ];

    #[test]
    fn jumps_are_short_as_far_as_they_reach_and_not_farther() {
        for (jump, reach) in JUMPS {
            for forward in [true, false] {
                let farthest = if forward { reach - 4 } else { -reach };
                let beyond = if forward { reach } else { -reach - 4 };
                let given = |distance: i64| if forward { distance - 4 } else { distance };
                assert_eq!(jump_len(jump, given(farthest), forward, 0), 4, "{jump:?}");
                assert_eq!(jump_len(jump, given(beyond), forward, 0), jump_longest(jump), "{jump:?}");
            }
            assert_eq!(jump_len(jump, 0, true, 0), 0);
            assert_eq!(jump_len(jump, 0, false, 0), 4);
            assert_eq!(jump_len(jump, 4, true, 4), 4, "never shorter than it was");
            assert_eq!(jump_len(jump, 8, true, 8), jump_longest(jump), "never shorter than it was");
        }
    }

    #[test]
    fn long_jumps_lead_over_an_unconditional_one() {
        for (jump, reach) in &JUMPS[1..] {
            let mut out = [0; 8];
            write_jump(*jump, reach + 400, &mut out).expect("in reach");
            let words = [0, 4].map(|at| u32::from_le_bytes(out[at..at + 4].try_into().unwrap()));
            assert_eq!(words[0], jump.inverted().unwrap().encode(8).0);
            assert_eq!(words[1], encode::b(reach + 396).0);
        }
    }

    #[test]
    fn what_is_out_of_reach_of_every_form_is_refused() {
        for (jump, _) in JUMPS {
            let mut out = vec![0; jump_longest(jump) as usize];
            assert_eq!(write_jump(jump, 1 << 28, &mut out), None);
        }
    }

    #[test]
    fn loops_that_are_moved_take_fewer_fetches() {
        assert_eq!(alignment_padding(0, 64), 0);
        assert_eq!(alignment_padding(24, 32), 8);
        assert_eq!(alignment_padding(20, 32), 0, "three instructions are too many");
        assert_eq!(alignment_padding(24, 40), 0, "two fetches either way");
        for (start, size) in (0..64).flat_map(|start| (0..300).map(move |size| (4 * start, 4 * size))) {
            let padding = alignment_padding(start, size);
            assert!(padding == 0 || (start + padding).is_multiple_of(FETCH), "{start} {size}");
        }
    }
}
