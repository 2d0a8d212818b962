//! Helper prototypes: what the verifier demands of a call's arguments and learns of its result.

use std::borrow::Cow;

/// What happens to memory that is passed to a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The helper reads it: every byte must be readable and initialised.
    Read,
    /// The helper fills it: it must be writable, and is initialised afterwards.
    Write,
    /// Both.
    ReadWrite,
}

/// What an argument of a helper must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArgKind {
    /// Not an argument: the register is not looked at.
    None,
    /// Any initialised value; pointers only where the program type lets them leak.
    Anything,
    /// A value for a format string: looked at only where the format names it, so it may be uninitialised.
    Printed,
    /// A number.
    Scalar,
    /// The program's context, unchanged.
    Context,
    /// A map.
    Map,
    /// Readable memory of the key size of the preceding `Map` argument.
    MapKey,
    /// Memory of the value size of the preceding `Map` argument.
    MapValue(Access),
    /// Memory whose size is the next argument, a [`ArgKind::Size`].
    Memory {
        /// What the helper does with it.
        access: Access,
        /// Whether a null pointer may be passed (the size must then be 0).
        nullable: bool,
    },
    /// Memory of fixed size.
    FixedMemory {
        /// What the helper does with it.
        access: Access,
        /// Bytes.
        bytes: u32,
    },
    /// Size in bytes of the memory argument before it.
    Size {
        /// Whether zero is allowed.
        zero: bool,
    },
    /// A NUL-terminated string in read-only map memory (`.rodata`).
    ConstString,
}

/// What a helper returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetKind {
    /// A number of which nothing is known.
    Scalar,
    /// A number in a range, both ends included.
    Range {
        /// Smallest.
        min: i64,
        /// Greatest.
        max: i64,
    },
    /// The value of the map given as the `Map` argument, or null.
    MapValueOrNull,
    /// Nothing: `r0` is unreadable afterwards.
    Void,
    /// Does not return: the tail call either leaves the program or falls through with `r0` unreadable.
    TailCall,
}

/// The prototype of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperProto {
    /// Its number in the call instruction.
    pub id: u32,
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its arguments, `r1` to `r5`.
    pub args: [ArgKind; 5],
    /// Its result.
    pub ret: RetKind,
    /// Whether only programs under a GPL-compatible licence may call it.
    pub gpl_only: bool,
    /// Whether it may move or resize the packet: every packet pointer is lost.
    pub moves_packet: bool,
}
