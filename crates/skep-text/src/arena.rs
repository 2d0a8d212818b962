//! The handle of an arena: what hosts do with all of its memory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use skep_rcu::{Domain, Grace};

use crate::arch;
use crate::chunks;
use crate::config::Config;
use crate::error::Error;
use crate::occupancy::{Occupancy, Span, SpanState};
use crate::place::Place;
use crate::procfs;
use crate::retirement::Total;
use crate::seen::Missed;
use crate::shared::Shared;
use crate::sizes::CHUNK_BYTES;
use crate::state::{ArenaState, Promotion, Slot};
use crate::text::Draft;

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
        let shared = Arc::new(Shared::new(&config)?);
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

    /// Frees the retired texts that no reader can run any more, now rather than when the keeper does. Returns once
    /// those whose readers had left before the call are free. Never waits for readers.
    pub fn reclaim(&self) {
        if self.shared.domain.is_original() {
            self.shared.reclaim_thoroughly();
        }
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
