//! Instructions as an independent disassembler reads them.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, MemorySize, Mnemonic, OpKind, Register};
use skep_isa::{Size, Width};

use super::*;

/// The register's name at that operand size.
pub(super) fn named(size: Size, reg: Gpr) -> Register {
    use Register::*;
    const NAMES: [[Register; 4]; 16] = [
        [AL, AX, EAX, RAX],
        [CL, CX, ECX, RCX],
        [DL, DX, EDX, RDX],
        [BL, BX, EBX, RBX],
        [SPL, SP, ESP, RSP],
        [BPL, BP, EBP, RBP],
        [SIL, SI, ESI, RSI],
        [DIL, DI, EDI, RDI],
        [R8L, R8W, R8D, R8],
        [R9L, R9W, R9D, R9],
        [R10L, R10W, R10D, R10],
        [R11L, R11W, R11D, R11],
        [R12L, R12W, R12D, R12],
        [R13L, R13W, R13D, R13],
        [R14L, R14W, R14D, R14],
        [R15L, R15W, R15D, R15],
    ];
    NAMES[reg.number() as usize][size.bytes().trailing_zeros() as usize]
}

pub(super) fn full(width: Width) -> Size {
    match width {
        Width::W32 => Size::B4,
        Width::W64 => Size::B8,
    }
}

/// An operand, intended or decoded.
#[derive(Debug, PartialEq)]
pub(super) enum Op {
    Reg(Register),
    /// Sign-extended to 64 bits.
    Imm(i64),
    Mem(Register, Option<(Register, u32)>, i64, u32),
}

pub(super) fn r(size: Size, reg: Gpr) -> Op {
    Op::Reg(named(size, reg))
}

pub(super) fn m(size: Size, mem: Mem) -> Op {
    let index = mem.index.map(|(index, scale)| (named(Size::B8, index), 1 << scale as u32));
    Op::Mem(named(Size::B8, mem.base), index, mem.disp.into(), size.bytes())
}

/// The single instruction that these bytes encode.
pub(super) fn decode(bytes: Bytes) -> Instruction {
    let all = bytes.padded();
    let code = &all[..bytes.len()];
    assert!(all[bytes.len()..].iter().all(|byte| *byte == 0), "{all:x?}");
    let mut decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
    let insn = decoder.decode();
    assert_ne!(insn.code(), Code::INVALID, "{code:x?}");
    assert_eq!(insn.len(), code.len(), "{code:x?} is {insn}");
    llvm::record(&insn, code);
    insn
}

pub(super) fn operands(insn: &Instruction) -> Vec<Op> {
    (0..insn.op_count())
        .map(|i| match insn.op_kind(i) {
            OpKind::Register => Op::Reg(insn.op_register(i)),
            OpKind::Memory => {
                let index = match insn.memory_index() {
                    Register::None => None,
                    index => Some((index, insn.memory_index_scale())),
                };
                let size = match insn.memory_size() {
                    MemorySize::Unknown => 0,
                    size => size.size() as u32,
                };
                Op::Mem(insn.memory_base(), index, insn.memory_displacement64() as i64, size)
            }
            kind => {
                let value = insn.immediate(i) as i64;
                // Immediates of 32-bit instructions are not extended by the decoder.
                Op::Imm(if kind == OpKind::Immediate32 { i64::from(value as i32) } else { value })
            }
        })
        .collect()
}

#[track_caller]
pub(super) fn expect(bytes: Bytes, mnemonic: Mnemonic, expected: &[Op]) {
    let insn = decode(bytes);
    assert_eq!((insn.mnemonic(), &operands(&insn)[..]), (mnemonic, expected), "{insn}");
}

/// As [`expect`], for instructions that must have a lock prefix.
#[track_caller]
pub(super) fn expect_locked(bytes: Bytes, mnemonic: Mnemonic, expected: &[Op]) {
    expect(bytes, mnemonic, expected);
    assert!(decode(bytes).has_lock_prefix());
}
