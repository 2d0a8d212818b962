//! Instructions to bytes, each in the shortest form that exists for its operands.
//!
//! Every function here is pure: operands in, bytes out. Which instruction is wanted is decided elsewhere. The
//! opcodes are those of the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
//!
//! ```text
//!   66/F2/F3/F0 | REX 0100WRXB | 0F / 0F 38 | opcode | mod reg rm | scale index base | disp 0/8/32 | imm
//! ```
//!
//! Three irregularities are dealt with in [`modrm`] and nowhere else: `rsp` and `r12` as a base need a SIB byte,
//! `rbp` and `r13` as a base need a displacement, and the byte registers 4 to 7 need a REX prefix.

use skep_isa::{Size, Width};

use super::regs::Gpr;

/// One instruction: at most fifteen bytes, the first one lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    bits: u128,
    len: u32,
}

impl Bytes {
    const fn new() -> Self {
        Self { bits: 0, len: 0 }
    }

    const fn byte(self, byte: u8) -> Self {
        Self { bits: self.bits | (byte as u128) << (8 * self.len), len: self.len + 1 }
    }

    const fn word(self, value: u16) -> Self {
        Self { bits: self.bits | (value as u128) << (8 * self.len), len: self.len + 2 }
    }

    const fn dword(self, value: i32) -> Self {
        Self { bits: self.bits | (value as u32 as u128) << (8 * self.len), len: self.len + 4 }
    }

    const fn qword(self, value: u64) -> Self {
        Self { bits: self.bits | (value as u128) << (8 * self.len), len: self.len + 8 }
    }

    /// The bytes, followed by zeroes.
    pub(crate) const fn padded(self) -> [u8; 16] {
        self.bits.to_le_bytes()
    }

    /// How many there are.
    pub(crate) const fn len(self) -> usize {
        self.len as usize
    }
}

/// A place in memory: `base + index * scale + disp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mem {
    base: Gpr,
    index: Option<(Gpr, Scale)>,
    disp: i32,
}

/// What an index is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    X1,
    X2,
    X4,
    X8,
}

impl Mem {
    /// `[base + disp]`
    pub(crate) const fn at(base: Gpr, disp: i32) -> Self {
        Self { base, index: None, disp }
    }

    /// `[base + index * scale + disp]`. The index must not be `rsp`.
    pub(crate) const fn indexed(base: Gpr, index: Gpr, scale: Scale, disp: i32) -> Self {
        Self { base, index: Some((index, scale)), disp }
    }
}

/// Arithmetic of the classical group: opcode `8 * n + form`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group1 {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts and rotates, by their number in ModRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Rol = 0,
    Shl = 4,
    Shr = 5,
    Sar = 7,
}

/// Arithmetic with one operand, by opcode and number in ModRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Neg,
    Div,
    Idiv,
    Inc,
    Dec,
}

impl Unary {
    const fn code(self) -> (u8, u8) {
        match self {
            Self::Not => (0xf7, 2),
            Self::Neg => (0xf7, 3),
            Self::Div => (0xf7, 6),
            Self::Idiv => (0xf7, 7),
            Self::Inc => (0xff, 0),
            Self::Dec => (0xff, 1),
        }
    }
}

/// Conditions, by their number in opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cc {
    Below = 2,
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowOrEqual = 6,
    Above = 7,
    Less = 12,
    GreaterOrEqual = 13,
    LessOrEqual = 14,
    Greater = 15,
}

impl Cc {
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// The condition that holds where this one does not.
    pub(crate) const fn inverted(self) -> Self {
        match self {
            Self::Below => Self::AboveOrEqual,
            Self::AboveOrEqual => Self::Below,
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::BelowOrEqual => Self::Above,
            Self::Above => Self::BelowOrEqual,
            Self::Less => Self::GreaterOrEqual,
            Self::GreaterOrEqual => Self::Less,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
        }
    }
}

// Moves.

/// `mov dst, src`
pub(crate) const fn mov_rr(width: Width, dst: Gpr, src: Gpr) -> Bytes {
    rr(Opcode::one(0x89).width(width), src.number(), dst)
}

/// `mov dst, value`, the shortest of three forms. Leaves the flags alone.
pub(crate) const fn mov_ri(dst: Gpr, value: u64) -> Bytes {
    if value <= u32::MAX as u64 {
        opcode_reg(Width::W32, 0xb8, dst).dword(value as u32 as i32)
    } else if value as i64 >= i32::MIN as i64 && (value as i64) < 0 {
        rr(Opcode::one(0xc7).width(Width::W64), 0, dst).dword(value as i32)
    } else {
        opcode_reg(Width::W64, 0xb8, dst).qword(value)
    }
}

/// `xor dst, dst`: zero, at the price of the flags.
pub(crate) const fn zero(dst: Gpr) -> Bytes {
    alu_rr(Group1::Xor, Width::W32, dst, dst)
}

/// `movzx dst, src`: zero-extends the lowest one, two or four bytes.
pub(crate) const fn movzx_rr(from: Size, dst: Gpr, src: Gpr) -> Bytes {
    match from {
        Size::B1 => rr(Opcode::two(0xb6).byte_rm(src), dst.number(), src),
        Size::B2 => rr(Opcode::two(0xb7), dst.number(), src),
        Size::B4 => mov_rr(Width::W32, dst, src),
        Size::B8 => mov_rr(Width::W64, dst, src),
    }
}

/// `movsx dst, src`: sign-extends the lowest one, two or four bytes to `width`.
pub(crate) const fn movsx_rr(width: Width, from: Size, dst: Gpr, src: Gpr) -> Bytes {
    match from {
        Size::B1 => rr(Opcode::two(0xbe).width(width).byte_rm(src), dst.number(), src),
        Size::B2 => rr(Opcode::two(0xbf).width(width), dst.number(), src),
        Size::B4 => rr(Opcode::one(0x63).width(width), dst.number(), src),
        Size::B8 => mov_rr(width, dst, src),
    }
}

/// `lea dst, [mem]`
pub(crate) const fn lea(width: Width, dst: Gpr, mem: Mem) -> Bytes {
    rm(Opcode::one(0x8d).width(width), dst.number(), mem)
}

/// `lea dst, [rip + disp]`; the displacement is the last four bytes and still zero.
pub(crate) const fn lea_rip(dst: Gpr) -> Bytes {
    Opcode::one(0x8d).width(Width::W64).open(dst.high(), 0, 0).byte(dst.low() << 3 | 5).dword(0)
}

// Arithmetic.

/// `op dst, src`
pub(crate) const fn alu_rr(op: Group1, width: Width, dst: Gpr, src: Gpr) -> Bytes {
    rr(Opcode::one((op as u8) << 3 | 1).width(width), src.number(), dst)
}

/// `op dst, [mem]`
pub(crate) const fn alu_rm(op: Group1, width: Width, dst: Gpr, mem: Mem) -> Bytes {
    rm(Opcode::one((op as u8) << 3 | 3).width(width), dst.number(), mem)
}

/// `op dst, imm`, the immediate sign-extended.
pub(crate) const fn alu_ri(op: Group1, width: Width, dst: Gpr, imm: i32) -> Bytes {
    if let Some(imm) = as_i8(imm) {
        rr(Opcode::one(0x83).width(width), op as u8, dst).byte(imm)
    } else if dst.number() == 0 {
        Opcode::one((op as u8) << 3 | 5).width(width).open(0, 0, 0).dword(imm)
    } else {
        rr(Opcode::one(0x81).width(width), op as u8, dst).dword(imm)
    }
}

/// `test a, b`
pub(crate) const fn test_rr(width: Width, a: Gpr, b: Gpr) -> Bytes {
    rr(Opcode::one(0x85).width(width), b.number(), a)
}

/// `test reg, imm`, the immediate sign-extended. Only the zero flag of the result is meant.
pub(crate) const fn test_ri(width: Width, reg: Gpr, imm: i32) -> Bytes {
    if imm >= 0 && imm <= 0xff {
        if reg.number() == 0 {
            return Bytes::new().byte(0xa8).byte(imm as u8);
        }
        return rr(Opcode::one(0xf6).byte_rm(reg), 0, reg).byte(imm as u8);
    }
    let width = if imm >= 0 { Width::W32 } else { width };
    if reg.number() == 0 {
        return Opcode::one(0xa9).width(width).open(0, 0, 0).dword(imm);
    }
    rr(Opcode::one(0xf7).width(width), 0, reg).dword(imm)
}

/// `op reg`
pub(crate) const fn unary(op: Unary, width: Width, reg: Gpr) -> Bytes {
    let (opcode, number) = op.code();
    rr(Opcode::one(opcode).width(width), number, reg)
}

/// `imul dst, src`
pub(crate) const fn imul_rr(width: Width, dst: Gpr, src: Gpr) -> Bytes {
    rr(Opcode::two(0xaf).width(width), dst.number(), src)
}

/// `imul dst, [mem]`
pub(crate) const fn imul_rm(width: Width, dst: Gpr, mem: Mem) -> Bytes {
    rm(Opcode::two(0xaf).width(width), dst.number(), mem)
}

/// `imul dst, src, imm`
pub(crate) const fn imul_rri(width: Width, dst: Gpr, src: Gpr, imm: i32) -> Bytes {
    match as_i8(imm) {
        Some(imm) => rr(Opcode::one(0x6b).width(width), dst.number(), src).byte(imm),
        None => rr(Opcode::one(0x69).width(width), dst.number(), src).dword(imm),
    }
}

/// `op reg, count`, the count below the width.
pub(crate) const fn shift_ri(op: Shift, width: Width, reg: Gpr, count: u8) -> Bytes {
    if count == 1 {
        return rr(Opcode::one(0xd1).width(width), op as u8, reg);
    }
    rr(Opcode::one(0xc1).width(width), op as u8, reg).byte(count)
}

/// `op reg, cl`
pub(crate) const fn shift_cl(op: Shift, width: Width, reg: Gpr) -> Bytes {
    rr(Opcode::one(0xd3).width(width), op as u8, reg)
}

/// `shlx`, `shrx` or `sarx dst, src, count` (BMI2). Leaves the flags alone.
pub(crate) const fn shift_rrr(op: Shift, width: Width, dst: Gpr, src: Gpr, count: Gpr) -> Bytes {
    let pp = match op {
        Shift::Shl | Shift::Rol => 1,
        Shift::Sar => 2,
        Shift::Shr => 3,
    };
    vex(2, pp, width, dst, count.number(), 0xf7, src)
}

/// `rorx dst, src, count` (BMI2). Leaves the flags alone.
pub(crate) const fn rorx(width: Width, dst: Gpr, src: Gpr, count: u8) -> Bytes {
    vex(3, 3, width, dst, 0, 0xf0, src).byte(count)
}

/// `mulx high, low, src` (BMI2): `rdx * src`. Leaves the flags alone.
pub(crate) const fn mulx(width: Width, high: Gpr, low: Gpr, src: Gpr) -> Bytes {
    vex(2, 3, width, high, low.number(), 0xf6, src)
}

/// `bswap reg`
pub(crate) const fn bswap(width: Width, reg: Gpr) -> Bytes {
    Opcode::two(0xc8 | reg.low()).width(width).open(0, 0, reg.high())
}

/// `rol reg16, 8`: swaps the lowest two bytes and leaves the others alone.
pub(crate) const fn swap16(reg: Gpr) -> Bytes {
    rr(Opcode::one(0xc1).prefix(0x66), 0, reg).byte(8)
}

/// `cdq` or `cqo`: fills `rdx` with the sign of `rax`.
pub(crate) const fn sign_to_rdx(width: Width) -> Bytes {
    Opcode::one(0x99).width(width).open(0, 0, 0)
}

// Memory.

/// A load, zero- or sign-extended to 64 bits.
pub(crate) const fn load(size: Size, signed: bool, dst: Gpr, mem: Mem) -> Bytes {
    let opcode = match (size, signed) {
        (Size::B1, false) => Opcode::two(0xb6),
        (Size::B2, false) => Opcode::two(0xb7),
        (Size::B4, false) => Opcode::one(0x8b),
        (Size::B1, true) => Opcode::two(0xbe).width(Width::W64),
        (Size::B2, true) => Opcode::two(0xbf).width(Width::W64),
        (Size::B4, true) => Opcode::one(0x63).width(Width::W64),
        (Size::B8, _) => Opcode::one(0x8b).width(Width::W64),
    };
    rm(opcode, dst.number(), mem)
}

/// A store of a register.
pub(crate) const fn store_r(size: Size, mem: Mem, src: Gpr) -> Bytes {
    let opcode = match size {
        Size::B1 => Opcode::one(0x88).byte_rm(src),
        Size::B2 => Opcode::one(0x89).prefix(0x66),
        Size::B4 => Opcode::one(0x89),
        Size::B8 => Opcode::one(0x89).width(Width::W64),
    };
    rm(opcode, src.number(), mem)
}

/// A store of an immediate, truncated or sign-extended.
pub(crate) const fn store_i(size: Size, mem: Mem, imm: i32) -> Bytes {
    match size {
        Size::B1 => rm(Opcode::one(0xc6), 0, mem).byte(imm as u8),
        Size::B2 => rm(Opcode::one(0xc7).prefix(0x66), 0, mem).word(imm as u16),
        Size::B4 => rm(Opcode::one(0xc7), 0, mem).dword(imm),
        Size::B8 => rm(Opcode::one(0xc7).width(Width::W64), 0, mem).dword(imm),
    }
}

/// `lock op [mem], src`
pub(crate) const fn lock_alu(op: Group1, width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::one((op as u8) << 3 | 1).prefix(0xf0).width(width), src.number(), mem)
}

/// `lock xadd [mem], src`
pub(crate) const fn xadd(width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::two(0xc1).prefix(0xf0).width(width), src.number(), mem)
}

/// `xchg [mem], src`, which is always locked.
pub(crate) const fn xchg(width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::one(0x87).width(width), src.number(), mem)
}

/// `lock cmpxchg [mem], src`: compares with `rax`.
pub(crate) const fn cmpxchg(width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::two(0xb1).prefix(0xf0).width(width), src.number(), mem)
}

// Control.

/// `push reg`
pub(crate) const fn push(reg: Gpr) -> Bytes {
    opcode_reg(Width::W32, 0x50, reg)
}

/// `pop reg`
pub(crate) const fn pop(reg: Gpr) -> Bytes {
    opcode_reg(Width::W32, 0x58, reg)
}

/// `leave`
pub(crate) const fn leave() -> Bytes {
    Bytes::new().byte(0xc9)
}

/// `ret`
pub(crate) const fn ret() -> Bytes {
    Bytes::new().byte(0xc3)
}

/// `int3`
pub(crate) const fn trap() -> Bytes {
    Bytes::new().byte(0xcc)
}

/// `endbr64`: where an indirect branch may lead.
pub(crate) const fn endbr64() -> Bytes {
    Bytes::new().byte(0xf3).byte(0x0f).byte(0x1e).byte(0xfa)
}

/// `call reg`
pub(crate) const fn call_r(reg: Gpr) -> Bytes {
    rr(Opcode::one(0xff), 2, reg)
}

/// `call rel32`; the displacement is the last four bytes and still zero.
pub(crate) const fn call_rel() -> Bytes {
    Bytes::new().byte(0xe8).dword(0)
}

/// `jmp rel8`
pub(crate) const fn jmp8(disp: i8) -> Bytes {
    Bytes::new().byte(0xeb).byte(disp as u8)
}

/// `jmp rel32`
pub(crate) const fn jmp32(disp: i32) -> Bytes {
    Bytes::new().byte(0xe9).dword(disp)
}

/// `jcc rel8`
pub(crate) const fn jcc8(number: u8, disp: i8) -> Bytes {
    Bytes::new().byte(0x70 | number).byte(disp as u8)
}

/// `jcc rel32`
pub(crate) const fn jcc32(number: u8, disp: i32) -> Bytes {
    Bytes::new().byte(0x0f).byte(0x80 | number).dword(disp)
}

/// One instruction of up to nine bytes that does nothing (the forms the manual recommends under NOP).
pub(crate) const fn nop(len: usize) -> Bytes {
    match len {
        0 => Bytes::new(),
        1 => Bytes::new().byte(0x90),
        2 => nop(1).prepend(0x66),
        3 => Bytes::new().byte(0x0f).byte(0x1f).byte(0x00),
        4 => Bytes::new().byte(0x0f).byte(0x1f).byte(0x40).byte(0),
        5 => Bytes::new().byte(0x0f).byte(0x1f).byte(0x44).byte(0).byte(0),
        6 => nop(5).prepend(0x66),
        7 => Bytes::new().byte(0x0f).byte(0x1f).byte(0x80).dword(0),
        8 => Bytes::new().byte(0x0f).byte(0x1f).byte(0x84).byte(0).dword(0),
        _ => nop(8).prepend(0x66),
    }
}

// How an instruction is put together.

/// Everything before the ModRM byte.
#[derive(Clone, Copy)]
struct Opcode {
    /// 0 where there is none.
    prefix: u8,
    wide: bool,
    force_rex: bool,
    escaped: bool,
    byte: u8,
}

impl Opcode {
    const fn one(byte: u8) -> Self {
        Self { prefix: 0, wide: false, force_rex: false, escaped: false, byte }
    }

    const fn two(byte: u8) -> Self {
        Self { escaped: true, ..Self::one(byte) }
    }

    const fn prefix(self, prefix: u8) -> Self {
        Self { prefix, ..self }
    }

    const fn width(self, width: Width) -> Self {
        Self { wide: matches!(width, Width::W64), ..self }
    }

    /// The lowest byte of this register is an operand.
    const fn byte_rm(self, reg: Gpr) -> Self {
        Self { force_rex: reg.byte_needs_rex(), ..self }
    }

    /// Prefixes and opcode, with the high bits of ModRM's register, SIB's index and the base.
    const fn open(self, r: u8, x: u8, b: u8) -> Bytes {
        let mut bytes = Bytes::new();
        if self.prefix != 0 {
            bytes = bytes.byte(self.prefix);
        }
        let rex = 0x40 | (self.wide as u8) << 3 | r << 2 | x << 1 | b;
        if rex != 0x40 || self.force_rex {
            bytes = bytes.byte(rex);
        }
        if self.escaped {
            bytes = bytes.byte(0x0f);
        }
        bytes.byte(self.byte)
    }
}

impl Bytes {
    const fn prepend(self, byte: u8) -> Self {
        Self { bits: self.bits << 8 | byte as u128, len: self.len + 1 }
    }
}

/// An instruction whose register is part of the opcode byte.
const fn opcode_reg(width: Width, opcode: u8, reg: Gpr) -> Bytes {
    Opcode::one(opcode | reg.low()).width(width).open(0, 0, reg.high())
}

/// An instruction with ModRM's register field and a register operand.
const fn rr(opcode: Opcode, reg: u8, rm: Gpr) -> Bytes {
    opcode.open(reg >> 3, 0, rm.high()).byte(0xc0 | (reg & 7) << 3 | rm.low())
}

/// An instruction with ModRM's register field and a memory operand.
const fn rm(opcode: Opcode, reg: u8, mem: Mem) -> Bytes {
    let x = match mem.index {
        Some((index, _)) => index.high(),
        None => 0,
    };
    modrm(opcode.open(reg >> 3, x, mem.base.high()), reg & 7, mem)
}

/// ModRM, SIB and displacement.
const fn modrm(bytes: Bytes, reg: u8, mem: Mem) -> Bytes {
    let short = as_i8(mem.disp);
    let mode = if mem.disp == 0 && mem.base.low() != 5 {
        0x00
    } else if short.is_some() {
        0x40
    } else {
        0x80
    };
    let bytes = match mem.index {
        Some((index, scale)) => {
            bytes.byte(mode | reg << 3 | 4).byte((scale as u8) << 6 | index.low() << 3 | mem.base.low())
        }
        None if mem.base.low() == 4 => bytes.byte(mode | reg << 3 | 4).byte(0x24),
        None => bytes.byte(mode | reg << 3 | mem.base.low()),
    };
    match (mode, short) {
        (0x00, _) => bytes,
        (_, Some(disp)) => bytes.byte(disp),
        _ => bytes.dword(mem.disp),
    }
}

/// A three-byte VEX instruction with three register operands.
const fn vex(map: u8, pp: u8, width: Width, reg: Gpr, vvvv: u8, opcode: u8, rm: Gpr) -> Bytes {
    let wide = matches!(width, Width::W64) as u8;
    Bytes::new()
        .byte(0xc4)
        .byte((reg.high() ^ 1) << 7 | 1 << 6 | (rm.high() ^ 1) << 5 | map)
        .byte(wide << 7 | (vvvv ^ 15) << 3 | pp)
        .byte(opcode)
        .byte(0xc0 | reg.low() << 3 | rm.low())
}

/// The byte that sign-extends to the value, if one does.
const fn as_i8(value: i32) -> Option<u8> {
    if value >= i8::MIN as i32 && value <= i8::MAX as i32 { Some(value as u8) } else { None }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
