//! Sets of registers, and which ones an instruction reads and writes.

use std::fmt;

use crate::insn::{AluOp, AtomicOp, Insn, Operand, PacketBase, Reg};

/// A set of registers, as one bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RegSet(u16);

impl RegSet {
    /// No register.
    pub const EMPTY: Self = Self(0);
    /// `r0` to `r5`: what a call may change.
    pub const CALLER_SAVED: Self = Self(0b11_1111);
    /// `r1` to `r5`: what a call may read.
    pub const ARGUMENTS: Self = Self(0b11_1110);
    /// `r6` to `r9`: what a function leaves as it found it.
    pub const CALLEE_SAVED: Self = Self(0b11_1100_0000);

    /// This set and one more register.
    #[must_use]
    pub const fn with(self, reg: Reg) -> Self {
        Self(self.0 | 1 << reg.number())
    }

    /// What is in this set or the other.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this set and the other.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the register is in the set.
    pub const fn contains(self, reg: Reg) -> bool {
        self.0 & 1 << reg.number() != 0
    }

    /// Whether no register is.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many registers are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Its registers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        Reg::ALL.into_iter().filter(move |reg| self.contains(*reg))
    }
}

impl FromIterator<Reg> for RegSet {
    fn from_iter<I: IntoIterator<Item = Reg>>(regs: I) -> Self {
        regs.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl From<Reg> for RegSet {
    #[inline]
    fn from(reg: Reg) -> Self {
        Self::EMPTY.with(reg)
    }
}

impl From<Operand> for RegSet {
    #[inline]
    fn from(operand: Operand) -> Self {
        match operand {
            Operand::Reg(reg) => reg.into(),
            Operand::Imm(_) => Self::EMPTY,
        }
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl AtomicOp {
    /// Whether the old value ends up in a register: in `r0` for the compare-exchange, else in `src`.
    pub const fn fetches(self) -> bool {
        match self {
            Self::Add { fetch } | Self::Or { fetch } | Self::And { fetch } | Self::Xor { fetch } => fetch,
            Self::Xchg | Self::CmpXchg => true,
        }
    }
}

impl Insn {
    /// The registers whose values the instruction may depend on. Of calls, all five argument registers: how
    /// many are really read depends on the function called. Of [`Exit`](Insn::Exit), `r0`.
    #[inline]
    pub fn reads(&self) -> RegSet {
        match *self {
            Self::Alu { op: AluOp::Mov, src, .. } => src.into(),
            Self::Alu { dst, src, .. } => RegSet::from(src).with(dst),
            _ => self.otherwise_reads(),
        }
    }

    /// What the rest reads, out of the way of arithmetic, which most instructions are.
    fn otherwise_reads(&self) -> RegSet {
        match *self {
            Self::Alu { dst, src, .. } | Self::JumpIf { dst, src, .. } => RegSet::from(src).with(dst),
            Self::Neg { dst, .. } | Self::Endian { dst, .. } => dst.into(),
            Self::MovSx { src, .. } | Self::AddrSpaceCast { src, .. } => src.into(),
            Self::Load { base, .. } | Self::LoadAcquire { base, .. } => base.into(),
            Self::Store { base, src, .. } => RegSet::from(src).with(base),
            Self::StoreRelease { base, src, .. } => RegSet::from(src).with(base),
            Self::Atomic { op: AtomicOp::CmpXchg, base, src, .. } => {
                RegSet::from(src).with(base).with(Reg::R0)
            }
            Self::Atomic { base, src, .. } => RegSet::from(src).with(base),
            Self::LoadPacket { base: PacketBase::Absolute, .. } => Reg::R6.into(),
            Self::LoadPacket { base: PacketBase::Indirect(reg), .. } => RegSet::from(reg).with(Reg::R6),
            Self::Call { .. } => RegSet::ARGUMENTS,
            Self::CallReg { reg } => RegSet::ARGUMENTS.with(reg),
            Self::Exit => Reg::R0.into(),
            Self::LoadImm64 { .. } | Self::LoadImm64Tail | Self::Jump { .. } | Self::MayGoto { .. } => {
                RegSet::EMPTY
            }
        }
    }

    /// The registers whose old values are gone after the instruction: its result, and of calls and packet
    /// loads all of `r0` to `r5`.
    #[inline]
    pub fn writes(&self) -> RegSet {
        match *self {
            Self::Alu { dst, .. } => dst.into(),
            _ => self.otherwise_writes(),
        }
    }

    fn otherwise_writes(&self) -> RegSet {
        match *self {
            Self::Alu { dst, .. }
            | Self::Neg { dst, .. }
            | Self::MovSx { dst, .. }
            | Self::AddrSpaceCast { dst, .. }
            | Self::Endian { dst, .. }
            | Self::LoadImm64 { dst, .. }
            | Self::Load { dst, .. }
            | Self::LoadAcquire { dst, .. } => dst.into(),
            Self::Atomic { op: AtomicOp::CmpXchg, .. } => Reg::R0.into(),
            Self::Atomic { op, src, .. } if op.fetches() => src.into(),
            Self::LoadPacket { .. } | Self::Call { .. } | Self::CallReg { .. } => RegSet::CALLER_SAVED,
            Self::Atomic { .. }
            | Self::Store { .. }
            | Self::StoreRelease { .. }
            | Self::LoadImm64Tail
            | Self::Jump { .. }
            | Self::JumpIf { .. }
            | Self::MayGoto { .. }
            | Self::Exit => RegSet::EMPTY,
        }
    }

    /// Whether control may pass to somewhere else than the next instruction and come from here in the same
    /// function: `goto`, `gotol`, `if` and `may_goto`, but neither calls nor `exit`.
    pub fn is_jump(&self) -> bool {
        self.jump_offset().is_some()
    }

    /// The slot a jump in slot `at` goes to; `None` for any other instruction, and where the slot number would be
    /// negative. Whether the program has that slot is not looked at.
    pub fn jump_target(&self, at: usize) -> Option<usize> {
        target(at, self.jump_offset()?)
    }

    /// The slot of the function that a local call, or a load of a function's address, in slot `at` names;
    /// `None` for other instructions, and where the slot number would be negative.
    pub fn function_target(&self, at: usize) -> Option<usize> {
        use crate::insn::{CallTarget, Imm64};
        match *self {
            Self::Call { target: CallTarget::Local(distance) }
            | Self::LoadImm64 { value: Imm64::Function(distance), .. } => target(at, distance),
            _ => None,
        }
    }
}

/// `distance` slots from the one after `at`.
fn target(at: usize, distance: i32) -> Option<usize> {
    at.checked_add(1)?.checked_add_signed(isize::try_from(distance).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asm::assemble;

    /// Instruction, registers read, registers written.
    const CASES: &[(&str, &[u8], &[u8])] = &[
        ("r1 = r2", &[2], &[1]),
        ("r1 = 5", &[], &[1]),
        ("r1 += r2", &[1, 2], &[1]),
        ("w1 += 5", &[1], &[1]),
        ("r1 = -r1", &[1], &[1]),
        ("r1 = (s8)r2", &[2], &[1]),
        ("r1 = bswap16 r1", &[1], &[1]),
        ("r9 = 5 ll", &[], &[9]),
        ("r1 = *(u8 *)(r2 + 0)", &[2], &[1]),
        ("*(u8 *)(r2 + 0) = r3", &[2, 3], &[]),
        ("*(u8 *)(r2 + 0) = 3", &[2], &[]),
        ("lock *(u64 *)(r2 + 0) += r3", &[2, 3], &[]),
        ("r3 = atomic_fetch_add((u64 *)(r2 + 0), r3)", &[2, 3], &[3]),
        ("r3 = xchg_64(r2 + 0, r3)", &[2, 3], &[3]),
        ("r0 = cmpxchg_64(r2 + 0, r0, r3)", &[0, 2, 3], &[0]),
        ("w1 = load_acquire((u8 *)(r2 + 0))", &[2], &[1]),
        ("store_release((u8 *)(r1 + 0), w2)", &[1, 2], &[]),
        ("r0 = *(u8 *)skb[4]", &[6], &[0, 1, 2, 3, 4, 5]),
        ("r0 = *(u8 *)skb[r7]", &[6, 7], &[0, 1, 2, 3, 4, 5]),
        ("if r1 > r2 goto +0", &[1, 2], &[]),
        ("if w1 > 2 goto +0", &[1], &[]),
        ("goto +0", &[], &[]),
        ("may_goto +0", &[], &[]),
        ("call 5", &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]),
        ("callx r8", &[1, 2, 3, 4, 5, 8], &[0, 1, 2, 3, 4, 5]),
        ("exit", &[0], &[]),
    ];

    #[test]
    fn instructions_read_and_write_what_their_text_says() {
        let set = |numbers: &[u8]| numbers.iter().filter_map(|number| Reg::new(*number)).collect::<RegSet>();
        for (text, reads, writes) in CASES {
            let insn = assemble(text).expect(text)[0];
            assert_eq!((insn.reads(), insn.writes()), (set(reads), set(writes)), "{text}");
        }
    }

    #[test]
    fn targets_count_from_the_next_slot() {
        let program = assemble("goto -1\ncall pc+1\nr1 = func[-3] ll\nexit").expect("assembles");
        assert_eq!(program[0].jump_target(0), Some(0));
        assert_eq!(program[0].jump_target(usize::MAX), None);
        assert_eq!(program[1].jump_target(1), None);
        assert_eq!(program[1].function_target(1), Some(3));
        assert_eq!(program[2].function_target(2), Some(0));
        assert_eq!(program[2].function_target(1), None, "before the start");
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = RegSet::EMPTY.with(Reg::R10).with(Reg::R0);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Reg::R0, Reg::R10]);
        assert_eq!(format!("{set:?}"), "{r0, r10}");
        assert_eq!((set.len(), set.is_empty()), (2, false));
        assert_eq!(set.intersection(RegSet::CALLER_SAVED), RegSet::from(Reg::R0));
        assert_eq!(set.difference(RegSet::CALLER_SAVED), RegSet::from(Reg::R10));
        assert_eq!(RegSet::CALLER_SAVED.union(RegSet::CALLEE_SAVED).len(), 10);
        assert_eq!(RegSet::ARGUMENTS.with(Reg::R0), RegSet::CALLER_SAVED);
    }
}
