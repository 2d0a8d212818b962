//! Stubs, programs and maps that nobody can come to any more, and that some may still be in.

use super::Removed;
use crate::runtime::Shared;
use skep_rcu::Grace;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// With more stubs and programs than this, who retires the next synchronises the CPUs, in place of the keeper.
const MOST: usize = 1024;

/// What waits for the CPUs to be synchronised.
#[derive(Default)]
pub(super) struct Retired {
    waiting: Mutex<Waiting>,
    /// Programs and maps that were taken out and are not dropped yet. Raised under the wiring's lock.
    held: AtomicUsize,
    /// Whether rings were looked for meanwhile, where these count as the host's.
    misled: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    removed: Removed,
    /// Whether the keeper was asked.
    asked: bool,
}

impl Removed {
    fn is_empty(&self) -> bool {
        self.stubs.is_empty() && self.programs.is_empty() && self.maps.is_empty()
    }
}

impl Retired {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Retired {
    /// What was taken out just now, under the wiring's lock, is about to be retired.
    pub(super) fn hold(&self, removed: &Removed) {
        // Relaxed: who looks for rings takes the same lock.
        self.held.fetch_add(removed.programs.len() + removed.maps.len(), Ordering::Relaxed);
    }

    /// Rings are about to be looked for, under the wiring's lock: what is held here counts as the host's. If that is anything, they are looked for
    /// again when it has been dropped.
    pub(super) fn mislead(&self) {
        // Acquire pairs with the Release of `Shared::settle`; Release with its Acquire, which comes behind the drop.
        if self.held.load(Ordering::Acquire) > 0 {
            self.misled.store(true, Ordering::Release);
        }
    }
}

impl Shared {
    /// Has what was removed, and [held](Retired::hold), dropped when nobody can be in it.
    pub(super) fn retire(self: &Arc<Self>, removed: Removed) {
        if removed.is_empty() {
            return;
        }
        let mut waiting = self.wiring.retired.lock();
        waiting.removed.stubs.extend(removed.stubs);
        waiting.removed.programs.extend(removed.programs);
        waiting.removed.maps.extend(removed.maps);
        waiting.removed.poked |= removed.poked;
        let many = waiting.removed.stubs.len() + waiting.removed.programs.len() > MOST;
        let asked = std::mem::replace(&mut waiting.asked, true);
        drop(waiting);
        if many {
            self.settle();
        }
        if !asked {
            let shared = Arc::clone(self);
            self.domain.defer(move || shared.settle_asked());
        }
    }

    fn settle_asked(self: &Arc<Self>) {
        self.wiring.retired.lock().asked = false;
        self.settle();
    }

    /// Synchronises the CPUs, once for all that waits; then it waits for readers only.
    pub(crate) fn settle(self: &Arc<Self>) {
        let removed = std::mem::take(&mut self.wiring.retired.lock().removed);
        if removed.is_empty() {
            return;
        }
        if removed.poked && self.arena.sync_cores().is_err() {
            // The system has taken back what it allowed: some CPU may run into this for ever.
            std::mem::forget(removed);
            return;
        }
        // Stubs wait for readers by themselves, from now on.
        drop(removed.stubs);
        let (programs, maps) = (removed.programs, removed.maps);
        if !programs.is_empty() || !maps.is_empty() {
            let shared = Arc::clone(self);
            self.domain.call(Grace::Both, move || {
                let count = programs.len() + maps.len();
                drop((programs, maps));
                let retired = &shared.wiring.retired;
                retired.held.fetch_sub(count, Ordering::Release);
                if retired.misled.swap(false, Ordering::Acquire) {
                    shared.look_for_rings();
                }
            });
        }
    }
}
