//! Background tasks: work that the keeper polls, and that any thread can wake without taking a lock.
//!
//! ```text
//!   wake ──> the task's own flag ──> the inbox's flag ──> wakes the keeper     (atomics and a futex: for signal handlers too)
//!   keeper: polls all tasks that were woken or are due; each returns when it is due again
//! ```
//!
//! The list of tasks is behind a leaf lock: it is held for a look at the list, never while a task is polled.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// Work that a domain's keeper polls; see [`Domain::attach`](crate::Domain::attach).
pub trait BackgroundTask: Send + Sync {
    /// Does what is due, and returns the time until the next poll at the latest; `None` if the task only needs a poll
    /// after a [wake](crate::TaskHandle::wake).
    ///
    /// Runs on the keeper or, in a domain without a keeper, on a thread that calls the domain. Polls of one task never
    /// overlap. A poll must not wait for readers. A panic is counted and otherwise ignored.
    fn poll(&self) -> Option<Duration>;
}

/// The background tasks of a domain.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<List>);

#[derive(Default)]
struct List {
    entries: Vec<Arc<Entry>>,
    /// How often an entry was removed and the last one moved into its place.
    removed: u64,
    /// Sweeps over the list so far.
    sweeps: u64,
}

/// One attached task.
pub(crate) struct Entry {
    task: Arc<dyn BackgroundTask>,
    woken: AtomicBool,
    /// The sweep that polled it last. Under the list's lock.
    sweep: AtomicU64,
    /// When it is due without a wake.
    due: Mutex<Option<Instant>>,
}

impl Entry {
    pub(crate) fn new(task: Arc<dyn BackgroundTask>) -> Arc<Self> {
        let (woken, sweep) = (AtomicBool::new(false), AtomicU64::new(0));
        Arc::new(Self { task, woken, sweep, due: Mutex::new(None) })
    }

    /// Marks the task as woken. Returns whether it was not.
    pub(crate) fn wake(&self) -> bool {
        // AcqRel, and always an exchange: pairs with the swap in `poll`, for what the task will find. A load that skips
        // the exchange would let that swap miss what this thread stored before.
        !self.woken.swap(true, Ordering::AcqRel)
    }
}

impl Tasks {
    pub(crate) fn add(&self, entry: &Arc<Entry>) {
        lock(&self.0).entries.push(Arc::clone(entry));
    }

    /// Removes an entry. The caller drops it outside the lock.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let mut tasks = lock(&self.0);
        let place = tasks.entries.iter().position(|other| Arc::ptr_eq(other, entry));
        tasks.removed += 1;
        place.map(|place| tasks.entries.swap_remove(place))
    }

    /// Polls the tasks that are due and, if `woken`, those that were woken. Returns how many panicked.
    ///
    /// Allocates nothing: a task may have been woken because there is no memory.
    pub(crate) fn poll_due(&self, woken: bool) -> u64 {
        let now = Instant::now();
        let (sweep, mut removed) = {
            let mut tasks = lock(&self.0);
            tasks.sweeps += 1;
            (tasks.sweeps, tasks.removed)
        };
        let (mut place, mut panicked) = (0, 0);
        loop {
            let next = {
                let tasks = lock(&self.0);
                if tasks.removed != removed {
                    // An entry that is still to be polled may have moved to a place that this sweep has passed.
                    (place, removed) = (0, tasks.removed);
                }
                // Relaxed (all): under the lock. `woken` is not, but a later wake starts another sweep.
                let wants = |entry: &Arc<Entry>| {
                    entry.sweep.load(Ordering::Relaxed) != sweep
                        && ((woken && entry.woken.load(Ordering::Relaxed))
                            || lock(&entry.due).is_some_and(|due| due <= now))
                };
                let rest = tasks.entries.get(place..).unwrap_or_default();
                let Some(further) = rest.iter().position(wants) else { return panicked };
                place += further;
                let entry = &tasks.entries[place];
                entry.sweep.store(sweep, Ordering::Relaxed);
                Arc::clone(entry)
            };
            panicked += u64::from(!poll(&next));
        }
    }

    /// The time until the next task is due.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let tasks = lock(&self.0);
        let soonest = tasks.entries.iter().filter_map(|entry| *lock(&entry.due)).min()?;
        Some(soonest.saturating_duration_since(Instant::now()))
    }
}

/// Polls one task. `false` if it panicked.
fn poll(entry: &Entry) -> bool {
    // Before the poll: a wake during it asks for another.
    entry.woken.swap(false, Ordering::AcqRel);
    let after = catch_unwind(AssertUnwindSafe(|| entry.task.poll()));
    let pause = *after.as_ref().unwrap_or(&None);
    *lock(&entry.due) = pause.map(|pause| Instant::now() + pause);
    match after {
        Ok(_) => true,
        Err(panic) => {
            discard(panic);
            false
        }
    }
}

/// Drops the payload of a panic. If that panics in turn, the second payload leaks.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
}
