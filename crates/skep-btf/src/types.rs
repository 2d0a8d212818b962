//! One type: its kind, and what its kind makes of the bytes behind the first twelve.

use std::fmt;

use crate::btf::Btf;
use crate::error::Error;
use crate::header::u32_at;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $tail:expr;)*) => {
        /// The kind of a type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            /// No type: `void`.
            Void,
            $($(#[$doc])* $variant,)*
        }

        impl Kind {
            /// The kind of that number in a file.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Bytes behind the first twelve of a type that counts `count` elements.
            pub(crate) fn tail_bytes(self, count: usize) -> usize {
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
    /// Integers, characters, booleans.
    Int = 1, Tail::Fixed(4);
    /// Pointers.
    Ptr = 2, Tail::None;
    /// Arrays.
    Array = 3, Tail::Fixed(12);
    /// Structures.
    Struct = 4, Tail::Each(12);
    /// Unions.
    Union = 5, Tail::Each(12);
    /// Enumerations of 32-bit values.
    Enum = 6, Tail::Each(8);
    /// Structures and unions that are declared and not defined.
    Fwd = 7, Tail::None;
    /// Type names.
    Typedef = 8, Tail::None;
    /// `volatile`.
    Volatile = 9, Tail::None;
    /// `const`.
    Const = 10, Tail::None;
    /// `restrict`.
    Restrict = 11, Tail::None;
    /// Functions.
    Func = 12, Tail::None;
    /// What functions take and return.
    FuncProto = 13, Tail::Each(8);
    /// Variables.
    Var = 14, Tail::Fixed(4);
    /// Sections with variables.
    Datasec = 15, Tail::Each(12);
    /// Floating-point numbers.
    Float = 16, Tail::None;
    /// Remarks on types, members, parameters.
    DeclTag = 17, Tail::Fixed(4);
    /// Remarks on what a pointer points to.
    TypeTag = 18, Tail::None;
    /// Enumerations of 64-bit values.
    Enum64 = 19, Tail::Each(12);
}

impl Kind {
    /// Whether it stands for the type it refers to and changes nothing about the bytes.
    pub fn is_modifier(self) -> bool {
        matches!(self, Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag)
    }

    /// Whether it has members.
    pub fn is_composite(self) -> bool {
        matches!(self, Self::Struct | Self::Union)
    }

    /// Its name in the words of Linux's log and of bpftool: `STRUCT`, `FUNC_PROTO`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Void => "UNKNOWN",
            Self::Int => "INT",
            Self::Ptr => "PTR",
            Self::Array => "ARRAY",
            Self::Struct => "STRUCT",
            Self::Union => "UNION",
            Self::Enum => "ENUM",
            Self::Fwd => "FWD",
            Self::Typedef => "TYPEDEF",
            Self::Volatile => "VOLATILE",
            Self::Const => "CONST",
            Self::Restrict => "RESTRICT",
            Self::Func => "FUNC",
            Self::FuncProto => "FUNC_PROTO",
            Self::Var => "VAR",
            Self::Datasec => "DATASEC",
            Self::Float => "FLOAT",
            Self::DeclTag => "DECL_TAG",
            Self::TypeTag => "TYPE_TAG",
            Self::Enum64 => "ENUM64",
        }
    }

    /// Whether it is an enumeration.
    pub fn is_enum(self) -> bool {
        matches!(self, Self::Enum | Self::Enum64)
    }
}

/// A type as it stands in the file; numbers and offsets in it are not checked.
#[derive(Clone, Copy)]
pub struct Type<'a> {
    pub(crate) btf: &'a Btf,
    /// Its number.
    pub id: u32,
    /// Its kind.
    pub kind: Kind,
    pub(crate) name_at: u32,
    /// For structures: members have bit offsets with widths. For forward declarations: a union. For
    /// enumerations: signed. For tags: an attribute of the compiler.
    pub(crate) flag: bool,
    pub(crate) count: u32,
    /// Its size in bytes, or the number of the type it refers to.
    pub(crate) word: u32,
    pub(crate) tail: &'a [u8],
}

/// What an integer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int {
    /// Bits that count.
    pub bits: u32,
    /// Bits before them.
    pub offset: u32,
    /// Whether it is signed.
    pub signed: bool,
    /// Whether it is a character.
    pub is_char: bool,
    /// Whether it is a truth value.
    pub is_bool: bool,
}

/// What an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    /// The type of its elements.
    pub element: u32,
    /// The type of an index.
    pub index: u32,
    /// Their number; 0 also for arrays at a structure's end that are as long as need be.
    pub count: u32,
}

/// A member of a structure or union.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    btf: &'a Btf,
    pub(crate) name_at: u32,
    /// Its type.
    pub ty: u32,
    /// Bits from the structure's start.
    pub bit_offset: u32,
    /// Width of a bit field; 0 for members that are none.
    pub bits: u32,
}

/// A parameter of a function.
#[derive(Clone, Copy)]
pub struct Param<'a> {
    btf: &'a Btf,
    pub(crate) name_at: u32,
    /// Its type; 0 for the `...` of functions that take more.
    pub ty: u32,
}

/// A value of an enumeration.
#[derive(Clone, Copy)]
pub struct Enumerator<'a> {
    btf: &'a Btf,
    pub(crate) name_at: u32,
    /// The value, sign-extended where the enumeration is signed.
    pub value: u64,
}

/// A variable of a section.
#[derive(Clone, Copy)]
pub struct Variable<'a> {
    /// The variable itself.
    pub var: Type<'a>,
    /// Bytes from the section's start.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

/// The linkage of a function or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// This object alone.
    Static,
    /// Others as well.
    Global,
    /// It is defined elsewhere.
    Extern,
}

macro_rules! named {
    ($($ty:ident)*) => {$(
        impl<'a> $ty<'a> {
            /// Its name; empty where it has none.
            ///
            /// # Errors
            ///
            /// [`Error::Damaged`].
            pub fn name(&self) -> Result<&'a str, Error> {
                if self.name_at == 0 { Ok("") } else { self.btf.string(self.name_at) }
            }

            /// Whether it has no name.
            pub fn is_anonymous(&self) -> bool {
                self.name_at == 0
            }
        }
    )*};
}

named!(Type Member Param Enumerator);

impl<'a> Type<'a> {
    pub(crate) fn void(btf: &'a Btf) -> Self {
        Type { btf, id: 0, kind: Kind::Void, name_at: 0, flag: false, count: 0, word: 0, tail: &[] }
    }

    /// The type it refers to: a pointer's, a qualifier's, a variable's, a function's prototype, a prototype's
    /// result, what a tag is about. 0 for others.
    pub fn target(&self) -> u32 {
        match self.kind {
            Kind::Ptr | Kind::Func | Kind::FuncProto | Kind::Var | Kind::DeclTag => self.word,
            kind if kind.is_modifier() => self.word,
            _ => 0,
        }
    }

    /// Its size in bytes, if it says so itself: not for arrays, nor for what refers to another type.
    pub fn size(&self) -> Option<u32> {
        use Kind as K;
        match self.kind {
            K::Ptr => Some(8),
            K::Int | K::Struct | K::Union | K::Enum | K::Enum64 | K::Float | K::Datasec => Some(self.word),
            _ => None,
        }
    }

    /// Whether it is a forward declaration of a union, not of a structure.
    pub fn is_union_declaration(&self) -> bool {
        self.kind == Kind::Fwd && self.flag
    }

    /// Whether it is an integer or enumeration whose highest bit is a sign.
    pub fn is_signed(&self) -> bool {
        match self.kind {
            Kind::Int => self.int().is_some_and(|int| int.signed),
            kind => kind.is_enum() && self.flag,
        }
    }

    /// Whether it is a tag that hands on an attribute of the compiler (`__attribute__((...))`).
    pub fn is_attribute(&self) -> bool {
        matches!(self.kind, Kind::TypeTag | Kind::DeclTag) && self.flag
    }

    /// Of an integer: what it is.
    pub fn int(&self) -> Option<Int> {
        (self.kind == Kind::Int && self.tail.len() == 4).then(|| {
            let word = u32_at(self.tail, 0);
            let has = |bit: u32| word >> 24 & bit != 0;
            Int {
                bits: word & 0xff,
                offset: word >> 16 & 0xff,
                signed: has(1),
                is_char: has(2),
                is_bool: has(4),
            }
        })
    }

    /// Of an array: the type of its elements and their number.
    pub fn array(&self) -> Option<Array> {
        (self.kind == Kind::Array && self.tail.len() == 12).then(|| Array {
            element: u32_at(self.tail, 0),
            index: u32_at(self.tail, 4),
            count: u32_at(self.tail, 8),
        })
    }

    /// Of a structure or union: its members.
    pub fn members(&self) -> impl ExactSizeIterator<Item = Member<'a>> + use<'a> {
        let (btf, flag) = (self.btf, self.flag);
        let records = self.records::<12>(self.kind.is_composite());
        records.iter().map(move |bytes| Member::of(btf, flag, bytes))
    }

    /// Of a structure or union: the member of that number.
    pub fn member(&self, index: usize) -> Option<Member<'a>> {
        let bytes = self.records::<12>(self.kind.is_composite()).get(index)?;
        Some(Member::of(self.btf, self.flag, bytes))
    }

    /// Of a function prototype: its parameters.
    pub fn params(&self) -> impl ExactSizeIterator<Item = Param<'a>> + use<'a> {
        let btf = self.btf;
        let records = self.records::<8>(self.kind == Kind::FuncProto);
        records.iter().map(move |bytes| Param { btf, name_at: u32_at(bytes, 0), ty: u32_at(bytes, 4) })
    }

    /// Of an enumeration: its values.
    pub fn enumerators(&self) -> impl Iterator<Item = Enumerator<'a>> + use<'a> {
        let (btf, signed) = (self.btf, self.flag);
        let narrow = self.records::<8>(self.kind == Kind::Enum).iter().map(move |bytes| {
            let value = u32_at(bytes, 4);
            let value = if signed { i64::from(value.cast_signed()).cast_unsigned() } else { value.into() };
            Enumerator { btf, name_at: u32_at(bytes, 0), value }
        });
        let wide = self.records::<12>(self.kind == Kind::Enum64).iter().map(move |bytes| {
            let value = u64::from(u32_at(bytes, 8)) << 32 | u64::from(u32_at(bytes, 4));
            Enumerator { btf, name_at: u32_at(bytes, 0), value }
        });
        narrow.chain(wide)
    }

    /// Of a section: its variables, and functions that are defined elsewhere. Entries that name no type are
    /// left out.
    pub fn variables(&self) -> impl Iterator<Item = Variable<'a>> + use<'a> {
        let btf = self.btf;
        self.records::<12>(self.kind == Kind::Datasec).iter().filter_map(move |bytes| {
            let var = btf.ty(u32_at(bytes, 0)).ok()?;
            Some(Variable { var, offset: u32_at(bytes, 4), size: u32_at(bytes, 8) })
        })
    }

    /// Of a function or variable: its linkage.
    pub fn linkage(&self) -> Option<Linkage> {
        let number = match (self.kind, self.tail.len()) {
            (Kind::Func, _) => self.count,
            (Kind::Var, 4) => u32_at(self.tail, 0),
            _ => return None,
        };
        match number {
            0 => Some(Linkage::Static),
            1 => Some(Linkage::Global),
            2 => Some(Linkage::Extern),
            _ => None,
        }
    }

    /// Of a remark on a declaration: the member or parameter that it is about, or `None` for the whole.
    pub fn component(&self) -> Option<u32> {
        match (self.kind, self.tail.len()) {
            (Kind::DeclTag, 4) => Some(u32_at(self.tail, 0)).filter(|&index| index != u32::MAX),
            _ => None,
        }
    }

    /// The tail in equal parts, if it is of a kind that has such.
    fn records<const BYTES: usize>(&self, has: bool) -> &'a [[u8; BYTES]] {
        if has { self.tail.as_chunks::<BYTES>().0 } else { &[] }
    }
}

impl Btf {
    /// The members of the structure or union behind typedefs and qualifiers.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] for other kinds, [`Error::TypeMissing`] and [`Error::Endless`].
    pub fn members(&self, id: u32) -> Result<impl ExactSizeIterator<Item = Member<'_>>, Error> {
        let ty = self.resolve(id)?;
        match ty.kind.is_composite() {
            true => Ok(ty.members()),
            false => Err(Error::WrongKind { id, expected: "structure or union" }),
        }
    }

    /// The prototype of a function, of a pointer to one, or of a name for either, as the types of trace points
    /// are.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] for other kinds, [`Error::TypeMissing`] and [`Error::Endless`].
    pub fn prototype(&self, id: u32) -> Result<Type<'_>, Error> {
        let mut ty = self.resolve(id)?;
        // A function or a pointer, each once at most: more would be something else.
        for _ in 0..2 {
            if matches!(ty.kind, Kind::Ptr | Kind::Func) {
                ty = self.resolve(ty.word)?;
            }
        }
        match ty.kind {
            Kind::FuncProto => Ok(ty),
            _ => Err(Error::WrongKind { id, expected: "function" }),
        }
    }
}

impl fmt::Debug for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("?");
        write!(f, "{} {:?} {name}", self.id, self.kind)
    }
}

impl<'a> Member<'a> {
    /// Reads a member; `flag` is the structure's, which says that some are bit fields.
    fn of(btf: &'a Btf, flag: bool, bytes: &[u8; 12]) -> Self {
        let (mask, shift) = if flag { (0x00ff_ffff, 24) } else { (u32::MAX, 0) };
        let place = u32_at(bytes, 8);
        Self {
            btf,
            name_at: u32_at(bytes, 0),
            ty: u32_at(bytes, 4),
            bit_offset: place & mask,
            bits: if flag { place >> shift } else { 0 },
        }
    }
}

impl fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("?");
        write!(f, "{name}: type {} at bit {}", self.ty, self.bit_offset)
    }
}
