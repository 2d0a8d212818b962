//! What can go wrong with memory.

/// Why memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every object of the pool is in use.
    #[error(
        "all {capacity} objects of the pool are in use: free some, or make the pool with a larger capacity"
    )]
    Exhausted {
        /// How many objects the pool may hand out at the same time.
        capacity: usize,
    },

    /// The pool may not take as many bytes as it would need.
    #[error(
        "{wanted} more bytes would take the pool from {held} bytes over its limit of {limit}: \
         raise the limit, or ask for fewer or smaller objects"
    )]
    Limit {
        /// Bytes that the pool holds.
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

    /// A pool without objects, or of objects without bytes.
    #[error("a pool of {capacity} objects of {size} bytes was asked for: both numbers must be at least 1")]
    Empty {
        /// Number of objects.
        capacity: usize,
        /// Bytes in each.
        size: usize,
    },
}
