//! Errors of operations on elements.

/// Why an operation on an element failed. [`crate::MapError`] adds the map, the key and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpError {
    /// The element exists and must not.
    Exists,
    /// The element does not exist and must.
    Missing,
    /// The map has its maximum of elements.
    Full,
    /// The same for a trie, which has another error number in Linux.
    TrieFull,
    /// The index is not below the number of elements.
    OutOfRange,
    /// The prefix is longer than the key.
    PrefixTooLong,
    /// Elements of an array cannot be deleted.
    CannotDelete,
    /// Values have no lock.
    NoLock,
    /// The thread was interrupted while it held a value's lock, and would wait for itself.
    LockHeld,
    /// The map holds programs or maps, which have no bytes to read or write.
    HoldsReferences,
    /// A map of sockets or control groups refuses it, with that error number.
    BadObject { why: &'static str, errno: i32 },
    /// Only calls of programs fill the map.
    FilledByCalls,
    /// Elements have no keys.
    NoKeys,
    /// The same, where Linux reports an unsupported operation.
    NoKeysAtAll,
    /// The queue has its maximum of elements.
    QueueFull,
    /// Flags that a push does not accept.
    PushFlags,
    /// The map is no queue, stack or bloom filter.
    NoQueue,
    /// The lock's holder does not release it in time, or is this very thread, interrupted.
    Busy,
    /// A bucket has more elements than the batch has room for.
    BucketLarger { count: usize, needed: usize },
    /// The value names no target of the map's kind.
    BadTarget,
    /// No memory within the limit, or none at all.
    NoMemory(skep_mem::Error),
}

impl OpError {
    /// Linux's error number.
    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::Missing => errno::ENOENT,
            Self::Full | Self::QueueFull | Self::OutOfRange => errno::E2BIG,
            Self::NoMemory(_) => errno::ENOMEM,
            Self::Exists => errno::EEXIST,
            Self::PrefixTooLong
            | Self::CannotDelete
            | Self::HoldsReferences
            | Self::FilledByCalls
            | Self::NoKeys
            | Self::NoLock
            | Self::BadTarget
            | Self::PushFlags => errno::EINVAL,
            Self::BadObject { errno, .. } => errno,
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
    pub(crate) const EFAULT: i32 = 14;
    pub(crate) const EBUSY: i32 = 16;
    pub(crate) const EEXIST: i32 = 17;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const EOPNOTSUPP: i32 = 95;
    pub(crate) const ENOTSUPP: i32 = 524;
}
