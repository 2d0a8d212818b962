//! A ring in a file, as Linux lays it out for the process that maps it.
//!
//! ```text
//!   page 0          page 1          page 2
//!   | consumer u64 | producer u64 | ring, `size` bytes | as much again |
//!
//!   record          | length u32, with busy and discard bits | page u32 | bytes, to a multiple of 8 |
//! ```
//!
//! In Linux the second half is the ring once more, so that a record which crosses the end is in one piece. A file
//! cannot contain itself. But whoever reads a record at a position below the ring's size reads on behind the end, and
//! nobody else looks there, so it is enough to write records in one piece too.
//!
//! Nothing in the file is trusted: the other process can write all of it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use skep_mem::{Block, Error};

use super::protocol::{HEADER, Wakeup};

/// `BPF_RINGBUF_BUSY_BIT`
pub(crate) const BUSY: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT`
pub(crate) const DISCARDED: u32 = 1 << 30;

/// A ring in a file, with the descriptor that wakes the process at its other end.
#[derive(Debug)]
pub(crate) struct Pages {
    memory: Block,
    size: u64,
    page: usize,
    bell: OwnedFd,
    /// The position behind the last record that the other process is to be woken for. Relaxed: for reminders alone.
    announced: AtomicU64,
}

impl Pages {
    /// `size`: a power of two.
    pub(crate) fn new(name: &str, size: u32) -> Result<Self, Error> {
        let page = rustix::param::page_size();
        let too_large = Error::TooLarge { count: 2, size: size as usize };
        let len =
            (size as usize).checked_mul(2).and_then(|data| data.checked_add(2 * page)).ok_or(too_large)?;
        let memory = Block::in_file(name, len)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|_| Error::OutOfMemory { bytes: len })?;
        Ok(Self { memory, size: size.into(), page, bell, announced: AtomicU64::new(0) })
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory.reserved()
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.file()
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn position(&self, page: usize) -> &AtomicU64 {
        // SAFETY: the beginning of one of the first two pages of the block, which lives as long as this. All processes
        // access it in whole words.
        unsafe { &*self.memory.base().as_ptr().wrapping_add(page * self.page).cast::<AtomicU64>() }
    }

    /// The consumer's position, as the file says.
    pub(crate) fn consumer(&self) -> u64 {
        // Acquire: pairs with the consumer's store, after which it does not read what is before it.
        self.position(0).load(Ordering::Acquire)
    }

    pub(crate) fn set_consumer(&self, position: u64) {
        // Release: pairs with the producer's load, after which it writes where records were.
        self.position(0).store(position, Ordering::Release);
    }

    /// The producer's position, as the file says.
    pub(crate) fn producer(&self) -> u64 {
        // Acquire: pairs with the producer's store, so the records before it are seen.
        self.position(1).load(Ordering::Acquire)
    }

    pub(crate) fn set_producer(&self, position: u64) {
        // Release: pairs with the consumer's load, which then sees the records before it.
        self.position(1).store(position, Ordering::Release);
    }

    /// The address of the record at a position; as many bytes as the ring has follow.
    pub(crate) fn record(&self, position: u64) -> *mut u8 {
        let offset = (position % self.size / HEADER * HEADER) as usize;
        self.memory.base().as_ptr().wrapping_add(2 * self.page + offset)
    }

    /// The first word of the record at a position: its length and the two bits.
    pub(crate) fn header(&self, position: u64) -> &AtomicU32 {
        // SAFETY: within the ring, at a multiple of 8.
        unsafe { &*self.record(position).cast::<AtomicU32>() }
    }

    /// Wakes the consumer for the record at a position, which ends at `end`, if it waits for this one or must be woken.
    pub(crate) fn announce(&self, position: u64, end: u64, wakeup: Wakeup) {
        // The record is visible, and then the consumer's position is read. A consumer that has no such fence between
        // its own two steps may be missed: it is reminded.
        fence(Ordering::SeqCst);
        if wakeup != Wakeup::Never {
            self.announced.store(end, Ordering::Relaxed);
        }
        if wakeup == Wakeup::Forced || (wakeup == Wakeup::Usual && self.consumer() == position) {
            self.ring();
        }
    }

    pub(crate) fn ring(&self) {
        // Fails only if nobody has listened for 2^64 times.
        let _rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Wakes the consumer if it has left records that it was woken for. Whether it has.
    pub(crate) fn remind(&self) -> bool {
        let left = self.announced.load(Ordering::Relaxed).wrapping_sub(self.consumer());
        let behind = left != 0 && left <= self.size;
        if behind {
            self.ring();
        }
        behind
    }
}
