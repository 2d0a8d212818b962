//! What the kinds of maps share: how they fail, and how they are walked from end to end.

use std::collections::VecDeque;

/// Why an operation on an element failed; [`crate::MapError`] is its long form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The element exists and must not.
    Exists,
    /// The element does not exist and must.
    Missing,
    /// The map has its maximum of elements.
    Full,
    /// The trie has its maximum of elements: Linux has another number for it.
    TrieFull,
    /// The index is not below the number of elements.
    OutOfRange,
    /// The prefix is longer than the key.
    PrefixTooLong,
    /// Elements of an array cannot be deleted.
    CannotDelete,
    /// The map holds programs or maps, which are not given as bytes.
    HoldsReferences,
    /// No memory within the limit, or none at all.
    NoMemory(skep_mem::Error),
}

impl Fault {
    /// The number that Linux has for it.
    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::Missing => errno::ENOENT,
            Self::Full | Self::OutOfRange => errno::E2BIG,
            Self::NoMemory(_) => errno::ENOMEM,
            Self::Exists => errno::EEXIST,
            Self::PrefixTooLong | Self::CannotDelete | Self::HoldsReferences => errno::EINVAL,
            Self::TrieFull => errno::ENOSPC,
        }
    }
}

/// Linux's error numbers, the same on every architecture.
pub(crate) mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const E2BIG: i32 = 7;
    pub(crate) const ENOMEM: i32 = 12;
    pub(crate) const EEXIST: i32 = 17;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
}

/// Where a walk over a whole map has come to.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// Arrays: the next index. Hash tables: the next bucket.
    pub(crate) position: u64,
    /// Tries: the last key that was given out.
    pub(crate) after: Option<Vec<u8>>,
}

/// Copies of elements, key and value each.
pub(crate) type Batch = VecDeque<(Vec<u8>, Vec<u8>)>;

/// About how many elements are copied at a time. Locks are held for one batch at most.
pub(crate) const BATCH: usize = 64;
