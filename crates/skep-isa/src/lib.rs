//! The BPF instruction set as RFC 9669 defines it, versions 1 to 4, and Linux's legacy packet loads.
//!
//! A program is a sequence of 8-byte *slots* ([`Slot`], the bytes as they stand in a file) which decode to
//! one [`Insn`] each. A 64-bit immediate load takes two slots; the second decodes to
//! [`Insn::LoadImm64Tail`], so that *index in the decoded program* and *slot number*, which jumps and calls
//! count in, are always the same number.
//!
//! ```text
//!   bytes --Slot::from_bytes--> [Slot] --decode--> [Insn] --encode--> [Slot] --Slot::to_bytes--> bytes
//! ```
#![forbid(unsafe_code)]

mod asm;
mod codes;
mod decode;
mod disasm;
mod encode;
mod insn;
mod slot;
mod tag;

pub use asm::{AssembleError, AssembleProblem, assemble};
pub use decode::{DecodeError, Field, decode, decode_bytes, slots_from_bytes};
pub use disasm::{Listing, Symbol, disassemble};
pub use encode::{EncodeError, encode, encode_bytes};
pub use insn::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, PacketBase, Reg, Size, Width,
};
pub use slot::Slot;
pub use tag::{Tag, tag, tag_sha1};
