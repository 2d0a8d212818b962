//! How an arena gets memory from the system and returns it.
//!
//! A pack begins with a few pages of memory and grows in steps, so that a host with few programs does not pay for a
//! whole pack. Empty packs return to the system, except one that is kept in reserve.
//!
//! Protocol: all functions here run under `growth`, and without `state` around the system calls. Other threads
//! cannot see the part being worked on: the slot is busy, or the pack has no chunks beyond.
//!
//! Invariants: chunks taken for a step that fails are put back; `mapped` is raised before memory is requested and
//! lowered after it is released, or both under one lock, so the limit always holds.
//!
//! What would break it: calling anything here that promotes (which takes `growth`) or may run callbacks.

use std::mem;
use std::sync::Arc;

use rustix::param::page_size;

use crate::arch;
use crate::error::Error;
use crate::pack::{Kind, Pack};
use crate::shared::{Growth, Shared};
use crate::sizes::{CHUNK_BYTES, PACK_BYTES, PACK_CHUNKS};
use crate::state::{ArenaState, PackSlot, Slot, next_step};

/// The result of [`Shared::map`], in slots that are still busy.
pub(crate) struct Mapped {
    pub(crate) slot: usize,
    pub(crate) pack: Pack,
    /// Whether the addresses had other memory earlier.
    pub(crate) reused: bool,
}

impl Shared {
    /// Populates memory for a run of `chunks`: more of a pack that is not fully populated, or another pack. Call
    /// [`consider_promotions`](Self::consider_promotions) after releasing `growth`.
    pub(crate) fn grow(&self, growth: &Growth<'_>, chunks: u32) -> Result<(), Error> {
        let wanted = chunks.min(PACK_CHUNKS) as usize * CHUNK_BYTES;
        let Some((slot, to)) = self.lock_state().pack_with_room(wanted, self.limit) else {
            return self.add_pack(growth, wanted);
        };
        self.populate(growth, slot, to)
    }

    /// Populates the first `to` bytes of the pack in `slot`. All or nothing.
    pub(crate) fn populate(&self, _: &Growth<'_>, slot: usize, to: usize) -> Result<(), Error> {
        let mut state = self.lock_state();
        let mapped = state.mapped;
        let Slot::Pack(PackSlot { pack, beyond, .. }) = &mut state.slots[slot] else { return Ok(()) };
        let wanted = to - pack.populated();
        if wanted > self.limit.saturating_sub(mapped) {
            return Err(Error::Limit { wanted, mapped, limit: self.limit });
        }
        let Some(block) = beyond.take() else { return Ok(()) };
        let pack = Arc::clone(pack);
        drop(state);
        let result = pack.populate(to);
        drop(pack);
        let mut state = self.lock_state();
        let rest = match result {
            Ok(()) => {
                state.mapped += wanted;
                state.chunks.extend(block, (wanted / CHUNK_BYTES) as u32)
            }
            Err(_) => Some(block),
        };
        let Slot::Pack(slot) = &mut state.slots[slot] else {
            unreachable!("only the holder of `growth` takes a pack out of its slot");
        };
        slot.beyond = rest;
        result
    }

    fn add_pack(&self, growth: &Growth<'_>, wanted: usize) -> Result<(), Error> {
        let room = self.limit.saturating_sub(self.lock_state().mapped);
        let first = if self.permanent { PACK_BYTES } else { next_step(0, wanted, room) };
        let Mapped { slot, pack, reused } = self.map(growth, PACK_BYTES, first)?;
        self.lock_state().adopt(slot, pack, reused);
        Ok(())
    }

    /// Maps `len` bytes, the first `populate` of them populated, in the first slots that have room (in random ones
    /// if places are random), and leaves the slots busy.
    pub(crate) fn map(&self, growth: &Growth<'_>, len: usize, populate: usize) -> Result<Mapped, Error> {
        let populate = populate.next_multiple_of(page_size());
        let (slot, reused) = match self.claim_slots(len, populate) {
            // The reserve pack, or one that could not be returned earlier, may occupy the room.
            Err(_) if self.make_way(growth) => self.claim_slots(len, populate)?,
            result => result?,
        };
        let place = self.reservation.slots().start + slot * PACK_BYTES;
        // Pages of a long text are returned with it, in every arena.
        let kind = Kind { permanent: self.permanent && len <= PACK_BYTES, ..self.kind };
        // SAFETY: the slots were free and are now ours.
        let result = unsafe { Pack::new(&kind, place, len, populate) };
        let mut state = self.lock_state();
        match &result {
            // A system that cannot populate in steps has populated everything.
            Ok(pack) => state.mapped += pack.populated() - populate,
            Err(_) => state.give_back(slot, len, populate),
        }
        drop(state);
        Ok(Mapped { slot, pack: result?, reused })
    }

    /// Returns everything possible to the system. Whether there was anything.
    fn make_way(&self, growth: &Growth<'_>) -> bool {
        let stuck = self.unmap_stuck(growth);
        stuck | (!self.permanent && self.trim(growth, 0))
    }

    /// Finds room for `len` bytes; also returns whether part of it was mapped earlier.
    fn claim_slots(&self, len: usize, populate: usize) -> Result<(usize, bool), Error> {
        let random = self.random();
        let mut state = self.lock_state();
        let mapped = state.mapped;
        if populate > self.limit.saturating_sub(mapped) {
            return Err(Error::Limit { wanted: populate, mapped, limit: self.limit });
        }
        let range = self.reservation.slots().len();
        let count = len.div_ceil(PACK_BYTES);
        let full = Error::RangeFull { len, range, max: arch::MAX_RANGE };
        let slot = state.free_slots(count, random).ok_or(full)?;
        state.slots[slot..slot + count].fill_with(|| Slot::Busy);
        state.mapped += populate;
        let reused = slot < state.fresh;
        state.fresh = state.fresh.max(slot + count);
        Ok((slot, reused))
    }

    /// Returns empty packs to the system until at most `keep` are left. Whether any was returned.
    pub(crate) fn trim(&self, growth: &Growth<'_>, keep: u32) -> bool {
        let mut any = false;
        loop {
            let mut state = self.lock_state();
            if state.chunks.empty_regions() <= keep {
                return any;
            }
            let ArenaState { chunks, slots, .. } = &mut *state;
            let may_go = |start: u32| {
                matches!(&slots[(start / PACK_CHUNKS) as usize], Slot::Pack(PackSlot { pinned: false, .. }))
            };
            let Some(start) = chunks.remove_empty_region(may_go) else { return any };
            let slot = (start / PACK_CHUNKS) as usize;
            let Slot::Pack(gone) = mem::replace(&mut state.slots[slot], Slot::Busy) else {
                unreachable!("the allocator has a region for each pack and no other");
            };
            let PackSlot { pack, promotion, .. } = gone;
            state.counts.packs -= 1;
            drop(state);
            let pack =
                Arc::into_inner(pack).unwrap_or_else(|| unreachable!("a thread that shares a pack pins it"));
            if let Err(pack) = self.unmap(growth, slot, pack) {
                // The system refused (too many mappings): keep the pack, which is still usable.
                let mut state = self.lock_state();
                let kept = state.adopt(slot, pack, true);
                kept.promotion = promotion;
                return any;
            }
            any = true;
        }
    }

    /// Retries what the system refused to unmap earlier. Returns whether any of it was unmapped.
    pub(crate) fn unmap_stuck(&self, growth: &Growth<'_>) -> bool {
        let stuck = mem::take(&mut self.lock_state().stuck);
        let mut any = false;
        for pack in stuck {
            let slot = (pack.executable().start - self.reservation.slots().start) / PACK_BYTES;
            match self.unmap(growth, slot, pack) {
                Ok(()) => any = true,
                Err(pack) => self.lock_state().stuck.push(pack),
            }
        }
        any
    }

    /// Unmaps a pack whose slots are busy, and frees the slots.
    pub(crate) fn unmap(&self, _: &Growth<'_>, slot: usize, pack: Pack) -> Result<(), Pack> {
        let (len, populated) = (pack.executable().len(), pack.populated());
        // SAFETY: no chunk of it is taken, or its only text is dropped and the grace period over.
        unsafe { pack.unmap() }?;
        self.lock_state().give_back(slot, len, populated);
        Ok(())
    }
}
