//! The keeper's inbox: where work is queued, and how the keeper sleeps without missing any.
//!
//! ```text
//!   push ──> fresh, news = true ──(parked?)──> wake        wait ──> wanted, news = true ──> wake
//!                     │
//!   keeper: take ─────┘  stamp, scan, run what is due;  notify_waiters ──> waiting threads check again
//!           park: news? stay awake : parked = true, sleep
//! ```
//!
//! Invariant: `parked` is true only while the keeper sleeps or is about to, and `news` is false then. A thread that
//! adds work clears `parked` under the same lock, and only the thread that cleared it wakes the keeper: a burst of
//! calls costs one wake-up.
//!
//! Work is no news if readers are known to block older work of its kind: it would wait behind that anyway, and a
//! stream of calls must not keep the keeper from pausing. The next turn takes it.
//!
//! Closing the domain is noted under the same lock, and is news. So a `take` that finds the domain closed has all
//! work that was ever queued, and after one that does not, `park` returns at once.
//!
//! The lock is a leaf: the holder waits for nothing, calls nothing and drops nothing.
//!
//! What would break it: checking for news and setting `parked` under two different locks; stamping before taking; a
//! keeper that checks whether the domain is closed before `take`, because `take` clears the news of the closing.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use crate::readers::{FLAVOURS, NORMAL, SLEEPABLE};
use crate::sync::{AtomicBool, Condvar, Event, Mutex, MutexGuard, Ordering, lock};

/// A closure that runs once.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// For each kind of grace period, the flavours that it waits for, by index.
pub(crate) const GRACES: [&[usize]; 3] = [&[NORMAL], &[SLEEPABLE], &[NORMAL, SLEEPABLE]];

/// Queued work without a stamp: its caller had unlinked everything before it was queued.
#[derive(Default)]
pub(crate) struct Fresh {
    /// One queue for each of [`GRACES`].
    pub(crate) after: [Vec<Work>; GRACES.len()],
    /// Waits for no grace period.
    pub(crate) soon: Vec<Work>,
}

/// The result of [`Inbox::take`].
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) any: bool,
    /// The domain is closed: this was all the work, and no more can come.
    pub(crate) last: bool,
}

/// The queue of a piece of work.
#[derive(Clone, Copy)]
pub(crate) enum Queue {
    /// After a grace period: an index of [`GRACES`].
    After(usize),
    Soon,
}

/// Which threads run the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// None: no work has come yet.
    Idle,
    /// Some thread is starting the keeper.
    Starting,
    Keeper,
    /// The threads that call the domain: the keeper could not be started that many times in a row.
    Callers {
        failures: u32,
    },
}

pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    /// The keeper sleeps here.
    work: Event,
    /// A task was woken. Outside the lock, because waking a task takes no lock.
    poll_requested: AtomicBool,
    /// A scan without a lock has published something; the keeper must notify the waiters.
    notification_due: AtomicBool,
    /// Threads that wait for the keeper sleep here.
    done: Condvar,
}

pub(crate) struct InboxState {
    fresh: Fresh,
    news: bool,
    parked: bool,
    /// The domain's last counted handle is gone.
    closed: bool,
    /// For each of [`GRACES`], whether the keeper has work, older than any in `fresh`, that readers block.
    held_up: [bool; GRACES.len()],
    waiters: usize,
    /// The largest cookies that a thread waits for.
    wanted: [u64; FLAVOURS],
    pub(crate) mode: Mode,
    /// How often membarrier failed, and the error number of the last failure.
    pub(crate) membarrier_failures: u64,
    pub(crate) errno: i32,
    pub(crate) wakes: u64,
}

impl Inbox {
    pub(crate) fn new(mode: Mode) -> Self {
        let state = InboxState {
            fresh: Fresh::default(),
            news: false,
            parked: false,
            closed: false,
            held_up: [false; GRACES.len()],
            waiters: 0,
            wanted: [0; FLAVOURS],
            mode,
            membarrier_failures: 0,
            errno: 0,
            wakes: 0,
        };
        Self {
            state: Mutex::new(state),
            work: Event::default(),
            poll_requested: AtomicBool::new(false),
            notification_due: AtomicBool::new(false),
            done: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, InboxState> {
        lock(&self.state)
    }

    /// Queues work and wakes the keeper if it sleeps. Returns which threads will run it.
    pub(crate) fn push(&self, queue: Queue, work: Work) -> Mode {
        let mut state = self.lock();
        let mode = state.mode;
        match queue {
            Queue::After(grace) => {
                state.fresh.after[grace].push(work);
                if state.held_up[grace] {
                    return mode;
                }
            }
            Queue::Soon => state.fresh.soon.push(work),
        }
        self.tell(state);
        mode
    }

    /// Closes the domain: the keeper ends when it has run everything. Returns which threads run it.
    pub(crate) fn close(&self) -> Mode {
        let mut state = self.lock();
        let mode = state.mode;
        state.closed = true;
        self.tell(state);
        mode
    }

    /// Takes all queued work in exchange for an empty `Fresh`, whose buffers are reused.
    pub(crate) fn take(&self, empty: &mut Fresh) -> Taken {
        let mut state = self.lock();
        state.news = false;
        mem::swap(&mut state.fresh, empty);
        Taken { any: !empty.is_empty(), last: state.closed }
    }

    /// Whether work was added since the last `take`.
    pub(crate) fn has_news(&self) -> bool {
        self.lock().news
    }

    /// Sleeps until there is news, at most for the given time. Returns at once if there is news. Returns whether
    /// there is.
    ///
    /// `held_up` says which kinds of work the keeper has that readers block; if there is any, it must not sleep
    /// without a limit.
    pub(crate) fn park(&self, at_most: Option<Duration>, held_up: [bool; GRACES.len()]) -> bool {
        debug_assert!(at_most.is_some() || held_up == [false; GRACES.len()]);
        // Before any check: every later event changes it.
        let seen = self.work.now();
        let mut state = self.lock();
        // Work that was queued while its kind was blocked was not news; now it is.
        let overlooked = state.fresh.after.iter().zip(held_up).any(|(work, held)| !held && !work.is_empty());
        state.held_up = held_up;
        if state.news
            || overlooked
            || self.is_poll_requested()
            || self.notification_due.load(Ordering::Acquire)
        {
            return true;
        }
        state.parked = true;
        drop(state);
        // A spurious wake-up costs one useless turn.
        self.work.wait(seen, at_most);
        let mut state = self.lock();
        state.parked = false;
        state.news
    }

    /// Requests that the keeper polls the background tasks, and wakes it. Takes no lock.
    pub(crate) fn request_poll(&self) {
        // Release: pairs with `take_poll_requests`, for what the task will find.
        self.poll_requested.store(true, Ordering::Release);
        self.work.wake();
    }

    /// Whether a poll was requested since the last call.
    pub(crate) fn take_poll_requests(&self) -> bool {
        // AcqRel: as above. Most turns find no request and need not write.
        self.is_poll_requested() && self.poll_requested.swap(false, Ordering::AcqRel)
    }

    fn is_poll_requested(&self) -> bool {
        // Acquire: pairs with `request_poll`.
        self.poll_requested.load(Ordering::Acquire)
    }

    /// For a thread that has scanned but may take no lock: the keeper notifies the waiters in its place. It is woken,
    /// because it may have checked for passed cookies already and be about to sleep.
    pub(crate) fn defer_notification(&self) {
        // Release: pairs with `take_deferred_notification`, for what the scan published.
        self.notification_due.store(true, Ordering::Release);
        self.work.wake();
    }

    /// Whether the waiters are still to be notified.
    pub(crate) fn take_deferred_notification(&self) -> bool {
        // Acquire, AcqRel: as above.
        self.notification_due.load(Ordering::Acquire) && self.notification_due.swap(false, Ordering::AcqRel)
    }

    /// Sleeps for the given time; deferred work and waiting threads end it early. Calls do not: the next turn takes
    /// them.
    pub(crate) fn nap(&self, time: Duration) {
        self.park(Some(time), [true; GRACES.len()]);
    }

    /// Whether a thread waits for cookies that have not passed.
    pub(crate) fn is_wanted(&self, passed: impl Fn(u64, usize) -> bool) -> bool {
        let state = self.lock();
        state.waiters > 0 && (0..FLAVOURS).any(|flavour| !passed(state.wanted[flavour], flavour))
    }

    /// Makes waiting threads check again.
    pub(crate) fn notify_waiters(&self) {
        let state = self.lock();
        if state.waiters > 0 {
            drop(state);
            self.done.notify_all();
        }
    }

    /// Notes that membarrier failed, and notifies the waiters.
    pub(crate) fn note_membarrier_failure(&self, errno: i32) {
        let mut state = self.lock();
        state.membarrier_failures += 1;
        state.errno = errno;
        drop(state);
        self.done.notify_all();
    }

    /// Sets which threads run the work from now on.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.lock().mode = mode;
        self.done.notify_all();
    }

    /// Waits until `over` returns a result; it is checked again after each turn that made progress. `cookie` is the
    /// grace period that the caller waits for, if any.
    pub(crate) fn wait_until<R>(
        &self,
        cookie: Option<(u64, &[usize])>,
        mut over: impl FnMut(&InboxState) -> Option<R>,
    ) -> R {
        let mut state = self.lock();
        if let Some(result) = over(&state) {
            return result;
        }
        if let Some((cookie, flavours)) = cookie {
            for flavour in flavours {
                state.wanted[*flavour] = state.wanted[*flavour].max(cookie);
            }
        }
        state.waiters += 1;
        self.tell(state);
        let mut state = self.lock();
        loop {
            if let Some(result) = over(&state) {
                state.waiters -= 1;
                return result;
            }
            state = self.done.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn tell(&self, mut state: MutexGuard<'_, InboxState>) {
        state.news = true;
        let wake = mem::take(&mut state.parked);
        state.wakes += u64::from(wake);
        drop(state);
        if wake {
            self.work.wake();
        }
    }
}

impl Fresh {
    pub(crate) fn is_empty(&self) -> bool {
        self.soon.is_empty() && self.after.iter().all(Vec::is_empty)
    }
}

/// Stamped batches of work, oldest first, with one queue for each of [`GRACES`].
#[derive(Default)]
pub(crate) struct Batches([VecDeque<(u64, Vec<Work>)>; GRACES.len()]);

impl Batches {
    pub(crate) fn add(&mut self, grace: usize, cookie: u64, batch: Vec<Work>) {
        self.0[grace].push_back((cookie, batch));
    }

    /// The next batch whose grace period is over.
    pub(crate) fn next_due(&mut self, passed: impl Fn(u64, usize) -> bool) -> Option<Vec<Work>> {
        for (queue, flavours) in self.0.iter_mut().zip(GRACES) {
            let due = |cookie: u64| flavours.iter().all(|flavour| passed(cookie, *flavour));
            if queue.front().is_some_and(|(cookie, _)| due(*cookie)) {
                return queue.pop_front().map(|(_, batch)| batch);
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }

    /// For each of [`GRACES`], whether there is any batch.
    pub(crate) fn held_up(&self) -> [bool; GRACES.len()] {
        self.0.each_ref().map(|queue| !queue.is_empty())
    }
}

#[cfg(all(test, loom))]
mod models;
