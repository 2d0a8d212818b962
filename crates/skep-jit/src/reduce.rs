//! Strength reduction of arithmetic with a constant.
//!
//! A division by 8 is a shift, `& 0xff` is a zero extension, `+ 0` on 32 bits only clears the upper half. Every
//! rule here holds for all values of the register; RFC 9669 section 4.1 defines the operations.

use skep_isa::{AluOp, Size, Width};

/// The reduced form of an operation with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduced {
    /// `dst` keeps its value in that width: nothing with 64 bits, a zero extension with 32.
    Keep(Width),
    /// `dst` becomes this constant.
    Constant(u64),
    /// `dst` becomes its zero-extended lowest bytes.
    ZeroExtend(Size),
    /// `dst = -dst`
    Neg(Width),
    /// This operation. Division and remainder have a divisor that is not 0, nor -1 where signed;
    /// shifts have a count between 0 and the width.
    Op(AluOp, Width, i32),
}

/// Reduces `dst op= imm`.
pub(crate) fn reduce(op: AluOp, width: Width, imm: i32) -> Reduced {
    let keep = Reduced::Keep(width);
    let same = Reduced::Op(op, width, imm);
    let zero = Reduced::Constant(0);
    match (op, imm) {
        (AluOp::Mov, _) => Reduced::Constant(extended(width, imm)),
        (AluOp::Add | AluOp::Sub | AluOp::Or | AluOp::Xor, 0) => keep,
        (AluOp::Or, -1) => Reduced::Constant(extended(width, -1)),
        (AluOp::And, 0) => zero,
        (AluOp::And, -1) => keep,
        (AluOp::And, 0xff) => Reduced::ZeroExtend(Size::B1),
        (AluOp::And, 0xffff) => Reduced::ZeroExtend(Size::B2),
        // The upper half of the mask is zero, so the upper half of the result is too.
        (AluOp::And, 1..) => Reduced::Op(op, Width::W32, imm),
        (AluOp::Mul, 0) => zero,
        (AluOp::Mul, 1) => keep,
        (AluOp::Mul, -1) => Reduced::Neg(width),
        (AluOp::Mul, _) => match power_of_two(width, imm) {
            Some(bits) => Reduced::Op(AluOp::Lsh, width, bits),
            None => same,
        },
        (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, _) => match imm & (width.bits() as i32 - 1) {
            0 => keep,
            count => Reduced::Op(op, width, count),
        },
        (AluOp::Div | AluOp::Sdiv, 0) => zero,
        (AluOp::Div | AluOp::Sdiv, 1) => keep,
        (AluOp::Sdiv, -1) => Reduced::Neg(width),
        (AluOp::Mod | AluOp::Smod, 0) => keep,
        (AluOp::Mod, 1) => zero,
        (AluOp::Smod, 1 | -1) => zero,
        (AluOp::Div, _) => match power_of_two(width, imm) {
            Some(bits) => Reduced::Op(AluOp::Rsh, width, bits),
            None => same,
        },
        (AluOp::Mod, _) => match power_of_two(width, imm) {
            Some(bits) => reduce(AluOp::And, width, ((1u32 << bits) - 1).cast_signed()),
            None => same,
        },
        _ => same,
    }
}

/// The exponent, if the extended constant is a power of two.
fn power_of_two(width: Width, imm: i32) -> Option<i32> {
    let value = extended(width, imm);
    value.is_power_of_two().then(|| value.trailing_zeros() as i32)
}

/// The constant as the operation sees it.
fn extended(width: Width, imm: i32) -> u64 {
    match width {
        Width::W32 => u64::from(imm as u32),
        Width::W64 => i64::from(imm) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    #[test]
    fn what_remains_computes_the_same() {
        let numbers = model::EDGES;
        let constants = numbers.iter().map(|&n| n as i32).chain(-300..300).chain((0..32).map(|n| 1 << n));
        for imm in constants {
            for op in AluOp::ALL {
                for width in [Width::W32, Width::W64] {
                    for &x in &numbers {
                        let expected = model::alu(op, width, x, i64::from(imm) as u64);
                        let reduced = reduce(op, width, imm);
                        assert_eq!(
                            run(reduced, x),
                            expected,
                            "{x:#x} {op:?} {imm:#x} ({width:?}): {reduced:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn no_division_that_could_trap_remains() {
        for op in [AluOp::Div, AluOp::Mod, AluOp::Sdiv, AluOp::Smod] {
            for width in [Width::W32, Width::W64] {
                assert!(!matches!(reduce(op, width, 0), Reduced::Op(..)));
                if matches!(op, AluOp::Sdiv | AluOp::Smod) {
                    assert!(!matches!(reduce(op, width, -1), Reduced::Op(..)));
                }
            }
        }
    }

    #[test]
    fn divisions_by_powers_of_two_are_not_divisions() {
        assert_eq!(reduce(AluOp::Div, Width::W64, 8), Reduced::Op(AluOp::Rsh, Width::W64, 3));
        assert_eq!(reduce(AluOp::Mod, Width::W64, 8), Reduced::Op(AluOp::And, Width::W32, 7));
        assert_eq!(reduce(AluOp::Div, Width::W32, i32::MIN), Reduced::Op(AluOp::Rsh, Width::W32, 31));
        assert_eq!(reduce(AluOp::Mod, Width::W32, 256), Reduced::ZeroExtend(Size::B1));
    }

    fn run(reduced: Reduced, x: u64) -> u64 {
        match reduced {
            Reduced::Keep(Width::W32) => u64::from(x as u32),
            Reduced::Keep(Width::W64) => x,
            Reduced::Constant(value) => value,
            Reduced::ZeroExtend(Size::B1) => x & 0xff,
            Reduced::ZeroExtend(Size::B2) => x & 0xffff,
            Reduced::ZeroExtend(Size::B4) => x & 0xffff_ffff,
            Reduced::ZeroExtend(Size::B8) => x,
            Reduced::Neg(width) => model::alu(AluOp::Sub, width, 0, x),
            Reduced::Op(op, width, imm) => model::alu(op, width, x, i64::from(imm) as u64),
        }
    }
}
