//! The crate's error.

/// Why a cache or a block has no memory, or cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every object of the cache is in use, waits for readers, or is ready on another CPU.
    #[error(
        "the cache has no free object (capacity {capacity}, plus spare ones): free some, let readers leave, or give the cache a \
         larger capacity"
    )]
    Exhausted {
        /// The number of objects that may be in use at the same time, at least.
        capacity: usize,
    },

    /// The cache would exceed its limit in bytes.
    #[error(
        "the cache holds {held} bytes, and {wanted} more would exceed its limit of {limit} bytes: \
         raise the limit, or request fewer or smaller objects"
    )]
    Limit {
        /// Bytes that the cache holds.
        held: usize,
        /// Bytes that it would need in addition.
        wanted: usize,
        /// Bytes that it may hold.
        limit: usize,
    },

    /// An [`Account`](crate::Account) would be exceeded.
    #[error(
        "{used} of {limit} are used, and {wanted} more would exceed that quota: free some of what it pays for, wait \
         until readers have left what was freed, or raise the quota"
    )]
    Account {
        /// What was taken from it, by all that share it.
        used: u64,
        /// What was asked for in addition.
        wanted: u64,
        /// What can be taken.
        limit: u64,
    },

    /// The system refused memory.
    #[error("the system refused {bytes} bytes of memory")]
    OutOfMemory {
        /// The number of bytes requested.
        bytes: usize,
    },

    /// The size exceeds the address space.
    #[error("{count} objects of {size} bytes exceed the address space: request fewer or smaller ones")]
    TooLarge {
        /// Number of objects; 1 for a block.
        count: usize,
        /// Bytes in each.
        size: usize,
    },

    /// The alignment is not supported.
    #[error("alignment {align} is invalid: it must be a power of two from 1 to 4096")]
    Align {
        /// The alignment requested.
        align: usize,
    },

    /// The offset cannot be aligned.
    #[error("offset {offset} in an object cannot be aligned: it must be a multiple of 8")]
    Offset {
        /// The offset requested.
        offset: usize,
    },

    /// The cache would have no objects, or objects without bytes.
    #[error("a cache of {capacity} objects of {size} bytes is empty: both numbers must be at least 1")]
    Empty {
        /// Number of objects.
        capacity: usize,
        /// Bytes in each.
        size: usize,
    },
}
