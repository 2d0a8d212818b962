//! Conditions, jumps, calls, the stack, traps and padding.

use skep_isa::Width;

use super::{Bytes, Gpr, Opcode, opcode_reg, rr};

/// Conditions, by their number in opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cc {
    Below = 2,
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowOrEqual = 6,
    Above = 7,
    Negative = 8,
    NotNegative = 9,
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
            Self::Negative => Self::NotNegative,
            Self::NotNegative => Self::Negative,
            Self::Above => Self::BelowOrEqual,
            Self::Less => Self::GreaterOrEqual,
            Self::GreaterOrEqual => Self::Less,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
        }
    }
}

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

/// `lfence`: nothing behind it begins before everything in front of it is done.
pub(crate) const fn lfence() -> Bytes {
    Bytes::new().byte(0x0f).byte(0xae).byte(0xe8)
}

/// `pause`
pub(crate) const fn pause() -> Bytes {
    Bytes::new().byte(0xf3).byte(0x90)
}

/// `call rel32` over that many bytes.
pub(crate) const fn call_near(disp: i32) -> Bytes {
    Bytes::new().byte(0xe8).dword(disp)
}

/// `call reg`
pub(crate) const fn call_r(reg: Gpr) -> Bytes {
    rr(Opcode::one(0xff), 2, reg)
}

/// `jmp reg`
pub(crate) const fn jmp_r(reg: Gpr) -> Bytes {
    rr(Opcode::one(0xff), 4, reg)
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
