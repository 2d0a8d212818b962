//! The arena: one range, its packs, and the owners of the chunks in them.
//!
//! The problem: allocate memory for code in tens of nanoseconds from many threads, although mapping or returning a
//! pack, which is needed now and then, takes up to a millisecond.
//!
//! Protocol, two locks (and three more that are never taken while one of these is held: two in `reclaim.rs`, and
//! `poking`, in `poke.rs`):
//!
//! - `state` guards all bookkeeping. It is a leaf: no other lock is taken and no memory is mapped under it (except to
//!   grow a table), so no thread waits long for it.
//! - `growth` is held around the system calls that map or unmap memory, and taken before `state`. A thread that finds
//!   no room takes it and searches again. So threads that run out of room together map one pack, and a limit is not
//!   reported while a pack is being returned.
//!
//! A slot of the range is `Free`, or `Busy` while the holder of `growth` maps or unmaps it, or belongs to a pack:
//!
//! ```text
//!    Free ──(growth: map)──> Busy ──> Pack    a pack of chunks, with memory for the first of them
//!      ^                      │ └───> Own     first slot of a long text's own memory; the text has the pack
//!      └──(growth: unmap)─────┘       Busy    its further slots
//! ```
//!
//! `growth.rs` populates and returns slots, `promote.rs` makes huge pages, `reclaim.rs` frees dropped texts.
//!
//! Invariants: `mapped` counts the populated bytes; the allocator has one region for each `Pack` slot and no other,
//! and every chunk that it calls free is populated; at most one pack is empty, except between a `free` and the
//! `trim` that follows it; a pinned pack is not unmapped.
//!
//! What would break it: touching a pack's memory through anything but a [`Place`](crate::place::Place), which owns
//! its bytes, or a poke, which borrows the text.

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
use crate::place::{Place, Storage};
use crate::range::Reservation;
use crate::reclaim::{Retirement, Total};
use crate::seen::{Missed, Seen};
use crate::sync_core::SyncCore;
use crate::text::Draft;
use crate::{CHUNK_BYTES, Config, PACK_BYTES, arch, procfs};

pub(crate) const PACK_CHUNKS: u32 = (PACK_BYTES / CHUNK_BYTES) as u32;

/// Code memory of one runtime: a reserved range of addresses and the packs in it.
///
/// A clone is another handle to the same arena. Drafts and texts keep their arena alive; its memory and addresses
/// return to the system with the last handle, draft or text.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

impl Arena {
    /// Reserves the range and maps the first pack, so that a system that forbids code memory is detected here.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] if the configuration has no room for one pack, [`Error::System`] and [`Error::NoBacking`]
    /// if the system refuses a call; their texts say what to change. [`Error::Readers`] if no domain can be made.
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
        let mut state = ArenaState {
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

    /// Reserves `len` bytes at a fixed address for code that is to be written.
    ///
    /// The address is a multiple of 32 bytes ([`CHUNK_BYTES`]); a text longer than a pack gets whole pages of its
    /// own.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] for 0 bytes, [`Error::TooLong`] for more than the range holds, [`Error::RangeFull`] and
    /// [`Error::Limit`] if there is no room now, [`Error::Waiting`] if too many retired bytes wait for readers,
    /// [`Error::System`] if the system has no memory, [`Error::Forked`] in a forked child.
    pub fn draft(&self, len: usize) -> Result<Draft, Error> {
        self.draft_aligned(len, CHUNK_BYTES)
    }

    /// As [`draft`](Self::draft), at an address that is a multiple of `align` bytes, such as a cache line for
    /// aligned loops.
    ///
    /// # Errors
    ///
    /// As [`draft`](Self::draft); [`Error::Alignment`] if `align` is not a power of two or exceeds a page.
    pub fn draft_aligned(&self, len: usize, align: usize) -> Result<Draft, Error> {
        Ok(Draft::new(Place::take(&self.shared, len, align)?))
    }

    /// The domain of this arena's readers: a thread that may run a text while its handle is dropped must be in a
    /// section.
    pub fn domain(&self) -> &Domain {
        &self.shared.domain
    }

    /// Waits until every text retired before the call is free again, except those whose memory the system refuses to
    /// write.
    ///
    /// Only tests, measurements and hosts that want to see memory go down need this.
    ///
    /// # Errors
    ///
    /// [`Error::Readers`] if this thread is in a read section, where it would wait for itself, and in a forked
    /// child.
    pub fn flush(&self) -> Result<(), Error> {
        self.shared.domain.synchronize_expedited(Grace::Both)?;
        self.shared.reclaim_passed();
        // The keeper may be reclaiming a batch.
        self.shared.domain.barrier()?;
        Ok(())
    }

    /// The arena's fill level. Reads `/proc/self/smaps`, which takes about a millisecond.
    ///
    /// In a forked child, which owns none of the memory, all counts are zero.
    pub fn occupancy(&self) -> Occupancy {
        let mut occupancy = Occupancy { backing: self.shared.kind.medium, ..Occupancy::default() };
        if !self.shared.domain.is_original() {
            return occupancy;
        }
        occupancy.landing_pads = self.shared.kind.landing_pads != 0;
        // Read the retired count first: read later, it could exceed the published count.
        let Total { texts: retired, code_bytes: retired_bytes } = self.shared.retirement.total();
        occupancy.waiting_bytes = self.shared.retirement.bytes();
        let (waiting, nothing_is_freed) = self.shared.retirement.addresses();
        let state = self.shared.lock_state();
        let ArenaState { chunks, counts, .. } = &*state;
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

    /// The state of every byte of the packs, in order of address within each pack, without texts that have memory of
    /// their own. Empty in a forked child, which owns none of the memory.
    pub fn map(&self) -> Vec<Span> {
        if !self.shared.domain.is_original() {
            return Vec::new();
        }
        let (waiting, nothing_is_freed) = self.shared.retirement.addresses();
        let state = self.shared.lock_state();
        let span = |(chunk, count, run): (u32, u32, chunks::RunState)| {
            let address = self.address(chunk);
            let what = match run {
                _ if waiting.binary_search(&address).is_ok() => SpanState::Waiting,
                chunks::RunState::Free => SpanState::Free,
                chunks::RunState::Draft => SpanState::Draft,
                chunks::RunState::Text => SpanState::Text,
                chunks::RunState::Beyond | chunks::RunState::Vacant => SpanState::NoMemory,
            };
            Span { address, len: count as usize * CHUNK_BYTES, state: what }
        };
        let mut spans: Vec<Span> = state.chunks.runs().map(span).collect();
        drop(state);
        drop(nothing_is_freed);
        spans.sort_by_key(|span| span.address);
        spans
    }

    /// Makes huge pages of all packs on this thread, regardless of their fill level: takes milliseconds, and up to 2
    /// MiB of memory for each pack. The keeper promotes packs that hold enough code by itself
    /// ([`Config::promote_at`]). Returns how many packs are huge pages.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with the first refusal of the system; that pack then has all its memory, on base pages, and
    /// the other packs have been tried. [`Error::Limit`] if the memory would exceed the limit; [`Error::Forked`] in
    /// a forked child.
    pub fn promote(&self) -> Result<usize, Error> {
        if !self.shared.domain.is_original() {
            return Err(Error::Forked);
        }
        self.shared.promote_all()
    }

    /// Whether a profiler or debugger is to receive the texts' [names](Draft::set_name). If not, names are not
    /// needed.
    pub fn is_seen(&self) -> bool {
        self.shared.seen.is_on()
    }

    /// The files for profilers that lack texts because a write failed. Empty if there are none, and in a forked
    /// child.
    pub fn missed(&self) -> Vec<Missed> {
        if !self.shared.domain.is_original() {
            return Vec::new();
        }
        self.shared.seen.missed()
    }

    /// The reserved range of addresses, which contains all code of this arena.
    pub fn range(&self) -> Range<usize> {
        self.shared.reservation.slots().clone()
    }

    /// Whether direct branches reach from anywhere in the range to `address`, and back.
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

/// The state that all handles, drafts and texts of an arena share.
pub(crate) struct Shared {
    state: ManuallyDrop<Mutex<ArenaState>>,
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
    /// The state of the random number generator, if texts are placed at random.
    random: Option<AtomicU64>,
    pub(crate) kind: Kind,
    /// Whether the texts that this crate writes begin with a landing pad, enforced or not.
    pub(crate) landing_pads: bool,
    /// Why a better backing was not used.
    refused: Option<String>,
    pub(crate) sync_core: SyncCore,
    pub(crate) seen: Seen,
    pub(crate) domain: Domain,
    /// Dropped last: everything else is mapped in it.
    pub(crate) reservation: Reservation,
}

/// Proof that `growth` is held.
pub(crate) type Growth<'a> = MutexGuard<'a, ()>;

pub(crate) struct ArenaState {
    pub(crate) chunks: Chunks,
    pub(crate) slots: Vec<Slot>,
    pub(crate) counts: Counts,
    /// Memory of long texts that the system would not unmap.
    pub(crate) stuck: Vec<Pack>,
    pub(crate) mapped: usize,
    /// How often chunks or slots were freed: a thread that found no room searches again if this has changed.
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
    /// The pack's writer, copied here so that a new place can have it without a look-up.
    pub(crate) writer: Writer,
    /// The chunks that are not populated yet.
    pub(crate) beyond: Option<Block>,
    pub(crate) promotion: Promotion,
    /// Whether a thread works on the pack without holding a lock.
    pub(crate) pinned: bool,
}

/// Progress of a pack towards being a huge page.
pub(crate) enum Promotion {
    NotYet,
    /// The keeper was woken for it.
    Asked,
    Huge,
    Refused {
        why: String,
        /// How many more times the kernel may be asked.
        again: u32,
    },
}

/// Numbers for [`Occupancy`] only; no decision depends on them.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) own_mappings: usize,
    pub(crate) own_bytes: usize,
    /// Of every place except those dropped unused; retired places are counted separately.
    pub(crate) code_bytes: usize,
    /// Texts ever published.
    pub(crate) texts: usize,
    pub(crate) packs: usize,
    /// Places taken, except those dropped unused.
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
    /// Code under these locks panics only on a broken invariant, and a second panic would hide the first.
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_growth(&self) -> Growth<'_> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A random number for the place of a text, if places are random.
    #[inline]
    pub(crate) fn random(&self) -> Option<u32> {
        // Relaxed: each call only needs a number of its own. Increment and mixing are those of SplitMix64 (Steele,
        // Lea and Flood, 2014).
        let step = self.random.as_ref()?.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (step ^ step >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((mixed >> 32) as u32)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.domain.is_original() && !self.forget_packs() {
            // Another thread of the parent held the lock at the fork, so the data may be half written. It is leaked.
            return;
        }
        // The executable views are unmapped with the reservation, so their places need no new mapping.
        // SAFETY: dropped only here, and not used afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.retirement);
            ManuallyDrop::drop(&mut self.state);
        }
    }
}

impl Shared {
    /// Forgets, in a forked child, the parent's aliases, whose addresses may have another use here. `false` if the
    /// fork interrupted a thread that held the lock, so the bookkeeping may be half written.
    fn forget_packs(&mut self) -> bool {
        let Some(retired) = self.retirement.take_all() else { return false };
        let Ok(mut state) = self.state.try_lock() else { return false };
        for slot in state.slots.drain(..) {
            if let Slot::Pack(PackSlot { pack, .. }) = slot {
                // A thread of the parent may share it; this process has only this handle.
                let _ = Arc::into_inner(pack).map(Pack::forget);
            }
        }
        state.stuck.drain(..).for_each(Pack::forget);
        for retired in retired {
            if let Storage::Own { pack, .. } = retired.memory {
                pack.forget();
            }
        }
        true
    }
}

/// The seed of the random places. Early at boot random numbers may be missing; then the clock is the seed.
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
