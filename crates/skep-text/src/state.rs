//! The bookkeeping of an arena: its slots, the packs in them, and their chunks. One lock guards all of it.
//!
//! A slot of the range is `Free`, or `Busy` while the holder of `growth` maps or unmaps it, or belongs to a pack:
//!
//! ```text
//!    Free ──(growth: map)──> Busy ──> Pack    a pack of chunks, with memory for the first of them
//!      ^                      │ └───> Own     first slot of a long text's own memory; the text has the pack
//!      └──(growth: unmap)─────┘       Busy    its further slots
//! ```
//!
//! Invariants: `mapped` counts the populated bytes; the allocator has one region for each `Pack` slot and no other,
//! and every chunk that it calls free is populated; at most one pack is empty, except between a `free` and the
//! `trim` that follows it; a pinned pack is not unmapped.

use std::sync::Arc;

use rustix::param::page_size;

use crate::chunks::{Block, Chunks};
use crate::pack::{Pack, Writer};
use crate::sizes::{CHUNK_BYTES, PACK_BYTES, PACK_CHUNKS, STEP};

/// What the lock of an arena guards.
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

/// What a slot of the range holds.
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

/// Numbers for [`Occupancy`](crate::Occupancy) only; no decision depends on them.
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
    pub(crate) places: usize,
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

impl ArenaState {
    /// The state of a range of `slots`, with a pack in the first one.
    pub(crate) fn new(slots: usize, pack: Pack) -> Self {
        let mut state = Self {
            chunks: Chunks::new(),
            slots: (0..slots).map(|_| Slot::Free).collect(),
            counts: Counts::default(),
            stuck: Vec::new(),
            mapped: pack.populated(),
            returned: 0,
            fresh: 1,
        };
        state.adopt(0, pack, false);
        state
    }

    /// Puts a new pack into its slot, which belongs to the caller, with all its populated memory free.
    pub(crate) fn adopt(&mut self, slot: usize, pack: Pack, reused: bool) -> &mut PackSlot {
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

    /// Finds a pack that can grow to have `wanted` contiguous bytes, and the size it must grow to.
    pub(crate) fn pack_with_room(&self, wanted: usize, limit: usize) -> Option<(usize, usize)> {
        let room = limit.saturating_sub(self.mapped);
        self.slots.iter().enumerate().find_map(|(number, slot)| {
            let Slot::Pack(PackSlot { pack, beyond: Some(beyond), pinned: false, .. }) = slot else {
                return None;
            };
            let tail = self.chunks.free_before(beyond) as usize * CHUNK_BYTES;
            let more = wanted.saturating_sub(tail).max(1);
            let populated = pack.populated();
            (populated + more <= PACK_BYTES).then(|| (number, next_step(populated, more, room)))
        })
    }

    /// The first of `count` free slots in a row; with `random`, of any such row.
    pub(crate) fn free_slots(&self, count: usize, random: Option<u32>) -> Option<usize> {
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

    /// Frees the slots of `len` bytes; `populated` of these bytes had memory.
    pub(crate) fn give_back(&mut self, slot: usize, len: usize, populated: usize) {
        self.slots[slot..slot + len.div_ceil(PACK_BYTES)].fill_with(|| Slot::Free);
        self.mapped -= populated;
        self.returned += 1;
    }
}

/// How much memory a pack with `populated` bytes should have to get `more`: it grows by a thirty-second of itself in
/// advance, so that little memory is unused and not every page needs a system call; less if only `room` is left.
pub(crate) fn next_step(populated: usize, more: usize, room: usize) -> usize {
    let step = more.max(STEP).max(populated / 32).min(room / page_size() * page_size());
    (populated + step.max(more)).next_multiple_of(page_size()).min(PACK_BYTES)
}
