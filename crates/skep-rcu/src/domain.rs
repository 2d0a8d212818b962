//! The public type: a domain, its settings, and its operations.

use std::fmt;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::barrier::Barrier;
use crate::claim;
use crate::error::Error;
use crate::fork::Witness;
use crate::inbox::{GRACES, InboxState, Mode, Queue};
use crate::keeper::{Keeper, Settings};
use crate::readers::{NORMAL, Readers, Record, SLEEPABLE};
use crate::section::{Reader, Section, SleepableSection};
use crate::stats::Stats;
use crate::task_handle::TaskHandle;
use crate::tasks::BackgroundTask;

/// The largest number of slots one domain can have.
pub const MAX_SLOTS: u32 = 1 << 16;

/// A set of readers, and of updaters that wait for them.
///
/// Cheap to clone; clones are handles of the same domain. Each thread that enters owns one of the domain's numbered
/// slots: it claims the lowest free one when it first enters and keeps it until the thread ends, until it calls
/// [`release`](Self::release), or until the domain is gone. A domain may have [shared](Builder::shared) slots beside,
/// which a thread has only while it is inside. Data indexed by slot needs [`limit`](Self::limit) elements.
///
/// When the last handle is dropped, no thread is inside: callbacks that still wait run at once, on the keeper.
/// Dropping a handle never waits.
pub struct Domain {
    pub(crate) readers: Arc<Readers>,
    pub(crate) keeper: Arc<Keeper>,
    /// Whether this handle keeps the domain open.
    counted: bool,
}

/// Settings of a [`Domain`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    slots: u32,
    shared: u32,
    membarrier: bool,
    keeper: bool,
    stack: Option<usize>,
}

/// Which readers a grace period waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grace {
    /// Readers in normal sections.
    Normal,
    /// Readers in sleepable sections.
    Sleepable,
    /// Both.
    Both,
}

/// A moment in the life of a domain. Once the cookie has passed, everything that was unlinked before it is unreachable.
///
/// Cookies of one domain are ordered: when one has passed, so have all earlier ones. A cookie says nothing about
/// other domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(u64);

impl Domain {
    /// A domain with default settings, which `slots` threads can use at once, with the numbers `0..slots`.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`] if `slots` is zero or larger than [`MAX_SLOTS`]; [`Error::ForkWitness`] if the system
    /// refuses a page.
    pub fn new(slots: u32) -> Result<Self, Error> {
        Self::builder().slots(slots).build()
    }

    /// Settings for a domain: 64 slots, membarrier(2) if the system has it, a keeper.
    pub fn builder() -> Builder {
        Builder { slots: 64, shared: 0, membarrier: true, keeper: true, stack: None }
    }

    /// Enters a normal section. A thread without a slot claims the lowest free one.
    ///
    /// Sections nest, and all have the same number until the thread gives its slot back. A nested section protects
    /// what the outermost one protects.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`] if other threads have claimed all slots and the thread may not [wait](Builder::shared) for
    /// one; [`Error::Unavailable`] if a thread without a slot enters from a destructor of thread-local data, or from a
    /// signal handler that interrupts a claim of the same thread; [`Error::NoMemory`].
    #[inline]
    pub fn enter(&self) -> Result<Section<'_>, Error> {
        let begin = |record: &Record| self.readers.enter(record, NORMAL);
        Ok(Section::entered(&self.readers, claim::claim(&self.readers, &self.keeper, begin)?))
    }

    /// Enters a normal section if this thread has a slot already; never claims one.
    #[inline]
    pub fn enter_if_known(&self) -> Option<Section<'_>> {
        let begin = |record: &Record| self.readers.enter(record, NORMAL);
        claim::find_to(&self.readers, begin).map(|record| Section::entered(&self.readers, record))
    }

    /// Enters a sleepable section: the thread may block in it for any time, and delays only sleepable grace periods.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    #[inline]
    pub fn enter_sleepable(&self) -> Result<SleepableSection<'_>, Error> {
        let begin = |record: &Record| self.readers.enter(record, SLEEPABLE);
        Ok(SleepableSection::entered(&self.readers, claim::claim(&self.readers, &self.keeper, begin)?))
    }

    /// This thread's reader, which enters without looking up the thread's slot again.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    #[inline(always)] // so that the compiler can keep it in registers
    pub fn reader(&self) -> Result<Reader<'_>, Error> {
        Ok(Reader::pinned(&self.readers, claim::claim(&self.readers, &self.keeper, Record::pin)?))
    }

    /// Gives this thread's slot back before the thread ends, for threads that will be idle for long.
    ///
    /// Returns `false`, and does nothing, if the thread has no slot here or still has a section or a reader.
    pub fn release(&self) -> bool {
        claim::release(&self.readers)
    }

    /// Whether both are handles of one domain.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.readers, &other.readers)
    }

    /// The number of slots. Slot numbers are below it.
    pub fn limit(&self) -> u32 {
        self.readers.slots().limit()
    }

    /// The number of claimed slots. Other threads may change it at any moment.
    pub fn in_use(&self) -> u32 {
        self.readers.slots().count()
    }

    /// Takes a cookie: a moment after everything that this thread has unlinked or has seen others unlink. Costs one
    /// atomic increment. Any number of cookies may be waiting.
    pub fn cookie(&self) -> Cookie {
        Cookie(self.readers.cookie())
    }

    /// Whether a cookie is known to have passed. Cheap, because it does not scan.
    ///
    /// If it returns true, everything that readers did in sections which began before the cookie happened before.
    pub fn passed(&self, cookie: Cookie, grace: Grace) -> bool {
        grace.flavours().iter().all(|flavour| self.readers.passed(cookie.0, *flavour))
    }

    /// Scans all readers once, and returns whether the cookie has passed. Never waits.
    ///
    /// In a domain without a keeper it also runs the callbacks that are due.
    pub fn try_pass(&self, cookie: Cookie, grace: Grace) -> bool {
        if self.passed(cookie, grace) {
            return true;
        }
        if !self.is_original() {
            return false;
        }
        // The scan counts a failure; the cookie has not passed then.
        let _ = self.keeper.scan();
        if matches!(self.keeper.inbox().lock().mode, Mode::Callers { .. }) {
            self.keeper.help();
        }
        self.passed(cookie, grace)
    }

    /// Waits for a grace period: when this returns, everything that was unlinked before is unreachable. The keeper
    /// scans, so many waiting threads cost no more than one.
    ///
    /// # Errors
    ///
    /// [`Error::InsideSection`] if this thread is inside a section that it would wait for, [`Error::OnKeeper`] in a
    /// callback or in deferred work of this domain, [`Error::Forked`] in a forked child, [`Error::Membarrier`] if the
    /// system has taken membarrier(2) away. After an error the grace period may not have ended.
    pub fn synchronize(&self, grace: Grace) -> Result<(), Error> {
        self.may_wait(grace)?;
        let cookie = self.cookie();
        if !self.keeper.start() {
            return self.wait_by_scanning(cookie, grace, true);
        }
        let failures_before = self.keeper.inbox().lock().membarrier_failures;
        let outcome = self.keeper.inbox().wait_until(Some((cookie.0, grace.flavours())), |state| {
            if self.passed(cookie, grace) {
                return Some(Ok(()));
            }
            stuck(state, failures_before).map(Err)
        });
        match outcome {
            Err(Stuck::NoKeeper) => self.wait_by_scanning(cookie, grace, true),
            Err(Stuck::Failed(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// As [`synchronize`](Self::synchronize), but this thread scans itself, again and again: faster while readers
    /// are mostly outside, and more expensive for all threads.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Self::synchronize).
    pub fn synchronize_expedited(&self, grace: Grace) -> Result<(), Error> {
        self.may_wait(grace)?;
        self.wait_by_scanning(self.cookie(), grace, false)
    }

    /// Runs `callback` after a grace period, once, on the keeper. Callbacks of the same `grace` run in the order in
    /// which they were queued. Never waits.
    ///
    /// A callback that panics is counted and otherwise ignored. In a domain without a keeper this call and later ones
    /// run the callbacks that are due. In a forked child it does nothing and leaks what the callback owns: dropping it
    /// might free an object that this thread still reads.
    pub fn call(&self, grace: Grace, callback: impl FnOnce() + Send + 'static) {
        self.queue(Queue::After(grace.index()), callback);
    }

    /// Runs `work` soon, once, on the keeper, in order and without a grace period. Otherwise as [`call`](Self::call).
    pub fn defer(&self, work: impl FnOnce() + Send + 'static) {
        self.queue(Queue::Soon, work);
    }

    /// Waits until all callbacks and all deferred work that were queued before have run.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Self::synchronize), for both flavours.
    pub fn barrier(&self) -> Result<(), Error> {
        self.may_wait(Grace::Both)?;
        let failures_before = self.keeper.inbox().lock().membarrier_failures;
        let queues = GRACES.iter().enumerate().map(|(index, _)| Queue::After(index)).chain([Queue::Soon]);
        let left = Arc::new(AtomicUsize::new(GRACES.len() + 1));
        for queue in queues {
            let left = Arc::clone(&left);
            // Release pairs with the Acquire below: all that ran before the marker in this queue.
            self.queue(queue, move || {
                left.fetch_sub(1, Ordering::Release);
            });
        }
        // Acquire pairs with the Release above.
        let over = || left.load(Ordering::Acquire) == 0;
        let outcome = self.keeper.inbox().wait_until(None, |state| {
            if over() {
                return Some(Ok(()));
            }
            stuck(state, failures_before).map(Err)
        });
        match outcome {
            Err(Stuck::NoKeeper) => self.help_until(over),
            Err(Stuck::Failed(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Makes the keeper poll a background task, whenever it is due or [woken](TaskHandle::wake), until the handle is
    /// dropped. Starts the keeper. In a forked child the task is never polled.
    pub fn attach(&self, task: Arc<dyn BackgroundTask>) -> TaskHandle {
        if self.is_original() {
            self.keeper.start();
        }
        TaskHandle::new(Arc::clone(&self.keeper), task)
    }

    /// Whether this process made the domain, rather than inheriting it by `fork`. One load.
    ///
    /// In a child, sections work on the child's copy of the domain, but no callback runs and no cookie passes.
    #[inline]
    pub fn is_original(&self) -> bool {
        self.keeper.is_original()
    }

    /// What the domain has done so far, and how it works.
    pub fn stats(&self) -> Stats {
        self.keeper.stats()
    }

    pub(crate) fn uncounted(&self) -> Self {
        Self { readers: Arc::clone(&self.readers), keeper: Arc::clone(&self.keeper), counted: false }
    }

    fn queue(&self, queue: Queue, work: impl FnOnce() + Send + 'static) {
        let work = Box::new(work);
        if self.is_original() {
            self.keeper.queue(queue, work);
        } else {
            std::mem::forget(work);
        }
    }

    fn may_wait(&self, grace: Grace) -> Result<(), Error> {
        if !self.is_original() {
            return Err(Error::Forked);
        }
        if self.keeper.is_running_here() {
            return Err(Error::OnKeeper);
        }
        let inside = |record: &Record| grace.flavours().iter().any(|flavour| record.is_inside(*flavour));
        if claim::find(&self.readers).is_some_and(inside) { Err(Error::InsideSection) } else { Ok(()) }
    }

    fn wait_by_scanning(&self, cookie: Cookie, grace: Grace, help: bool) -> Result<(), Error> {
        let mut patience = Patience::default();
        loop {
            if !self.passed(cookie, grace) {
                self.keeper.scan().map_err(|errno| Error::Membarrier { errno })?;
            }
            if help {
                self.keeper.help();
            }
            if self.passed(cookie, grace) {
                return Ok(());
            }
            patience.pause();
        }
    }

    fn help_until(&self, over: impl Fn() -> bool) -> Result<(), Error> {
        let failures_before = self.keeper.inbox().lock().membarrier_failures;
        let mut patience = Patience::default();
        while !over() {
            self.keeper.help();
            if let Some(Stuck::Failed(error)) = stuck(&self.keeper.inbox().lock(), failures_before) {
                return Err(error);
            }
            if !over() {
                patience.pause();
            }
        }
        Ok(())
    }
}

impl Cookie {
    /// The cookie as a number, to store it in one word.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The cookie of a number that [`number`](Self::number) returned.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl Clone for Domain {
    fn clone(&self) -> Self {
        if self.counted {
            self.keeper.add_handle();
        }
        Self { readers: Arc::clone(&self.readers), keeper: Arc::clone(&self.keeper), counted: self.counted }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.counted {
            self.keeper.drop_handle();
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("limit", &self.limit())
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// How many threads can have a slot at once. Default: 64.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// How many of the slots no thread keeps: a thread that finds no other slot claims one of these as it enters, and
    /// gives it back when its last section ends. If none is free it waits for one, so any number of threads can enter
    /// in turn. Default: 0. Entering such a slot costs a search for a free one each time, and its number is not the
    /// thread's last one.
    ///
    /// A thread does not wait, and gets [`Error::NoSlot`], where waiting could last for ever: inside a section of
    /// another domain, on a domain's keeper, and in a forked child.
    pub fn shared(mut self, shared: u32) -> Self {
        self.shared = shared;
        self
    }

    /// Whether to use membarrier(2) if the system has it. Default: yes. Without it every outermost section costs a
    /// fence instruction (several nanoseconds), and grace periods cost no system call.
    pub fn membarrier(mut self, wanted: bool) -> Self {
        self.membarrier = wanted;
        self
    }

    /// Whether to start a background thread for callbacks when the first one is needed. Default: yes. Without it the
    /// threads that call `call`, `defer`, `try_pass`, `synchronize` or `barrier` run the callbacks that are due.
    pub fn keeper(mut self, wanted: bool) -> Self {
        self.keeper = wanted;
        self
    }

    /// The size of the keeper's stack, in bytes. Default: that of [`std::thread`].
    pub fn keeper_stack(mut self, bytes: usize) -> Self {
        self.stack = Some(bytes);
        self
    }

    /// Makes the domain.
    ///
    /// # Errors
    ///
    /// As [`Domain::new`].
    pub fn build(&self) -> Result<Domain, Error> {
        if self.slots == 0 || self.slots > MAX_SLOTS {
            return Err(Error::SlotCount { wanted: self.slots, max: MAX_SLOTS });
        }
        let witness = Witness::new()?;
        let readers = Arc::new(Readers::new(self.slots, self.shared, Barrier::new(self.membarrier)));
        let settings = Settings { thread: self.keeper, stack: self.stack };
        let keeper = Arc::new(Keeper::new(Arc::clone(&readers), witness, settings));
        Ok(Domain { readers, keeper, counted: true })
    }
}

impl Grace {
    const fn index(self) -> usize {
        match self {
            Self::Normal => 0,
            Self::Sleepable => 1,
            Self::Both => 2,
        }
    }

    pub(crate) const fn flavours(self) -> &'static [usize] {
        GRACES[self.index()]
    }
}

/// Why it is useless to wait for the keeper.
enum Stuck {
    NoKeeper,
    Failed(Error),
}

fn stuck(state: &InboxState, failures_before: u64) -> Option<Stuck> {
    if matches!(state.mode, Mode::Callers { .. }) {
        return Some(Stuck::NoKeeper);
    }
    (state.membarrier_failures != failures_before)
        .then_some(Stuck::Failed(Error::Membarrier { errno: state.errno }))
}

/// Back-off for a thread that polls readers itself: spin, then yield, then sleep for up to a millisecond.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn pause(&mut self) {
        match self.0 {
            0..10 => (0..1 << self.0).for_each(|_| hint::spin_loop()),
            10..20 => thread::yield_now(),
            _ => {
                thread::sleep(Duration::from_micros(20 << (self.0 - 20).min(6)).min(Duration::from_millis(1)))
            }
        }
        self.0 = self.0.saturating_add(1);
    }
}
