//! Instructions to slots: the decoder's tables read backwards.
//!
//! [`Insn`] rules out most of what cannot be encoded, but not all: an offset may be too long for its form,
//! or a size may be one that an instruction does not have. Those are errors here, never a silent
//! truncation.

use thiserror::Error;

use crate::codes;
use crate::insn::{AluOp, ByteOrder, CallTarget, Imm64, Insn, Operand, PacketBase, Reg, Size, Width};
use crate::slot::Slot;

/// Why an instruction has no encoding. `index` is its place in the program, which is its slot number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum EncodeError {
    /// A plain `goto` further than 16 bits reach.
    #[error("instruction {index}: a goto over {offset} slots does not fit 16 bits; use the long form, gotol")]
    JumpTooFar {
        /// Where.
        index: usize,
        /// Slots from the next instruction.
        offset: i32,
    },
    /// An instruction that does not exist in this size.
    #[error("instruction {index}: {what} of {} bytes does not exist", size.bytes())]
    SizeNotAvailable {
        /// Where.
        index: usize,
        /// Kind of instruction.
        what: &'static str,
        /// The size asked for.
        size: Size,
    },
    /// A [`LoadImm64`](Insn::LoadImm64) without its [`LoadImm64Tail`](Insn::LoadImm64Tail).
    #[error("instruction {index}: a 64-bit immediate load is not followed by its second slot")]
    MissingTail {
        /// Where the load is.
        index: usize,
    },
    /// A [`LoadImm64Tail`](Insn::LoadImm64Tail) that follows something else.
    #[error("instruction {index}: the second slot of a 64-bit immediate load without the first")]
    StrayTail {
        /// Where the tail is.
        index: usize,
    },
}

/// Encodes a program; the result has one slot for each instruction, as [`decode`](crate::decode) takes them.
///
/// # Errors
///
/// The first instruction that has no encoding.
pub fn encode(insns: &[Insn]) -> Result<Vec<Slot>, EncodeError> {
    let mut slots = Vec::with_capacity(insns.len());
    encode_each(insns, |slot| slots.push(slot))?;
    Ok(slots)
}

/// Encodes a program to little-endian bytes.
///
/// # Errors
///
/// As [`encode`].
pub fn encode_bytes(insns: &[Insn]) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::with_capacity(insns.len() * Slot::BYTES);
    encode_each(insns, |slot| bytes.extend(slot.to_bytes()))?;
    Ok(bytes)
}

/// Encodes a program slot by slot.
#[inline(always)]
pub(crate) fn encode_each(insns: &[Insn], mut take: impl FnMut(Slot)) -> Result<(), EncodeError> {
    let mut tail = None;
    for (index, insn) in insns.iter().enumerate() {
        take(match *insn {
            // Almost all are these, and they cannot fail.
            Insn::Alu { width, op, dst, src } if tail.is_none() => alu(width, op, dst, src),
            _ => other(insn, index, &mut tail)?,
        });
    }
    match tail {
        Some(_) => Err(EncodeError::MissingTail { index: insns.len() - 1 }),
        None => Ok(()),
    }
}

/// Any instruction. `tail` is the immediate of the second slot that must come next.
fn other(insn: &Insn, index: usize, tail: &mut Option<i32>) -> Result<Slot, EncodeError> {
    match (tail.take(), insn) {
        (Some(imm), Insn::LoadImm64Tail) => Ok(Slot { imm, ..Slot::default() }),
        (Some(_), _) => Err(EncodeError::MissingTail { index: index - 1 }),
        (None, Insn::LoadImm64Tail) => Err(EncodeError::StrayTail { index }),
        (None, &Insn::LoadImm64 { dst, value }) => {
            let (slot, imm) = load_imm64(dst, value);
            *tail = Some(imm);
            Ok(slot)
        }
        (None, insn) => single(insn, index),
    }
}

/// Every instruction but the 64-bit immediate load.
fn single(insn: &Insn, index: usize) -> Result<Slot, EncodeError> {
    let unavailable = |what, size| Err(EncodeError::SizeNotAvailable { index, what, size });
    Ok(match *insn {
        Insn::Alu { width, op, dst, src } => alu(width, op, dst, src),
        Insn::Neg { width, dst } => {
            Slot { opcode: codes::NEG | codes::alu_class(width), dst: dst.number(), ..Slot::default() }
        }
        Insn::MovSx { width, from, dst, src } => {
            let Some(offset) = codes::movsx_offset(from, width) else {
                return unavailable("a sign-extending move to this width", from);
            };
            let (code, _) = AluOp::Mov.code();
            let opcode = code | codes::alu_class(width);
            with_operand(Slot { opcode, dst: dst.number(), offset, ..Slot::default() }, Operand::Reg(src))
        }
        Insn::AddrSpaceCast { dst, src, to, from } => {
            let (code, _) = AluOp::Mov.code();
            Slot {
                opcode: code | codes::ALU64 | codes::X,
                dst: dst.number(),
                src: src.number(),
                offset: codes::ADDR_SPACE_CAST,
                imm: (u32::from(to) << 16 | u32::from(from)).cast_signed(),
            }
        }
        Insn::Endian { order, size, dst } => {
            if size == Size::B1 {
                return unavailable("a byte-order conversion", size);
            }
            let class_and_source = match order {
                ByteOrder::ToLittle => codes::ALU,
                ByteOrder::ToBig => codes::ALU | codes::X,
                ByteOrder::Swap => codes::ALU64,
            };
            let imm = size.bits().cast_signed();
            Slot { opcode: codes::END | class_and_source, dst: dst.number(), imm, ..Slot::default() }
        }
        // `other` sees to these two; alone they have no encoding.
        Insn::LoadImm64 { .. } => return Err(EncodeError::MissingTail { index }),
        Insn::LoadImm64Tail => return Err(EncodeError::StrayTail { index }),
        Insn::Load { size, signed, dst, base, offset } => {
            if signed && size == Size::B8 {
                return unavailable("a sign-extending load", size);
            }
            let mode = if signed { codes::MEMSX } else { codes::MEM };
            memory(codes::LDX | mode, size, dst, base, offset, 0)
        }
        Insn::Store { size, base, offset, src } => {
            let (class, src, imm) = match src {
                Operand::Reg(src) => (codes::STX, src, 0),
                Operand::Imm(imm) => (codes::ST, Reg::R0, imm),
            };
            memory(class | codes::MEM, size, base, src, offset, imm)
        }
        Insn::Atomic { op, size, base, offset, src } => {
            if matches!(size, Size::B1 | Size::B2) {
                return unavailable("an atomic read-modify-write", size);
            }
            memory(codes::STX | codes::ATOMIC, size, base, src, offset, op.code())
        }
        Insn::LoadAcquire { size, dst, base, offset } => {
            memory(codes::STX | codes::ATOMIC, size, dst, base, offset, codes::LOAD_ACQUIRE)
        }
        Insn::StoreRelease { size, base, offset, src } => {
            memory(codes::STX | codes::ATOMIC, size, base, src, offset, codes::STORE_RELEASE)
        }
        Insn::LoadPacket { size, base, imm } => {
            if size == Size::B8 {
                return unavailable("a legacy packet load", size);
            }
            let (mode, src) = match base {
                PacketBase::Absolute => (codes::ABS, Reg::R0),
                PacketBase::Indirect(reg) => (codes::IND, reg),
            };
            memory(codes::LD | mode, size, Reg::R0, src, 0, imm)
        }
        Insn::Jump { offset, long: true } => {
            Slot { opcode: codes::JMP32 | codes::JA, imm: offset, ..Slot::default() }
        }
        Insn::Jump { offset, long: false } => {
            let Ok(offset) = i16::try_from(offset) else {
                return Err(EncodeError::JumpTooFar { index, offset });
            };
            Slot { opcode: codes::JMP | codes::JA, offset, ..Slot::default() }
        }
        Insn::JumpIf { width, cond, dst, src, offset } => {
            let opcode = cond.code() | codes::jump_class(width);
            with_operand(Slot { opcode, dst: dst.number(), offset, ..Slot::default() }, src)
        }
        Insn::MayGoto { offset } => Slot { opcode: codes::JMP | codes::JCOND, offset, ..Slot::default() },
        Insn::Call { target } => {
            let (src, offset, imm) = match target {
                CallTarget::Helper(number) => (0, 0, number.cast_signed()),
                CallTarget::Local(distance) => (1, 0, distance),
                CallTarget::Kfunc { id, object } => (2, object, id),
            };
            Slot { opcode: codes::JMP | codes::CALL, src, offset, imm, ..Slot::default() }
        }
        Insn::CallReg { reg } => {
            let opcode = codes::JMP | codes::CALL | codes::X;
            Slot { opcode, dst: reg.number(), ..Slot::default() }
        }
        Insn::Exit => Slot { opcode: codes::JMP | codes::EXIT, ..Slot::default() },
    })
}

#[inline(always)]
fn alu(width: Width, op: AluOp, dst: Reg, src: Operand) -> Slot {
    let (code, offset) = op.code();
    let opcode = code | codes::alu_class(width);
    with_operand(Slot { opcode, dst: dst.number(), offset, ..Slot::default() }, src)
}

/// First slot, and immediate of the second.
fn load_imm64(dst: Reg, value: Imm64) -> (Slot, i32) {
    let (src, imm, tail) = match value {
        Imm64::Value(value) => (0, (value as u32).cast_signed(), ((value >> 32) as u32).cast_signed()),
        Imm64::MapFd(fd) => (1, fd, 0),
        Imm64::MapFdValue { fd, offset } => (2, fd, offset.cast_signed()),
        Imm64::Variable { id, object } => (3, id, object),
        Imm64::Function(distance) => (4, distance, 0),
        Imm64::Map(map) => (5, map.cast_signed(), 0),
        Imm64::MapValue { map, offset } => (6, map.cast_signed(), offset.cast_signed()),
    };
    (Slot { opcode: codes::LD | codes::IMM | codes::DW, dst: dst.number(), src, offset: 0, imm }, tail)
}

fn memory(opcode: u8, size: Size, dst: Reg, src: Reg, offset: i16, imm: i32) -> Slot {
    let opcode = opcode | codes::size_bits(size);
    Slot { opcode, dst: dst.number(), src: src.number(), offset, imm }
}

#[inline(always)]
fn with_operand(slot: Slot, operand: Operand) -> Slot {
    match operand {
        Operand::Reg(reg) => Slot { opcode: slot.opcode | codes::X, src: reg.number(), ..slot },
        Operand::Imm(imm) => Slot { imm, ..slot },
    }
}
