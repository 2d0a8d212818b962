//! Bytes as JSON and back, by their type.
//!
//! ```text
//!   struct { __u16 port; char name[6]; }   50 00 65 74 68 30 00 00   <->   { "port": 80, "name": "eth0" }
//! ```
//!
//! The invariant: what [`Shape::json`] makes of bytes, [`Shape::bytes`] makes the same bytes of. Where a type cannot
//! say it (padding that is not zero, text that is none), the bytes themselves stand there: `["0x50", "0x00"]`.
//!
//! Numbers beyond 2^53, of which many readers of JSON lose digits, are decimal strings.

use serde_json::{Map, Value};
use skep::Btf;
use skep_btf::{Kind, Member, Type};
use std::cell::Cell;
use std::collections::BTreeSet;

/// The most structures and arrays inside each other.
const MAX_DEPTH: u32 = 32;
/// The most members and elements that are looked at for one value: an object's types may refer to each other in
/// exponentially many ways.
const MAX_STEPS: u32 = 1 << 24;
/// The largest number that every reader of JSON keeps: 2^53 - 1.
const EXACT: u64 = (1 << 53) - 1;

/// How the bytes of a key or value are read.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'a> {
    /// The object's types and the type; without them numbers have 1, 2, 4 or 8 bytes, and all else is bytes.
    pub(crate) ty: Option<(&'a Btf, u32)>,
    pub(crate) size: usize,
}

/// How deep a walk through types is, and how many steps are left to it.
#[derive(Clone, Copy)]
struct Walk<'w> {
    depth: u32,
    steps: &'w Cell<u32>,
}

impl Walk<'_> {
    /// One step, into a member or element; `None` at a limit.
    fn inside(self) -> Option<Self> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        (self.depth < MAX_DEPTH).then_some(Self { depth: self.depth + 1, ..self })
    }
}

/// Why a JSON value cannot be the bytes: where in it, and what is wrong.
#[derive(Debug)]
pub(crate) struct Mismatch {
    path: String,
    text: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

impl<'a> Shape<'a> {
    /// The bytes of a value. `name` is what errors call it.
    pub(crate) fn bytes(&self, name: &str, value: &Value) -> Result<Vec<u8>, Mismatch> {
        let mut out = vec![0; self.size];
        let mut writer = Writer { path: name.to_owned() };
        let steps = Cell::new(MAX_STEPS);
        match self.ty {
            Some((btf, ty)) => writer.put(btf, ty, value, &mut out, Walk { depth: 0, steps: &steps })?,
            None => writer.untyped(value, &mut out)?,
        }
        Ok(out)
    }

    /// The JSON of bytes.
    pub(crate) fn json(&self, bytes: &[u8]) -> Value {
        let steps = Cell::new(MAX_STEPS);
        let read = match self.ty {
            Some((btf, ty)) => read(btf, ty, bytes, Walk { depth: 0, steps: &steps }),
            None => unsigned(bytes).map(number),
        };
        let exact = |value: &Value| self.bytes("", value).is_ok_and(|again| again == bytes);
        read.filter(exact).unwrap_or_else(|| raw(bytes))
    }
}

/// A number, as a string if readers might lose digits of it.
pub(crate) fn number(number: u64) -> Value {
    if number > EXACT { number.to_string().into() } else { number.into() }
}

fn signed_number(number: i64) -> Value {
    if number.unsigned_abs() > EXACT { number.to_string().into() } else { number.into() }
}

/// Serializes a number as [`number`] says.
pub(crate) fn lossless<S: serde::Serializer>(n: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&number(*n), serializer)
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
    let unused = 64 - 8 * bytes.len() as u32;
    Some((unsigned(bytes)? << unused).cast_signed() >> unused)
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
                None if ty.is_signed() => signed_number(value.cast_signed()),
                None => number(value),
            }
        }
        Kind::Int | Kind::Ptr if ty.is_signed() => signed_number(signed(bytes)?),
        Kind::Int | Kind::Ptr => number(unsigned(bytes)?),
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
                true => signed_number((word << unused).cast_signed() >> unused),
                false => number(word),
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

fn is_char(btf: &Btf, id: u32) -> bool {
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

/// Writes values, and remembers where in them it is.
struct Writer {
    path: String,
}

impl Writer {
    fn refuse<T>(&self, text: String) -> Result<T, Mismatch> {
        Err(Mismatch { path: self.path.clone(), text })
    }

    fn inside<T>(
        &mut self,
        step: &str,
        work: impl FnOnce(&mut Self) -> Result<T, Mismatch>,
    ) -> Result<T, Mismatch> {
        let len = self.path.len();
        self.path.push_str(step);
        let result = work(self);
        self.path.truncate(len);
        result
    }

    fn put(
        &mut self,
        btf: &Btf,
        id: u32,
        value: &Value,
        out: &mut [u8],
        walk: Walk<'_>,
    ) -> Result<(), Mismatch> {
        if let Some(bytes) = raw_bytes(value, out.len()) {
            out.copy_from_slice(&bytes);
            return Ok(());
        }
        let unknown =
            || self.refuse("its type is damaged; give bytes, such as [\"0x01\", \"0xff\"]".to_owned());
        let Ok(ty) = btf.resolve(id) else { return unknown() };
        let Some(walk) = walk.inside() else {
            return self.refuse("its type has too many structures inside each other; give bytes".to_owned());
        };
        let name = || btf.type_name(id).unwrap_or_default();
        match ty.kind {
            Kind::Int if ty.int().is_some_and(|int| int.is_bool) && value.is_boolean() => {
                out.fill(0);
                out[0] = u8::from(value == &Value::Bool(true));
                Ok(())
            }
            Kind::Enum | Kind::Enum64 => {
                let names = || ty.enumerators().filter_map(|one| Some((one.name().ok()?, one.value)));
                let named = value.as_str().and_then(|wanted| names().find(|(name, _)| *name == wanted));
                match named {
                    Some((_, number)) => {
                        out.copy_from_slice(&number.to_ne_bytes()[..out.len()]);
                        Ok(())
                    }
                    None if integer(value).is_none() => {
                        let known: Vec<_> = names().take(16).map(|(name, _)| name).collect();
                        self.refuse(format!(
                            "expected a number or a value of {}, such as {}; found {}",
                            name(),
                            known.join(", "),
                            brief(value)
                        ))
                    }
                    None => self.integer(value, ty.is_signed(), &name(), out),
                }
            }
            Kind::Int | Kind::Ptr if matches!(out.len(), 1 | 2 | 4 | 8) => {
                self.integer(value, ty.is_signed(), &name(), out)
            }
            Kind::Float => match (value.as_f64(), out.len()) {
                (Some(number), 4) => {
                    out.copy_from_slice(&(number as f32).to_ne_bytes());
                    Ok(())
                }
                (Some(number), 8) => {
                    out.copy_from_slice(&number.to_ne_bytes());
                    Ok(())
                }
                _ => self.refuse(format!("expected a number for {}, found {}", name(), brief(value))),
            },
            Kind::Array => self.array(btf, &ty, value, out, walk),
            Kind::Struct | Kind::Union => {
                let Some(object) = value.as_object() else {
                    return self.refuse(format!(
                        "expected an object with the members of {}, found {}",
                        name(),
                        brief(value)
                    ));
                };
                let mut used = BTreeSet::new();
                self.members(btf, &ty, object, &mut used, out, walk)?;
                match object.keys().find(|key| !used.contains(key.as_str())) {
                    Some(stranger) => {
                        let known = names_of(btf, &ty).join(", ");
                        self.refuse(format!("{} has no member {stranger}; it has {known}", name()))
                    }
                    None => Ok(()),
                }
            }
            _ => self.refuse(format!("expected {} bytes, such as [\"0x01\", \"0xff\"]", out.len())),
        }
    }

    fn array(
        &mut self,
        btf: &Btf,
        ty: &Type<'_>,
        value: &Value,
        out: &mut [u8],
        walk: Walk<'_>,
    ) -> Result<(), Mismatch> {
        let Some(array) = ty.array() else { return self.refuse("its type is damaged".to_owned()) };
        if let (true, Some(text)) = (is_char(btf, array.element), value.as_str()) {
            if text.len() > out.len() || text.contains('\0') {
                return self.refuse(format!("expected text of at most {} bytes without zeroes", out.len()));
            }
            out[..text.len()].copy_from_slice(text.as_bytes());
            return Ok(());
        }
        let Some(values) = value.as_array() else {
            let or_text = if is_char(btf, array.element) { "text or " } else { "" };
            return self.refuse(format!(
                "expected {or_text}an array of {} elements, found {}",
                array.count,
                brief(value)
            ));
        };
        let each = btf.size(array.element).unwrap_or(0) as usize;
        if each == 0 || values.len() > out.len() / each {
            return self.refuse(format!(
                "has {} elements, {} has {}",
                values.len(),
                "the array",
                array.count
            ));
        }
        for (index, (value, part)) in values.iter().zip(out.chunks_exact_mut(each)).enumerate() {
            self.inside(&format!("[{index}]"), |this| this.put(btf, array.element, value, part, walk))?;
        }
        Ok(())
    }

    /// Writes the given members of a structure and notes their names. Returns how many there were.
    fn members<'v>(
        &mut self,
        btf: &Btf,
        ty: &Type<'_>,
        object: &'v Map<String, Value>,
        used: &mut BTreeSet<&'v str>,
        out: &mut [u8],
        walk: Walk<'_>,
    ) -> Result<usize, Mismatch> {
        let mut given = 0;
        for member in ty.members() {
            let name = member.name().unwrap_or("");
            let start = (member.bit_offset / 8) as usize;
            let size = btf.size(member.ty).unwrap_or(0) as usize;
            let here = if name.is_empty() {
                let Ok(inner) = btf.resolve(member.ty) else { continue };
                let part = out.get_mut(start..start.saturating_add(size));
                match (part.filter(|_| inner.kind.is_composite()), walk.inside()) {
                    (Some(part), Some(walk)) => self.members(btf, &inner, object, used, part, walk)?,
                    _ => 0,
                }
            } else if let Some((key, value)) = object.get_key_value(name) {
                used.insert(key);
                self.inside(&format!(".{name}"), |this| {
                    match out.get_mut(start..start.saturating_add(size)) {
                        _ if member.bits > 0 => this.bit_field(btf, &member, value, out),
                        Some(part) => this.put(btf, member.ty, value, part, walk),
                        None => this.refuse("its type is damaged".to_owned()),
                    }
                })?;
                1
            } else {
                0
            };
            if ty.kind == Kind::Union && here > 0 && given > 0 {
                let known = names_of(btf, ty).join(", ");
                return self.refuse(format!("only one of {known} can be given, since they share bytes"));
            }
            given += here;
        }
        Ok(given)
    }

    fn bit_field(
        &self,
        btf: &Btf,
        member: &Member<'_>,
        value: &Value,
        out: &mut [u8],
    ) -> Result<(), Mismatch> {
        let signed = btf.resolve(member.ty).is_ok_and(|ty| ty.is_signed());
        let number =
            self.within(value, signed, member.bits, &format!("a bit field of {} bits", member.bits))?;
        let (first, count) = (member.bit_offset as usize, member.bits as usize);
        for at in 0..count {
            let Some(byte) = out.get_mut((first + at) / 8) else {
                return self.refuse("its type is damaged".to_owned());
            };
            let mask = 1 << ((first + at) % 8);
            *byte = if number >> at & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
        Ok(())
    }

    fn untyped(&self, value: &Value, out: &mut [u8]) -> Result<(), Mismatch> {
        if let Some(bytes) = raw_bytes(value, out.len()) {
            out.copy_from_slice(&bytes);
            return Ok(());
        }
        let size = out.len();
        if matches!(size, 1 | 2 | 4 | 8) {
            return self.integer(value, false, &format!("{size} bytes without a type"), out);
        }
        self.refuse(format!(
            "expected an array of {size} bytes, such as [\"0x01\", \"0xff\"], since the object has no type for it; found {}",
            brief(value)
        ))
    }

    fn integer(&self, value: &Value, signed: bool, name: &str, out: &mut [u8]) -> Result<(), Mismatch> {
        let number = self.within(value, signed, 8 * out.len() as u32, name)?;
        out.copy_from_slice(&number.to_ne_bytes()[..out.len()]);
        Ok(())
    }

    /// A number that has so many bits.
    fn within(&self, value: &Value, signed: bool, bits: u32, name: &str) -> Result<u64, Mismatch> {
        let Some(number) = integer(value) else {
            return self.refuse(format!("expected a number for {name}, found {}", brief(value)));
        };
        let bits = bits.clamp(1, 64);
        let (least, most) = match signed {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        if !(least..=most).contains(&number) {
            return self.refuse(format!("{number} does not fit {name} ({least} to {most})"));
        }
        Ok(number as u64)
    }
}

/// A whole number: a JSON number, or a string in decimal or hexadecimal.
fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from)),
        Value::Bool(truth) => Some((*truth).into()),
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(i128::from),
            None => text.parse::<u64>().map(i128::from).or_else(|_| text.parse::<i64>().map(i128::from)).ok(),
        },
        _ => None,
    }
}

/// Bytes as [`raw`] writes them.
fn raw_bytes(value: &Value, len: usize) -> Option<Vec<u8>> {
    let values = value.as_array().filter(|values| values.len() == len)?;
    let byte = |value: &Value| {
        let digits = value.as_str()?.strip_prefix("0x").filter(|digits| digits.len() == 2)?;
        u8::from_str_radix(digits, 16).ok()
    };
    values.iter().map(byte).collect()
}

/// The names of a structure's members, those of members without names included; the first of them, if there are many.
fn names_of<'a>(btf: &'a Btf, ty: &Type<'a>) -> Vec<&'a str> {
    let mut names = Vec::new();
    let mut left: Vec<_> = ty.members().collect();
    left.reverse();
    let mut steps = 64;
    while let (Some(member), 1..) = (left.pop(), steps) {
        steps -= 1;
        match member.name() {
            Ok("") | Err(_) => {
                let inner: Vec<_> = btf.members(member.ty).map(Iterator::collect).unwrap_or_default();
                left.extend(inner.into_iter().rev());
            }
            Ok(name) => names.push(name),
        }
    }
    names
}

/// A value for an error message: short.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("an array of {}", values.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 40 => "a long string".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Shape, raw};
    use serde_json::json;
    use skep::Object;
    use skep_btf::Kind;

    fn object() -> Object {
        Object::parse(include_bytes!("../../tests/objects/filled.bpf.o")).unwrap()
    }

    fn shape<'a>(object: &'a Object, name: &str) -> Shape<'a> {
        let btf = object.types().unwrap();
        let ty = btf.find(name, Kind::Struct).unwrap();
        Shape { ty: Some((btf, ty)), size: btf.size(ty).unwrap() as usize }
    }

    #[test]
    fn any_bytes_come_back_from_their_json() {
        let object = object();
        let mut random = 1u64;
        for name in ["rule", "action", "prefix"] {
            let shape = shape(&object, name);
            for round in 0..2000 {
                let mut byte = || {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Zeroes and letters often, so that some text and padding is clean.
                    let byte = (random >> 56) as u8;
                    if round % 3 == 0 { byte } else { [0, b'a', byte][byte as usize % 3] }
                };
                let bytes: Vec<u8> = (0..shape.size).map(|_| byte()).collect();
                let json = shape.json(&bytes);
                assert_eq!(shape.bytes("value", &json).unwrap(), bytes, "{json}");
            }
        }
    }

    #[test]
    fn bytes_stand_where_the_type_cannot_say_them() {
        let object = object();
        let rule = shape(&object, "rule");
        let mut bytes = *b"\x50\x00\x06eth0\0\0\0\0\0";
        assert_eq!(rule.json(&bytes), json!({ "port": 80, "protocol": 6, "name": "eth0" }));
        bytes[10] = b'x';
        assert_eq!(rule.json(&bytes)["name"], raw(b"eth0\0\0\0x"));
        bytes[11] = 1;
        assert_eq!(rule.json(&bytes), raw(&bytes), "padding");
        let untyped = Shape { ty: None, size: 3 };
        assert_eq!(untyped.json(&[1, 2, 255]), json!(["0x01", "0x02", "0xff"]));
        assert_eq!(Shape { ty: None, size: 4 }.json(&[1, 2, 0, 0]), json!(513));
    }
}
