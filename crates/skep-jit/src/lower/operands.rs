//! Fusion for machines whose instructions have a third operand, shift or extend the second one, or move two registers
//! at once.
//!
//! ```text
//!   r3 = r1; r3 &= r2                       r3 = r1 & r2
//!   r3 = r6; r3 >>= 7; r1 ^= r3             r1 = r1 ^ (r6 >> 7), if r3 is not live; rotated as well
//!   w3 = w6; r1 += r3                       r1 = r1 + (u32)r6, if r3 is not live
//!   r3 >>= 12; r3 &= 63                     r3 = bits 12 to 17 of r3
//!   r3 *= r4; r1 += r3                      r1 = r1 + r3 * r4, if r3 is not live
//!   r1 &= 8; if r1 == 0 goto                if not r1 & 8 goto, if r1 is not live
//!   *(u64 *)(r10 - 8) = r1;
//!   *(u64 *)(r10 - 16) = r1                 both at once
//! ```

use skep_isa::{AluOp, Cond, Insn, Operand, Reg, Size, Width};

use super::{Done, Lowering};
use crate::port::operand::{Address, Modifier, Shift};
use crate::port::{Arch, Arithmetic, Branches, Memory};
use crate::reduce::{Reduced, reduce};

/// `reg` is `of`, modified. The computation takes this many slots.
struct Modified {
    reg: Reg,
    of: Reg,
    modifier: Modifier,
    /// The width. Operations of the other width cannot use it.
    width: Width,
    slots: usize,
}

impl<A: Arch> Lowering<'_, A> {
    /// The instructions from this slot on as one, where they are.
    pub(super) fn combined(&mut self, slot: usize) -> Option<Done> {
        match self.parts.insns[slot] {
            Insn::Alu { op: AluOp::And, width, dst, src } => {
                self.test(slot, width, dst, dst, src, 1).or_else(|| self.modified_operand(slot))
            }
            Insn::Alu { op: AluOp::Rsh, width, dst, src: Operand::Imm(imm) } => {
                self.field(slot, width, dst, dst, imm, 1).or_else(|| self.modified_operand(slot))
            }
            Insn::Alu { op: AluOp::Mul, width, dst, src } => self.product(slot, width, dst, dst, src, 1),
            Insn::Alu { op: AluOp::Mov, width: mov, dst, src: Operand::Reg(src) } if src != dst => {
                self.after_mov(slot, mov, dst, src).or_else(|| self.modified_operand(slot))
            }
            Insn::Alu { .. } | Insn::MovSx { .. } => self.modified_operand(slot),
            Insn::Load { signed: false, .. } => self.load_pair(slot),
            Insn::Store { .. } => self.store_pair(slot),
            _ => None,
        }
    }

    /// `dst = src` and the operation on `dst` after it, with its operands.
    fn after_mov(&mut self, slot: usize, mov: Width, dst: Reg, src: Reg) -> Option<Done> {
        let Insn::Alu { width, op, dst: to, src: with } = self.follower(slot + 1)? else { return None };
        // A 32-bit move before a 64-bit operation cuts off what the operation would still see.
        let cut = mov == Width::W32 && width == Width::W64 && !self.known.is_extended(Size::B4, src);
        if to != dst || cut {
            return None;
        }
        let with = if with == Operand::Reg(dst) { Operand::Reg(src) } else { with };
        let found = match (op, with) {
            (AluOp::And, _) => self.test(slot, width, dst, src, with, 2),
            (AluOp::Rsh, Operand::Imm(imm)) => self.field(slot, width, dst, src, imm, 2),
            (AluOp::Mul, _) => self.product(slot, width, dst, src, with, 2),
            _ => None,
        };
        found
            .or_else(|| self.modified_operand(slot))
            .or_else(|| self.three_operands(slot, width, op, dst, src, with))
    }

    /// `dst = a op with`
    fn three_operands(
        &mut self,
        slot: usize,
        width: Width,
        op: AluOp,
        dst: Reg,
        a: Reg,
        with: Operand,
    ) -> Option<Done> {
        if !A::THREE_OPERANDS || op == AluOp::Mov {
            return None;
        }
        self.announce(slot, slot + 1);
        match with {
            Operand::Reg(_) => self.emit.alu3(op, width, dst, a, with),
            Operand::Imm(imm) => match reduce(op, width, imm) {
                Reduced::Op(op, width, imm) => self.emit.alu3(op, width, dst, a, Operand::Imm(imm)),
                Reduced::ZeroExtend(size) => self.emit.zero_extend(size, dst, a),
                Reduced::Keep(width) => self.emit.mov_reg(width, dst, a),
                Reduced::Constant(value) => self.emit.mov_imm(dst, value),
                Reduced::Neg(_) => return None,
            },
        }
        Some(Done::through(2))
    }

    /// `dst = a & with`, computed in this many slots, where `dst` is only compared with zero.
    fn test(
        &mut self,
        slot: usize,
        width: Width,
        dst: Reg,
        a: Reg,
        with: Operand,
        slots: usize,
    ) -> Option<Done> {
        let jump = slot + slots;
        let Insn::JumpIf { width: of, cond, dst: to, src: Operand::Imm(0), offset } = self.follower(jump)?
        else {
            return None;
        };
        let inverted = match cond {
            Cond::Eq => true,
            Cond::Ne => false,
            _ => return None,
        };
        let target = self.target_slot(jump, offset.into());
        let live_out = self.live_out(jump).union(self.live.before(target));
        // Comparing 32 bits of a 64-bit result is a narrower test; comparing 64 bits of a 32-bit result is the same.
        if to != dst || live_out.contains(dst) || offset == 0 || self.is_over_a_jump(jump, offset.into()) {
            return None;
        }
        let width = if of == Width::W32 { of } else { width };
        let target = self.label(target);
        self.announce(slot, jump);
        self.emit.jump_if(width, (a, Cond::Set, with), inverted, target);
        Some(Done::through(slots + 1))
    }

    /// `dst = a >> count & mask`: a field of bits.
    fn field(
        &mut self,
        slot: usize,
        width: Width,
        dst: Reg,
        a: Reg,
        count: i32,
        slots: usize,
    ) -> Option<Done> {
        let Insn::Alu { op: AluOp::And, dst: to, src: Operand::Imm(mask @ 1..), .. } =
            self.follower(slot + slots)?
        else {
            return None;
        };
        let count = count & (width.bits() as i32 - 1);
        let bits = mask.count_ones();
        let contiguous = mask.trailing_ones() == bits;
        // What a 32-bit shift has cut off stays so, and the mask is narrow enough for either width.
        let inside = count as u32 + bits <= width.bits();
        if !A::THREE_OPERANDS || to != dst || !contiguous || !inside {
            return None;
        }
        self.announce(slot, slot + slots);
        self.emit.field(width, dst, a, count as u8, bits as u8);
        Some(Done::through(slots + 1))
    }

    /// `t = a * with; d += t` or `d -= t`, where `t` is not live.
    fn product(
        &mut self,
        slot: usize,
        width: Width,
        t: Reg,
        a: Reg,
        with: Operand,
        slots: usize,
    ) -> Option<Done> {
        let Operand::Reg(b) = with else { return None };
        let Insn::Alu { op: op @ (AluOp::Add | AluOp::Sub), width: of, dst, src: Operand::Reg(src) } =
            self.follower(slot + slots)?
        else {
            return None;
        };
        let (dst, addend) = match (dst == t, src == t) {
            (false, true) if !self.is_live(slot + slots, t) => (dst, dst),
            (true, false) if op == AluOp::Add => (t, src),
            _ => return None,
        };
        // The copy of a factor into `t` comes before everything.
        if !A::THREE_OPERANDS || of != width || (slots == 2 && (addend == t || b == t)) {
            return None;
        }
        self.announce(slot, slot + slots);
        self.emit.multiply_add(op == AluOp::Sub, width, dst, (a, b), addend);
        Some(Done::through(slots + 1))
    }

    /// A register that is shifted or extended for the one operation that follows.
    fn modified_operand(&mut self, slot: usize) -> Option<Done> {
        let modified = self.modified(slot)?;
        self.operand_of_next(slot, modified)
    }

    /// The same for a register that is rotated, `of` into `reg` by `right` in the slots until `behind`.
    pub(super) fn rotated_operand(
        &mut self,
        slot: usize,
        behind: usize,
        width: Width,
        (reg, of): (Reg, Reg),
        right: u8,
    ) -> Option<Done> {
        let modifier = Modifier::Rotate(right);
        self.operand_of_next(slot, Modified { reg, of, modifier, width, slots: behind - slot })
    }

    fn operand_of_next(&mut self, slot: usize, modified: Modified) -> Option<Done> {
        let Modified { reg, of, modifier, width, slots } = modified;
        let last = slot + slots;
        let Insn::Alu { op, width: operation, dst, src: Operand::Reg(src) } = self.follower(last)? else {
            return None;
        };
        let commutes = matches!(op, AluOp::Add | AluOp::And | AluOp::Or | AluOp::Xor);
        let (dst, a) = match (dst == reg, src == reg) {
            (false, true) if !self.is_live(last, reg) => (dst, dst),
            (true, false) if commutes => (reg, src),
            _ => return None,
        };
        if operation != width || !A::takes_modifier(op, width, modifier) {
            return None;
        }
        self.announce(slot, last);
        self.emit.alu_modified(op, width, dst, a, (of, modifier));
        Some(Done::through(slots + 1))
    }

    /// What the next instructions do to one register before another one uses it.
    fn modified(&self, slot: usize) -> Option<Modified> {
        let first = self.parts.insns[slot];
        if let Insn::Alu { op: AluOp::Mov, width: mov, dst: reg, src: Operand::Reg(from) } = first
            && let Some((modifier, width, to, of)) = self.follower(slot + 1).and_then(modifier_of)
        {
            let whole = mov == Width::W64 || width == Width::W32 || self.known.is_extended(Size::B4, from);
            if reg != from && to == reg && of == reg && whole {
                return Some(Modified { reg, of: from, modifier, width, slots: 2 });
            }
        }
        let (modifier, width, reg, of) = modifier_of(first)?;
        Some(Modified { reg, of, modifier, width, slots: 1 })
    }

    /// Two loads from adjacent places.
    fn load_pair(&mut self, slot: usize) -> Option<Done> {
        let load = |insn: Insn| match insn {
            Insn::Load { size, signed: false, dst, base, offset } => Some((size, dst, base, offset)),
            _ => None,
        };
        let (size, first, base, offset) = load(self.parts.insns[slot])?;
        let (size2, second, base2, offset2) = load(self.follower(slot + 1)?)?;
        if self.plan.slots()[slot + 1].is_probe() {
            return None;
        }
        if (size2, base2) != (size, base) || first == base || first == second {
            return None;
        }
        let (low, registers) = neighbours(size, (offset, first), (offset2, second))?;
        self.paired(slot, size, base, low)?;
        let address = Address::at(base, low.into());
        self.order_reload(slot..=slot + 1);
        self.mask_address(address);
        self.emit.load_pair(size, registers, address);
        self.mask_loaded(address, registers.0);
        self.mask_loaded(address, registers.1);
        Some(Done::through(2))
    }

    /// Two stores to adjacent places.
    fn store_pair(&mut self, slot: usize) -> Option<Done> {
        let store = |insn: Insn| match insn {
            Insn::Store { size, base, offset, src: src @ (Operand::Reg(_) | Operand::Imm(0)) } => {
                Some((size, src, base, offset))
            }
            _ => None,
        };
        let (size, first, base, offset) = store(self.parts.insns[slot])?;
        let (size2, second, base2, offset2) = store(self.follower(slot + 1)?)?;
        if (size2, base2) != (size, base) {
            return None;
        }
        let (low, values) = neighbours(size, (offset, first), (offset2, second))?;
        self.paired(slot, size, base, low)?;
        let address = Address::at(base, low.into());
        self.mask_address(address);
        self.emit.store_pair(size, address, values);
        Some(Done::through(2))
    }

    /// Whether two neighbours can be moved at once; the lower one is at `base + low`.
    fn paired(&mut self, slot: usize, size: Size, base: Reg, low: i16) -> Option<()> {
        let address = Address::at(base, low.into());
        // An alias must end with these instructions.
        let plain = self.address(slot, base, 0) == Address::at(base, 0)
            && self.address(slot + 1, base, 0) == Address::at(base, 0);
        if !plain || !self.emit.moves_pairs(size, address) {
            return None;
        }
        self.announce(slot, slot + 1);
        Some(())
    }
}

/// The lower offset of two and both values in order, where they are neighbours.
fn neighbours<T>(size: Size, a: (i16, T), b: (i16, T)) -> Option<(i16, (T, T))> {
    let distance = i32::from(b.0) - i32::from(a.0);
    if distance == size.bytes() as i32 {
        Some((a.0, (a.1, b.1)))
    } else if distance == -(size.bytes() as i32) {
        Some((b.0, (b.1, a.1)))
    } else {
        None
    }
}

/// A single instruction that shifts or extends: how, in which width, into which register, and what.
fn modifier_of(insn: Insn) -> Option<(Modifier, Width, Reg, Reg)> {
    match insn {
        Insn::Alu { op, width, dst, src: Operand::Imm(imm) } => {
            let shift = match op {
                AluOp::Lsh => Shift::Left,
                AluOp::Rsh => Shift::Right,
                AluOp::Arsh => Shift::Arithmetic,
                AluOp::And => {
                    let from = match imm {
                        0xff => Size::B1,
                        0xffff => Size::B2,
                        _ => return None,
                    };
                    return Some((Modifier::Extend { from, signed: false }, width, dst, dst));
                }
                _ => return None,
            };
            let count = imm & (width.bits() as i32 - 1);
            Some((Modifier::Shift(shift, count as u8), width, dst, dst))
        }
        // The lower half, for an operation on all 64 bits.
        Insn::Alu { op: AluOp::Mov, width: Width::W32, dst, src: Operand::Reg(src) } => {
            Some((Modifier::Extend { from: Size::B4, signed: false }, Width::W64, dst, src))
        }
        Insn::MovSx { width, from, dst, src } if from.bits() < width.bits() => {
            Some((Modifier::Extend { from, signed: true }, width, dst, src))
        }
        _ => None,
    }
}
