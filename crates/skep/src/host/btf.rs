//! The types of a host's context in BTF, by "BPF Type Format" of Linux's documentation.
//!
//! `const` and pointers say what programs may do, as in the C header; what C cannot say is in tags:
//!
//! ```text
//!   struct http_request             tags context=SECTION and, if there are verdicts, verdict=ENUM:deny=1,...
//!     const __u32 method            a number that is read
//!     __u32 priority                a number that may be written
//!     const __u8 *path, *path_end   a slice
//!     const __u8 (*key)[32]         a pointer to that many bytes
//!     struct tls *tls               tag nullable if it may be null
//! ```
//!
//! [`describe`] is the inverse of [`types`]: a test holds them together.

use super::describe::{FieldType, StructType};
use super::layout::{HostType, VerdictType, offsets};
use crate::error::Error;
use skep_btf::{Btf, Kind};
use skep_isa::Size;
use std::collections::HashMap;

/// The prefix of all tags.
const TAG: &str = "skep:";
const CONTEXT: &str = "skep:context=";
const VERDICT: &str = "skep:verdict=";
pub(super) const NULLABLE: &str = "skep:nullable";
/// The deepest structure that is read back.
const MAX_DEPTH: usize = 8;

impl HostType {
    /// The program type that BTF describes: that of [`HostType::btf`], or of an object that includes the header which
    /// [`HostType::header`] makes. For tools that verify programs of a host that they are not. The file is trusted to
    /// describe a host: a program that brought its own would be verified for a host that does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::HostType`] if it describes no context, several, or one that cannot be.
    pub fn from_btf(btf: &Btf) -> Result<&'static Self, Error> {
        let fail = |why: String| Error::HostType { name: "in the BTF".to_owned(), why };
        let (context, section, verdict) = describe(btf).map_err(fail)?;
        Self::new(context, &section, verdict)
    }
}

/// Types in the making.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
    /// Types that are made once, by their own bytes.
    known: HashMap<Vec<u8>, u32>,
    structs: Vec<(StructType, u32)>,
}

/// The bytes of the types.
pub(super) fn types(context: &StructType, section: &str, verdict: &VerdictType) -> Vec<u8> {
    let mut writer = Writer { strings: vec![0], ..Writer::default() };
    let root = writer.structure(context);
    writer.tag(root, None, &format!("{CONTEXT}{section}"));
    if !verdict.values.is_empty() {
        writer.enumeration(verdict);
        writer.tag(root, None, &verdict_tag(verdict));
    }
    writer.finish()
}

impl Writer {
    fn string(&mut self, text: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    /// A type: its number.
    fn add(&mut self, words: &[u32]) -> u32 {
        self.types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self.count += 1;
        self.count
    }

    /// A type of which one is enough.
    fn once(&mut self, key: String, words: impl FnOnce(&mut Self) -> Vec<u32>) -> u32 {
        if let Some(known) = self.known.get(key.as_bytes()) {
            return *known;
        }
        let words = words(self);
        let id = self.add(&words);
        self.known.insert(key.into_bytes(), id);
        id
    }

    fn int(&mut self, size: Size, signed: bool) -> u32 {
        let name = format!("__{}{}", if signed { 's' } else { 'u' }, 8 * size.bytes());
        self.once(name.clone(), |writer| {
            let encoding = u32::from(signed) << 24;
            vec![writer.string(&name), 1 << 24, size.bytes(), encoding | (8 * size.bytes())]
        })
    }

    fn array(&mut self, of: u32, count: u32) -> u32 {
        let index = self.int(Size::B4, false);
        self.once(format!("array {of} {count}"), |_| vec![0, 3 << 24, 0, of, index, count])
    }

    fn constant(&mut self, of: u32) -> u32 {
        self.once(format!("const {of}"), |_| vec![0, 10 << 24, of])
    }

    fn constant_unless(&mut self, writable: bool, of: u32) -> u32 {
        if writable { of } else { self.constant(of) }
    }

    fn pointer(&mut self, to: u32) -> u32 {
        self.once(format!("pointer {to}"), |_| vec![0, 2 << 24, to])
    }

    fn tag(&mut self, of: u32, member: Option<u32>, text: &str) {
        let name = self.string(text);
        self.add(&[name, 17 << 24, of, member.unwrap_or(u32::MAX)]);
    }

    fn structure(&mut self, of: &StructType) -> u32 {
        if let Some((_, id)) = self.structs.iter().find(|(known, _)| known == of) {
            return *id;
        }
        let (places, size) = offsets(of).unwrap_or_default();
        let (mut members, mut nullable) = (Vec::new(), Vec::new());
        for ((name, kind), offset) in of.fields.iter().zip(places) {
            let (ty, may_be_null) = self.member(kind);
            if may_be_null {
                nullable.push(members.len() as u32);
            }
            members.push((name.clone(), ty, offset));
            if matches!(kind, FieldType::Slice { .. }) {
                members.push((format!("{name}_end"), ty, offset + 8));
            }
        }
        let mut words = vec![self.string(&of.name), 4 << 24 | members.len() as u32, size];
        for (name, ty, offset) in members {
            words.extend([self.string(&name), ty, 8 * offset]);
        }
        let id = self.add(&words);
        for member in nullable {
            self.tag(id, Some(member), NULLABLE);
        }
        self.structs.push((of.clone(), id));
        id
    }

    /// The type of a field, and whether it may be null.
    fn member(&mut self, kind: &FieldType) -> (u32, bool) {
        match *kind {
            FieldType::Number { size, signed, writable } => {
                let int = self.int(size, signed);
                (self.constant_unless(writable, int), false)
            }
            FieldType::Numbers { size, signed, count, writable } => {
                let int = self.int(size, signed);
                let element = self.constant_unless(writable, int);
                (self.array(element, count), false)
            }
            FieldType::Slice { writable } => {
                let int = self.int(Size::B1, false);
                let byte = self.constant_unless(writable, int);
                (self.pointer(byte), false)
            }
            FieldType::Bytes { bytes, writable, nullable } => {
                let int = self.int(Size::B1, false);
                let byte = self.constant_unless(writable, int);
                let array = self.array(byte, bytes);
                (self.pointer(array), nullable)
            }
            FieldType::Struct { ref of, writable, nullable } => {
                let structure = self.structure(of);
                let to = self.constant_unless(writable, structure);
                (self.pointer(to), nullable)
            }
        }
    }

    fn enumeration(&mut self, verdict: &VerdictType) {
        let signed = u32::from(verdict.values.iter().any(|(_, value)| *value < 0)) << 31;
        let name = self.string(&verdict.name);
        let mut words = vec![name, signed | 6 << 24 | verdict.values.len() as u32, 4];
        for (name, value) in &verdict.values {
            words.extend([self.string(&enumerator(verdict, name)), value.cast_unsigned()]);
        }
        self.add(&words);
    }

    fn finish(self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend([24, 0, types, types, strings].iter().flat_map(|word: &u32| word.to_ne_bytes()));
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}

/// The name of a verdict in C: `HTTP_DENY` of `deny` in `http`.
pub(super) fn enumerator(verdict: &VerdictType, name: &str) -> String {
    format!("{}_{}", verdict.name, name).to_uppercase()
}

/// The description that [`types`] has written.
fn describe(btf: &Btf) -> Result<(StructType, String, VerdictType), String> {
    let mut found = None;
    for ty in btf.own_types().filter(|ty| ty.kind == Kind::Struct) {
        let tags: Vec<_> = btf.decl_tags(ty.id).filter(|tag| tag.component.is_none()).collect();
        let value = |prefix: &str| tags.iter().find_map(|tag| tag.name.strip_prefix(prefix));
        let Some(section) = value(CONTEXT) else { continue };
        let verdict = match value(VERDICT) {
            Some(text) => read_verdict(text)?,
            None => VerdictType::default(),
        };
        if found.is_some() {
            return Err("it describes several contexts; take the header of one".to_owned());
        }
        found = Some((ty.id, section.to_owned(), verdict));
    }
    let (root, section, verdict) = found.ok_or(format!(
        "no structure has the tag {TAG}context=SECTION; take what `skep header` or HostType::btf gives"
    ))?;
    let context = Reader { btf }.structure(root, 0).map_err(|Fault(why)| why)?;
    Ok((context, section, verdict))
}

/// The verdicts of a tag: `http:allow=0,deny=1`.
fn read_verdict(text: &str) -> Result<VerdictType, String> {
    let wrong = || format!("the tag {VERDICT}{text} is not of the form NAME:VERDICT=NUMBER,...");
    let (name, list) = text.split_once(':').ok_or_else(wrong)?;
    let value = |item: &str| {
        let (name, number) = item.split_once('=')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    let values = list.split(',').map(value).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    Ok(VerdictType { name: name.to_owned(), values })
}

/// What [`read_verdict`] reads.
pub(super) fn verdict_tag(verdict: &VerdictType) -> String {
    let values: Vec<_> = verdict.values.iter().map(|(name, number)| format!("{name}={number}")).collect();
    format!("{VERDICT}{}:{}", verdict.name, values.join(","))
}

struct Reader<'a> {
    btf: &'a Btf,
}

/// Why a structure is none of a context's.
struct Fault(String);

impl From<skep_btf::Error> for Fault {
    fn from(error: skep_btf::Error) -> Self {
        Self(error.to_string())
    }
}

impl Reader<'_> {
    fn structure(&self, id: u32, depth: usize) -> Result<StructType, Fault> {
        let ty = self.btf.ty(id)?;
        let mut of = StructType::new(ty.name()?);
        if depth > MAX_DEPTH {
            return Ok(StructType { endless: true, ..of });
        }
        let mut places = Vec::new();
        let mut members = ty.members().enumerate().peekable();
        while let Some((index, member)) = members.next() {
            let name = member.name()?;
            let nullable =
                self.btf.decl_tags(id).any(|tag| tag.component == Some(index as u32) && tag.name == NULLABLE);
            let end = format!("{name}_end");
            let next_is_end = match members.peek() {
                Some((_, next)) => next.name()? == end,
                None => false,
            };
            let Some(kind) = self.member(member.ty, nullable, next_is_end, depth)? else {
                let text = format!("the field {name} of struct {} is nothing that a host can lend", of.name);
                return Err(Fault(text));
            };
            places.push((member.bit_offset, member.bits));
            if matches!(kind, FieldType::Slice { .. }) {
                members.next();
            }
            of = of.field(name, kind);
        }
        let expected = offsets(&of).map_err(Fault)?.0;
        if !expected.iter().map(|at| (8 * at, 0)).eq(places) {
            return Err(Fault(format!("struct {} is packed, or has bit fields or extra alignment", of.name)));
        }
        Ok(of)
    }

    /// The same without modifiers, and whether one of them is `const`.
    fn plain(&self, mut id: u32) -> Result<(u32, bool), skep_btf::Error> {
        let mut constant = false;
        // No chain of modifiers is longer than the types.
        for _ in 0..=self.btf.len() {
            let ty = self.btf.ty(id)?;
            if !ty.kind.is_modifier() {
                break;
            }
            constant |= ty.kind == Kind::Const;
            id = ty.target();
        }
        Ok((id, constant))
    }

    fn number(&self, id: u32) -> Result<Option<(Size, bool)>, skep_btf::Error> {
        let ty = self.btf.ty(id)?;
        let size = ty.size().filter(|_| ty.kind == Kind::Int).and_then(Size::from_bytes);
        Ok(size.map(|size| (size, ty.int().is_some_and(|int| int.signed))))
    }

    fn member(
        &self,
        id: u32,
        nullable: bool,
        next_is_end: bool,
        depth: usize,
    ) -> Result<Option<FieldType>, Fault> {
        let (plain, constant) = self.plain(id)?;
        if let Some((size, signed)) = self.number(plain)? {
            return Ok(Some(FieldType::Number { size, signed, writable: !constant }));
        }
        let ty = self.btf.ty(plain)?;
        if let Some(array) = ty.array() {
            let (element, inner) = self.plain(array.element)?;
            let writable = !constant && !inner;
            let number = self.number(element)?;
            return Ok(number.map(|(size, signed)| FieldType::Numbers {
                size,
                signed,
                count: array.count,
                writable,
            }));
        }
        if ty.kind != Kind::Ptr {
            return Ok(None);
        }
        let (to, constant) = self.plain(ty.target())?;
        let writable = !constant;
        let target = self.btf.ty(to)?;
        Ok(match target.kind {
            Kind::Int if next_is_end => Some(FieldType::Slice { writable }),
            Kind::Array => {
                let Some(array) = target.array() else { return Ok(None) };
                let (element, inner) = self.plain(array.element)?;
                let bytes = self.number(element)?.is_some_and(|(size, _)| size == Size::B1);
                let writable = writable && !inner;
                bytes.then_some(FieldType::Bytes { bytes: array.count, writable, nullable })
            }
            Kind::Struct => {
                Some(FieldType::Struct { of: self.structure(to, depth + 1)?, writable, nullable })
            }
            _ => None,
        })
    }
}
