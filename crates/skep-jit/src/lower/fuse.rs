//! Fusion: a few BPF instructions that become one machine instruction.
//!
//! BPF has two operands where machines have three or an addressing mode, and no rotations. Compilers write
//! those in a few fixed patterns, which are recognised here:
//!
//! ```text
//!   r4 = r1; r4 += r3; r5 = *(u8 *)(r4 + 2)                one load from [r1 + r3 + 2], if r4 is not live
//!   r3 = r6; r3 <<= 2; r7 = r9; r7 += r3                   r7 = r9 + r6 * 4, if r3 is not live
//!   r4 = *(u32 *)(r2 + 4); w3 += w4                        w3 += [r2 + 4], if r4 is not live
//!   r5 = r7; r5 >>= 51; r7 <<= 13; r7 |= r5                r7 rotated by 13, if r5 is not live
//! ```
//!
//! Control enters such a sequence at its start only, and all of it happens or nothing. Most fusions are possible
//! because a register that is dead afterwards may hold anything. An address that its users compute by themselves
//! ([`Alias`]) keeps its parts live for longer than the program says: [`Lowering::live_out`] includes them until its
//! last use.

use skep_isa::{AluOp, Insn, Operand, Reg, RegSet, Size, Width};

use super::{Done, Lowering};
use crate::port::operand::{Address, Index, Part};
use crate::port::{Arch, Arithmetic};
use crate::reduce::{Reduced, reduce};

/// How many instructions are searched for uses of an address.
const REACH: usize = 6;
/// How many of them may compute the address anew.
const MAX_USES: usize = 3;

/// A register whose value is never computed: each instruction that reads it, up to the last one, computes the address
/// by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alias {
    pub(super) reg: Reg,
    pub(super) address: Address,
    /// The last slot that reads it.
    pub(super) last: usize,
}

/// `dst = address`, over this number of slots.
struct Sum {
    dst: Reg,
    address: Address,
    slots: usize,
    /// The slot among them that loads `dst` with a part of the address.
    load: Option<usize>,
}

impl<A: Arch> Lowering<'_, A> {
    /// The instructions from this slot on as one, where they are.
    pub(super) fn fused(&mut self, slot: usize) -> Option<Done> {
        if self.plan.slots()[slot].is_arena() {
            return None;
        }
        match self.parts.insns[slot] {
            // A pair of loads or an operation on memory does not leave 0 where it faults.
            Insn::Load { .. } if self.plan.slots()[slot].is_probe() => None,
            Insn::Load { signed: false, .. } => self.load_and(slot).or_else(|| self.combined(slot)),
            Insn::Alu { op: AluOp::Mov, src: Operand::Reg(_), .. } => self
                .rotation(slot)
                .or_else(|| self.sum_of(slot))
                .or_else(|| self.combined(slot))
                .or_else(|| self.mov_and(slot)),
            Insn::Alu { op: AluOp::Lsh, width, dst, src: Operand::Imm(imm) } => {
                let pair = self.sum_of(slot).or_else(|| self.shift_pair(slot, width, dst, imm));
                pair.or_else(|| self.combined(slot))
            }
            Insn::Alu { op: AluOp::Add | AluOp::Sub, .. } => self.sum_of(slot),
            Insn::MovSx { .. } => self.sum_of(slot).or_else(|| self.combined(slot)),
            _ => self.combined(slot),
        }
    }

    /// The address that `base + offset` stands for in this slot.
    pub(super) fn address(&self, slot: usize, base: Reg, offset: i16) -> Address {
        self.aliased(slot, base)
            .and_then(|address| address.plus(offset.into()))
            .unwrap_or(Address::at(base, offset.into()))
    }

    /// The registers that are live after a slot that does not jump.
    pub(super) fn live_out(&self, slot: usize) -> RegSet {
        let live_out = self.live.after(slot);
        match self.alias {
            Some(Alias { address, last, .. }) if slot < last => {
                let parts = RegSet::from(address.base);
                live_out.union(address.index.map_or(parts, |index| parts.with(index.reg)))
            }
            _ => live_out,
        }
    }

    fn aliased(&self, slot: usize, reg: Reg) -> Option<Address> {
        self.alias.filter(|alias| alias.reg == reg && slot <= alias.last).map(|alias| alias.address)
    }

    pub(super) fn is_live(&self, slot: usize, reg: Reg) -> bool {
        self.live_out(slot).contains(reg)
    }

    /// Addresses: their computation is left to the instructions that use them, or is one instruction.
    fn sum_of(&mut self, slot: usize) -> Option<Done> {
        let sum = self.sum(slot)?;
        let behind = slot + sum.slots;
        if let Some(load) = sum.load
            && let Insn::Load { size, signed, dst, base, offset } = self.parts.insns[load]
        {
            // A separate operation: the other part must survive it.
            self.announce(slot, load);
            self.load(load, size, signed, dst, (base, offset));
        }
        self.announce(slot, behind - 1);
        if let Some(last) = self.last_use(&sum, behind) {
            self.alias = Some(Alias { reg: sum.dst, address: sum.address, last });
        } else if sum.slots > 1 {
            self.emit.add3(Width::W64, sum.dst, sum.address);
        } else {
            return None;
        }
        Some(Done::through(sum.slots))
    }

    /// The sum that the instructions from here on compute.
    fn sum(&self, slot: usize) -> Option<Sum> {
        let first = self.parts.insns[slot];
        match self.copy_of(first) {
            // dst = y; dst += ...
            Some((dst, y)) => match self.follower(slot + 1)? {
                Insn::Alu {
                    op: AluOp::Lsh,
                    width: Width::W64,
                    dst: to,
                    src: Operand::Imm(shift @ 1..=3),
                } if to == dst => self
                    .scaled_sum(slot + 2, dst, y, shift as u8)
                    .map(|sum| Sum { slots: sum.slots + 2, ..sum }),
                next => {
                    let address = added(next, dst, y)?;
                    Some(Sum { dst, address, slots: 2, load: None })
                }
            },
            None => match first {
                Insn::Alu { op: AluOp::Lsh, width: Width::W64, dst, src: Operand::Imm(shift @ 1..=3) } => {
                    self.scaled_sum(slot + 1, dst, dst, shift as u8)
                        .map(|sum| Sum { slots: sum.slots + 1, ..sum })
                }
                Insn::Alu { op: AluOp::Mov, width: Width::W32, dst, src: Operand::Reg(src) } => {
                    self.extended_sum(slot + 1, dst, src, Part::Unsigned)
                }
                Insn::MovSx { width: Width::W64, from: Size::B4, dst, src } => {
                    self.extended_sum(slot + 1, dst, src, Part::Signed)
                }
                Insn::Alu { dst, .. } => {
                    let address = added(first, dst, dst)?;
                    Some(Sum { dst, address, slots: 1, load: None })
                }
                _ => None,
            },
        }
    }

    /// The sum that begins with `extended`, a part of `x`; the slot is the one after it.
    fn extended_sum(&self, slot: usize, extended: Reg, x: Reg, part: Part) -> Option<Sum> {
        if !A::EXTENDS_INDEX {
            return None;
        }
        let (shift, slots) = match self.follower(slot)? {
            Insn::Alu { op: AluOp::Lsh, width: Width::W64, dst, src: Operand::Imm(shift @ 1..=3) }
                if dst == extended =>
            {
                (shift as u8, 2)
            }
            _ => (0, 1),
        };
        let mut sum = self.scaled_sum(slot + slots - 1, extended, x, shift)?;
        sum.address.index = sum.address.index.map(|index| Index { part, ..index });
        Some(Sum { slots: sum.slots + slots, ..sum })
    }

    /// The sum that begins behind `scaled = x << shift`; its slots count from here.
    fn scaled_sum(&self, slot: usize, scaled: Reg, x: Reg, shift: u8) -> Option<Sum> {
        let next = self.follower(slot)?;
        // A part may have to be loaded first; what is loaded must not be what is scaled.
        if let Insn::Load { dst, base, .. } = next {
            return match self.follower(slot + 1)? {
                Insn::Alu { op: AluOp::Add, width: Width::W64, dst: to, src: Operand::Reg(with) }
                    if (to, with) == (dst, scaled)
                        && dst != x
                        && base != scaled
                        && !self.is_live(slot + 1, scaled) =>
                {
                    let address = Address::indexed(dst, x, shift);
                    Some(Sum { dst, address, slots: 2, load: Some(slot) })
                }
                _ => None,
            };
        }
        let (dst, y, slots) = match self.copy_of(next) {
            Some((dst, y)) => {
                let Insn::Alu { op: AluOp::Add, width: Width::W64, dst: to, src: Operand::Reg(with) } =
                    self.follower(slot + 1)?
                else {
                    return None;
                };
                if to != dst || with != scaled {
                    return None;
                }
                (dst, y, 2)
            }
            None => match next {
                Insn::Alu { op: AluOp::Add, width: Width::W64, dst, src: Operand::Reg(with) }
                    if dst != with =>
                {
                    if with == scaled {
                        (dst, dst, 1)
                    } else if dst == scaled {
                        (dst, with, 1)
                    } else {
                        return None;
                    }
                }
                _ => return None,
            },
        };
        // `scaled` itself is never computed, and `y` must keep its value.
        let kept = dst != scaled && self.is_live(slot + slots - 1, scaled);
        if kept || y == scaled || (dst == scaled && slots == 2) {
            return None;
        }
        Some(Sum { dst, address: Address::indexed(y, x, shift), slots, load: None })
    }

    /// `dst = src` with all 64 bits, and two different registers.
    pub(super) fn copy_of(&self, insn: Insn) -> Option<(Reg, Reg)> {
        match insn {
            Insn::Alu { op: AluOp::Mov, width, dst, src: Operand::Reg(src) } if dst != src => {
                (width == Width::W64 || self.known.is_extended(Size::B4, src)).then_some((dst, src))
            }
            _ => None,
        }
    }

    /// The last slot that uses the sum, if all its uses are addresses of loads and stores, few and near, and its
    /// parts keep their values until then.
    fn last_use(&self, sum: &Sum, behind: usize) -> Option<usize> {
        if self.alias.is_some_and(|alias| behind <= alias.last) {
            return None;
        }
        let mut uses = 0;
        for slot in behind..behind + REACH {
            if !self.continues(slot) {
                return None;
            }
            let what = &self.plan.slots()[slot];
            if what.reads.contains(sum.dst) {
                let (offset, size) = match self.parts.insns[slot] {
                    // The lower half of a register counts, not a sum.
                    _ if what.is_arena() => return None,
                    Insn::Load { base, offset, size, .. } if base == sum.dst => (offset, size),
                    Insn::Store { base, offset, src, size }
                        if base == sum.dst && src != Operand::Reg(sum.dst) =>
                    {
                        (offset, size)
                    }
                    _ => return None,
                };
                let total = sum.address.plus(offset.into())?;
                uses += 1;
                // A long displacement costs more than it saves, unless it is used once.
                let costly = A::is_long(total) && !A::is_long(Address::at(sum.dst, offset.into()));
                if uses > MAX_USES
                    || uses > 1 && costly
                    || !A::is_addressable(total, size)
                    || !self.is_maskable(total)
                {
                    return None;
                }
            }
            let jumps = what.target().is_some();
            if what.writes.contains(sum.dst) || !self.live.after(slot).contains(sum.dst) {
                return (uses > 0 && !jumps).then_some(slot);
            }
            let parts_change = what.writes.iter().any(|reg| sum.address.names(reg));
            if parts_change || jumps || !what.falls_through() {
                return None;
            }
        }
        None
    }

    /// A load whose only use is the operation that follows.
    fn load_and(&mut self, slot: usize) -> Option<Done> {
        let Insn::Load { size, dst: loaded, base, offset, .. } = self.parts.insns[slot] else { return None };
        let next = self.follower(slot + 1)?;
        let Insn::Alu { op, width, dst, src: Operand::Reg(src) } = next else { return None };
        if !A::takes_memory(op) || src != loaded || dst == loaded || self.is_live(slot + 1, loaded) {
            return None;
        }
        let mut known = self.known;
        known.step(&self.parts.insns[slot]);
        let width = known.narrow(op, width, dst, Operand::Reg(src));
        let enough = match width {
            Width::W32 => matches!(size, Size::B4 | Size::B8),
            Width::W64 => size == Size::B8,
        };
        if !enough {
            return None;
        }
        let address = self.address(slot, base, offset);
        self.announce(slot, slot + 1);
        self.order_reload(slot..=slot);
        self.mask_address(address);
        self.emit.alu_load(op, width, dst, address);
        self.mask_loaded(address, dst);
        Some(Done::through(2))
    }

    /// Two shifts in opposite directions and an or.
    fn rotation(&mut self, slot: usize) -> Option<Done> {
        let Insn::Alu { width: mov, dst: part, src: Operand::Reg(from), .. } = self.parts.insns[slot] else {
            return None;
        };
        let shift = |insn: Insn| match insn {
            Insn::Alu { op: op @ (AluOp::Lsh | AluOp::Rsh), width, dst, src: Operand::Imm(count) } => {
                Some((op, width, dst, count))
            }
            _ => None,
        };
        let (op, width, shifted, count) = shift(self.follower(slot + 1)?)?;
        // A 32-bit move is enough for 32-bit shifts only.
        if shifted != part || part == from || (mov, width) == (Width::W32, Width::W64) {
            return None;
        }
        // The other part is shifted where it is, or copied first.
        let mut next = slot + 2;
        let mut other = from;
        if let Insn::Alu { op: AluOp::Mov, width: mov, dst, src: Operand::Reg(src) } = self.follower(next)? {
            if src != from || dst == from || dst == part || (mov, width) == (Width::W32, Width::W64) {
                return None;
            }
            other = dst;
            next += 1;
        }
        let (op2, width2, shifted2, count2) = shift(self.follower(next)?)?;
        let Insn::Alu { op: AluOp::Or, width: width3, dst, src: Operand::Reg(src) } =
            self.follower(next + 1)?
        else {
            return None;
        };
        let bits = width.bits() as i32;
        let whole = op != op2 && (1..bits).contains(&count) && count + count2 == bits;
        let joined = (dst, src) == (part, other) || (dst, src) == (other, part);
        if shifted2 != other || (width2, width3) != (width, width) || !whole || !joined {
            return None;
        }
        if self.is_live(next + 1, src) {
            return None;
        }
        let left = if op == AluOp::Lsh { count } else { count2 };
        let right = (bits - left) as u8;
        if let Some(done) = self.rotated_operand(slot, next + 2, width, (dst, from), right) {
            return Some(done);
        }
        self.announce(slot, next + 1);
        self.emit.rotate(width, dst, from, left as u8);
        Some(Done::through(next + 2 - slot))
    }

    /// `dst = src` and the next operation as one, where a machine instruction does both.
    fn mov_and(&mut self, slot: usize) -> Option<Done> {
        let Insn::Alu { width: mov, dst, src: Operand::Reg(src), .. } = self.parts.insns[slot] else {
            return None;
        };
        let Insn::Alu { width, op, dst: to, src: with } = self.follower(slot + 1)? else { return None };
        // A 32-bit move before a 64-bit operation cuts off what the operation would still see.
        let cut = mov == Width::W32 && width == Width::W64 && !self.known.is_extended(Size::B4, src);
        if to != dst || src == dst || cut {
            return None;
        }
        self.announce(slot, slot + 1);
        match (op, with) {
            (AluOp::Lsh, Operand::Imm(1)) | (AluOp::Mul, Operand::Imm(2)) => {
                self.emit.add3(width, dst, Address::indexed(src, src, 0));
            }
            (AluOp::Add | AluOp::Sub, _) => {
                let address = sum_address(op, with, dst, src)?;
                self.emit.add3(width, dst, address);
            }
            (_, Operand::Imm(imm)) => match reduce(op, width, imm) {
                Reduced::Op(AluOp::Mul, width, imm) => self.emit.mul3(width, dst, src, imm),
                Reduced::ZeroExtend(size) if self.known.is_extended(size, src) => {
                    self.emit.mov_reg(Width::W32, dst, src);
                }
                Reduced::ZeroExtend(size) => self.emit.zero_extend(size, dst, src),
                _ => return None,
            },
            _ => return None,
        }
        Some(Done::through(2))
    }

    /// Two shifts by the same constant, to the left and back: how compilers extend without v4 instructions.
    fn shift_pair(&mut self, slot: usize, width: Width, dst: Reg, imm: i32) -> Option<Done> {
        let Insn::Alu { width: width2, op: back, dst: dst2, src: Operand::Imm(imm2) } =
            self.follower(slot + 1)?
        else {
            return None;
        };
        if (width2, dst2, imm2) != (width, dst, imm) {
            return None;
        }
        let bits = width.bits() as i32;
        let size = Size::ALL.into_iter().find(|size| bits - size.bits() as i32 == imm)?;
        self.announce(slot, slot + 1);
        match back {
            AluOp::Rsh => self.extend(size, dst),
            AluOp::Arsh => self.emit.sign_extend(width, size, dst, dst),
            _ => return None,
        }
        Some(Done::through(2))
    }
}

/// The address that a 64-bit addition to `dst`, which holds what `y` holds, computes.
fn added(insn: Insn, dst: Reg, y: Reg) -> Option<Address> {
    match insn {
        Insn::Alu { op, width: Width::W64, dst: to, src } if to == dst => sum_address(op, src, dst, y),
        _ => None,
    }
}

/// `y op src` as an address; `dst` holds what `y` holds.
fn sum_address(op: AluOp, src: Operand, dst: Reg, y: Reg) -> Option<Address> {
    match (op, src) {
        (AluOp::Add, Operand::Reg(src)) => Some(Address::indexed(y, if src == dst { y } else { src }, 0)),
        (AluOp::Add, Operand::Imm(imm)) if imm != 0 => Some(Address::at(y, imm)),
        (AluOp::Sub, Operand::Imm(imm)) if imm != 0 => Some(Address::at(y, imm.checked_neg()?)),
        _ => None,
    }
}
