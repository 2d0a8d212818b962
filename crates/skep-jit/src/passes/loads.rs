//! Adjacent bytes that are loaded one by one and put together become one load.
//!
//! Compilers write that for numbers whose alignment they do not know, and programs for numbers in network order:
//!
//! ```text
//!   r2 = *(u8 *)(r1 + 1)                       nothing
//!   r2 <<= 8                                   nothing
//!   r3 = *(u8 *)(r1 + 0)                       nothing
//!   r2 |= r3                                   r2 = *(u16 *)(r1 + 0)
//! ```
//!
//! Within a basic block each register is followed as up to eight bytes of memory, all at constant distances from one
//! base. Where an `or` or an addition completes two, four or eight neighbours, it becomes a load, and if they are in
//! the other order, it becomes a swap and the instruction before it the load. What only prepared it becomes nothing.
//!
//! It assumes that a load does nothing but load: not those that may fault, nor those from an arena. Between the first
//! load and the last instruction nothing writes memory or the base, nothing else reads a part, and no part is live
//! afterwards. Bytes that another thread writes may be seen together or not, as before.

use skep_isa::{AluOp, ByteOrder, Insn, Operand, Reg, RegSet, Size, Width};

use crate::live::Live;
use crate::parts::Parts;
use crate::plan::Plan;

/// The most slots between the first load and the last instruction.
const REACH: usize = 48;

/// A number that consists of bytes of memory.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    base: Reg,
    /// The distance of each byte from the base, the lowest byte first.
    bytes: [Option<i32>; 8],
    /// The slot of its first load.
    first: usize,
    /// The slots that make it, counted from the first one.
    slots: u64,
}

/// A load that replaces several instructions.
#[derive(Debug)]
struct Merged {
    last: usize,
    first: usize,
    slots: u64,
    size: Size,
    swapped: bool,
    base: Reg,
    offset: i16,
}

/// The instructions with merged loads; `None` if there are none.
pub(super) fn merge(parts: &Parts<'_>) -> Option<Vec<Insn>> {
    // Every such number has a byte that is shifted by one, or a half by two.
    let shifts = |insn: &Insn| matches!(insn, Insn::Alu { op: AluOp::Lsh, src: Operand::Imm(8 | 16), .. });
    let loads = |insn: &Insn| matches!(insn, Insn::Load { size: Size::B1 | Size::B2, .. });
    if !parts.insns.iter().any(shifts) || !parts.insns.iter().any(loads) {
        return None;
    }
    let plan = Plan::new(*parts).ok()?;
    let live = Live::new(&plan);
    let mut search = Search { parts, live: &live, values: [None; 11], found: Vec::new() };
    for slot in 0..parts.insns.len() {
        if plan.slots()[slot].is_target() || !plan.reached(slot) {
            search.values = [None; 11];
        }
        if plan.reached(slot) {
            search.step(slot);
        }
    }
    let found = search.found;
    if found.is_empty() {
        return None;
    }
    let mut insns = parts.insns.to_vec();
    for merged in &found {
        merged.write(&mut insns);
    }
    Some(insns)
}

struct Search<'a> {
    parts: &'a Parts<'a>,
    live: &'a Live,
    values: [Option<Pieces>; 11],
    /// In ascending order of their last slots.
    found: Vec<Merged>,
}

impl Search<'_> {
    fn step(&mut self, slot: usize) {
        let insn = self.parts.insns[slot];
        let value = self.value(slot, &insn);
        match insn {
            Insn::Alu { .. } | Insn::Neg { .. } | Insn::MovSx { .. } | Insn::Endian { .. } => {}
            Insn::Load { .. } | Insn::LoadImm64 { .. } => {}
            // Whatever may write memory, or goes elsewhere.
            _ => self.values = [None; 11],
        }
        let written = insn.writes();
        for at in &mut self.values {
            *at = at.filter(|pieces| !written.contains(pieces.base));
        }
        for reg in written.iter() {
            self.values[reg.index()] = value.filter(|pieces| pieces.base != reg);
        }
        // `dst` is never the base: what a register holds is forgotten if it is its own base.
        if let (Some(pieces), Insn::Alu { op: AluOp::Or | AluOp::Add, dst, src: Operand::Reg(_), .. }) =
            (value, insn)
            && let Some(merged) = pieces.merged(slot)
            && self.is_private(&merged, dst)
        {
            // Only the last few can be parts of it: all others ended before it began.
            let parts = self.found.partition_point(|before| before.last < merged.first);
            let near = self.found.split_off(parts);
            self.found.extend(near.into_iter().filter(|before| !merged.covers(before.last)));
            self.found.push(merged);
        }
    }

    /// What the instruction computes, if it consists of bytes of memory.
    fn value(&self, slot: usize, insn: &Insn) -> Option<Pieces> {
        let of = |reg: Reg| self.values[reg.index()].filter(|pieces| slot - pieces.first < REACH);
        match *insn {
            Insn::Load { size, signed: false, base, offset, .. } => {
                let fact = &self.parts.facts[slot];
                if fact.probe || fact.arena || fact.foreign.is_some() {
                    return None;
                }
                let mut bytes = [None; 8];
                for (at, byte) in (i32::from(offset)..).zip(&mut bytes[..size.bytes() as usize]) {
                    *byte = Some(at);
                }
                Some(Pieces { base, bytes, first: slot, slots: 1 })
            }
            Insn::Alu { width, op: AluOp::Mov, src: Operand::Reg(src), .. } => {
                of(src)?.in_width(width)?.with(slot)
            }
            Insn::Alu { width, op: AluOp::Lsh, dst, src: Operand::Imm(count) } => {
                of(dst)?.shifted(width, count)?.with(slot)
            }
            Insn::Alu { width, op: AluOp::Or | AluOp::Add, dst, src: Operand::Reg(src) } => {
                of(dst)?.joined(of(src)?)?.in_width(width)?.with(slot)
            }
            _ => None,
        }
    }

    /// Whether nothing else uses what is made on the way.
    fn is_private(&self, merged: &Merged, dst: Reg) -> bool {
        let mut made = RegSet::EMPTY;
        for slot in merged.first..merged.last {
            let insn = &self.parts.insns[slot];
            let (reads, writes) = (insn.reads(), insn.writes());
            if merged.covers(slot) {
                made = made.union(writes);
            } else if reads.intersection(made).is_empty() {
                made = made.difference(writes);
            } else {
                return false;
            }
        }
        let lost = made.difference(dst.into());
        // A swap takes the slot before, which must be one of these.
        let room = !merged.swapped || merged.covers(merged.last - 1);
        room && self.live.after(merged.last).intersection(lost).is_empty()
    }
}

impl Pieces {
    fn with(self, slot: usize) -> Option<Self> {
        Some(Self { slots: self.slots | 1u64.checked_shl((slot - self.first) as u32)?, ..self })
    }

    /// The lower half, where an operation has only that.
    fn in_width(self, width: Width) -> Option<Self> {
        let kept = width == Width::W64 || self.bytes[4..].iter().all(Option::is_none);
        kept.then_some(self)
    }

    fn shifted(self, width: Width, count: i32) -> Option<Self> {
        let by = usize::try_from(count).ok().filter(|count| count % 8 == 0)? / 8;
        let size = width.bits() as usize / 8;
        let lost = self.bytes[size.checked_sub(by)?..].iter().any(Option::is_some);
        let mut bytes = [None; 8];
        bytes[by..size].copy_from_slice(&self.bytes[..size - by]);
        (!lost).then_some(Self { bytes, ..self })
    }

    /// Both together, if they have no byte in common.
    fn joined(self, other: Self) -> Option<Self> {
        let (a, b) = if self.first <= other.first { (self, other) } else { (other, self) };
        let mut bytes = a.bytes;
        for (byte, more) in bytes.iter_mut().zip(b.bytes) {
            if byte.is_some() && more.is_some() || a.base != b.base {
                return None;
            }
            *byte = byte.or(more);
        }
        let slots = a.slots | b.slots.checked_shl((b.first - a.first) as u32)?;
        Some(Self { bytes, slots, ..a })
    }

    /// The load that makes the same number, if there is one.
    fn merged(&self, last: usize) -> Option<Merged> {
        let count = self.bytes.iter().take_while(|byte| byte.is_some()).count();
        if self.bytes[count..].iter().any(Option::is_some) || count < 2 {
            return None;
        }
        let size = Size::from_bytes(count as u32)?;
        let bytes = || self.bytes.iter().flatten().copied();
        let is_from = |offset: i32, swapped: bool| {
            (0..count as i32)
                .zip(bytes())
                .all(|(at, byte)| byte == offset + if swapped { count as i32 - 1 - at } else { at })
        };
        let offset = bytes().min()?;
        let swapped = is_from(offset, true);
        if !swapped && !is_from(offset, false) {
            return None;
        }
        let Self { base, first, slots, .. } = *self;
        Some(Merged { last, first, slots, size, swapped, base, offset: i16::try_from(offset).ok()? })
    }
}

impl Merged {
    /// Whether the slot is one of those that it replaces.
    fn covers(&self, slot: usize) -> bool {
        slot >= self.first && slot - self.first < 64 && self.slots >> (slot - self.first) & 1 != 0
    }

    fn write(&self, insns: &mut [Insn]) {
        let Insn::Alu { dst, .. } = insns[self.last] else { return };
        for (slot, insn) in insns.iter_mut().enumerate().take(self.last).skip(self.first) {
            if self.covers(slot) {
                // Has no code.
                let src = Operand::Reg(Reg::R0);
                *insn = Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R0, src };
            }
        }
        let Self { size, base, offset, .. } = *self;
        let load = Insn::Load { size, signed: false, dst, base, offset };
        if self.swapped {
            insns[self.last - 1] = load;
            insns[self.last] = Insn::Endian { order: ByteOrder::ToBig, size, dst };
        } else {
            insns[self.last] = load;
        }
    }
}
