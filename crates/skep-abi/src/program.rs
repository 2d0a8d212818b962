//! A program on its way from the object file to the verifier.

use crate::ProgramType;
use skep_isa::Insn;
use std::sync::Arc;

/// A program as the loader assembled it: its own instructions, then those of every function it calls.
///
/// Local calls and function addresses are resolved. Maps are named by index
/// ([`skep_isa::Imm64::Map`], [`skep_isa::Imm64::MapValue`]) into the object's list.
#[derive(Clone, Debug)]
pub struct ProgramSource {
    /// Its name.
    pub name: String,
    /// Its type.
    pub program_type: &'static ProgramType,
    /// Its instructions, one entry a slot; the program starts at slot 0.
    pub insns: Vec<Insn>,
    /// Its functions in ascending order; the first is the program itself.
    pub functions: Vec<Function>,
    /// Source lines in ascending order of slots; empty without `.BTF.ext`.
    pub lines: Vec<LineInfo>,
    /// Whether its licence lets it call helpers that are for GPL-compatible programs.
    pub gpl_compatible: bool,
    /// Whether it runs where sleeping is allowed.
    pub sleepable: bool,
    /// What it is attached to, where that decides its arguments: the function `vfs_read` of `fentry/vfs_read`.
    pub target: Option<String>,
}

/// One function of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its first slot; it ends where the next begins.
    pub start: u32,
    /// Whether the object exports it (verified by its prototype alone) or it is static.
    pub global: bool,
}

/// The source line that starts at a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineInfo {
    /// First slot it covers.
    pub slot: u32,
    /// Source file as the compiler named it.
    pub file: Arc<str>,
    /// The line's text; may be empty.
    pub text: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 where unknown.
    pub column: u32,
}

/// What a program is given at its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `r1` is the context of the program's type.
    Context,
    /// `r1` is a read-write buffer of exactly `len` bytes, at a multiple of 8 where the program has atomic operations,
    /// and `r2` its length. With length 0, `r1` may not be read or written through.
    Buffer {
        /// Bytes.
        len: u32,
    },
}
