//! Stubs, programs and maps that no new run can reach, while earlier runs may still use them.

use super::{Dispatch, Removed};
use skep_rcu::Grace;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Above this number of stubs and programs, the thread that retires the next one synchronises the CPUs itself.
const MOST: usize = 1024;

/// Objects that wait for the CPUs to be synchronised.
#[derive(Default)]
pub(super) struct Retired {
    waiting: Mutex<Waiting>,
    /// The number of removed programs and maps that are not dropped yet. Raised under the dispatch's lock.
    held: AtomicUsize,
    /// Whether a collection ran meanwhile, which counted these as the host's.
    misled: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    removed: Removed,
    /// Whether the keeper was woken.
    asked: bool,
}

impl Removed {
    fn is_empty(&self) -> bool {
        let none = self.stubs.is_empty() && self.programs.is_empty() && self.maps.is_empty();
        none && self.hooks.is_empty()
    }
}

impl Retired {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Retired {
    /// Counts objects that were just removed, under the dispatch's lock, and will be retired.
    pub(super) fn hold(&self, removed: &Removed) {
        // Relaxed: the collector takes the same lock.
        self.held
            .fetch_add(removed.programs.len() + removed.maps.len() + removed.hooks.len(), Ordering::Relaxed);
    }

    /// A collection begins, under the dispatch's lock: objects held here count as the host's. If there are any, another
    /// collection follows when they have been dropped.
    pub(super) fn count_as_host(&self) {
        // Acquire pairs with the Release of `Dispatch::settle`; Release with its Acquire, which comes after the drop.
        if self.held.load(Ordering::Acquire) > 0 {
            self.misled.store(true, Ordering::Release);
        }
    }
}

impl Dispatch {
    /// Drops removed and [held](Retired::hold) objects when no run can be in them.
    pub(super) fn retire(self: &Arc<Self>, removed: Removed) {
        if removed.is_empty() {
            return;
        }
        let mut waiting = self.retired.lock();
        waiting.removed.stubs.extend(removed.stubs);
        waiting.removed.programs.extend(removed.programs);
        waiting.removed.maps.extend(removed.maps);
        waiting.removed.hooks.extend(removed.hooks);
        waiting.removed.poked |= removed.poked;
        let many =
            waiting.removed.stubs.len() + waiting.removed.programs.len() + waiting.removed.hooks.len() > MOST;
        let asked = std::mem::replace(&mut waiting.asked, true);
        drop(waiting);
        if many {
            self.settle();
        }
        if !asked {
            let dispatch = Arc::clone(self);
            self.domain.defer(move || dispatch.settle_asked());
        }
    }

    fn settle_asked(self: &Arc<Self>) {
        self.retired.lock().asked = false;
        self.settle();
    }

    /// Synchronises the CPUs once for all waiting objects, which then wait for a grace period only.
    pub(crate) fn settle(self: &Arc<Self>) {
        let removed = std::mem::take(&mut self.retired.lock().removed);
        if removed.is_empty() {
            return;
        }
        if removed.poked && self.arena.sync_cores().is_err() {
            // The system has revoked its permission: a CPU may reach these at any time later, so they are kept for
            // ever.
            std::mem::forget(removed);
            return;
        }
        // From now on stubs wait for readers by themselves.
        drop(removed.stubs);
        let (programs, maps, hooks) = (removed.programs, removed.maps, removed.hooks);
        if !programs.is_empty() || !maps.is_empty() || !hooks.is_empty() {
            let dispatch = Arc::clone(self);
            self.domain.call(Grace::Both, move || {
                let count = programs.len() + maps.len() + hooks.len();
                drop((programs, maps, hooks));
                let retired = &dispatch.retired;
                retired.held.fetch_sub(count, Ordering::Release);
                if retired.misled.swap(false, Ordering::Acquire) {
                    dispatch.request_collection();
                }
            });
        }
    }
}
