//! Instructions to bytes, each in the shortest form that exists for its operands.
//!
//! Every function here is pure: operands in, bytes out. Its callers choose the instruction. The
//! opcodes are those of the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
//!
//! ```text
//!   66/F2/F3/F0 | REX 0100WRXB | 0F / 0F 38 | opcode | mod reg rm | scale index base | disp 0/8/32 | imm
//! ```
//!
//! The parts of instructions are here. Each kind of instruction has its own file: `data` has moves and arithmetic, and
//! so on.
//!
//! Only [`modrm`] handles three irregularities: `rsp` and `r12` as a base need a SIB byte,
//! `rbp` and `r13` as a base need a displacement, and the byte registers 4 to 7 need a REX prefix.

mod address;
mod atomic;
mod constant;
mod control;
mod data;
mod memory;
mod vector;

use skep_isa::Width;

use super::regs::Gpr;

pub(crate) use address::*;
pub(crate) use atomic::*;
pub(crate) use constant::*;
pub(crate) use control::*;
pub(crate) use data::*;
pub(crate) use memory::*;
pub(crate) use vector::*;

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

    /// The same place with one register in place of another as the base.
    pub(crate) fn rebased(self, from: Gpr, to: Gpr) -> Self {
        if self.base == from { Self { base: to, ..self } } else { self }
    }

    /// `[base + index * scale + disp]`. The index must not be `rsp`.
    pub(crate) const fn indexed(base: Gpr, index: Gpr, scale: Scale, disp: i32) -> Self {
        Self { base, index: Some((index, scale)), disp }
    }
}

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
mod tests;
