//! A program between the object file and the verifier.

use crate::{Context, ProgramType};
use skep_btf::{Btf, Kind};
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
    /// Its instructions, one entry per slot; the program starts at slot 0.
    pub insns: Vec<Insn>,
    /// Its functions in ascending order; the first is the program itself.
    pub functions: Vec<Function>,
    /// Source lines in ascending order of slots; empty without `.BTF.ext`.
    pub lines: Vec<LineInfo>,
    /// Whether its licence allows helpers that are restricted to GPL-compatible programs.
    pub gpl_compatible: bool,
    /// Whether it is sleepable.
    pub sleepable: bool,
    /// Its attachment target, if that decides its arguments: the function `vfs_read` of `fentry/vfs_read`.
    pub target: Option<String>,
    /// The types of its object. Functions and maps refer to them by number.
    pub btf: Option<Arc<Btf>>,
    /// What it refers to that only a kernel has, in the order of first use.
    pub externs: Vec<Extern>,
    /// Slots that hold [`UNRELOCATED`], and what the target lacks there: `struct task_struct.comm`.
    pub unresolved: Vec<(u32, Arc<str>)>,
    /// The function of another program that it takes the place of, or that it watches.
    pub of: Option<Arc<TargetFunction>>,
}

/// A function of a loaded program, as programs know it that replace it (`SEC("freplace/NAME")`) or watch it
/// (`SEC("fentry/NAME")`, `SEC("fexit/NAME")`).
#[derive(Clone, Debug)]
pub struct TargetFunction {
    /// The program's name.
    pub program: String,
    /// The program's type.
    pub program_type: &'static ProgramType,
    /// The types of the program's object.
    pub btf: Arc<Btf>,
    /// The function's name.
    pub name: String,
    /// Its prototype, in these types.
    pub prototype: Prototype,
    /// Whether it is the program itself.
    pub main: bool,
    /// Whether it is verified by itself, so that its callers know nothing of it but its prototype.
    pub global: bool,
    /// Whether its callers expect that it may move the packet.
    pub moves_packet: bool,
    /// Whether helpers may be among its callers: it may not make tail calls then.
    pub in_callback: bool,
}

impl ProgramSource {
    /// A program of one static function about which nothing more is known. Its licence is compatible with
    /// everything.
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
            unresolved: Vec::new(),
            of: None,
        }
    }

    /// The function that it takes the place of.
    pub fn replaces(&self) -> Option<&TargetFunction> {
        let watches = matches!(self.program_type.context, Context::Arguments { .. });
        self.of.as_deref().filter(|_| !watches)
    }
}

/// The number of the helper that replaces an instruction whose CO-RE relocation found no match. No helper has this
/// number, so the instruction must not be reached. libbpf uses the same number.
pub const UNRELOCATED: u32 = 195_896_080;

/// The number of the helper that replaces a call of a weak kernel function that does not exist.
pub const MISSING_FUNCTION: u32 = 2_002_000_000;

/// Something outside the object to which a program refers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extern {
    /// Its name.
    pub name: Arc<str>,
    /// What kind of thing it is.
    pub kind: ExternKind,
}

/// What a program can refer to outside its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternKind {
    /// A function of the kernel, by its number in the target's types.
    Function(u32),
    /// A variable of the kernel, by its number in the target's types.
    Variable(u32),
    /// The plain address of something in the kernel.
    Address,
}

/// One function of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its first slot; it ends where the next function begins.
    pub start: u32,
    /// Whether the object exports it (then it is verified on its own, by its prototype), or it is static.
    pub global: bool,
    /// Its prototype, if the object has one.
    pub prototype: Option<Prototype>,
}

impl Function {
    /// A function without a known prototype.
    pub fn new(name: impl Into<String>, start: u32, global: bool) -> Self {
        Self { name: name.into(), start, global, prototype: None }
    }
}

/// The prototype of a function. Types are numbers in the object's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// The function's own type, of kind `Func`.
    pub function: u32,
    /// The type of its result; 0 for `void`.
    pub result: u32,
    /// Its parameters, at most five.
    pub params: Vec<Param>,
}

impl Prototype {
    /// The most parameters of a function, whose arguments are passed in registers.
    const MAX_PARAMS: usize = 5;

    /// The prototype of the function of that type; `None` if it has more parameters than registers can pass.
    ///
    /// # Errors
    ///
    /// [`skep_btf::Error`] if the type is no function, or damaged.
    pub fn of(btf: &Btf, function: u32) -> Result<Option<Self>, skep_btf::Error> {
        if btf.ty(function)?.kind != Kind::Func {
            return Err(skep_btf::Error::WrongKind { id: function, expected: "function" });
        }
        let ty = btf.prototype(function)?;
        if ty.params().len() > Self::MAX_PARAMS {
            return Ok(None);
        }
        let mut params: Vec<Param> =
            ty.params().map(|param| Param { ty: param.ty, tags: ParamTags::default() }).collect();
        for tag in btf.decl_tags(function) {
            let param = tag.component.and_then(|index| params.get_mut(index as usize));
            let known = ParamTags::ALL.iter().find(|(name, _)| *name == tag.name);
            if let (Some(param), Some((_, known))) = (param, known) {
                param.tags = param.tags.union(*known);
            }
        }
        Ok(Some(Self { function, result: ty.target(), params }))
    }
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its type.
    pub ty: u32,
    /// What its declaration says beyond the type.
    pub tags: ParamTags,
}

/// Tags of a parameter (`__arg_ctx` and others, which are `btf_decl_tag("arg:...")`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ParamTags(pub u8);

impl ParamTags {
    /// `__arg_ctx`: the program's context.
    pub const CTX: Self = Self(1);
    /// `__arg_nonnull`: never a null pointer.
    pub const NONNULL: Self = Self(1 << 1);
    /// `__arg_nullable`: may be a null pointer.
    pub const NULLABLE: Self = Self(1 << 2);
    /// `__arg_trusted`: a structure of the host that is known to be alive.
    pub const TRUSTED: Self = Self(1 << 3);
    /// `__arg_untrusted`: a pointer that is read only with probe loads.
    pub const UNTRUSTED: Self = Self(1 << 4);
    /// `__arg_arena`: a pointer into an arena.
    pub const ARENA: Self = Self(1 << 5);

    /// Every tag with its text.
    pub const ALL: [(&'static str, Self); 6] = [
        ("arg:ctx", Self::CTX),
        ("arg:nonnull", Self::NONNULL),
        ("arg:nullable", Self::NULLABLE),
        ("arg:trusted", Self::TRUSTED),
        ("arg:untrusted", Self::UNTRUSTED),
        ("arg:arena", Self::ARENA),
    ];

    /// Whether all tags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The tags of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The source line that starts at a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineInfo {
    /// First slot of the line.
    pub slot: u32,
    /// Source file as the compiler named it.
    pub file: Arc<str>,
    /// The line's text; may be empty.
    pub text: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
}

/// What a program receives at its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `r1` is the context of the program's type.
    Context,
    /// `r1` is a readable and writable buffer of exactly `len` bytes, aligned to 8 if the program has atomic
    /// operations, and `r2` is its length. With length 0, `r1` must not be dereferenced.
    Buffer {
        /// Length in bytes.
        len: u32,
    },
}
