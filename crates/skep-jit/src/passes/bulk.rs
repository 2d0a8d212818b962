//! Loops that copy, fill or sum up adjacent elements.
//!
//! One round is evaluated with symbols. If each register is then what it was plus a constant (a *step*), or is set by
//! the round before it is read, and the round has one load or store at an address that moves by its own size, then most
//! rounds can be done at once ([`crate::port::bulk`]). The last round is always the loop's own, so what it leaves in
//! registers need not be known.
//!
//! ```text
//!   r3 = r1; r3 += r2             r3 = r1 + r2
//!   r4 = *(u8 *)(r3 + 0)          from = r1 + r2, r4 = loaded
//!   *(u8 *)(r3 + 512) = r4        to = r1 + r2 + 512
//!   r2 += 1                       r2 steps by 1, so do from and to
//!   if r2 != 512 goto head        512 - r2 rounds are left
//! ```
//!
//! It assumes what the verifier has proved: that each access of each round is in bounds, and that the loop ends, so
//! that a counter that must meet its limit does. It assumes nothing of distances between what is read and written: the
//! code compares the addresses. Loads that may fault, accesses to arenas and atomics are left alone, and so is
//! everything where rounds are charged: a run that ends early must end after the right round.

use skep_isa::{AluOp, Cond, Imm64, Insn, Operand, Reg, RegSet, Size, Width};

use super::loops::Loop;
use super::unroll::inverted;
use crate::parts::Parts;
use crate::port::bulk::{Bulk, Count, Step, Work};
use crate::port::operand::Address;

/// The most slots of such a loop.
const MOST: usize = 16;

/// What a register holds within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// The sum of what these registers held at the head, and a constant.
    Sum(Sum),
    /// What the round's load has loaded, zero-extended.
    Loaded,
    /// What this register held at the head, plus what was loaded.
    Total(Reg, Width),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    one: Option<Reg>,
    other: Option<Reg>,
    constant: i64,
}

impl Sum {
    fn constant(constant: i64) -> Self {
        Self { one: None, other: None, constant }
    }

    fn plus(self, other: Self) -> Option<Self> {
        let constant = self.constant.checked_add(other.constant)?;
        let mut regs = [self.one, self.other, other.one, other.other].into_iter().flatten();
        let sum = Self { one: regs.next(), other: regs.next(), constant };
        regs.next().is_none().then_some(sum)
    }

    fn regs(self) -> impl Iterator<Item = Reg> {
        [self.one, self.other].into_iter().flatten()
    }

    /// The only register that it is, with nothing added.
    fn register(self) -> Option<Reg> {
        self.one.filter(|_| self.other.is_none() && self.constant == 0)
    }

    fn address(self) -> Option<Address> {
        let base = self.one?;
        let disp = i32::try_from(self.constant).ok()?;
        let address = match self.other {
            Some(index) => Address::indexed(base, index, 0),
            None => Address::at(base, 0),
        };
        address.plus(disp)
    }
}

/// A round.
struct Round {
    values: [Value; 11],
    /// The registers whose old values each value depends on.
    sources: [RegSet; 11],
    load: Option<(Size, Sum)>,
    store: Option<(Size, Sum, Value)>,
    written: RegSet,
}

/// The bulk of a loop, if it has one.
pub(super) fn find(parts: &Parts<'_>, Loop { head, end }: Loop) -> Option<Bulk> {
    if end - head > MOST || !(head..end).all(|slot| parts.facts[slot].reached) {
        return None;
    }
    // `if .. goto head`, or `if .. goto end; goto head`.
    let (last, goes_on) = match (parts.insns[end - 1], parts.insns[end.checked_sub(2)?]) {
        (Insn::JumpIf { .. }, _) => (end - 1, true),
        (Insn::Jump { .. }, Insn::JumpIf { .. }) if end - 2 > head => (end - 2, false),
        _ => return None,
    };
    if !goes_on && parts.insns[last].jump_target(last) != Some(end) {
        return None;
    }
    let mut round = Round::new();
    for slot in head..last {
        let fact = &parts.facts[slot];
        if fact.probe || fact.arena || fact.foreign.is_some() {
            return None;
        }
        round.step(&parts.insns[slot])?;
    }
    let Insn::JumpIf { width: Width::W64, cond, dst, src, .. } = parts.insns[last] else { return None };
    let cond = if goes_on { cond } else { inverted(cond)? };
    round.bulk(cond, dst, src)
}

impl Round {
    fn new() -> Self {
        let held = Reg::ALL.map(|reg| Value::Sum(Sum { one: Some(reg), other: None, constant: 0 }));
        Self {
            values: held,
            sources: Reg::ALL.map(RegSet::from),
            load: None,
            store: None,
            written: RegSet::EMPTY,
        }
    }

    /// What an instruction does; `None` if such a loop has none like it.
    fn step(&mut self, insn: &Insn) -> Option<()> {
        match *insn {
            Insn::Alu { width, op, dst, src } => {
                let value = self.alu(width, op, dst, src);
                self.set(insn, dst, value);
            }
            Insn::Neg { dst, .. } | Insn::MovSx { dst, .. } | Insn::Endian { dst, .. } => {
                self.set(insn, dst, Value::Unknown);
            }
            Insn::LoadImm64 { dst, value } => {
                let value = match value {
                    Imm64::Value(value) => Value::Sum(Sum::constant(value.cast_signed())),
                    _ => Value::Unknown,
                };
                self.set(insn, dst, value);
            }
            Insn::LoadImm64Tail => {}
            Insn::Load { size, signed: false, dst, base, offset }
                if self.load.is_none() && self.store.is_none() =>
            {
                self.load = Some((size, self.place(base, offset)?));
                self.set(insn, dst, Value::Loaded);
            }
            Insn::Store { size, base, offset, src } if self.store.is_none() => {
                let value = self.operand(src);
                self.store = Some((size, self.place(base, offset)?, value));
            }
            _ => return None,
        }
        Some(())
    }

    fn set(&mut self, insn: &Insn, dst: Reg, value: Value) {
        let sources = |all: RegSet, reg: Reg| all.union(self.sources[reg.index()]);
        self.sources[dst.index()] = insn.reads().iter().fold(RegSet::EMPTY, sources);
        self.values[dst.index()] = value;
        self.written = self.written.with(dst);
    }

    fn operand(&self, operand: Operand) -> Value {
        match operand {
            Operand::Reg(reg) => self.values[reg.index()],
            Operand::Imm(imm) => Value::Sum(Sum::constant(imm.into())),
        }
    }

    fn place(&self, base: Reg, offset: i16) -> Option<Sum> {
        match self.values[base.index()] {
            Value::Sum(sum) => sum.plus(Sum::constant(offset.into())),
            _ => None,
        }
    }

    fn alu(&self, width: Width, op: AluOp, dst: Reg, src: Operand) -> Value {
        let (a, b) = (self.values[dst.index()], self.operand(src));
        match (op, width, a, b) {
            (AluOp::Mov, Width::W64, _, _) => b,
            (AluOp::Mov, Width::W32, _, Value::Sum(sum)) if sum.regs().next().is_none() => {
                Value::Sum(Sum::constant(i64::from(sum.constant as u32)))
            }
            // The upper half is zero already.
            (AluOp::Mov, Width::W32, _, Value::Loaded)
                if self.load.is_some_and(|(size, _)| size != Size::B8) =>
            {
                b
            }
            (AluOp::Add, Width::W64, Value::Sum(a), Value::Sum(b)) => {
                a.plus(b).map_or(Value::Unknown, Value::Sum)
            }
            (AluOp::Sub, Width::W64, Value::Sum(a), Value::Sum(b)) if b.regs().next().is_none() => {
                let negated = b.constant.checked_neg().map(Sum::constant);
                negated.and_then(|b| a.plus(b)).map_or(Value::Unknown, Value::Sum)
            }
            (AluOp::Add, _, Value::Sum(sum), Value::Loaded)
            | (AluOp::Add, _, Value::Loaded, Value::Sum(sum)) => {
                sum.register().map_or(Value::Unknown, |reg| Value::Total(reg, width))
            }
            _ => Value::Unknown,
        }
    }

    /// What a register moves by in a round, if it is a constant.
    fn step_of(&self, reg: Reg) -> Option<i64> {
        match self.values[reg.index()] {
            Value::Sum(Sum { one: Some(one), other: None, constant }) if one == reg => Some(constant),
            _ => None,
        }
    }

    /// What an address moves by in a round.
    fn stride(&self, sum: Sum) -> Option<i64> {
        sum.regs().try_fold(0_i64, |all, reg| all.checked_add(self.step_of(reg)?))
    }

    /// The bulk of a loop that goes on while this holds.
    fn bulk(&self, cond: Cond, dst: Reg, src: Operand) -> Option<Bulk> {
        let mut steps = Vec::new();
        let mut totals = RegSet::EMPTY;
        let mut others = RegSet::EMPTY;
        let size = self.load.map(|(size, _)| size).or(self.store.map(|(size, ..)| size))?;
        for reg in self.written.iter() {
            match (self.step_of(reg), self.values[reg.index()]) {
                (Some(0), _) => {}
                (Some(constant), _) => steps.push(step(reg, constant, size)?),
                (None, Value::Total(total, _)) if total == reg => totals = totals.with(reg),
                _ => others = others.with(reg),
            }
        }
        // Nothing that a round leaves may depend on what the one before left in such a register.
        if self.written.iter().any(|reg| !self.sources[reg.index()].intersection(others).is_empty()) {
            return None;
        }
        let moves =
            |sum: Sum| (self.stride(sum) == Some(size.bytes().into())).then(|| sum.address()).flatten();
        let work = match (self.load, self.store) {
            (Some((_, from)), Some((stored, to, Value::Loaded))) if stored == size && totals.is_empty() => {
                Work::Copy { from: moves(from)?, to: moves(to)? }
            }
            (None, Some((_, to, Value::Sum(sum)))) => {
                let value = match sum.register() {
                    Some(reg) if self.step_of(reg) == Some(0) => Operand::Reg(reg),
                    None if sum.regs().next().is_none() => Operand::Imm(i32::try_from(sum.constant).ok()?),
                    _ => return None,
                };
                Work::Fill { to: moves(to)?, value }
            }
            (Some((_, from)), None) if totals.len() == 1 && size != Size::B8 => {
                let into = totals.iter().next()?;
                let Value::Total(_, width) = self.values[into.index()] else { return None };
                Work::Sum { from: moves(from)?, into, width }
            }
            _ => return None,
        };
        let count = self.count(cond, dst, src, size)?;
        Some(Bulk { work, size, count, steps })
    }

    /// How many rounds are left at the head.
    fn count(&self, cond: Cond, dst: Reg, src: Operand, size: Size) -> Option<Count> {
        let (Value::Sum(mut a), Value::Sum(mut b)) = (self.values[dst.index()], self.operand(src)) else {
            return None;
        };
        let mut cond = cond;
        let is_limit = |sum: Sum| {
            sum.regs().next().is_none() || sum.register().is_some_and(|reg| self.step_of(reg) == Some(0))
        };
        if is_limit(a) {
            (a, b) = (b, a);
            cond = mirrored(cond);
        }
        let counter = a.one.filter(|_| a.other.is_none())?;
        let constant = self.step_of(counter)?;
        // What is compared is the counter after the round.
        if constant == 0 || a.constant != constant || !is_limit(b) {
            return None;
        }
        let limit = match b.register() {
            Some(reg) => Operand::Reg(reg),
            None => Operand::Imm(i32::try_from(b.constant).ok()?),
        };
        let down = constant < 0;
        let exact = match (cond, down) {
            (Cond::Ne, _) => true,
            (Cond::Lt, false) | (Cond::Gt, true) => false,
            _ => return None,
        };
        Some(Count { counter, limit, down, shift: step(counter, constant, size)?.shift, exact })
    }
}

/// A step by a constant, if it is a power of two up to the size of an element.
fn step(reg: Reg, constant: i64, size: Size) -> Option<Step> {
    let bytes = u64::from(size.bytes());
    let by = constant.unsigned_abs();
    let fits = by.is_power_of_two() && by <= bytes;
    fits.then(|| Step { reg, down: constant < 0, shift: (bytes / by).trailing_zeros() as u8 })
}

/// The condition with its operands exchanged.
fn mirrored(cond: Cond) -> Cond {
    match cond {
        Cond::Gt => Cond::Lt,
        Cond::Lt => Cond::Gt,
        Cond::Ge => Cond::Le,
        Cond::Le => Cond::Ge,
        Cond::Sgt => Cond::Slt,
        Cond::Slt => Cond::Sgt,
        Cond::Sge => Cond::Sle,
        Cond::Sle => Cond::Sge,
        Cond::Eq | Cond::Ne | Cond::Set => cond,
    }
}
