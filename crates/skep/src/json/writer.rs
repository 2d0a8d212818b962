//! JSON as bytes.

use super::shape::{Walk, is_char};
use super::{Mismatch, MismatchKind};
use serde_json::{Map, Value};
use skep_btf::{Btf, Kind, Member, Type};
use std::collections::BTreeSet;

/// Writes values, and remembers where in them it is.
pub(super) struct Writer {
    path: String,
}

impl Writer {
    pub(super) fn new(name: &str) -> Self {
        Self { path: name.to_owned() }
    }

    fn refuse<T>(&self, text: String) -> Result<T, Mismatch> {
        self.refuse_as(MismatchKind::Other, text)
    }

    fn refuse_as<T>(&self, kind: MismatchKind, text: String) -> Result<T, Mismatch> {
        Err(Mismatch { path: self.path.clone(), text, kind })
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

    pub(super) fn put(
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
            Kind::Int if ty.int().is_some_and(|int| int.is_bool) && value.is_boolean() && !out.is_empty() => {
                out.fill(0);
                out[0] = u8::from(value == &Value::Bool(true));
                Ok(())
            }
            Kind::Enum | Kind::Enum64 if matches!(out.len(), 1 | 2 | 4 | 8) => {
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
                _ => {
                    let text = format!("expected a number for {}, found {}", name(), brief(value));
                    self.refuse_as(MismatchKind::Type, text)
                }
            },
            Kind::Array => self.array(btf, &ty, value, out, walk),
            Kind::Struct | Kind::Union => {
                let Some(object) = value.as_object() else {
                    let text =
                        format!("expected an object with the members of {}, found {}", name(), brief(value));
                    return self.refuse_as(MismatchKind::Type, text);
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
            let text =
                format!("expected {or_text}an array of {} elements, found {}", array.count, brief(value));
            return self.refuse_as(MismatchKind::Type, text);
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

    pub(super) fn untyped(&self, value: &Value, out: &mut [u8]) -> Result<(), Mismatch> {
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
            let text = format!("expected a number for {name}, found {}", brief(value));
            return self.refuse_as(MismatchKind::Type, text);
        };
        let bits = bits.clamp(1, 64);
        let (least, most) = match signed {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        if !(least..=most).contains(&number) {
            let text = format!("{number} does not fit {name} ({least} to {most})");
            return self.refuse_as(MismatchKind::Range, text);
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
