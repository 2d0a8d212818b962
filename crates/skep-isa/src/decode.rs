//! Slots to instructions.
//!
//! The decoder's promise: what it accepts, [`encode`](crate::encode) turns back into the very same bytes, so
//! nothing in a slot is ever ignored. A field that an instruction does not use must be zero (RFC 9669
//! section 3), and a bit pattern without a meaning is an error that names the field. Whether a jump's
//! target exists is the verifier's question, not this module's.

use thiserror::Error;

use crate::codes;
use crate::insn::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, PacketBase, Reg, Size, Width,
};
use crate::slot::Slot;

/// A part of an instruction slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The opcode byte.
    Opcode,
    /// The destination register, bits 0 to 4 of the second byte.
    Dst,
    /// The source register, bits 4 to 8 of the second byte.
    Src,
    /// The signed 16-bit offset.
    Offset,
    /// The signed 32-bit immediate.
    Imm,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Opcode => "opcode",
            Self::Dst => "destination register",
            Self::Src => "source register",
            Self::Offset => "offset",
            Self::Imm => "immediate",
        })
    }
}

/// Why bytes are not a BPF program. `slot` counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum DecodeError {
    /// The bytes do not divide into slots.
    #[error("the program has {bytes} bytes, which is not a multiple of 8: its last instruction is cut off")]
    PartialSlot {
        /// How many there are.
        bytes: usize,
    },
    /// No instruction has this opcode byte.
    #[error("slot {slot}: no instruction has the opcode {opcode:#04x}")]
    UnknownOpcode {
        /// Where.
        slot: usize,
        /// The byte.
        opcode: u8,
    },
    /// A register that does not exist.
    #[error("slot {slot}: the {field} field of opcode {opcode:#04x} is {number}, but registers end at r10")]
    UnknownRegister {
        /// Where.
        slot: usize,
        /// The opcode byte.
        opcode: u8,
        /// [`Field::Dst`] or [`Field::Src`].
        field: Field,
        /// The number found, 11 to 15.
        number: u8,
    },
    /// A field that the instruction does not use is not zero.
    #[error(
        "slot {slot}: the {field} field of opcode {opcode:#04x} is {value}, but it is reserved and must be 0"
    )]
    ReservedField {
        /// Where.
        slot: usize,
        /// The opcode byte.
        opcode: u8,
        /// Which field.
        field: Field,
        /// What it holds.
        value: i32,
    },
    /// A field that selects one of several instructions selects none.
    #[error(
        "slot {slot}: the {field} field of opcode {opcode:#04x} is {value:#x}, but it must be {expected}"
    )]
    UnknownVariant {
        /// Where.
        slot: usize,
        /// The opcode byte.
        opcode: u8,
        /// Which field.
        field: Field,
        /// What it holds.
        value: i32,
        /// The values that mean something.
        expected: &'static str,
    },
    /// A 64-bit immediate load in the last slot.
    #[error("slot {slot}: a 64-bit immediate load takes two slots, and the program ends after the first")]
    MissingTail {
        /// Where the load starts.
        slot: usize,
    },
    /// A field of a 64-bit immediate load's second slot that must be zero is not.
    #[error(
        "slot {slot}: the {field} field of a 64-bit immediate load's second slot is {value}, but it must be 0"
    )]
    MalformedTail {
        /// The second slot.
        slot: usize,
        /// Which field.
        field: Field,
        /// What it holds.
        value: i32,
    },
}

/// Decodes little-endian bytes, as BPF objects for little-endian machines hold them.
///
/// # Errors
///
/// As [`decode`], and [`DecodeError::PartialSlot`] where the length is not a multiple of 8.
pub fn decode_bytes(bytes: &[u8]) -> Result<Vec<Insn>, DecodeError> {
    let slots = slots_of(bytes)?;
    decode_each(slots.len(), |at| Slot::from_bytes(slots[at]))
}

/// Takes bytes apart into slots without looking at them.
///
/// # Errors
///
/// [`DecodeError::PartialSlot`] where the length is not a multiple of 8.
pub fn slots_from_bytes(bytes: &[u8]) -> Result<Vec<Slot>, DecodeError> {
    Ok(slots_of(bytes)?.iter().map(|&bytes| Slot::from_bytes(bytes)).collect())
}

/// Decodes a program. The result has one instruction for each slot, so that an index in it is a slot number.
///
/// # Errors
///
/// The first slot that is not an instruction of RFC 9669 or of Linux's additions to it.
pub fn decode(slots: &[Slot]) -> Result<Vec<Insn>, DecodeError> {
    decode_each(slots.len(), |at| slots[at])
}

fn slots_of(bytes: &[u8]) -> Result<&[[u8; Slot::BYTES]], DecodeError> {
    let (slots, rest) = bytes.as_chunks();
    if rest.is_empty() { Ok(slots) } else { Err(DecodeError::PartialSlot { bytes: bytes.len() }) }
}

/// Decodes this number of slots.
fn decode_each(count: usize, slot: impl Fn(usize) -> Slot) -> Result<Vec<Insn>, DecodeError> {
    // Only the second slots of 64-bit immediate loads keep this value.
    let mut insns = vec![Insn::LoadImm64Tail; count];
    let mut index = 0;
    while index < count {
        let fields = Fields { slot: slot(index), index };
        if fields.slot.opcode == codes::LD | codes::IMM | codes::DW {
            let tail = (index + 1 < count).then(|| slot(index + 1));
            insns[index] = fields.load_imm64(tail)?;
            index += 2;
        } else {
            fields.insn(&mut insns[index])?;
            index += 1;
        }
    }
    Ok(insns)
}

/// One slot under examination, with its number for errors.
#[derive(Clone, Copy)]
struct Fields {
    slot: Slot,
    index: usize,
}

/// An instruction, or why not.
type Decoded = Result<Insn, DecodeError>;

impl Fields {
    /// Decodes into the place where the instruction is going to stay: one that is returned through several hands is
    /// written in parts and read as a whole each time, for which the processor has to wait.
    #[inline(always)]
    fn insn(self, into: &mut Insn) -> Result<(), DecodeError> {
        *into = match self.slot.opcode & codes::CLASS_MASK {
            codes::ALU => return self.alu(Width::W32, into),
            codes::ALU64 => return self.alu(Width::W64, into),
            codes::LD => self.load_packet()?,
            codes::LDX => self.load()?,
            codes::ST => self.store_imm()?,
            codes::STX => self.store_reg()?,
            codes::JMP => self.jump(Width::W64)?,
            _ => self.jump(Width::W32)?,
        };
        Ok(())
    }

    #[inline(always)]
    fn alu(self, width: Width, into: &mut Insn) -> Result<(), DecodeError> {
        let code = self.slot.opcode & codes::CODE_MASK;
        let from_reg = self.slot.opcode & codes::X != 0;
        let extends = code == AluOp::Mov.code().0 && from_reg && self.slot.offset != 0;
        match AluOp::of_code(code, self.slot.offset) {
            Some(op) if !extends => {
                if from_reg {
                    self.zero([Field::Imm])?;
                    let src = Operand::Reg(self.src()?);
                    *into = Insn::Alu { width, op, dst: self.dst()?, src };
                } else {
                    self.zero([Field::Src])?;
                    *into = Insn::Alu { width, op, dst: self.dst()?, src: Operand::Imm(self.slot.imm) };
                }
            }
            _ => *into = self.special_alu(width)?,
        }
        Ok(())
    }

    /// Arithmetic with a form of its own.
    fn special_alu(self, width: Width) -> Decoded {
        let code = self.slot.opcode & codes::CODE_MASK;
        let from_reg = self.slot.opcode & codes::X != 0;
        match code {
            codes::NEG if !from_reg => {
                self.zero([Field::Src, Field::Offset, Field::Imm])?;
                return Ok(Insn::Neg { width, dst: self.dst()? });
            }
            codes::END => return self.endian(width, from_reg),
            _ if code == AluOp::Mov.code().0 && from_reg => return self.movsx(width),
            _ => {}
        }
        Err(match AluOp::ALL.into_iter().filter(|op| op.code().0 == code).count() {
            0 => self.unknown_opcode(),
            1 => self.reserved(Field::Offset),
            _ => self.unknown_variant(Field::Offset, "0 (unsigned) or 1 (signed)"),
        })
    }

    fn movsx(self, width: Width) -> Decoded {
        if width == Width::W64 && self.slot.offset == codes::ADDR_SPACE_CAST {
            let spaces = self.slot.imm.cast_unsigned();
            let (to, from) = ((spaces >> 16) as u16, spaces as u16);
            return Ok(Insn::AddrSpaceCast { dst: self.dst()?, src: self.src()?, to, from });
        }
        self.zero([Field::Imm])?;
        let Some(from) = codes::movsx_from(self.slot.offset, width) else {
            let expected = match width {
                Width::W32 => "0, 8 or 16",
                Width::W64 => "0, 1 (addr_space_cast), 8, 16 or 32",
            };
            return Err(self.unknown_variant(Field::Offset, expected));
        };
        Ok(Insn::MovSx { width, from, dst: self.dst()?, src: self.src()? })
    }

    fn endian(self, width: Width, to_big: bool) -> Decoded {
        let order = match (width, to_big) {
            (Width::W32, false) => ByteOrder::ToLittle,
            (Width::W32, true) => ByteOrder::ToBig,
            (Width::W64, false) => ByteOrder::Swap,
            (Width::W64, true) => return Err(self.unknown_opcode()),
        };
        self.zero([Field::Src, Field::Offset])?;
        let size = match self.slot.imm {
            16 => Size::B2,
            32 => Size::B4,
            64 => Size::B8,
            _ => return Err(self.unknown_variant(Field::Imm, "16, 32 or 64")),
        };
        Ok(Insn::Endian { order, size, dst: self.dst()? })
    }

    fn jump(self, width: Width) -> Decoded {
        let code = self.slot.opcode & codes::CODE_MASK;
        let from_reg = self.slot.opcode & codes::X != 0;
        match (code, width, from_reg) {
            (codes::JA, Width::W64, false) => {
                self.zero([Field::Dst, Field::Src, Field::Imm])?;
                Ok(Insn::Jump { offset: self.slot.offset.into(), long: false })
            }
            (codes::JA, Width::W32, false) => {
                self.zero([Field::Dst, Field::Src, Field::Offset])?;
                Ok(Insn::Jump { offset: self.slot.imm, long: true })
            }
            (codes::CALL, Width::W64, false) => self.call(),
            (codes::CALL, Width::W64, true) => {
                self.zero([Field::Src, Field::Offset, Field::Imm])?;
                Ok(Insn::CallReg { reg: self.dst()? })
            }
            (codes::EXIT, Width::W64, false) => {
                self.zero([Field::Dst, Field::Src, Field::Offset, Field::Imm])?;
                Ok(Insn::Exit)
            }
            (codes::JCOND, Width::W64, false) => {
                self.zero([Field::Dst, Field::Src, Field::Imm])?;
                Ok(Insn::MayGoto { offset: self.slot.offset })
            }
            _ => {
                let Some(cond) = Cond::of_code(code) else { return Err(self.unknown_opcode()) };
                let src = self.second_operand(from_reg)?;
                Ok(Insn::JumpIf { width, cond, dst: self.dst()?, src, offset: self.slot.offset })
            }
        }
    }

    fn call(self) -> Decoded {
        let target = match self.slot.src {
            0 => {
                self.zero([Field::Dst, Field::Offset])?;
                CallTarget::Helper(self.slot.imm.cast_unsigned())
            }
            1 => {
                self.zero([Field::Dst, Field::Offset])?;
                CallTarget::Local(self.slot.imm)
            }
            2 => {
                self.zero([Field::Dst])?;
                CallTarget::Kfunc { id: self.slot.imm, object: self.slot.offset }
            }
            _ => return Err(self.unknown_variant(Field::Src, "0, 1 or 2")),
        };
        Ok(Insn::Call { target })
    }

    fn load_packet(self) -> Decoded {
        let size = codes::size_of(self.slot.opcode);
        let base = match self.slot.opcode & codes::MODE_MASK {
            codes::ABS if size != Size::B8 => {
                self.zero([Field::Dst, Field::Src, Field::Offset])?;
                PacketBase::Absolute
            }
            codes::IND if size != Size::B8 => {
                self.zero([Field::Dst, Field::Offset])?;
                PacketBase::Indirect(self.src()?)
            }
            _ => return Err(self.unknown_opcode()),
        };
        Ok(Insn::LoadPacket { size, base, imm: self.slot.imm })
    }

    fn load(self) -> Decoded {
        let size = codes::size_of(self.slot.opcode);
        let signed = match self.slot.opcode & codes::MODE_MASK {
            codes::MEM => false,
            codes::MEMSX if size != Size::B8 => true,
            _ => return Err(self.unknown_opcode()),
        };
        self.zero([Field::Imm])?;
        Ok(Insn::Load { size, signed, dst: self.dst()?, base: self.src()?, offset: self.slot.offset })
    }

    fn store_imm(self) -> Decoded {
        if self.slot.opcode & codes::MODE_MASK != codes::MEM {
            return Err(self.unknown_opcode());
        }
        self.zero([Field::Src])?;
        Ok(self.store(Operand::Imm(self.slot.imm), self.dst()?))
    }

    fn store_reg(self) -> Decoded {
        match self.slot.opcode & codes::MODE_MASK {
            codes::MEM => {
                self.zero([Field::Imm])?;
                Ok(self.store(Operand::Reg(self.src()?), self.dst()?))
            }
            codes::ATOMIC => self.atomic(),
            _ => Err(self.unknown_opcode()),
        }
    }

    fn store(self, src: Operand, base: Reg) -> Insn {
        Insn::Store { size: codes::size_of(self.slot.opcode), base, offset: self.slot.offset, src }
    }

    fn atomic(self) -> Decoded {
        let Slot { imm, offset, .. } = self.slot;
        let size = codes::size_of(self.slot.opcode);
        match (imm, size) {
            (codes::LOAD_ACQUIRE, _) => {
                Ok(Insn::LoadAcquire { size, dst: self.dst()?, base: self.src()?, offset })
            }
            (codes::STORE_RELEASE, _) => {
                Ok(Insn::StoreRelease { size, base: self.dst()?, offset, src: self.src()? })
            }
            (_, Size::B1 | Size::B2) => Err(self.unknown_variant(
                Field::Imm,
                "0x100 (load-acquire) or 0x110 (store-release): other atomics have 4 or 8 bytes",
            )),
            _ => match AtomicOp::ALL.into_iter().find(|op| op.code() == imm) {
                Some(op) => Ok(Insn::Atomic { op, size, base: self.dst()?, offset, src: self.src()? }),
                None => Err(self.unknown_variant(Field::Imm, "an atomic operation of RFC 9669 section 5.3")),
            },
        }
    }

    fn load_imm64(self, tail: Option<Slot>) -> Decoded {
        let Some(tail) = tail else { return Err(DecodeError::MissingTail { slot: self.index }) };
        self.zero([Field::Offset])?;
        let second = Fields { slot: tail, index: self.index + 1 };
        second.zero_in_tail([Field::Opcode, Field::Dst, Field::Src, Field::Offset])?;
        let imm = self.slot.imm;
        let value = match self.slot.src {
            0 => {
                let (low, high) = (imm.cast_unsigned(), tail.imm.cast_unsigned());
                Imm64::Value(u64::from(high) << 32 | u64::from(low))
            }
            1 => Imm64::MapFd(imm),
            2 => Imm64::MapFdValue { fd: imm, offset: tail.imm.cast_unsigned() },
            3 => Imm64::Variable { id: imm, object: tail.imm },
            4 => Imm64::Function(imm),
            5 => Imm64::Map(imm.cast_unsigned()),
            6 => Imm64::MapValue { map: imm.cast_unsigned(), offset: tail.imm.cast_unsigned() },
            _ => return Err(self.unknown_variant(Field::Src, "0 to 6")),
        };
        if matches!(value, Imm64::MapFd(_) | Imm64::Function(_) | Imm64::Map(_)) {
            second.zero_in_tail([Field::Imm])?;
        }
        Ok(Insn::LoadImm64 { dst: self.dst()?, value })
    }

    fn second_operand(self, from_reg: bool) -> Result<Operand, DecodeError> {
        if from_reg {
            self.zero([Field::Imm])?;
            Ok(Operand::Reg(self.src()?))
        } else {
            self.zero([Field::Src])?;
            Ok(Operand::Imm(self.slot.imm))
        }
    }

    #[inline(always)]
    fn dst(self) -> Result<Reg, DecodeError> {
        self.reg(Field::Dst, self.slot.dst)
    }

    #[inline(always)]
    fn src(self) -> Result<Reg, DecodeError> {
        self.reg(Field::Src, self.slot.src)
    }

    #[inline(always)]
    fn reg(self, field: Field, number: u8) -> Result<Reg, DecodeError> {
        let Self { slot: Slot { opcode, .. }, index: slot } = self;
        Reg::new(number).ok_or(DecodeError::UnknownRegister { slot, opcode, field, number })
    }

    #[inline(always)]
    fn zero<const N: usize>(self, fields: [Field; N]) -> Result<(), DecodeError> {
        match fields.into_iter().find(|&field| self.value(field) != 0) {
            Some(field) => Err(self.reserved(field)),
            None => Ok(()),
        }
    }

    fn zero_in_tail<const N: usize>(self, fields: [Field; N]) -> Result<(), DecodeError> {
        match fields.into_iter().find(|&field| self.value(field) != 0) {
            Some(field) => {
                Err(DecodeError::MalformedTail { slot: self.index, field, value: self.value(field) })
            }
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn value(self, field: Field) -> i32 {
        match field {
            Field::Opcode => self.slot.opcode.into(),
            Field::Dst => self.slot.dst.into(),
            Field::Src => self.slot.src.into(),
            Field::Offset => self.slot.offset.into(),
            Field::Imm => self.slot.imm,
        }
    }

    #[cold]
    fn unknown_opcode(self) -> DecodeError {
        DecodeError::UnknownOpcode { slot: self.index, opcode: self.slot.opcode }
    }

    #[cold]
    fn reserved(self, field: Field) -> DecodeError {
        DecodeError::ReservedField {
            slot: self.index,
            opcode: self.slot.opcode,
            field,
            value: self.value(field),
        }
    }

    #[cold]
    fn unknown_variant(self, field: Field, expected: &'static str) -> DecodeError {
        DecodeError::UnknownVariant {
            slot: self.index,
            opcode: self.slot.opcode,
            field,
            value: self.value(field),
            expected,
        }
    }
}
