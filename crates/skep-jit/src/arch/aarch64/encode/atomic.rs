//! Atomic accesses: read-modify-writes (LSE), exclusive pairs for processors without them, and ordered accesses.

use skep_isa::{Size, Width};

use super::{Gpr, Word, whole};

/// The operation of a read-modify-write on memory and a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rmw {
    /// Adds the register.
    Add = 0,
    /// Clears the bits that are set in the register.
    Clr = 1,
    /// Exclusive or.
    Eor = 2,
    /// Or.
    Set = 3,
    /// Exchanges.
    Swp = 8,
}

/// `ldadd`, `ldclr`, `ldeor`, `ldset` or `swp rs, rt, [rn]` (LSE): `rs` is the operand, `rt` becomes the old value.
/// An ordered one acquires and releases. With [`Gpr::ZR`] as `rt` the old value is not fetched (`stadd` etc.), so
/// there is nothing to acquire.
pub(crate) const fn rmw(op: Rmw, width: Width, ordered: bool, rs: Gpr, rt: Gpr, rn: Gpr) -> Word {
    let word = Word(0x3820_0000).size(whole(width)).with(ordered as u32 * 3, 22);
    word.m(rs).with(op as u32, 12).n(rn).d(rt)
}

/// `casal rs, rt, [rn]` (LSE): stores `rt` if memory is `rs`; `rs` becomes what memory was.
pub(crate) const fn cas(width: Width, rs: Gpr, rt: Gpr, rn: Gpr) -> Word {
    Word(0x08e0_fc00).size(whole(width)).m(rs).n(rn).d(rt)
}

/// `ldxr` or `ldaxr rt, [rn]`
pub(crate) const fn load_exclusive(width: Width, acquire: bool, rt: Gpr, rn: Gpr) -> Word {
    Word(0x085f_7c00).size(whole(width)).with(acquire as u32, 15).n(rn).d(rt)
}

/// `stxr` or `stlxr rs, rt, [rn]`: `rs` becomes 0 if `rt` was stored, 1 if not. It must be another register.
pub(crate) const fn store_exclusive(width: Width, release: bool, rs: Gpr, rt: Gpr, rn: Gpr) -> Word {
    debug_assert!(rs.number() != rt.number() && (rs.number() != rn.number() || rn.number() == 31));
    Word(0x0800_7c00).size(whole(width)).with(release as u32, 15).m(rs).n(rn).d(rt)
}

/// `ldarb`, `ldarh` or `ldar rt, [rn]`
pub(crate) const fn load_acquire(size: Size, rt: Gpr, rn: Gpr) -> Word {
    Word(0x08df_fc00).size(size).n(rn).d(rt)
}

/// `stlrb`, `stlrh` or `stlr rt, [rn]`
pub(crate) const fn store_release(size: Size, rt: Gpr, rn: Gpr) -> Word {
    Word(0x089f_fc00).size(size).n(rn).d(rt)
}

/// `dmb ish`: orders everything before it against everything after it.
pub(crate) const fn dmb_ish() -> Word {
    Word(0xd503_3bbf)
}

/// `ssbb`: no load behind it reads what was in memory before a store in front of it to the same address.
pub(crate) const fn ssbb() -> Word {
    Word(0xd503_309f)
}

/// `dsb nsh`: nothing behind it begins before all accesses in front of it are done.
pub(crate) const fn dsb_nsh() -> Word {
    Word(0xd503_379f)
}
