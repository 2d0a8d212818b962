//! Owned bytes of code memory: what drafts and texts have in common.
//!
//! ```text
//!   take ──> Empty ──write──> Written ──publish──> Published
//!             │ drop             │ drop                │ drop
//!             v                  v                     v
//!           free              traps, free        retire: waits for readers, then traps, then free
//! ```
//!
//! A place is taken, written at most once, and freed by dropping it. Only it knows how its bytes are written; no
//! other code of the crate except a poke stores into them.
//!
//! Invariants: no two places overlap (each is a block of the allocator or a mapping of its own); a place that is not
//! written is full of traps, and is so again before its chunks are free; only published code can have been run, and
//! only it waits for readers.
//!
//! What would break it: a forked child that stores through the writer, where nothing is mapped; so every store first
//! checks whether this process made the arena.

use std::ptr;
use std::sync::Arc;

use crate::arch;
use crate::chunks::Fit;
use crate::error::Error;
use crate::fault::{Entered, Probes};
use crate::growth::Mapped;
use crate::pack::Writer;
use crate::retirement::{Kept, Retired, Storage};
use crate::shared::Shared;
use crate::sizes::{CHUNK_BYTES, PACK_BYTES, PACK_CHUNKS, chunks_for, room};
use crate::state::Slot;

/// Owned bytes of code memory. Dropping it frees them.
pub(crate) struct Place {
    address: usize,
    /// Bytes requested.
    len: usize,
    writer: Writer,
    /// Whether other CPUs may have fetched from it earlier.
    reused: bool,
    stage: Stage,
    /// Its probes: the fault handler finds them until the place is freed.
    probes: Option<Box<Entered>>,
    /// Dropped when the bytes are free.
    kept: Option<Kept>,
    /// Taken only by `drop`.
    memory: Option<Storage>,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Full of traps, as allocated.
    Empty,
    /// Written, but not published.
    Written,
    /// Published code, which other threads may run.
    Published,
}

impl Place {
    /// Allocates a place, in a pack or of its own, whose address is a multiple of `align`.
    #[inline]
    pub(crate) fn take(shared: &Arc<Shared>, len: usize, align: usize) -> Result<Self, Error> {
        let range = shared.reservation.slots().len();
        match len {
            _ if !shared.domain.is_original() => Err(Error::Forked),
            0 => Err(Error::Empty),
            _ if len > range => Err(Error::TooLong { len, range, max: arch::MAX_RANGE }),
            _ if !align.is_power_of_two() || align > rustix::param::page_size() => {
                Err(Error::Alignment { align, max: rustix::param::page_size() })
            }
            _ => {
                shared.bound_waiting()?;
                let align = (align / CHUNK_BYTES).max(1) as u32;
                if len <= PACK_BYTES
                    && let Some(place) = Self::try_chunks(shared, len, align)
                {
                    return Ok(place);
                }
                Self::take_slowly(shared, len, align)
            }
        }
    }

    /// The slow path: reclaims or grows until there is room.
    #[cold]
    fn take_slowly(shared: &Arc<Shared>, len: usize, align: u32) -> Result<Self, Error> {
        let take = || match len {
            0..=PACK_BYTES => Self::take_chunks(shared, len, align),
            _ => Self::take_own(shared, len),
        };
        /// Bounds the retries while other threads allocate and free.
        const TRIES: usize = 20;

        let mut tries = 1..=TRIES;
        loop {
            let before = shared.lock_state().returned;
            match take() {
                Err(error @ (Error::Limit { .. } | Error::RangeFull { .. })) => {
                    shared.reclaim_thoroughly();
                    // Other threads may have taken what was freed meanwhile, and freed what they had.
                    if shared.lock_state().returned == before || tries.next().is_none() {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn writer(&self) -> Writer {
        self.writer
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether every CPU must synchronise before the code may run.
    pub(crate) fn needs_sync_core(&self) -> bool {
        self.reused && arch::NEEDS_SYNC_CORE
    }

    /// Copies the finished code to its place. The caller does the cache maintenance for [`views`](Self::view) next.
    pub(crate) fn write(&mut self, code: &[u8]) -> Result<(), Error> {
        assert!(code.len() == self.len && self.stage == Stage::Empty, "a draft is written once, and whole");
        if !self.shared.domain.is_original() {
            return Err(Error::Forked);
        }
        self.stage = Stage::Written;
        // SAFETY: this place owns its bytes, no thread runs them yet, and `code` has their length.
        unsafe { self.writer.copy(self.address, code) }
    }

    /// Makes the probes known to the fault handler, before the code can run.
    pub(crate) fn enter_probes(&mut self, probes: Probes) -> Result<(), Error> {
        self.probes = self.shared.faults.enter(self.address..self.address + self.len, probes)?.map(Box::new);
        Ok(())
    }

    /// The bytes of memory that it occupies.
    pub(crate) fn occupied(&self) -> usize {
        match &self.memory {
            Some(Storage::Own { pack, .. }) => pack.executable().len(),
            _ => room(self.len),
        }
    }

    /// Keeps something until the bytes are free.
    pub(crate) fn keep(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    /// The views that cache maintenance needs.
    pub(crate) fn view(&self) -> arch::View {
        self.writer.view(self.address, room(self.len))
    }

    /// From this call on other threads may run the code.
    pub(crate) fn publish(&mut self) {
        self.stage = Stage::Published;
        let mut state = self.shared.lock_state();
        state.counts.texts += 1;
        if let Some(Storage::Chunks(block)) = &self.memory {
            state.chunks.publish(block);
        }
    }

    /// Frees the bytes from `len` on. Only for drafts; at least one byte remains.
    pub(crate) fn shrink(&mut self, len: usize) -> Result<(), Error> {
        assert!(self.stage == Stage::Empty && 0 < len && len <= self.len);
        if !self.shared.domain.is_original() {
            return Err(Error::Forked);
        }
        let mut state = self.shared.lock_state();
        state.counts.code_bytes -= self.len - len;
        if let Some(Storage::Chunks(block)) = &self.memory {
            state.chunks.shrink(block, chunks_for(len));
            state.returned += 1;
        }
        self.len = len;
        Ok(())
    }

    /// The bytes as they are executed. Pokes may change them at any time, so this is a copy.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        let from = ptr::with_exposed_provenance::<u8>(self.address);
        for (at, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: the executable view is readable as long as the place lives.
            *byte = unsafe { from.add(at).read_volatile() };
        }
        bytes
    }

    fn take_chunks(shared: &Arc<Shared>, len: usize, align: u32) -> Result<Self, Error> {
        // Retired places may have passed their grace period; a scan costs less than new memory.
        if shared.reclaim_now()
            && let Some(place) = Self::try_chunks(shared, len, align)
        {
            return Ok(place);
        }
        let growth = shared.lock_growth();
        let mut grown = false;
        let place = loop {
            // Another thread may have added memory, or may use up what this one adds.
            if let Some(place) = Self::try_chunks(shared, len, align) {
                break place;
            }
            shared.grow(&growth, chunks_for(len) + align - 1)?;
            grown = true;
        };
        // Without a keeper this thread promotes, and takes the lock itself for that.
        drop(growth);
        if grown {
            shared.consider_promotions();
        }
        Ok(place)
    }

    #[inline]
    fn try_chunks(shared: &Arc<Shared>, len: usize, align: u32) -> Option<Self> {
        let fit = Fit { align, random: shared.random() };
        let mut state = shared.lock_state();
        let found = state.chunks.alloc(chunks_for(len), fit)?;
        let address = shared.reservation.slots().start + found.start as usize * CHUNK_BYTES;
        let Slot::Pack(slot) = &state.slots[(found.start / PACK_CHUNKS) as usize] else {
            unreachable!("the allocator has a region for each pack and no other");
        };
        let writer = slot.writer;
        state.counts.add(len);
        drop(state);
        Some(Self {
            address,
            len,
            writer,
            reused: found.reused,
            stage: Stage::Empty,
            probes: None,
            kept: None,
            memory: Some(Storage::Chunks(found.block)),
            shared: Arc::clone(shared),
        })
    }

    fn take_own(shared: &Arc<Shared>, len: usize) -> Result<Self, Error> {
        let growth = shared.lock_growth();
        let Mapped { slot, pack, reused } = shared.map(&growth, len, len)?;
        let mut state = shared.lock_state();
        state.slots[slot] = Slot::Own;
        state.counts.add(len);
        state.counts.own_mappings += 1;
        state.counts.own_bytes += pack.executable().len();
        drop(state);
        Ok(Self {
            address: pack.executable().start,
            len,
            writer: pack.writer(),
            reused,
            stage: Stage::Empty,
            probes: None,
            kept: None,
            memory: Some(Storage::Own { slot, pack: Box::new(pack) }),
            shared: Arc::clone(shared),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        let (probes, kept) = (self.probes.take(), self.kept.take());
        if !self.shared.domain.is_original() {
            // The memory is the parent's and cannot be written here. But the handler's index is a copy, and an arena
            // of the child's may get the same addresses.
            drop(probes);
            match memory {
                Storage::Chunks(_) => {}
                Storage::Own { pack, .. } => pack.forget(),
            }
            return;
        }
        let (address, len, writer) = (self.address, self.len, self.writer);
        let give_back = |memory| {
            self.shared.lock_state().counts.remove(len);
            self.shared.give_back(memory);
        };
        match self.stage {
            Stage::Empty => give_back(memory),
            Stage::Written => {
                let (at, room) = (address, room(len));
                // SAFETY: this place's own bytes, which no thread ever ran.
                let filled = unsafe { writer.fill_with_traps(at, room) };
                arch::publish([writer.view(at, room)].into_iter());
                if filled.is_ok() {
                    // Before the chunks are free, because their next owner may have probes too.
                    drop(probes);
                    return give_back(memory);
                }
                // Memory that cannot be filled with traps must not be reused: it waits like a text, and filling is
                // retried.
                self.shared.lock_state().counts.texts += 1;
                self.shared.retire(|cookie| Retired { address, len, writer, memory, cookie, probes, kept });
            }
            Stage::Published => {
                self.shared.retire(|cookie| Retired { address, len, writer, memory, cookie, probes, kept });
            }
        }
    }
}
