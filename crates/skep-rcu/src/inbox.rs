//! What is handed to the keeper, and how it sleeps without missing any.
//!
//! ```text
//!   push ──> fresh, news = true ──(parked?)──> wake        ask (synchronize) ──> wanted, news = true ──> wake
//!                     │
//!   keeper: take ─────┘  stamp, scan, run what is due;  announce ──> those who wait look again
//!           park: news? stay awake : parked = true, sleep
//! ```
//!
//! Invariant: `parked` is true only while the keeper sleeps or is about to, and `news` is false then. Whoever adds
//! something clears `parked` under the same lock, and only he who cleared it wakes: a burst of calls costs one
//! wake-up.
//!
//! Work of a kind of which older work is known to be held up by readers is no news: it would wait behind that
//! anyway, and a stream of calls must not keep a keeper from pausing. It is taken by the next turn.
//!
//! That the last handle is gone is noted under the same lock, and is news. So a `take` that finds it noted has
//! everything that was ever queued, and after one that does not, `park` returns at once.
//!
//! The lock is a leaf: nothing is waited for, called or dropped while it is held.
//!
//! What would break it: looking for news and setting `parked` under two different locks, stamping before taking, or a
//! keeper that asks before `take` whether the last handle is gone: `take` clears the news that it has gone since.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use crate::readers::{FLAVOURS, NORMAL, SLEEPABLE};
use crate::sync::{AtomicBool, Condvar, Event, Mutex, MutexGuard, Ordering, lock};

/// Something to run once.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Which grace periods something waits for: the flavours by index.
pub(crate) const GRACES: [&[usize]; 3] = [&[NORMAL], &[SLEEPABLE], &[NORMAL, SLEEPABLE]];

/// Queued work without a stamp: whatever it says was unlinked had been unlinked when it was put here.
#[derive(Default)]
pub(crate) struct Fresh {
    /// One queue for each of [`GRACES`].
    pub(crate) after: [Vec<Work>; GRACES.len()],
    /// Waits for nothing.
    pub(crate) soon: Vec<Work>,
}

/// What [`Inbox::take`] found.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) any: bool,
    /// The domain's last handle is gone: this was all, and nothing comes any more.
    pub(crate) last: bool,
}

/// Where work is queued.
#[derive(Clone, Copy)]
pub(crate) enum Queue {
    /// After a grace period: an index of [`GRACES`].
    After(usize),
    Soon,
}

/// Who runs the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nobody needed to yet.
    Idle,
    /// Some thread is starting the keeper.
    Starting,
    Keeper,
    /// The keeper could not be started, that many times in a row: whoever calls.
    Callers {
        failures: u32,
    },
}

pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    /// The keeper sleeps here.
    work: Event,
    /// Some chore was poll_requested. Apart from the state: a kick takes no lock.
    poll_requested: AtomicBool,
    /// Somebody scanned without telling those who wait.
    notification_due: AtomicBool,
    /// Those who wait for the keeper sleep here.
    done: Condvar,
}

pub(crate) struct InboxState {
    fresh: Fresh,
    news: bool,
    parked: bool,
    /// The domain's last handle is gone.
    closed: bool,
    /// For each of [`GRACES`], whether the keeper has older work than any in `fresh` that it could not run.
    held_up: [bool; GRACES.len()],
    waiters: usize,
    /// The largest cookies that anybody waits for.
    wanted: [u64; FLAVOURS],
    pub(crate) mode: Mode,
    /// How often membarrier failed, and how the last time.
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

    /// Queues work and wakes the keeper if it sleeps. Returns who will run it.
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

    /// The domain's last handle is gone: the keeper ends when it has run everything. Returns who runs it.
    pub(crate) fn close(&self) -> Mode {
        let mut state = self.lock();
        let mode = state.mode;
        state.closed = true;
        self.tell(state);
        mode
    }

    /// Takes all that is queued; what it is exchanged for must be empty and lends its memory.
    pub(crate) fn take(&self, empty: &mut Fresh) -> Taken {
        let mut state = self.lock();
        state.news = false;
        mem::swap(&mut state.fresh, empty);
        Taken { any: !empty.is_empty(), last: state.closed }
    }

    /// Whether something was added since the last `take`.
    pub(crate) fn has_news(&self) -> bool {
        self.lock().news
    }

    /// Sleeps until there is news, or for so long. Returns at once if there is any. `true` where there is.
    ///
    /// `held_up` says which kinds of work the keeper has and could not run; if any, it must not sleep for ever.
    pub(crate) fn park(&self, at_most: Option<Duration>, held_up: [bool; GRACES.len()]) -> bool {
        debug_assert!(at_most.is_some() || held_up == [false; GRACES.len()]);
        // Before looking for anything: what comes later changes it.
        let seen = self.work.now();
        let mut state = self.lock();
        // What came when its kind was held up, and no longer is, was no news then.
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
        // A spurious wake-up is a turn for nothing, no more.
        self.work.wait(seen, at_most);
        let mut state = self.lock();
        state.parked = false;
        state.news
    }

    /// Says that some chore is to be done, and wakes the keeper. Takes no lock.
    pub(crate) fn request_poll(&self) {
        // Release: pairs with `take_poll_requests`, for what the chore will find.
        self.poll_requested.store(true, Ordering::Release);
        self.work.wake();
    }

    /// Whether there were kicks since the last time.
    pub(crate) fn take_poll_requests(&self) -> bool {
        // AcqRel: as above. Most turns find none and need not write.
        self.is_poll_requested() && self.poll_requested.swap(false, Ordering::AcqRel)
    }

    fn is_poll_requested(&self) -> bool {
        // Acquire: pairs with `kick`.
        self.poll_requested.load(Ordering::Acquire)
    }

    /// A scan has found something, and whoever made it may take no lock: the keeper will tell those who wait. It may have looked
    /// for what passed already, and be about to sleep, so it is woken.
    pub(crate) fn defer_notification(&self) {
        // Release: pairs with `take_deferred_notification`, for what the scan published.
        self.notification_due.store(true, Ordering::Release);
        self.work.wake();
    }

    /// Whether those who wait have not been told of what has passed.
    pub(crate) fn take_deferred_notification(&self) -> bool {
        // Acquire, AcqRel: as above.
        self.notification_due.load(Ordering::Acquire) && self.notification_due.swap(false, Ordering::AcqRel)
    }

    /// Sleeps for so long, or until there is deferred work or somebody asks; calls are no news meanwhile, and the next
    /// turn takes them.
    pub(crate) fn nap(&self, time: Duration) {
        self.park(Some(time), [true; GRACES.len()]);
    }

    /// Whether somebody waits for cookies larger than these.
    pub(crate) fn is_wanted(&self, passed: impl Fn(u64, usize) -> bool) -> bool {
        let state = self.lock();
        state.waiters > 0 && (0..FLAVOURS).any(|flavour| !passed(state.wanted[flavour], flavour))
    }

    /// Lets those who wait look again.
    pub(crate) fn notify_waiters(&self) {
        let state = self.lock();
        if state.waiters > 0 {
            drop(state);
            self.done.notify_all();
        }
    }

    /// Notes that membarrier failed. Those who wait are told.
    pub(crate) fn note_membarrier_failure(&self, errno: i32) {
        let mut state = self.lock();
        state.membarrier_failures += 1;
        state.errno = errno;
        drop(state);
        self.done.notify_all();
    }

    /// Says who runs the work from now on.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.lock().mode = mode;
        self.done.notify_all();
    }

    /// Waits until `over` of the state says so; it is asked again after every turn of the keeper that got anywhere.
    /// `cookie` is what it waits for, if that is a grace period.
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

/// Stamped batches of work, oldest first, one queue for each of [`GRACES`].
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

    /// For each of [`GRACES`], whether there is any.
    pub(crate) fn held_up(&self) -> [bool; GRACES.len()] {
        self.0.each_ref().map(|queue| !queue.is_empty())
    }
}

#[cfg(all(test, loom))]
mod models;
