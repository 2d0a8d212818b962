//! Who is inside: one record for each slot, one epoch for all, and the scan that compares them.
//!
//! ```text
//!   epoch ──> 7        cookie = ++epoch: everything unlinked before is unreachable for whoever reads an
//!                      epoch >= cookie
//!   record 0: [ normal 6 | sleepable 0 ]   inside since epoch 6: holds up cookies 7 and later
//!   record 1: [ normal 0 | sleepable 7 ]   inside a sleepable section: holds up sleepable cookies 8 and later
//!   record 2: [ normal 0 | sleepable 0 ]   outside
//!   completed: normal 6, sleepable 7       what a scan of this picture may publish
//! ```
//!
//! **Reader.** The outermost entry loads the epoch, stores it in its record, and executes the light half of
//! the fence (`barrier.rs`); the last leave stores 0. Entries in between only count: the word keeps the oldest epoch,
//! since what the outermost section found may be in use until its end.
//!
//! **Updater.** Unlinks, then takes a cookie by incrementing the epoch. Every cookie is a grace period of its own;
//! any number may be waiting; nobody has to start or end one.
//!
//! **Scan.** Reads the epoch, executes the heavy half of the fence, then reads all words. A cookie that is no
//! larger than the epoch read *before* the fence and than every word that is not 0 has passed:
//!
//! - a reader whose word is 0 has left, or its store is not visible yet; then its own fence comes after the scan's,
//!   and it finds nothing that was unlinked before the scan's;
//! - a reader whose word is at least the cookie read the epoch after the cookie had been taken, with Acquire,
//!   and so saw what had been unlinked before that;
//! - an unlinking thread's cookie is part of the release sequence that the scan's first load reads from.
//!
//! What would break it: a nested entry that stores a newer epoch; an epoch that is ahead of the real one; a cookie
//! taken before the unlinking; cookies counted by each thread for itself; the epoch read after the fence. There is
//! a model of each in `readers/models.rs`, and each must fail.

use crate::barrier::Barrier;
use crate::bitmap::Bitmap;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

/// Index of the normal flavour in everything that there is one of for each flavour.
pub(crate) const NORMAL: usize = 0;
/// Index of the sleepable flavour.
pub(crate) const SLEEPABLE: usize = 1;
/// How many flavours there are.
pub(crate) const FLAVOURS: usize = 2;

/// Set in a record whose thread has ended while sections or readers were alive: the last of these gives the slot
/// back. No program can count that far.
const ORPHAN: u64 = 1 << 63;

/// The epoch before the first cookie. Not 0: that is the word of a record that is outside.
const FIRST: u64 = 1;

/// Set in all epochs and cookies of a domain whose readers must fence: who has read the epoch need not read a flag.
pub(crate) const FENCED: u64 = 1 << 63;

/// What all threads of a domain share.
pub(crate) struct Readers {
    /// Alone in its cache lines: every outermost entry reads it.
    epoch: Padded<AtomicU64>,
    /// The largest cookie that has passed, for each flavour.
    completed: Padded<[AtomicU64; FLAVOURS]>,
    /// The largest cookie after which a heavy fence was executed.
    fenced: AtomicU64,
    /// Set when the last handle is gone: nobody is inside and nobody can enter.
    closed: AtomicBool,
    barrier: Barrier,
    slots: Bitmap,
    records: Box<[Record]>,
}

/// What one thread shows of itself. Only the owner of the slot stores; all zero while the slot is free and nobody
/// has used it.
#[repr(align(128))] // two cache lines: neighbours are fetched in pairs
pub(crate) struct Record {
    /// For each flavour the epoch of the outermost section, or 0.
    words: [AtomicU64; FLAVOURS],
    /// For each flavour how many sections there are besides the first; 0 while the word is 0.
    extra: [AtomicU64; FLAVOURS],
    /// The era that the owner has announced in its normal section: it holds objects that were born up to then. If it is
    /// older than the section, it is from an earlier one, and the owner holds nothing yet.
    announced: AtomicU64,
    /// How many [`Reader`](crate::Reader)s use the record.
    pins: AtomicU64,
    /// The `Readers` it is part of; null before the first claim.
    home: AtomicPtr<Readers>,
    number: AtomicU32,
}

#[repr(align(128))]
struct Padded<T>(T);

impl Readers {
    pub(crate) fn new(limit: u32, barrier: Barrier) -> Self {
        let first = if barrier.readers_fence() { FENCED | FIRST } else { FIRST };
        Self {
            epoch: Padded(AtomicU64::new(first)),
            completed: Padded([AtomicU64::new(first), AtomicU64::new(first)]),
            fenced: AtomicU64::new(first),
            closed: AtomicBool::new(false),
            barrier,
            slots: Bitmap::new(limit),
            records: records(limit as usize),
        }
    }

    pub(crate) fn slots(&self) -> &Bitmap {
        &self.slots
    }

    pub(crate) fn barrier(&self) -> Barrier {
        self.barrier
    }

    /// Claims the lowest free slot for the calling thread.
    pub(crate) fn claim(&self) -> Option<&Record> {
        let number = self.slots.claim()?;
        let record = &self.records[number as usize];
        // Relaxed: read by the owner only; the bitmap orders successive owners.
        record.home.store(std::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
        record.number.store(number, Ordering::Relaxed);
        Some(record)
    }

    /// The record of a slot that the caller owns.
    pub(crate) fn record(&self, number: u32) -> &Record {
        &self.records[number as usize]
    }

    /// Gives the slot back, unless its owner is inside or a reader stands on it. The caller is the owner.
    pub(crate) fn give_back(&self, record: &Record) -> bool {
        let idle = !record.is_used();
        if idle {
            self.slots.release(record.number());
        }
        idle
    }

    /// Gives the slot back now, or makes the last section or reader do so. The caller is the owner and ends.
    pub(crate) fn abandon(&self, record: &Record) {
        if !self.give_back(record) {
            record.orphan();
        }
    }

    /// Called when `leave` or `unpin` has said that an orphan may be free.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back_orphan(&self, record: &Record) {
        // Relaxed: the owner's own words.
        if record.pins.load(Ordering::Relaxed) == ORPHAN
            && record.words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
        {
            record.pins.store(0, Ordering::Relaxed);
            self.slots.release(record.number());
        }
    }

    /// Enters with a record of this instance, whose owner the caller is.
    #[inline(always)]
    pub(crate) fn enter(&self, record: &Record, flavour: usize) {
        // Relaxed: nobody but this thread stores to its word.
        if record.words[flavour].load(Ordering::Relaxed) == 0 {
            // Acquire pairs with the increments in `cookie`: what was unlinked before a cookie no larger than
            // this epoch is not found by this section.
            record.begin(flavour, self.epoch.0.load(Ordering::Acquire));
        } else {
            seldom();
            let extra = &record.extra[flavour];
            // Relaxed, both: only this thread uses it. A signal handler in between puts back what it found.
            extra.store(extra.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// A number for "now": what was unlinked before it is unreachable once it has passed.
    pub(crate) fn cookie(&self) -> u64 {
        // SeqCst, of which Release is needed: pairs with the Acquire loads in `enter` and `scan`, which see all
        // that came before this increment or any earlier one, since all are links of one release sequence.
        // At a billion cookies a second it takes five centuries to wrap.
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

    /// Where the records begin.
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
            // Acquire, both: as in `oldest`. The section's word first: if the announced era is of a later section, the result
            // covers too much, not too little. An era before the section is of an earlier one and is ignored: a reader
            // announces before it looks anything up, and the fence orders that before the unlinking of what it can find.
            let entered = record.words[NORMAL].load(Ordering::Acquire);
            let announced = record.announced.load(Ordering::Acquire);
            if entered != 0 && announced >= entered {
                each(entered, announced);
            }
        }
    }

    /// Whether a cookie has been seen to pass for a flavour.
    pub(crate) fn passed(&self, cookie: u64, flavour: usize) -> bool {
        // Acquire pairs with the Release in `scan`: what readers did before they left has happened before.
        self.completed.0[flavour].load(Ordering::Acquire) >= cookie
    }

    /// Looks at all readers once and publishes what has passed. `true` where that is more than before.
    pub(crate) fn scan(&self) -> Result<bool, i32> {
        // Acquire pairs with the increments in `cookie`: what their threads had unlinked before is ordered before
        // the fence below. It must be read before that fence: a later cookie's unlinking may come after it.
        let now = self.epoch.0.load(Ordering::Acquire);
        if (0..FLAVOURS).all(|flavour| self.passed(now, flavour)) {
            return Ok(false);
        }
        self.fence_for(now)?;
        Ok(self.publish(self.oldest(now)))
    }

    /// Executes a heavy fence: for all cookies so far.
    pub(crate) fn fence(&self) -> Result<(), i32> {
        self.fence_for(self.era())
    }

    /// `now` was read, with Acquire, before.
    fn fence_for(&self, now: u64) -> Result<(), i32> {
        self.barrier.heavy()?;
        // Release: pairs with the Acquire in `fenced`. Several may come together; each raises the number with what it has
        // fenced itself, and every one of them is a link of the release sequence.
        self.fenced.fetch_max(now, Ordering::AcqRel);
        Ok(())
    }

    /// The largest cookie after which somebody has executed a heavy fence.
    pub(crate) fn fenced(&self) -> u64 {
        // Acquire: pairs with the Release in `fence_for`: what readers had announced before that fence is seen.
        self.fenced.load(Ordering::Acquire)
    }

    /// Whether no reader is seen to hold a cookie up. Proves nothing: there is no fence.
    pub(crate) fn may_pass(&self, cookie: u64, flavour: usize) -> bool {
        // Relaxed: a guess.
        let since = |number| self.record(number).words[flavour].load(Ordering::Relaxed);
        self.passed(cookie, flavour)
            || self.slots.taken().map(since).all(|since| since == 0 || since >= cookie)
    }

    /// The largest cookie that no reader holds up, for each flavour, but no more than `now`.
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
            // Release pairs with the Acquire in `passed`. Scans that overlap only ever raise the number, each with
            // what it has proved itself; every one of them is a link of the release sequence.
            news |= completed.fetch_max(passed, Ordering::AcqRel) < passed;
        }
        news
    }

    /// Says that the last handle is gone.
    pub(crate) fn close(&self) {
        // Release pairs with the Acquire below: all sections ended before the handles that they borrowed.
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the last handle is gone: every grace period is over.
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire pairs with the Release above.
        self.closed.load(Ordering::Acquire)
    }

    /// How many cookies there have been.
    pub(crate) fn cookies(&self) -> u64 {
        // Relaxed: a statistic.
        (self.epoch.0.load(Ordering::Relaxed) & !FENCED) - FIRST
    }
}

impl Record {
    /// A record of nobody.
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
        // Relaxed, both: the owner asks.
        let announced = self.announced.load(Ordering::Relaxed);
        (announced >= self.words[NORMAL].load(Ordering::Relaxed)).then_some(announced)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        // Relaxed: the owner's own.
        self.number.load(Ordering::Relaxed)
    }

    /// The first entry of a flavour.
    #[inline(always)]
    fn begin(&self, flavour: usize, epoch: u64) {
        // Release, not Relaxed, pairs with the Acquire in `oldest`: a scan that finds this word did not see
        // the 0 of the section before, and must know all the same that it is over. It costs nothing on x86-64.
        self.words[flavour].store(epoch, Ordering::Release);
        light(epoch);
    }

    /// Leaves one section of a flavour, in any order. `true` where an orphan may have become free.
    #[inline(always)]
    pub(crate) fn leave(&self, flavour: usize) -> bool {
        // Relaxed: only this thread uses it.
        let extra = self.extra[flavour].load(Ordering::Relaxed);
        if extra == 0 {
            // Release pairs with the Acquire in `oldest`: whoever sees the 0 knows that the section is over.
            self.words[flavour].store(0, Ordering::Release);
            return false;
        }
        seldom();
        self.leave_nested(flavour, extra)
    }

    #[inline(always)]
    fn leave_nested(&self, flavour: usize, extra: u64) -> bool {
        if extra != ORPHAN {
            self.extra[flavour].store(extra - 1, Ordering::Relaxed);
            return false;
        }
        self.extra[flavour].store(0, Ordering::Relaxed);
        // Release: as in `leave`.
        self.words[flavour].store(0, Ordering::Release);
        true
    }

    /// One more reader stands on the record.
    pub(crate) fn pin(&self) {
        // Relaxed, as below: only this thread uses it.
        self.pins.store(self.pins.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One reader less. `true` where an orphan may have become free.
    pub(crate) fn unpin(&self) -> bool {
        let pins = self.pins.load(Ordering::Relaxed) - 1;
        self.pins.store(pins, Ordering::Relaxed);
        pins == ORPHAN
    }

    /// Whether the owner is inside a flavour.
    pub(crate) fn is_inside(&self, flavour: usize) -> bool {
        // Relaxed: the owner asks.
        self.words[flavour].load(Ordering::Relaxed) != 0
    }

    fn is_used(&self) -> bool {
        self.pins.load(Ordering::Relaxed) != 0 || (0..FLAVOURS).any(|flavour| self.is_inside(flavour))
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

/// The readers' half of the fence, of the kind that the epoch says.
#[inline(always)]
fn light(epoch: u64) {
    if epoch & FENCED != 0 {
        seldom();
        // Pairs with the fence in `Barrier::heavy`.
        fence(Ordering::SeqCst);
    } else {
        // The other half is what membarrier makes this thread execute.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Tells the compiler which branch to move out of the way: a taken jump costs as much as a store.
#[cold]
#[inline]
fn seldom() {}

/// Zeroed memory from the allocator: records that nobody claims never become memory, however many there are.
#[cfg(not(loom))]
fn records(count: usize) -> Box<[Record]> {
    use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

    let Ok(layout) = Layout::array::<Record>(count) else { unreachable!("at most 65,536 records") };
    // SAFETY: a domain has at least one slot, so the layout is not empty. A record is made of atomic integers, a
    // bool and a pointer, for which zeroes are valid values; the box gives the memory back with the same layout.
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
