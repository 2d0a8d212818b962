//! The readers: one record for each slot, one epoch for all, and the scan that compares them.
//!
//! ```text
//!   epoch ──> 7        cookie = ++epoch: everything unlinked before is unreachable for readers of an epoch >= cookie
//!   record 0: [ normal 6 | sleepable 0 ]   inside since epoch 6: blocks cookies 7 and later
//!   record 1: [ normal 0 | sleepable 7 ]   inside a sleepable section: blocks sleepable cookies 8 and later
//!   record 2: [ normal 0 | sleepable 0 ]   outside: a quiescent state
//!   completed: normal 6, sleepable 7       what a scan of this picture may publish
//! ```
//!
//! **Reader.** The outermost entry loads the epoch, stores it in its record, and executes the light half of the fence
//! (`barrier.rs`); the last leave stores 0. Nested entries only count: the word keeps the oldest epoch, because an
//! object that the outermost section found may be in use until its end.
//!
//! **Updater.** Unlinks, then takes a cookie by incrementing the epoch. Every cookie is a grace period of its own;
//! any number may be waiting; no thread has to start or end one.
//!
//! **Scan.** Reads the epoch, executes the heavy half of the fence, then reads all words. A cookie has passed if it
//! is at most the epoch read *before* the fence, and at most every word that is not 0:
//!
//! - a reader whose word is 0 has left, or its store is not visible yet; then its own fence comes after the scan's,
//!   and it finds nothing that was unlinked before the scan's fence;
//! - a reader whose word is at least the cookie read the epoch, with Acquire, after the cookie had been taken, and so
//!   sees what was unlinked before the cookie;
//! - an unlinking thread's cookie is part of the release sequence that the scan's first load reads from.
//!
//! What would break it: a nested entry that stores a newer epoch; an epoch ahead of the real one; a cookie taken
//! before the unlinking; cookies that each thread counts for itself; the epoch read after the fence.
//! `readers/models.rs` has a must-fail model of each.

use crate::barrier::Barrier;
use crate::bitmap::Bitmap;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
use crate::turns::Turns;

/// Index of the normal flavour in arrays with one element for each flavour.
pub(crate) const NORMAL: usize = 0;
/// Index of the sleepable flavour.
pub(crate) const SLEEPABLE: usize = 1;
/// The number of flavours.
pub(crate) const FLAVOURS: usize = 2;

/// Set in the record of a shared slot, and in one whose thread has ended while it had sections or readers: the last of
/// these gives the slot back. No count reaches this bit.
const ORPHAN: u64 = 1 << 63;

/// The epoch before the first cookie. Not 0, which marks a record that is outside.
const FIRST: u64 = 1;

/// Set in all epochs and cookies of a domain whose readers must fence, so that readers need no second load.
pub(crate) const FENCED: u64 = 1 << 63;

/// The state that all threads of a domain share.
pub(crate) struct Readers {
    /// In cache lines of its own: every outermost entry reads it.
    epoch: Padded<AtomicU64>,
    /// The largest cookie that has passed, for each flavour.
    completed: Padded<[AtomicU64; FLAVOURS]>,
    /// The largest cookie after which a heavy fence was executed.
    fenced: AtomicU64,
    /// Set when the last handle is gone: no thread is inside and none can enter.
    closed: AtomicBool,
    barrier: Barrier,
    slots: Bitmap,
    /// Slots below this number belong to a thread until it ends; the others for as long as it is inside.
    own: u32,
    turns: Turns,
    records: Box<[Record]>,
}

/// What one thread publishes about itself. Only the owner of the slot stores. All zeroes until the slot is first
/// claimed.
#[repr(align(128))] // two cache lines: neighbours are fetched in pairs
pub(crate) struct Record {
    /// For each flavour the epoch of the outermost section, or 0.
    words: [AtomicU64; FLAVOURS],
    /// For each flavour the number of nested sections; 0, or [`ORPHAN`] alone, while the word is 0.
    extra: [AtomicU64; FLAVOURS],
    /// The era that the owner has announced in its normal section: it holds objects that were born up to then. If it is
    /// older than the section, it is from an earlier one, and the owner holds nothing yet.
    announced: AtomicU64,
    /// The number of [`Reader`](crate::Reader)s that use the record.
    pins: AtomicU64,
    /// The `Readers` that the record is part of; null before the first claim.
    home: AtomicPtr<Readers>,
    number: AtomicU32,
}

#[repr(align(128))]
struct Padded<T>(T);

impl Readers {
    /// The last `shared` of `limit` slots are shared.
    pub(crate) fn new(limit: u32, shared: u32, barrier: Barrier) -> Self {
        let first = if barrier.readers_fence() { FENCED | FIRST } else { FIRST };
        Self {
            epoch: Padded(AtomicU64::new(first)),
            completed: Padded([AtomicU64::new(first), AtomicU64::new(first)]),
            fenced: AtomicU64::new(first),
            closed: AtomicBool::new(false),
            barrier,
            slots: Bitmap::new(limit),
            own: limit.saturating_sub(shared),
            turns: Turns::new(),
            records: records(limit as usize),
        }
    }

    pub(crate) fn slots(&self) -> &Bitmap {
        &self.slots
    }

    pub(crate) fn barrier(&self) -> Barrier {
        self.barrier
    }

    /// Claims the lowest free slot for the calling thread: one that it keeps or, if there is none, a shared one.
    pub(crate) fn claim(&self) -> Option<&Record> {
        if let Some(number) = self.slots.claim_in(0..self.own) {
            return Some(self.claimed(number));
        }
        let number = self.slots.claim_in(self.own..self.slots.limit())?;
        let record = self.claimed(number);
        // As if the thread had ended: the last section or reader gives the slot back.
        record.borrow();
        Some(record)
    }

    /// [`Readers::claim`], which waits until a slot is free. The caller has no slot in use, in any domain.
    pub(crate) fn claim_in_turn(&self) -> &Record {
        self.turns.wait(|| self.claim())
    }

    /// Whether threads share slots, so that waiting for one ends.
    pub(crate) fn has_shared(&self) -> bool {
        self.own < self.slots.limit()
    }

    fn claimed(&self, number: u32) -> &Record {
        let record = &self.records[number as usize];
        // Relaxed: only the owner reads them; the bitmap orders successive owners.
        record.home.store(std::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
        record.number.store(number, Ordering::Relaxed);
        record
    }

    /// The record of a slot that the caller owns.
    pub(crate) fn record(&self, number: u32) -> &Record {
        &self.records[number as usize]
    }

    /// Gives the slot back, unless its owner has a section or a reader. Only the owner calls it.
    pub(crate) fn give_back(&self, record: &Record) -> bool {
        let idle = !record.is_used();
        if idle {
            record.reset();
            self.slots.release(record.number());
            self.turns.give_back();
        }
        idle
    }

    /// Gives the slot back now, or makes its last section or reader do so. The owner calls it when it ends.
    pub(crate) fn abandon(&self, record: &Record) {
        if !self.give_back(record) {
            record.orphan();
        }
    }

    /// Enters with the caller's record.
    #[inline(always)]
    pub(crate) fn enter(&self, record: &Record, flavour: usize) {
        // Relaxed: only this thread stores to its word.
        if record.words[flavour].load(Ordering::Relaxed) == 0 {
            // Acquire pairs with the increments in `cookie`: this section cannot find what was unlinked before a
            // cookie no larger than this epoch.
            record.begin(flavour, self.epoch.0.load(Ordering::Acquire));
        } else {
            seldom();
            let extra = &record.extra[flavour];
            // Relaxed, both: only this thread uses it. A signal handler in between restores what it found.
            extra.store(extra.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Takes a cookie: everything that was unlinked before is unreachable once it has passed.
    pub(crate) fn cookie(&self) -> u64 {
        // SeqCst, though Release is enough: pairs with the Acquire loads in `enter` and `scan`. They see everything
        // before this increment and before all earlier ones, because all are links of one release sequence. At a
        // billion cookies a second it wraps after five centuries.
        self.epoch.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The current era: objects that are born after this call have this era or a later one.
    #[inline(always)]
    pub(crate) fn era(&self) -> u64 {
        // Acquire pairs with the increments in `cookie`, as in `enter`.
        self.epoch.0.load(Ordering::Acquire)
    }

    /// The era that the owner of a slot has announced in its current normal section, if any.
    #[inline(always)]
    pub(crate) fn announced_era(&self, number: u32) -> Option<u64> {
        self.record(number).announced_era()
    }

    /// The first record.
    #[cfg(not(loom))]
    pub(crate) fn records(&self) -> std::ptr::NonNull<Record> {
        std::ptr::NonNull::from(&*self.records).cast()
    }

    /// Announces the current era. The owner of the slot calls it inside a normal section, before it looks anything up.
    #[inline(always)]
    pub(crate) fn announce_era(&self, number: u32) {
        let era = self.era();
        // Release: pairs with the Acquire in `active_eras`, as the word of the section does.
        self.record(number).announced.store(era, Ordering::Release);
        // Pairs with the fence in `Barrier::heavy`: either the scan sees this store, or the look-up sees the unlinking.
        light(era);
    }

    /// Calls `each` with the epoch of the section and the announced era of every reader that may hold an object that it
    /// found in a normal section. Complete after a heavy fence; without one it is a hint.
    pub(crate) fn active_eras(&self, mut each: impl FnMut(u64, u64)) {
        for number in self.slots.taken() {
            let record = self.record(number);
            // Acquire, both: as in `oldest`. The section's word first: if the announced era is of a later section, the
            // result covers too much, not too little. An era before the section is of an earlier one and is ignored: a
            // reader announces before it looks anything up, and the fence orders that before the unlinking of what it
            // can find.
            let entered = record.words[NORMAL].load(Ordering::Acquire);
            let announced = record.announced.load(Ordering::Acquire);
            if entered != 0 && announced >= entered {
                each(entered, announced);
            }
        }
    }

    /// Whether a cookie is known to have passed for a flavour.
    pub(crate) fn passed(&self, cookie: u64, flavour: usize) -> bool {
        // Acquire pairs with the Release in `publish`: everything that readers did before they left happened before.
        self.completed.0[flavour].load(Ordering::Acquire) >= cookie
    }

    /// Scans all readers once and publishes what has passed. Returns whether that is more than before.
    pub(crate) fn scan(&self) -> Result<bool, i32> {
        // Acquire pairs with the increments in `cookie`: everything unlinked before those cookies is ordered before
        // the fence below. The load must precede the fence: a later cookie's unlinking may come after the fence.
        let now = self.epoch.0.load(Ordering::Acquire);
        if (0..FLAVOURS).all(|flavour| self.passed(now, flavour)) {
            return Ok(false);
        }
        self.fence_for(now)?;
        Ok(self.publish(self.oldest(now)))
    }

    /// Executes a heavy fence for all cookies so far.
    pub(crate) fn fence(&self) -> Result<(), i32> {
        self.fence_for(self.era())
    }

    /// The caller read `now` before, with Acquire.
    fn fence_for(&self, now: u64) -> Result<(), i32> {
        self.barrier.heavy()?;
        // Release: pairs with the Acquire in `fenced`. Fences may overlap; each raises the number only to what it has
        // fenced itself, and each is a link of the release sequence.
        self.fenced.fetch_max(now, Ordering::AcqRel);
        Ok(())
    }

    /// The largest cookie that a heavy fence has followed.
    pub(crate) fn fenced(&self) -> u64 {
        // Acquire: pairs with the Release in `fence_for`: what readers announced before that fence is visible.
        self.fenced.load(Ordering::Acquire)
    }

    /// Whether no reader is seen to block a cookie. Proves nothing, because there is no fence.
    pub(crate) fn may_pass(&self, cookie: u64, flavour: usize) -> bool {
        // Relaxed: a hint.
        let since = |number| self.record(number).words[flavour].load(Ordering::Relaxed);
        self.passed(cookie, flavour)
            || self.slots.taken().map(since).all(|since| since == 0 || since >= cookie)
    }

    /// For each flavour the largest cookie that no reader blocks, at most `now`.
    fn oldest(&self, now: u64) -> [u64; FLAVOURS] {
        let mut oldest = [now; FLAVOURS];
        for number in self.slots.taken() {
            let record = self.record(number);
            for (oldest, word) in oldest.iter_mut().zip(&record.words) {
                // Acquire pairs with the Release stores in `leave` and `begin`.
                let since = word.load(Ordering::Acquire);
                if since != 0 && since < *oldest {
                    *oldest = since;
                }
            }
        }
        oldest
    }

    fn publish(&self, passed: [u64; FLAVOURS]) -> bool {
        let mut news = false;
        for (completed, passed) in self.completed.0.iter().zip(passed) {
            // Release pairs with the Acquire in `passed`. Overlapping scans only raise the number, each to what it
            // has proved itself, and each is a link of the release sequence.
            news |= completed.fetch_max(passed, Ordering::AcqRel) < passed;
        }
        news
    }

    /// Notes that the last handle is gone.
    pub(crate) fn close(&self) {
        // Release pairs with the Acquire below: all sections ended before the handles that they borrowed.
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the last handle is gone: every grace period is over.
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire pairs with the Release above.
        self.closed.load(Ordering::Acquire)
    }

    /// The number of cookies so far.
    pub(crate) fn cookies(&self) -> u64 {
        // Relaxed: a statistic.
        (self.epoch.0.load(Ordering::Relaxed) & !FENCED) - FIRST
    }
}

impl Record {
    /// A record that belongs to no domain.
    #[cfg(not(loom))]
    pub(crate) const fn unclaimed() -> Self {
        Self {
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            extra: [AtomicU64::new(0), AtomicU64::new(0)],
            announced: AtomicU64::new(0),
            pins: AtomicU64::new(0),
            home: AtomicPtr::new(std::ptr::null_mut()),
            number: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn is_of(&self, readers: *const Readers) -> bool {
        // Relaxed: stored by this thread, or (null) never.
        std::ptr::eq(self.home.load(Ordering::Relaxed), readers)
    }

    /// The era that the owner has announced in its current normal section, if any.
    #[inline(always)]
    pub(crate) fn announced_era(&self) -> Option<u64> {
        // Relaxed, both: only the owner calls this.
        let announced = self.announced.load(Ordering::Relaxed);
        (announced >= self.words[NORMAL].load(Ordering::Relaxed)).then_some(announced)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        // Relaxed: only the owner calls this.
        self.number.load(Ordering::Relaxed)
    }

    /// The outermost entry of a flavour.
    #[inline(always)]
    fn begin(&self, flavour: usize, epoch: u64) {
        // Release, not Relaxed, pairs with the Acquire in `oldest`: a scan that reads this word did not read the 0 of
        // the section before, but must see the effects of that section too. It costs nothing on x86-64.
        self.words[flavour].store(epoch, Ordering::Release);
        light(epoch);
    }

    /// Leaves one section of a flavour, in any order. Returns whether a slot may have to be given back; then
    /// `before_idle` is called first.
    #[inline(always)]
    pub(crate) fn leave(&self, flavour: usize, before_idle: impl FnOnce()) -> bool {
        // Relaxed: only this thread uses it.
        let extra = self.extra[flavour].load(Ordering::Relaxed);
        if extra == 0 {
            // Release pairs with the Acquire in `oldest`: a scan that sees the 0 sees everything done in the section.
            self.words[flavour].store(0, Ordering::Release);
            return false;
        }
        seldom();
        self.leave_nested(flavour, extra, before_idle)
    }

    #[inline(always)]
    fn leave_nested(&self, flavour: usize, extra: u64, before_idle: impl FnOnce()) -> bool {
        if extra != ORPHAN {
            self.extra[flavour].store(extra - 1, Ordering::Relaxed);
            return false;
        }
        before_idle();
        // The bit stays: the thread may enter again while it is inside of the other flavour.
        // Release: as in `leave`.
        self.words[flavour].store(0, Ordering::Release);
        true
    }

    /// Counts one more reader that uses the record.
    pub(crate) fn pin(&self) {
        // Relaxed, as below: only this thread uses it.
        self.pins.store(self.pins.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts one reader less. Returns whether a slot may have to be given back; then `before_idle` is called first.
    pub(crate) fn unpin(&self, before_idle: impl FnOnce()) -> bool {
        let pins = self.pins.load(Ordering::Relaxed) - 1;
        let may_be_idle = pins == ORPHAN;
        if may_be_idle {
            before_idle();
        }
        self.pins.store(pins, Ordering::Relaxed);
        may_be_idle
    }

    /// Whether the owner is inside a section of the flavour.
    pub(crate) fn is_inside(&self, flavour: usize) -> bool {
        // Relaxed: only the owner calls this.
        self.words[flavour].load(Ordering::Relaxed) != 0
    }

    /// Whether the owner has a section or a reader.
    pub(crate) fn is_used(&self) -> bool {
        self.pins.load(Ordering::Relaxed) & !ORPHAN != 0
            || (0..FLAVOURS).any(|flavour| self.is_inside(flavour))
    }

    /// Makes the last section or reader give the slot back. The owner calls it before it enters.
    fn borrow(&self) {
        // Relaxed, as below: only this thread uses these.
        self.pins.store(ORPHAN, Ordering::Relaxed);
        for extra in &self.extra {
            extra.store(ORPHAN, Ordering::Relaxed);
        }
    }

    /// Forgets what [`Record::borrow`] and [`Record::orphan`] noted, for the next owner.
    fn reset(&self) {
        self.pins.store(0, Ordering::Relaxed);
        for extra in &self.extra {
            extra.store(0, Ordering::Relaxed);
        }
    }

    fn orphan(&self) {
        // Relaxed: only this thread uses these.
        self.pins.store(self.pins.load(Ordering::Relaxed) | ORPHAN, Ordering::Relaxed);
        for flavour in (0..FLAVOURS).filter(|flavour| self.is_inside(*flavour)) {
            let extra = &self.extra[flavour];
            extra.store(extra.load(Ordering::Relaxed) | ORPHAN, Ordering::Relaxed);
        }
    }
}

/// The readers' half of the fence, of the kind that the epoch encodes.
#[inline(always)]
fn light(epoch: u64) {
    if epoch & FENCED != 0 {
        seldom();
        // Pairs with the fence in `Barrier::heavy`.
        fence(Ordering::SeqCst);
    } else {
        // The other half is the fence that membarrier makes this thread execute.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Marks a branch as unlikely: a taken jump costs as much as a store.
#[cold]
#[inline]
fn seldom() {}

/// Zeroed memory from the allocator: the system commits no memory for records that are never claimed.
#[cfg(not(loom))]
fn records(count: usize) -> Box<[Record]> {
    use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

    let Ok(layout) = Layout::array::<Record>(count) else { unreachable!("at most 65,536 records") };
    // SAFETY: a domain has at least one slot, so the layout is not empty. A record consists of atomic integers and a
    // pointer, for which zeroes are valid; the box frees the memory with the same layout.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<Record>();
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, count))
    }
}

#[cfg(loom)]
fn records(count: usize) -> Box<[Record]> {
    let zero = || [AtomicU64::new(0), AtomicU64::new(0)];
    let record = |_| Record {
        words: zero(),
        extra: zero(),
        announced: AtomicU64::new(0),
        pins: AtomicU64::new(0),
        home: AtomicPtr::new(std::ptr::null_mut()),
        number: AtomicU32::new(0),
    };
    (0..count).map(record).collect()
}

#[cfg(all(test, loom))]
mod models;
