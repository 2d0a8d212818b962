//! Atomic read-modify-writes.

use skep_isa::Width;

use super::{Bytes, Gpr, Group1, Mem, Opcode, rm};

/// `lock op [mem], src`
pub(crate) const fn lock_alu(op: Group1, width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::one((op as u8) << 3 | 1).prefix(0xf0).width(width), src.number(), mem)
}

/// `lock xadd [mem], src`
pub(crate) const fn xadd(width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::two(0xc1).prefix(0xf0).width(width), src.number(), mem)
}

/// `xchg [mem], src`, which is always locked.
pub(crate) const fn xchg(width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::one(0x87).width(width), src.number(), mem)
}

/// `lock cmpxchg [mem], src`: compares with `rax`.
pub(crate) const fn cmpxchg(width: Width, mem: Mem, src: Gpr) -> Bytes {
    rm(Opcode::two(0xb1).prefix(0xf0).width(width), src.number(), mem)
}
