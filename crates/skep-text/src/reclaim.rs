//! What becomes of code that nobody owns any more: it waits until nobody can run it, becomes traps, and is free.
//!
//! The problem: a text is dropped while other threads are in it. Filling it with traps then would kill them, and
//! giving its place to another text would let them run that one's code from the middle. Waiting for them would make
//! unloading as slow as the slowest of them.
//!
//! Protocol: whoever drops a text puts it at the end of `incoming`, with a cookie of the arena's [`Domain`] taken under
//! the same lock, so that the list is in the order of cookies. A cookie has passed when every read section, of both
//! flavours, that was open at that moment has ended. The keeper is asked to look when one has; a thread that needs
//! room, or finds too much waiting, looks too, with one barrier and one look at every reader, and never waits.
//!
//! One thread at a time reclaims: it holds `waiting`, a lock that is taken before all others and never while waiting
//! for readers, and takes over what has come in. What has passed is filled with traps, and only then are its chunks
//! free. A thread that finds no room waits for that lock once, and can so tell a full arena from one that is just
//! being emptied.
//!
//! ```text
//!    drop(Text) ──> incoming: c6 c7      a leaf, held for one push
//!                       │ taken over by who holds `waiting`: the keeper, or a loader
//!                       v
//!                   waiting: c1 c2 c3 | c4 c5      passed up to c3: traps, caches, chunks free
//! ```
//!
//! Bounded: with more than [`Config::waiting`](crate::Config::waiting) bytes that wait, because some reader does not
//! leave, new drafts are refused.
//!
//! What would break it: a cookie taken before the text became unreachable; an entry that keeps the arena alive (they
//! are in it) or an arena that goes while entries wait (so the call that the keeper holds keeps it alive).
//!
//! [`Domain`]: skep_rcu::Domain

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_rcu::{Cookie, Grace};

use crate::arch;
use crate::arena::{Shared, Slot};
use crate::error::Error;
use crate::place::{Memory, Retired, room, view};

/// Texts freed at once: the arena's lock is not held longer than for so many.
pub(crate) const BATCH: usize = 16;

/// Places that wait.
#[derive(Default)]
pub(crate) struct Retirement {
    incoming: Mutex<Incoming>,
    /// Taken over from `incoming`, oldest first.
    waiting: Mutex<VecDeque<Retired>>,
    /// Bytes of all of them, and of those just being filled with traps. Relaxed everywhere: a bound that may be
    /// overstepped by what threads retire at the same moment.
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Incoming {
    places: Vec<Retired>,
    /// Whether the keeper has been asked to look.
    asked: bool,
    total: Total,
}

/// What has been retired so far, for statistics.
#[derive(Clone, Copy, Default)]
pub(crate) struct Total {
    pub(crate) texts: usize,
    pub(crate) code_bytes: usize,
}

/// What a look at the queue brought.
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

    /// What has been retired so far.
    pub(crate) fn total(&self) -> Total {
        self.lock_incoming().total
    }

    /// The addresses of the places in packs that wait, and no chunk of them becomes free before the guard is dropped.
    pub(crate) fn addresses(&self) -> (Vec<usize>, impl Drop + '_) {
        let mut waiting = self.lock_waiting();
        self.take_over(&mut waiting);
        let in_pack = |retired: &&Retired| matches!(retired.memory, Memory::Chunks(_));
        let mut addresses: Vec<usize> =
            waiting.iter().filter(in_pack).map(|retired| retired.address).collect();
        addresses.sort_unstable();
        (addresses, waiting)
    }

    /// Takes everything out, whether or not it has passed: for the end, in a forked child. `None` where another thread of
    /// the parent was at it.
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
    /// Has a place wait until nobody can run it. Never waits itself.
    pub(crate) fn retire(self: &Arc<Self>, retired: impl FnOnce(Cookie) -> Retired) {
        let mut incoming = self.retirement.lock_incoming();
        // Under the lock, for the order of the list. It takes no lock and waits for nobody.
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

    /// Gives back what was never run.
    pub(crate) fn give_back(self: &Arc<Self>, memory: Memory) {
        self.free_memory([memory]);
    }

    /// Refuses when too much waits, after having looked whether it must.
    pub(crate) fn bound_waiting(self: &Arc<Self>) -> Result<(), Error> {
        if self.retirement.bytes() <= self.max_waiting {
            return Ok(());
        }
        // Not `reclaim_now`: what another thread is just giving back must not be counted.
        self.reclaim_thoroughly();
        match self.retirement.bytes() {
            bytes if bytes <= self.max_waiting => Ok(()),
            waiting => Err(Error::Waiting { waiting, limit: self.max_waiting }),
        }
    }

    /// Looks which of the waiting places nobody can run any more and frees them, unless somebody is at it already.
    /// Whether there were any.
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

    /// Frees the places whose cookies have passed. When it returns, all that had passed before are free, those that
    /// another thread had begun with too.
    pub(crate) fn reclaim_passed(self: &Arc<Self>) -> Reclaimed {
        let mut waiting = self.retirement.lock_waiting();
        self.retirement.take_over(&mut waiting);
        self.reclaim(&mut waiting)
    }

    /// As [`reclaim_passed`](Self::reclaim_passed), after a look which have. For who finds no room otherwise.
    pub(crate) fn reclaim_thoroughly(self: &Arc<Self>) {
        let newest = self.newest(&mut self.retirement.lock_waiting());
        self.look(newest);
        self.reclaim(&mut self.retirement.lock_waiting());
    }

    /// The cookie of the place that was retired last.
    fn newest(&self, waiting: &mut VecDeque<Retired>) -> Option<Cookie> {
        self.retirement.take_over(waiting);
        waiting.back().map(|retired| retired.cookie)
    }

    /// Finds out whether a cookie and those before it have passed. No lock is held: where the domain has no keeper
    /// this thread runs callbacks here, ours and others'.
    fn look(&self, newest: Option<Cookie>) {
        if let Some(newest) = newest {
            // Whatever it says of the newest, it has found out for the older ones.
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
                // Their cookies have passed; they are first in line when somebody looks again.
                for retired in stuck.into_iter().rev() {
                    waiting.push_front(retired);
                }
                return Reclaimed::NotAll;
            }
        }
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
                Memory::Chunks(block) => {
                    state.chunks.free(block);
                    state.returned += 1;
                }
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
        self.unmap_stuck(&growth);
        for (slot, pack) in own {
            if let Err(pack) = self.unmap(&growth, slot, *pack) {
                // Full of traps, it keeps its slots until this is tried again.
                self.lock_state().stuck.push(pack);
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
            let mut waiting = shared.retirement.lock_waiting();
            shared.retirement.take_over(&mut waiting);
            let reclaimed = shared.reclaim(&mut waiting);
            let mut incoming = shared.retirement.lock_incoming();
            let passed = |last: &Retired| shared.domain.passed(last.cookie, Grace::Both);
            let somebody_may_be_inside = !incoming.places.is_empty() || !waiting.back().is_none_or(passed);
            // What has passed and the system does not let us write now is tried again with the next text that is
            // retired. What has not passed must have this closure, which keeps the arena from being unmapped.
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
        Memory::Chunks(_) => room(retired.len),
        Memory::Own { pack, .. } => pack.executable().len(),
    }
}
