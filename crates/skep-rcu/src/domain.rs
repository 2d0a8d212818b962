//! The public face: a domain, how it is made, and what can be asked of it.

use std::fmt;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::barrier::Barrier;
use crate::chores::{Chore, ChoreHandle};
use crate::claim;
use crate::fork::Witness;
use crate::horizons::Horizons;
use crate::inbox::{GRACES, Mode, Queue, State};
use crate::keeper::{Keeper, Settings};
use crate::readers::{FENCED, Readers};
use crate::section::{Reader, Section, SleepableSection};
use crate::{Error, Stats};

/// The largest number of slots one domain can have.
pub const MAX_SLOTS: u32 = 1 << 16;

/// Threads that read, and those who wait until what they took away is not read any more.
///
/// Cheap to clone; clones are handles of the same domain. Each thread that enters has one of the domain's numbered
/// slots for itself: it claims the lowest free one when it first enters and keeps it until it ends, until it calls
/// [`release`](Self::release), or until the domain is gone. Data indexed by slot needs one element for each.
///
/// When the last handle is dropped, nobody is inside any more: callbacks that still wait run at once, on the keeper.
/// Dropping a handle never waits.
pub struct Domain {
    readers: Arc<Readers>,
    keeper: Arc<Keeper>,
    /// Whether it is one of the handles that keep the domain open.
    counts: bool,
}

/// Settings of a [`Domain`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    slots: u32,
    membarrier: bool,
    keeper: bool,
    stack: Option<usize>,
}

/// Which readers a grace period waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grace {
    /// Those in normal sections.
    Normal,
    /// Those in sleepable sections.
    Sleepable,
    /// Both.
    Both,
}

/// A moment in the life of a domain: what was unlinked before it is unreachable once it has passed.
///
/// Cookies of one domain are ordered: when one has passed, so have all earlier ones. A cookie says nothing about
/// other domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(u64);

impl Domain {
    /// A domain in which `slots` threads can be at once, with the numbers `0..slots`, and the best of what the system
    /// offers.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`] when `slots` is zero or larger than [`MAX_SLOTS`]; [`Error::ForkWitness`] where the system
    /// refuses a page.
    pub fn new(slots: u32) -> Result<Self, Error> {
        Self::builder().slots(slots).build()
    }

    /// A domain with other settings.
    pub fn builder() -> Builder {
        Builder { slots: 64, membarrier: true, keeper: true, stack: None }
    }

    /// Enters a normal section, with this thread's slot, claiming the lowest free one if it has none yet.
    ///
    /// Sections nest, and each has the same number until the thread gives its slot back. A nested section protects
    /// what the outermost one does.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`] when every slot is claimed by another thread, [`Error::Unavailable`] when a thread without a
    /// slot asks for one from a destructor of thread-local data, [`Error::NoMemory`].
    #[inline]
    pub fn enter(&self) -> Result<Section<'_>, Error> {
        Ok(Section::enter(&self.readers, claim::claim(&self.readers)?))
    }

    /// Enters a normal section that no guard leaves: [`leave`](Self::leave) does, on this thread.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    #[inline]
    pub fn enter_unguarded(&self) -> Result<(), Error> {
        std::mem::forget(self.enter()?);
        Ok(())
    }

    /// Leaves a section that this thread entered without a guard.
    ///
    /// # Safety
    ///
    /// The thread entered one by [`enter_unguarded`](Self::enter_unguarded) and has not left it yet.
    #[inline]
    pub unsafe fn leave(&self) {
        // A thread keeps its slot as long as it is in a section.
        if let Some(record) = claim::find(&self.readers) {
            Section::leave(&self.readers, record);
        }
    }

    /// Enters a normal section if this thread has a slot already; claims none.
    #[inline]
    pub fn enter_if_known(&self) -> Option<Section<'_>> {
        claim::find(&self.readers).map(|record| Section::enter(&self.readers, record))
    }

    /// Enters a sleepable section: the thread may block in it for as long as it likes, and holds up sleepable grace
    /// periods only.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    #[inline]
    pub fn enter_sleepable(&self) -> Result<SleepableSection<'_>, Error> {
        Ok(SleepableSection::enter(&self.readers, claim::claim(&self.readers)?))
    }

    /// This thread's own way in, which need not be looked up again.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    #[inline(always)] // so that the compiler may keep it in registers
    pub fn reader(&self) -> Result<Reader<'_>, Error> {
        Ok(Reader::new(&self.readers, claim::claim(&self.readers)?))
    }

    /// Gives this thread's slot back before the thread ends, for threads that will be idle for long.
    ///
    /// Returns `false`, and does nothing, when the thread has no slot here or still has a section or a reader.
    pub fn release(&self) -> bool {
        claim::release(&self.readers)
    }

    /// Whether both are handles of one domain.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.readers, &other.readers)
    }

    /// How many slots there are. Numbers are below this.
    pub fn limit(&self) -> u32 {
        self.readers.slots().limit()
    }

    /// How many slots are claimed. Other threads may change it at any moment.
    pub fn in_use(&self) -> u32 {
        self.readers.slots().count()
    }

    /// Takes a cookie: the moment after everything that this thread has unlinked, and all that it has seen others
    /// unlink. One atomic increment; any number of cookies may be waiting.
    pub fn cookie(&self) -> Cookie {
        Cookie(self.readers.cookie())
    }

    /// Whether a cookie is known to have passed. Cheap; finds nothing out by itself.
    ///
    /// When this has returned true, all that readers did in sections which began before the cookie has happened before.
    pub fn passed(&self, cookie: Cookie, grace: Grace) -> bool {
        grace.flavours().iter().all(|flavour| self.readers.passed(cookie.0, *flavour))
    }

    /// Looks at all readers once, and says whether the cookie has passed. Never waits.
    ///
    /// Where the domain has no keeper, runs the callbacks that are due as well.
    pub fn try_pass(&self, cookie: Cookie, grace: Grace) -> bool {
        if self.passed(cookie, grace) {
            return true;
        }
        if !self.is_original() {
            return false;
        }
        // A failure is counted; the cookie has not passed then.
        let _ = self.keeper.scan();
        if matches!(self.keeper.inbox().lock().mode, Mode::Callers { .. }) {
            self.keeper.help();
        }
        self.passed(cookie, grace)
    }

    /// Waits for a grace period: when this returns, what was unlinked before is unreachable. The keeper does the
    /// work, so many who wait cost no more than one.
    ///
    /// # Errors
    ///
    /// [`Error::InsideSection`] when this thread is inside a section that it would wait for, [`Error::OnKeeper`] in a
    /// callback or in deferred work of this domain, [`Error::Forked`] in a forked child, [`Error::Membarrier`] where the
    /// system has taken membarrier(2) away. Nothing is known then.
    pub fn synchronize(&self, grace: Grace) -> Result<(), Error> {
        self.may_wait(grace)?;
        let cookie = self.cookie();
        if !self.keeper.start() {
            return self.wait_by_scanning(cookie, grace, true);
        }
        let start_faults = self.keeper.inbox().lock().faults;
        let outcome = self.keeper.inbox().wait_until(Some((cookie.0, grace.flavours())), |state| {
            if self.passed(cookie, grace) {
                return Some(Ok(()));
            }
            stuck(state, start_faults).map(Err)
        });
        match outcome {
            Err(Stuck::NoKeeper) => self.wait_by_scanning(cookie, grace, true),
            Err(Stuck::Fault(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// As [`synchronize`](Self::synchronize), but this thread scans for itself, again and again: faster while readers
    /// are mostly outside, and dearer for everybody.
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
    /// A callback that panics is counted and otherwise ignored. Where there is no keeper, this call and later ones run
    /// the callbacks that are due. In a forked child it does nothing, and what the callback owns is leaked: dropping it
    /// might free what this thread still reads.
    pub fn call(&self, grace: Grace, callback: impl FnOnce() + Send + 'static) {
        self.queue(Queue::After(grace.index()), callback);
    }

    /// Runs `work` soon, once, on the keeper, without any grace period and in order. Otherwise as [`call`](Self::call).
    pub fn defer(&self, work: impl FnOnce() + Send + 'static) {
        self.queue(Queue::Soon, work);
    }

    /// Waits until every callback and all deferred work that was queued before has run.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Self::synchronize), for both flavours.
    pub fn barrier(&self) -> Result<(), Error> {
        self.may_wait(Grace::Both)?;
        let start_faults = self.keeper.inbox().lock().faults;
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
            stuck(state, start_faults).map(Err)
        });
        match outcome {
            Err(Stuck::NoKeeper) => self.help_until(over),
            Err(Stuck::Fault(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// A handle that does not keep the domain open, for what the domain itself owns: callbacks and [chores](Chore), which would
    /// keep themselves from being run and dropped. What it says of grace periods is true as before; that the last of the
    /// other handles is gone, and so nobody inside, it need not notice.
    #[must_use]
    pub fn uncounted(&self) -> Self {
        Self { readers: Arc::clone(&self.readers), keeper: Arc::clone(&self.keeper), counts: false }
    }

    /// Gives the keeper a chore: it has its turns as often as it says or is [kicked](ChoreHandle::kick), until the handle is
    /// dropped. Starts the keeper. In a forked child the chore has no turns.
    pub fn attach(&self, chore: Arc<dyn Chore>) -> ChoreHandle {
        if self.is_original() {
            self.keeper.start();
        }
        ChoreHandle::new(Arc::clone(&self.keeper), chore)
    }

    /// Looks at all readers once; [`passed`](Self::passed) knows afterwards. As [`try_pass`](Self::try_pass), but takes no
    /// lock and runs nothing, so that it may be called inside sections and by signal handlers. Says whether anything has passed
    /// that had not before.
    pub fn hurry(&self) -> bool {
        self.keeper.scan_quietly()
    }

    /// Whether it is worth looking at the readers: `false` where one of them is seen to hold the cookie up. Costs a load for
    /// each thread that has a slot, and no system call; proves nothing.
    pub fn may_pass(&self, cookie: Cookie, grace: Grace) -> bool {
        grace.flavours().iter().all(|flavour| self.readers.may_pass(cookie.0, *flavour))
    }

    /// The time: a number that grows with every cookie. What is made after this call is at least as young.
    ///
    /// With [`horizon`](Self::horizon) and [`holders`](Self::holders) it tells what a reader cannot have found: a reader that
    /// stays inside for long holds up what was there at its time, and nothing that was made since.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.readers.now() & !FENCED
    }

    /// The time up to which things must have been made for the reader in that slot to hold what it finds; `None` where it has
    /// not [looked](Self::look_further) for anything in this section, and so holds nothing. The calling thread is the one
    /// that has the slot, and is inside a normal section.
    ///
    /// # Panics
    ///
    /// Where there is no slot of that number.
    #[inline(always)]
    pub fn horizon(&self, slot: u32) -> Option<u64> {
        self.readers.horizon(slot).map(|seen| seen & !FENCED)
    }

    /// All of them, for whoever asks often.
    pub fn horizons(&self) -> Horizons {
        Horizons::new(&self.readers)
    }

    /// Moves the [`horizon`](Self::horizon) of the calling thread's slot to now. What was found before, and is younger than the
    /// horizon was, must be looked for again.
    ///
    /// # Panics
    ///
    /// Where there is no slot of that number.
    #[inline(always)]
    pub fn look_further(&self, slot: u32) {
        self.readers.look_further(slot);
    }

    /// Calls `each` with the beginning of the section, and the horizon, of every reader in a normal section that has one.
    ///
    /// What was unlinked before a cookie, and made at a time `made`, is held by none of them if for each the beginning is not
    /// before the cookie, or the horizon is before `made`; provided that a [heavy fence](Self::heavy_fence) came between the
    /// cookie and this. Without one it is a guess.
    pub fn holders(&self, mut each: impl FnMut(Cookie, u64)) {
        self.readers.holders(|since, horizon| each(Cookie(since), horizon & !FENCED));
    }

    /// The light half of a fence whose other half is [`heavy_fence`](Self::heavy_fence): of two threads, one that executes this
    /// between a store and a load, and one that executes the other between its own, at least one sees the other's store. Costs
    /// nothing where membarrier(2) can be used, else as much as a fence.
    #[inline(always)]
    pub fn light_fence(&self) {
        self.readers.barrier().light();
    }

    /// The heavy half: a system call. `false` where the system refuses it; nothing may be concluded then.
    pub fn heavy_fence(&self) -> bool {
        self.readers.fence().is_ok()
    }

    /// The last cookie since which a heavy fence was executed, by whomever. For it and earlier ones, a fence of the caller's own is
    /// not needed any more; [`holders`](Self::holders) are to be asked after this.
    pub fn fenced(&self) -> Cookie {
        Cookie(self.readers.fenced())
    }

    /// Whether this process made the domain, rather than having inherited it by `fork`. One load.
    ///
    /// In a child, sections work as before, on the child's copy, but nobody runs callbacks, and nothing passes.
    #[inline]
    pub fn is_original(&self) -> bool {
        self.keeper.is_original()
    }

    /// What the domain has done and what it is made of.
    pub fn stats(&self) -> Stats {
        self.keeper.stats()
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
        let inside = |record: &crate::readers::Record| {
            grace.flavours().iter().any(|flavour| record.is_inside(*flavour))
        };
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
        let start_faults = self.keeper.inbox().lock().faults;
        let mut patience = Patience::default();
        while !over() {
            self.keeper.help();
            if let Some(Stuck::Fault(error)) = stuck(&self.keeper.inbox().lock(), start_faults) {
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
    /// The cookie as a number, to be kept where there is room for nothing else.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The cookie of a number that [`number`](Self::number) gave.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl Clone for Domain {
    fn clone(&self) -> Self {
        if self.counts {
            self.keeper.add_handle();
        }
        Self { readers: Arc::clone(&self.readers), keeper: Arc::clone(&self.keeper), counts: self.counts }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.counts {
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
    /// How many threads can be inside at once. Default: 64.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Whether membarrier(2) is used where the system has it. Default: yes. Without, every outermost section costs a
    /// fence instruction (several nanoseconds), and grace periods cost no system call.
    pub fn membarrier(mut self, wanted: bool) -> Self {
        self.membarrier = wanted;
        self
    }

    /// Whether a thread is started for callbacks, at the first need. Default: yes. Without, whoever calls `call`,
    /// `defer`, `try_pass`, `synchronize` or `barrier` runs what is due.
    pub fn keeper(mut self, wanted: bool) -> Self {
        self.keeper = wanted;
        self
    }

    /// The size of the keeper's stack, in bytes. Default: that of any thread.
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
        let readers = Arc::new(Readers::new(self.slots, Barrier::new(self.membarrier)));
        let settings = Settings { thread: self.keeper, stack: self.stack };
        let keeper = Arc::new(Keeper::new(Arc::clone(&readers), witness, settings));
        Ok(Domain { readers, keeper, counts: true })
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

    const fn flavours(self) -> &'static [usize] {
        GRACES[self.index()]
    }
}

/// Why waiting for the keeper is of no use.
enum Stuck {
    NoKeeper,
    Fault(Error),
}

fn stuck(state: &State, start_faults: u64) -> Option<Stuck> {
    if matches!(state.mode, Mode::Callers { .. }) {
        return Some(Stuck::NoKeeper);
    }
    (state.faults != start_faults).then_some(Stuck::Fault(Error::Membarrier { errno: state.errno }))
}

/// Waiting for readers without anybody to wake us: spin, then yield, then sleep, up to a millisecond.
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
