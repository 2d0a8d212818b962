//! The registers that an instruction reads and writes, and sets of registers.

use skep_abi::{ArgKind, HelperProto};
use skep_isa::{AluOp, AtomicOp, CallTarget, Insn, Operand, PacketBase, Reg};

use crate::exec::receives_old;

/// A set of registers, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegSet(u16);

impl RegSet {
    pub(crate) fn of(regs: &[Reg]) -> Self {
        regs.iter().fold(Self::default(), |set, reg| set.with(*reg))
    }

    pub(crate) fn with(self, reg: Reg) -> Self {
        Self(self.0 | 1 << reg.number())
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn contains(self, reg: Reg) -> bool {
        self.0 & 1 << reg.number() != 0
    }

    /// The register with the lowest number.
    pub(crate) fn first(self) -> Option<Reg> {
        Reg::ALL.into_iter().find(|reg| self.contains(*reg))
    }
}

/// `r1` to `r5`, which calls clobber.
pub(crate) fn arguments() -> RegSet {
    RegSet::of(&Reg::ALL[1..6])
}

/// The registers that an instruction reads. Calls of helpers read the arguments in their prototype
/// ([`call_reads`]); local calls and the exit of a called function read nothing by themselves.
pub(crate) fn reads(insn: &Insn) -> RegSet {
    let none = RegSet::default();
    let operand = |src: Operand| match src {
        Operand::Reg(reg) => none.with(reg),
        Operand::Imm(_) => none,
    };
    match *insn {
        Insn::Alu { op: AluOp::Mov, src, .. } => operand(src),
        Insn::Alu { dst, src, .. } | Insn::JumpIf { dst, src, .. } => operand(src).with(dst),
        Insn::Neg { dst, .. } | Insn::Endian { dst, .. } => none.with(dst),
        Insn::MovSx { src, .. } | Insn::AddrSpaceCast { src, .. } => none.with(src),
        Insn::Load { base, .. } | Insn::LoadAcquire { base, .. } => none.with(base),
        Insn::Store { base, src, .. } => operand(src).with(base),
        Insn::StoreRelease { base, src, .. } => none.with(base).with(src),
        Insn::Atomic { op: AtomicOp::CmpXchg, base, src, .. } => none.with(base).with(src).with(Reg::R0),
        Insn::Atomic { base, src, .. } => none.with(base).with(src),
        Insn::LoadPacket { base: PacketBase::Absolute, .. } => none.with(Reg::R6),
        Insn::LoadPacket { base: PacketBase::Indirect(reg), .. } => none.with(reg).with(Reg::R6),
        _ => none,
    }
}

/// The registers that an instruction writes, except for calls.
pub(crate) fn writes(insn: &Insn) -> RegSet {
    let none = RegSet::default();
    match *insn {
        Insn::Alu { dst, .. }
        | Insn::Neg { dst, .. }
        | Insn::MovSx { dst, .. }
        | Insn::AddrSpaceCast { dst, .. }
        | Insn::Endian { dst, .. }
        | Insn::LoadImm64 { dst, .. }
        | Insn::Load { dst, .. }
        | Insn::LoadAcquire { dst, .. } => none.with(dst),
        Insn::Atomic { op, src, .. } => receives_old(op, src).map_or(none, |reg| none.with(reg)),
        Insn::Call { target: CallTarget::Helper(_) } | Insn::LoadPacket { .. } => none.with(Reg::R0),
        _ => none,
    }
}

/// The arguments that a helper reads.
pub(crate) fn call_reads(proto: &HelperProto) -> RegSet {
    let read = |kind: &ArgKind| !matches!(kind, ArgKind::None | ArgKind::Printed);
    Reg::ALL[1..6]
        .iter()
        .zip(&proto.args)
        .filter(|(_, kind)| read(kind))
        .fold(RegSet::default(), |set, (reg, _)| set.with(*reg))
}
