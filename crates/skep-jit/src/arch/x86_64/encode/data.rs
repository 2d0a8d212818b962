//! Moves, arithmetic and logic.

use skep_isa::{Size, Width};

use super::{Bytes, Cc, Gpr, Mem, Opcode, as_i8, rm, rr, vex};

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

/// `mov dst, src`
pub(crate) const fn mov_rr(width: Width, dst: Gpr, src: Gpr) -> Bytes {
    rr(Opcode::one(0x89).width(width), src.number(), dst)
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

/// `op [mem], imm`, the immediate sign-extended.
pub(crate) const fn alu_mi(op: Group1, width: Width, mem: Mem, imm: i32) -> Bytes {
    match as_i8(imm) {
        Some(imm) => rm(Opcode::one(0x83).width(width), op as u8, mem).byte(imm),
        None => rm(Opcode::one(0x81).width(width), op as u8, mem).dword(imm),
    }
}

/// `cmp byte [mem], imm`
pub(crate) const fn cmp_byte(mem: Mem, imm: u8) -> Bytes {
    rm(Opcode::one(0x80), Group1::Cmp as u8, mem).byte(imm)
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

/// `cmovcc dst, src`. Leaves the flags alone.
pub(crate) const fn cmov(cc: Cc, dst: Gpr, src: Gpr) -> Bytes {
    rr(Opcode::two(0x40 | cc.number()).width(Width::W64), dst.number(), src)
}

/// `movq xmm0, src`
pub(crate) const fn movq_to_xmm0(src: Gpr) -> Bytes {
    rr(Opcode::two(0x6e).prefix(0x66).width(Width::W64), 0, src)
}

/// `movq dst, xmm0`
pub(crate) const fn movq_from_xmm0(dst: Gpr) -> Bytes {
    rr(Opcode::two(0x7e).prefix(0x66).width(Width::W64), 0, dst)
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
