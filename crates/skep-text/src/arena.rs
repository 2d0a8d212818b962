//! The arena: one range, its packs, and who holds which chunks.
//!
//! The problem: hand out places for code in tens of nanoseconds from many threads, while now and then a pack must be
//! mapped or returned, which takes up to a millisecond.
//!
//! Protocol, two locks:
//!
//! - `state` guards all bookkeeping. It is a leaf: under it no other lock is taken and no memory is mapped (but what
//!   growing a table may cost), so nothing ever waits long for it.
//! - `growth` is held by whoever maps or unmaps memory, around the system calls, and taken before `state`. A thread
//!   that finds no room takes it and looks again, so threads that run out of room together map one pack, and
//!   a limit is not reported while a pack is just being returned.
//!
//! A slot of the range is `Free`, or `Busy` while the holder of `growth` maps or unmaps it, or belongs to a pack:
//!
//! ```text
//!    Free ──(growth: map)──> Busy ──> Pack    a pack of chunks
//!      ^                      │ └───> Own     first slot of a long text's own memory; the text has the pack
//!      └──(growth: unmap)─────┘       Busy    its further slots
//! ```
//!
//! Invariants: `mapped` counts the bytes of every slot that is not `Free`; the allocator has a region for each `Pack`
//! slot and no other; at most one pack is empty, except between a `free` and the `trim` that follows it.
//!
//! What would break it: touching a pack's memory through anything but a [`Place`], which owns its bytes.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem};

use crate::chunks::Chunks;
use crate::error::Error;
use crate::fork::Witness;
use crate::occupancy::{Backing, Occupancy};
use crate::pack::{Kind, Medium, Pack};
use crate::place::Place;
use crate::range::Reservation;
use crate::sync_core::SyncCore;
use crate::text::Draft;
use crate::{CHUNK_BYTES, Config, PACK_BYTES, arch, procfs};

pub(crate) const PACK_CHUNKS: u32 = (PACK_BYTES / CHUNK_BYTES) as u32;

/// Code memory of one runtime: a reserved range of addresses and the packs in it.
///
/// Cloning gives another handle to the same arena. Drafts and texts keep their arena alive; its memory and
/// addresses go back to the system with the last of them.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

impl Arena {
    /// Reserves the range and maps the first pack, so that what the system forbids is known from the beginning.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] when the configuration has no room for one pack, [`Error::System`] when the system refuses
    /// something; its text says what to change.
    pub fn new(config: Config) -> Result<Self, Error> {
        let Config { reserve, limit, near } = config;
        let reserve = reserve.min(arch::MAX_RANGE);
        for (setting, bytes) in [("Config::reserve", reserve), ("Config::limit", limit)] {
            if bytes < PACK_BYTES {
                return Err(Error::TooSmall { setting, bytes, pack: PACK_BYTES });
            }
        }
        let sync_core = SyncCore::register()?;
        let witness = Witness::new()?;
        let reservation = Reservation::new(reserve / PACK_BYTES * PACK_BYTES, near)?;
        let slots = reservation.slots().len() / PACK_BYTES;
        let state = State {
            chunks: Chunks::new(),
            slots: (0..slots).map(|_| Slot::Free).collect(),
            counts: Counts::default(),
            mapped: 0,
            fresh: 0,
        };
        let shared = Shared {
            state: Mutex::new(state),
            growth: Mutex::new(()),
            limit,
            texts: AtomicUsize::new(0),
            sync_core,
            witness,
            reservation,
        };
        shared.add_pack(&shared.lock_growth())?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Takes a place of `len` bytes for code that is still to be written.
    ///
    /// The place is a multiple of 64 bytes ([`CHUNK_BYTES`]); texts longer than a pack get whole pages of their
    /// own.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] for no bytes, [`Error::TooLong`] for more than the range holds, [`Error::RangeFull`] and
    /// [`Error::Limit`] when there is no room now, [`Error::System`] when the system has no memory,
    /// [`Error::Forked`] in a forked child.
    pub fn draft(&self, len: usize) -> Result<Draft, Error> {
        Ok(Draft::new(Place::take(&self.shared, len)?))
    }

    /// How full the arena is. Reads `/proc/self/smaps`, which takes about a millisecond.
    ///
    /// In a forked child, which owns none of the memory, all counts are zero.
    pub fn occupancy(&self) -> Occupancy {
        if !self.shared.witness.is_original() {
            return Occupancy::default();
        }
        let state = self.shared.lock_state();
        let State { chunks, counts, .. } = &*state;
        let texts = self.shared.texts.load(Ordering::Relaxed);
        let occupancy = Occupancy {
            backing: Backing::SealedMemfd,
            packs: counts.packs,
            empty_packs: chunks.empty_regions() as usize,
            own_mappings: counts.own_mappings,
            mapped_bytes: state.mapped,
            chunks_used: chunks.used() as usize,
            chunks_free: chunks.free_count() as usize,
            chunks_waiting: 0,
            used_bytes: chunks.used() as usize * CHUNK_BYTES + counts.own_bytes,
            code_bytes: counts.code_bytes,
            drafts: counts.places.saturating_sub(texts),
            texts,
            largest_free_run: chunks.longest_free_run() as usize * CHUNK_BYTES,
            huge_bytes: None,
        };
        drop(state);
        Occupancy { huge_bytes: procfs::huge_bytes(&self.range()), ..occupancy }
    }

    /// The reserved range of addresses. All code of this arena is in it.
    pub fn range(&self) -> Range<usize> {
        self.shared.reservation.slots().clone()
    }

    /// Whether a direct branch from anywhere in the range reaches `address`, and back.
    pub fn reaches(&self, address: usize) -> bool {
        let range = self.range();
        address.abs_diff(range.start).max(address.abs_diff(range.end)) <= arch::REACH
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("range", &self.range()).finish_non_exhaustive()
    }
}

/// What all handles, drafts and texts of an arena share.
pub(crate) struct Shared {
    state: Mutex<State>,
    growth: Mutex<()>,
    limit: usize,
    /// How many places have been written; for [`Occupancy`] only.
    pub(crate) texts: AtomicUsize,
    pub(crate) sync_core: SyncCore,
    pub(crate) witness: Witness,
    /// Dropped last: everything else is mapped inside.
    pub(crate) reservation: Reservation,
}

/// Shows that `growth` is held.
pub(crate) type Growth<'a> = MutexGuard<'a, ()>;

pub(crate) struct State {
    pub(crate) chunks: Chunks,
    pub(crate) slots: Vec<Slot>,
    pub(crate) counts: Counts,
    mapped: usize,
    /// Slots from this one on have never been mapped.
    fresh: usize,
}

/// What [`Shared::map`] made, in slots that are still busy.
pub(crate) struct Mapped {
    pub(crate) slot: usize,
    pub(crate) pack: Pack,
    /// Whether other memory was at the same addresses before.
    pub(crate) reused: bool,
}

pub(crate) enum Slot {
    Free,
    Busy,
    Pack(Pack),
    Own,
}

/// Numbers for [`Occupancy`] only; nothing is decided by them.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) own_mappings: usize,
    pub(crate) own_bytes: usize,
    pub(crate) code_bytes: usize,
    packs: usize,
    places: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, len: usize) {
        self.places += 1;
        self.code_bytes += len;
    }

    pub(crate) fn remove(&mut self, len: usize) {
        self.places -= 1;
        self.code_bytes -= len;
    }
}

impl Shared {
    /// Nothing panics under the locks but broken invariants, which a second panic would only hide.
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_growth(&self) -> Growth<'_> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_pack(&self, growth: &Growth<'_>) -> Result<(), Error> {
        let Mapped { slot, pack, reused } = self.map(growth, PACK_BYTES)?;
        let mut state = self.lock_state();
        state.slots[slot] = Slot::Pack(pack);
        state.chunks.add_region(slot as u32 * PACK_CHUNKS, PACK_CHUNKS, reused);
        state.counts.packs += 1;
        Ok(())
    }

    /// Maps `len` bytes in the first slots that have room, and leaves these busy.
    pub(crate) fn map(&self, growth: &Growth<'_>, len: usize) -> Result<Mapped, Error> {
        let wanted = len.next_multiple_of(rustix::param::page_size());
        let (slot, reused) = match self.claim_slots(len, wanted) {
            // The reserve may be what is in the way.
            Err(_) if self.trim(growth, 0) => self.claim_slots(len, wanted)?,
            result => result?,
        };
        let place = self.reservation.slots().start + slot * PACK_BYTES;
        // SAFETY: the slots were free and are now ours.
        let result = unsafe { Pack::new(&Kind::new(Medium::Memfd), place, len, len) };
        if result.is_err() {
            self.lock_state().give_back(slot, wanted);
        }
        Ok(Mapped { slot, pack: result?, reused })
    }

    /// Finds room for `len` bytes; also tells whether some of it was mapped before.
    fn claim_slots(&self, len: usize, wanted: usize) -> Result<(usize, bool), Error> {
        let mut state = self.lock_state();
        let mapped = state.mapped;
        if wanted > self.limit - mapped.min(self.limit) {
            return Err(Error::Limit { wanted, mapped, limit: self.limit });
        }
        let range = self.reservation.slots().len();
        let count = len.div_ceil(PACK_BYTES);
        let full = Error::RangeFull { len, range, max: arch::MAX_RANGE };
        let slot = state.first_free_slots(count).ok_or(full)?;
        state.slots[slot..slot + count].fill_with(|| Slot::Busy);
        state.mapped += wanted;
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
            let Some(start) = state.chunks.remove_empty_region() else { return any };
            let slot = (start / PACK_CHUNKS) as usize;
            let Slot::Pack(pack) = mem::replace(&mut state.slots[slot], Slot::Busy) else {
                unreachable!("the allocator has a region for each pack and no other");
            };
            state.counts.packs -= 1;
            drop(state);
            if let Err(pack) = self.unmap(growth, slot, pack) {
                // The system would not (too many mappings): keep it then, it is as good as ever.
                let mut state = self.lock_state();
                state.slots[slot] = Slot::Pack(pack);
                state.chunks.add_region(start, PACK_CHUNKS, true);
                state.counts.packs += 1;
                return any;
            }
            any = true;
        }
    }

    /// Unmaps a pack whose slots are busy, and frees the slots.
    pub(crate) fn unmap(&self, _: &Growth<'_>, slot: usize, pack: Pack) -> Result<(), Pack> {
        let bytes = pack.executable().len();
        // SAFETY: no chunk of it is taken, or its only text is being dropped.
        unsafe { pack.unmap() }?;
        self.lock_state().give_back(slot, bytes);
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let original = self.witness.is_original();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for slot in state.slots.drain(..) {
            match slot {
                // The executable views go with the reservation; so nothing needs to be mapped over them.
                Slot::Pack(pack) if !original => pack.forget(),
                Slot::Pack(_) | Slot::Free | Slot::Busy | Slot::Own => {}
            }
        }
    }
}

impl State {
    fn first_free_slots(&self, count: usize) -> Option<usize> {
        let is_free = |slot: &Slot| matches!(slot, Slot::Free);
        self.slots.windows(count).position(|slots| slots.iter().all(is_free))
    }

    fn give_back(&mut self, slot: usize, bytes: usize) {
        self.slots[slot..slot + bytes.div_ceil(PACK_BYTES)].fill_with(|| Slot::Free);
        self.mapped -= bytes;
    }
}
