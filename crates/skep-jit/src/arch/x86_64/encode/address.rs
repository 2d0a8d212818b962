//! Addresses.

use skep_isa::Width;

use super::{Bytes, Gpr, Mem, Opcode, rm};

/// `lea dst, [mem]`
pub(crate) const fn lea(width: Width, dst: Gpr, mem: Mem) -> Bytes {
    rm(Opcode::one(0x8d).width(width), dst.number(), mem)
}

/// `lea dst, [rip + disp]`; the displacement is the last four bytes and still zero.
pub(crate) const fn lea_rip(dst: Gpr) -> Bytes {
    Opcode::one(0x8d).width(Width::W64).open(dst.high(), 0, 0).byte(dst.low() << 3 | 5).dword(0)
}
