//! One state of the whole system: the machine, the slot of the program array, and the threads that work on them.

use std::cmp::Ordering;
use std::fmt;

use crate::machine::{Code, Cpu, Fetch, Memory, Place, Word};
use crate::set::{Element, Set};

/// What is explored: the machine, the protocol, and the scope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) fetch: Fetch,
    pub(crate) shape: Shape,
    pub(crate) mistake: Option<Mistake>,
    pub(crate) scope: Scope,
}

/// The form of a tail call that can be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One word, `nop` or `jmp stub`, and stubs that never change: `unwind; jmp program`. One poke for each update.
    SiteAndStub,
    /// Two words around inline unwinding, `nop | jmp over; unwind; nop | jmp program`. Two pokes to install and to
    /// remove.
    Pair,
}

/// The size of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// Reader threads, each on its own CPU; they enter and leave any number of times.
    pub(crate) cpus: usize,
    pub(crate) updaters: u8,
    /// Number of updates by all updaters together.
    pub(crate) updates: u8,
    /// Places in code memory.
    pub(crate) places: u8,
    /// No update builds while more stubs than this wait to be reclaimed.
    pub(crate) waiting: usize,
    /// Whether a host waits, once, until no CPU runs what was replaced.
    pub(crate) synchronizes: bool,
}

/// A step that is left out or made at the wrong time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The keeper does not make CPUs discard what they fetched earlier.
    LeaveOutSync,
    /// The keeper takes its cookie before it makes the CPUs synchronise.
    TakeCookieBeforeSync,
    /// The keeper makes the CPUs synchronise, and adds objects that were retired meanwhile to its batch.
    JoinBatchAfterSync,
    /// The keeper reclaims without waiting for readers.
    LeaveOutGrace,
    /// A replaced stub is retired before the caches are clean.
    RetireBeforeClean,
    /// The site is poked before the stub is written.
    PokeBeforeWriting,
    /// The old program is dropped before its stub is poked away.
    DropProgramBeforePoke,
    /// Replaced programs are forgotten; only removed ones are retired.
    ForgetReplaced,
    /// A program is reclaimed with its stub even if it has other references.
    ForgetOtherReferences,
    /// New code is published in memory that was executed before, without CPUs synchronising.
    ReuseWithoutSync,
    /// Updaters do not exclude each other.
    LeaveOutLock,
    /// An updater that finds nothing to remove keeps the lock.
    KeepLock,
    /// A host that synchronizes leaves the membarrier call to the keeper if no retired object is left to take.
    LeaveSyncToKeeper,
    /// Updaters build even if too many stubs wait.
    BuildWithoutBound,
    /// In a pair: the second poke does not wait for readers between the words.
    LeaveOutGraceBetween,
    /// In a pair: CPUs do not synchronise between the two pokes.
    LeaveOutSyncBetween,
}

/// The result of a program identifies it: programs are numbered as they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version(pub(crate) u8);

/// A former, current or future content of the slot: a program, and the stub that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry {
    pub(crate) version: Version,
    /// None in a pair.
    pub(crate) stub: Option<Place>,
    pub(crate) program: Place,
}

/// A thread that calls membarrier and takes cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Agent {
    Keeper,
    Host,
    Updater(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) memory: Memory,
    /// All CPUs are equivalent: see [`canonical`](Self::canonical).
    pub(crate) cpus: [Cpu; 2],
    pub(crate) slot: Option<Entry>,
    /// The lock of the slot.
    pub(crate) lock: Option<u8>,
    pub(crate) updaters: [Updater; 2],
    pub(crate) updates_left: u8,
    pub(crate) loaded: u8,
    /// Retired, and not yet taken by the keeper.
    pub(crate) incoming: Set<Place>,
    /// What the keeper is about to reclaim.
    pub(crate) batch: Set<Place>,
    pub(crate) keeper: Keeper,
    pub(crate) host: Host,
    /// For checking only: programs in which no CPU may be once the host's call has returned.
    pub(crate) expired: Set<Option<Version>>,
}

/// The progress of an updater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Updater {
    Idle,
    /// What it will install (or nothing, to remove) is written; a membarrier call may be in progress.
    Prepared(Option<Entry>),
    /// It has taken the lock and changed the slot. A pair is changed under the lock, a site only poked.
    Updating(Stage, Update),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Update {
    pub(crate) new: Option<Entry>,
    /// The slot's previous content.
    pub(crate) was: Option<Version>,
    /// The reference that the slot held before and the updater holds now.
    pub(crate) old: Set<Place>,
}

/// The progress of changing the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    /// Not begun.
    Locked,
    /// The first word of a pair is stored; the caches are not clean yet.
    HalfPoked,
    /// The caches are clean, and a membarrier call is in progress.
    HalfSyncing,
    /// Waits for readers that may be between the words.
    HalfWaiting,
    /// The (last) word is stored; the caches are not clean yet.
    Poked,
    /// The caches are clean: the replaced program can be retired.
    Clean,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Keeper {
    Idle,
    /// Its membarrier call is in progress.
    Syncing,
    /// Its cookie has not passed yet.
    Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Host {
    /// Has not called yet.
    Idle,
    /// Its membarrier call is in progress.
    Syncing,
    /// Its cookie has not passed yet.
    Waiting,
    Returned,
}

impl Model {
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Maximum number of stubs alive: the installed one, those that may wait, and one held by each updater.
    pub(crate) fn most_stubs(&self) -> usize {
        1 + self.scope.waiting + usize::from(self.scope.updaters)
    }

    /// Nothing is installed, every thread is idle.
    pub(crate) fn start(&self) -> State {
        let memory = Memory::new(match self.shape {
            Shape::SiteAndStub => Word::Nop,
            Shape::Pair => Word::Over,
        });
        State {
            memory,
            cpus: [Cpu::new(&memory); 2],
            slot: None,
            lock: None,
            updaters: [Updater::Idle; 2],
            updates_left: self.scope.updates,
            loaded: 0,
            incoming: Set::EMPTY,
            batch: Set::EMPTY,
            keeper: Keeper::Idle,
            host: Host::Idle,
            expired: Set::EMPTY,
        }
    }
}

impl State {
    /// The current target of a tail call through the slot.
    pub(crate) fn value(&self) -> Option<Version> {
        self.slot.map(|entry| entry.version)
    }

    /// All objects that are retired and not reclaimed.
    pub(crate) fn retired(&self) -> Set<Place> {
        self.incoming.with(self.batch)
    }

    pub(crate) fn stubs_in(&self, places: Set<Place>) -> usize {
        let is_stub = |place: &Place| matches!(self.memory.at(*place), Code::Stub(_) | Code::HalfStub);
        places.iter().filter(is_stub).count()
    }

    /// All references of the slot and the updaters: to the new program until it is in the slot, to the old one from
    /// then on.
    pub(crate) fn referred_to(&self) -> Set<Place> {
        let places = |entry: Option<Entry>| entry.map_or(Set::EMPTY, |entry| entry.places());
        self.updaters.iter().fold(places(self.slot), |all, updater| match *updater {
            Updater::Idle => all,
            Updater::Prepared(new) => all.with(places(new)),
            Updater::Updating(_, update) => all.with(update.old),
        })
    }

    /// Possible targets of a tail call at this moment: the slot's content, and its content before an update after
    /// which the caches are not clean yet.
    pub(crate) fn values(&self) -> Set<Option<Version>> {
        let before = self.updaters.iter().filter_map(|updater| match updater {
            Updater::Updating(stage, update) if *stage != Stage::Clean => Some(update.was),
            _ => None,
        });
        before.chain([self.value()]).collect()
    }

    /// Changes the slot's content.
    pub(crate) fn set_slot(&mut self, entry: Option<Entry>) {
        self.slot = entry;
        let value = self.value();
        self.expired.remove(value);
        for cpu in &mut self.cpus {
            cpu.recent.insert(value);
            if !cpu.at.is_decided() {
                cpu.explains.insert(value);
            }
        }
    }

    /// The part that does not depend on how instructions are fetched.
    pub(crate) fn without_fetches(mut self) -> Self {
        for cpu in &mut self.cpus {
            cpu.may_fetch = [Set::EMPTY; 2];
            cpu.leftovers = Set::EMPTY;
            (cpu.recent, cpu.explains) = (Set::EMPTY, Set::EMPTY);
        }
        self.memory.words.iter_mut().for_each(|word| word.cached = Set::EMPTY);
        self
    }

    /// The representative of all states that differ only in the order of CPUs and updaters.
    pub(crate) fn canonical(self, model: &Model) -> Self {
        let with_cpus_sorted = |mut state: Self| {
            state.cpus[..model.scope.cpus].sort_unstable();
            state
        };
        let may_swap = model.scope.updaters == 2;
        match self.updaters[1].cmp(&self.updaters[0]) {
            Ordering::Less if may_swap => with_cpus_sorted(self.with_updaters_swapped()),
            Ordering::Equal if may_swap => {
                with_cpus_sorted(self).min(with_cpus_sorted(self.with_updaters_swapped()))
            }
            _ => with_cpus_sorted(self),
        }
    }

    fn with_updaters_swapped(mut self) -> Self {
        self.updaters.swap(0, 1);
        self.lock = self.lock.map(|index| 1 - index);
        for cpu in &mut self.cpus {
            cpu.owes = cpu.owes.swapped(Agent::Updater(0), Agent::Updater(1));
            cpu.holds_up = cpu.holds_up.swapped(Agent::Updater(0), Agent::Updater(1));
        }
        self
    }
}

impl Entry {
    pub(crate) fn places(&self) -> Set<Place> {
        self.stub.into_iter().chain([self.program]).collect()
    }

    /// The word that leads to it.
    pub(crate) fn jump(&self) -> Word {
        Word::Jump(self.stub.unwrap_or(self.program))
    }
}

impl Element for Option<Version> {
    fn number(self) -> u8 {
        self.map_or(0, |version| version.0)
    }
    fn from_number(number: u8) -> Self {
        (number != 0).then_some(Version(number))
    }
}

impl Element for Agent {
    fn number(self) -> u8 {
        match self {
            Self::Keeper => 0,
            Self::Host => 1,
            Self::Updater(index) => 2 + index,
        }
    }
    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Keeper,
            1 => Self::Host,
            _ => Self::Updater(number - 2),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}", self.0)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.version, self.program)?;
        self.stub.map_or(Ok(()), |stub| write!(f, ", its stub at {stub}"))
    }
}
