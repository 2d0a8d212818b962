//! Abbreviations used by the context tables.
//!
//! A structure is written down once, with all its fields. A program type's view of it selects some of them by name
//! and makes some of these writable ([`view!`]). A view that does not match the structure fails to compile.

use crate::context::{ContextField, ContextLayout, FieldKind, Parts, StructKind};
use skep_isa::Size;

/// A number of four bytes that is read whole.
pub(super) const fn whole(name: &'static str, offset: u32) -> ContextField {
    number(name, offset, Size::B4, Parts::WORD)
}

/// A number of four bytes whose aligned parts may all be read.
pub(super) const fn word(name: &'static str, offset: u32) -> ContextField {
    number(name, offset, Size::B4, Parts::any(Size::B4))
}

/// A number of four bytes that may be read whole or in its lower part.
pub(super) const fn lower(name: &'static str, offset: u32) -> ContextField {
    number(name, offset, Size::B4, Parts::BYTE.and(Parts::HALF).and(Parts::WORD))
}

/// A number of eight bytes that is read whole.
pub(super) const fn double(name: &'static str, offset: u32) -> ContextField {
    number(name, offset, Size::B8, Parts::DOUBLE)
}

/// A number whose readable parts are given.
pub(super) const fn number(name: &'static str, offset: u32, size: Size, reads: Parts) -> ContextField {
    ContextField {
        name,
        offset,
        size,
        kind: FieldKind::Scalar,
        reads,
        writes: Parts::NONE,
        native_offset: None,
        native_size: size,
    }
}

/// An address for which the structure has four bytes.
pub(super) const fn narrow_pointer(name: &'static str, offset: u32, kind: FieldKind) -> ContextField {
    ContextField { kind, native_size: Size::B8, ..number(name, offset, Size::B4, Parts::WORD) }
}

/// An address.
pub(super) const fn pointer(name: &'static str, offset: u32, kind: FieldKind) -> ContextField {
    ContextField { kind, ..number(name, offset, Size::B8, Parts::DOUBLE) }
}

/// The address of a structure, which may be null.
pub(super) const fn maybe(kind: StructKind) -> FieldKind {
    FieldKind::Struct { kind, maybe_null: true }
}

/// The address of a structure, never null.
pub(super) const fn surely(kind: StructKind) -> FieldKind {
    FieldKind::Struct { kind, maybe_null: false }
}

impl ContextField {
    /// The same; an access may extend over as many bytes after it.
    pub(super) const fn wide(mut self) -> Self {
        self.reads = self.reads.and(doubled(self.size));
        self
    }

    /// The same, writable whole, and together with the bytes after it if it may be read so.
    const fn writable(mut self) -> Self {
        self.writes = self.writes.and(Parts::whole(self.size));
        if self.reads.allows(0, 2 * self.size.bytes()) {
            self.writes = self.writes.and(doubled(self.size));
        }
        self
    }

    /// The same, writable in parts if a view makes it writable.
    pub(super) const fn in_parts(mut self) -> Self {
        self.writes = self.writes.and(Parts::any(self.size));
        self
    }

    /// The same, at this offset of skep's native structure.
    pub(super) const fn at(mut self, native: usize) -> Self {
        self.native_offset = Some(native as u32);
        self
    }

    /// The same; a write of four bytes keeps the lower two, as Linux has a field of two. In the native structure, which
    /// has four, the upper two are always 0.
    pub(super) const fn of_two_bytes(mut self) -> Self {
        self.native_size = Size::B2;
        self
    }
}

/// The parts of a field of twice that size.
const fn doubled(size: Size) -> Parts {
    match size {
        Size::B1 => Parts::HALF,
        Size::B2 => Parts::WORD,
        Size::B4 | Size::B8 => Parts::DOUBLE,
    }
}

/// The fields at their places in a native structure of the same shape with `size` bytes: numbers and addresses of eight
/// bytes stay where they are, addresses for which the structure has four bytes follow it.
macro_rules! placed {
    ($size:expr, $fields:expr) => {{
        const GIVEN: &[crate::context::ContextField] = $fields;
        const PLACED: [crate::context::ContextField; GIVEN.len()] = crate::types::fields::place(GIVEN, $size);
        &PLACED
    }};
}
pub(super) use placed;

/// See [`placed!`].
pub(super) const fn place<const N: usize>(given: &[ContextField], size: u32) -> [ContextField; N] {
    let mut fields = [given[0]; N];
    let mut behind = size.next_multiple_of(8);
    let mut at = 0;
    while at < N {
        let mut field = given[at];
        if field.native_size.bytes() <= field.size.bytes() {
            field.native_size = field.size;
            field.native_offset = Some(field.offset);
        } else {
            field.native_offset = Some(behind);
            behind += field.native_size.bytes();
        }
        fields[at] = field;
        at += 1;
    }
    fields
}

/// A structure. Each of its fields has a place in the native one.
pub(super) const fn layout(name: &'static str, size: u32, fields: &'static [ContextField]) -> ContextLayout {
    let mut at = 0;
    while at < fields.len() {
        assert!(fields[at].native_offset.is_some(), "every field needs a native place: see `placed!`");
        at += 1;
    }
    ContextLayout { name, size, fields }
}

/// The fields of the structure `$all` with the names `$readable`, of which those in `$writable` are also writable.
/// The name of an array selects all its elements.
macro_rules! view {
    ($all:expr, $readable:expr, $writable:expr) => {{
        const FIELDS: [crate::context::ContextField; crate::types::fields::count($all, $readable)] =
            crate::types::fields::select($all, $readable, $writable);
        &FIELDS
    }};
}
pub(super) use view;

/// The number of fields that have one of these names.
pub(super) const fn count(all: &[ContextField], names: &[&str]) -> usize {
    let mut found = 0;
    let mut at = 0;
    while at < all.len() {
        found += is_named(all[at].name, names) as usize;
        at += 1;
    }
    found
}

/// The fields with the names `readable`; of these, those with the names `writable` may be written.
pub(super) const fn select<const N: usize>(
    all: &[ContextField],
    readable: &[&str],
    writable: &[&str],
) -> [ContextField; N] {
    let mut fields = [all[0]; N];
    let mut found = 0;
    let mut at = 0;
    while at < all.len() {
        let field = all[at];
        if is_named(field.name, readable) {
            fields[found] = if is_named(field.name, writable) {
                field.writable()
            } else {
                ContextField { writes: Parts::NONE, ..field }
            };
            found += 1;
        }
        at += 1;
    }
    assert!(count(all, writable) == count(&fields, writable), "every writable field must be readable");
    let mut name = 0;
    while name < readable.len() {
        assert!(count(all, &[readable[name]]) > 0, "there is no field of that name");
        name += 1;
    }
    fields
}

/// Whether a field's name is in the list, or is an element of an array in it.
const fn is_named(field: &str, names: &[&str]) -> bool {
    let field = field.as_bytes();
    let mut at = 0;
    while at < names.len() {
        let name = names[at].as_bytes();
        let mut same = 0;
        while same < name.len() && same < field.len() && name[same] == field[same] {
            same += 1;
        }
        if same == name.len() && (same == field.len() || field[same] == b'[') {
            return true;
        }
        at += 1;
    }
    false
}
