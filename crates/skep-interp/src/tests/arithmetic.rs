//! RFC 9669 sections 4.1 and 4.2: arithmetic, moves, byte order.

use super::*;
use skep_isa::AluOp::*;
use skep_isa::Width::{W32, W64};
use skep_isa::{ByteOrder, Size};

const MIN64: u64 = i64::MIN as u64;
const MIN32: u64 = 0x8000_0000;
const JUNK: u64 = 0xdead_beef_0000_0000;

/// Operation, operands, result in 64 bits.
const ALU64: &[(AluOp, u64, u64, u64)] = &[
    (Add, 2, 3, 5),
    (Add, u64::MAX, 1, 0),
    (Add, i64::MAX as u64, 1, MIN64),
    (Add, 0xffff_ffff, 1, 0x1_0000_0000),
    (Sub, 2, 3, u64::MAX),
    (Sub, MIN64, 1, i64::MAX as u64),
    (Sub, 0x1_0000_0000, 1, 0xffff_ffff),
    (Mul, 7, 6, 42),
    (Mul, 0x1_0000_0000, 0x1_0000_0000, 0),
    (Mul, u64::MAX, u64::MAX, 1),
    (Mul, 0x1234_5678_9abc_def0, 0x10, 0x2345_6789_abcd_ef00),
    (Div, 7, 2, 3),
    (Div, u64::MAX, 2, i64::MAX as u64),
    (Div, u64::MAX, u64::MAX, 1),
    (Div, 1, u64::MAX, 0),
    (Div, 7, 0, 0),
    (Div, MIN64, u64::MAX, 0),
    (Sdiv, 7, 2, 3),
    (Sdiv, -7i64 as u64, 2, -3i64 as u64),
    (Sdiv, 7, -2i64 as u64, -3i64 as u64),
    (Sdiv, -7i64 as u64, -2i64 as u64, 3),
    (Sdiv, -7i64 as u64, 0, 0),
    (Sdiv, MIN64, u64::MAX, MIN64),
    (Sdiv, MIN64, 1, MIN64),
    (Or, 0xf0f0, 0x0ff0, 0xfff0),
    (Or, 0xffff_ffff_0000_0000, 0xffff_ffff, u64::MAX),
    (And, 0xf0f0, 0x0ff0, 0x00f0),
    (And, u64::MAX, 0xffff_ffff_0000_0000, 0xffff_ffff_0000_0000),
    (Lsh, 1, 63, MIN64),
    (Lsh, 1, 64, 1),
    (Lsh, 1, 65, 2),
    (Lsh, 3, u64::MAX, MIN64),
    (Lsh, u64::MAX, 32, 0xffff_ffff_0000_0000),
    (Rsh, MIN64, 63, 1),
    (Rsh, MIN64, 64, MIN64),
    (Rsh, u64::MAX, 0x101, i64::MAX as u64),
    (Rsh, u64::MAX, 32, 0xffff_ffff),
    (Arsh, MIN64, 63, u64::MAX),
    (Arsh, MIN64, 64, MIN64),
    (Arsh, i64::MAX as u64, 62, 1),
    (Arsh, -8i64 as u64, 1, -4i64 as u64),
    (Mod, 7, 3, 1),
    (Mod, 7, 0, 7),
    (Mod, u64::MAX, 0, u64::MAX),
    (Mod, u64::MAX, 10, 5),
    (Mod, MIN64, u64::MAX, MIN64),
    (Smod, 7, 3, 1),
    (Smod, -7i64 as u64, 3, -1i64 as u64),
    (Smod, 7, -3i64 as u64, 1),
    (Smod, -7i64 as u64, -3i64 as u64, -1i64 as u64),
    (Smod, -7i64 as u64, 0, -7i64 as u64),
    (Smod, MIN64, u64::MAX, 0),
    (Xor, 0xff00_ff00_ff00_ff00, u64::MAX, 0x00ff_00ff_00ff_00ff),
    (Xor, 5, 5, 0),
    (Mov, 1, 0xfedc_ba98_7654_3210, 0xfedc_ba98_7654_3210),
];

/// Operation, operands, result in 32 bits. The upper halves of the operands are junk in the test.
const ALU32: &[(AluOp, u32, u32, u32)] = &[
    (Add, 2, 3, 5),
    (Add, u32::MAX, 1, 0),
    (Add, 0x7fff_ffff, 1, 0x8000_0000),
    (Sub, 2, 3, u32::MAX),
    (Sub, 0x8000_0000, 1, 0x7fff_ffff),
    (Mul, 7, 6, 42),
    (Mul, 0x1_0000, 0x1_0000, 0),
    (Mul, u32::MAX, u32::MAX, 1),
    (Div, 7, 2, 3),
    (Div, u32::MAX, 2, 0x7fff_ffff),
    (Div, 0x8000_0000, u32::MAX, 0),
    (Div, 7, 0, 0),
    (Sdiv, -7i32 as u32, 2, -3i32 as u32),
    (Sdiv, 7, -2i32 as u32, -3i32 as u32),
    (Sdiv, -7i32 as u32, -2i32 as u32, 3),
    (Sdiv, 7, 0, 0),
    (Sdiv, 0x8000_0000, u32::MAX, 0x8000_0000),
    (Or, 0xf0f0_0000, 0x0000_0f0f, 0xf0f0_0f0f),
    (And, 0xf0f0_f0f0, 0xffff_0000, 0xf0f0_0000),
    (Lsh, 1, 31, 0x8000_0000),
    (Lsh, 1, 32, 1),
    (Lsh, 1, 33, 2),
    (Lsh, 0xffff_ffff, 16, 0xffff_0000),
    (Rsh, 0x8000_0000, 31, 1),
    (Rsh, 0x8000_0000, 32, 0x8000_0000),
    (Rsh, 0x8000_0000, 63, 1),
    (Arsh, 0x8000_0000, 31, u32::MAX),
    (Arsh, 0x8000_0000, 32, 0x8000_0000),
    (Arsh, 0x4000_0000, 30, 1),
    (Mod, 7, 3, 1),
    (Mod, 7, 0, 7),
    (Mod, 0x8000_0000, u32::MAX, 0x8000_0000),
    (Smod, -7i32 as u32, 3, -1i32 as u32),
    (Smod, 7, -3i32 as u32, 1),
    (Smod, -7i32 as u32, 0, -7i32 as u32),
    (Smod, 0x8000_0000, u32::MAX, 0),
    (Xor, 0xff00_ff00, u32::MAX, 0x00ff_00ff),
    (Mov, 1, 0xfedc_ba98, 0xfedc_ba98),
];

#[test]
fn every_operation_is_in_both_tables() {
    for op in AluOp::ALL {
        assert!(ALU64.iter().any(|row| row.0 == op), "{op:?}");
        assert!(ALU32.iter().any(|row| row.0 == op), "{op:?}");
    }
}

#[test]
fn arithmetic_in_64_bits() {
    for &(op, a, b, expected) in ALU64 {
        let by_reg = [mov(R::R0, R::R1), alu(W64, op, R::R0, Operand::Reg(R::R2)), Insn::Exit];
        assert_eq!(result(&by_reg, a, b), expected, "{a:#x} {op:?} {b:#x}");
        // An immediate is sign-extended, for unsigned operations too.
        let Ok(imm) = i32::try_from(b as i64) else { continue };
        let by_imm = [mov(R::R0, R::R1), alu(W64, op, R::R0, Operand::Imm(imm)), Insn::Exit];
        assert_eq!(result(&by_imm, a, 0), expected, "{a:#x} {op:?} {imm}");
    }
}

#[test]
fn arithmetic_in_32_bits_ignores_upper_halves_and_clears_them() {
    for &(op, a, b, expected) in ALU32 {
        let (a64, b64) = (JUNK | u64::from(a), JUNK | u64::from(b));
        let by_reg = [mov(R::R0, R::R1), alu(W32, op, R::R0, Operand::Reg(R::R2)), Insn::Exit];
        assert_eq!(result(&by_reg, a64, b64), expected.into(), "{a:#x} {op:?} {b:#x}");
        let by_imm = [mov(R::R0, R::R1), alu(W32, op, R::R0, Operand::Imm(b as i32)), Insn::Exit];
        assert_eq!(result(&by_imm, a64, 0), expected.into(), "{a:#x} {op:?} {b:#x}");
    }
}

#[test]
fn an_operation_may_have_one_register_for_both_operands() {
    let twice = |width, op, a| {
        result(&[mov(R::R0, R::R1), alu(width, op, R::R0, Operand::Reg(R::R0)), Insn::Exit], a, 0)
    };
    assert_eq!(twice(W64, Sub, 77), 0);
    assert_eq!(twice(W64, Div, 0), 0);
    assert_eq!(twice(W64, Mod, 0), 0);
    assert_eq!(twice(W64, Sdiv, MIN64), 1);
    assert_eq!(twice(W64, Lsh, 3), 24);
    assert_eq!(twice(W32, Lsh, JUNK | 33), 66);
    assert_eq!(twice(W32, Mov, JUNK | 33), 33);
}

#[test]
fn negation_wraps() {
    let neg = |width, a| result(&[mov(R::R0, R::R1), Insn::Neg { width, dst: R::R0 }, Insn::Exit], a, 0);
    assert_eq!(neg(W64, 1), u64::MAX);
    assert_eq!(neg(W64, 0), 0);
    assert_eq!(neg(W64, MIN64), MIN64);
    assert_eq!(neg(W32, 1), 0xffff_ffff);
    assert_eq!(neg(W32, JUNK), 0);
    assert_eq!(neg(W32, JUNK | MIN32), MIN32);
}

#[test]
fn moves_extend_the_sign_of_what_they_move() {
    const TABLE: &[(Width, Size, u64, u64)] = &[
        (W64, Size::B1, 0x1234_5680, 0xffff_ffff_ffff_ff80),
        (W64, Size::B1, 0xffff_ff7f, 0x7f),
        (W64, Size::B2, 0x1234_8000, 0xffff_ffff_ffff_8000),
        (W64, Size::B2, 0xffff_7fff, 0x7fff),
        (W64, Size::B4, 0x8000_0000, 0xffff_ffff_8000_0000),
        (W64, Size::B4, 0xffff_ffff_7fff_ffff, 0x7fff_ffff),
        (W32, Size::B1, 0x80, 0xffff_ff80),
        (W32, Size::B1, JUNK | 0xffff_ff7f, 0x7f),
        (W32, Size::B2, JUNK | 0x8000, 0xffff_8000),
        (W32, Size::B2, 0xffff_7fff, 0x7fff),
    ];
    for &(width, from, a, expected) in TABLE {
        let program = [Insn::MovSx { width, from, dst: R::R0, src: R::R1 }, Insn::Exit];
        assert_eq!(result(&program, a, 0), expected, "{width:?} {from:?} {a:#x}");
    }
}

#[test]
fn byte_order() {
    const A: u64 = 0x0123_4567_89ab_cdef;
    const TABLE: &[(ByteOrder, Size, u64)] = &[
        (ByteOrder::ToBig, Size::B2, 0xefcd),
        (ByteOrder::ToBig, Size::B4, 0xefcd_ab89),
        (ByteOrder::ToBig, Size::B8, 0xefcd_ab89_6745_2301),
        (ByteOrder::ToLittle, Size::B2, 0xcdef),
        (ByteOrder::ToLittle, Size::B4, 0x89ab_cdef),
        (ByteOrder::ToLittle, Size::B8, A),
        (ByteOrder::Swap, Size::B2, 0xefcd),
        (ByteOrder::Swap, Size::B4, 0xefcd_ab89),
        (ByteOrder::Swap, Size::B8, 0xefcd_ab89_6745_2301),
    ];
    for &(order, size, expected) in TABLE {
        let program = [mov(R::R0, R::R1), Insn::Endian { order, size, dst: R::R0 }, Insn::Exit];
        assert_eq!(result(&program, A, 0), expected, "{order:?} {size:?}");
    }
}

#[test]
fn immediates_are_sign_extended_to_64_bits_and_wide_ones_are_whole() {
    assert_eq!(result(&[mov_imm(R::R0, -1), Insn::Exit], 0, 0), u64::MAX);
    assert_eq!(result(&[alu(W32, Mov, R::R0, Operand::Imm(-1)), Insn::Exit], 0, 0), 0xffff_ffff);
    let [first, second] = load64(R::R0, 0xfedc_ba98_7654_3210);
    assert_eq!(result(&[first, second, Insn::Exit], 0, 0), 0xfedc_ba98_7654_3210);
}
