//! Loads and stores.

use skep_isa::{Size, Width};

use super::{Bytes, Gpr, Mem, Opcode, rm};

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
