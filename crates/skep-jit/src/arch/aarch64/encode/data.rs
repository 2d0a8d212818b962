//! Arithmetic, logic and selection.

use skep_isa::Width;

use super::{Bitmask, Gpr, Word, is_wide};

/// An addition or a subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    Add = 0,
    Sub = 1,
}

/// The immediate of an addition: twelve bits, or twelve bits above twelve zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Imm12 {
    /// `sh:imm12`
    bits: u16,
}

impl Imm12 {
    /// Expresses a value.
    pub(crate) const fn new(value: u64) -> Option<Self> {
        if value < 0x1000 {
            Some(Self { bits: value as u16 })
        } else if value & 0xfff == 0 && value < 0x100_0000 {
            Some(Self { bits: 0x1000 | (value >> 12) as u16 })
        } else {
            None
        }
    }
}

/// How a register operand is shifted. Additions do not rotate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShiftKind {
    Lsl = 0,
    Lsr = 1,
    Asr = 2,
    Ror = 3,
}

/// A register operand, shifted by a constant below the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shifted {
    reg: Gpr,
    kind: ShiftKind,
    amount: u8,
}

impl Shifted {
    /// The register unchanged.
    pub(crate) const fn plain(reg: Gpr) -> Self {
        Self::by(reg, ShiftKind::Lsl, 0)
    }

    /// The register, shifted.
    pub(crate) const fn by(reg: Gpr, kind: ShiftKind, amount: u8) -> Self {
        Self { reg, kind, amount }
    }

    const fn put(self, width: Width, word: Word) -> Word {
        debug_assert!((self.amount as u32) < width.bits(), "a shift by the width or more");
        word.width(width).with(self.kind as u32, 22).m(self.reg).with(self.amount as u32, 10)
    }
}

/// How a narrow register operand is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extend {
    Uxtb = 0,
    Uxth = 1,
    Uxtw = 2,
    Sxtb = 4,
    Sxth = 5,
    Sxtw = 6,
}

/// `add` or `sub rd, rn, imm`: register 31 is the stack pointer.
pub(crate) const fn sum_imm(op: Sum, width: Width, rd: Gpr, rn: Gpr, imm: Imm12) -> Word {
    Word(0x1100_0000).width(width).with(op as u32, 30).with(imm.bits as u32, 10).n(rn).d(rd)
}

/// `adds` or `subs rd, rn, imm`: `cmn` or `cmp` where `rd` is [`Gpr::ZR`]. As `rn`, 31 is the stack pointer.
pub(crate) const fn sum_imm_flags(op: Sum, width: Width, rd: Gpr, rn: Gpr, imm: Imm12) -> Word {
    sum_imm(op, width, rd, rn, imm).with(1, 29)
}

/// `add` or `sub rd, rn, rm, shift`
pub(crate) const fn sum_reg(op: Sum, width: Width, rd: Gpr, rn: Gpr, rm: Shifted) -> Word {
    debug_assert!(!matches!(rm.kind, ShiftKind::Ror), "additions do not rotate");
    rm.put(width, Word(0x0b00_0000)).with(op as u32, 30).n(rn).d(rd)
}

/// `adds` or `subs rd, rn, rm, shift`: `cmn` or `cmp` where `rd` is [`Gpr::ZR`].
pub(crate) const fn sum_reg_flags(op: Sum, width: Width, rd: Gpr, rn: Gpr, rm: Shifted) -> Word {
    sum_reg(op, width, rd, rn, rm).with(1, 29)
}

/// `add` or `sub rd, rn, rm, extend amount`, shifted left by up to four after the extension. As `rd` and `rn`,
/// 31 is the stack pointer.
pub(crate) const fn sum_ext(
    op: Sum,
    width: Width,
    rd: Gpr,
    rn: Gpr,
    rm: Gpr,
    extend: Extend,
    amount: u8,
) -> Word {
    debug_assert!(amount <= 4);
    let word = Word(0x0b20_0000).width(width).with(op as u32, 30);
    word.m(rm).with(extend as u32, 13).with(amount as u32, 10).n(rn).d(rd)
}

/// `neg rd, rm, shift`
pub(crate) const fn neg(width: Width, rd: Gpr, rm: Shifted) -> Word {
    sum_reg(Sum::Sub, width, rd, Gpr::ZR, rm)
}

/// A logical operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And = 0,
    Orr = 1,
    Eor = 2,
}

/// The fourth logical operation: `and` that sets the flags.
const ANDS: u32 = 3;

/// `and`, `orr` or `eor rd, rn, mask`: as `rd`, 31 is the stack pointer.
pub(crate) const fn logic_imm(op: Logic, width: Width, rd: Gpr, rn: Gpr, mask: Bitmask) -> Word {
    masked(op as u32, width, rd, rn, mask)
}

/// `tst rn, mask`
pub(crate) const fn test_imm(width: Width, rn: Gpr, mask: Bitmask) -> Word {
    masked(ANDS, width, Gpr::ZR, rn, mask)
}

const fn masked(op: u32, width: Width, rd: Gpr, rn: Gpr, mask: Bitmask) -> Word {
    mask.put(Word(0x1200_0000).width(width).with(op, 29)).n(rn).d(rd)
}

/// `and`, `orr` or `eor rd, rn, rm, shift`
pub(crate) const fn logic_reg(op: Logic, width: Width, rd: Gpr, rn: Gpr, rm: Shifted) -> Word {
    rm.put(width, Word(0x0a00_0000)).with(op as u32, 29).n(rn).d(rd)
}

/// `bic`, `orn` or `eon rd, rn, rm, shift`: the operation with the complement of the second operand.
pub(crate) const fn logic_not(op: Logic, width: Width, rd: Gpr, rn: Gpr, rm: Shifted) -> Word {
    logic_reg(op, width, rd, rn, rm).with(1, 21)
}

/// `tst rn, rm, shift`
pub(crate) const fn test_reg(width: Width, rn: Gpr, rm: Shifted) -> Word {
    rm.put(width, Word(0x0a00_0000)).with(ANDS, 29).n(rn).d(Gpr::ZR)
}

/// `mov rd, rm`: register 31 is the zero register.
pub(crate) const fn mov(width: Width, rd: Gpr, rm: Gpr) -> Word {
    logic_reg(Logic::Orr, width, rd, Gpr::ZR, Shifted::plain(rm))
}

/// `mov rd, rn`: register 31 is the stack pointer.
pub(crate) const fn mov_sp(rd: Gpr, rn: Gpr) -> Word {
    sum_imm(Sum::Add, Width::W64, rd, rn, Imm12 { bits: 0 })
}

/// `mvn rd, rm`
pub(crate) const fn mvn(width: Width, rd: Gpr, rm: Gpr) -> Word {
    logic_not(Logic::Orr, width, rd, Gpr::ZR, Shifted::plain(rm))
}

/// A shift by a register; only the bits below the width count.
pub(crate) const fn shift_reg(kind: ShiftKind, width: Width, rd: Gpr, rn: Gpr, rm: Gpr) -> Word {
    two_sources(8 | kind as u32, width, rd, rn, rm)
}

/// `sdiv` or `udiv rd, rn, rm`. Division by zero is zero, and the smallest number by -1 is itself.
pub(crate) const fn divide(signed: bool, width: Width, rd: Gpr, rn: Gpr, rm: Gpr) -> Word {
    two_sources(2 | signed as u32, width, rd, rn, rm)
}

const fn two_sources(op: u32, width: Width, rd: Gpr, rn: Gpr, rm: Gpr) -> Word {
    Word(0x1ac0_0000).width(width).m(rm).with(op, 10).n(rn).d(rd)
}

/// `madd rd, rn, rm, ra`: `ra + rn * rm`
pub(crate) const fn madd(width: Width, rd: Gpr, rn: Gpr, rm: Gpr, ra: Gpr) -> Word {
    Word(0x1b00_0000).width(width).m(rm).a(ra).n(rn).d(rd)
}

/// `msub rd, rn, rm, ra`: `ra - rn * rm`
pub(crate) const fn msub(width: Width, rd: Gpr, rn: Gpr, rm: Gpr, ra: Gpr) -> Word {
    madd(width, rd, rn, rm, ra).with(1, 15)
}

/// `mul rd, rn, rm`
pub(crate) const fn mul(width: Width, rd: Gpr, rn: Gpr, rm: Gpr) -> Word {
    madd(width, rd, rn, rm, Gpr::ZR)
}

/// `umulh rd, rn, rm`: the upper 64 bits of the product.
pub(crate) const fn umulh(rd: Gpr, rn: Gpr, rm: Gpr) -> Word {
    mul(Width::W64, rd, rn, rm).with(6, 21)
}

/// `umull rd, rn, rm`: all 64 bits of the product of the lower halves.
pub(crate) const fn umull(rd: Gpr, rn: Gpr, rm: Gpr) -> Word {
    mul(Width::W64, rd, rn, rm).with(5, 21)
}

/// Conditions, by their number. Flipping the lowest bit inverts one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cc {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Unsigned above or equal: no borrow.
    Hs,
    /// Unsigned below.
    Lo,
    /// Negative.
    Mi,
    /// Positive or zero.
    Pl,
    /// Overflow.
    Vs,
    /// No overflow.
    Vc,
    /// Unsigned above.
    Hi,
    /// Unsigned below or equal.
    Ls,
    /// Signed greater or equal.
    Ge,
    /// Signed less.
    Lt,
    /// Signed greater.
    Gt,
    /// Signed less or equal.
    Le,
}

impl Cc {
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// The condition that holds where this one does not.
    pub(crate) const fn inverted(self) -> Self {
        match self {
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
            Self::Hs => Self::Lo,
            Self::Lo => Self::Hs,
            Self::Mi => Self::Pl,
            Self::Pl => Self::Mi,
            Self::Vs => Self::Vc,
            Self::Vc => Self::Vs,
            Self::Hi => Self::Ls,
            Self::Ls => Self::Hi,
            Self::Ge => Self::Lt,
            Self::Lt => Self::Ge,
            Self::Gt => Self::Le,
            Self::Le => Self::Gt,
        }
    }
}

/// `csel rd, rn, rm, cc`: `rn` if the condition holds, else `rm`.
pub(crate) const fn csel(width: Width, rd: Gpr, rn: Gpr, rm: Gpr, cc: Cc) -> Word {
    Word(0x1a80_0000).width(width).m(rm).with(cc.number() as u32, 12).n(rn).d(rd)
}

/// `csinv rd, rn, rm, cc`: `rn` if the condition holds, else the complement of `rm`.
pub(crate) const fn csinv(width: Width, rd: Gpr, rn: Gpr, rm: Gpr, cc: Cc) -> Word {
    Word(0x5a80_0000).width(width).m(rm).with(cc.number() as u32, 12).n(rn).d(rd)
}

/// `rev16 rd, rn`: swaps the two bytes of every half word.
pub(crate) const fn rev16(width: Width, rd: Gpr, rn: Gpr) -> Word {
    one_source(1, width, rd, rn)
}

/// `rev rd, rn`: reverses the bytes of the register.
pub(crate) const fn rev(width: Width, rd: Gpr, rn: Gpr) -> Word {
    one_source(2 | is_wide(width), width, rd, rn)
}

const fn one_source(op: u32, width: Width, rd: Gpr, rn: Gpr) -> Word {
    Word(0x5ac0_0000).width(width).with(op, 10).n(rn).d(rd)
}
