//! Changing code that runs.
//!
//! The problem: other threads execute the very bytes that are replaced. They must see the old instruction or the new
//! one, never a mixture; and when the replacing thread says that it is done, no CPU may still run the old one from
//! what it fetched ahead.
//!
//! What we do: everything is written by single stores of an aligned [`Word`](arch::Word), 8 bytes on x86-64 and one
//! instruction on aarch64. A patchable branch lies within one word: on x86-64 a `jmp rel32` whose displacement is the
//! upper half of an aligned 8-byte word (so the instruction begins at 3 beyond a multiple of 8), on aarch64 any `B`.
//! What is not so is an error.
//!
//! ```text
//!    x86-64     | .. .. .. e9 dd dd dd dd |     aligned 8 bytes, one store; 3 bytes of neighbours are written back
//!                          jmp displacement
//! ```
//!
//! Protocol: each change reads the word, changes its part of it and writes it back whole: by a compare-exchange where
//! there is a writable view, else under the arena's `poking` lock, a leaf that is held for one word. So neighbours in a
//! word may be changed by different threads. A batch collects where it stored; [`Pokes::finish`] then makes the caches right
//! once for all of it and has every CPU synchronise once (membarrier SYNC_CORE), holding no lock.
//!
//! What would break it: two arenas over the same memory; a neighbouring instruction in the same word changed by anybody
//! else.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::{fmt, mem, ptr};

use crate::arch;
use crate::arena::Arena;
use crate::error::Error;
use crate::pack::Writer;
use crate::place::view;
use crate::text::{Draft, Text};

/// Bytes that are replaced by one store, and what [`Pokes::copy`] and [`Pokes::set`] want their places to be aligned to.
pub const WORD_BYTES: usize = size_of::<arch::Word>();

/// Bytes of a patchable branch.
pub const BRANCH_BYTES: usize = arch::NOP.len();

/// Where a patchable branch must begin, modulo 8 bytes on x86-64 and modulo 4 on aarch64 ([`WORD_BYTES`]).
pub const BRANCH_OFFSET: usize = WORD_BYTES - BRANCH_BYTES;

/// What a patchable branch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// Jumps to an address.
    To(usize),
    /// Nothing: execution goes on behind it.
    Nop,
}

impl Branch {
    /// The instruction for a branch at `address`, to be put into a draft there.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] when a branch there could not be replaced by one store, [`Error::OutOfReach`] when a
    /// branch there does not reach the target.
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

/// Changes of live code, finished together: one pass over the caches and one synchronisation of all CPUs for all.
///
/// Each change is visible to other threads at once or a little later; all are certainly in force when
/// [`finish`](Self::finish) has returned. Dropping it finishes it too, but tells no error.
pub struct Pokes<'a> {
    arena: &'a Arena,
    /// What was stored to last, neighbours joined.
    last: Option<(Writer, Range<usize>)>,
    /// What was stored to before.
    dirty: Vec<(Writer, Range<usize>)>,
    /// The texts that were changed stay alive until the batch is finished.
    texts: PhantomData<&'a Text>,
}

impl Arena {
    /// Begins a batch of changes of live code.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child; [`Error::System`] when the system cannot make all CPUs synchronise.
    pub fn pokes(&self) -> Result<Pokes<'_>, Error> {
        if !self.domain().is_original() {
            return Err(Error::Forked);
        }
        self.shared().sync_core.require()?;
        Ok(Pokes { arena: self, last: None, dirty: Vec::new(), texts: PhantomData })
    }

    /// Has every CPU that runs this process drop what it fetched ahead: when it returns, no CPU runs what was replaced by
    /// any batch that was finished before, but where a thread already is in the middle of it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] where the system cannot make CPUs synchronise, or does not any more.
    pub fn sync_cores(&self) -> Result<(), Error> {
        let sync_core = &self.shared().sync_core;
        sync_core.require()?;
        sync_core.sync()
    }

    /// A small text that a poked branch jumps to: `code`, which must not depend on where it lies, and then a jump to
    /// each of `targets`, of [`BRANCH_BYTES`] each: the first is reached by falling out of the code, others by
    /// branches in it. It is never changed; to go elsewhere make another one, poke the branch to it, finish, and drop this
    /// one: whoever is in it may leave in peace. It begins with a landing pad where the arena has them
    /// ([`Config::landing_pads`](crate::Config::landing_pads)).
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
    /// Replaces the bytes from `offset` on, word by word: a thread that runs them meanwhile sees each word old or new.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] when `offset` is no multiple of [`WORD_BYTES`], or the length is no multiple of an
    /// instruction on aarch64; [`Error::OutOfText`] beyond the text; [`Error::WrongArena`]; [`Error::Forked`] in a
    /// forked child, also for a batch that was begun before; [`Error::System`] when
    /// the memory could not be written: words before that one are replaced.
    ///
    /// # Safety
    ///
    /// In every state between, with some words old and some new, the text is code that whoever runs it may run.
    pub unsafe fn copy(&mut self, text: &'a Text, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let address = self.check(text, offset, bytes.len())?;
        if !address.is_multiple_of(WORD_BYTES) || !bytes.len().is_multiple_of(arch::TRAP.len()) {
            return Err(Error::Misaligned { address, align: WORD_BYTES, offset: 0 });
        }
        // SAFETY: the caller's.
        unsafe { self.store(text, address, bytes) }
    }

    /// Replaces `count` instructions from `offset` on by `instruction`: as many times the same bytes.
    ///
    /// # Errors
    ///
    /// As [`copy`](Self::copy); [`Error::Misaligned`] also when the instruction is longer than a word or does not
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
    /// [`Error::Misaligned`] where a branch could not be replaced by one store ([`BRANCH_OFFSET`]),
    /// [`Error::OutOfReach`], [`Error::OutOfText`], [`Error::WrongArena`], [`Error::Forked`]; [`Error::System`] when
    /// the memory could not be written. The old branch stays.
    ///
    /// # Safety
    ///
    /// There is a patchable branch at `offset` ([`Branch::encode`]), and whoever runs the text may run on at the new
    /// target, which lives until the branch has been poked away from it, that batch finished, and every reader left.
    #[inline]
    pub unsafe fn branch(&mut self, text: &'a Text, offset: usize, branch: Branch) -> Result<(), Error> {
        let address = self.check(text, offset, BRANCH_BYTES)?;
        let bytes = branch.encode(address)?;
        let word = address - BRANCH_OFFSET;
        let writer = text.place().writer();
        self.note(writer, word..word + WORD_BYTES);
        // SAFETY: aligned, and within the chunks of the text, which the caller borrows; that it may be run is the
        // caller's.
        unsafe { self.replace(writer, word, |word| word[BRANCH_OFFSET..].copy_from_slice(&bytes)) }
    }

    /// Leaves it to [`Arena::sync_cores`] to make the changes certain: caches are made right, and CPUs go over to the
    /// new code when they do. For many batches whose old targets are dropped together.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn finish_later(mut self) -> Result<(), Error> {
        self.publish().map(drop)
    }

    /// Makes all changes certain: when it returns, no CPU runs what was replaced, except where a thread already is in
    /// the middle of it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when CPUs could not be synchronised: the changes are there, and when they are in force is not
    /// known.
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
            // SAFETY: aligned, and within the chunks of the text, which the caller borrows; that it may be run is the
            // caller's.
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
    /// The word is aligned and in a text; whoever runs it may run it before and after.
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
            // Release: what the word leads to was written before; the partners are the CPUs that fetch it. Relaxed:
            // nothing is learnt from the old word but its other bytes.
            let updated = place.fetch_update(Ordering::Release, Ordering::Relaxed, |old| Some(changed(old)));
            debug_assert!(updated.is_ok());
            return Ok(());
        }
        let _poking = self.arena.shared().poking.lock().unwrap_or_else(PoisonError::into_inner);
        let place: *const arch::Word = ptr::with_exposed_provenance(word);
        // SAFETY: the executable view can be read, and nobody writes the word but holders of the lock.
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

    /// Makes the caches right; whether there was anything.
    fn publish(&mut self) -> Result<bool, Error> {
        let Some(last) = self.last.take() else { return Ok(false) };
        if !self.arena.domain().is_original() {
            // What was stored was stored by the parent, and is for the parent to finish.
            return Err(Error::Forked);
        }
        let dirty = mem::take(&mut self.dirty);
        let places = dirty.iter().chain([&last]);
        arch::publish(places.map(|(writer, range)| view(*writer, range.start, range.len())));
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
