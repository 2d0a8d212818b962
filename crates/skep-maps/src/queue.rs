//! Queues and stacks: elements without keys, first in first out, or last in first out.
//!
//! ```text
//!   | 5 | 6 | 7 |   |   | 3 | 4 |        a circular buffer of `capacity` elements, whole words each
//!                         ^first         queue: pops at `first`; stack: at `first + len - 1`; both push behind that
//! ```
//!
//! One leaf lock guards all of it, for as long as the copy of one element takes.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use skep_mem::{Block, Error};

use crate::leaf_lock::{LeafLock, Patience};
use crate::op_error::OpError;
use crate::racy;
use crate::update::UpdateFlags;
use crate::values::Values;

/// The alignment of elements.
const WORD: usize = 8;

#[derive(Debug)]
pub(crate) struct Queue {
    memory: Block,
    stride: usize,
    capacity: u32,
    /// Whether the newest element is popped first.
    stack: bool,
    values: Values,
    lock: LeafLock,
    // Changed under the lock only, and so relaxed.
    first: AtomicU32,
    len: AtomicU32,
}

impl Queue {
    /// The bytes that this many elements take.
    pub(crate) fn bytes(capacity: u32, value_size: u32) -> Option<usize> {
        Block::reserved_for(Self::len_of(capacity, value_size)?, WORD).ok()
    }

    pub(crate) fn new(capacity: u32, value_size: u32, stack: bool) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: capacity as usize, size: value_size as usize };
        let len = Self::len_of(capacity, value_size).ok_or(too_large)?;
        Ok(Self {
            memory: Block::zeroed(len, WORD)?,
            stride: (value_size as usize).next_multiple_of(WORD),
            capacity,
            stack,
            values: Values::shared(value_size),
            lock: LeafLock::default(),
            first: AtomicU32::new(0),
            len: AtomicU32::new(0),
        })
    }

    /// Adds an element. With [`UpdateFlags::Exist`] a full queue drops its oldest element.
    ///
    /// # Safety
    ///
    /// `value` is readable for the value size, at any alignment; others may write there.
    pub(crate) unsafe fn push(
        &self,
        value: *const u8,
        flags: UpdateFlags,
        patience: Patience,
    ) -> Result<(), OpError> {
        if !matches!(flags, UpdateFlags::Any | UpdateFlags::Exist) {
            return Err(OpError::PushFlags);
        }
        let _held = self.lock.lock(patience)?;
        let (mut first, mut len) = (self.first.load(Relaxed), self.len.load(Relaxed));
        if len == self.capacity {
            if flags == UpdateFlags::Any {
                return Err(OpError::QueueFull);
            }
            first = self.place(first, 1);
            len -= 1;
        }
        // SAFETY: an element of this queue; `value` by the caller's contract.
        unsafe { racy::write(value, self.element(self.place(first, len)), self.values.host_size()) };
        self.first.store(first, Relaxed);
        self.len.store(len + 1, Relaxed);
        Ok(())
    }

    /// Copies the next element out, and removes it if `take` is set. `false` if there is none; `out` is zeroed then,
    /// and on failure.
    ///
    /// # Safety
    ///
    /// `out` is writable for the value size, at any alignment; others may access it.
    pub(crate) unsafe fn next(&self, out: *mut u8, take: bool, patience: Patience) -> Result<bool, OpError> {
        let size = self.values.host_size();
        // SAFETY: by the caller's contract.
        let clear = || unsafe { racy::clear(out, size) };
        let _held = self.lock.lock(patience).inspect_err(|_| clear())?;
        let (first, len) = (self.first.load(Relaxed), self.len.load(Relaxed));
        if len == 0 {
            clear();
            return Ok(false);
        }
        let at = if self.stack { self.place(first, len - 1) } else { first };
        // SAFETY: an element of this queue; `out` by the caller's contract.
        unsafe { racy::give(self.element(at), out, size) };
        if take {
            self.len.store(len - 1, Relaxed);
            if !self.stack {
                self.first.store(self.place(first, 1), Relaxed);
            }
        }
        Ok(true)
    }

    #[cfg(test)]
    pub(crate) fn lock(&self) -> &LeafLock {
        &self.lock
    }

    pub(crate) fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory.reserved()
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    fn len_of(capacity: u32, value_size: u32) -> Option<usize> {
        (value_size as usize).checked_next_multiple_of(WORD)?.checked_mul(capacity as usize)
    }

    /// The position `offset` elements behind another, at most `capacity`.
    fn place(&self, first: u32, offset: u32) -> u32 {
        ((u64::from(first) + u64::from(offset)) % u64::from(self.capacity)) as u32
    }

    fn element(&self, at: u32) -> *mut u8 {
        debug_assert!(at < self.capacity);
        // SAFETY: `new` made room for `capacity` elements, `stride` apart.
        unsafe { self.memory.base().as_ptr().add(at as usize * self.stride) }
    }
}
