//! One piece of zeroed memory at a fixed address.
//!
//! Large blocks must not be touched before they are used: a map of a million elements costs nothing until elements
//! are added. The system allocator's `alloc_zeroed` has that property, because fresh pages are zero, but only for
//! malloc's natural alignment; for larger ones it clears the memory by hand. So a block requests the natural
//! alignment plus slack, and moves its base up:
//!
//! ```text
//!   start            base (aligned)                      base + len        start + reserved
//!   |-- slack < align --|------------- usable -------------|-- rest of slack --|
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use rustix::fd::{BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::file::{FileMemory, Mapped};
use crate::region::{LARGE, Region};

/// The alignment that every malloc guarantees.
const NATURAL_ALIGN: usize = 16;

/// The largest alignment of a block.
const MAX_ALIGN: usize = 4096;

/// Zeroed memory at a fixed address, which the system commits as it is touched. Dropping it returns it.
///
/// The block owns its bytes but never reads them: its owner decides what they mean and who may access them when.
/// Dropping the block invalidates every pointer into it.
#[derive(Debug)]
pub struct Block {
    memory: Backing,
    base: NonNull<u8>,
    len: usize,
}

/// The source of a block's bytes.
#[derive(Debug)]
enum Backing {
    /// The system's allocator.
    Heap { start: NonNull<u8>, layout: Layout },
    /// A mapping of its own.
    Pages(Region),
    /// A file, which other processes can map too.
    File(FileMemory),
}

// SAFETY: a block is plain memory that belongs to no thread; it is reached only through raw pointers, and their users
// guarantee that accesses are valid.
unsafe impl Send for Block {}
// SAFETY: as above; the methods only read the block's own immutable fields.
unsafe impl Sync for Block {}

impl Block {
    /// `len` zeroed bytes at an address that is a multiple of `align`.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] if `len` is 0, [`Error::Align`] if `align` is not a power of two up to 4096,
    /// [`Error::TooLarge`] and [`Error::OutOfMemory`].
    pub fn zeroed(len: usize, align: usize) -> Result<Self, Error> {
        let reserved = Self::reserved_for(len, align)?;
        let layout = Layout::from_size_align(reserved, NATURAL_ALIGN)
            .map_err(|_| Error::TooLarge { count: 1, size: len })?;
        // SAFETY: `layout` has a size of at least `len`, which is not 0.
        let start =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::OutOfMemory { bytes: reserved })?;
        let offset = start.as_ptr().addr().next_multiple_of(align) - start.as_ptr().addr();
        // SAFETY: `reserved_for` added the slack by which the base may have to move.
        let base = unsafe { start.add(offset) };
        Ok(Self { memory: Backing::Heap { start, layout }, base, len })
    }

    /// As [`zeroed`](Self::zeroed), for memory that is accessed at random. From 4 MiB on it asks the system for large
    /// pages, so fewer page faults commit all of it.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub fn zeroed_in_large_pages(len: usize, align: usize) -> Result<Self, Error> {
        if len < LARGE {
            return Self::zeroed(len, align);
        }
        Self::reserved_for(len, align)?;
        // A mapping of its own, so that the advice does not stay with memory that the allocator hands to others
        // later.
        let region = Region::new(len)?;
        region.prefer_large_pages(0, len);
        Ok(Self { base: region.base(), memory: Backing::Pages(region), len })
    }

    /// Zeroed memory in a file of its own, which other processes can map: see [`file`](Self::file). The base is at a
    /// page boundary, and the file has as many whole pages as are needed. `name` is for people: `/proc` shows it.
    ///
    /// Whoever has the file may change the memory at any time.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed); [`Error::OutOfMemory`] also if there are too many open files.
    pub fn in_file(name: &str, len: usize) -> Result<Self, Error> {
        Self::reserved_for(len, 1)?;
        let memory = FileMemory::new(name, len)?;
        Ok(Self { base: memory.base(), memory: Backing::File(memory), len })
    }

    /// The same in a file that exists, as [`memory_file`](crate::memory_file) makes it. Its size is set, and never
    /// changes afterwards.
    ///
    /// # Errors
    ///
    /// As [`in_file`](Self::in_file); [`Error::OutOfMemory`] also if the file is none of that kind, or if others who
    /// have it forbid the size.
    pub fn in_given_file(file: OwnedFd, len: usize) -> Result<Self, Error> {
        Self::reserved_for(len, 1)?;
        let memory = FileMemory::of(file, len)?;
        Ok(Self { base: memory.base(), memory: Backing::File(memory), len })
    }

    /// The file whose memory this is, if it is that of a file. Its size is for ever that of the block in whole pages.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.memory {
            Backing::File(memory) => Some(memory.file()),
            Backing::Heap { .. } | Backing::Pages(_) => None,
        }
    }

    /// Makes the bytes of a file's memory constant: nobody can change them any more, this process included.
    ///
    /// # Errors
    ///
    /// [`Mapped`] if another process can write to the file through a mapping, with nothing changed.
    ///
    /// # Safety
    ///
    /// This process does not write to the block's memory during the call nor afterwards. A block without a file is
    /// constant by that alone.
    pub unsafe fn make_constant(&self) -> Result<(), Mapped> {
        match &self.memory {
            // SAFETY: by the caller's contract.
            Backing::File(memory) => unsafe { memory.make_constant() },
            Backing::Heap { .. } | Backing::Pages(_) => Ok(()),
        }
    }

    /// Forbids new mappings of a file's memory through which it could be changed. Those that exist stay.
    pub fn refuse_writers(&self) {
        if let Backing::File(memory) = &self.memory {
            memory.refuse_writers();
        }
    }

    /// The bytes that a block of this length and alignment takes from the system, slack included.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed), except [`Error::OutOfMemory`].
    pub fn reserved_for(len: usize, align: usize) -> Result<usize, Error> {
        if len == 0 {
            return Err(Error::Empty { capacity: 1, size: len });
        }
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(Error::Align { align });
        }
        let slack = align.saturating_sub(NATURAL_ALIGN);
        match len.checked_add(slack) {
            Some(reserved) if reserved <= isize::MAX as usize - NATURAL_ALIGN => Ok(reserved),
            _ => Err(Error::TooLarge { count: 1, size: len }),
        }
    }

    /// The first byte. Valid, with the [`len`](Self::len) bytes that follow, until the block is dropped.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The number of usable bytes.
    #[expect(clippy::len_without_is_empty, reason = "a block is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of bytes taken from the system, slack included.
    pub fn reserved(&self) -> usize {
        match &self.memory {
            Backing::Heap { layout, .. } => layout.size(),
            Backing::Pages(region) => region.len(),
            Backing::File(memory) => memory.len(),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Backing::Heap { start, layout } = self.memory {
            // SAFETY: `start` was allocated in `zeroed` with this layout, and is freed only here.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_zeroed_and_aligned() {
        for align in [1, 8, 16, 64, 4096] {
            for len in [1, 63, 64, 5000] {
                let block = Block::zeroed(len, align).unwrap();
                assert_eq!(block.base().as_ptr().addr() % align, 0);
                assert_eq!(block.len(), len);
                assert_eq!(block.reserved(), Block::reserved_for(len, align).unwrap());
                // SAFETY: the block has `len` initialised bytes, and no other code has it.
                let bytes = unsafe { std::slice::from_raw_parts_mut(block.base().as_ptr(), len) };
                assert!(bytes.iter().all(|&byte| byte == 0));
                bytes.fill(0xaa); // up to the last byte: a tool that watches the heap would object
            }
        }
    }

    #[test]
    fn a_terabyte_is_only_committed_where_it_is_touched() {
        // No machine that runs this has 1 TiB of memory, but the address space holds it. A system with strict
        // overcommit must refuse the request with the right error.
        match Block::zeroed(1 << 40, 64) {
            Ok(block) => {
                // SAFETY: both bytes are inside the block, and no other code has it.
                unsafe {
                    block.base().write(1);
                    block.base().add(block.len() - 1).write(1);
                }
            }
            Err(error) => assert_eq!(error, Error::OutOfMemory { bytes: (1 << 40) + 48 }),
        }
    }

    #[test]
    fn impossible_blocks_are_refused() {
        assert_eq!(Block::zeroed(0, 8).unwrap_err(), Error::Empty { capacity: 1, size: 0 });
        assert_eq!(Block::zeroed(8, 0).unwrap_err(), Error::Align { align: 0 });
        assert_eq!(Block::zeroed(8, 24).unwrap_err(), Error::Align { align: 24 });
        assert_eq!(Block::zeroed(8, 8192).unwrap_err(), Error::Align { align: 8192 });
        assert_eq!(
            Block::zeroed(usize::MAX, 64).unwrap_err(),
            Error::TooLarge { count: 1, size: usize::MAX }
        );
        let half = isize::MAX as usize;
        assert_eq!(Block::zeroed(half, 8).unwrap_err(), Error::TooLarge { count: 1, size: half });
    }
}
