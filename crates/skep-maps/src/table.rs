//! The elements of a map of any kind.

use skep_mem::CacheStats;

use crate::arena::Arena;
use crate::array::Array;
use crate::bloom::Bloom;
use crate::hash::Hash;
use crate::members::Members;
use crate::perf::PerfEvents;
use crate::queue::Queue;
use crate::references::References;
use crate::ring::Ring;
use crate::targets::Targets;
use crate::trie::Trie;
use crate::user_ring::UserRing;

/// One variant for each implementation.
#[derive(Debug)]
pub(crate) enum Table {
    Array(Array),
    Hash(Hash),
    Trie(Trie),
    References(References),
    Queue(Queue),
    Bloom(Bloom),
    Ring(Ring),
    Targets(Targets),
    Members(Members),
    UserRing(UserRing),
    Perf(PerfEvents),
    Arena(Arena),
}

impl Table {
    /// The bytes that are not charged as elements come and go: by caches of elements, and by arenas for their pages.
    pub(crate) fn fixed(&self) -> u64 {
        let beside = |stats: Option<(usize, CacheStats)>| stats.map(|(fixed, _)| fixed);
        let bytes = match self {
            Self::Hash(hash) => hash.stats().0,
            Self::Trie(trie) => trie.stats().0,
            Self::References(table) => beside(table.stats()).unwrap_or_else(|| table.memory()),
            Self::Members(table) => beside(table.stats()).unwrap_or_else(|| table.memory()),
            Self::Arena(arena) => arena.fixed(),
            Self::Array(array) => array.memory(),
            Self::Queue(queue) => queue.memory(),
            Self::Bloom(bloom) => bloom.memory(),
            Self::Ring(ring) => ring.memory(),
            Self::Targets(targets) => targets.memory(),
            Self::UserRing(ring) => ring.memory(),
            Self::Perf(events) => events.memory(),
        };
        bytes as u64
    }
}
