//! Background tasks: work that the keeper polls, and that any thread can wake without taking a lock.
//!
//! ```text
//!   wake ──> the task's own flag ──> the inbox's flag ──> wakes the keeper     (atomics and a futex: for signal handlers too)
//!   keeper: polls all tasks that were woken or are due; each returns when it is due again
//! ```
//!
//! The list of tasks is behind a leaf lock: it is held for a look at the list, never while a task is polled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::keeper::Keeper;
use crate::sync::lock;

/// Work that a domain's keeper polls; see [`Domain::attach`](crate::Domain::attach).
pub trait BackgroundTask: Send + Sync {
    /// Does what is due, and returns the time until the next poll at the latest; `None` if the task only needs a poll after
    /// a [wake](TaskHandle::wake).
    ///
    /// Runs on the keeper or, in a domain without a keeper, on a thread that calls the domain. Polls of one task never
    /// overlap. A poll must not wait for readers. A panic is counted and otherwise ignored.
    fn poll(&self) -> Option<Duration>;
}

/// Keeps a background task attached to its domain until it is dropped; made by
/// [`Domain::attach`](crate::Domain::attach).
///
/// Dropping it does not wait: a poll in progress ends later, and the keeper holds the task until then.
pub struct TaskHandle {
    keeper: Arc<Keeper>,
    entry: Arc<Entry>,
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

struct Entry {
    task: Arc<dyn BackgroundTask>,
    woken: AtomicBool,
    /// The sweep that polled it last. Under the list's lock.
    sweep: AtomicU64,
    /// When it is due without a wake.
    due: Mutex<Option<Instant>>,
}

impl TaskHandle {
    pub(crate) fn new(keeper: Arc<Keeper>, task: Arc<dyn BackgroundTask>) -> Self {
        let (woken, sweep) = (AtomicBool::new(false), AtomicU64::new(0));
        let entry = Arc::new(Entry { task, woken, sweep, due: Mutex::new(None) });
        // In a forked child another thread of the parent may have held the lock.
        if keeper.is_original() {
            lock(&keeper.tasks().0).entries.push(Arc::clone(&entry));
        }
        Self { keeper, entry }
    }

    /// Makes the keeper poll the task soon. Takes no lock and allocates nothing. Costs one atomic exchange if the task was
    /// woken already, else a system call.
    pub fn wake(&self) {
        // AcqRel, and always an exchange: pairs with the swap in `poll`, for what the task will find. A load that skips the
        // exchange would let that swap miss what this thread stored before.
        if !self.entry.woken.swap(true, Ordering::AcqRel) {
            self.keeper.request_poll();
        }
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        if self.keeper.is_original() {
            let gone = {
                let mut tasks = lock(&self.keeper.tasks().0);
                let place = tasks.entries.iter().position(|entry| Arc::ptr_eq(entry, &self.entry));
                tasks.removed += 1;
                place.map(|place| tasks.entries.swap_remove(place))
            };
            drop(gone); // outside the lock: it may drop the task
        }
    }
}

impl Tasks {
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
            crate::keeper::discard(panic);
            false
        }
    }
}
