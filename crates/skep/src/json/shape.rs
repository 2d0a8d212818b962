//! Bytes as JSON.

use super::Mismatch;
use super::writer::Writer;
use serde_json::{Map, Value};
use skep_btf::{Btf, Kind, Member, Type};
use std::cell::Cell;

/// The most structures and arrays inside each other.
const MAX_DEPTH: u32 = 32;
/// The most members and elements that are looked at for one value: an object's types may refer to each other in
/// exponentially many ways.
const MAX_STEPS: u32 = 1 << 24;
/// The largest number that every reader of JSON keeps: 2^53 - 1.
const EXACT: u64 = (1 << 53) - 1;

/// How the bytes of a key, a value or a variable are read.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    ty: Option<(&'a Btf, u32)>,
    size: usize,
}

/// How deep a walk through types is, and how many steps are left to it.
#[derive(Clone, Copy)]
pub(super) struct Walk<'w> {
    depth: u32,
    steps: &'w Cell<u32>,
    numbers: Numbers,
}

/// How numbers beyond 2^53 are written.
#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    /// As strings in decimal, of which no reader loses digits.
    Text,
    /// As numbers.
    Exact,
}

impl Walk<'_> {
    /// One step, into a member or element; `None` at a limit.
    pub(super) fn inside(self) -> Option<Self> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        (self.depth < MAX_DEPTH).then_some(Self { depth: self.depth + 1, ..self })
    }
}

impl<'a> Shape<'a> {
    /// By a type of an object. Without a type that has this size in bytes, 1, 2, 4 or 8 bytes are a number, and all
    /// else is an array of bytes.
    pub fn new(types: Option<&'a Btf>, ty: Option<u32>, size: usize) -> Self {
        let has_size = |(btf, ty): &(&Btf, u32)| btf.size(*ty).is_ok_and(|bytes| bytes as usize == size);
        Self { ty: types.zip(ty).filter(has_size), size }
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The bytes of a value. `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`Mismatch`]: the path in the value, and what was expected there.
    pub fn from_json(&self, name: &str, value: &Value) -> Result<Vec<u8>, Mismatch> {
        let mut out = vec![0; self.size];
        let mut writer = Writer::new(name);
        let steps = Cell::new(MAX_STEPS);
        match self.ty {
            Some((btf, ty)) => writer.put(
                btf,
                ty,
                value,
                &mut out,
                Walk { depth: 0, steps: &steps, numbers: Numbers::Text },
            )?,
            None => writer.untyped(value, &mut out)?,
        }
        Ok(out)
    }

    /// The JSON of bytes.
    pub fn to_json(&self, bytes: &[u8]) -> Value {
        self.read(bytes, Numbers::Text)
    }

    /// The same with all numbers as numbers, for readers that keep 64 bits of them.
    pub fn to_exact_json(&self, bytes: &[u8]) -> Value {
        self.read(bytes, Numbers::Exact)
    }

    fn read(&self, bytes: &[u8], numbers: Numbers) -> Value {
        let steps = Cell::new(MAX_STEPS);
        let read = match self.ty {
            Some((btf, ty)) => read(btf, ty, bytes, Walk { depth: 0, steps: &steps, numbers }),
            None => unsigned(bytes).map(|number| numbers.unsigned(number)),
        };
        let exact = |value: &Value| self.from_json("", value).is_ok_and(|again| again == bytes);
        read.filter(exact).unwrap_or_else(|| raw(bytes))
    }
}

/// A number, as a string if readers might lose digits of it.
pub fn number(number: u64) -> Value {
    if number > EXACT { number.to_string().into() } else { number.into() }
}

impl Numbers {
    fn unsigned(self, value: u64) -> Value {
        if self == Self::Exact { value.into() } else { number(value) }
    }

    fn signed(self, value: i64) -> Value {
        let exact = self == Self::Exact || value.unsigned_abs() <= EXACT;
        if exact { value.into() } else { value.to_string().into() }
    }
}

/// Bytes as they are.
fn raw(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| Value::from(format!("0x{byte:02x}"))).collect()
}

fn unsigned(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

/// The same with a sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let word = unsigned(bytes)?;
    let unused = 64 - 8 * bytes.len() as u32;
    Some((word << unused).cast_signed() >> unused)
}

fn read(btf: &Btf, id: u32, bytes: &[u8], walk: Walk<'_>) -> Option<Value> {
    let walk = walk.inside()?;
    let ty = btf.resolve(id).ok()?;
    Some(match ty.kind {
        Kind::Int if ty.int()?.is_bool => match bytes {
            [byte @ (0 | 1)] => (*byte == 1).into(),
            _ => return None,
        },
        Kind::Enum | Kind::Enum64 => {
            let value = if ty.is_signed() { signed(bytes)?.cast_unsigned() } else { unsigned(bytes)? };
            match ty.enumerators().find(|one| one.value == value).and_then(|one| one.name().ok()) {
                Some(name) => name.into(),
                None if ty.is_signed() => walk.numbers.signed(value.cast_signed()),
                None => walk.numbers.unsigned(value),
            }
        }
        Kind::Int | Kind::Ptr if ty.is_signed() => walk.numbers.signed(signed(bytes)?),
        Kind::Int | Kind::Ptr => walk.numbers.unsigned(unsigned(bytes)?),
        Kind::Float => match *bytes {
            [a, b, c, d] => f64::from(f32::from_ne_bytes([a, b, c, d])).into(),
            [a, b, c, d, e, f, g, h] => f64::from_ne_bytes([a, b, c, d, e, f, g, h]).into(),
            _ => return None,
        },
        Kind::Array => {
            let array = ty.array()?;
            if is_char(btf, array.element) {
                return Some(text(bytes).unwrap_or_else(|| raw(bytes)));
            }
            let each = btf.size(array.element).ok().filter(|size| *size > 0)? as usize;
            let one = |bytes| Some(read(btf, array.element, bytes, walk).unwrap_or_else(|| raw(bytes)));
            bytes.chunks_exact(each).map(one).collect::<Option<_>>()?
        }
        Kind::Struct | Kind::Union => {
            let mut object = Map::new();
            read_members(btf, &ty, bytes, &mut object, walk)?;
            object.into()
        }
        _ => return None,
    })
}

/// Reads the members of a structure; those without a name have members of their own. Of a union it reads the largest.
fn read_members(
    btf: &Btf,
    ty: &Type<'_>,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    walk: Walk<'_>,
) -> Option<()> {
    let size = |member: &Member<'_>| btf.size(member.ty).unwrap_or(0);
    let most = ty.members().map(|member| size(&member)).max();
    let largest = ty.members().position(|member| Some(size(&member)) == most);
    for (index, member) in ty.members().enumerate() {
        if ty.kind == Kind::Union && Some(index) != largest {
            continue;
        }
        if member.bits > 0 {
            let word = bits(bytes, &member)?;
            let unused = 64 - member.bits;
            let is_signed = btf.resolve(member.ty).ok()?.is_signed();
            let value = match is_signed {
                true => walk.numbers.signed((word << unused).cast_signed() >> unused),
                false => walk.numbers.unsigned(word),
            };
            into.insert(member.name().ok()?.to_owned(), value);
            continue;
        }
        let start = (member.bit_offset / 8) as usize;
        let part = bytes.get(start..start.checked_add(size(&member) as usize)?)?;
        if member.is_anonymous() {
            read_members(btf, &btf.resolve(member.ty).ok()?, part, into, walk.inside()?)?;
        } else {
            let value = read(btf, member.ty, part, walk).unwrap_or_else(|| raw(part));
            into.insert(member.name().ok()?.to_owned(), value);
        }
    }
    Some(())
}

/// The value of a bit field of at most 64 bits, on a little-endian machine.
fn bits(bytes: &[u8], member: &Member<'_>) -> Option<u64> {
    let (first, count) = (member.bit_offset as usize, member.bits as usize);
    if count > 64 {
        return None;
    }
    let bit = |at: usize| Some(u64::from(bytes.get(at / 8)? >> (at % 8) & 1));
    (0..count).try_fold(0, |word, at| Some(word | bit(first + at)? << at))
}

pub(super) fn is_char(btf: &Btf, id: u32) -> bool {
    let ty = btf.resolve(id);
    ty.is_ok_and(|ty| {
        ty.kind == Kind::Int && ty.size() == Some(1) && ty.name().is_ok_and(|name| name == "char")
    })
}

/// Text that ends with a zero or the array, with zeroes behind it.
fn text(bytes: &[u8]) -> Option<Value> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(end);
    let text = std::str::from_utf8(text).ok().filter(|_| rest.iter().all(|byte| *byte == 0))?;
    Some(text.into())
}
