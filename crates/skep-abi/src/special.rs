//! Which kinds of maps may hold which special fields.
//!
//! The problem: a special field is more than its bytes, and what the verifier takes for granted of it (a kept pointer
//! is null or was put there by a verified store, a lock was taken by who gives it back) holds only where every way to
//! write a value goes around it. Maps of some kinds copy whole values and cannot: tries, queues, stacks, bloom
//! filters. So a map is refused that has a field which its kind is not listed with.
//!
//! The table is Linux's: what 6.12 says of each kind with a lock, timer, work queue and kept pointer is in
//! `tests/data/map_fields.tsv`. Fields that are listed nowhere are allowed nowhere.

use crate::{MapKind, SpecialKind};

use MapKind as M;

/// Values of one element for all CPUs, that a lock can guard.
const LOCKED: &[M] =
    &[M::Hash, M::Array, M::CgroupStorage, M::SkStorage, M::InodeStorage, M::TaskStorage, M::CgrpStorage];
/// Values that work can be put off in.
const DEFERRED: &[M] = &[M::Hash, M::LruHash, M::Array];
/// Values that may own objects of the host, or name them.
const OWNING: &[M] = &[
    M::Hash,
    M::PercpuHash,
    M::LruHash,
    M::LruPercpuHash,
    M::Array,
    M::PercpuArray,
    M::SkStorage,
    M::InodeStorage,
    M::TaskStorage,
    M::CgrpStorage,
];

/// The kinds of maps whose values may hold a field of that kind.
pub fn holders(field: SpecialKind) -> &'static [MapKind] {
    match field {
        SpecialKind::SpinLock | SpecialKind::ResSpinLock => LOCKED,
        SpecialKind::Timer | SpecialKind::Workqueue | SpecialKind::TaskWork => DEFERRED,
        SpecialKind::ListHead { .. } | SpecialKind::RbRoot { .. } => DEFERRED,
        SpecialKind::KptrUntrusted { .. }
        | SpecialKind::Kptr { .. }
        | SpecialKind::KptrPercpu { .. }
        | SpecialKind::Refcount => OWNING,
        SpecialKind::Uptr { .. } => &[M::TaskStorage],
        // Nodes are what they are in objects that a program allocates. In a map's value they are bytes that nobody
        // relies on.
        SpecialKind::ListNode | SpecialKind::RbNode => MapKind::ALL,
        _ => &[],
    }
}
