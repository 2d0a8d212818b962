//! Work that the keeper does again and again, and that others can ask for without taking a lock.
//!
//! ```text
//!   kick ──> the chore's own flag ──> the inbox's flag ──> wakes the keeper        (atomics and a futex: for signal handlers too)
//!   keeper: all kicked chores, and those that are due, have a turn; each says when it is due again
//! ```
//!
//! The list of chores is behind a lock that is a leaf: it is held for a look, never while a chore has its turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::keeper::Keeper;
use crate::sync::lock;

/// Something that the keeper of a domain sees to, from time to time.
pub trait Chore: Send + Sync {
    /// Does what is due, and says after how long there is something to do at the latest, should nobody
    /// [kick](ChoreHandle::kick) it before; `None` where that is never.
    ///
    /// Runs on the keeper, or, where there is none, on a thread that calls the domain; never twice at the same time. It must not
    /// wait for readers, and a panic is counted and otherwise ignored.
    fn turn(&self) -> Option<Duration>;
}

/// A chore that a domain's keeper sees to until this is dropped; made by [`Domain::attach`](crate::Domain::attach).
///
/// Dropping it does not wait: a turn that is under way ends later, and the keeper holds the chore until then.
pub struct ChoreHandle {
    keeper: Arc<Keeper>,
    entry: Arc<Entry>,
}

/// The chores of a domain.
#[derive(Default)]
pub(crate) struct Chores(Mutex<List>);

#[derive(Default)]
struct List {
    entries: Vec<Arc<Entry>>,
    /// How often one was taken out, and the last one came into its place.
    removed: u64,
    /// Rounds of turns so far.
    rounds: u64,
}

struct Entry {
    chore: Arc<dyn Chore>,
    kicked: AtomicBool,
    /// The round in which it had its last turn. Under the list's lock.
    round: AtomicU64,
    /// When it is due though nobody kicks it.
    due: Mutex<Option<Instant>>,
}

impl ChoreHandle {
    pub(crate) fn new(keeper: Arc<Keeper>, chore: Arc<dyn Chore>) -> Self {
        let (kicked, round) = (AtomicBool::new(false), AtomicU64::new(0));
        let entry = Arc::new(Entry { chore, kicked, round, due: Mutex::new(None) });
        // In a forked child another thread of the parent may have held the lock.
        if keeper.is_original() {
            lock(&keeper.chores().0).entries.push(Arc::clone(&entry));
        }
        Self { keeper, entry }
    }

    /// Makes the keeper give the chore a turn soon. Takes no lock and allocates nothing; costs one exchange where the chore was
    /// kicked already, else a system call.
    pub fn kick(&self) {
        // AcqRel, and always an exchange: pairs with the swap in `turn_of`, for what the chore will find. To look first whether it was
        // kicked already would let what was stored before this be seen after that swap.
        if !self.entry.kicked.swap(true, Ordering::AcqRel) {
            self.keeper.kick();
        }
    }
}

impl Drop for ChoreHandle {
    fn drop(&mut self) {
        if self.keeper.is_original() {
            let gone = {
                let mut chores = lock(&self.keeper.chores().0);
                let place = chores.entries.iter().position(|entry| Arc::ptr_eq(entry, &self.entry));
                chores.removed += 1;
                place.map(|place| chores.entries.swap_remove(place))
            };
            drop(gone); // outside the lock: it may drop the chore
        }
    }
}

impl Chores {
    /// Gives a turn to those that were kicked, where `kicked`, and to those that are due. Says how many panicked.
    ///
    /// Allocates nothing: that there is no memory may be why there is a turn.
    pub(crate) fn turn(&self, kicked: bool) -> u64 {
        let now = Instant::now();
        let (round, mut removed) = {
            let mut chores = lock(&self.0);
            chores.rounds += 1;
            (chores.rounds, chores.removed)
        };
        let (mut place, mut panicked) = (0, 0);
        loop {
            let next = {
                let chores = lock(&self.0);
                if chores.removed != removed {
                    // One of those that come may be in a place that we have passed.
                    (place, removed) = (0, chores.removed);
                }
                // Relaxed (all): under the lock, but for `kicked`, of which a later one comes with another round.
                let wants = |entry: &Arc<Entry>| {
                    entry.round.load(Ordering::Relaxed) != round
                        && ((kicked && entry.kicked.load(Ordering::Relaxed))
                            || lock(&entry.due).is_some_and(|due| due <= now))
                };
                let rest = chores.entries.get(place..).unwrap_or_default();
                let Some(further) = rest.iter().position(wants) else { return panicked };
                place += further;
                let entry = &chores.entries[place];
                entry.round.store(round, Ordering::Relaxed);
                Arc::clone(entry)
            };
            panicked += u64::from(!turn_of(&next));
        }
    }

    /// How long until the next one is due.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let chores = lock(&self.0);
        let soonest = chores.entries.iter().filter_map(|entry| *lock(&entry.due)).min()?;
        Some(soonest.saturating_duration_since(Instant::now()))
    }
}

/// `false` where it panicked.
fn turn_of(entry: &Entry) -> bool {
    // Before the turn: a kick that comes while it goes on asks for another.
    entry.kicked.swap(false, Ordering::AcqRel);
    let after = catch_unwind(AssertUnwindSafe(|| entry.chore.turn()));
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
