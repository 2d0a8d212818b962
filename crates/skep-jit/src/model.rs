//! What arithmetic and comparisons mean, written down plainly for tests to compare with (RFC 9669 sections 4.1
//! and 4.3).

use skep_isa::{AluOp, Cond, Width};

/// Numbers at boundaries.
pub(crate) const EDGES: [u64; 21] = [
    0,
    1,
    2,
    3,
    7,
    31,
    63,
    64,
    0x7f,
    0x80,
    0xff,
    0x8000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_0000_0000,
    0xffff_ffff_8000_0000,
    0xffff_ffff_ffff_ffff,
];

/// `a op b`
pub(crate) fn alu(op: AluOp, width: Width, a: u64, b: u64) -> u64 {
    match width {
        Width::W64 => alu64(op, a, b),
        Width::W32 => alu32(op, a as u32, b as u32).into(),
    }
}

/// Whether `a cond b`.
pub(crate) fn holds(cond: Cond, width: Width, a: u64, b: u64) -> bool {
    let (a, b, sa, sb) = match width {
        Width::W64 => (a, b, a as i64, b as i64),
        Width::W32 => (a as u32 as u64, b as u32 as u64, i64::from(a as i32), i64::from(b as i32)),
    };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Sgt => sa > sb,
        Cond::Sge => sa >= sb,
        Cond::Slt => sa < sb,
        Cond::Sle => sa <= sb,
        Cond::Set => a & b != 0,
    }
}

fn alu64(op: AluOp, a: u64, b: u64) -> u64 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Sdiv => {
            if b == 0 {
                0
            } else {
                (a as i64).wrapping_div(b as i64) as u64
            }
        }
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Lsh => a << (b & 63),
        AluOp::Rsh => a >> (b & 63),
        AluOp::Arsh => ((a as i64) >> (b & 63)) as u64,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Smod => {
            if b == 0 {
                a
            } else {
                (a as i64).wrapping_rem(b as i64) as u64
            }
        }
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
    }
}

fn alu32(op: AluOp, a: u32, b: u32) -> u32 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Sdiv => {
            if b == 0 {
                0
            } else {
                (a as i32).wrapping_div(b as i32) as u32
            }
        }
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Lsh => a << (b & 31),
        AluOp::Rsh => a >> (b & 31),
        AluOp::Arsh => ((a as i32) >> (b & 31)) as u32,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Smod => {
            if b == 0 {
                a
            } else {
                (a as i32).wrapping_rem(b as i32) as u32
            }
        }
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
    }
}
