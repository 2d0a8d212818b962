//! Which kinds of maps may hold which special fields.
//!
//! A special field is more than its bytes. The verifier relies on invariants of it: a kept pointer is null or was
//! stored by a verified store, a lock was taken by the run that releases it. They hold only if every write to a
//! value skips the field. Maps of some kinds copy whole values and cannot skip fields: tries, queues, stacks, bloom
//! filters. So a map is refused if it has a field that is not listed for its kind.
//!
//! The table is Linux's: `tests/data/map_fields.tsv` has the answers of 6.12 for each kind with a lock, timer, work
//! queue and kept pointer. A field that is not listed is allowed in no kind.

use crate::{MapKind, SpecialKind};

use MapKind as M;

/// Values that are shared by all CPUs, so that a lock can guard them.
const LOCKED: &[M] =
    &[M::Hash, M::Array, M::CgroupStorage, M::SkStorage, M::InodeStorage, M::TaskStorage, M::CgrpStorage];
/// Values that can hold deferred work.
const DEFERRED: &[M] = &[M::Hash, M::LruHash, M::Array];
/// Values that may own or name objects of the host.
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
        // Nodes have a meaning only in objects that a program allocates. In a map's value they are plain bytes.
        SpecialKind::ListNode | SpecialKind::RbNode => MapKind::ALL,
        _ => &[],
    }
}
