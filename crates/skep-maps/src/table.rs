//! The elements of a map of any kind.

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
