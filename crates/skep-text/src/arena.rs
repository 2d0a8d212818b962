//! The arena: one range, its packs, and who holds which chunks.
//!
//! The problem: hand out places for code in tens of nanoseconds from many threads, while now and then a pack must be
//! mapped or returned, which takes up to a millisecond.
//!
//! Protocol, two locks (and three more that are not taken while one of these is held: two in `reclaim.rs`, and
//! `poking`, in `poke.rs`):
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
//!    Free ──(growth: map)──> Busy ──> Pack    a pack of chunks, with memory for the first of them
//!      ^                      │ └───> Own     first slot of a long text's own memory; the text has the pack
//!      └──(growth: unmap)─────┘       Busy    its further slots
//! ```
//!
//! A pack begins with a few pages of memory and gets more as it fills, step by step, so that a host with few programs
//! does not pay for a whole one. One that holds enough code is promoted by the keeper (`promote.rs`).
//!
//! Invariants: `mapped` counts the bytes that there is memory for; the allocator has a region for each `Pack` slot and
//! no other, and what it calls free has memory behind it; at most one pack is empty, except between a `free` and the
//! `trim` that follows it; a pinned pack is not unmapped.
//!
//! What would break it: touching a pack's memory through anything but a [`Place`](crate::place::Place), which owns its
//! bytes, or a poke, which has the text.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_rcu::{Domain, Grace};

use crate::chunks::{self, Block, Chunks};
use crate::config::DEFAULT_READERS;
use crate::error::Error;
use crate::fault::Faults;
use crate::occupancy::{Occupancy, Span, SpanState};
use crate::pack::{Kind, Pack, Resolved, Writer, resolve};
use crate::place::{Memory, Place};
use crate::range::Reservation;
use crate::reclaim::{Retirement, Total};
use crate::seen::{Missed, Seen};
use crate::sync_core::SyncCore;
use crate::text::Draft;
use crate::{CHUNK_BYTES, Config, PACK_BYTES, arch, procfs};

pub(crate) const PACK_CHUNKS: u32 = (PACK_BYTES / CHUNK_BYTES) as u32;

/// The least memory that a pack begins with, and gets more of at once.
const STEP: usize = 16 << 10;

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
    /// [`Error::TooSmall`] when the configuration has no room for one pack, [`Error::System`] and
    /// [`Error::NoBacking`] when the system refuses something; their texts say what to change. [`Error::Readers`]
    /// when no domain can be made.
    pub fn new(config: Config) -> Result<Self, Error> {
        let reserve = config.reserve.min(arch::MAX_RANGE);
        for (setting, bytes) in [("Config::reserve", reserve), ("Config::limit", config.limit)] {
            if bytes < PACK_BYTES {
                return Err(Error::TooSmall { setting, bytes, pack: PACK_BYTES });
            }
        }
        let sync_core = SyncCore::register()?;
        let domain = match &config.domain {
            Some(domain) => domain.clone(),
            None => Domain::new(DEFAULT_READERS)?,
        };
        if !domain.is_original() {
            return Err(Error::Forked);
        }
        let seen = Seen::open(&config.seen)?;
        let reservation = Reservation::new(reserve / PACK_BYTES * PACK_BYTES, config.near)?;
        let place = reservation.slots().start;
        let (only, wanted) = (config.wanted_backing(), config.kind());
        let first = if config.permanent { PACK_BYTES } else { STEP };
        // SAFETY: the first slot of a new reservation.
        let Resolved { kind, pack, refused } = unsafe { resolve(only, wanted, place, PACK_BYTES, first) }?;
        let slots = reservation.slots().len() / PACK_BYTES;
        let mut state = State {
            chunks: Chunks::new(),
            slots: (0..slots).map(|_| Slot::Free).collect(),
            counts: Counts::default(),
            stuck: Vec::new(),
            mapped: pack.populated(),
            fresh: 1,
        };
        state.adopt(0, pack, false);
        let shared = Shared {
            state: ManuallyDrop::new(Mutex::new(state)),
            growth: Mutex::new(()),
            retirement: ManuallyDrop::new(Retirement::default()),
            poking: Mutex::new(()),
            limit: config.limit,
            max_waiting: config.waiting,
            promote_at: if config.huge { config.promote_at } else { usize::MAX },
            permanent: config.permanent,
            faults: Arc::new(Faults::new(reservation.slots().clone(), config.fault_handler)),
            random: config.random.then(|| AtomicU64::new(seed())),
            kind,
            refused: refused.first().map(|(backing, error)| format!("{backing}: {error}")),
            sync_core,
            seen,
            domain,
            reservation,
        };
        let shared = Arc::new(shared);
        shared.consider_promotions();
        Ok(Self { shared })
    }

    /// Takes a place of `len` bytes for code that is still to be written.
    ///
    /// The place is a multiple of 32 bytes ([`CHUNK_BYTES`]); texts longer than a pack get whole pages of their
    /// own.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] for no bytes, [`Error::TooLong`] for more than the range holds, [`Error::RangeFull`] and
    /// [`Error::Limit`] when there is no room now, [`Error::Waiting`] when too much of it waits for readers that do
    /// not leave, [`Error::System`] when the system has no memory, [`Error::Forked`] in a forked child.
    pub fn draft(&self, len: usize) -> Result<Draft, Error> {
        self.draft_aligned(len, CHUNK_BYTES)
    }

    /// As [`draft`](Self::draft), at an address that is a multiple of `align` bytes: a cache line for code with loops
    /// that are laid out by lines.
    ///
    /// # Errors
    ///
    /// As [`draft`](Self::draft); [`Error::Alignment`] when `align` is no power of two or more than a page.
    pub fn draft_aligned(&self, len: usize, align: usize) -> Result<Draft, Error> {
        Ok(Draft::new(Place::take(&self.shared, len, align)?))
    }

    /// The read sections that this arena waits for: whoever may run its texts while they are dropped enters one first.
    pub fn domain(&self) -> &Domain {
        &self.shared.domain
    }

    /// Waits until everything that was retired before is free again, but for what the system does not let be written.
    ///
    /// Nothing needs this but tests and measurements, and hosts that want memory to go down before they look at it.
    ///
    /// # Errors
    ///
    /// [`Error::Readers`] inside a read section of this thread, which would wait for itself, and in a forked child.
    pub fn flush(&self) -> Result<(), Error> {
        self.shared.domain.synchronize_expedited(Grace::Both)?;
        self.shared.reclaim_passed();
        // The keeper may be in the middle of a batch.
        self.shared.domain.barrier()?;
        Ok(())
    }

    /// How full the arena is. Reads `/proc/self/smaps`, which takes about a millisecond.
    ///
    /// In a forked child, which owns none of the memory, all counts are zero.
    pub fn occupancy(&self) -> Occupancy {
        let mut occupancy = Occupancy { backing: self.shared.kind.medium, ..Occupancy::default() };
        if !self.shared.domain.is_original() {
            return occupancy;
        }
        // First what has been retired: later it may be more than was ever published.
        let Total { texts: retired, code_bytes: retired_bytes } = self.shared.retirement.total();
        occupancy.waiting_bytes = self.shared.retirement.bytes();
        let (waiting, nothing_is_freed) = self.shared.retirement.addresses();
        let state = self.shared.lock_state();
        let State { chunks, counts, .. } = &*state;
        let waits = |chunk: u32| waiting.binary_search(&self.address(chunk)).is_ok();
        let waiting = chunks.runs().filter(|run| waits(run.0)).map(|run| run.1 as usize).sum();
        occupancy.texts = counts.texts.saturating_sub(retired);
        occupancy.drafts = counts.places.saturating_sub(counts.texts);
        occupancy.code_bytes = counts.code_bytes.saturating_sub(retired_bytes);
        occupancy.packs = counts.packs;
        occupancy.empty_packs = chunks.empty_regions() as usize;
        occupancy.own_mappings = counts.own_mappings;
        occupancy.mapped_bytes = state.mapped;
        occupancy.chunks_used = chunks.used() as usize - waiting;
        occupancy.chunks_free = chunks.free_count() as usize;
        occupancy.chunks_waiting = waiting;
        occupancy.used_bytes = occupancy.chunks_used * CHUNK_BYTES + counts.own_bytes;
        occupancy.largest_free_run = chunks.longest_free_run() as usize * CHUNK_BYTES;
        for slot in &state.slots {
            let Slot::Pack(slot) = slot else { continue };
            occupancy.sealed_packs += usize::from(slot.pack.is_sealed());
            match &slot.promotion {
                Promotion::Huge => occupancy.huge_packs += 1,
                Promotion::Refused { why, .. } => occupancy.huge_refused = Some(why.clone()),
                Promotion::NotYet | Promotion::Asked => {}
            }
        }
        occupancy.backing_refused = self.shared.refused.clone();
        drop((state, nothing_is_freed));
        occupancy.huge_bytes = procfs::huge_bytes(&self.range());
        occupancy
    }

    /// What every byte of the packs is, in order of address within each pack. Texts with memory of their own are not
    /// among it. In a forked child, which owns none of the memory, it is empty.
    pub fn map(&self) -> Vec<Span> {
        if !self.shared.domain.is_original() {
            return Vec::new();
        }
        let (waiting, nothing_is_freed) = self.shared.retirement.addresses();
        let state = self.shared.lock_state();
        let span = |(chunk, count, run): (u32, u32, chunks::State)| {
            let address = self.address(chunk);
            let what = match run {
                _ if waiting.binary_search(&address).is_ok() => SpanState::Waiting,
                chunks::State::Free => SpanState::Free,
                chunks::State::Draft => SpanState::Draft,
                chunks::State::Text => SpanState::Text,
                chunks::State::Beyond | chunks::State::Vacant => SpanState::NoMemory,
            };
            Span { address, len: count as usize * CHUNK_BYTES, state: what }
        };
        let mut spans: Vec<Span> = state.chunks.runs().map(span).collect();
        drop(state);
        drop(nothing_is_freed);
        spans.sort_by_key(|span| span.address);
        spans
    }

    /// Makes huge pages of all packs now, on this thread, whatever they hold: takes milliseconds, and up to 2 MiB of
    /// memory each. The keeper does it by itself for packs that hold enough ([`Config::promote_at`]). Returns how many
    /// packs are huge.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with what the system refused first; the pack then has all its memory, on small pages, and the
    /// others have been tried nevertheless. [`Error::Limit`] when
    /// there is not to be so much memory; [`Error::Forked`] in a forked child.
    pub fn promote(&self) -> Result<usize, Error> {
        if !self.shared.domain.is_original() {
            return Err(Error::Forked);
        }
        self.shared.promote_all()
    }

    /// Whether profilers or debuggers are told about texts, so that it is worth giving these
    /// [names](Draft::set_name).
    pub fn is_seen(&self) -> bool {
        self.shared.seen.is_on()
    }

    /// The files for profilers that lack texts because they could not be written any more. Empty when all is well, and in
    /// a forked child.
    pub fn missed(&self) -> Vec<Missed> {
        if !self.shared.domain.is_original() {
            return Vec::new();
        }
        self.shared.seen.missed()
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

    fn address(&self, chunk: u32) -> usize {
        self.range().start + chunk as usize * CHUNK_BYTES
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("range", &self.range()).finish_non_exhaustive()
    }
}

/// What all handles, drafts and texts of an arena share.
pub(crate) struct Shared {
    state: ManuallyDrop<Mutex<State>>,
    growth: Mutex<()>,
    pub(crate) retirement: ManuallyDrop<Retirement>,
    /// Held while a word of a text is read and written back.
    pub(crate) poking: Mutex<()>,
    limit: usize,
    pub(crate) max_waiting: usize,
    pub(crate) promote_at: usize,
    pub(crate) permanent: bool,
    /// Dropped before the addresses go back to the system.
    pub(crate) faults: Arc<Faults>,
    /// The state of the generator, where texts are to lie at random.
    random: Option<AtomicU64>,
    kind: Kind,
    /// Why it is not a better kind.
    refused: Option<String>,
    pub(crate) sync_core: SyncCore,
    pub(crate) seen: Seen,
    pub(crate) domain: Domain,
    /// Dropped last: everything else is mapped inside.
    pub(crate) reservation: Reservation,
}

/// Shows that `growth` is held.
pub(crate) type Growth<'a> = MutexGuard<'a, ()>;

pub(crate) struct State {
    pub(crate) chunks: Chunks,
    pub(crate) slots: Vec<Slot>,
    pub(crate) counts: Counts,
    /// Memory of long texts that the system would not unmap.
    pub(crate) stuck: Vec<Pack>,
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
    Pack(PackSlot),
    Own,
}

/// A pack in its slot.
pub(crate) struct PackSlot {
    pub(crate) pack: Arc<Pack>,
    /// The pack's, at hand for whoever takes a place.
    pub(crate) writer: Writer,
    /// The chunks that there is no memory for yet.
    pub(crate) beyond: Option<Block>,
    pub(crate) promotion: Promotion,
    /// Whether somebody works on the pack without holding a lock.
    pub(crate) pinned: bool,
}

/// How far a pack has got on its way to being a huge page.
pub(crate) enum Promotion {
    NotYet,
    /// The keeper has been asked.
    Asked,
    Huge,
    Refused {
        why: String,
        /// How often the kernel may be asked again.
        again: u32,
    },
}

/// Numbers for [`Occupancy`] only; nothing is decided by them.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) own_mappings: usize,
    pub(crate) own_bytes: usize,
    /// Of every place that was not given back unused: what was retired is counted apart.
    pub(crate) code_bytes: usize,
    /// Texts ever published.
    pub(crate) texts: usize,
    packs: usize,
    /// Places taken and not given back unused.
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

    /// A number for the place of a text, where places are random.
    #[inline]
    pub(crate) fn random(&self) -> Option<u32> {
        // Relaxed: each call gets a number of its own, and that is all. The steps and the mixing are those of
        // SplitMix64 (Steele, Lea and Flood, 2014).
        let step = self.random.as_ref()?.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (step ^ step >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((mixed >> 32) as u32)
    }

    /// Gets memory for a run of `chunks`: more of a pack that has some to come, or another pack. When `growth` is
    /// let go of, [`consider_promotions`](Self::consider_promotions).
    pub(crate) fn grow(&self, growth: &Growth<'_>, chunks: u32) -> Result<(), Error> {
        let wanted = chunks.min(PACK_CHUNKS) as usize * CHUNK_BYTES;
        let Some((slot, to)) = self.lock_state().pack_with_room(wanted) else {
            return self.add_pack(growth, wanted);
        };
        self.populate(growth, slot, to)
    }

    /// Gets memory for the pack in `slot`, up to `to` bytes from its beginning. All or nothing.
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
        let first = if self.permanent { PACK_BYTES } else { next_step(0, wanted) };
        let Mapped { slot, pack, reused } = self.map(growth, PACK_BYTES, first)?;
        self.lock_state().adopt(slot, pack, reused);
        Ok(())
    }

    /// Maps `len` bytes, with memory for the first `populate`, in the first slots that have room (in any, where places
    /// are random), and leaves these busy.
    pub(crate) fn map(&self, growth: &Growth<'_>, len: usize, populate: usize) -> Result<Mapped, Error> {
        let populate = populate.next_multiple_of(rustix::param::page_size());
        let (slot, reused) = match self.claim_slots(len, populate) {
            // The reserve may be what is in the way, or what could not be returned before.
            Err(_) if self.make_way(growth) => self.claim_slots(len, populate)?,
            result => result?,
        };
        let place = self.reservation.slots().start + slot * PACK_BYTES;
        // Own pages go with their text, in every arena.
        let kind = Kind { permanent: self.permanent && len <= PACK_BYTES, ..self.kind };
        // SAFETY: the slots were free and are now ours.
        let result = unsafe { Pack::new(&kind, place, len, populate) };
        let mut state = self.lock_state();
        match &result {
            // Where memory cannot be had in steps it is all there at once.
            Ok(pack) => state.mapped += pack.populated() - populate,
            Err(_) => state.give_back(slot, len, populate),
        }
        drop(state);
        Ok(Mapped { slot, pack: result?, reused })
    }

    /// Returns everything to the system that can be. Whether that was anything.
    fn make_way(&self, growth: &Growth<'_>) -> bool {
        let stuck = self.unmap_stuck(growth);
        stuck | (!self.permanent && self.trim(growth, 0))
    }

    /// Finds room for `len` bytes; also tells whether some of it was mapped before.
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
            let State { chunks, slots, .. } = &mut *state;
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
            let pack = Arc::into_inner(pack).unwrap_or_else(|| unreachable!("whoever shares a pack pins it"));
            if let Err(pack) = self.unmap(growth, slot, pack) {
                // The system would not (too many mappings): keep it then, it is as good as ever.
                let mut state = self.lock_state();
                let kept = state.adopt(slot, pack, true);
                kept.promotion = promotion;
                return any;
            }
            any = true;
        }
    }

    /// Tries again what the system would not unmap before. Whether any of it went.
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
        // SAFETY: no chunk of it is taken, or its only text is gone and the grace period over.
        unsafe { pack.unmap() }?;
        self.lock_state().give_back(slot, len, populated);
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.domain.is_original() && !self.forget_packs() {
            // Another thread of the parent was changing them when the child was made. They stay.
            return;
        }
        // The executable views go with the reservation; so nothing needs to be mapped over them.
        // SAFETY: dropped here only, and not used any more.
        unsafe {
            ManuallyDrop::drop(&mut self.retirement);
            ManuallyDrop::drop(&mut self.state);
        }
    }
}

impl Shared {
    /// In a forked child, where the addresses of the parent's aliases may be somebody else's. `false` where the books
    /// may be half written.
    fn forget_packs(&mut self) -> bool {
        let Some(retired) = self.retirement.take_all() else { return false };
        let Ok(mut state) = self.state.try_lock() else { return false };
        for slot in state.slots.drain(..) {
            if let Slot::Pack(PackSlot { pack, .. }) = slot {
                // A thread of the parent may share it; in this process there is only ours.
                let _ = Arc::into_inner(pack).map(Pack::forget);
            }
        }
        state.stuck.drain(..).for_each(Pack::forget);
        for retired in retired {
            if let Memory::Own { pack, .. } = retired.memory {
                pack.forget();
            }
        }
        true
    }
}

impl State {
    /// Takes a new pack into its slot, which is the caller's, with all its memory free.
    fn adopt(&mut self, slot: usize, pack: Pack, reused: bool) -> &mut PackSlot {
        let free = (pack.populated() / CHUNK_BYTES) as u32;
        let beyond = self.chunks.add_region(slot as u32 * PACK_CHUNKS, free, PACK_CHUNKS, reused);
        self.counts.packs += 1;
        let writer = pack.writer();
        let (pack, promotion) = (Arc::new(pack), Promotion::NotYet);
        let pack = PackSlot { pack, writer, beyond, promotion, pinned: false };
        self.slots[slot] = Slot::Pack(pack);
        match &mut self.slots[slot] {
            Slot::Pack(pack) => pack,
            _ => unreachable!("it was stored on the line before"),
        }
    }

    /// A pack that can have memory for `wanted` bytes in a row by growing, and to how many bytes it should.
    fn pack_with_room(&self, wanted: usize) -> Option<(usize, usize)> {
        self.slots.iter().enumerate().find_map(|(number, slot)| {
            let Slot::Pack(PackSlot { pack, beyond: Some(beyond), pinned: false, .. }) = slot else {
                return None;
            };
            let tail = self.chunks.free_before(beyond) as usize * CHUNK_BYTES;
            let more = wanted.saturating_sub(tail).max(1);
            let populated = pack.populated();
            (populated + more <= PACK_BYTES).then(|| (number, next_step(populated, more)))
        })
    }

    fn free_slots(&self, count: usize, random: Option<u32>) -> Option<usize> {
        let is_free = |slot: &Slot| matches!(slot, Slot::Free);
        let fits = |&(_, slots): &(usize, &[Slot])| slots.iter().all(is_free);
        let mut places = self.slots.windows(count).enumerate().filter(fits).map(|(place, _)| place);
        match random {
            None => places.next(),
            Some(random) => {
                let places: Vec<usize> = places.collect();
                places.get(random as usize % places.len().max(1)).copied()
            }
        }
    }

    fn give_back(&mut self, slot: usize, len: usize, populated: usize) {
        self.slots[slot..slot + len.div_ceil(PACK_BYTES)].fill_with(|| Slot::Free);
        self.mapped -= populated;
    }
}

/// How much memory a pack that has `populated` bytes should have for `more`: what fills up is given a thirty-second
/// of itself in advance, so that little is left over and the system is not asked for every page.
fn next_step(populated: usize, more: usize) -> usize {
    let step = more.max(STEP).max(populated / 32);
    (populated + step).next_multiple_of(rustix::param::page_size()).min(PACK_BYTES)
}

/// The beginning of the random places. Early at boot there may be no random numbers; the clock is better than none.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            now.tv_nsec as u64 ^ (now.tv_sec as u64) << 32
        }
    }
}
