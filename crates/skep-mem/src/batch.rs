//! Batches and slabs: what is recorded of each, and queues of batches.

use crate::object::List;
use crate::stack::Links;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A record for as many free objects as a slab has, which move as one.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub(crate) struct Batch {
    pub(crate) head: AtomicPtr<u8>,
    /// A cookie that was taken after the last of them was freed.
    pub(crate) cookie: AtomicU64,
    /// The oldest birth era among them.
    pub(crate) oldest: AtomicU64,
    /// In stacks and queues: the number of the next batch + 1, or 0.
    pub(crate) link: AtomicU32,
    unused: u32,
}

/// The record of a slab.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub(crate) struct Slab {
    /// Free objects of the slab that the keeper has collected. Only the keeper uses it.
    pub(crate) free: List,
    /// A cookie that was taken when the list was complete.
    pub(crate) cookie: AtomicU64,
    pub(crate) link: AtomicU32,
    unused: u32,
}

/// A queue of batches that one thread at a time changes. All zeroes are an empty queue.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Queue {
    /// The oldest batch + 1; 0 if empty.
    head: AtomicU32,
    /// The newest batch + 1; meaningless while the queue is empty.
    tail: AtomicU32,
    len: AtomicU32,
}

// Relaxed throughout: only the owner uses it; a new owner has synchronised with the last one.
impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn front(&self) -> Option<u32> {
        self.head.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(crate) fn push(&self, links: &impl Links, number: u32) {
        links.link(number).store(0, Ordering::Relaxed);
        match self.front() {
            None => self.head.store(number + 1, Ordering::Relaxed),
            Some(_) => {
                let tail = self.tail.load(Ordering::Relaxed) - 1;
                links.link(tail).store(number + 1, Ordering::Relaxed);
            }
        }
        self.tail.store(number + 1, Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn pop(&self, links: &impl Links) -> Option<u32> {
        let number = self.front()?;
        self.head.store(links.link(number).load(Ordering::Relaxed), Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(number)
    }

    /// Removes the batches for which `wanted` returns true, oldest first, and passes each to `taken`.
    pub(crate) fn take_if(
        &self,
        links: &impl Links,
        mut wanted: impl FnMut(u32) -> bool,
        mut taken: impl FnMut(u32),
    ) {
        // One pass over all; those that stay are pushed again in their order.
        for _ in 0..self.len() {
            let Some(number) = self.pop(links) else { return };
            if wanted(number) {
                taken(number);
            } else {
                self.push(links, number);
            }
        }
    }

    pub(crate) fn iter<'a>(&'a self, links: &'a impl Links) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.front(), move |&number| {
            links.link(number).load(Ordering::Relaxed).checked_sub(1)
        })
        .take(self.len())
    }
}
