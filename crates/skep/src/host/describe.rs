//! What a context looks like, as data: names, kinds and rights of its fields, in the order of the C structure.
//!
//! A description says nothing of offsets: those follow from C's rules ([`layout`](super::layout)). It is the source of
//! everything else: the verifier's table, the C header, the types in BTF, and the checks of what a host lends.

use super::lend::{Lending, TakingBack};
use skep_isa::Size;
use std::cell::Cell;

/// A structure that programs read, and perhaps write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructType {
    pub(super) name: String,
    pub(super) fields: Vec<(String, FieldType)>,
    /// Whether its description was cut off: it contains itself, or leads too deep.
    pub(super) endless: bool,
}

/// What a field is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldType {
    /// A number in the structure.
    Number {
        /// Its size.
        size: Size,
        /// Whether C declares it signed.
        signed: bool,
        /// Whether programs may write it.
        writable: bool,
    },
    /// An array of numbers in the structure. Programs read it at constant indices.
    Numbers {
        /// The size of an element.
        size: Size,
        /// Whether C declares them signed.
        signed: bool,
        /// How many there are.
        count: u32,
        /// Whether programs may write them.
        writable: bool,
    },
    /// Two pointers: to the first of some bytes, and past the last. The second is called `NAME_end`.
    Slice {
        /// Whether programs may write the bytes.
        writable: bool,
    },
    /// A pointer to that many bytes, which programs may index as they like.
    Bytes {
        /// How many.
        bytes: u32,
        /// Whether programs may write them.
        writable: bool,
        /// Whether it may be null.
        nullable: bool,
    },
    /// A pointer to another structure.
    Struct {
        /// That structure.
        of: StructType,
        /// Whether programs may write its writable fields.
        writable: bool,
        /// Whether it may be null.
        nullable: bool,
    },
}

/// The most structures between a context and one that it leads to.
const MAX_DEPTH: u8 = 8;

thread_local! {
    /// How many descriptions of structures are being made, one inside the other.
    static DEPTH: Cell<u8> = const { Cell::new(0) };
}

impl StructType {
    /// A structure of that C name without fields.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), fields: Vec::new(), endless: false }
    }

    /// Adds a field behind the others.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, kind: FieldType) -> Self {
        self.fields.push((name.into(), kind));
        self
    }

    /// The description of a Rust structure.
    pub fn of<T: HostStruct + ?Sized>() -> Self {
        let depth = DEPTH.get();
        let empty = Self::new(T::NAME);
        if depth > MAX_DEPTH {
            return Self { endless: true, ..empty };
        }
        DEPTH.set(depth + 1);
        let described = T::describe(empty);
        DEPTH.set(depth);
        described
    }

    /// Its name in C.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &FieldType)> {
        self.fields.iter().map(|(name, kind)| (name.as_str(), kind))
    }
}

impl FieldType {
    /// The same, writable for programs.
    #[must_use]
    pub fn writable(mut self) -> Self {
        match &mut self {
            Self::Number { writable, .. }
            | Self::Numbers { writable, .. }
            | Self::Slice { writable }
            | Self::Bytes { writable, .. }
            | Self::Struct { writable, .. } => *writable = true,
        }
        self
    }
}

/// A Rust structure that programs see: a context, or what one leads to. `#[derive(Context)]` implements it.
///
/// An implementation by hand cannot do harm: what it lends is compared with what it describes before each run.
pub trait HostStruct {
    /// The structure's name in C.
    const NAME: &'static str;

    /// Adds the fields.
    fn describe(empty: StructType) -> StructType;

    /// Lends each field, in the order of the description.
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>);

    /// The same where programs may write nothing.
    fn lend_shared<'r>(&'r self, to: &mut Lending<'r>);

    /// Takes over the numbers that the program has written, in the same order.
    fn take_back(&mut self, from: &mut TakingBack<'_>);
}

/// A Rust structure that is the context of a program type. `#[derive(Context)]` implements it for structures with
/// `#[context(section = "...")]`.
pub trait HostContext: HostStruct {
    /// The name in `SEC("...")`.
    const SECTION: &'static str;

    /// The structure itself, with `'static` for all its lifetimes: it names the program type.
    type Kind: HostContext<Kind = Self::Kind> + 'static;

    /// What programs return.
    type Verdict: Verdict;

    /// What the type's own functions work on ([`Host`](crate::function::Host)): the field with `#[context(host)]`,
    /// which programs do not see. `()` without one.
    type Host: 'static;

    /// [`HostStruct::lend`], and the part for functions.
    fn lend_with_host<'r>(&'r mut self, to: &mut Lending<'r>) -> &'r mut Self::Host;
}

/// What programs of a type return. `#[derive(Verdict)]` implements it for enums without fields.
pub trait Verdict: Sized {
    /// The enum's name in C; empty without one, as for `bool` and where every number is allowed.
    const NAME: &'static str;

    /// Names and numbers. The verifier proves that a result is between the least and the greatest.
    const VALUES: &'static [(&'static str, i32)];

    /// The verdict of that number.
    fn from_result(result: i32) -> Option<Self>;
}

impl Verdict for i32 {
    const NAME: &'static str = "";
    const VALUES: &'static [(&'static str, i32)] = &[];
    fn from_result(result: i32) -> Option<Self> {
        Some(result)
    }
}

impl Verdict for u32 {
    const NAME: &'static str = "";
    const VALUES: &'static [(&'static str, i32)] = &[];
    fn from_result(result: i32) -> Option<Self> {
        Some(result.cast_unsigned())
    }
}

impl Verdict for bool {
    const NAME: &'static str = "";
    const VALUES: &'static [(&'static str, i32)] = &[("false", 0), ("true", 1)];
    fn from_result(result: i32) -> Option<Self> {
        match result {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}
