//! Bytes of code memory that somebody owns: what drafts and texts have in common.
//!
//! A place is taken, written at most once, and given back by dropping it. It alone knows the writable address of its
//! bytes; nothing else in the crate stores into a pack.
//!
//! Invariants: no two places overlap (the allocator's, or a mapping of one's own); a place that is not written is full
//! of traps, and is again before its chunks are free for others.
//!
//! What would break it: a forked child that stores through the writable address, where nothing is mapped; so every
//! store asks the witness first.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Mapped, PACK_CHUNKS, Shared, Slot};
use crate::chunks::Block;
use crate::error::Error;
use crate::pack::{Pack, Writer};
use crate::{CHUNK_BYTES, PACK_BYTES, arch};

/// Bytes of code memory that somebody owns. Dropping it gives them back.
pub(crate) struct Place {
    address: usize,
    writer: Writer,
    /// Bytes asked for.
    len: usize,
    /// Whether other CPUs may have fetched from it before.
    reused: bool,
    stage: Stage,
    /// Taken by `drop` alone.
    memory: Option<Memory>,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Full of traps, as it was found.
    Draft,
    /// Something was written.
    Text,
}

/// Where the bytes of a place come from.
enum Memory {
    Chunks(Block),
    Own { slot: usize, pack: Pack },
}

impl Place {
    /// Finds a place, in a pack or of its own.
    pub(crate) fn take(shared: &Arc<Shared>, len: usize) -> Result<Self, Error> {
        let range = shared.reservation.slots().len();
        match len {
            _ if !shared.witness.is_original() => Err(Error::Forked),
            0 => Err(Error::Empty),
            _ if len > range => Err(Error::TooLong { len, range, max: arch::MAX_RANGE }),
            _ if len > PACK_BYTES => Self::take_own(shared, len),
            _ => Self::take_chunks(shared, len),
        }
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the finished code to its place and publishes it there.
    pub(crate) fn write(&mut self, code: &[u8]) -> Result<(), Error> {
        assert_eq!(code.len(), self.len, "a draft has as many bytes as its place");
        if !self.shared.witness.is_original() {
            return Err(Error::Forked);
        }
        self.stage = Stage::Text;
        // Relaxed, here and wherever texts are counted: a statistic that orders nothing.
        self.shared.texts.fetch_add(1, Ordering::Relaxed);
        // SAFETY: this place owns its bytes, nobody runs them yet, and `code` is as long.
        unsafe { self.writer.copy(self.address, code) }?;
        self.publish();
        // After the caches are right, not before: a CPU must fetch afresh from them.
        if self.reused && arch::NEEDS_SYNC_CORE { self.shared.sync_core.sync() } else { Ok(()) }
    }

    /// Gives the bytes from `len` on back. Only a draft may do so, and at least one byte is left.
    pub(crate) fn shrink(&mut self, len: usize) -> Result<(), Error> {
        assert!(self.stage == Stage::Draft && 0 < len && len <= self.len);
        if !self.shared.witness.is_original() {
            return Err(Error::Forked);
        }
        let mut state = self.shared.lock_state();
        state.counts.code_bytes -= self.len - len;
        if let Some(Memory::Chunks(block)) = &self.memory {
            state.chunks.shrink(block, chunks_for(len));
        }
        self.len = len;
        Ok(())
    }

    /// The bytes as they are executed.
    pub(crate) fn bytes(&self) -> &[u8] {
        let address = ptr::with_exposed_provenance(self.address);
        // SAFETY: the executable view is readable as long as the place lives; its bytes change in `write` and `drop`
        // only, which have the place to themselves.
        unsafe { std::slice::from_raw_parts(address, self.len) }
    }

    fn take_chunks(shared: &Arc<Shared>, len: usize) -> Result<Self, Error> {
        if let Some(place) = Self::try_chunks(shared, len) {
            return Ok(place);
        }
        let growth = shared.lock_growth();
        loop {
            // Another thread may have added a pack; and may use up the one that we add.
            if let Some(place) = Self::try_chunks(shared, len) {
                return Ok(place);
            }
            shared.add_pack(&growth)?;
        }
    }

    fn try_chunks(shared: &Arc<Shared>, len: usize) -> Option<Self> {
        let mut state = shared.lock_state();
        let found = state.chunks.alloc(chunks_for(len))?;
        let address = shared.reservation.slots().start + found.start as usize * CHUNK_BYTES;
        let Slot::Pack(pack) = &state.slots[(found.start / PACK_CHUNKS) as usize] else {
            unreachable!("the allocator has a region for each pack and no other");
        };
        let writer = pack.writer();
        state.counts.add(len);
        Some(Self {
            address,
            writer,
            len,
            reused: found.reused,
            stage: Stage::Draft,
            memory: Some(Memory::Chunks(found.block)),
            shared: Arc::clone(shared),
        })
    }

    fn take_own(shared: &Arc<Shared>, len: usize) -> Result<Self, Error> {
        let Mapped { slot, pack, reused } = shared.map(&shared.lock_growth(), len)?;
        let mut state = shared.lock_state();
        state.slots[slot] = Slot::Own;
        state.counts.add(len);
        state.counts.own_mappings += 1;
        state.counts.own_bytes += pack.executable().len();
        let address = pack.executable().start;
        Ok(Self {
            address,
            writer: pack.writer(),
            len,
            reused,
            stage: Stage::Draft,
            memory: Some(Memory::Own { slot, pack }),
            shared: Arc::clone(shared),
        })
    }

    fn publish(&self) {
        // SAFETY: the two views of our own bytes; `room` is within the chunks or the mapping.
        unsafe {
            let clean = self.writer.clean_address(self.address).cast_mut();
            arch::publish(clean, ptr::without_provenance(self.address), self.room());
        }
    }

    fn room(&self) -> usize {
        self.len.next_multiple_of(CHUNK_BYTES)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if !self.shared.witness.is_original() {
            // The memory is the parent's, and there is no writable view here.
            match memory {
                Memory::Chunks(_) => {}
                Memory::Own { pack, .. } => pack.forget(),
            }
            return;
        }
        if self.stage == Stage::Text {
            self.shared.texts.fetch_sub(1, Ordering::Relaxed);
            // Also for memory that is about to be unmapped: that can fail.
            // SAFETY: our own bytes; whoever could run them has promised to keep us alive while doing so.
            let _ = unsafe { self.writer.fill_with_traps(self.address, self.room()) };
            self.publish();
        }
        match memory {
            Memory::Chunks(block) => {
                let mut state = self.shared.lock_state();
                state.counts.remove(self.len);
                state.chunks.free(block);
                let trim = state.chunks.empty_regions() > 1;
                drop(state);
                if trim {
                    self.shared.trim(&self.shared.lock_growth(), 1);
                }
            }
            Memory::Own { slot, pack } => {
                let growth = self.shared.lock_growth();
                let mut state = self.shared.lock_state();
                state.counts.remove(self.len);
                state.counts.own_mappings -= 1;
                state.counts.own_bytes -= pack.executable().len();
                state.slots[slot] = Slot::Busy;
                drop(state);
                // When it cannot be unmapped its slots stay busy for good, full of traps.
                if let Err(pack) = self.shared.unmap(&growth, slot, pack) {
                    std::mem::forget(pack);
                }
            }
        }
    }
}

fn chunks_for(len: usize) -> u32 {
    len.div_ceil(CHUNK_BYTES) as u32
}
