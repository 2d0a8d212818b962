//! BPF object files: from the bytes that clang wrote to programs, maps and global variables.
//!
//! ```text
//!   bytes --Object::parse--> Object --Program::source--> skep_abi::ProgramSource (for the verifier)
//!                              |     --Program::link---> the same for a system whose types are known
//!                              |
//!                              +-- maps()       declared ones, then .data, .rodata, .bss
//!                              +-- variable()   global variables, readable and settable before the load
//! ```
//!
//! An object is a 64-bit little-endian relocatable ELF file for BPF. Its conventions are those of clang and
//! libbpf: sections name program types, `.maps` declares maps by their types, `.text` and static functions
//! are subprograms, `.data`, `.rodata` and `.bss` are maps with one element, and so are the values of a kernel's
//! configuration. CO-RE relocations are applied, and kernel functions and variables found, with the types of the
//! system that a program is for ([`LinkOptions::target`]).
//!
//! Bytes are not trusted. A damaged file gives an [`Error`] that says where; it never panics, and memory is
//! bounded by a multiple of the file's size.
//!
//! # Example
//!
//! ```
//! let bytes = include_bytes!("../../../examples/firewall.bpf.o");
//! let mut object = skep_elf::Object::parse(bytes)?;
//!
//! let (_, frames) = object.variable("frames_seen").expect("the firewall counts frames");
//! assert_eq!((frames.type_name.as_deref(), frames.size), (Some("__u64"), 8));
//! object.set_initial_value("drop_fragments", &1u32.to_ne_bytes())?;
//!
//! let program = object.program("firewall")?.source(None)?;
//! assert_eq!(program.program_type.name, "xdp");
//! assert_eq!(program.functions[0].name, "firewall");
//! assert!(program.lines[0].text.contains("ctx->data_end"));
//! # Ok::<(), skep_elf::Error>(())
//! ```
#![forbid(unsafe_code)]

mod co_re;
mod core_records;
mod elf;
mod error;
mod externs;
mod functions;
/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod growth_tests;
mod link;
mod maps;
mod object;
mod parsed;
mod program;
mod records;
mod steps;
mod types;

pub use core_records::{CoreError, CoreRecord, relocate_core};
pub use error::{Error, RelocationType};
pub use externs::{Declaration, DeclarationKind};
pub use functions::Table;
pub use link::{Addresses, Functions, LinkOptions};
pub use maps::{EntryTarget, MapEntry, ObjectMap, Variable};
pub use object::Object;
pub use program::Program;
