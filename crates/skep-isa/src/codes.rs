//! The numbers of RFC 9669, each written once: the encoder asks an operation for its code, the decoder finds
//! the operation that has the code it sees in a table made from the same answers.
//!
//! An opcode byte is made of three parts whose meaning depends on the lowest one, the class:
//!
//! ```text
//!   arithmetic and jumps           loads and stores
//!  +--------+---+-------+         +------+----+-------+
//!  | code   | s | class |         | mode | sz | class |
//!  | 4..8   | 3 | 0..3  |         | 5..8 | 3,4| 0..3  |
//!  +--------+---+-------+         +------+----+-------+
//! ```
//!
//! `s` says where the second operand is: clear for the immediate, set for the source register.
//! An operation that is missing from its `ALL` would not exist for the decoder; the sweep over all opcodes in
//! `tests/` would notice.

use crate::insn::{AluOp, AtomicOp, Cond, Size, Width};

// Classes (section 3, table 3).
pub(crate) const LD: u8 = 0x00;
pub(crate) const LDX: u8 = 0x01;
pub(crate) const ST: u8 = 0x02;
pub(crate) const STX: u8 = 0x03;
pub(crate) const ALU: u8 = 0x04;
pub(crate) const JMP: u8 = 0x05;
pub(crate) const JMP32: u8 = 0x06;
pub(crate) const ALU64: u8 = 0x07;
pub(crate) const CLASS_MASK: u8 = 0x07;

// Place of the second operand (section 4, table 4).
pub(crate) const X: u8 = 0x08;
pub(crate) const CODE_MASK: u8 = 0xf0;

// Arithmetic with a form of its own (section 4.1 and 4.2).
pub(crate) const NEG: u8 = 0x80;
pub(crate) const END: u8 = 0xd0;

// Jumps with a form of their own (section 4.3); `may_goto` is Linux's.
pub(crate) const JA: u8 = 0x00;
pub(crate) const CALL: u8 = 0x80;
pub(crate) const EXIT: u8 = 0x90;
pub(crate) const JCOND: u8 = 0xe0;

// Modes of loads and stores (section 5, table 10).
pub(crate) const IMM: u8 = 0x00;
pub(crate) const ABS: u8 = 0x20;
pub(crate) const IND: u8 = 0x40;
pub(crate) const MEM: u8 = 0x60;
pub(crate) const MEMSX: u8 = 0x80;
pub(crate) const ATOMIC: u8 = 0xc0;
pub(crate) const MODE_MASK: u8 = 0xe0;
pub(crate) const SIZE_MASK: u8 = 0x18;
/// The size bits of an eight-byte access, which the 64-bit immediate load carries too.
pub(crate) const DW: u8 = 0x18;

// Immediates of the atomic class that are no read-modify-write operations (Linux, after the RFC).
pub(crate) const LOAD_ACQUIRE: i32 = 0x100;
pub(crate) const STORE_RELEASE: i32 = 0x110;

impl AluOp {
    /// Every operation.
    pub const ALL: [Self; 14] = [
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::Div,
        Self::Sdiv,
        Self::Or,
        Self::And,
        Self::Lsh,
        Self::Rsh,
        Self::Arsh,
        Self::Mod,
        Self::Smod,
        Self::Xor,
        Self::Mov,
    ];

    /// Code and offset field (section 4.1). Division and remainder are signed where the offset is 1.
    pub(crate) const fn code(self) -> (u8, i16) {
        match self {
            Self::Add => (0x00, 0),
            Self::Sub => (0x10, 0),
            Self::Mul => (0x20, 0),
            Self::Div => (0x30, 0),
            Self::Sdiv => (0x30, 1),
            Self::Or => (0x40, 0),
            Self::And => (0x50, 0),
            Self::Lsh => (0x60, 0),
            Self::Rsh => (0x70, 0),
            Self::Mod => (0x90, 0),
            Self::Smod => (0x90, 1),
            Self::Xor => (0xa0, 0),
            Self::Mov => (0xb0, 0),
            Self::Arsh => (0xc0, 0),
        }
    }

    /// The operation of that code and offset field.
    #[inline]
    pub(crate) const fn of_code(code: u8, offset: i16) -> Option<Self> {
        match offset {
            0 | 1 => ALU_OPS[offset as usize][(code >> 4) as usize],
            _ => None,
        }
    }
}

/// Operations by offset field and code.
const ALU_OPS: [[Option<AluOp>; 16]; 2] = {
    let mut table = [[None; 16]; 2];
    let mut at = 0;
    while at < AluOp::ALL.len() {
        let (code, offset) = AluOp::ALL[at].code();
        table[offset as usize][(code >> 4) as usize] = Some(AluOp::ALL[at]);
        at += 1;
    }
    table
};

impl Cond {
    /// Every condition.
    pub const ALL: [Self; 11] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Ge,
        Self::Lt,
        Self::Le,
        Self::Sgt,
        Self::Sge,
        Self::Slt,
        Self::Sle,
        Self::Set,
    ];

    /// Code (section 4.3).
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Eq => 0x10,
            Self::Gt => 0x20,
            Self::Ge => 0x30,
            Self::Set => 0x40,
            Self::Ne => 0x50,
            Self::Sgt => 0x60,
            Self::Sge => 0x70,
            Self::Lt => 0xa0,
            Self::Le => 0xb0,
            Self::Slt => 0xc0,
            Self::Sle => 0xd0,
        }
    }

    /// The condition of that code.
    #[inline]
    pub(crate) const fn of_code(code: u8) -> Option<Self> {
        CONDS[(code >> 4) as usize]
    }
}

/// Conditions by code.
const CONDS: [Option<Cond>; 16] = {
    let mut table = [None; 16];
    let mut at = 0;
    while at < Cond::ALL.len() {
        table[(Cond::ALL[at].code() >> 4) as usize] = Some(Cond::ALL[at]);
        at += 1;
    }
    table
};

impl AtomicOp {
    /// Every operation, with and without fetching.
    pub const ALL: [Self; 10] = [
        Self::Add { fetch: false },
        Self::Add { fetch: true },
        Self::Or { fetch: false },
        Self::Or { fetch: true },
        Self::And { fetch: false },
        Self::And { fetch: true },
        Self::Xor { fetch: false },
        Self::Xor { fetch: true },
        Self::Xchg,
        Self::CmpXchg,
    ];

    /// Immediate (section 5.3). 1 is the fetch flag; the exchanges are only defined with it.
    pub(crate) const fn code(self) -> i32 {
        match self {
            Self::Add { fetch } => fetch as i32,
            Self::Or { fetch } => 0x40 | fetch as i32,
            Self::And { fetch } => 0x50 | fetch as i32,
            Self::Xor { fetch } => 0xa0 | fetch as i32,
            Self::Xchg => 0xe1,
            Self::CmpXchg => 0xf1,
        }
    }
}

/// The offset field of a 64-bit register move that makes it an `addr_space_cast` (Linux, after the RFC).
pub(crate) const ADDR_SPACE_CAST: i16 = 1;

/// What the offset field of a register move makes of it: 0 leaves it plain, these extend from that size.
pub(crate) fn movsx_from(offset: i16, width: Width) -> Option<Size> {
    Size::ALL.into_iter().find(|size| movsx_offset(*size, width) == Some(offset))
}

/// The offset field of a sign-extending move; `None` where there is nothing to extend.
pub(crate) fn movsx_offset(from: Size, width: Width) -> Option<i16> {
    match from {
        Size::B1 => Some(8),
        Size::B2 => Some(16),
        Size::B4 if width == Width::W64 => Some(32),
        Size::B4 | Size::B8 => None,
    }
}

/// The size in an opcode's size bits. All four combinations mean one.
pub(crate) fn size_of(opcode: u8) -> Size {
    match opcode & SIZE_MASK {
        0x00 => Size::B4,
        0x08 => Size::B2,
        0x10 => Size::B1,
        _ => Size::B8,
    }
}

/// The size bits of a size.
pub(crate) fn size_bits(size: Size) -> u8 {
    match size {
        Size::B4 => 0x00,
        Size::B2 => 0x08,
        Size::B1 => 0x10,
        Size::B8 => 0x18,
    }
}

/// The class of arithmetic of that width.
pub(crate) fn alu_class(width: Width) -> u8 {
    match width {
        Width::W32 => ALU,
        Width::W64 => ALU64,
    }
}

/// The class of comparisons of that width.
pub(crate) fn jump_class(width: Width) -> u8 {
    match width {
        Width::W32 => JMP32,
        Width::W64 => JMP,
    }
}
