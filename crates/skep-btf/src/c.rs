//! Types as a C header that any compiler for BPF reads.
//!
//! C reads from the top, and types refer to one another in any order. So each type is written when it is first needed:
//!
//! ```text
//!   needed by its name    struct behind a pointer         struct peer;
//!   needed by its layout  member, element of an array     struct peer { ... };   and what its members need, first
//!   in its place          types without a name            union { ... } u;
//! ```
//!
//! A type name is written with the name of its target alone, before the target's layout, since that may refer to it.
//!
//! Invariant: sizes, and offsets of members, are the file's. [`layout`] finds where C would place each member,
//! and what must be added so that it places it there. What C cannot say is written as bytes.
//!
//! Nothing here trusts the file: the depth of types in types is limited, and so is the text that types without a name
//! expand to.

mod identifiers;
mod layout;

use crate::btf::{Btf, MAX_CHAIN};
use crate::error::Error;
use crate::names::bind;
use crate::types::{Kind, Type};
use identifiers::Identifiers;
use layout::{Layouts, Part};
use std::collections::HashMap;
use std::fmt::Write;

/// The deepest types in types.
const MAX_DEPTH: u32 = 64;
/// The most bytes of text for each byte of types, beyond [`FREE`].
const GROWTH: usize = 64;
/// A type name that compilers have, each for another type.
const BUILT_IN: &str = "__builtin_va_list";
/// Bytes of text that any file may expand to.
const FREE: usize = 1 << 20;

impl Btf {
    /// The file's own types, and those that they need, as a C header in the form of `vmlinux.h`: accesses to its
    /// structures are relocated (CO-RE) where the program is loaded.
    ///
    /// Names that C does not allow, or that two types have, are changed; flavours (`task_struct___2`) keep those of
    /// structures meaningful to CO-RE.
    ///
    /// ```
    /// use skep_btf::Btf;
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flows.bpf.o");
    /// let types = Btf::parse(std::fs::read(path)?)?;
    /// assert!(types.c_header()?.contains("struct flow_key {\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Endless`] for types that are made of themselves, [`Error::Expands`] for types whose text would be out
    /// of proportion, and those of a damaged file.
    pub fn c_header(&self) -> Result<String, Error> {
        let mut header = Header::new(self);
        let composite = |ty: &Type<'_>| {
            matches!(ty.kind, Kind::Struct | Kind::Union | Kind::Typedef | Kind::Fwd) && !ty.is_anonymous()
        };
        // Types without a name are written where they are used. Enumerators are wanted for themselves, too.
        let named = self.own_types().filter(composite);
        for ty in named.chain(self.own_types().filter(|ty| ty.kind.is_enum())) {
            header.need(ty.id, Need::Layout, 0)?;
        }
        Ok(header.finish())
    }
}

/// What of a type must have been written.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    Name,
    Layout,
}

/// How much of a type with a name has been written.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// `struct peer;`
    Declared,
    /// What its layout needs is being written.
    Open,
    Done,
}

struct Header<'a> {
    btf: &'a Btf,
    text: String,
    states: HashMap<u32, State>,
    identifiers: Identifiers,
    layouts: Layouts<'a>,
}

impl<'a> Header<'a> {
    fn new(btf: &'a Btf) -> Self {
        Self {
            btf,
            text: String::new(),
            states: HashMap::new(),
            identifiers: Identifiers::default(),
            layouts: Layouts::new(btf),
        }
    }

    fn finish(self) -> String {
        format!(
            "#ifndef __SKEP_TYPES_H__\n#define __SKEP_TYPES_H__\n\n\
             #if defined(__clang__) && !defined(BPF_NO_PRESERVE_ACCESS_INDEX)\n\
             #pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)\n\
             #endif\n\n{}\
             #if defined(__clang__) && !defined(BPF_NO_PRESERVE_ACCESS_INDEX)\n\
             #pragma clang attribute pop\n\
             #endif\n\n#endif\n",
            self.text
        )
    }

    /// Writes what must precede a use of the type.
    fn need(&mut self, id: u32, how: Need, depth: u32) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::Endless { id });
        }
        let ty = self.btf.ty(id)?;
        let depth = depth + 1;
        match ty.kind {
            Kind::Typedef if ty.name()? == BUILT_IN => Ok(()),
            Kind::Typedef => {
                if !self.states.contains_key(&id) {
                    self.states.insert(id, State::Open);
                    self.need(ty.target(), Need::Name, depth)?;
                    let name = self.identifiers.ordinary(id, ty.name()?);
                    let definition = self.declaration(ty.target(), name, 0, depth)?;
                    self.write(id, &format!("typedef {definition};\n\n"))?;
                    self.states.insert(id, State::Done);
                } else if self.states[&id] == State::Open {
                    return Err(Error::Endless { id });
                }
                match how {
                    Need::Name => Ok(()),
                    Need::Layout => self.need(ty.target(), how, depth),
                }
            }
            Kind::Ptr | Kind::Func => self.need(ty.target(), Need::Name, depth),
            Kind::Array => self.need(element(ty)?, Need::Layout, depth),
            Kind::FuncProto => {
                self.need(ty.target(), Need::Name, depth)?;
                ty.params().try_for_each(|param| self.need(param.ty, Need::Name, depth))
            }
            Kind::Fwd if ty.is_anonymous() => Ok(()),
            Kind::Fwd => self.declare(ty),
            Kind::Enum | Kind::Enum64 if ty.is_anonymous() => match how {
                // Where a member or type name has it, it is written there.
                Need::Layout if depth == 1 && !self.states.contains_key(&id) => {
                    let body = self.enumeration(ty, 0)?;
                    self.write(id, &format!("{body};\n\n"))
                }
                _ => Ok(()),
            },
            Kind::Enum | Kind::Enum64 => {
                if self.states.insert(id, State::Done).is_none() {
                    let body = self.enumeration(ty, 0)?;
                    self.write(id, &format!("{body};\n\n"))?;
                }
                Ok(())
            }
            Kind::Struct | Kind::Union if ty.is_anonymous() => match self.states.insert(id, State::Open) {
                Some(State::Open) => Err(Error::Endless { id }),
                known => {
                    if known.is_none() {
                        ty.members().try_for_each(|member| self.need(member.ty, Need::Layout, depth))?;
                    }
                    self.states.insert(id, State::Done);
                    Ok(())
                }
            },
            Kind::Struct | Kind::Union => match (how, self.states.get(&id)) {
                (_, Some(State::Done)) | (Need::Name, Some(State::Declared)) => Ok(()),
                (Need::Layout, Some(State::Open)) => Err(Error::Endless { id }),
                // Its layout follows; a second declaration does not harm.
                (Need::Name, _) => self.declare(ty),
                (Need::Layout, _) => {
                    self.states.insert(id, State::Open);
                    ty.members().try_for_each(|member| self.need(member.ty, Need::Layout, depth))?;
                    let body = self.composite(ty, 0, depth)?;
                    self.write(id, &format!("{body};\n\n"))?;
                    self.states.insert(id, State::Done);
                    Ok(())
                }
            },
            kind if kind.is_modifier() => self.need(ty.target(), how, depth),
            _ => Ok(()),
        }
    }

    fn declare(&mut self, ty: Type<'_>) -> Result<(), Error> {
        let head = self.head(ty)?;
        if self.identifiers.declare(&head) {
            self.write(ty.id, &format!("{head};\n\n"))?;
        }
        self.states.entry(ty.id).or_insert(State::Declared);
        Ok(())
    }

    fn write(&mut self, id: u32, text: &str) -> Result<(), Error> {
        self.text.push_str(text);
        self.within_bounds(id, 0)
    }

    fn within_bounds(&self, id: u32, more: usize) -> Result<(), Error> {
        let most = FREE + GROWTH * self.btf.bytes().len();
        if self.text.len() + more > most { Err(Error::Expands { id }) } else { Ok(()) }
    }

    /// `struct peer`
    fn head(&mut self, ty: Type<'_>) -> Result<String, Error> {
        let word = match ty.kind {
            Kind::Union => "union",
            Kind::Enum | Kind::Enum64 => "enum",
            _ if ty.is_union_declaration() => "union",
            _ => "struct",
        };
        if ty.is_anonymous() {
            return Ok(word.to_owned());
        }
        let name = match ty.kind {
            Kind::Fwd => Identifiers::allowed(ty.name()?),
            _ => self.identifiers.tag(ty.id, ty.name()?),
        };
        Ok(format!("{word} {name}"))
    }

    /// A declaration of `declarator`, which grows to both sides while the chain of types is walked.
    fn declaration(
        &mut self,
        id: u32,
        mut declarator: String,
        indent: usize,
        depth: u32,
    ) -> Result<String, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::Endless { id });
        }
        let mut at = id;
        let mut qualifiers = String::new();
        for _ in 0..MAX_CHAIN {
            let ty = self.btf.ty(at)?;
            at = ty.target();
            match ty.kind {
                // Of an array and of its elements is the same.
                Kind::Const if qualifiers.contains("const") => {}
                Kind::Volatile if qualifiers.contains("volatile") => {}
                Kind::Const => qualifiers.push_str("const "),
                Kind::Volatile => qualifiers.push_str("volatile "),
                // C allows it only for pointers, and it changes no layout.
                Kind::Restrict | Kind::TypeTag => {}
                Kind::Ptr => {
                    declarator = format!("*{}{declarator}", std::mem::take(&mut qualifiers));
                }
                Kind::Array => {
                    let array = ty.array().ok_or(Error::Unsized { id: ty.id })?;
                    bind(&mut declarator);
                    let _ = write!(declarator, "[{}]", array.count);
                    at = array.element;
                }
                Kind::FuncProto => {
                    bind(&mut declarator);
                    declarator.push_str(&self.parameters(ty, depth)?);
                    qualifiers.clear();
                }
                _ => {
                    let base = self.base(ty, indent, depth)?;
                    let space = if declarator.is_empty() { "" } else { " " };
                    return Ok(format!("{qualifiers}{base}{space}{declarator}"));
                }
            }
        }
        Err(Error::Endless { id })
    }

    fn parameters(&mut self, ty: Type<'_>, depth: u32) -> Result<String, Error> {
        let mut parameters = Vec::new();
        for param in ty.params() {
            parameters.push(match param.ty {
                0 => "...".to_owned(),
                // Names are for people, and may be none of C's.
                ty => self.declaration(ty, String::new(), 0, depth + 1)?,
            });
        }
        Ok(match parameters.as_slice() {
            [] => "(void)".to_owned(),
            // Before C23 there is no prototype with `...` alone.
            [only] if only == "..." => "()".to_owned(),
            all => format!("({})", all.join(", ")),
        })
    }

    /// The type at the end of a chain.
    fn base(&mut self, ty: Type<'_>, indent: usize, depth: u32) -> Result<String, Error> {
        Ok(match ty.kind {
            Kind::Void => "void".to_owned(),
            Kind::Int => identifiers::integer(ty)?,
            Kind::Float => identifiers::float(ty).to_owned(),
            Kind::Typedef => self.identifiers.ordinary(ty.id, ty.name()?),
            Kind::Struct | Kind::Union if ty.is_anonymous() => self.composite(ty, indent, depth + 1)?,
            // Enumerators are declared once.
            Kind::Enum | Kind::Enum64 if ty.is_anonymous() => match self.states.contains_key(&ty.id) {
                true => identifiers::number(ty.size().unwrap_or(4), ty.is_signed()).to_owned(),
                false => self.enumeration(ty, indent)?,
            },
            // A part of a system's types may have lost it.
            Kind::Fwd if ty.is_anonymous() => format!("{} {{}}", self.head(ty)?),
            Kind::Struct | Kind::Union | Kind::Fwd | Kind::Enum | Kind::Enum64 => self.head(ty)?,
            _ => return Err(Error::WrongKind { id: ty.id, expected: "type of an object" }),
        })
    }

    fn enumeration(&mut self, ty: Type<'_>, indent: usize) -> Result<String, Error> {
        self.states.insert(ty.id, State::Done);
        let mut text = format!("{} {{\n", self.head(ty)?);
        for (index, enumerator) in ty.enumerators().enumerate() {
            let name = self.identifiers.enumerator(ty.id, index, enumerator.name()?);
            let value = enumerator.value;
            let _ = match ty.is_signed() {
                // There is no literal of the smallest number.
                true if value == 1 << 63 => {
                    writeln!(text, "{}{name} = -9223372036854775807LL - 1,", tabs(indent + 1))
                }
                true => writeln!(text, "{}{name} = {}{},", tabs(indent + 1), value.cast_signed(), long(ty)),
                false => writeln!(text, "{}{name} = {value}{},", tabs(indent + 1), unsigned(ty)),
            };
        }
        let mode = match ty.size() {
            Some(1) => " __attribute__((mode(byte)))",
            Some(2) => " __attribute__((mode(HI)))",
            Some(8) => " __attribute__((mode(DI)))",
            _ => "",
        };
        let _ = write!(text, "{}}}{mode}", tabs(indent));
        Ok(text)
    }

    fn composite(&mut self, ty: Type<'_>, indent: usize, depth: u32) -> Result<String, Error> {
        let head = self.head(ty)?;
        self.identifiers.declare(&head);
        let mut text = format!("{head} {{\n");
        let layout = self.layouts.of(ty)?;
        for part in &layout.parts {
            let line = match *part {
                Part::Member(index) => {
                    let Some(member) = ty.member(index) else { continue };
                    let name = Identifiers::allowed(member.name()?);
                    let line = self.declaration(member.ty, name, indent + 1, depth)?;
                    if member.bits > 0 { format!("{line} : {}", member.bits) } else { line }
                }
                Part::PaddingBits(bits) => format!("unsigned char : {bits}"),
                Part::PaddingBytes { at, bytes } => format!("unsigned char __padding_{at}[{bytes}]"),
                Part::Opaque(bytes) => format!("unsigned char __bytes[{bytes}]"),
            };
            let _ = writeln!(text, "{}{line};", tabs(indent + 1));
            self.within_bounds(ty.id, text.len())?;
        }
        let packed = if layout.packed { " __attribute__((packed))" } else { "" };
        let _ = write!(text, "{}}}{packed}", tabs(indent));
        Ok(text)
    }
}

fn element(ty: Type<'_>) -> Result<u32, Error> {
    Ok(ty.array().ok_or(Error::Unsized { id: ty.id })?.element)
}

fn tabs(count: usize) -> String {
    "\t".repeat(count)
}

fn long(ty: Type<'_>) -> &'static str {
    if ty.kind == Kind::Enum64 { "LL" } else { "" }
}

fn unsigned(ty: Type<'_>) -> &'static str {
    if ty.kind == Kind::Enum64 { "ULL" } else { "" }
}
