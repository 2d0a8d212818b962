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
//! How slots come by memory and lose it is in `growth.rs`, how packs become huge pages in `promote.rs`, what becomes of
//! dropped texts in `reclaim.rs`.
//!
//! Invariants: `mapped` counts the bytes that there is memory for; the allocator has a region for each `Pack` slot and
//! no other, and what it calls free has memory behind it; at most one pack is empty, except between a `free` and the
//! `trim` that follows it; a pinned pack is not unmapped.
//!
//! What would break it: touching a pack's memory through anything but a [`Place`](crate::place::Place), which owns its
//! bytes, or a poke, which has the text.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_rcu::{Domain, Grace};

use crate::chunks::{self, Block, Chunks};
use crate::config::DEFAULT_READERS;
use crate::error::Error;
use crate::fault::Faults;
use crate::growth::STEP;
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
            returned: 0,
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
            landing_pads: config.landing_pads,
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
        occupancy.landing_pads = self.shared.kind.landing_pads != 0;
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
        let last = range.end - arch::NOP.len();
        address.abs_diff(range.start).max(address.abs_diff(last)) <= arch::REACH
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
    pub(crate) limit: usize,
    pub(crate) max_waiting: usize,
    pub(crate) promote_at: usize,
    pub(crate) permanent: bool,
    /// Dropped before the addresses go back to the system.
    pub(crate) faults: Arc<Faults>,
    /// The state of the generator, where texts are to lie at random.
    random: Option<AtomicU64>,
    pub(crate) kind: Kind,
    /// Whether texts that this crate writes begin with one, checked or not.
    pub(crate) landing_pads: bool,
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
    pub(crate) mapped: usize,
    /// How often chunks or slots were given back: who found no room looks again when that was not the last word.
    pub(crate) returned: u64,
    /// Slots from this one on have never been mapped.
    pub(crate) fresh: usize,
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
    pub(crate) packs: usize,
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
