//! The arena: one range, its packs, and who holds which chunks.
//!
//! The problem: hand out places for code in tens of nanoseconds from many threads, while now and then a pack must be
//! mapped or returned, which takes a hundred microseconds and more.
//!
//! Protocol, two locks:
//!
//! - `state` guards all bookkeeping. It is a leaf: under it there are no system calls and no other locks, so nothing
//!   ever waits long for it.
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
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem};

use crate::chunks::{Block, Chunks};
use crate::error::Error;
use crate::fork::Witness;
use crate::pack::Pack;
use crate::range::Reservation;
use crate::sync_core::SyncCore;
use crate::text::Draft;
use crate::{CHUNK_BYTES, Config, PACK_BYTES, arch, procfs};

const PACK_CHUNKS: u32 = (PACK_BYTES / CHUNK_BYTES) as u32;

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
            mapped: 0,
            counts: Counts::default(),
        };
        let shared = Shared {
            state: Mutex::new(state),
            growth: Mutex::new(()),
            limit,
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
            drafts: counts.drafts,
            texts: counts.texts,
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

/// How full an arena is, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// What the memory is made of.
    pub backing: Backing,
    /// Packs mapped.
    pub packs: usize,
    /// Packs with nothing in them: kept as reserve.
    pub empty_packs: usize,
    /// Texts and drafts longer than a pack, each with memory of its own.
    pub own_mappings: usize,
    /// Memory for code: the packs' and the own mappings' bytes. This is what [`Config::limit`] limits.
    pub mapped_bytes: usize,
    /// Chunks taken by drafts and texts in packs.
    pub chunks_used: usize,
    /// Chunks free in packs.
    pub chunks_free: usize,
    /// Chunks of retired texts that wait until they may be reused. Always 0 in this version, which reuses at once.
    pub chunks_waiting: usize,
    /// Bytes of the chunks taken, and of the own mappings.
    pub used_bytes: usize,
    /// Bytes asked for: what remains of `used_bytes` when the rounding is left out.
    pub code_bytes: usize,
    /// Drafts alive.
    pub drafts: usize,
    /// Texts alive.
    pub texts: usize,
    /// Bytes of the longest free run in the packs; far below the bytes free means fragmentation.
    pub largest_free_run: usize,
    /// Bytes of the range that the kernel maps by huge pages, by its own account in `/proc/self/smaps`. `None` where
    /// that cannot be read.
    pub huge_bytes: Option<u64>,
}

/// What code memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Sealed memory files, mapped twice: readable and executable in the range, writable elsewhere.
    #[default]
    SealedMemfd,
}

impl Backing {
    /// A short name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SealedMemfd => "memfd",
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of code memory that somebody owns. Dropping it gives them back.
pub(crate) struct Place {
    address: usize,
    writable: NonNull<u8>,
    /// Bytes asked for.
    len: usize,
    /// Whether other CPUs may have fetched from it before.
    reused: bool,
    /// Whether something else than traps was written.
    stage: Stage,
    /// Taken by `drop` alone.
    memory: Option<Memory>,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Draft,
    Text,
}

/// Where the bytes of a place come from.
enum Memory {
    Chunks(Block),
    Own { slot: usize, pack: Pack },
}

// SAFETY: the pointer is to bytes that the place alone owns; writing them takes `&mut self` or `self`.
unsafe impl Send for Place {}
// SAFETY: as above; through `&self` they are only read.
unsafe impl Sync for Place {}

impl Place {
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
        self.shared.lock_state().counts.finalize();
        self.stage = Stage::Text;
        // SAFETY: this place owns its bytes, nobody runs them yet, and `code` is as long.
        unsafe { self.writable.copy_from_nonoverlapping(NonNull::from(code).cast(), code.len()) };
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

    /// Finds a place, in a pack or of its own.
    fn take(shared: &Arc<Shared>, len: usize) -> Result<Self, Error> {
        let range = shared.reservation.slots().len();
        match len {
            _ if !shared.witness.is_original() => Err(Error::Forked),
            0 => Err(Error::Empty),
            _ if len > range => Err(Error::TooLong { len, range, max: arch::MAX_RANGE }),
            _ if len > PACK_BYTES => Self::take_own(shared, len),
            _ => Self::take_chunks(shared, len),
        }
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
        let writable = pack.writable_at(address);
        state.counts.begin(len);
        Some(Self {
            address,
            writable,
            len,
            reused: found.reused,
            stage: Stage::Draft,
            memory: Some(Memory::Chunks(found.block)),
            shared: Arc::clone(shared),
        })
    }

    fn take_own(shared: &Arc<Shared>, len: usize) -> Result<Self, Error> {
        let (slot, pack) = shared.map(&shared.lock_growth(), len)?;
        let mut state = shared.lock_state();
        state.slots[slot] = Slot::Own;
        state.counts.begin(len);
        state.counts.own_mappings += 1;
        state.counts.own_bytes += pack.executable().len();
        let address = pack.executable().start;
        Ok(Self {
            address,
            writable: pack.writable_at(address),
            len,
            // The memory is new, the addresses need not be: a long text may have been here before.
            reused: true,
            stage: Stage::Draft,
            memory: Some(Memory::Own { slot, pack }),
            shared: Arc::clone(shared),
        })
    }

    fn publish(&self) {
        // SAFETY: the two views of our own bytes; `room` is within the chunks or the mapping.
        unsafe { arch::publish(self.writable.as_ptr(), ptr::without_provenance(self.address), self.room()) };
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
            // Also for memory that is about to be unmapped: that can fail.
            // SAFETY: our own bytes; whoever could run them has promised to keep us alive while doing so.
            unsafe { arch::fill_with_traps(self.writable.as_ptr(), self.room()) };
            self.publish();
        }
        match memory {
            Memory::Chunks(block) => {
                let mut state = self.shared.lock_state();
                state.counts.end(self.stage, self.len);
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
                state.counts.end(self.stage, self.len);
                state.counts.own_mappings -= 1;
                state.counts.own_bytes -= pack.executable().len();
                state.slots[slot] = Slot::Busy;
                drop(state);
                // When it cannot be unmapped its slots stay busy for good, full of traps.
                if let Err(pack) = self.shared.unmap(&growth, slot, pack) {
                    mem::forget(pack);
                }
            }
        }
    }
}

/// What all handles, drafts and texts of an arena share.
struct Shared {
    state: Mutex<State>,
    growth: Mutex<()>,
    limit: usize,
    sync_core: SyncCore,
    witness: Witness,
    /// Dropped last: everything else is mapped inside.
    reservation: Reservation,
}

/// Shows that `growth` is held.
type Growth<'a> = MutexGuard<'a, ()>;

struct State {
    chunks: Chunks,
    slots: Vec<Slot>,
    mapped: usize,
    counts: Counts,
}

enum Slot {
    Free,
    Busy,
    Pack(Pack),
    Own,
}

/// Numbers for [`Occupancy`] only; nothing is decided by them.
#[derive(Default)]
struct Counts {
    packs: usize,
    own_mappings: usize,
    own_bytes: usize,
    code_bytes: usize,
    drafts: usize,
    texts: usize,
}

impl Counts {
    fn begin(&mut self, len: usize) {
        self.drafts += 1;
        self.code_bytes += len;
    }

    fn finalize(&mut self) {
        self.drafts -= 1;
        self.texts += 1;
    }

    fn end(&mut self, stage: Stage, len: usize) {
        match stage {
            Stage::Draft => self.drafts -= 1,
            Stage::Text => self.texts -= 1,
        }
        self.code_bytes -= len;
    }
}

impl Shared {
    /// Nothing panics under the locks but broken invariants, which a second panic would only hide.
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_growth(&self) -> Growth<'_> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_pack(&self, growth: &Growth<'_>) -> Result<(), Error> {
        let (slot, pack) = self.map(growth, PACK_BYTES)?;
        let mut state = self.lock_state();
        state.slots[slot] = Slot::Pack(pack);
        state.chunks.add_region(slot as u32 * PACK_CHUNKS, PACK_CHUNKS);
        state.counts.packs += 1;
        Ok(())
    }

    /// Maps `len` bytes in the first slots that have room, and leaves these busy.
    fn map(&self, growth: &Growth<'_>, len: usize) -> Result<(usize, Pack), Error> {
        let wanted = len.next_multiple_of(rustix::param::page_size());
        let slot = match self.claim_slots(len, wanted) {
            // The reserve may be what is in the way.
            Err(_) if self.trim(growth, 0) => self.claim_slots(len, wanted)?,
            result => result?,
        };
        let place = self.reservation.slots().start + slot * PACK_BYTES;
        // SAFETY: the slots were free and are now ours.
        let result = unsafe { Pack::new(place, len) };
        if result.is_err() {
            self.lock_state().give_back(slot, wanted);
        }
        Ok((slot, result?))
    }

    fn claim_slots(&self, len: usize, wanted: usize) -> Result<usize, Error> {
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
        Ok(slot)
    }

    /// Returns empty packs to the system until at most `keep` are left. Whether any was returned.
    fn trim(&self, growth: &Growth<'_>, keep: u32) -> bool {
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
                state.chunks.add_region(start, PACK_CHUNKS);
                state.counts.packs += 1;
                return any;
            }
            any = true;
        }
    }

    /// Unmaps a pack whose slots are busy, and frees the slots.
    fn unmap(&self, _: &Growth<'_>, slot: usize, pack: Pack) -> Result<(), Pack> {
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

fn chunks_for(len: usize) -> u32 {
    len.div_ceil(CHUNK_BYTES) as u32
}
