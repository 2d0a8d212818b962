//! Whether types are well-formed as a kernel demands it of those that a process loads (`BPF_BTF_LOAD`).
//!
//! Reading types needs none of this: every look checks what it uses. A kernel refuses at once what a look may never
//! meet, and says which type is wrong. The rules were taken from Linux 6.12's answers
//! (`crates/skep/tests/calls/types.calls`).
//!
//! First come rules about one type alone, for all types ([`Btf::check`]); then, in the order of their numbers, what
//! types refer to ([`references`]). Both take time and memory in proportion to the types: names are read up to
//! [`LONGEST`] bytes, and each type is resolved once.

mod references;
mod sections;

pub use sections::check_sections;

use crate::btf::Btf;
use crate::header::u32_at;
use crate::types::{Kind, Type};
use std::borrow::Cow;
use std::fmt;

/// The most bytes of a name.
const LONGEST: usize = 512;
/// Bits of a type's second word that mean nothing: all but the count, the kind and the flag.
const MEANINGLESS: u32 = 0x60ff_0000;
/// The most bits of an integer.
const MOST_BITS: u32 = 128;

/// What is wrong with a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number; 0 for types as a whole.
    pub id: u32,
    /// Its kind.
    pub kind: Kind,
    /// What is wrong, in Linux's words.
    pub reason: Cow<'static, str>,
    /// How grave.
    pub fault: CheckFault,
}

/// The kind of a [`Malformed`] type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFault {
    /// It breaks a rule.
    Invalid,
    /// An integer's encoding that nobody knows.
    Encoding,
    /// It is made of itself.
    Endless,
    /// It refers to a type that refers to a type, too many times.
    Deep,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            0 => f.write_str(&self.reason),
            id => write!(f, "[{id}] {} {}", self.kind.name(), self.reason),
        }
    }
}

impl std::error::Error for Malformed {}

type Checked = Result<(), Malformed>;

impl Btf {
    /// Whether its own types are well-formed, as Linux demands it of types that a process loads.
    ///
    /// # Errors
    ///
    /// The first type that is not, and why.
    pub fn check(&self) -> Checked {
        let strings = self.own_strings();
        if strings.first() != Some(&0) || strings.last() != Some(&0) {
            return Err(whole("Invalid string section"));
        }
        if self.own_types().next().is_none() {
            return Err(whole("No type found"));
        }
        for ty in self.own_types() {
            alone(&ty)?;
        }
        references::check(self)
    }
}

fn whole(reason: &'static str) -> Malformed {
    Malformed { id: 0, kind: Kind::Void, reason: reason.into(), fault: CheckFault::Invalid }
}

/// An error about a type.
fn of(ty: &Type<'_>, reason: impl Into<Cow<'static, str>>) -> Malformed {
    Malformed { id: ty.id, kind: ty.kind, reason: reason.into(), fault: CheckFault::Invalid }
}

/// An error unless something holds.
fn hold(holds: bool, ty: &Type<'_>, reason: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(of(ty, reason)) }
}

/// What names a kind of types has.
enum Naming {
    /// None.
    Never,
    /// Perhaps one, of any bytes: `long long`.
    Any,
    /// Perhaps an identifier.
    Perhaps,
    /// An identifier.
    Always,
    /// Some text.
    Text,
    /// The name of a section.
    Section,
}

fn naming(kind: Kind) -> Naming {
    match kind {
        Kind::Void
        | Kind::Ptr
        | Kind::Array
        | Kind::Volatile
        | Kind::Const
        | Kind::Restrict
        | Kind::FuncProto => Naming::Never,
        Kind::Int | Kind::Float => Naming::Any,
        Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => Naming::Perhaps,
        Kind::Fwd | Kind::Typedef | Kind::Func | Kind::Var => Naming::Always,
        Kind::TypeTag | Kind::DeclTag => Naming::Text,
        Kind::Datasec => Naming::Section,
    }
}

/// The rules about a type alone.
fn alone(ty: &Type<'_>) -> Checked {
    let invalid = |holds: bool, reason: &'static str| hold(holds, ty, reason);
    let info = ty.btf.record(ty.id).map_or(u32::MAX, |record| u32_at(record, 4));
    invalid(info & MEANINGLESS == 0, "Invalid btf_info")?;
    let name = name(ty.btf, ty.name_at).ok_or_else(|| of(ty, "Invalid name_offset"))?;
    let flagged = ty.kind.is_composite() || ty.kind.is_enum() || ty.kind == Kind::Fwd;
    invalid(!ty.flag || flagged, "Invalid btf_info kind_flag")?;
    let counted = ty.kind.is_composite()
        || ty.kind.is_enum()
        || matches!(ty.kind, Kind::Func | Kind::FuncProto | Kind::Datasec);
    invalid(ty.count == 0 || counted, "vlen != 0")?;
    invalid(ty.kind != Kind::Fwd || ty.word == 0, "type != 0")?;
    invalid(ty.kind != Kind::DeclTag || !name.is_empty(), "Invalid value")?;
    let named = match naming(ty.kind) {
        Naming::Never => name.is_empty(),
        Naming::Any => true,
        Naming::Perhaps => name.is_empty() || is_identifier(name),
        Naming::Always => is_identifier(name),
        Naming::Text => !name.is_empty(),
        Naming::Section => is_section(name),
    };
    invalid(named, "Invalid name")?;
    match ty.kind {
        Kind::Int => integer(ty),
        Kind::Array => {
            invalid(ty.word == 0, "size != 0")?;
            invalid(u32_at(ty.tail, 0) != 0, "Invalid elem")?;
            invalid(u32_at(ty.tail, 4) != 0, "Invalid index")
        }
        Kind::Struct | Kind::Union => members(ty),
        Kind::Enum | Kind::Enum64 => {
            invalid(matches!(ty.word, 1 | 2 | 4 | 8), "Unexpected size")?;
            let mut names = ty.enumerators().map(|value| value.name_at);
            invalid(names.all(|at| ty_name(ty, at).is_some_and(is_identifier)), "Invalid name")
        }
        Kind::Func => invalid(ty.count <= 1, "Invalid func linkage"),
        Kind::Var => {
            invalid(ty.word != 0, "Invalid type_id")?;
            invalid(u32_at(ty.tail, 0) <= 1, "Linkage not supported")
        }
        Kind::Datasec => section(ty),
        Kind::Float => invalid(matches!(ty.word, 2 | 4 | 8 | 12 | 16), "Invalid type_size"),
        _ => Ok(()),
    }
}

fn integer(ty: &Type<'_>) -> Checked {
    let word = u32_at(ty.tail, 0);
    hold(word >> 28 == 0, ty, "Invalid int_data")?;
    let bits = (word & 0xff) + (word >> 16 & 0xff);
    hold(bits <= MOST_BITS, ty, "nr_bits exceeds 128")?;
    hold(bits.div_ceil(8) <= ty.word, ty, "nr_bits exceeds type_size")?;
    // Signed, a character, a truth value: one of them or none.
    match word >> 24 {
        0 | 1 | 2 | 4 => Ok(()),
        _ => Err(Malformed { fault: CheckFault::Encoding, ..of(ty, "Unsupported encoding") }),
    }
}

fn members(ty: &Type<'_>) -> Checked {
    let mut last = 0;
    for member in ty.members() {
        let name = ty_name(ty, member.name_at).ok_or_else(|| of(ty, "Invalid member name_offset"))?;
        hold(name.is_empty() || is_identifier(name), ty, "Invalid name")?;
        hold(member.ty != 0, ty, "Invalid type_id")?;
        let first = ty.kind == Kind::Struct || member.bit_offset == 0;
        hold(first && member.bit_offset >= last, ty, "Invalid member bits_offset")?;
        hold(member.bit_offset.div_ceil(8) <= ty.word, ty, "Member bits_offset exceeds its struct size")?;
        last = member.bit_offset;
    }
    Ok(())
}

/// Variables in the order of their offsets, each within the section.
fn section(ty: &Type<'_>) -> Checked {
    hold(ty.word != 0, ty, "size == 0")?;
    let mut end = 0_u64;
    for entry in ty.tail.as_chunks::<12>().0 {
        let [var, offset, size] = [0, 4, 8].map(|at| u32_at(entry, at));
        hold(var != 0, ty, "Invalid type_id")?;
        hold(u64::from(offset) >= end && offset < ty.word, ty, "Invalid offset")?;
        hold(size != 0 && size <= ty.word, ty, "Invalid size")?;
        end = u64::from(offset) + u64::from(size);
        hold(end <= ty.word.into(), ty, "Invalid offset+size")?;
    }
    Ok(())
}

/// A name that a type has in it.
fn ty_name<'a>(ty: &Type<'a>, at: u32) -> Option<&'a [u8]> {
    name(ty.btf, at)
}

/// The bytes of a name, one more than it may have at most; `None` if there is no such string.
fn name(btf: &Btf, at: u32) -> Option<&[u8]> {
    let rest = btf.bytes_of_string(at).filter(|rest| !rest.is_empty())?;
    let window = &rest[..rest.len().min(LONGEST + 1)];
    Some(window.iter().position(|byte| *byte == 0).map_or(window, |end| &window[..end]))
}

fn is_identifier(name: &[u8]) -> bool {
    let begins = name.first().is_some_and(|first| !first.is_ascii_digit());
    let rest = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    begins && name.len() <= LONGEST && name.iter().all(rest)
}

/// Bytes that can be printed, in the kernel's 8-bit alphabet.
fn is_section(name: &[u8]) -> bool {
    let printable = |byte: &u8| matches!(byte, 0x20..=0x7e | 0xa0..);
    !name.is_empty() && name.len() <= LONGEST && name.iter().all(printable)
}
