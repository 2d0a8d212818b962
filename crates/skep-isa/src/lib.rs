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
//!
//! [`assemble`] and [`disassemble`] go to and from text in clang's C-like syntax:
//!
//! ```
//! use skep_isa::{Insn, assemble, decode_bytes, disassemble, encode_bytes, tag};
//!
//! let program = assemble(
//!     "   r2 = 0x1122334455667788 ll  // two slots
//!         if r1 s> 0 goto positive
//!         r1 = -r1
//!     positive:
//!         r0 = r1
//!         r0 ^= r2
//!         exit",
//! )?;
//! assert_eq!(program[1], Insn::LoadImm64Tail);
//!
//! let bytes = encode_bytes(&program)?;
//! assert_eq!(bytes.len(), 7 * 8);
//! assert_eq!(decode_bytes(&bytes)?, program);
//! assert_eq!(decode_bytes(&bytes[..8]).unwrap_err().to_string(),
//!     "slot 0: a 64-bit immediate load takes two slots, and the program ends after the first");
//!
//! let listing = disassemble(&program).to_string();
//! assert!(listing.contains("       2:\tif r1 s> 0x0 goto +0x1\n"));
//! assert_eq!(assemble(&listing)?, program);
//!
//! println!("{} instructions, tag {}", program.len(), tag(&program)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What the crate promises: everything the decoder accepts is restored byte for byte by the encoder, and by the
//! assembler from the disassembler's text; no input makes it panic, or allocate more than in proportion to
//! the input.
#![forbid(unsafe_code)]

mod asm;
mod calls;
mod codes;
mod decode;
mod disasm;
mod encode;
mod insn;
mod regset;
pub mod semantics;
mod slot;
mod tag;
pub mod varint;

pub use asm::{AssembleError, AssembleProblem, assemble};
pub use calls::resolve_register_calls;
pub use decode::{DecodeError, Field, decode, decode_bytes, slots_from_bytes};
pub use disasm::{Listing, Symbol, disassemble};
pub use encode::{EncodeError, encode, encode_bytes};
pub use insn::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, PacketBase, Reg, Size, Width,
};
pub use regset::RegSet;
pub use slot::Slot;
pub use tag::{Tag, tag, tag_sha1, tag_with_map_descriptors, with_map_descriptors};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
