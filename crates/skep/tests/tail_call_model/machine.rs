//! The machine: code memory, and CPUs that execute from it.
//!
//! This module knows no protocol. It defines what a CPU may *fetch*:
//!
//! ```text
//!                      store        clean             synchronise
//!      word in memory    nop          jmp p0            jmp p0            jmp p0
//!      caches may give   -            nop               -                 -
//!      CPU may fetch     nop          nop, jmp p0       nop, jmp p0       jmp p0
//! ```
//!
//! With [`Weak`](Fetch::Weak) fetching (aarch64), a CPU may execute any instruction that was at an address since
//! its last context-synchronising event, newer and older ones in any order. The event makes the CPU forget them,
//! but it can fetch again what caches still hold: so the caches are cleaned first (DC CVAU, IC IVAU), then the CPUs
//! synchronise. Entering and leaving a read-side critical section is no such event. With
//! [`Coherent`](Fetch::Coherent) fetching (x86-64), a CPU fetches what is stored.
//!
//! A place that is written for the second time has the same problem on a larger scale: until a CPU synchronises, it
//! may execute the old code there. Memory that no CPU was ever sent to has no leftovers.

use std::fmt;

use crate::set::{Element, Set};
use crate::state::{Agent, State, Version};

/// How instructions are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    Coherent,
    Weak,
}

/// A place for one piece of code: a stub or a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(pub(crate) u8);

/// Maximum number of places in a scope.
pub(crate) const PLACES: usize = 8;

const _: () = assert!(PLACES + 2 <= 16, "each word is a bit of a set");

/// The content of a place. Unwritten memory is a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Code {
    /// Free: traps.
    Free,
    /// Allocated, but not written yet: traps.
    Blank,
    /// The first half of a stub: `unwind; trap`.
    HalfStub,
    /// `unwind; jmp program`.
    Stub(Place),
    /// A program, identified by its result.
    Program(Version),
}

/// An instruction that can be replaced while CPUs run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Word {
    Nop,
    /// Jumps over the unwinding and the second word; only in a pair.
    Over,
    Jump(Place),
}

/// Places of such instructions in the text of the program that makes the tail call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Spot {
    /// The site; in a pair, the bypass.
    Site,
    /// The second word of a pair, after the unwinding.
    Tail,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Patched {
    pub(crate) now: Word,
    /// Old words that caches may still return.
    pub(crate) cached: Set<Word>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Memory {
    pub(crate) words: [Patched; 2],
    pub(crate) places: [Code; PLACES],
    /// Places to which a CPU may have been sent before.
    pub(crate) used: Set<Place>,
}

/// The next instruction of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    /// In no read-side critical section.
    Outside,
    /// Before the site.
    Site,
    /// After the bypass of a pair, before the unwinding.
    Unwinding,
    /// Unwound, before the second word of a pair.
    Tail,
    /// At the beginning of a stub: before its unwinding.
    Stub(Place),
    /// Unwound, before the jump of a stub.
    Unwound(Place),
    /// In a program that was tail-called.
    Target(Place),
    /// After the site, with its frame: no tail call was made.
    Behind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cpu {
    pub(crate) at: At,
    /// By [`Spot`].
    pub(crate) may_fetch: [Set<Word>; 2],
    /// Places where it may still execute the old code.
    pub(crate) leftovers: Set<Place>,
    /// Callers of membarrier for which it has not yet synchronised.
    pub(crate) owes: Set<Agent>,
    /// Waiters whose cookie its section delays.
    pub(crate) holds_up: Set<Agent>,
    /// For checking only: what the slot has held since the CPU last synchronised.
    pub(crate) recent: Set<Option<Version>>,
    /// For checking only: what would explain the current run, until it has its result.
    pub(crate) explains: Set<Option<Version>>,
}

impl Place {
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

impl At {
    /// The place of the code being executed, if it is not the caller's.
    pub(crate) fn place(self) -> Option<Place> {
        match self {
            Self::Stub(place) | Self::Unwound(place) | Self::Target(place) => Some(place),
            Self::Outside | Self::Site | Self::Unwinding | Self::Tail | Self::Behind => None,
        }
    }

    /// Whether the outcome of the tail call is already decided.
    pub(crate) fn is_decided(self) -> bool {
        matches!(self, Self::Outside | Self::Target(_) | Self::Behind)
    }
}

impl Memory {
    pub(crate) fn new(site: Word) -> Self {
        let words = [site, Word::Nop].map(|now| Patched { now, cached: Set::EMPTY });
        Self { words, places: [Code::Free; PLACES], used: Set::EMPTY }
    }

    pub(crate) fn at(&self, place: Place) -> Code {
        self.places[place.index()]
    }
}

impl Cpu {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self {
            at: At::Outside,
            may_fetch: memory.words.map(|word| Set::of(word.now)),
            leftovers: Set::EMPTY,
            owes: Set::EMPTY,
            holds_up: Set::EMPTY,
            recent: Set::of(None),
            explains: Set::EMPTY,
        }
    }
}

/// What the machine can do.
impl State {
    /// One store of a word: CPUs may fetch it from now on, and with weak fetching they may also fetch the old one.
    pub(crate) fn store(&mut self, fetch: Fetch, spot: Spot, word: Word) {
        let patched = &mut self.memory.words[spot as usize];
        let old = std::mem::replace(&mut patched.now, word);
        if fetch == Fetch::Weak {
            patched.cached.insert(old);
            patched.cached.remove(word);
        }
        for cpu in &mut self.cpus {
            let may_fetch = &mut cpu.may_fetch[spot as usize];
            match fetch {
                Fetch::Coherent => *may_fetch = Set::of(word),
                Fetch::Weak => may_fetch.insert(word),
            }
        }
    }

    /// Makes the caches hold what memory holds. CPUs may still have fetched earlier.
    pub(crate) fn clean(&mut self) {
        self.memory.words.iter_mut().for_each(|word| word.cached = Set::EMPTY);
    }

    /// Writes code and cleans the caches.
    pub(crate) fn write(&mut self, fetch: Fetch, place: Place, code: Code) {
        self.memory.places[place.index()] = code;
        for cpu in &mut self.cpus {
            cpu.leftovers.remove(place);
            let is_executable = !matches!(code, Code::Free | Code::Blank);
            if fetch == Fetch::Weak && is_executable && self.memory.used.contains(place) {
                cpu.leftovers.insert(place);
            }
        }
    }

    /// A context-synchronising event on one CPU, which completes all membarrier calls made before it.
    pub(crate) fn synchronise(&mut self, cpu: usize) {
        let recent = self.values();
        let cpu = &mut self.cpus[cpu];
        cpu.owes = Set::EMPTY;
        cpu.leftovers = Set::EMPTY;
        cpu.may_fetch = self.memory.words.map(|word| word.cached.with(Set::of(word.now)));
        cpu.recent = recent;
        if cpu.at == At::Site {
            cpu.explains = recent;
        }
    }
}

impl Element for Place {
    fn number(self) -> u8 {
        self.0
    }
    fn from_number(number: u8) -> Self {
        Self(number)
    }
}

impl Element for Word {
    fn number(self) -> u8 {
        match self {
            Self::Nop => 0,
            Self::Over => 1,
            Self::Jump(place) => 2 + place.0,
        }
    }
    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Nop,
            1 => Self::Over,
            _ => Self::Jump(Place(number - 2)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop => f.write_str("nop"),
            Self::Over => f.write_str("jmp over"),
            Self::Jump(place) => write!(f, "jmp {place}"),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Site => "the site",
            Self::Tail => "the second word",
        })
    }
}
