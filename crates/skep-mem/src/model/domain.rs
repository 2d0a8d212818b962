//! Readers, grace periods, callbacks and background tasks for models: what `skep-rcu` promises, in as few steps as that
//! takes. Models in `skep-rcu` show that it keeps these promises.
//!
//! The keeper is any thread that takes [turns](Domain::turn), one at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering, fence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    Normal,
    Sleepable,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(u64);

pub trait BackgroundTask: Send + Sync {
    fn poll(&self) -> Option<Duration>;
}

#[derive(Clone)]
pub struct Domain(Arc<Shared>);

pub struct TaskHandle {
    domain: Domain,
    entry: Arc<Entry>,
}

pub struct Stats {
    pub membarrier: bool,
}

struct Shared {
    epoch: AtomicU64,
    /// For each slot and flavour the epoch of the reader's section, or 0.
    words: Vec<[AtomicU64; 2]>,
    completed: [AtomicU64; 2],
    fenced: AtomicU64,
    /// A mutex of loom's: it orders everything before the queuing of a callback before the callback.
    fresh: loom::sync::Mutex<Vec<(Grace, Work)>>,
    /// Belongs to the thread that takes a turn.
    waiting: Mutex<Vec<(Grace, Cookie, Work)>>,
    tasks: Mutex<Vec<Arc<Entry>>>,
}

type Work = Box<dyn FnOnce() + Send>;

/// A task, as the closure that polls it.
struct Entry(Box<dyn Fn() + Send + Sync>);

impl Domain {
    pub(crate) fn new(slots: usize) -> Self {
        let pair = |first| [AtomicU64::new(first), AtomicU64::new(first)];
        Self(Arc::new(Shared {
            epoch: AtomicU64::new(1),
            words: (0..slots).map(|_| pair(0)).collect(),
            completed: pair(1),
            fenced: AtomicU64::new(1),
            fresh: loom::sync::Mutex::default(),
            waiting: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }

    pub(crate) fn enter(&self, slot: usize, grace: Grace) {
        // As in `skep-rcu`, also below.
        self.0.words[slot][flavours(grace)[0]].store(self.era(), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn leave(&self, slot: usize, grace: Grace) {
        self.0.words[slot][flavours(grace)[0]].store(0, Ordering::Release);
    }

    /// The keeper's work: takes what was queued, polls the tasks, scans the readers, runs callbacks.
    pub(crate) fn turn(&self) {
        let mut waiting = self.0.waiting.try_lock().expect("there are two keepers");
        let fresh = std::mem::take(&mut *self.0.fresh.lock().unwrap());
        if !fresh.is_empty() {
            let cookie = self.cookie();
            waiting.extend(fresh.into_iter().map(|(grace, work)| (grace, cookie, work)));
        }
        let tasks = self.0.tasks.lock().unwrap().clone();
        tasks.iter().for_each(|entry| entry.0());
        drop(tasks);
        if !waiting.is_empty() {
            raw::scan(self);
        }
        let (due, rest) =
            waiting.drain(..).partition::<Vec<_>, _>(|(grace, cookie, _)| self.passed(*cookie, *grace));
        *waiting = rest;
        due.into_iter().for_each(|(_, _, work)| work());
    }

    pub(crate) fn call(&self, grace: Grace, callback: impl FnOnce() + Send + 'static) {
        self.0.fresh.lock().unwrap().push((grace, Box::new(callback)));
    }

    pub(crate) fn attach<C: BackgroundTask + 'static>(&self, task: crate::sync::Arc<C>) -> TaskHandle {
        let poll = move || {
            task.poll();
        };
        let entry = Arc::new(Entry(Box::new(poll)));
        self.0.tasks.lock().unwrap().push(Arc::clone(&entry));
        TaskHandle { domain: self.clone(), entry }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats { membarrier: false }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.0.words.len() as u32
    }

    pub(crate) fn cookie(&self) -> Cookie {
        Cookie(self.0.epoch.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn era(&self) -> u64 {
        self.0.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn passed(&self, cookie: Cookie, grace: Grace) -> bool {
        flavours(grace).iter().all(|flavour| self.0.completed[*flavour].load(Ordering::Acquire) >= cookie.0)
    }

    fn fence_for(&self, now: u64) {
        fence(Ordering::SeqCst);
        self.0.fenced.fetch_max(now, Ordering::AcqRel);
    }
}

impl Cookie {
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl TaskHandle {
    /// Every turn polls all tasks, woken or not.
    pub(crate) fn wake(&self) {}
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        let entry = {
            let mut tasks = self.domain.0.tasks.lock().unwrap();
            let place = tasks.iter().position(|entry| Arc::ptr_eq(entry, &self.entry));
            place.map(|place| tasks.swap_remove(place))
        };
        drop(entry); // outside the lock
    }
}

fn flavours(grace: Grace) -> &'static [usize] {
    match grace {
        Grace::Normal => &[0],
        Grace::Sleepable => &[1],
        Grace::Both => &[0, 1],
    }
}

/// As `skep_rcu::raw`. Every reader may hold every object.
pub(crate) mod raw {
    use super::*;

    pub(crate) struct Eras;

    impl Eras {
        pub(crate) fn new(_: &Domain) -> Self {
            Self
        }

        pub(crate) unsafe fn announced(&self, _: u32) -> Option<u64> {
            Some(u64::MAX)
        }

        pub(crate) fn announce(&self, _: u32) {}
    }

    pub(crate) fn uncounted(domain: &Domain) -> Domain {
        domain.clone()
    }

    pub(crate) fn current_era(domain: &Domain) -> u64 {
        domain.era()
    }

    pub(crate) fn scan(domain: &Domain) -> bool {
        let now = domain.era();
        if domain.passed(Cookie(now), Grace::Both) {
            return false;
        }
        domain.fence_for(now);
        let mut news = false;
        for (flavour, completed) in domain.0.completed.iter().enumerate() {
            let words = domain.0.words.iter().map(|words| words[flavour].load(Ordering::Acquire));
            let oldest = words.filter(|word| *word != 0).fold(now, u64::min);
            news |= completed.fetch_max(oldest, Ordering::AcqRel) < oldest;
        }
        news
    }

    pub(crate) fn heavy_fence(domain: &Domain) -> bool {
        domain.fence_for(domain.era());
        true
    }

    pub(crate) fn fenced(domain: &Domain) -> Cookie {
        Cookie(domain.0.fenced.load(Ordering::Acquire))
    }

    pub(crate) fn active_eras(domain: &Domain, mut each: impl FnMut(Cookie, u64)) {
        for words in &domain.0.words {
            let entered = words[0].load(Ordering::Acquire);
            if entered != 0 {
                each(Cookie(entered), u64::MAX);
            }
        }
    }
}
