//! Changing code that runs.
//!
//! The problem: other threads execute the bytes that are replaced. They must see the old instruction or the new one,
//! never a mixture. When the replacing thread reports completion, no CPU may still run the old instruction from what
//! it fetched ahead.
//!
//! Solution: everything is written by single stores of an aligned [`Word`](arch::Word), 8 bytes on x86-64 and one
//! instruction on aarch64. A patchable branch is within one word: on x86-64 a `jmp rel32` whose displacement is the
//! upper half of an aligned 8-byte word (so the instruction begins 3 beyond a multiple of 8), on aarch64 any `B`.
//! Any other layout is rejected.
//!
//! ```text
//!    x86-64     | .. .. .. e9 dd dd dd dd |     aligned 8 bytes, one store; 3 bytes of neighbours are written back
//!                          jmp displacement
//! ```
//!
//! Protocol: each change reads the word, replaces part of it and writes it back as a whole: by a compare-exchange if
//! there is a writable view, else under the arena's `poking` lock, a leaf that is held for one word. So different
//! threads may change neighbours in one word. A batch records where it stored; [`Pokes::finish`] then does the cache
//! maintenance once for all of it and makes every CPU synchronise once (membarrier SYNC_CORE), holding no lock.
//!
//! What would break it: two arenas over the same memory; a change of a neighbouring instruction in the same word by
//! other means.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::{fmt, mem, ptr};

use crate::arch;
use crate::arena::Arena;
use crate::error::Error;
use crate::pack::Writer;
use crate::text::{Draft, Text};

/// Bytes that one store replaces, and the alignment that [`Pokes::copy`] and [`Pokes::set`] require.
pub const WORD_BYTES: usize = size_of::<arch::Word>();

/// Length of a patchable branch in bytes.
pub const BRANCH_BYTES: usize = arch::NOP.len();

/// Where a patchable branch must begin, modulo 8 bytes on x86-64 and modulo 4 on aarch64 ([`WORD_BYTES`]).
pub const BRANCH_OFFSET: usize = WORD_BYTES - BRANCH_BYTES;

/// The effect of a patchable branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// Jumps to an address.
    To(usize),
    /// No effect: execution continues behind it.
    Nop,
}

impl Branch {
    /// Encodes the branch for `address`, to be written into a draft there.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] if one store could not replace a branch there, [`Error::OutOfReach`] if a branch there
    /// does not reach the target.
    pub fn encode(self, address: usize) -> Result<[u8; BRANCH_BYTES], Error> {
        if address % WORD_BYTES != BRANCH_OFFSET {
            return Err(Error::Misaligned { address, align: WORD_BYTES, offset: BRANCH_OFFSET });
        }
        match self {
            Self::Nop => Ok(arch::NOP),
            Self::To(target) => arch::branch(address, target).ok_or(Error::OutOfReach { address, target }),
        }
    }
}

/// A batch of changes of live code: one pass of cache maintenance and one synchronisation of all CPUs for all of
/// them.
///
/// Other threads see each change at once or a little later; all changes are in force when [`finish`](Self::finish)
/// returns. Dropping a batch finishes it too, but reports no error.
pub struct Pokes<'a> {
    arena: &'a Arena,
    /// The latest stores, neighbours merged.
    last: Option<(Writer, Range<usize>)>,
    /// The stores before them.
    dirty: Vec<(Writer, Range<usize>)>,
    /// The texts that were changed stay alive until the batch is finished.
    texts: PhantomData<&'a Text>,
}

impl Arena {
    /// Begins a batch of changes of live code.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child; [`Error::System`] if the system cannot make all CPUs synchronise.
    pub fn pokes(&self) -> Result<Pokes<'_>, Error> {
        if !self.domain().is_original() {
            return Err(Error::Forked);
        }
        self.shared().sync_core.require()?;
        Ok(Pokes { arena: self, last: None, dirty: Vec::new(), texts: PhantomData })
    }

    /// Makes every CPU that runs this process discard the instructions it fetched ahead. On return no CPU runs an
    /// instruction that an earlier finished batch replaced, except a thread that is already in the middle of it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the system cannot make CPUs synchronise (any more).
    pub fn sync_cores(&self) -> Result<(), Error> {
        let sync_core = &self.shared().sync_core;
        sync_core.require()?;
        sync_core.sync()
    }

    /// Makes a small text for a poked branch to jump to: `code`, which must be position-independent, and then one
    /// jump of [`BRANCH_BYTES`] to each of `targets`. Execution reaches the first jump by falling out of the code,
    /// the others by branches in it. A stub is never changed: to change the destination, make another stub, poke the
    /// branch to it, finish, and drop the old one; threads inside can still leave it. It begins with a landing pad
    /// if the arena has them ([`Config::landing_pads`](crate::Config::landing_pads)).
    ///
    /// # Errors
    ///
    /// As [`draft`](Self::draft) and [`Draft::finalize`]; [`Error::OutOfReach`].
    pub fn stub(&self, code: &[u8], targets: &[usize]) -> Result<Text, Error> {
        let pad: &[u8] = if self.shared().landing_pads { &arch::LANDING_PAD } else { &[] };
        let before = pad.len() + code.len();
        let mut draft: Draft = self.draft(before + targets.len() * BRANCH_BYTES)?;
        let start = draft.address();
        let bytes = draft.bytes_mut();
        bytes[..pad.len()].copy_from_slice(pad);
        bytes[pad.len()..before].copy_from_slice(code);
        for (at, &target) in (before..).step_by(BRANCH_BYTES).zip(targets) {
            let address = start + at;
            let jump = arch::branch(address, target).ok_or(Error::OutOfReach { address, target })?;
            bytes[at..at + BRANCH_BYTES].copy_from_slice(&jump);
        }
        draft.finalize()
    }
}

impl<'a> Pokes<'a> {
    /// Replaces the bytes from `offset` on, word by word: a thread that runs them sees each word either old or new.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] if `offset` is not a multiple of [`WORD_BYTES`], or on aarch64 if the length is not a
    /// multiple of an instruction; [`Error::OutOfText`] beyond the text; [`Error::WrongArena`]; [`Error::Forked`] in
    /// a forked child, also for a batch that was begun before the fork; [`Error::System`] if the memory could not be
    /// written: earlier words are replaced.
    ///
    /// # Safety
    ///
    /// In every intermediate state, with some words old and some new, the text is valid code for every thread that
    /// may run it.
    pub unsafe fn copy(&mut self, text: &'a Text, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let address = self.check(text, offset, bytes.len())?;
        if !address.is_multiple_of(WORD_BYTES) || !bytes.len().is_multiple_of(arch::TRAP.len()) {
            return Err(Error::Misaligned { address, align: WORD_BYTES, offset: 0 });
        }
        // SAFETY: the caller's.
        unsafe { self.store(text, address, bytes) }
    }

    /// Fills `count` instructions from `offset` on with copies of `instruction`.
    ///
    /// # Errors
    ///
    /// As [`copy`](Self::copy); [`Error::Misaligned`] also if the instruction is longer than a word or does not
    /// divide it.
    ///
    /// # Safety
    ///
    /// As [`copy`](Self::copy).
    pub unsafe fn set(
        &mut self,
        text: &'a Text,
        offset: usize,
        instruction: &[u8],
        count: usize,
    ) -> Result<(), Error> {
        let len = instruction.len().saturating_mul(count);
        let address = self.check(text, offset, len)?;
        if instruction.is_empty() || !WORD_BYTES.is_multiple_of(instruction.len()) {
            return Err(Error::Misaligned { address, align: WORD_BYTES, offset: 0 });
        }
        // SAFETY: the caller's.
        unsafe { self.copy(text, offset, &instruction.repeat(count)) }
    }

    /// Replaces the patchable branch at `offset` by one store.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] if one store could not replace a branch there ([`BRANCH_OFFSET`]),
    /// [`Error::OutOfReach`], [`Error::OutOfText`], [`Error::WrongArena`], [`Error::Forked`]; [`Error::System`] if
    /// the memory could not be written. After an error the old branch stays.
    ///
    /// # Safety
    ///
    /// There is a patchable branch at `offset` ([`Branch::encode`]), and every thread that runs the text may
    /// continue at the new target. The target lives until the branch has been poked elsewhere, that batch is
    /// finished, and every reader has left.
    #[inline]
    pub unsafe fn branch(&mut self, text: &'a Text, offset: usize, branch: Branch) -> Result<(), Error> {
        let address = self.check(text, offset, BRANCH_BYTES)?;
        let bytes = branch.encode(address)?;
        let word = address - BRANCH_OFFSET;
        let writer = text.place().writer();
        self.note(writer, word..word + WORD_BYTES);
        // SAFETY: aligned, and in the chunks of the text, which the caller borrows; the caller guarantees that the
        // text may run before and after the change.
        unsafe { self.replace(writer, word, |word| word[BRANCH_OFFSET..].copy_from_slice(&bytes)) }
    }

    /// Ends the batch without synchronising CPUs: does the cache maintenance and leaves the rest to
    /// [`Arena::sync_cores`]. Until then each CPU switches to the new code at a time of its own. For many batches
    /// whose old targets are dropped together.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn finish_later(mut self) -> Result<(), Error> {
        self.publish().map(drop)
    }

    /// Puts all changes in force: on return no CPU runs an instruction that was replaced, except a thread that is
    /// already in the middle of it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if CPUs could not be synchronised: the changes are stored, but when they are in force is
    /// unknown.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush()
    }

    fn check(&self, text: &Text, offset: usize, len: usize) -> Result<usize, Error> {
        if !ptr::eq(&raw const **text.place().shared(), &raw const **self.arena.shared()) {
            return Err(Error::WrongArena);
        }
        if !self.arena.domain().is_original() {
            // A batch that was begun before the fork.
            return Err(Error::Forked);
        }
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > text.len()) {
            return Err(Error::OutOfText { offset, len, text: text.len() });
        }
        Ok(text.address() + offset)
    }

    /// # Safety
    ///
    /// As [`copy`](Self::copy); the bytes are the text's.
    unsafe fn store(&mut self, text: &Text, address: usize, bytes: &[u8]) -> Result<(), Error> {
        let writer = text.place().writer();
        let end = address + bytes.len();
        let first = address / WORD_BYTES * WORD_BYTES;
        self.note(writer, first..end.next_multiple_of(WORD_BYTES));
        for word in (first..end).step_by(WORD_BYTES) {
            let (from, to) = (address.max(word), end.min(word + WORD_BYTES));
            let new = &bytes[from - address..to - address];
            // SAFETY: aligned, and in the chunks of the text, which the caller borrows; the caller guarantees that
            // the text may run before and after the change.
            unsafe {
                self.replace(writer, word, |bytes| bytes[from - word..to - word].copy_from_slice(new))
            }?;
        }
        Ok(())
    }

    /// Changes a part of one word by one store.
    ///
    /// # Safety
    ///
    /// The word is aligned and in a text, and every thread that runs it may run both the old and the new word.
    #[inline]
    unsafe fn replace(
        &self,
        writer: Writer,
        word: usize,
        change: impl Fn(&mut [u8; WORD_BYTES]),
    ) -> Result<(), Error> {
        let changed = |old: arch::Word| {
            let mut bytes = old.to_ne_bytes();
            change(&mut bytes);
            arch::Word::from_ne_bytes(bytes)
        };
        if let Some(place) = writer.word(word) {
            // Release: the target of the new branch was written before; the partners are the CPUs that fetch the
            // word. Relaxed: only the other bytes of the old word are used.
            let updated = place.fetch_update(Ordering::Release, Ordering::Relaxed, |old| Some(changed(old)));
            debug_assert!(updated.is_ok());
            return Ok(());
        }
        let _poking = self.arena.shared().poking.lock().unwrap_or_else(PoisonError::into_inner);
        let place: *const arch::Word = ptr::with_exposed_provenance(word);
        // SAFETY: the executable view is readable, and only holders of the lock write the word.
        let old = unsafe { place.read_volatile() };
        // SAFETY: as above; the rest is the caller's.
        unsafe { writer.store(word, changed(old)) }
    }

    #[inline]
    fn note(&mut self, writer: Writer, range: Range<usize>) {
        match &mut self.last {
            Some((_, last)) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            last => self.dirty.extend(last.replace((writer, range))),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.publish()? { self.arena.shared().sync_core.sync() } else { Ok(()) }
    }

    /// Does the cache maintenance; returns whether there was any.
    fn publish(&mut self) -> Result<bool, Error> {
        let Some(last) = self.last.take() else { return Ok(false) };
        if !self.arena.domain().is_original() {
            // The parent made the stores, and the parent must finish them.
            return Err(Error::Forked);
        }
        let dirty = mem::take(&mut self.dirty);
        let places = dirty.iter().chain([&last]);
        arch::publish(places.map(|(writer, range)| writer.view(range.start, range.len())));
        Ok(true)
    }
}

impl Drop for Pokes<'_> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

impl fmt::Debug for Pokes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pokes")
            .field("places", &(self.dirty.len() + usize::from(self.last.is_some())))
            .finish_non_exhaustive()
    }
}
