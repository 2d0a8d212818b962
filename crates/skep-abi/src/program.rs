//! A program on its way from the object file to the verifier.

use crate::ProgramType;
use skep_btf::Btf;
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
    /// The types of its object. Functions and maps name types by their numbers here.
    pub btf: Option<Arc<Btf>>,
    /// What it refers to that only a kernel has, in the order of their first use.
    pub externs: Vec<Extern>,
}

impl ProgramSource {
    /// A program of one function, static as far as others are concerned, about which nothing more is known.
    /// Its licence is compatible with everything.
    pub fn new(name: impl Into<String>, program_type: &'static ProgramType, insns: Vec<Insn>) -> Self {
        let name = name.into();
        Self {
            functions: vec![Function::new(name.clone(), 0, false)],
            name,
            program_type,
            insns,
            lines: Vec::new(),
            gpl_compatible: true,
            sleepable: false,
            target: None,
            btf: None,
            externs: Vec::new(),
        }
    }
}

/// The number of the helper that takes the place of an instruction whose CO-RE relocation found nothing. No helper
/// has it: the instruction must not be reached, as with libbpf, whose number it is.
pub const UNRELOCATED: u32 = 195_896_080;

/// The number of the helper that takes the place of a weak kernel function that does not exist.
pub const MISSING_FUNCTION: u32 = 2_002_000_000;

/// Something outside the object that a program refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extern {
    /// Its name.
    pub name: Arc<str>,
    /// What it is.
    pub kind: ExternKind,
}

/// What a program refers to outside its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternKind {
    /// A function of the kernel, of this number among the target's types.
    Function(u32),
    /// A variable of the kernel, of this number among the target's types.
    Variable(u32),
    /// The bare address of something in the kernel.
    Address,
}

/// One function of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its first slot; it ends where the next begins.
    pub start: u32,
    /// Whether the object exports it (verified by its prototype alone) or it is static.
    pub global: bool,
    /// What it takes and returns, if the object says so.
    pub prototype: Option<Prototype>,
}

impl Function {
    /// A function of which no prototype is known.
    pub fn new(name: impl Into<String>, start: u32, global: bool) -> Self {
        Self { name: name.into(), start, global, prototype: None }
    }
}

/// What a function takes and returns. Types are numbers among those of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// The function's own type, of kind `Func`.
    pub function: u32,
    /// The type of its result; 0 for `void`.
    pub result: u32,
    /// Its parameters, at most five.
    pub params: Vec<Param>,
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its type.
    pub ty: u32,
    /// What its declaration says besides.
    pub tags: ParamTags,
}

/// Remarks on a parameter (`__arg_ctx` and the like, which are `btf_decl_tag("arg:...")`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ParamTags(pub u8);

impl ParamTags {
    /// `__arg_ctx`: the program's context.
    pub const CTX: Self = Self(1);
    /// `__arg_nonnull`: never a null pointer.
    pub const NONNULL: Self = Self(1 << 1);
    /// `__arg_nullable`: may be a null pointer.
    pub const NULLABLE: Self = Self(1 << 2);
    /// `__arg_trusted`: a host's structure that is known to be alive.
    pub const TRUSTED: Self = Self(1 << 3);
    /// `__arg_untrusted`: a pointer that is read with probes alone.
    pub const UNTRUSTED: Self = Self(1 << 4);
    /// `__arg_arena`: a pointer into an arena.
    pub const ARENA: Self = Self(1 << 5);

    /// Every remark with its text.
    pub const ALL: [(&'static str, Self); 6] = [
        ("arg:ctx", Self::CTX),
        ("arg:nonnull", Self::NONNULL),
        ("arg:nullable", Self::NULLABLE),
        ("arg:trusted", Self::TRUSTED),
        ("arg:untrusted", Self::UNTRUSTED),
        ("arg:arena", Self::ARENA),
    ];

    /// Whether all of `other`'s remarks are made.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The remarks of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
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
