//! What a question about a place in a type is answered with.
//!
//! Bit fields are read by loading the integer they are in, shifting it left so that nothing is above them, and
//! then right (with the sign, or without) so that nothing is below. The questions for size, offset and shifts
//! are asked one by one, and must be answered about the same integer: the smallest of 1, 2, 4 or 8 bytes, at
//! least as large as the field's own type, that stands at a multiple of its size and holds the whole field.

use skep_btf::{Btf, Kind, Type};

use super::path::Path;
use super::{Fault, Question};

/// What the target answers, and what the object took for granted.
pub(super) struct Answer {
    /// The number for the instruction.
    pub(super) value: u64,
    /// What should stand there, if that is certain.
    pub(super) expected: Option<u64>,
    /// For instructions that access the field: how.
    pub(super) access: Option<Access>,
}

/// How a field is accessed in the object and in the target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    /// Its bytes in the object.
    pub(super) from: u32,
    /// Its bytes in the target.
    pub(super) to: u32,
    /// Whether an access can be made as large as the target's: pointers, and numbers without a sign.
    pub(super) adjustable: bool,
}

impl Answer {
    /// An answer that any instruction can take.
    pub(super) fn number(value: u64) -> Self {
        Self { value, expected: None, access: None }
    }

    pub(super) fn is_other_than(&self, other: &Self) -> bool {
        (self.value, self.access) != (other.value, other.access)
    }
}

/// Answers a question about a path that was found in the target.
pub(super) fn answer(
    local: &Btf,
    here: &Path<'_>,
    target: &Btf,
    there: &Path<'_>,
    question: Question,
) -> Result<Answer, Fault> {
    use Question as Q;
    Ok(match question {
        Q::FieldExists | Q::TypeExists | Q::TypeMatches | Q::ValueExists => Answer::number(1),
        Q::TypeSize => Answer::number(target.size(there.root)?.into()),
        Q::TargetId => Answer::number(there.root.into()),
        Q::LocalId => Answer::number(here.root.into()),
        Q::Value => Answer::number(there.value.unwrap_or(0)),
        Q::FieldOffset => {
            let (from, to) = (Place::find(local, here)?, Place::find(target, there)?);
            let adjustable = from.is_pointer && to.is_pointer || from.is_unsigned && to.is_unsigned;
            let access = Access { from: from.size, to: to.size, adjustable };
            let is_bit_field = from.is_bit_field || to.is_bit_field;
            Answer {
                value: to.offset,
                expected: (!is_bit_field).then_some(from.offset),
                access: (!is_bit_field).then_some(access),
            }
        }
        Q::FieldSize => Answer::number(Place::find(target, there)?.size.into()),
        Q::FieldSigned => Answer::number(target.resolve(there.ty)?.is_signed().into()),
        Q::LeftShift => {
            let place = Place::find(target, there)?;
            // The field ends inside an integer of at most eight bytes that starts at the offset.
            let above = there.bits + u64::from(place.bits) - place.offset * 8;
            Answer::number(64u64.saturating_sub(above))
        }
        Q::RightShift => Answer::number(64u64.saturating_sub(Place::find(target, there)?.bits.into())),
    })
}

/// Where a field is, and what it is made of.
struct Place {
    /// Bytes from the start of the type to the field, or to the integer that it is in.
    offset: u64,
    /// Bytes of the one or the other.
    size: u32,
    /// Bits of the field.
    bits: u32,
    is_bit_field: bool,
    is_pointer: bool,
    is_unsigned: bool,
}

impl Place {
    fn find(btf: &Btf, path: &Path<'_>) -> Result<Self, Fault> {
        let ty = btf.resolve(path.ty)?;
        let size = btf.size(path.ty)?;
        let width = path.member.map_or(0, |member| member.bits);
        let mut place = Self {
            offset: path.bits / 8,
            size,
            bits: if width > 0 { width } else { size.saturating_mul(8) },
            is_bit_field: width > 0,
            is_pointer: ty.kind == Kind::Ptr,
            is_unsigned: is_unsigned(&ty),
        };
        if width > 0 {
            let end = path.bits + u64::from(width);
            let mut bytes = u64::from(size.clamp(1, 8)).next_power_of_two();
            while end > (place.offset_of(path.bits, bytes) + bytes) * 8 {
                if bytes == 8 {
                    return Err("is about a bit field that no integer of 8 bytes holds".into());
                }
                bytes *= 2;
            }
            place.offset = place.offset_of(path.bits, bytes);
            // At most 8.
            place.size = bytes as u32;
        }
        Ok(place)
    }

    /// Where the integer of that size starts which the bit is in.
    fn offset_of(&self, bit: u64, bytes: u64) -> u64 {
        bit / 8 / bytes * bytes
    }
}

fn is_unsigned(ty: &Type<'_>) -> bool {
    matches!(ty.kind, Kind::Int | Kind::Enum | Kind::Enum64) && !ty.is_signed()
}
