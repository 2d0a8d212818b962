//! What the kinds of maps share: how they fail, and how they are walked from end to end.

/// Why an operation on an element failed; [`crate::MapError`] is its long form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpError {
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
    /// Values have no lock to take.
    NoLock,
    /// The thread was interrupted while it held a lock, and would wait for itself.
    LockHeld,
    /// The map holds programs or maps, which are not given as bytes.
    HoldsReferences,
    /// Elements have no keys.
    NoKeys,
    /// The same, where Linux says that it does not support it.
    NoKeysAtAll,
    /// The queue has its maximum of elements.
    QueueFull,
    /// Flags that a push does not have.
    PushFlags,
    /// The map has no ends to push to and to pop from.
    NoQueue,
    /// Whoever holds the lock does not let it go, or cannot: this thread, which was interrupted.
    Busy,
    /// A bucket has so many elements, and the batch room for fewer.
    BucketLarger { count: usize, needed: usize },
    /// No memory within the limit, or none at all.
    NoMemory(skep_mem::Error),
}

impl OpError {
    /// The number that Linux has for it.
    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::Missing => errno::ENOENT,
            Self::Full | Self::QueueFull | Self::OutOfRange => errno::E2BIG,
            Self::NoMemory(_) => errno::ENOMEM,
            Self::Exists => errno::EEXIST,
            Self::PrefixTooLong
            | Self::CannotDelete
            | Self::HoldsReferences
            | Self::NoKeys
            | Self::NoLock
            | Self::PushFlags => errno::EINVAL,
            Self::NoKeysAtAll | Self::NoQueue => errno::EOPNOTSUPP,
            Self::Busy | Self::LockHeld => errno::EBUSY,
            Self::TrieFull | Self::BucketLarger { .. } => errno::ENOSPC,
        }
    }
}

/// Linux's error numbers, the same on every architecture.
pub(crate) mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const E2BIG: i32 = 7;
    pub(crate) const EAGAIN: i32 = 11;
    pub(crate) const ENOMEM: i32 = 12;
    pub(crate) const EACCES: i32 = 13;
    pub(crate) const EBUSY: i32 = 16;
    pub(crate) const EEXIST: i32 = 17;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const EOPNOTSUPP: i32 = 95;
    pub(crate) const ENOTSUPP: i32 = 524;
}
