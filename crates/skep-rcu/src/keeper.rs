//! The keeper: the one thread that runs a domain's callbacks, and the callers that replace it.
//!
//! A *turn* takes the queued work, stamps it with a cookie, runs deferred work, polls background tasks, scans the
//! readers and runs every batch whose grace period is over. The keeper takes turns while there is anything to do:
//!
//! ```text
//!            push / wait ─> wakes it                    nothing pending: nap 1 ms, then sleep until woken
//!   ┌────────> turn ──> news or progress? ──> turn       blocked by readers: sleep 50 us, 100 us ... 10 ms
//!   └── thread "skep-keeper", started by the first need; ends when the last handle is gone and all has run
//! ```
//!
//! The nap collects calls that come one after the other: only deferred work and waiting threads end it early. Waking
//! the keeper for each call cost a thread that loads and drops programs more than the programs did.
//!
//! If the thread cannot be started, the threads that call `call`, `defer`, `try_pass`, `synchronize` or `barrier`
//! take the turns. The lock of the batches is then the token: the thread that holds it takes the turn; a thread that
//! finds it held goes on, because the holder checks for news again after it has released the lock.
//!
//! Invariants: work is stamped after it was taken from the inbox, and so after everything its caller had unlinked;
//! batches of one kind run in order, one at a time; each piece of work runs exactly once, whether or not others
//! panic.
//!
//! A forked child never takes a lock here: another thread of the parent may have held it.

use std::cell::Cell;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use crate::fork::Witness;
use crate::inbox::{Batches, Fresh, Inbox, Mode, Queue, Taken, Work};
use crate::readers::Readers;
use crate::signals;
use crate::stats::{KeeperState, Stats};
use crate::sync::lock;
use crate::tasks::{Tasks, discard};

/// The first pause while readers block something.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// The pauses double up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// How long calls collect after others have run.
const NAP: Duration = Duration::from_millis(1);

pub(crate) struct Keeper {
    readers: Arc<Readers>,
    witness: Witness,
    inbox: ManuallyDrop<Inbox>,
    batches: ManuallyDrop<Mutex<Batches>>,
    tasks: ManuallyDrop<Tasks>,
    /// Whether a thread may be started.
    allowed: bool,
    stack: Option<usize>,
    /// The number of counted handles of the domain.
    handles: AtomicUsize,
    queued: AtomicU64,
    finished: AtomicU64,
    panicked: AtomicU64,
    scans: AtomicU64,
    grace_periods: AtomicU64,
}

/// Settings that a domain's builder passes on.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) thread: bool,
    pub(crate) stack: Option<usize>,
}

/// The outcome of a turn.
struct Turn {
    /// Whether any work was taken or run, or any cookie passed.
    progress: bool,
    /// Whether the domain is closed, so that no more work can come.
    last: bool,
}

thread_local! {
    /// The keeper whose work this thread is running.
    static RUNNING: Cell<*const Keeper> = const { Cell::new(ptr::null()) };
}

impl Keeper {
    pub(crate) fn new(readers: Arc<Readers>, witness: Witness, settings: Settings) -> Self {
        let mode = if settings.thread { Mode::Idle } else { Mode::Callers { failures: 0 } };
        Self {
            readers,
            witness,
            inbox: ManuallyDrop::new(Inbox::new(mode)),
            batches: ManuallyDrop::new(Mutex::new(Batches::default())),
            tasks: ManuallyDrop::new(Tasks::default()),
            allowed: settings.thread,
            stack: settings.stack,
            handles: AtomicUsize::new(1),
            queued: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            grace_periods: AtomicU64::new(0),
        }
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// A task was woken. Takes no lock.
    pub(crate) fn request_poll(&self) {
        if self.is_original() {
            self.inbox.request_poll();
        }
    }

    /// As [`scan`](Self::scan), but takes no lock and allocates nothing, so any code may call it.
    pub(crate) fn scan_without_lock(&self) -> bool {
        let advanced = self.is_original() && self.readers.scan().unwrap_or(false);
        // Relaxed: statistics.
        self.scans.fetch_add(1, Ordering::Relaxed);
        if advanced {
            self.grace_periods.fetch_add(1, Ordering::Relaxed);
            self.inbox.defer_notification();
        }
        advanced
    }

    #[inline]
    pub(crate) fn is_original(&self) -> bool {
        self.witness.is_original()
    }

    /// Whether this thread is running this keeper's work.
    pub(crate) fn is_running_here(&self) -> bool {
        RUNNING.get() == ptr::from_ref(self)
    }

    /// Whether this thread may wait for another one's slot: it is no domain's keeper, and the other threads exist.
    pub(crate) fn may_wait_here(&self) -> bool {
        RUNNING.get().is_null() && self.is_original()
    }

    pub(crate) fn add_handle(&self) {
        // Relaxed: the caller has a handle, so the count is not 0.
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops one handle. After the last one all queued work runs at once: no thread is inside any more.
    pub(crate) fn drop_handle(&self) {
        // AcqRel: the last drop comes after everything that was done through other handles.
        if self.handles.fetch_sub(1, Ordering::AcqRel) != 1 || !self.is_original() {
            return;
        }
        self.readers.close();
        match self.inbox.close() {
            // `Starting` is impossible: a thread that starts the keeper has a handle.
            Mode::Idle | Mode::Starting | Mode::Keeper => {}
            Mode::Callers { .. } => self.help(),
        }
    }

    /// Queues work and makes sure that some thread runs it.
    pub(crate) fn queue(self: &Arc<Self>, queue: Queue, work: Work) {
        // Relaxed: statistics.
        self.queued.fetch_add(1, Ordering::Relaxed);
        match self.inbox.push(queue, work) {
            Mode::Keeper | Mode::Starting => {}
            Mode::Idle | Mode::Callers { .. } => {
                if !self.start() {
                    self.help();
                }
            }
        }
    }

    /// Starts the thread if necessary. Returns `false` if there is none and callers do its work.
    pub(crate) fn start(self: &Arc<Self>) -> bool {
        let mut state = self.inbox.lock();
        let failures = match state.mode {
            Mode::Keeper | Mode::Starting => return true,
            Mode::Idle => 0,
            // It may succeed later, but trying is expensive: try after 1, 2, 4, 8 ... calls.
            Mode::Callers { failures } => {
                let failures = failures.saturating_add(1);
                state.mode = Mode::Callers { failures };
                if !self.allowed || !failures.is_power_of_two() {
                    return false;
                }
                failures
            }
        };
        state.mode = Mode::Starting;
        drop(state);
        let keeper = Arc::clone(self);
        let mut thread = thread::Builder::new().name("skep-keeper".to_owned());
        if let Some(stack) = self.stack {
            thread = thread.stack_size(stack);
        }
        let started = signals::blocked(|| thread.spawn(move || keeper.run()).is_ok());
        self.inbox.set_mode(if started { Mode::Keeper } else { Mode::Callers { failures } });
        started
    }

    /// Takes turns in the keeper's place, as long as there is progress and no other thread does.
    pub(crate) fn help(&self) {
        loop {
            let mut batches = match self.batches.try_lock() {
                Ok(batches) => batches,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let turn = self.turn(&mut batches);
            drop(batches);
            // Checked after the lock is released: a thread that found it held had queued its work before.
            if !turn.progress && !self.inbox.has_news() {
                return;
            }
        }
    }

    /// Scans the readers once. Returns whether any cookie passed.
    pub(crate) fn scan(&self) -> Result<bool, i32> {
        let outcome = self.readers.scan();
        // Relaxed: statistics.
        self.scans.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(advanced) => {
                self.grace_periods.fetch_add(u64::from(advanced), Ordering::Relaxed);
                if advanced {
                    // The scanning thread notifies the waiters: the keeper may find nothing new afterwards.
                    self.inbox.notify_waiters();
                }
            }
            Err(errno) => self.inbox.note_membarrier_failure(errno),
        }
        outcome
    }

    pub(crate) fn stats(&self) -> Stats {
        let (mode, faults, wakes) = if self.is_original() {
            let state = self.inbox.lock();
            (state.mode, state.membarrier_failures, state.wakes)
        } else {
            (Mode::Callers { failures: 0 }, 0, 0)
        };
        // Relaxed, all: statistics. `finished` is read first, so that the difference is not negative.
        let finished = self.finished.load(Ordering::Relaxed);
        let queued = self.queued.load(Ordering::Relaxed);
        Stats {
            membarrier: !self.readers.barrier().readers_fence(),
            keeper: match mode {
                _ if !self.is_original() => KeeperState::Forked,
                Mode::Idle => KeeperState::NotNeededYet,
                Mode::Starting | Mode::Keeper => KeeperState::Running,
                Mode::Callers { .. } if self.allowed => KeeperState::Refused,
                Mode::Callers { .. } => KeeperState::Unwanted,
            },
            waiting: queued.saturating_sub(finished),
            finished,
            panicked: self.panicked.load(Ordering::Relaxed),
            cookies: self.readers.cookies(),
            grace_periods: self.grace_periods.load(Ordering::Relaxed),
            scans: self.scans.load(Ordering::Relaxed),
            wakes,
            membarrier_failures: faults,
        }
    }

    /// The thread's main function.
    fn run(self: Arc<Self>) {
        RUNNING.set(Arc::as_ptr(&self));
        let mut pause = SHORTEST_PAUSE;
        // Held until the thread ends. A caller may still be taking a turn from before this thread existed.
        let mut batches = lock(&self.batches);
        loop {
            let turn = self.turn(&mut batches);
            if turn.progress {
                pause = SHORTEST_PAUSE;
                if batches.is_empty() && !turn.last {
                    self.inbox.nap(NAP);
                }
                continue;
            }
            if turn.last && batches.is_empty() {
                return;
            }
            let pending = !batches.is_empty()
                || self.inbox.is_wanted(|cookie, flavour| self.readers.passed(cookie, flavour));
            let tasks = self.tasks.pause();
            let at_most = match (pending.then_some(pause), tasks) {
                (Some(pause), Some(tasks)) => Some(pause.min(tasks)),
                (pause, tasks) => pause.or(tasks),
            };
            if self.inbox.park(at_most, batches.held_up()) {
                pause = SHORTEST_PAUSE;
            } else {
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }

    /// Takes, stamps, polls, scans, runs.
    fn turn(&self, batches: &mut Batches) -> Turn {
        let mut fresh = Fresh::default();
        let Taken { any: mut progress, last } = self.inbox.take(&mut fresh);
        if fresh.after.iter().any(|work| !work.is_empty()) {
            let cookie = self.readers.cookie();
            for (grace, work) in fresh.after.iter_mut().enumerate().filter(|(_, work)| !work.is_empty()) {
                batches.add(grace, cookie, mem::take(work));
            }
        }
        self.run_all(fresh.soon);
        progress |= self.poll_tasks();
        let passed = |cookie, flavour| self.readers.is_closed() || self.readers.passed(cookie, flavour);
        if !batches.is_empty() || self.inbox.is_wanted(passed) {
            progress |= !self.readers.is_closed() && self.scan().unwrap_or(false);
        }
        while let Some(batch) = batches.next_due(passed) {
            self.run_all(batch);
            progress = true;
        }
        if self.inbox.take_deferred_notification() || progress {
            self.inbox.notify_waiters();
        }
        Turn { progress, last }
    }

    /// Polls background tasks. Returns whether any was woken.
    fn poll_tasks(&self) -> bool {
        let woken = self.inbox.take_poll_requests();
        let outer = RUNNING.replace(ptr::from_ref(self));
        let panicked = self.tasks.poll_due(woken);
        RUNNING.set(outer);
        // Relaxed: a statistic.
        self.panicked.fetch_add(panicked, Ordering::Relaxed);
        woken
    }

    fn run_all(&self, batch: Vec<Work>) {
        let outer = RUNNING.replace(ptr::from_ref(self));
        for work in batch {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                // Relaxed: statistics.
                self.panicked.fetch_add(1, Ordering::Relaxed);
                discard(panic);
            }
            self.finished.fetch_add(1, Ordering::Relaxed);
        }
        RUNNING.set(outer);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.is_original() {
            // SAFETY: dropped only here, and not used afterwards. In a forked child they leak: another thread of the
            // parent may have been changing them at the moment of the fork.
            unsafe {
                ManuallyDrop::drop(&mut self.inbox);
                ManuallyDrop::drop(&mut self.batches);
                ManuallyDrop::drop(&mut self.tasks);
            }
        }
    }
}
