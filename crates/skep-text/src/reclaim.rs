//! Reclamation of dropped code: it waits until no thread can run it, is filled with traps, and becomes free.
//!
//! The problem: a text is dropped while other threads run it. Filling it with traps at once would kill them, and
//! reusing its memory for another text would make them continue in the middle of that one. Waiting for them would
//! make unloading as slow as the slowest of them.
//!
//! Protocol (`retirement.rs` has the lists): dropping a text appends it to `incoming`, with a cookie of the arena's
//! [`Domain`] taken under the same lock, so the list is in the order of cookies. A cookie has passed when every read
//! section, of both flavours, that was open at that moment has ended. The keeper is woken when one has. A thread that
//! needs room, or finds too much waiting, scans as well: one barrier and one pass over all readers, without waiting.
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
use std::sync::Arc;

use skep_rcu::{Cookie, Grace};

use crate::arch;
use crate::error::Error;
use crate::retirement::{Retired, Storage};
use crate::shared::Shared;
use crate::sizes::room;
use crate::state::Slot;

/// The number of texts freed under one hold of the arena's lock.
pub(crate) const BATCH: usize = 16;

/// The result of a pass over the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaimed {
    Nothing,
    AllThatPassed,
    /// Some could not be filled with traps.
    NotAll,
}

impl Shared {
    /// Queues a place until no thread can run it. Never waits.
    pub(crate) fn retire(self: &Arc<Self>, retired: impl FnOnce(Cookie) -> Retired) {
        // Taking the cookie takes no lock and does not wait.
        if self.retirement.push(|| retired(self.domain.cookie())) {
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
        let newest = match self.retirement.try_lock_waiting() {
            Some(mut waiting) => self.retirement.newest(&mut waiting),
            None => return false,
        };
        self.look(newest);
        let Some(mut waiting) = self.retirement.try_lock_waiting() else { return false };
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
        let newest = self.retirement.newest(&mut self.retirement.lock_waiting());
        self.look(newest);
        self.reclaim(&mut self.retirement.lock_waiting());
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
            let freed: usize = batch.iter().map(Retired::bytes).sum();
            // Dropped when the memory is free, and not under the lock of the arena's state.
            let kept: Vec<_> = batch.iter_mut().filter_map(|retired| retired.kept.take()).collect();
            self.free_memory(batch.into_iter().map(|retired| retired.memory));
            drop(kept);
            self.retirement.freed(freed);
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
        let views = batch.iter().map(|retired| retired.writer.view(retired.address, room(retired.len)));
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
            let again = shared.retirement.ask_again(|has_incoming| {
                let passed = |last: &Retired| shared.domain.passed(last.cookie, Grace::Both);
                let may_be_running = has_incoming || !waiting.back().is_none_or(passed);
                // Places that have passed but cannot be written now are retried with the next retired text. Places
                // that have not passed need this closure, which keeps the arena from being unmapped.
                may_be_running || !waiting.is_empty() && reclaimed != Reclaimed::NotAll
            });
            drop(waiting);
            if again {
                shared.ask_the_keeper();
            }
        });
    }
}
