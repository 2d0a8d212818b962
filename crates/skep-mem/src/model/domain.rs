//! Readers, grace periods, callbacks and chores in models: what `skep-rcu` promises, in as few steps as that takes. That it keeps
//! its promises is shown by models of its own.
//!
//! The keeper is whoever takes [turns](Domain::turn), one at a time.

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

pub trait Chore: Send + Sync {
    fn turn(&self) -> Option<Duration>;
}

#[derive(Clone)]
pub struct Domain(Arc<Shared>);

pub struct ChoreHandle {
    domain: Domain,
    entry: Arc<Entry>,
}

/// Readers hold whatever there is.
pub struct Horizons;

pub struct Stats {
    pub membarrier: bool,
}

struct Shared {
    epoch: AtomicU64,
    /// For each slot and flavour since when its reader is inside, or 0.
    words: Vec<[AtomicU64; 2]>,
    completed: [AtomicU64; 2],
    fenced: AtomicU64,
    /// loom's, since it orders what was done before a callback was queued before the callback.
    fresh: loom::sync::Mutex<Vec<(Grace, Work)>>,
    /// Whoever takes a turn has them.
    waiting: Mutex<Vec<(Grace, Cookie, Work)>>,
    chores: Mutex<Vec<Arc<Entry>>>,
}

type Work = Box<dyn FnOnce() + Send>;

/// The turn of a chore, which it owns.
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
            chores: Mutex::default(),
        }))
    }

    pub(crate) fn enter(&self, slot: usize, grace: Grace) {
        // As in `skep-rcu`, also below.
        self.0.words[slot][flavours(grace)[0]].store(self.now(), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn leave(&self, slot: usize, grace: Grace) {
        self.0.words[slot][flavours(grace)[0]].store(0, Ordering::Release);
    }

    /// The keeper's work: takes what was queued, lets the chores have their turns, looks at the readers, calls back.
    pub(crate) fn turn(&self) {
        let mut waiting = self.0.waiting.try_lock().expect("there are two keepers");
        let fresh = std::mem::take(&mut *self.0.fresh.lock().unwrap());
        if !fresh.is_empty() {
            let cookie = self.cookie();
            waiting.extend(fresh.into_iter().map(|(grace, work)| (grace, cookie, work)));
        }
        let chores = self.0.chores.lock().unwrap().clone();
        chores.iter().for_each(|entry| entry.0());
        drop(chores);
        if !waiting.is_empty() {
            self.hurry();
        }
        let (due, rest) =
            waiting.drain(..).partition::<Vec<_>, _>(|(grace, cookie, _)| self.passed(*cookie, *grace));
        *waiting = rest;
        due.into_iter().for_each(|(_, _, work)| work());
    }

    pub(crate) fn call(&self, grace: Grace, callback: impl FnOnce() + Send + 'static) {
        self.0.fresh.lock().unwrap().push((grace, Box::new(callback)));
    }

    pub(crate) fn attach<C: Chore + 'static>(&self, chore: crate::sync::Arc<C>) -> ChoreHandle {
        let turn = move || {
            chore.turn();
        };
        let entry = Arc::new(Entry(Box::new(turn)));
        self.0.chores.lock().unwrap().push(Arc::clone(&entry));
        ChoreHandle { domain: self.clone(), entry }
    }

    pub(crate) fn uncounted(&self) -> Self {
        self.clone()
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

    pub(crate) fn now(&self) -> u64 {
        self.0.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn passed(&self, cookie: Cookie, grace: Grace) -> bool {
        flavours(grace).iter().all(|flavour| self.0.completed[*flavour].load(Ordering::Acquire) >= cookie.0)
    }

    pub(crate) fn hurry(&self) -> bool {
        let now = self.now();
        if self.passed(Cookie(now), Grace::Both) {
            return false;
        }
        self.fence_for(now);
        let mut news = false;
        for (flavour, completed) in self.0.completed.iter().enumerate() {
            let words = self.0.words.iter().map(|words| words[flavour].load(Ordering::Acquire));
            let oldest = words.filter(|word| *word != 0).fold(now, u64::min);
            news |= completed.fetch_max(oldest, Ordering::AcqRel) < oldest;
        }
        news
    }

    pub(crate) fn heavy_fence(&self) -> bool {
        self.fence_for(self.now());
        true
    }

    fn fence_for(&self, now: u64) {
        fence(Ordering::SeqCst);
        self.0.fenced.fetch_max(now, Ordering::AcqRel);
    }

    pub(crate) fn fenced(&self) -> Cookie {
        Cookie(self.0.fenced.load(Ordering::Acquire))
    }

    /// Readers hold whatever there is.
    pub(crate) fn holders(&self, mut each: impl FnMut(Cookie, u64)) {
        for words in &self.0.words {
            let since = words[0].load(Ordering::Acquire);
            if since != 0 {
                each(Cookie(since), u64::MAX);
            }
        }
    }

    pub(crate) fn horizons(&self) -> Horizons {
        Horizons
    }
}

impl Horizons {
    pub(crate) unsafe fn of(&self, _: u32) -> Option<u64> {
        Some(u64::MAX)
    }

    pub(crate) fn look_further(&self, _: u32) {}
}

impl Cookie {
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl ChoreHandle {
    /// Chores have their turns whether or not they are kicked.
    pub(crate) fn kick(&self) {}
}

impl Drop for ChoreHandle {
    fn drop(&mut self) {
        let entry = {
            let mut chores = self.domain.0.chores.lock().unwrap();
            let place = chores.iter().position(|entry| Arc::ptr_eq(entry, &self.entry));
            place.map(|place| chores.swap_remove(place))
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
