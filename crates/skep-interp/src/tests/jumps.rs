//! RFC 9669 section 4.3: jumps.

use super::*;
use skep_isa::Cond::{self, *};
use skep_isa::Width::{W32, W64};

const MINUS: u64 = u64::MAX;
const MINUS32: u64 = 0xffff_ffff;

/// Width, condition, operands, whether it holds.
const TABLE: &[(Width, Cond, u64, u64, bool)] = &[
    (W64, Eq, 5, 5, true),
    (W64, Eq, 5, 0x1_0000_0005, false),
    (W32, Eq, 5, 0x1_0000_0005, true),
    (W32, Eq, 5, 6, false),
    (W64, Ne, 5, 0x1_0000_0005, true),
    (W64, Ne, 5, 5, false),
    (W32, Ne, 5, 0x1_0000_0005, false),
    (W64, Gt, MINUS, 1, true),
    (W64, Gt, 1, 1, false),
    (W32, Gt, 0x1_0000_0000, 1, false),
    (W32, Gt, MINUS32, 1, true),
    (W64, Ge, 1, 1, true),
    (W64, Ge, 1, MINUS, false),
    (W32, Ge, 0x1_0000_0000, 1, false),
    (W64, Lt, 1, MINUS, true),
    (W64, Lt, 1, 1, false),
    (W32, Lt, 0x1_0000_0000, 1, true),
    (W64, Le, 1, 1, true),
    (W64, Le, MINUS, 1, false),
    (W32, Le, 0x1_0000_0001, 1, true),
    (W64, Sgt, 1, MINUS, true),
    (W64, Sgt, MINUS, MINUS, false),
    (W64, Sgt, MINUS32, 1, true),
    (W32, Sgt, MINUS32, 1, false),
    (W32, Sgt, 1, MINUS32, true),
    (W64, Sge, MINUS, MINUS, true),
    (W64, Sge, MINUS, 0, false),
    (W32, Sge, 0x7fff_ffff, 0x8000_0000, true),
    (W64, Slt, MINUS, 0, true),
    (W64, Slt, 0, 0, false),
    (W64, Slt, MINUS32, 0, false),
    (W32, Slt, MINUS32, 0, true),
    (W64, Sle, MINUS, MINUS, true),
    (W64, Sle, 0, MINUS, false),
    (W32, Sle, 0x8000_0000, 0x7fff_ffff, true),
    (W64, Set, 0x1_0000_0000, 0x1_0000_0000, true),
    (W32, Set, 0x1_0000_0000, 0x1_0000_0000, false),
    (W64, Set, 6, 1, false),
    (W32, Set, 6, 2, true),
    (W64, Set, 0, 0, false),
];

#[test]
fn every_condition_is_in_the_table_in_both_widths_and_both_outcomes() {
    for cond in Cond::ALL {
        for width in [W32, W64] {
            assert!(TABLE.iter().any(|row| row.0 == width && row.1 == cond), "{width:?} {cond:?}");
        }
        for outcome in [false, true] {
            assert!(TABLE.iter().any(|row| row.1 == cond && row.4 == outcome), "{cond:?} {outcome}");
        }
    }
}

#[test]
fn conditional_jumps() {
    for &(width, cond, a, b, expected) in TABLE {
        let program = |src| {
            [
                mov_imm(R::R0, 1),
                Insn::JumpIf { width, cond, dst: R::R1, src, offset: 1 },
                mov_imm(R::R0, 0),
                Insn::Exit,
            ]
        };
        let taken = result(&program(Operand::Reg(R::R2)), a, b);
        assert_eq!(taken, expected.into(), "{width:?} {a:#x} {cond:?} {b:#x}");
        let imm = match width {
            W64 => i32::try_from(b as i64).ok(),
            W32 => Some(b as u32 as i32),
        };
        let Some(imm) = imm else { continue };
        let taken = result(&program(Operand::Imm(imm)), a, 0);
        assert_eq!(taken, expected.into(), "{width:?} {a:#x} {cond:?} imm {imm:#x}");
    }
}

#[test]
fn immediates_of_unsigned_comparisons_are_sign_extended() {
    let program = [
        mov_imm(R::R0, 1),
        Insn::JumpIf { width: W64, cond: Gt, dst: R::R1, src: Operand::Imm(-2), offset: 1 },
        mov_imm(R::R0, 0),
        Insn::Exit,
    ];
    assert_eq!(result(&program, u64::MAX, 0), 1);
    assert_eq!(result(&program, 0xffff_ffff, 0), 0);
}

#[test]
fn plain_and_long_jumps_count_from_the_next_instruction() {
    for long in [false, true] {
        // 0: goto 3   1: r0 = 1   2: exit   3: r0 = 2   4: goto 1 + 1
        let program = [
            Insn::Jump { offset: 2, long },
            mov_imm(R::R0, 1),
            Insn::Exit,
            mov_imm(R::R0, 2),
            Insn::Jump { offset: -3, long },
        ];
        assert_eq!(result(&program, 0, 0), 2);
    }
}

#[test]
fn a_loop_counts_down() {
    let program = [
        mov_imm(R::R0, 0),
        alu(W64, AluOp::Add, R::R0, Operand::Reg(R::R1)),
        alu(W64, AluOp::Sub, R::R1, Operand::Imm(1)),
        Insn::JumpIf { width: W64, cond: Ne, dst: R::R1, src: Operand::Imm(0), offset: -3 },
        Insn::Exit,
    ];
    assert_eq!(result(&program, 100, 0), 5050);
}
