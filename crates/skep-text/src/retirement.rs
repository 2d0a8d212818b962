//! Dropped places that threads may still be running, in two lists, oldest first.
//!
//! A dropped place is appended to `incoming` under a leaf lock that is held for one push. The thread that reclaims
//! holds `waiting` and takes over the incoming places. `reclaim.rs` says when which place is free.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use skep_rcu::Cookie;

use crate::chunks::Block;
use crate::fault::Entered;
use crate::pack::{Pack, Writer};
use crate::sizes::room;

/// The memory of a place.
pub(crate) enum Storage {
    Chunks(Block),
    Own { slot: usize, pack: Box<Pack> },
}

/// A dropped place that threads may still be running.
pub(crate) struct Retired {
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) writer: Writer,
    pub(crate) memory: Storage,
    pub(crate) cookie: Cookie,
    pub(crate) probes: Option<Box<Entered>>,
    pub(crate) kept: Option<Kept>,
}

/// What an owner keeps until its memory is free.
pub(crate) type Kept = Box<dyn Any + Send + Sync>;

impl Retired {
    /// The memory that it occupies, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.memory {
            Storage::Chunks(_) => room(self.len),
            Storage::Own { pack, .. } => pack.executable().len(),
        }
    }
}

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

impl Retirement {
    /// Bytes that wait.
    #[inline]
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

    /// Takes all entries, passed or not, when a forked child drops its arena. `None` if the fork interrupted a thread
    /// of the parent that held a lock.
    pub(crate) fn take_all(&self) -> Option<Vec<Retired>> {
        let mut waiting = self.waiting.try_lock().ok()?;
        let mut incoming = self.incoming.try_lock().ok()?;
        Some(waiting.drain(..).chain(incoming.places.drain(..)).collect())
    }

    /// Appends a place, made under the lock, so that the list is in order of cookies. Returns whether the keeper must
    /// be asked to reclaim it.
    pub(crate) fn push(&self, retired: impl FnOnce() -> Retired) -> bool {
        let mut incoming = self.lock_incoming();
        let retired = retired();
        incoming.total.texts += 1;
        incoming.total.code_bytes += retired.len;
        self.bytes.fetch_add(retired.bytes(), Ordering::Relaxed);
        incoming.places.push(retired);
        !std::mem::replace(&mut incoming.asked, true)
    }

    /// Subtracts the bytes of places that are free now.
    pub(crate) fn freed(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The cookie of the newest place, after taking over those in `incoming`. `waiting` is the locked list.
    pub(crate) fn newest(&self, waiting: &mut VecDeque<Retired>) -> Option<Cookie> {
        self.take_over(waiting);
        waiting.back().map(|retired| retired.cookie)
    }

    /// Ends a callback of the keeper: sets and returns whether the keeper must be asked again. `decide` receives
    /// whether places are in `incoming`; no place is appended before its answer is set.
    pub(crate) fn ask_again(&self, decide: impl FnOnce(bool) -> bool) -> bool {
        let mut incoming = self.lock_incoming();
        incoming.asked = decide(!incoming.places.is_empty());
        incoming.asked
    }

    /// Locks the places that were taken over: only the holder reclaims. Never held while waiting for readers.
    pub(crate) fn lock_waiting(&self) -> MutexGuard<'_, VecDeque<Retired>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock_waiting`](Self::lock_waiting), unless another thread holds it.
    pub(crate) fn try_lock_waiting(&self) -> Option<MutexGuard<'_, VecDeque<Retired>>> {
        self.waiting.try_lock().ok()
    }

    /// Moves all places in `incoming` to the end of `waiting`, the locked list.
    pub(crate) fn take_over(&self, waiting: &mut VecDeque<Retired>) {
        waiting.extend(self.lock_incoming().places.drain(..));
    }

    fn lock_incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
