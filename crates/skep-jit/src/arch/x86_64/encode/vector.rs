//! Vectors of sixteen bytes (SSE2, which every x86-64 has): the few instructions that loops in bulk need.

use super::{Bytes, Gpr, Mem, Opcode, rm};

/// One of the first eight vector registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Xmm(pub(crate) u8);

/// Operations on two vectors, by opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vector {
    /// `punpcklbw`: interleaves the lower halves by bytes, and so on.
    LowBytes = 0x60,
    LowWords = 0x61,
    LowDoubles = 0x62,
    HighWords = 0x69,
    HighDoubles = 0x6a,
    LowQuads = 0x6c,
    HighQuads = 0x6d,
    /// `movdqa`
    Move = 0x6f,
    /// `paddq`
    AddQuads = 0xd4,
    /// `pxor`
    Xor = 0xef,
    /// `psadbw`: the sums of the differences of eight bytes each.
    SumBytes = 0xf6,
    /// `paddd`
    AddDoubles = 0xfe,
}

/// `op dst, src`
pub(crate) const fn vector(op: Vector, dst: Xmm, src: Xmm) -> Bytes {
    Bytes::new().byte(0x66).byte(0x0f).byte(op as u8).byte(0xc0 | dst.0 << 3 | src.0)
}

/// `pshufd dst, src, 0`: four times the lowest four bytes.
pub(crate) const fn spread(dst: Xmm, src: Xmm) -> Bytes {
    Bytes::new().byte(0x66).byte(0x0f).byte(0x70).byte(0xc0 | dst.0 << 3 | src.0).byte(0)
}

/// `movdqu dst, [mem]`
pub(crate) const fn load_vector(dst: Xmm, mem: Mem) -> Bytes {
    rm(Opcode::two(0x6f).prefix(0xf3), dst.0, mem)
}

/// `movdqu [mem], src`
pub(crate) const fn store_vector(mem: Mem, src: Xmm) -> Bytes {
    rm(Opcode::two(0x7f).prefix(0xf3), src.0, mem)
}

/// `jcc rel32` over what is emitted next; the displacement is the last four bytes and still zero.
pub(crate) const fn jcc_rel(number: u8) -> Bytes {
    super::jcc32(number, 0)
}

/// `lea dst, [mem]`, or the shortest move that does the same.
pub(crate) fn address(dst: Gpr, mem: Mem) -> Bytes {
    match mem {
        Mem { base, index: None, disp: 0 } => super::mov_rr(skep_isa::Width::W64, dst, base),
        mem => super::lea(skep_isa::Width::W64, dst, mem),
    }
}
