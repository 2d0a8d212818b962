//! What the programs of a runtime see of a machine: the part of a [`crate::World`] that helpers reach.
//!
//! The machine is a value that is replaced as a whole: a helper that looks something up holds the lock for reading, and
//! a change makes a new machine beside the old one. So a look-up sees one state, and waits only for the exchange.

use skep_abi::MapKind;
use skep_maps::Map;
use skep_world::{Clock, Machine, Random};
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

/// Machine, clock and random numbers of a world. Without a world, programs see an empty machine, the system's clock and
/// its random numbers.
#[derive(Default)]
pub(crate) struct Surroundings {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    machine: RwLock<Arc<Machine>>,
    secret: OnceLock<u128>,
    /// Held by the thread that makes the next machine.
    changing: Mutex<()>,
    /// Runtimes whose programs may have timers, in the order of their first such load. A leaf.
    timed: Mutex<Vec<Weak<dyn Timed>>>,
    /// Maps with values of sockets, tasks and cgroups, which end with them. A leaf.
    storages: Mutex<Vec<Weak<Map>>>,
    /// Runtimes whose programs hold objects of the machine. A leaf.
    followers: Mutex<Vec<Weak<dyn Follower>>>,
    /// Whether a step is in progress. Acquire and Release both ways: a step sees what the one before did.
    stepping: AtomicBool,
}

/// A runtime with timers.
pub(crate) trait Timed: Send + Sync {
    /// When the next callback is due, of those that were among the first `starts` starts.
    fn next(&self, starts: u64) -> Option<u64>;
    /// The number of starts so far.
    fn starts(&self) -> u64;
    /// Calls the first of them that is due at `now`, or ends it if its element is gone. Whether it was called; `None`
    /// if nothing can be called now.
    fn expire(&self, now: u64, starts: u64) -> Option<bool>;
}

/// What follows the machine.
pub(crate) trait Follower: Send + Sync {
    /// The machine was replaced.
    fn machine_changed(&self);
}

/// The most callbacks of one step.
const MOST_CALLS: u64 = 1 << 20;

impl Surroundings {
    pub(crate) fn new(machine: Machine, clock: Clock, random: Random) -> Self {
        machine.prepare();
        Self { clock, random, machine: RwLock::new(Arc::new(machine)), ..Self::default() }
    }

    /// A number for keyed hashes that programs cannot guess, unless random numbers are seeded. Always the same.
    pub(crate) fn secret(&self) -> u128 {
        *self.secret.get_or_init(|| {
            let keyed = RandomState::new();
            let part = |number: u32| self.random.next().unwrap_or_else(|| keyed.hash_one(number) as u32);
            (0..4).fold(0, |secret, number| secret << 32 | u128::from(part(number)))
        })
    }

    /// The machine as it is now.
    #[inline]
    pub(crate) fn machine(&self) -> Arc<Machine> {
        Arc::clone(&self.machine.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Passes the machine as it is now. The function must not call programs: the lock is a leaf.
    #[inline]
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&Machine) -> T) -> T {
        ask(&self.machine.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the machine by a changed copy, unless `change` fails; then it stays as it was. Look-ups do not wait for
    /// the function, which may look things up itself, but must not change this machine again.
    pub(crate) fn change<T, E>(&self, change: impl FnOnce(&mut Machine) -> Result<T, E>) -> Result<T, E> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Machine::clone(&self.machine());
        let made = change(&mut next)?;
        // Here, where no helper waits, and not in the run that asks first.
        next.prepare();
        let old = {
            let mut current = self.machine.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::new(next))
        };
        // Before their values end: a program that makes one later sees that its owner is gone.
        self.tell_followers();
        self.end_storages(&old);
        drop(old);
        Ok(made)
    }

    /// A runtime has programs that may set timers.
    pub(crate) fn add_timers(&self, timed: Weak<dyn Timed>) {
        let mut all = self.timed.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        if !all.iter().any(|other| std::ptr::addr_eq(other.as_ptr(), timed.as_ptr())) {
            all.push(timed);
        }
    }

    /// See [`crate::World::step`].
    pub(crate) fn step(&self, by: Duration) -> Option<u64> {
        if !self.clock.is_virtual() || self.stepping.swap(true, Ordering::AcqRel) {
            return None;
        }
        let nanoseconds = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let end = self.clock.now().saturating_add(nanoseconds);
        let calls = self.expire_until(end);
        self.advance(end);
        self.stepping.store(false, Ordering::Release);
        Some(calls)
    }

    /// Calls what is due up to `end`, each at its time, without a lock. Returns the number of callbacks.
    fn expire_until(&self, end: u64) -> u64 {
        let mut calls = 0;
        // The time of the round, and what was started before it in each runtime.
        let mut round: Option<(u64, Vec<u64>)> = None;
        loop {
            let all: Vec<Arc<dyn Timed>> = {
                let timed = self.timed.lock().unwrap_or_else(PoisonError::into_inner);
                timed.iter().filter_map(Weak::upgrade).collect()
            };
            let starts = |at: usize| match &round {
                Some((_, starts)) => starts.get(at).copied().unwrap_or(0),
                None => u64::MAX,
            };
            let next = all.iter().enumerate().filter_map(|(at, timed)| {
                // What is not due in this round is due in a later one, also if it was started in this one.
                let due =
                    timed.next(starts(at)).filter(|due| round.as_ref().is_none_or(|(now, _)| due <= now));
                let due = due.or_else(|| timed.next(u64::MAX).filter(|due| *due > self.clock.now()));
                due.map(|due| (due.max(self.clock.now()), at))
            });
            let Some((due, at)) = next.min().filter(|(due, _)| *due <= end) else { return calls };
            if calls == MOST_CALLS {
                return calls;
            }
            if round.as_ref().is_none_or(|(now, _)| *now < due) {
                self.advance(due);
                round = Some((due, all.iter().map(|timed| timed.starts()).collect()));
            }
            let Some((_, starts)) = &round else { return calls };
            match all[at].expire(due, starts.get(at).copied().unwrap_or(0)) {
                Some(true) => calls += 1,
                Some(false) => {}
                None => return calls,
            }
        }
    }

    /// This is told of each change of the machine.
    pub(crate) fn add_follower(&self, follower: Weak<dyn Follower>) {
        let mut all = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(follower);
    }

    fn tell_followers(&self) {
        let followers: Vec<Arc<dyn Follower>> = {
            let all = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        followers.iter().for_each(|follower| follower.machine_changed());
    }

    /// Values of the machine's sockets, tasks or cgroups in this map end with them.
    pub(crate) fn add_storage(&self, map: &Arc<Map>) {
        let mut storages = self.storages.lock().unwrap_or_else(PoisonError::into_inner);
        storages.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(map));
        storages.push(Arc::downgrade(map));
    }

    /// Deletes the values of owners that the machine no longer has.
    fn end_storages(&self, old: &Machine) {
        let storages: Vec<Arc<Map>> = {
            let storages = self.storages.lock().unwrap_or_else(PoisonError::into_inner);
            storages.iter().filter_map(Weak::upgrade).collect()
        };
        if storages.is_empty() {
            return;
        }
        for kind in [MapKind::SkStorage, MapKind::TaskStorage, MapKind::CgrpStorage] {
            let mut storages = storages.iter().filter(|map| map.kind() == kind).peekable();
            if storages.peek().is_none() {
                continue;
            }
            let storages: Vec<_> = storages.collect();
            let stay: BTreeSet<u64> = self.with(|now| owners(now, kind).collect());
            for number in owners(old, kind).filter(|number| !stay.contains(number)) {
                let Ok(number) = u32::try_from(number) else { continue };
                for map in &storages {
                    // Most have no value there. A frozen map keeps it, as it keeps everything from its host.
                    let _ = map.delete(&number.to_ne_bytes());
                }
            }
        }
    }

    /// Moves a virtual clock to a time that is not before its own.
    fn advance(&self, to: u64) {
        let by = to.saturating_sub(self.clock.now());
        let _ = self.clock.step(Duration::from_nanos(by));
    }
}

/// The numbers of the owners of values in storages of that kind.
fn owners(machine: &Machine, kind: MapKind) -> Box<dyn Iterator<Item = u64> + '_> {
    match kind {
        MapKind::TaskStorage => Box::new(machine.task_numbers().map(u64::from)),
        MapKind::CgrpStorage => Box::new(machine.cgroups.keys().copied()),
        _ => Box::new(machine.sockets().iter().map(|socket| socket.cookie)),
    }
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("clock", &self.clock).finish_non_exhaustive()
    }
}
