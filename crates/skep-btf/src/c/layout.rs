//! Where C places members, and what makes it place them where a file has them.
//!
//! ```text
//!   file    a at 0 (4 bytes)       b at 16 (8 bytes)     32 bytes
//!   C       a at 0                 b at 8                16 bytes
//!   so      int a; unsigned char __padding_4[12]; long b; unsigned char __padding_24[8];
//! ```
//!
//! A structure whose members are less aligned than their types is packed: then nothing but bytes of padding moves a
//! member. Bit fields follow the System V ABI: one that would cross a unit of its type starts in the next unit, unless
//! the structure is packed.

use super::MAX_DEPTH;
use crate::btf::Btf;
use crate::error::Error;
use crate::types::{Kind, Member, Type};
use std::collections::HashMap;
use std::sync::Arc;

/// A line of a structure's definition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    /// The member of that number.
    Member(usize),
    /// Bits without a name.
    PaddingBits(u32),
    /// Bytes between members.
    PaddingBytes { at: u32, bytes: u32 },
    /// The whole structure, which C cannot say.
    Opaque(u32),
}

/// How C is told a structure.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) packed: bool,
    pub(super) parts: Vec<Part>,
    /// The alignment that C gives it, in bytes.
    align: u64,
}

pub(super) struct Layouts<'a> {
    btf: &'a Btf,
    known: HashMap<u32, Arc<Layout>>,
}

/// A member as layout sees it.
struct Field {
    index: usize,
    /// Bits from the start.
    offset: u64,
    /// Bits.
    width: u64,
    /// Bytes.
    align: u64,
    is_bits: bool,
}

impl<'a> Layouts<'a> {
    pub(super) fn new(btf: &'a Btf) -> Self {
        Self { btf, known: HashMap::new() }
    }

    /// The layout of a structure or union.
    pub(super) fn of(&mut self, ty: Type<'_>) -> Result<Arc<Layout>, Error> {
        self.nested(ty, 0)
    }

    fn nested(&mut self, ty: Type<'_>, depth: u32) -> Result<Arc<Layout>, Error> {
        if let Some(known) = self.known.get(&ty.id) {
            return Ok(Arc::clone(known));
        }
        let size = u64::from(ty.size().ok_or(Error::Unsized { id: ty.id })?);
        let mut fields = Vec::with_capacity(ty.members().len());
        for (index, member) in ty.members().enumerate() {
            fields.push(self.field(index, member, depth)?);
        }
        let place = if ty.kind == Kind::Union { union } else { structure };
        let align = fields.iter().map(|field| field.align).max().unwrap_or(1);
        let natural = place(&fields, size, align, false).map(|parts| Layout { packed: false, parts, align });
        let packed = || place(&fields, size, 1, true).map(|parts| Layout { packed: true, parts, align: 1 });
        let opaque = || Layout { packed: false, parts: vec![Part::Opaque(size as u32)], align: 1 };
        let layout = natural.or_else(packed).unwrap_or_else(opaque);
        let layout = Arc::new(layout);
        self.known.insert(ty.id, Arc::clone(&layout));
        Ok(layout)
    }

    fn field(&mut self, index: usize, member: Member<'_>, depth: u32) -> Result<Field, Error> {
        let align = self.align(member.ty, depth + 1)?;
        let is_bits = member.bits > 0;
        let width = match is_bits {
            true => member.bits.into(),
            false => 8 * u64::from(self.btf.size(member.ty)?),
        };
        Ok(Field { index, offset: member.bit_offset.into(), width, align, is_bits })
    }

    /// The alignment that C gives a type, in bytes.
    fn align(&mut self, id: u32, depth: u32) -> Result<u64, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::Endless { id });
        }
        let ty = self.btf.resolve(id)?;
        Ok(match ty.kind {
            Kind::Array => self.align(super::element(ty)?, depth + 1)?,
            Kind::Struct | Kind::Union => self.nested(ty, depth + 1)?.align,
            _ => u64::from(ty.size().ok_or(Error::Unsized { id })?).clamp(1, 16),
        })
    }
}

/// The lines of a structure, or `None` if C places a member elsewhere.
fn structure(fields: &[Field], size: u64, align: u64, packed: bool) -> Option<Vec<Part>> {
    let mut parts = Vec::with_capacity(fields.len());
    let mut at = 0;
    for field in fields {
        if natural(at, field, packed) != field.offset {
            pad(&mut parts, at, field.offset)?;
            if natural(field.offset, field, packed) != field.offset {
                return None;
            }
        }
        parts.push(Part::Member(field.index));
        at = field.offset.checked_add(field.width)?;
    }
    let end = at.div_ceil(8);
    if end.next_multiple_of(align) != size {
        pad(&mut parts, 8 * end, 8 * size)?;
        if !size.is_multiple_of(align) {
            return None;
        }
    }
    Some(parts)
}

/// Where C places a member behind `at` bits.
fn natural(at: u64, field: &Field, packed: bool) -> u64 {
    match (field.is_bits, packed) {
        (true, true) => at,
        (true, false) => {
            let unit = 8 * field.align;
            let crosses = at / unit != (at + field.width - 1) / unit;
            if crosses { at.next_multiple_of(unit) } else { at }
        }
        (false, true) => at.next_multiple_of(8),
        (false, false) => at.next_multiple_of(8 * field.align),
    }
}

/// Adds lines from one bit to another; `None` if that is not ahead.
fn pad(parts: &mut Vec<Part>, from: u64, to: u64) -> Option<()> {
    let bits = to.checked_sub(from)?;
    let (first, last) = (from.div_ceil(8), to / 8);
    if first > last {
        // Within one byte.
        parts.push(Part::PaddingBits(u32::try_from(bits).ok()?));
        return Some(());
    }
    if last > first {
        parts.push(Part::PaddingBytes {
            at: u32::try_from(first).ok()?,
            bytes: u32::try_from(last - first).ok()?,
        });
    } else if !from.is_multiple_of(8) {
        parts.push(Part::PaddingBits((8 - from % 8) as u32));
    }
    if !to.is_multiple_of(8) {
        parts.push(Part::PaddingBits((to % 8) as u32));
    }
    Some(())
}

/// The lines of a union, or `None` if it has a member that is not at its start. Members do not follow one another, so
/// packing moves none.
fn union(fields: &[Field], size: u64, align: u64, _packed: bool) -> Option<Vec<Part>> {
    if fields.iter().any(|field| field.offset != 0) {
        return None;
    }
    let mut parts: Vec<Part> = fields.iter().map(|field| Part::Member(field.index)).collect();
    let widest = fields.iter().map(|field| field.width.div_ceil(8)).max().unwrap_or(0);
    if widest > size || !size.is_multiple_of(align) {
        return None;
    }
    if widest.next_multiple_of(align) != size {
        parts.push(Part::PaddingBytes { at: 0, bytes: u32::try_from(size).ok()? });
    }
    Some(parts)
}
