//! Rust types that may be fields of a context.

use super::describe::{FieldType, HostStruct, StructType};
use super::lend::{Lending, TakingBack};
use skep_isa::Size;

/// A type of a context's field: a number, `bool`, an array of numbers, bytes. Only this crate implements it.
///
/// | Rust | C | programs may write it |
/// |---|---|---|
/// | `u8` to `u64`, `i8` to `i64` | `__u8` to `__s64` | with `#[context(write)]` |
/// | `bool` | `__u8`, 0 or 1 | no |
/// | `[u8; N]` and arrays of the others | the same | with `#[context(write)]` |
/// | `&[u8]`, `&str`, `String` | `const __u8 *NAME`, `const __u8 *NAME_end` | no |
/// | `Vec<u8>`, `Box<[u8]>` | the same, or without `const` | with `#[context(write)]` |
/// | `&mut [u8]` | `__u8 *NAME`, `__u8 *NAME_end` | yes |
/// | `&[u8; N]`, `&mut [u8; N]` | a pointer to such an array | if `mut` |
/// | `&T`, `&mut T`, `Option` of these and of `T`, where `T` is a [`HostStruct`] | a pointer to it; null for `None` | its writable fields, unless it is `&T` |
pub trait Field: sealed::Field {
    #[doc(hidden)]
    fn describe() -> FieldType;
    #[doc(hidden)]
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>);
    #[doc(hidden)]
    fn lend_shared<'r>(&'r self, to: &mut Lending<'r>);
    #[doc(hidden)]
    fn take_back(&mut self, from: &mut TakingBack<'_>);
}

/// A [`Field`] that programs may write: every pattern of its bytes is a value. So `bool` and enums are none.
pub trait WritableField: Field {}

/// What a pointer in a context leads to: a [`HostStruct`], or an array of bytes. Only this crate implements it.
pub trait Pointee: sealed::Pointee {
    #[doc(hidden)]
    fn describe(writable: bool, nullable: bool) -> FieldType;
    #[doc(hidden)]
    fn lend<'r>(this: Option<&'r mut Self>, to: &mut Lending<'r>);
    #[doc(hidden)]
    fn lend_shared<'r>(this: Option<&'r Self>, to: &mut Lending<'r>);
    #[doc(hidden)]
    fn take_back(this: Option<&mut Self>, from: &mut TakingBack<'_>);
}

/// A number that a context holds. Only this crate implements it.
pub trait Number: sealed::Number + Copy + Default {
    #[doc(hidden)]
    const SIZE: Size;
    #[doc(hidden)]
    const SIGNED: bool;
    #[doc(hidden)]
    fn to_bits(self) -> u64;
    #[doc(hidden)]
    fn from_bits(bits: u64) -> Self;
}

mod sealed {
    pub trait Field {}
    pub trait Pointee {}
    pub trait Number {}
}

macro_rules! numbers {
    ($($number:ident $size:ident $signed:literal;)*) => {
        $(
            impl sealed::Number for $number {}
            impl Number for $number {
                const SIZE: Size = Size::$size;
                const SIGNED: bool = $signed;
                fn to_bits(self) -> u64 {
                    self as u64
                }
                fn from_bits(bits: u64) -> Self {
                    bits as Self
                }
            }
            impl sealed::Field for $number {}
            impl WritableField for $number {}
            impl Field for $number {
                fn describe() -> FieldType {
                    FieldType::Number { size: Size::$size, signed: $signed, writable: false }
                }
                fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
                    to.number(*self);
                }
                fn lend_shared<'r>(&'r self, to: &mut Lending<'r>) {
                    to.number(*self);
                }
                fn take_back(&mut self, from: &mut TakingBack<'_>) {
                    from.number(self);
                }
            }
        )*
    };
}

numbers! {
    u8 B1 false; u16 B2 false; u32 B4 false; u64 B8 false;
    i8 B1 true; i16 B2 true; i32 B4 true; i64 B8 true;
}

impl sealed::Field for bool {}
impl Field for bool {
    fn describe() -> FieldType {
        u8::describe()
    }
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
        to.number(u8::from(*self));
    }
    fn lend_shared<'r>(&'r self, to: &mut Lending<'r>) {
        to.number(u8::from(*self));
    }
    fn take_back(&mut self, from: &mut TakingBack<'_>) {
        // Nobody can have described it as writable but a description by hand, which loses the write.
        from.number(&mut 0u8);
    }
}

impl<N: Number, const COUNT: usize> sealed::Field for [N; COUNT] {}
impl<N: Number, const COUNT: usize> WritableField for [N; COUNT] {}
impl<N: Number, const COUNT: usize> Field for [N; COUNT] {
    fn describe() -> FieldType {
        let count = u32::try_from(COUNT).unwrap_or(u32::MAX);
        FieldType::Numbers { size: N::SIZE, signed: N::SIGNED, count, writable: false }
    }
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
        to.numbers(self);
    }
    fn lend_shared<'r>(&'r self, to: &mut Lending<'r>) {
        to.numbers(self);
    }
    fn take_back(&mut self, from: &mut TakingBack<'_>) {
        from.numbers(self);
    }
}

macro_rules! bytes {
    ($($kind:ty, $lend:expr, $writable:literal;)*) => {
        $(
            impl sealed::Field for $kind {}
            impl Field for $kind {
                fn describe() -> FieldType {
                    FieldType::Slice { writable: $writable }
                }
                fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
                    let lend: fn(&'r mut Self, &mut Lending<'r>) = $lend;
                    lend(self, to);
                }
                fn lend_shared<'r>(&'r self, to: &mut Lending<'r>) {
                    to.slice(self.as_ref());
                }
                fn take_back(&mut self, from: &mut TakingBack<'_>) {
                    from.skip();
                }
            }
        )*
    };
}

bytes! {
    &[u8], |this, to| to.slice(this), false;
    &str, |this, to| to.slice(this.as_bytes()), false;
    String, |this, to| to.slice(this.as_bytes()), false;
    &mut [u8], |this, to| to.slice_mut(this), true;
    Vec<u8>, |this, to| to.slice_mut(this), false;
    Box<[u8]>, |this, to| to.slice_mut(this), false;
}
impl WritableField for Vec<u8> {}
impl WritableField for Box<[u8]> {}
impl WritableField for &mut [u8] {}

impl<const BYTES: usize> sealed::Pointee for [u8; BYTES] {}
impl<const BYTES: usize> Pointee for [u8; BYTES] {
    fn describe(writable: bool, nullable: bool) -> FieldType {
        FieldType::Bytes { bytes: u32::try_from(BYTES).unwrap_or(u32::MAX), writable, nullable }
    }
    fn lend<'r>(this: Option<&'r mut Self>, to: &mut Lending<'r>) {
        to.bytes_mut(this.map(|bytes| &mut bytes[..]));
    }
    fn lend_shared<'r>(this: Option<&'r Self>, to: &mut Lending<'r>) {
        to.bytes(this.map(|bytes| &bytes[..]));
    }
    fn take_back(_this: Option<&mut Self>, from: &mut TakingBack<'_>) {
        from.skip();
    }
}

impl<T: HostStruct> sealed::Pointee for T {}
impl<T: HostStruct> Pointee for T {
    fn describe(writable: bool, nullable: bool) -> FieldType {
        FieldType::Struct { of: StructType::of::<T>(), writable, nullable }
    }
    fn lend<'r>(this: Option<&'r mut Self>, to: &mut Lending<'r>) {
        to.structure(this);
    }
    fn lend_shared<'r>(this: Option<&'r Self>, to: &mut Lending<'r>) {
        to.structure_shared(this);
    }
    fn take_back(this: Option<&mut Self>, from: &mut TakingBack<'_>) {
        from.structure(this);
    }
}

/// What the derive asks for where a field has `#[context(write)]`.
#[doc(hidden)]
pub const fn assert_writable<T: WritableField>() {}
