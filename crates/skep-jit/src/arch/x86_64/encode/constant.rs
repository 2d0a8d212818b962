//! Constants.

use skep_isa::Width;

use super::{Bytes, Gpr, Group1, Opcode, alu_rr, opcode_reg, rr};

/// `mov dst, value`, the shortest of three forms. Leaves the flags alone.
pub(crate) const fn mov_ri(dst: Gpr, value: u64) -> Bytes {
    if value <= u32::MAX as u64 {
        opcode_reg(Width::W32, 0xb8, dst).dword(value as u32 as i32)
    } else if value as i64 >= i32::MIN as i64 && (value as i64) < 0 {
        rr(Opcode::one(0xc7).width(Width::W64), 0, dst).dword(value as i32)
    } else {
        opcode_reg(Width::W64, 0xb8, dst).qword(value)
    }
}

/// `mov dst, value` of 32 bits. Every value has the same form.
pub(crate) const fn mov_r32(dst: Gpr, value: u32) -> Bytes {
    opcode_reg(Width::W32, 0xb8, dst).dword(value.cast_signed())
}

/// `mov dst, value`, sign-extended. Every value has the same form.
pub(crate) const fn mov_sign_extended(dst: Gpr, value: i32) -> Bytes {
    rr(Opcode::one(0xc7).width(Width::W64), 0, dst).dword(value)
}

/// `mov dst, value` of 64 bits. Every value has the same form.
pub(crate) const fn mov_r64(dst: Gpr, value: u64) -> Bytes {
    opcode_reg(Width::W64, 0xb8, dst).qword(value)
}

/// `xor dst, value`, sign-extended. Every value has the same form.
pub(crate) const fn xor_ri(width: Width, dst: Gpr, value: i32) -> Bytes {
    rr(Opcode::one(0x81).width(width), Group1::Xor as u8, dst).dword(value)
}

/// `xor dst, dst`: zero, at the price of the flags.
pub(crate) const fn zero(dst: Gpr) -> Bytes {
    alu_rr(Group1::Xor, Width::W32, dst, dst)
}
