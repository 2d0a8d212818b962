//! An object's types as plain structures: numbers, arrays and structures at known offsets, without padding.
//!
//! Any bytes are a value of such a structure. So truth values, characters, enumerations and pointers are numbers; bit
//! fields and unions are bytes; padding is a member. Each structure of the object is looked at once.

use crate::failure::Failure;
use skep_btf::{Btf, Kind, Member, Type};
use std::collections::HashMap;

/// The most structures and arrays inside each other.
const MAX_DEPTH: u32 = 32;
/// The most members of all structures together.
const MAX_MEMBERS: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    Int {
        bytes: u32,
        signed: bool,
    },
    Float {
        bytes: u32,
    },
    Array(Box<Ty>, u32),
    /// The index of a structure.
    Struct(usize),
}

/// A structure.
#[derive(Debug)]
pub(super) struct Struct {
    /// Its name in the object; made up where it has none.
    pub(super) name: String,
    pub(super) members: Vec<Field>,
    pub(super) size: u32,
    pub(super) align: u32,
    /// Members are not at multiples of their alignment.
    pub(super) packed: bool,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Ty,
    /// It is a member of the object's structure, with that name.
    pub(super) own: bool,
}

/// An enumeration: its name, its values, whether they are signed, and how many bytes they have.
type Enum = (String, Vec<(String, u64)>, bool, u32);

pub(super) struct Types<'a> {
    btf: Option<&'a Btf>,
    pub(super) structs: Vec<Struct>,
    known: HashMap<u32, usize>,
    /// Enumerations that members have.
    pub(super) enums: Vec<Enum>,
    members: usize,
}

impl<'a> Types<'a> {
    pub(super) fn new(btf: Option<&'a Btf>) -> Self {
        Self { btf, structs: Vec::new(), known: HashMap::new(), enums: Vec::new(), members: 0 }
    }

    /// A type of that size; bytes where the object does not say it.
    pub(super) fn of(&mut self, id: Option<u32>, size: u32) -> Result<Ty, Failure> {
        match self.btf.zip(id).filter(|(btf, id)| btf.size(*id) == Ok(size)) {
            Some((btf, id)) => self.convert(btf, id, size, "", 0),
            None => Ok(bytes(size)),
        }
    }

    /// The type of a variable.
    pub(super) fn variable(&mut self, name: &str, size: usize) -> Result<Ty, Failure> {
        let ty = self.btf.and_then(|btf| btf.variable(name));
        // Sections are shorter than 2^32 bytes.
        self.of(ty, size as u32)
    }

    fn convert(&mut self, btf: &'a Btf, id: u32, size: u32, place: &str, depth: u32) -> Result<Ty, Failure> {
        if depth > MAX_DEPTH || self.members > MAX_MEMBERS {
            return Err(Failure::Refused(
                "the object's types have too many structures inside each other".to_owned(),
            ));
        }
        let Ok(ty) = btf.resolve(id) else { return Ok(bytes(size)) };
        Ok(match ty.kind {
            Kind::Int if ty.int().is_some_and(|int| int.is_bool || int.is_char) => bytes_or_one(size),
            Kind::Int if size == 1 && ty.name() == Ok("char") => bytes_or_one(size),
            Kind::Int if size <= 8 => Ty::Int { bytes: size, signed: ty.is_signed() },
            Kind::Enum | Kind::Enum64 => {
                self.keep_enum(&ty);
                Ty::Int { bytes: size, signed: ty.is_signed() }
            }
            Kind::Ptr => Ty::Int { bytes: 8, signed: false },
            Kind::Float if matches!(size, 4 | 8) => Ty::Float { bytes: size },
            Kind::Array => {
                let Some(array) = ty.array() else { return Ok(bytes(size)) };
                let each = btf.size(array.element).unwrap_or(0);
                if each == 0 || u64::from(each) * u64::from(array.count) != u64::from(size) {
                    return Ok(bytes(size));
                }
                Ty::Array(Box::new(self.convert(btf, array.element, each, place, depth + 1)?), array.count)
            }
            Kind::Struct if size > 0 => Ty::Struct(self.structure(btf, &ty, size, place, depth)?),
            _ => bytes(size),
        })
    }

    fn structure(
        &mut self,
        btf: &'a Btf,
        ty: &Type<'a>,
        size: u32,
        place: &str,
        depth: u32,
    ) -> Result<usize, Failure> {
        if let Some(known) = self.known.get(&ty.id) {
            return Ok(*known);
        }
        let own = ty.name().unwrap_or("");
        let name = if super::is_identifier(own) {
            own.to_owned()
        } else {
            format!("{place}_{}", self.structs.len())
        };
        let mut members = Vec::new();
        let mut end = 0u32;
        for member in ty.members() {
            self.members += 1;
            let bit_field = member.bits > 0;
            let len = if bit_field { 0 } else { btf.size(member.ty).unwrap_or(0) };
            let at = member.bit_offset / 8;
            if bit_field || len == 0 || at < end || at.checked_add(len).is_none_or(|end| end > size) {
                continue; // its bytes are told as others
            }
            pad(&mut members, end, at, ty);
            let (member_name, own) = named(&member, at);
            let place = format!("{name}_{member_name}");
            let ty = self.convert(btf, member.ty, len, &place, depth + 1)?;
            members.push(Field { name: member_name, ty, own });
            end = at + len;
        }
        pad(&mut members, end, size, ty);
        let (align, packed) = self.layout(&members, size);
        let name = self.unused(name);
        self.structs.push(Struct { name, members, size, align, packed });
        let index = self.structs.len() - 1;
        self.known.insert(ty.id, index);
        Ok(index)
    }

    /// The alignment of a structure with these members one after another, or that it must be packed.
    fn layout(&self, members: &[Field], size: u32) -> (u32, bool) {
        let mut at = 0u32;
        let mut most = 1;
        let mut aligned = true;
        for member in members {
            let align = self.align(&member.ty);
            aligned &= at.is_multiple_of(align);
            most = most.max(align);
            at += self.size(&member.ty);
        }
        if aligned && size.is_multiple_of(most) { (most, false) } else { (1, true) }
    }

    pub(super) fn size(&self, ty: &Ty) -> u32 {
        match ty {
            Ty::Int { bytes, .. } | Ty::Float { bytes } => *bytes,
            Ty::Array(element, count) => self.size(element) * count,
            Ty::Struct(index) => self.structs[*index].size,
        }
    }

    fn align(&self, ty: &Ty) -> u32 {
        match ty {
            Ty::Int { bytes, .. } | Ty::Float { bytes } => *bytes,
            Ty::Array(element, _) => self.align(element),
            Ty::Struct(index) => self.structs[*index].align,
        }
    }

    fn unused(&self, name: String) -> String {
        let taken = |name: &str| self.structs.iter().any(|one| one.name == name);
        if !taken(&name) {
            return name;
        }
        (2..).map(|number| format!("{name}_{number}")).find(|name| !taken(name)).unwrap_or(name)
    }

    fn keep_enum(&mut self, ty: &Type<'_>) {
        let Ok(name) = ty.name() else { return };
        if !super::is_identifier(name) || self.enums.iter().any(|(known, ..)| known == name) {
            return;
        }
        let values = ty.enumerators().filter_map(|one| Some((one.name().ok()?.to_owned(), one.value)));
        let values = values.filter(|(name, _)| super::is_identifier(name)).take(4096).collect();
        let bytes = ty.size().filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(8);
        self.enums.push((name.to_owned(), values, ty.is_signed(), bytes));
    }
}

pub(super) fn bytes(size: u32) -> Ty {
    Ty::Array(Box::new(Ty::Int { bytes: 1, signed: false }), size)
}

fn bytes_or_one(size: u32) -> Ty {
    if size == 1 { Ty::Int { bytes: 1, signed: false } } else { bytes(size) }
}

/// The bytes between two members: padding, bit fields, unions' other members.
fn pad(members: &mut Vec<Field>, from: u32, to: u32, ty: &Type<'_>) {
    if from < to {
        let inside = |member: &Member<'_>| member.bits > 0 && (from..to).contains(&(member.bit_offset / 8));
        let what = if ty.members().any(|member| inside(&member)) { "bits" } else { "padding" };
        members.push(Field { name: format!("{what}_{from}"), ty: bytes(to - from), own: false });
    }
}

fn named(member: &Member<'_>, at: u32) -> (String, bool) {
    match member.name() {
        Ok(name) if super::is_identifier(name) => (name.to_owned(), true),
        _ => (format!("inner_{at}"), false),
    }
}
