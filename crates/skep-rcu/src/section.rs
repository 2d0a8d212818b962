//! Read-side critical sections, and the reader that enters without a look-up.

use std::fmt;
use std::marker::PhantomData;

use crate::claim;
use crate::readers::{NORMAL, Readers, Record, SLEEPABLE};

/// Proof that the current thread is inside a normal read-side critical section of a domain. Dropping it leaves.
///
/// An object that another thread unlinks while this lives stays valid until this is dropped, if that thread waits for
/// a normal grace period before it frees the object. Sections nest, and may be dropped in any order. A section cannot
/// be sent to another thread. A forgotten section (`mem::forget`) keeps its slot and blocks all grace periods of its
/// flavour while the domain has a handle.
#[must_use = "the section ends when this is dropped"]
pub struct Section<'a>(Inside<'a, NORMAL>);

/// As [`Section`], of the sleepable flavour: for readers that may block. Only sleepable grace periods wait for it.
#[must_use = "the section ends when this is dropped"]
pub struct SleepableSection<'a>(Inside<'a, SLEEPABLE>);

/// A thread's access to a domain, looked up once: its sections cost two stores.
///
/// Made by [`Domain::reader`](crate::Domain::reader). It belongs to the thread that made it and keeps that thread's
/// slot. By itself it is in no section and blocks no grace period.
pub struct Reader<'a> {
    readers: &'a Readers,
    record: &'a Record,
    own_thread: PhantomData<*const ()>,
}

struct Inside<'a, const FLAVOUR: usize> {
    readers: &'a Readers,
    record: &'a Record,
    own_thread: PhantomData<*const ()>,
}

impl<'a> Section<'a> {
    /// A section that the calling thread has entered: `record` is its own.
    #[inline(always)]
    pub(crate) fn entered(readers: &'a Readers, record: &'a Record) -> Self {
        Self(Inside::entered(readers, record))
    }

    /// The number of this thread's slot: below [`Domain::limit`](crate::Domain::limit), and no other thread has it
    /// while this section lives.
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.record.number()
    }
}

impl<'a> SleepableSection<'a> {
    /// As [`Section::entered`].
    #[inline(always)]
    pub(crate) fn entered(readers: &'a Readers, record: &'a Record) -> Self {
        Self(Inside::entered(readers, record))
    }

    /// As [`Section::number`].
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.record.number()
    }
}

impl<'a> Reader<'a> {
    /// `record` is the calling thread's, which has pinned it.
    #[inline(always)]
    pub(crate) fn pinned(readers: &'a Readers, record: &'a Record) -> Self {
        Self { readers, record, own_thread: PhantomData }
    }

    /// Runs `f` inside a normal section. The section ends when `f` returns or panics.
    #[inline(always)]
    pub fn read<R>(&self, f: impl FnOnce() -> R) -> R {
        let _section = self.enter();
        f()
    }

    /// Runs `f`, which may block, inside a sleepable section.
    #[inline(always)]
    pub fn read_sleepable<R>(&self, f: impl FnOnce() -> R) -> R {
        let _section = self.enter_sleepable();
        f()
    }

    /// Enters a normal section that is left by dropping it.
    #[inline(always)]
    pub fn enter(&self) -> Section<'_> {
        self.readers.enter(self.record, NORMAL);
        Section::entered(self.readers, self.record)
    }

    /// Enters a sleepable section that is left by dropping it.
    #[inline(always)]
    pub fn enter_sleepable(&self) -> SleepableSection<'_> {
        self.readers.enter(self.record, SLEEPABLE);
        SleepableSection::entered(self.readers, self.record)
    }

    /// The number of this thread's slot, which no other thread has while the reader lives.
    #[inline]
    pub fn number(&self) -> u32 {
        self.record.number()
    }
}

impl<'a, const FLAVOUR: usize> Inside<'a, FLAVOUR> {
    #[inline(always)]
    fn entered(readers: &'a Readers, record: &'a Record) -> Self {
        Self { readers, record, own_thread: PhantomData }
    }
}

impl<const FLAVOUR: usize> Drop for Inside<'_, FLAVOUR> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.record.leave(FLAVOUR, claim::forget_last) {
            claim::give_back(self.readers, self.record);
        }
    }
}

impl Drop for Reader<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.record.unpin(claim::forget_last) {
            claim::give_back(self.readers, self.record);
        }
    }
}

impl fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section").field("number", &self.number()).finish()
    }
}

impl fmt::Debug for SleepableSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepableSection").field("number", &self.number()).finish()
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("number", &self.number()).finish()
    }
}
