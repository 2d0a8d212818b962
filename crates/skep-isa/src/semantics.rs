//! What instructions compute (RFC 9669, section 4), as functions of numbers.
//!
//! All results are 64 bits. A 32-bit operation uses the lower halves of its operands, and the upper half of its result
//! is zero. Nothing traps: division by zero and the one quotient that overflows have results (section 4.1), and a
//! shift uses the lower bits of its count.
//!
//! The interpreter runs programs with these functions, and the verifier folds constants with them. The tests of the
//! compilers have a model of their own, so they do not share a mistake.
//!
//! ```
//! use skep_isa::{AluOp, Width, semantics};
//!
//! assert_eq!(semantics::alu(Width::W64, AluOp::Div, 7, 0), 0);
//! assert_eq!(semantics::alu(Width::W32, AluOp::Sub, 0, 1), 0xffff_ffff);
//! ```

use crate::{AluOp, ByteOrder, Cond, Size, Width};

/// `a op b`. [`AluOp::Mov`] is `b`. A quotient by zero is 0, a remainder by zero is `a`.
#[inline]
pub fn alu(width: Width, op: AluOp, a: u64, b: u64) -> u64 {
    match width {
        Width::W64 => alu64(op, a, b),
        Width::W32 => u64::from(alu32(op, a as u32, b as u32)),
    }
}

#[inline]
fn alu64(op: AluOp, a: u64, b: u64) -> u64 {
    let count = (b & 63) as u32;
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => (a as i64).wrapping_div(b as i64) as u64,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => (a as i64).wrapping_rem(b as i64) as u64,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Lsh => a << count,
        AluOp::Rsh => a >> count,
        AluOp::Arsh => ((a as i64) >> count) as u64,
        AluOp::Mov => b,
    }
}

#[inline]
fn alu32(op: AluOp, a: u32, b: u32) -> u32 {
    let count = b & 31;
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => (a as i32).wrapping_div(b as i32) as u32,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => (a as i32).wrapping_rem(b as i32) as u32,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Lsh => a << count,
        AluOp::Rsh => a >> count,
        AluOp::Arsh => ((a as i32) >> count) as u32,
        AluOp::Mov => b,
    }
}

/// `-a`.
#[inline]
pub fn neg(width: Width, a: u64) -> u64 {
    match width {
        Width::W64 => a.wrapping_neg(),
        Width::W32 => u64::from((a as u32).wrapping_neg()),
    }
}

/// The lower `from` of `a`, sign-extended to the width.
#[inline]
pub fn movsx(width: Width, from: Size, a: u64) -> u64 {
    let wide = sign_extend(from, a);
    match width {
        Width::W64 => wide,
        Width::W32 => u64::from(wide as u32),
    }
}

/// The lower `from` of `a`, sign-extended to 64 bits.
#[inline]
pub fn sign_extend(from: Size, a: u64) -> u64 {
    match from {
        Size::B1 => a as i8 as u64,
        Size::B2 => a as i16 as u64,
        Size::B4 => a as i32 as u64,
        Size::B8 => a,
    }
}

/// The lower `size` of `a` converted to that byte order, or with its bytes swapped; the upper bits are zero.
#[inline]
pub fn endian(order: ByteOrder, size: Size, a: u64) -> u64 {
    match (order, size) {
        (ByteOrder::ToLittle, Size::B1) | (ByteOrder::ToBig, Size::B1) | (ByteOrder::Swap, Size::B1) => {
            u64::from(a as u8)
        }
        (ByteOrder::ToLittle, Size::B2) => u64::from((a as u16).to_le()),
        (ByteOrder::ToLittle, Size::B4) => u64::from((a as u32).to_le()),
        (ByteOrder::ToLittle, Size::B8) => a.to_le(),
        (ByteOrder::ToBig, Size::B2) => u64::from((a as u16).to_be()),
        (ByteOrder::ToBig, Size::B4) => u64::from((a as u32).to_be()),
        (ByteOrder::ToBig, Size::B8) => a.to_be(),
        (ByteOrder::Swap, Size::B2) => u64::from((a as u16).swap_bytes()),
        (ByteOrder::Swap, Size::B4) => u64::from((a as u32).swap_bytes()),
        (ByteOrder::Swap, Size::B8) => a.swap_bytes(),
    }
}

/// Whether `a cond b` holds. Only the lower half counts in 32 bits.
#[inline]
pub fn holds(width: Width, cond: Cond, a: u64, b: u64) -> bool {
    let (a, b) = match width {
        Width::W64 => (a, b),
        Width::W32 if is_signed(cond) => (a as i32 as u64, b as i32 as u64),
        Width::W32 => (u64::from(a as u32), u64::from(b as u32)),
    };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Sgt => a as i64 > b as i64,
        Cond::Sge => a as i64 >= b as i64,
        Cond::Slt => (a as i64) < b as i64,
        Cond::Sle => a as i64 <= b as i64,
        Cond::Set => a & b != 0,
    }
}

#[inline]
fn is_signed(cond: Cond) -> bool {
    matches!(cond, Cond::Sgt | Cond::Sge | Cond::Slt | Cond::Sle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AluOp::*;
    use crate::Width::{W32, W64};

    #[test]
    fn operations_that_other_machines_trap_or_leave_undefined_have_results() {
        let (min64, min32) = (i64::MIN as u64, 0x8000_0000);
        for (op, a, b, wide, narrow) in [
            (Div, 7, 0, 0, 0),
            (Sdiv, 7, 0, 0, 0),
            (Mod, 7, 0, 7, 7),
            (Smod, 7, 0, 7, 7),
            (Sdiv, min64, u64::MAX, min64, 0),
            (Smod, min64, u64::MAX, 0, 0),
            (Sdiv, min32, u64::MAX, -(1i64 << 31) as u64, min32),
            (Lsh, 1, 65, 2, 2),
            (Lsh, 1, 33, 1 << 33, 2),
            (Rsh, min32, 32, 0, min32),
            (Arsh, min32, 31, 1, 0xffff_ffff),
            (Add, u64::MAX, 1, 0, 0),
        ] {
            assert_eq!(
                [alu(W64, op, a, b), alu(W32, op, a, b)],
                [wide, narrow],
                "{a:#x} {} {b:#x}",
                op.symbol()
            );
        }
    }

    #[test]
    fn operations_have_results_written_by_hand() {
        let minus = |number: i64| -number as u64;
        for (op, a, b, wide, narrow) in [
            (Add, 0xffff_ffff, 1, 1 << 32, 0),
            (Sub, 5, 7, minus(2), 0xffff_fffe),
            (Mul, 0x1_0000_0003, 5, 0x5_0000_000f, 15),
            (Div, 13, 4, 3, 3),
            (Div, minus(13), 4, 0x3fff_ffff_ffff_fffc, 0x3fff_fffc),
            // Section 4.1: signed division rounds towards zero, and -13 % 3 is -1.
            (Sdiv, minus(13), 3, minus(4), 0xffff_fffc),
            (Sdiv, 13, minus(3), minus(4), 0xffff_fffc),
            (Smod, minus(13), 3, minus(1), 0xffff_ffff),
            (Smod, 13, minus(3), 1, 1),
            (Mod, 13, 4, 1, 1),
            (Or, 0xf0f0_0000_0f0f, 0xff, 0xf0f0_0000_0fff, 0xfff),
            (And, 0xf0f0_0000_0f0f, 0xff, 0x0f, 0x0f),
            (Xor, 0xf0f0_0000_0f0f, 0xff, 0xf0f0_0000_0ff0, 0xff0),
            (Lsh, 3, 31, 0x1_8000_0000, 0x8000_0000),
            (Rsh, minus(1), 60, 15, 15),
            (Arsh, minus(16), 2, minus(4), 0xffff_fffc),
            (Mov, 7, 0x1_0000_0002, 0x1_0000_0002, 2),
        ] {
            assert_eq!([alu(W64, op, a, b), alu(W32, op, a, b)], [wide, narrow], "{a:#x} {op:?} {b:#x}");
        }
    }

    #[test]
    fn comparisons_hold_as_written_by_hand() {
        // Conditions that hold for 1 and 2, for equal numbers, for -1 and 1 in 64 bits, and for those in 32 bits.
        let (less, equal) = (
            [Cond::Ne, Cond::Lt, Cond::Le, Cond::Slt, Cond::Sle],
            [Cond::Eq, Cond::Ge, Cond::Le, Cond::Sge, Cond::Sle, Cond::Set],
        );
        let negative = [Cond::Ne, Cond::Gt, Cond::Ge, Cond::Slt, Cond::Sle, Cond::Set];
        for (a, b, expected) in [(1, 2, &less[..]), (3, 3, &equal), (u64::MAX, 1, &negative)] {
            for cond in CONDITIONS {
                for width in [W32, W64] {
                    assert_eq!(holds(width, cond, a, b), expected.contains(&cond), "{a:#x} {cond:?} {b:#x}");
                }
            }
        }
    }

    const CONDITIONS: [Cond; 11] = [
        Cond::Eq,
        Cond::Ne,
        Cond::Gt,
        Cond::Ge,
        Cond::Lt,
        Cond::Le,
        Cond::Sgt,
        Cond::Sge,
        Cond::Slt,
        Cond::Sle,
        Cond::Set,
    ];

    #[test]
    fn signed_comparisons_of_halves_look_at_bit_31() {
        assert!(holds(W32, Cond::Slt, 0x8000_0000, 0));
        assert!(!holds(W64, Cond::Slt, 0x8000_0000, 0));
        assert!(holds(W32, Cond::Eq, 1 << 32, 0));
        assert!(!holds(W32, Cond::Set, 1 << 32, u64::MAX));
    }

    #[test]
    fn byte_order_and_extension_clear_or_copy_the_upper_bits() {
        assert_eq!(endian(ByteOrder::Swap, Size::B2, 0xffff_1234), 0x3412);
        assert_eq!(endian(ByteOrder::ToLittle, Size::B4, u64::MAX), 0xffff_ffff);
        assert_eq!(endian(ByteOrder::ToBig, Size::B2, 0xffff_1234), 0x3412);
        assert_eq!(endian(ByteOrder::ToBig, Size::B8, 0x0102_0304_0506_0708), 0x0807_0605_0403_0201);
        assert_eq!(endian(ByteOrder::ToLittle, Size::B8, 0x0102_0304_0506_0708), 0x0102_0304_0506_0708);
        assert_eq!(movsx(W32, Size::B1, 0x80), 0xffff_ff80);
        assert_eq!(movsx(W64, Size::B2, 0x1_8000), 0xffff_ffff_ffff_8000);
        assert_eq!(movsx(W64, Size::B4, 0x8000_0000), 0xffff_ffff_8000_0000);
        assert_eq!(neg(W32, 1), 0xffff_ffff);
    }
}
