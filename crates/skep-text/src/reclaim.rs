//! Reclamation of dropped code: it waits until no thread can run it, is filled with traps, and becomes free.
//!
//! The problem: a text is dropped while other threads run it. Filling it with traps at once would kill them, and
//! reusing its memory for another text would make them continue in the middle of that one. Waiting for them would
//! make unloading as slow as the slowest of them.
//!
//! Protocol: dropping a text appends it to `incoming`, with a cookie of the arena's [`Domain`] taken under the same
//! lock, so the list is in the order of cookies. A cookie has passed when every read section, of both flavours, that
//! was open at that moment has ended. The keeper is woken when one has. A thread that needs room, or finds too much
//! waiting, scans as well: one barrier and one pass over all readers, without waiting.
//!
//! One thread at a time reclaims: it holds `waiting`, a lock that is taken before all others and never held while
//! waiting for readers, and takes over the incoming entries. Those whose cookies have passed are filled with traps,
//! and only then are their chunks free. A thread that finds no room waits for that lock once, and so can tell a full
//! arena from one that is being emptied.
//!
//! ```text
//!    drop(Text) ──> incoming: c6 c7      a leaf, held for one push
//!                       │ taken over by the thread that holds `waiting`: the keeper, or a loader
//!                       v
//!                   waiting: c1 c2 c3 | c4 c5      passed up to c3: traps, caches, chunks free
//! ```
//!
//! Bounded: while more than [`Config::waiting`](crate::Config::waiting) bytes wait, because some reader does not
//! leave its section, new drafts are refused.
//!
//! What would break it: a cookie taken before the text became unreachable; an entry that keeps the arena alive
//! (entries are part of the arena), or an arena that is dropped while entries wait (so the keeper's callback keeps
//! it alive).
//!
//! [`Domain`]: skep_rcu::Domain

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_rcu::{Cookie, Grace};

use crate::arch;
use crate::arena::{Shared, Slot};
use crate::error::Error;
use crate::place::{Retired, Storage, room, view};

/// The number of texts freed under one hold of the arena's lock.
pub(crate) const BATCH: usize = 16;

/// Places that wait for their grace period.
#[derive(Default)]
pub(crate) struct Retirement {
    incoming: Mutex<Incoming>,
    /// Taken over from `incoming`, oldest first.
    waiting: Mutex<VecDeque<Retired>>,
    /// Bytes of all of them, and of those being filled with traps. Relaxed everywhere: a bound that texts retired at
    /// the same moment may exceed.
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Incoming {
    places: Vec<Retired>,
    /// Whether a callback of the keeper is queued.
    asked: bool,
    total: Total,
}

/// Totals of retired texts, for statistics.
#[derive(Clone, Copy, Default)]
pub(crate) struct Total {
    pub(crate) texts: usize,
    pub(crate) code_bytes: usize,
}

/// The result of a pass over the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaimed {
    Nothing,
    AllThatPassed,
    /// Some could not be filled with traps.
    NotAll,
}

impl Retirement {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Totals of retired texts.
    pub(crate) fn total(&self) -> Total {
        self.lock_incoming().total
    }

    /// The addresses of waiting places in packs; none of their chunks becomes free before the guard is dropped.
    pub(crate) fn addresses(&self) -> (Vec<usize>, impl Drop + '_) {
        let mut waiting = self.lock_waiting();
        self.take_over(&mut waiting);
        let in_pack = |retired: &&Retired| matches!(retired.memory, Storage::Chunks(_));
        let mut addresses: Vec<usize> =
            waiting.iter().filter(in_pack).map(|retired| retired.address).collect();
        addresses.sort_unstable();
        (addresses, waiting)
    }

    /// Takes all entries, passed or not: for the end, in a forked child. `None` if the fork interrupted a thread of
    /// the parent that held the lock.
    pub(crate) fn take_all(&self) -> Option<Vec<Retired>> {
        let mut waiting = self.waiting.try_lock().ok()?;
        let mut incoming = self.incoming.try_lock().ok()?;
        Some(waiting.drain(..).chain(incoming.places.drain(..)).collect())
    }

    fn lock_incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_waiting(&self) -> MutexGuard<'_, VecDeque<Retired>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_over(&self, waiting: &mut VecDeque<Retired>) {
        waiting.extend(self.lock_incoming().places.drain(..));
    }
}

impl Shared {
    /// Queues a place until no thread can run it. Never waits.
    pub(crate) fn retire(self: &Arc<Self>, retired: impl FnOnce(Cookie) -> Retired) {
        let mut incoming = self.retirement.lock_incoming();
        // Under the lock, so that the list is in order of cookies. This takes no lock and does not wait.
        let retired = retired(self.domain.cookie());
        incoming.total.texts += 1;
        incoming.total.code_bytes += retired.len;
        self.retirement.bytes.fetch_add(bytes(&retired), Ordering::Relaxed);
        incoming.places.push(retired);
        let asked = std::mem::replace(&mut incoming.asked, true);
        drop(incoming);
        if !asked {
            self.ask_the_keeper();
        }
    }

    /// Frees memory whose code was never run.
    pub(crate) fn give_back(self: &Arc<Self>, memory: Storage) {
        self.free_memory([memory]);
    }

    /// Refuses if too much waits, after an attempt to reclaim.
    pub(crate) fn bound_waiting(self: &Arc<Self>) -> Result<(), Error> {
        if self.retirement.bytes() <= self.max_waiting {
            return Ok(());
        }
        // Not `reclaim_now`: memory that another thread is freeing right now must not be counted.
        self.reclaim_thoroughly();
        match self.retirement.bytes() {
            bytes if bytes <= self.max_waiting => Ok(()),
            waiting => Err(Error::Waiting { waiting, limit: self.max_waiting }),
        }
    }

    /// Scans for waiting places that no thread can run any more and frees them, unless another thread is reclaiming.
    /// Returns whether there were any.
    pub(crate) fn reclaim_now(self: &Arc<Self>) -> bool {
        if self.retirement.bytes() == 0 {
            return false;
        }
        let newest = match self.retirement.waiting.try_lock() {
            Ok(mut waiting) => self.newest(&mut waiting),
            Err(_) => return false,
        };
        self.look(newest);
        let Ok(mut waiting) = self.retirement.waiting.try_lock() else { return false };
        self.reclaim(&mut waiting) != Reclaimed::Nothing
    }

    /// Frees the places whose cookies have passed. On return all that had passed before the call are free, including
    /// those that another thread was reclaiming.
    pub(crate) fn reclaim_passed(self: &Arc<Self>) -> Reclaimed {
        let mut waiting = self.retirement.lock_waiting();
        self.retirement.take_over(&mut waiting);
        self.reclaim(&mut waiting)
    }

    /// As [`reclaim_passed`](Self::reclaim_passed), after a scan. For a thread that otherwise finds no room.
    pub(crate) fn reclaim_thoroughly(self: &Arc<Self>) {
        let newest = self.newest(&mut self.retirement.lock_waiting());
        self.look(newest);
        self.reclaim(&mut self.retirement.lock_waiting());
    }

    /// The cookie of the newest retired place.
    fn newest(&self, waiting: &mut VecDeque<Retired>) -> Option<Cookie> {
        self.retirement.take_over(waiting);
        waiting.back().map(|retired| retired.cookie)
    }

    /// Scans whether a cookie, and so all before it, has passed. No lock is held: if the domain has no keeper,
    /// callbacks run on this thread here.
    fn look(&self, newest: Option<Cookie>) {
        if let Some(newest) = newest {
            // A scan for the newest cookie also covers the older ones.
            self.domain.try_pass(newest, Grace::Both);
        }
    }

    fn reclaim(self: &Arc<Self>, waiting: &mut VecDeque<Retired>) -> Reclaimed {
        let mut reclaimed = Reclaimed::Nothing;
        loop {
            let passed = |retired: &&Retired| self.domain.passed(retired.cookie, Grace::Both);
            let count = waiting.iter().take(BATCH).take_while(passed).count();
            if count == 0 {
                return reclaimed;
            }
            let mut batch: Vec<Retired> = waiting.drain(..count).collect();
            reclaimed = Reclaimed::AllThatPassed;
            let stuck = self.fill_with_traps(&mut batch);
            let freed: usize = batch.iter().map(bytes).sum();
            self.free_memory(batch.into_iter().map(|retired| retired.memory));
            self.retirement.bytes.fetch_sub(freed, Ordering::Relaxed);
            if !stuck.is_empty() {
                // Their cookies have passed, so the next pass begins with them.
                for retired in stuck.into_iter().rev() {
                    waiting.push_front(retired);
                }
                return Reclaimed::NotAll;
            }
        }
    }

    /// Fills the places with traps and drops their probes. Removes those that cannot be written now from the batch.
    fn fill_with_traps(&self, batch: &mut Vec<Retired>) -> Vec<Retired> {
        for retired in batch.iter_mut() {
            retired.probes = None;
            self.seen.removed(retired.address);
        }
        // SAFETY: the grace period is over, so no thread runs or reads the places, and they belong to this batch
        // alone.
        let fails = |retired: &mut Retired| unsafe {
            retired.writer.fill_with_traps(retired.address, room(retired.len)).is_err()
        };
        let stuck = batch.extract_if(.., fails).collect();
        let views = batch.iter().map(|retired| view(retired.writer, retired.address, room(retired.len)));
        arch::publish(views);
        stuck
    }

    fn free_memory(self: &Arc<Self>, memory: impl IntoIterator<Item = Storage>) {
        let mut own = Vec::new();
        let mut state = self.lock_state();
        for memory in memory {
            match memory {
                Storage::Chunks(block) => {
                    state.chunks.free(block);
                    state.returned += 1;
                }
                Storage::Own { slot, pack } => {
                    state.counts.own_mappings -= 1;
                    state.counts.own_bytes -= pack.executable().len();
                    state.slots[slot] = Slot::Busy;
                    own.push((slot, pack));
                }
            }
        }
        let trim = state.chunks.empty_regions() > 1 && !self.permanent;
        drop(state);
        if own.is_empty() && !trim {
            return;
        }
        let growth = self.lock_growth();
        self.unmap_stuck(&growth);
        for (slot, pack) in own {
            if let Err(pack) = self.unmap(&growth, slot, *pack) {
                // Full of traps; it keeps its slots until this is tried again.
                self.lock_state().stuck.push(pack);
            }
        }
        if trim {
            self.trim(&growth, 1);
        }
    }

    /// Makes the keeper reclaim when everything that waits now has passed.
    fn ask_the_keeper(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.domain.call(Grace::Both, move || {
            let mut waiting = shared.retirement.lock_waiting();
            shared.retirement.take_over(&mut waiting);
            let reclaimed = shared.reclaim(&mut waiting);
            let mut incoming = shared.retirement.lock_incoming();
            let passed = |last: &Retired| shared.domain.passed(last.cookie, Grace::Both);
            let somebody_may_be_inside = !incoming.places.is_empty() || !waiting.back().is_none_or(passed);
            // Places that have passed but cannot be written now are retried with the next retired text. Places that
            // have not passed need this closure, which keeps the arena from being unmapped.
            incoming.asked = somebody_may_be_inside || !waiting.is_empty() && reclaimed != Reclaimed::NotAll;
            let again = incoming.asked;
            drop((incoming, waiting));
            if again {
                shared.ask_the_keeper();
            }
        });
    }
}

fn bytes(retired: &Retired) -> usize {
    match &retired.memory {
        Storage::Chunks(_) => room(retired.len),
        Storage::Own { pack, .. } => pack.executable().len(),
    }
}
