//! One value in the layout of another type.

use super::Report;
use crate::error::Error;
use skep_btf::{Btf, Int, Kind, Member, Type};

/// The most structures and arrays inside each other.
const MAX_DEPTH: u32 = 32;
/// The most members and elements that are looked at for one value: an object's types may refer to each other in
/// exponentially many ways.
const MAX_STEPS: u32 = 1 << 24;

/// A type in one object.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    ty: Option<(&'a Btf, u32)>,
    size: u32,
}

/// From one type to another.
pub(super) struct Plan<'a> {
    pub(super) from: Side<'a>,
    pub(super) to: Side<'a>,
}

/// A type with its file.
type Typed<'a> = (&'a Btf, u32);

impl<'a> Side<'a> {
    /// The type counts if it has the size that the place has.
    pub(super) fn new(btf: Option<&'a Btf>, id: Option<u32>, size: u32) -> Self {
        Self { ty: btf.zip(id).filter(|(btf, id)| btf.size(*id) == Ok(size)), size }
    }
}

impl Plan<'_> {
    pub(super) fn convert(&self, bytes: &[u8], place: &str, report: &mut Report) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; self.to.size as usize];
        match (self.from.ty, self.to.ty) {
            (Some(from), Some(to)) => {
                Walk { report, place: place.to_owned(), steps: MAX_STEPS }
                    .value(from, bytes, to, &mut out, 0)?;
            }
            _ if bytes.len() == out.len() => out.copy_from_slice(bytes),
            _ => {
                return Err(Error::Migration {
                    place: place.to_owned(),
                    why: format!(
                        "it had {} bytes and has {}, and the objects do not say the types of both; compile with -g",
                        bytes.len(),
                        out.len()
                    ),
                });
            }
        }
        Ok(out)
    }
}

struct Walk<'r> {
    report: &'r mut Report,
    place: String,
    steps: u32,
}

impl Walk<'_> {
    fn value(
        &mut self,
        from: Typed<'_>,
        bytes: &[u8],
        to: Typed<'_>,
        out: &mut [u8],
        depth: u32,
    ) -> Result<(), Error> {
        self.steps = self.steps.saturating_sub(1);
        let (old, new) = match (from.0.resolve(from.1), to.0.resolve(to.1)) {
            (Ok(old), Ok(new)) if depth < MAX_DEPTH && self.steps > 0 => (old, new),
            _ => {
                return self
                    .refuse("its type is damaged, or has too many structures inside each other".to_owned());
            }
        };
        match (old.kind, new.kind) {
            (Kind::Struct, Kind::Struct) => self.members(from.0, &old, bytes, (to.0, &new), out, depth),
            (Kind::Array, Kind::Array) => self.array(from.0, &old, bytes, (to.0, &new), out, depth),
            (Kind::Float, Kind::Float) | (Kind::Union, Kind::Union) | (Kind::Ptr, Kind::Ptr)
                if bytes.len() == out.len() =>
            {
                out.copy_from_slice(bytes);
                Ok(())
            }
            _ if is_number(&old) && is_number(&new) => {
                let number = read(bytes, 0, 8 * bytes.len() as u32, old.is_signed());
                self.number(number, &new, out, 0, 8 * new.size().unwrap_or(0))
            }
            _ => {
                let name = |(btf, id): Typed<'_>| btf.type_name(id).unwrap_or_default();
                let (was, is) = (name(from), name(to));
                self.refuse(format!(
                    "it was {was} and is {is}; give the member another name, or copy it yourself"
                ))
            }
        }
    }

    /// Both have members, which are compared by name; those of members without a name count as the structure's own.
    fn members(
        &mut self,
        old_btf: &Btf,
        old: &Type<'_>,
        bytes: &[u8],
        (new_btf, new): (&Btf, &Type<'_>),
        out: &mut [u8],
        depth: u32,
    ) -> Result<(), Error> {
        let mut was = Vec::new();
        flatten(old_btf, old, 0, &mut was, depth, &mut self.steps);
        let mut is = Vec::new();
        flatten(new_btf, new, 0, &mut is, depth, &mut self.steps);
        for (name, _, _) in &was {
            if !is.iter().any(|(other, ..)| other == name) {
                self.report.dropped.insert(format!("{}.{name}", plain(&self.place)));
            }
        }
        for (name, to, to_bit) in is {
            let Some((_, from, from_bit)) = was.iter().find(|(other, ..)| *other == name) else {
                self.report.added.insert(format!("{}.{name}", plain(&self.place)));
                continue;
            };
            let len = self.place.len();
            self.place.push('.');
            self.place.push_str(name);
            self.member(old_btf, bytes, (from, *from_bit), new_btf, out, (&to, to_bit), depth)?;
            self.place.truncate(len);
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "two sides of three, and the depth")]
    fn member(
        &mut self,
        old_btf: &Btf,
        bytes: &[u8],
        (from, from_bit): (&Member<'_>, u32),
        new_btf: &Btf,
        out: &mut [u8],
        (to, to_bit): (&Member<'_>, u32),
        depth: u32,
    ) -> Result<(), Error> {
        let size = |btf: &Btf, member: &Member<'_>| btf.size(member.ty).unwrap_or(0);
        let (Ok(old), Ok(new)) = (old_btf.resolve(from.ty), new_btf.resolve(to.ty)) else {
            return self.refuse("its type is damaged".to_owned());
        };
        let width = |member: &Member<'_>, ty: &Type<'_>| match member.bits {
            0 => 8 * ty.size().unwrap_or(0),
            bits => bits,
        };
        if (from.bits, to.bits) != (0, 0) {
            if !is_number(&old) || !is_number(&new) {
                return self.refuse("one of both is a bit field, and the other is no number".to_owned());
            }
            let number = read(bytes, from_bit, width(from, &old), old.is_signed());
            return self.number(number, &new, out, to_bit, width(to, &new));
        }
        let part = |bit: u32, len: u32| (bit / 8) as usize..(bit / 8) as usize + len as usize;
        let source = bytes.get(part(from_bit, size(old_btf, from)));
        let place = out.get_mut(part(to_bit, size(new_btf, to)));
        let (Some(source), Some(place)) = (source, place) else {
            return self.refuse("its type is damaged".to_owned());
        };
        self.value((old_btf, from.ty), source, (new_btf, to.ty), place, depth + 1)
    }

    fn array(
        &mut self,
        old_btf: &Btf,
        old: &Type<'_>,
        bytes: &[u8],
        (new_btf, new): (&Btf, &Type<'_>),
        out: &mut [u8],
        depth: u32,
    ) -> Result<(), Error> {
        let (Some(was), Some(is)) = (old.array(), new.array()) else {
            return self.refuse("its type is damaged".to_owned());
        };
        let each = |btf: &Btf, element| btf.size(element).unwrap_or(0) as usize;
        let (from, to) = (each(old_btf, was.element), each(new_btf, is.element));
        if from == 0 || to == 0 {
            return if bytes.iter().all(|byte| *byte == 0) {
                Ok(())
            } else {
                self.refuse("its elements have no size".to_owned())
            };
        }
        let len = self.place.len();
        for (index, source) in bytes.chunks_exact(from).enumerate() {
            self.place.push_str(&format!("[{index}]"));
            match out.get_mut(index * to..(index + 1) * to) {
                Some(place) => {
                    self.value((old_btf, was.element), source, (new_btf, is.element), place, depth + 1)?
                }
                None if source.iter().all(|byte| *byte == 0) => {}
                None => {
                    let why = format!(
                        "the new array has {} elements, and this one of the old is not zero",
                        is.count
                    );
                    return self.refuse(why);
                }
            }
            self.place.truncate(len);
        }
        Ok(())
    }

    /// Stores a number, if it fits.
    fn number(&self, number: i128, ty: &Type<'_>, out: &mut [u8], bit: u32, bits: u32) -> Result<(), Error> {
        let is_bool = matches!(ty.int(), Some(Int { is_bool: true, .. }));
        let bits = bits.clamp(1, 64);
        let (least, most) = match (is_bool, ty.is_signed()) {
            (true, _) => (0, 1),
            (_, true) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            (_, false) => (0, (1i128 << bits) - 1),
        };
        if !(least..=most).contains(&number) {
            return self.refuse(format!(
                "{number} does not fit ({least} to {most}); change the element, or widen the member"
            ));
        }
        for at in 0..bits {
            let Some(byte) = out.get_mut(((bit + at) / 8) as usize) else {
                return self.refuse("its type is damaged".to_owned());
            };
            let mask = 1 << ((bit + at) % 8);
            *byte = if number >> at & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
        Ok(())
    }

    fn refuse<T>(&self, why: String) -> Result<T, Error> {
        Err(Error::Migration { place: self.place.clone(), why })
    }
}

fn is_number(ty: &Type<'_>) -> bool {
    (ty.kind == Kind::Int || ty.kind.is_enum()) && ty.size().is_some_and(|size| (1..=8).contains(&size))
}

/// A number of at most 64 bits, on a little-endian machine.
fn read(bytes: &[u8], bit: u32, bits: u32, signed: bool) -> i128 {
    let bits = bits.clamp(1, 64);
    let one = |at: u32| bytes.get((at / 8) as usize).map_or(0, |byte| i128::from(byte >> (at % 8) & 1));
    let number = (0..bits).fold(0, |number, at| number | one(bit + at) << at);
    if signed && number >> (bits - 1) == 1 { number - (1i128 << bits) } else { number }
}

/// The named members of a structure, with their bit offsets.
fn flatten<'a>(
    btf: &'a Btf,
    ty: &Type<'a>,
    base: u32,
    into: &mut Vec<(&'a str, Member<'a>, u32)>,
    depth: u32,
    steps: &mut u32,
) {
    for member in ty.members() {
        *steps = steps.saturating_sub(1);
        if *steps == 0 {
            return;
        }
        let at = base.saturating_add(member.bit_offset);
        match member.name() {
            Ok("") | Err(_) => {
                if let (Ok(inner), true) = (btf.resolve(member.ty), depth < MAX_DEPTH) {
                    flatten(btf, &inner, at, into, depth + 1, steps);
                }
            }
            Ok(name) => into.push((name, member, at)),
        }
    }
}

/// A place without indices: the same member of all elements is told once.
fn plain(place: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in place.chars() {
        inside = (inside || c == '[') && c != ']';
        if !inside && c != ']' {
            text.push(c);
        }
    }
    text
}
