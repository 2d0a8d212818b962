//! One type of `.BTF`: its kind, and what its kind makes of the bytes behind the first twelve.

use super::{Btf, u32_at};
use crate::error::Error;

macro_rules! kinds {
    ($($variant:ident = $number:literal, $tail:expr;)*) => {
        /// The kind of a type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            Void,
            $($variant,)*
        }

        impl Kind {
            pub(super) fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Bytes behind the first twelve of a type that counts `count` elements.
            pub(super) fn tail_bytes(self, count: usize) -> usize {
                let tail: Tail = match self {
                    Self::Void => Tail::None,
                    $(Self::$variant => $tail,)*
                };
                match tail {
                    Tail::None => 0,
                    Tail::Fixed(bytes) => bytes,
                    Tail::Each(bytes) => bytes * count,
                }
            }
        }
    };
}

enum Tail {
    None,
    Fixed(usize),
    Each(usize),
}

kinds! {
    Int = 1, Tail::Fixed(4);
    Ptr = 2, Tail::None;
    Array = 3, Tail::Fixed(12);
    Struct = 4, Tail::Each(12);
    Union = 5, Tail::Each(12);
    Enum = 6, Tail::Each(8);
    Fwd = 7, Tail::None;
    Typedef = 8, Tail::None;
    Volatile = 9, Tail::None;
    Const = 10, Tail::None;
    Restrict = 11, Tail::None;
    Func = 12, Tail::None;
    FuncProto = 13, Tail::Each(8);
    Var = 14, Tail::Fixed(4);
    Datasec = 15, Tail::Each(12);
    Float = 16, Tail::None;
    DeclTag = 17, Tail::Fixed(4);
    TypeTag = 18, Tail::None;
    Enum64 = 19, Tail::Each(12);
}

impl Kind {
    /// Whether it stands for the type in its word and changes nothing about the bytes.
    pub(crate) fn is_modifier(self) -> bool {
        matches!(self, Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag)
    }

    /// Whether its word is a size in bytes.
    pub(super) fn has_size(self) -> bool {
        matches!(
            self,
            Self::Int | Self::Struct | Self::Union | Self::Enum | Self::Enum64 | Self::Float | Self::Datasec
        )
    }
}

/// A type as it stands in the section; numbers and offsets in it are not checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type<'a> {
    pub(crate) kind: Kind,
    /// Offset of its name; 0 where it has none.
    pub(crate) name: u32,
    /// For structures: members have bit offsets with widths. For forward declarations: a union.
    pub(crate) flag: bool,
    /// Its size in bytes, or the number of the type it refers to.
    pub(crate) word: u32,
    pub(super) tail: &'a [u8],
    /// Where the tail starts in the section.
    pub(super) tail_at: u64,
}

/// A member of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Offset of its name.
    pub(crate) name: u32,
    /// Its type.
    pub(crate) ty: u32,
    /// Bits from the structure's start.
    pub(crate) bit_offset: u32,
}

impl<'a> Type<'a> {
    pub(super) const VOID: Type<'static> =
        Type { kind: Kind::Void, name: 0, flag: false, word: 0, tail: &[], tail_at: 0 };

    /// Of an array: the type of its elements and their number. (0, 0) for anything else.
    pub(crate) fn array(&self) -> (u32, u32) {
        match (self.kind, self.tail.len()) {
            (Kind::Array, 12) => (u32_at(self.tail, 0), u32_at(self.tail, 8)),
            _ => (0, 0),
        }
    }

    /// Of a structure or union: its members.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> + 'a {
        let is_struct = matches!(self.kind, Kind::Struct | Kind::Union);
        let mask = if self.flag { 0x00ff_ffff } else { u32::MAX };
        let tail = if is_struct { self.tail } else { &[] };
        tail.as_chunks::<12>().0.iter().map(move |bytes| Member {
            name: u32_at(bytes, 0),
            ty: u32_at(bytes, 4),
            bit_offset: u32_at(bytes, 8) & mask,
        })
    }

    /// Of an enumeration with a single value: that value, as an unsigned number.
    pub(crate) fn only_value(&self) -> Option<u64> {
        match (self.kind, self.tail.len()) {
            (Kind::Enum, 8) => Some(u32_at(self.tail, 4).into()),
            (Kind::Enum64, 12) => {
                Some(u64::from(u32_at(self.tail, 8)) << 32 | u64::from(u32_at(self.tail, 4)))
            }
            _ => None,
        }
    }
}

/// The variables of one section.
pub(crate) struct DataSection<'a> {
    btf: &'a Btf,
    ty: Type<'a>,
}

/// A variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable<'a> {
    pub(crate) name: &'a str,
    /// Its type.
    pub(crate) ty: u32,
    /// Bytes from the section's start, after relocation.
    pub(crate) offset: u32,
}

impl<'a> DataSection<'a> {
    pub(super) fn new(btf: &'a Btf, ty: Type<'a>) -> Self {
        Self { btf, ty }
    }

    /// Its variables, in the order of the section.
    pub(crate) fn variables(&self) -> impl Iterator<Item = Result<Variable<'a>, Error>> + use<'a> {
        let Self { btf, ty } = *self;
        let tail_at = ty.tail_at;
        ty.tail.as_chunks::<12>().0.iter().zip(0u64..).filter_map(move |(bytes, index)| {
            let variable = match btf.ty(u32_at(bytes, 0)) {
                Ok(variable) => variable,
                Err(error) => return Some(Err(error)),
            };
            if variable.kind != Kind::Var {
                return None; // extern functions have entries too
            }
            let added = btf.relocation(tail_at + index * 12 + 4);
            Some(btf.name(variable.name).map(|name| Variable {
                name,
                ty: variable.word,
                offset: u32_at(bytes, 4).wrapping_add(added),
            }))
        })
    }
}
