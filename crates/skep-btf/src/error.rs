//! What can be wrong with type information, and with a look at a structure through it.

/// Why types could not be read, or a place in a structure not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes contradict themselves.
    #[error("{section} is damaged at byte {offset}: {reason}")]
    Damaged {
        /// `.BTF` or `.BTF.ext`.
        section: &'static str,
        /// Where in that section.
        offset: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// An ELF file without types, or one that cannot be read.
    #[error("the ELF file has no types: {reason}")]
    Elf {
        /// What is missing or wrong.
        reason: String,
    },
    /// Types of a module that continue no other types, or others than these.
    #[error(
        "these are not the types of a module of that kernel: a module's continue the kernel's, and are built with them"
    )]
    NoModule,
    /// A type number that no type has.
    #[error("there is no type {id}")]
    TypeMissing {
        /// The number.
        id: u32,
    },
    /// A chain of types that is longer than any compiler makes, most likely a loop.
    #[error("type {id} is made of itself")]
    Endless {
        /// Where the chain was entered.
        id: u32,
    },
    /// A type whose text in C would be out of proportion to the file: types without a name that contain one another.
    #[error("type {id} takes too much text in C: types without a name are repeated in one another")]
    Expands {
        /// The type's number.
        id: u32,
    },
    /// The size of a type that has none, or none that fits 32 bits, was needed.
    #[error("type {id} has no size that fits 32 bits")]
    Unsized {
        /// The type's number.
        id: u32,
    },
    /// A type of one kind was needed where there is another.
    #[error("type {id} is no {expected}")]
    WrongKind {
        /// The type's number.
        id: u32,
        /// What was needed, in C's words.
        expected: &'static str,
    },
    /// Locks, timers and the like stand in a value as they must not.
    #[error("{ty}: {reason}")]
    Special {
        /// The type as C writes it.
        ty: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No field of a structure can be accessed as asked.
    #[error("{size} bytes at offset {offset} of {root}: {path} {fault}")]
    Walk {
        /// The structure as C writes it.
        root: String,
        /// The member that the walk led to, or the structure itself.
        path: String,
        /// Where the access starts, from the structure's start.
        offset: u32,
        /// Bytes accessed.
        size: u32,
        /// What is wrong.
        fault: Fault,
    },
}

/// Why nothing in a structure can be accessed as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The access reaches beyond the end.
    #[error("ends after {0} bytes")]
    Beyond(u32),
    /// No member is there.
    #[error("has no member there")]
    Padding,
    /// The access takes in a part of a member and something else.
    #[error("is only touched in part")]
    Crosses,
    /// The access reads a part of a pointer.
    #[error("is a pointer, which must be read as a whole")]
    PartOfPointer,
    /// The access takes in a part of a bit field.
    #[error("is a bit field, which must be read as a whole")]
    PartOfBitField,
    /// Structures inside structures, deeper or wider than any that a compiler makes.
    #[error("is too deep or too large to search")]
    TooLarge,
}
