//! What can go wrong with memory.

/// Why memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every object of the cache is in use, waits for readers, or lies ready for another CPU.
    #[error(
        "no object is left of the {capacity} that there may be and those to spare: free some, let readers leave, or make the cache \
         with a larger capacity"
    )]
    Exhausted {
        /// How many objects may be in use at the same time, at least.
        capacity: usize,
    },

    /// The cache may not take as many bytes as it would need.
    #[error(
        "{wanted} more bytes would take the cache from {held} bytes over its limit of {limit}: \
         raise the limit, or ask for fewer or smaller objects"
    )]
    Limit {
        /// Bytes that the cache holds.
        held: usize,
        /// Bytes that it would need on top.
        wanted: usize,
        /// Bytes that it may hold.
        limit: usize,
    },

    /// The system has no memory.
    #[error("the system refused {bytes} bytes of memory")]
    OutOfMemory {
        /// The bytes asked for.
        bytes: usize,
    },

    /// A size that no memory can have.
    #[error(
        "{count} objects of {size} bytes are more than the address space holds: ask for fewer or smaller ones"
    )]
    TooLarge {
        /// Number of objects; 1 for a block.
        count: usize,
        /// Bytes in each.
        size: usize,
    },

    /// An alignment that is not provided.
    #[error("an alignment of {align} bytes was asked for: it must be a power of two from 1 to 4096")]
    Align {
        /// The alignment asked for.
        align: usize,
    },

    /// An offset that cannot be aligned.
    #[error("the byte at {offset} of each object was to be aligned: it must be at a multiple of 8")]
    Offset {
        /// The offset asked for.
        offset: usize,
    },

    /// A cache without objects, or of objects without bytes.
    #[error("a cache of {capacity} objects of {size} bytes was asked for: both numbers must be at least 1")]
    Empty {
        /// Number of objects.
        capacity: usize,
        /// Bytes in each.
        size: usize,
    },
}
