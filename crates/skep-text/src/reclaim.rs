//! What becomes of code that nobody owns any more: it waits until nobody can run it, becomes traps, and is free.
//!
//! The problem: a text is dropped while other threads are in it. Filling it with traps then would kill them, and
//! giving its place to another text would let them run that one's code from the middle. Waiting for them would make
//! unloading as slow as the slowest of them.
//!
//! Protocol: whoever drops a text puts it at the end of a queue, with a cookie of the arena's [`Domain`] taken under
//! the same lock, so that the queue is in the order of cookies. A cookie has passed when every read section, of both
//! flavours, that was open at that moment has ended. The keeper is asked to look when one has; a thread that needs
//! room, or finds too much waiting, looks too, with one barrier and one look at every reader, and never waits.
//! What has passed is filled with traps, and only then are its chunks free.
//!
//! ```text
//!    drop(Text) ──> queue: c1 c2 c3 | c4 c5      | passed up to c3: popped, traps, caches, chunks free
//!                            keeper or loader ───┘
//! ```
//!
//! One thread at a time reclaims, holding `reclaiming`, a lock that is taken before those of the arena and never while
//! waiting for readers; so a thread that finds no room can tell a full arena from one that is just being emptied.
//!
//! Bounded: with more than [`Config::waiting`](crate::Config::waiting) bytes in the queue, because some reader does not
//! leave, new drafts are refused.
//!
//! What would break it: a cookie taken before the text became unreachable; a queue entry that keeps the arena alive
//! (they are in it) or an arena that goes while entries wait (so the call that the keeper holds keeps it alive).
//!
//! [`Domain`]: skep_rcu::Domain

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use skep_rcu::{Cookie, Grace};

use crate::arch;
use crate::arena::{Shared, Slot};
use crate::chunks::State;
use crate::error::Error;
use crate::place::{Memory, Retired, room, view};

/// Texts taken off the queue at once: the lock is not held longer than for so many.
const BATCH: usize = 32;

/// Retired places, oldest first.
#[derive(Default)]
pub(crate) struct Queue {
    places: VecDeque<Retired>,
    /// Bytes of the places and of those just being filled with traps.
    bytes: usize,
    /// Whether the keeper has been asked to look.
    asked: bool,
}

/// What a look at the queue brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaimed {
    Nothing,
    AllThatPassed,
    /// Some could not be filled with traps.
    NotAll,
}

impl Queue {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Shared {
    /// Puts a place into the queue. Never waits for readers.
    pub(crate) fn retire(self: &Arc<Self>, retired: impl FnOnce(Cookie) -> Retired) {
        let mut state = self.lock_state();
        // Under the lock, for the order of the queue. It takes no lock and waits for nobody.
        let retired = retired(self.domain.cookie());
        state.counts.remove(retired.len);
        if let Memory::Chunks(block) = &retired.memory {
            state.chunks.set_state(block, State::Waiting);
        }
        state.queue.bytes += bytes(&retired);
        state.queue.places.push_back(retired);
        let asked = std::mem::replace(&mut state.queue.asked, true);
        drop(state);
        if !asked {
            self.ask_the_keeper();
        }
    }

    /// Gives back what was never run.
    pub(crate) fn give_back(self: &Arc<Self>, len: usize, memory: Memory) {
        self.lock_state().counts.remove(len);
        self.free_memory([memory]);
    }

    /// Refuses when too much waits, after having looked whether it must.
    pub(crate) fn bound_waiting(self: &Arc<Self>) -> Result<(), Error> {
        let waiting = || self.lock_state().queue.bytes;
        if waiting() <= self.max_waiting {
            return Ok(());
        }
        self.reclaim_now();
        match waiting() {
            bytes if bytes <= self.max_waiting => Ok(()),
            waiting => Err(Error::Waiting { waiting, limit: self.max_waiting }),
        }
    }

    /// Looks which of the waiting places nobody can run any more and frees them, unless somebody is at it already.
    /// Whether there were any.
    pub(crate) fn reclaim_now(self: &Arc<Self>) -> bool {
        if !self.look() {
            return false;
        }
        let Ok(reclaiming) = self.reclaiming.try_lock() else { return false };
        self.reclaim_as(&reclaiming) != Reclaimed::Nothing
    }

    /// Frees the places whose cookies have passed. When it returns, all that had passed before are free, those that
    /// another thread had begun with too.
    pub(crate) fn reclaim_passed(self: &Arc<Self>) -> Reclaimed {
        self.reclaim_as(&self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`reclaim_passed`](Self::reclaim_passed), after a look which have. For who finds no room otherwise.
    pub(crate) fn reclaim_thoroughly(self: &Arc<Self>) {
        self.look();
        self.reclaim_passed();
    }

    /// Finds out which of the waiting places have passed. Whether any places wait.
    fn look(&self) -> bool {
        let newest = self.lock_state().queue.places.back().map(|retired| retired.cookie);
        // Whatever it says of the newest, it has found out for the older ones.
        newest.map(|newest| self.domain.try_pass(newest, Grace::Both)).is_some()
    }

    fn reclaim_as(self: &Arc<Self>, _: &MutexGuard<'_, ()>) -> Reclaimed {
        let mut reclaimed = Reclaimed::Nothing;
        loop {
            let mut batch = self.pop_passed();
            if batch.is_empty() {
                return reclaimed;
            }
            reclaimed = Reclaimed::AllThatPassed;
            let stuck = self.fill_with_traps(&mut batch);
            let freed: usize = batch.iter().map(bytes).sum();
            self.free_memory(batch.into_iter().map(|retired| retired.memory));
            let mut state = self.lock_state();
            state.queue.bytes -= freed;
            if !stuck.is_empty() {
                // Their cookies have passed; they are first in line when somebody looks again.
                for retired in stuck.into_iter().rev() {
                    state.queue.places.push_front(retired);
                }
                return Reclaimed::NotAll;
            }
        }
    }

    fn pop_passed(&self) -> Vec<Retired> {
        let mut state = self.lock_state();
        let places = &mut state.queue.places;
        let passed = |retired: &&Retired| self.domain.passed(retired.cookie, Grace::Both);
        let count = places.iter().take(BATCH).take_while(passed).count();
        places.drain(..count).collect()
    }

    /// Makes traps of the places, whose probes go too. Takes those out that cannot be written now.
    fn fill_with_traps(&self, batch: &mut Vec<Retired>) -> Vec<Retired> {
        for retired in batch.iter_mut() {
            retired.probes = None;
            self.seen.removed(retired.address);
        }
        // SAFETY: the grace period is over: nobody runs or reads the places, and they are nobody's but ours.
        let fails = |retired: &mut Retired| unsafe {
            retired.writer.fill_with_traps(retired.address, room(retired.len)).is_err()
        };
        let stuck = batch.extract_if(.., fails).collect();
        let views = batch.iter().map(|retired| view(retired.writer, retired.address, room(retired.len)));
        arch::publish(views);
        stuck
    }

    fn free_memory(self: &Arc<Self>, memory: impl IntoIterator<Item = Memory>) {
        let mut own = Vec::new();
        let mut state = self.lock_state();
        for memory in memory {
            match memory {
                Memory::Chunks(block) => state.chunks.free(block),
                Memory::Own { slot, pack } => {
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
        for (slot, pack) in own {
            // When it cannot be unmapped its slots stay busy for good, full of traps.
            if let Err(pack) = self.unmap(&growth, slot, *pack) {
                std::mem::forget(pack);
            }
        }
        if trim {
            self.trim(&growth, 1);
        }
    }

    /// Has the keeper look when everything that waits now may be freed.
    fn ask_the_keeper(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.domain.call(Grace::Both, move || {
            let reclaimed = shared.reclaim_passed();
            let mut state = shared.lock_state();
            // What the system does not let us write now is tried again with the next text that is retired.
            state.queue.asked = !state.queue.places.is_empty() && reclaimed != Reclaimed::NotAll;
            let again = state.queue.asked;
            drop(state);
            if again {
                shared.ask_the_keeper();
            }
        });
    }
}

fn bytes(retired: &Retired) -> usize {
    match &retired.memory {
        Memory::Chunks(_) => room(retired.len),
        Memory::Own { pack, .. } => pack.executable().len(),
    }
}
