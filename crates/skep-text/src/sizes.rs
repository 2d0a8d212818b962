//! The units of code memory.

/// Size of a chunk in bytes. Chunks are the unit of allocation; every text is aligned to one.
pub const CHUNK_BYTES: usize = 32;

/// Size of a pack in bytes: the unit of memory taken from the system, and a huge page where base pages are 4 KiB.
pub const PACK_BYTES: usize = 2 << 20;

/// Chunks of a pack.
pub(crate) const PACK_CHUNKS: u32 = (PACK_BYTES / CHUNK_BYTES) as u32;

/// The least memory of a new pack, and the least growth, in bytes.
pub(crate) const STEP: usize = 16 << 10;

/// The number of chunks that `len` bytes need.
#[inline]
pub(crate) fn chunks_for(len: usize) -> u32 {
    len.div_ceil(CHUNK_BYTES) as u32
}

/// The size in bytes of the chunks that `len` bytes need.
#[inline]
pub(crate) fn room(len: usize) -> usize {
    len.next_multiple_of(CHUNK_BYTES)
}
