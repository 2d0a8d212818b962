//! Arithmetic, comparisons and byte order (RFC 9669 section 4), as functions of numbers.
//!
//! Every operation exists in 64 bits, and in 32 bits with a zero upper half of the result.
//! Nothing here can trap: division by zero and the one overflowing quotient have results (section 4.1).

use skep_isa::{AluOp, ByteOrder, Cond, Size, Width};

/// `a op b`. Only the lower half of the operands counts in 32 bits.
pub(crate) fn alu(width: Width, op: AluOp, a: u64, b: u64) -> u64 {
    match width {
        Width::W64 => alu64(op, a, b),
        Width::W32 => u64::from(alu32(op, a as u32, b as u32)),
    }
}

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

/// `-a`
pub(crate) fn neg(width: Width, a: u64) -> u64 {
    match width {
        Width::W64 => a.wrapping_neg(),
        Width::W32 => u64::from((a as u32).wrapping_neg()),
    }
}

/// The lower `from` of `a`, sign-extended to the width.
pub(crate) fn movsx(width: Width, from: Size, a: u64) -> u64 {
    let wide = sign_extend(from, a);
    match width {
        Width::W64 => wide,
        Width::W32 => u64::from(wide as u32),
    }
}

/// The lower `from` of `a`, sign-extended to 64 bits.
pub(crate) fn sign_extend(from: Size, a: u64) -> u64 {
    match from {
        Size::B1 => a as i8 as u64,
        Size::B2 => a as i16 as u64,
        Size::B4 => a as i32 as u64,
        Size::B8 => a,
    }
}

/// The lower `size` of `a` in the other byte order, the rest cleared.
pub(crate) fn endian(order: ByteOrder, size: Size, a: u64) -> u64 {
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
pub(crate) fn holds(width: Width, cond: Cond, a: u64, b: u64) -> bool {
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

fn is_signed(cond: Cond) -> bool {
    matches!(cond, Cond::Sgt | Cond::Sge | Cond::Slt | Cond::Sle)
}
