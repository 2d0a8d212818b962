//! What is known of a Rust type, compared with a type of the object.

use crate::error::Error;
use skep_btf::{Btf, Kind, Type};
use std::any::{TypeId, type_name};
use std::marker::PhantomData;

/// The most members inside each other.
const MAX_DEPTH: u32 = 16;
/// The most members that are looked at: an object's types may refer to each other in exponentially many ways.
const MAX_STEPS: u32 = 1 << 16;

/// A number as Rust knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    Unsigned,
    Signed,
    Float,
}

/// What is known of a Rust type without its help.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    name: &'static str,
    size: usize,
    scalar: Option<Scalar>,
}

/// A field of a Rust structure: see [`fields!`](crate::fields).
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    offset: usize,
    shape: Shape,
}

/// Fields of the Rust structure `T`: see [`fields!`](crate::fields).
#[derive(Debug)]
pub struct FieldsOf<T>(pub(super) Vec<Field>, PhantomData<fn() -> T>);

/// What is left out of a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) any_sign: bool,
}

/// Lists fields of a structure, with which [`Module::check_key`](crate::Module::check_key),
/// [`check_value`](crate::Module::check_value) and [`check_variable`](crate::Module::check_variable) compare the
/// object's.
///
/// ```
/// use skep::fields;
/// # use skep::{Object, Runtime};
///
/// #[repr(C)]
/// struct Counter {
///     packets: u64,
///     bytes: u64,
/// }
///
/// # fn main() -> Result<(), skep::Error> {
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/firewall.bpf.o");
/// # let module = Runtime::new()?.load(&Object::open(path)?)?;
/// module.check_value("verdicts", &fields!(Counter { packets, bytes }))?;
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! fields {
    ($ty:ty { $($field:ident),* $(,)? }) => {
        $crate::typed::FieldsOf::<$ty>::new(::std::vec![
            $($crate::typed::Field::of(
                ::core::stringify!($field),
                ::core::mem::offset_of!($ty, $field),
                |value: $ty| value.$field,
            )),*
        ])
    };
}

impl Shape {
    pub(crate) fn of<T: 'static>() -> Self {
        let scalars = [
            (TypeId::of::<u8>(), Scalar::Unsigned),
            (TypeId::of::<u16>(), Scalar::Unsigned),
            (TypeId::of::<u32>(), Scalar::Unsigned),
            (TypeId::of::<u64>(), Scalar::Unsigned),
            (TypeId::of::<i8>(), Scalar::Signed),
            (TypeId::of::<i16>(), Scalar::Signed),
            (TypeId::of::<i32>(), Scalar::Signed),
            (TypeId::of::<i64>(), Scalar::Signed),
            (TypeId::of::<f32>(), Scalar::Float),
            (TypeId::of::<f64>(), Scalar::Float),
        ];
        let own = TypeId::of::<T>();
        let scalar = scalars.iter().find(|(known, _)| *known == own).map(|(_, scalar)| *scalar);
        Self { name: type_name::<T>(), size: size_of::<T>(), scalar }
    }
}

impl Field {
    #[doc(hidden)]
    pub fn of<T, F: 'static>(name: &'static str, offset: usize, _: fn(T) -> F) -> Self {
        Self { name, offset, shape: Shape::of::<F>() }
    }
}

impl<T> FieldsOf<T> {
    #[doc(hidden)]
    pub fn new(fields: Vec<Field>) -> Self {
        Self(fields, PhantomData)
    }
}

/// The type of a variable, if the object says it and its size is right.
pub(super) fn type_of_variable(btf: Option<&Btf>, name: &str, size: usize) -> Option<u32> {
    let btf = btf?;
    let var = btf.variable(name)?;
    btf.size(var).is_ok_and(|bytes| bytes as usize == size).then_some(var)
}

/// Compares a whole type. `size`: that of the place.
pub(super) fn compare(
    btf: Option<&Btf>,
    id: Option<u32>,
    size: u32,
    place: &str,
    given: &Shape,
    rules: Rules,
) -> Result<(), Error> {
    if given.size != size as usize {
        return Err(mismatch(place, described(btf, id, size), given));
    }
    match (btf, id) {
        (Some(btf), Some(id)) => scalar(btf, id, size, place, given, rules),
        _ => Ok(()),
    }
}

/// Compares fields with the members of a structure.
pub(super) fn fields(btf: Option<&Btf>, id: Option<u32>, place: &str, fields: &[Field]) -> Result<(), Error> {
    let (Some(btf), Some(id)) = (btf, id) else {
        return Err(Error::TypeMismatch {
            place: place.to_owned(),
            expected: "bytes without a type".to_owned(),
            given:
                "fields; compile the object with -g, and give the map __type(key, ...) and __type(value, ...)"
                    .to_owned(),
        });
    };
    let name = || btf.type_name(id).unwrap_or_default();
    let mut steps = MAX_STEPS;
    for field in fields {
        let place = format!("{place}: field {}", field.name);
        let found = member(btf, id, 0, field.name, (0, &mut steps));
        let Some((ty, offset)) = found else {
            let expected = format!("a member of {}", name());
            return Err(Error::TypeMismatch {
                place,
                expected,
                given: "a field that it does not have".to_owned(),
            });
        };
        if offset != field.offset as u64 * 8 {
            let expected = format!("offset {}", bits(offset));
            return Err(Error::TypeMismatch { place, expected, given: format!("offset {}", field.offset) });
        }
        let size = btf.size(ty).unwrap_or(0);
        compare(Some(btf), Some(ty), size, &place, &field.shape, Rules::default())?;
    }
    Ok(())
}

/// The type and the bit offset of the member of that name; bit fields are none.
fn member(btf: &Btf, id: u32, base: u64, name: &str, (depth, steps): (u32, &mut u32)) -> Option<(u32, u64)> {
    for member in btf.members(id).ok()? {
        *steps = steps.checked_sub(1)?;
        let at = base + u64::from(member.bit_offset);
        if member.is_anonymous() {
            let inner =
                (depth < MAX_DEPTH).then(|| self::member(btf, member.ty, at, name, (depth + 1, &mut *steps)));
            if let Some(Some(found)) = inner {
                return Some(found);
            }
        } else if member.bits == 0 && member.name() == Ok(name) {
            return Some((member.ty, at));
        }
    }
    None
}

fn scalar(btf: &Btf, id: u32, size: u32, place: &str, given: &Shape, rules: Rules) -> Result<(), Error> {
    let Some(wanted) = given.scalar else { return Ok(()) };
    let Some(ty) = innermost(btf, id) else { return Ok(()) };
    let fits = match ty.kind {
        Kind::Float => wanted == Scalar::Float,
        // Characters and truth values have no sign to speak of, and enumerations are named.
        Kind::Int if ty.int().is_some_and(|int| int.is_bool || int.is_char || ty.size() == Some(1)) => {
            wanted != Scalar::Float
        }
        Kind::Int => {
            wanted != Scalar::Float && (rules.any_sign || ty.is_signed() == (wanted == Scalar::Signed))
        }
        Kind::Enum | Kind::Enum64 => wanted != Scalar::Float,
        Kind::Ptr => wanted == Scalar::Unsigned,
        _ => false,
    };
    if fits { Ok(()) } else { Err(mismatch(place, described(Some(btf), Some(id), size), given)) }
}

/// The only member of structures that have one.
fn innermost(btf: &Btf, id: u32) -> Option<Type<'_>> {
    let mut ty = btf.resolve(id).ok()?;
    for _ in 0..MAX_DEPTH {
        let next = match ty.kind {
            Kind::Struct | Kind::Union => {
                ty.members().next().filter(|one| ty.members().len() == 1 && one.bits == 0)
            }
            _ => return Some(ty),
        };
        let Some(next) = next else { return Some(ty) };
        ty = btf.resolve(next.ty).ok()?;
    }
    Some(ty)
}

fn described(btf: Option<&Btf>, id: Option<u32>, size: u32) -> String {
    let name = btf.zip(id).and_then(|(btf, id)| btf.type_name(id).ok()).filter(|name| !name.is_empty());
    match name {
        Some(name) => format!("{name} of {size} bytes"),
        None => format!("{size} bytes"),
    }
}

fn bits(offset: u64) -> String {
    match offset % 8 {
        0 => (offset / 8).to_string(),
        bit => format!("{} and {bit} bits", offset / 8),
    }
}

fn mismatch(place: &str, expected: String, given: &Shape) -> Error {
    let given = format!("{} of {} bytes", given.name, given.size);
    Error::TypeMismatch { place: place.to_owned(), expected, given }
}
