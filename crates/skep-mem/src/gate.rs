//! The gate decides who may touch the lists of a virtual CPU: its own thread, uninterrupted; or the keeper, while
//! that thread is elsewhere.
//!
//! ```text
//!   owner:   busy = 1 | light fence | wanted? ──no──> its lists ... busy = 0          two stores and a load
//!                                       └──yes─> busy = 0, slow path (lock-free)
//!   keeper:  wanted = 1 | heavy fence | busy? ──no──> its lists ... wanted = 0
//!                                       └──yes─> wanted = 0, another time
//! ```
//!
//! The fences are the halves of the asymmetric fence of `skep-rcu`: at least one side sees the other's store. A
//! signal handler that interrupts the owner inside finds `busy` set and takes the slow path too. A handler that
//! interrupts the owner at any other moment has left the gate again when the owner resumes.
//!
//! What would break it: a store that moves across the fence; an owner that waits for `busy` as for a lock; two
//! keepers.

use crate::sync::{AtomicU32, Ordering};

/// The gate of one virtual CPU. All zeroes are an open gate.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Gate {
    busy: AtomicU32,
    wanted: AtomicU32,
}

impl Gate {
    /// Enters as the owner. Returns `false`, and has not entered, if it interrupts the owner or the keeper wants the
    /// lists.
    #[inline(always)]
    pub(crate) fn enter(&self, light_fence: impl FnOnce()) -> bool {
        // Relaxed, both: only this thread stores to it, and a handler on this thread restores what it found.
        if self.busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        light_fence();
        // Acquire: pairs with the Release in `hand_back`, for the keeper's changes of the lists.
        if self.wanted.load(Ordering::Acquire) != 0 {
            self.leave();
            return false;
        }
        true
    }

    /// Leaves as the owner.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: pairs with the Acquire in `is_idle`, for the owner's changes of the lists.
        self.busy.store(0, Ordering::Release);
    }

    /// The keeper requests the lists. It has them once it has executed a heavy fence and found the gate idle.
    pub(crate) fn request(&self) {
        // Relaxed: the heavy fence orders it before the load of `busy`.
        self.wanted.store(1, Ordering::Relaxed);
    }

    /// Whether the keeper has requested the lists.
    pub(crate) fn is_requested(&self) -> bool {
        // Relaxed: the keeper's own store.
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Whether the owner is elsewhere. If it is, after the fence, the lists belong to the keeper.
    pub(crate) fn is_idle(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.busy.load(Ordering::Acquire) == 0
    }

    /// The keeper returns the lists, or withdraws its request.
    pub(crate) fn hand_back(&self) {
        // Release: pairs with the Acquire in `enter`.
        self.wanted.store(0, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::model::Model;
    use crate::sync::AtomicU64;
    use loom::sync::atomic::fence;

    /// A counter that owner and keeper change without atomicity: a lost update shows that both were inside.
    #[derive(Default)]
    struct World {
        gate: Gate,
        count: AtomicU64,
        /// How many changes were made. Not part of the model.
        changes: std::sync::atomic::AtomicU64,
    }

    impl World {
        fn change(&self) {
            self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }

        fn own(&self, light: fn()) {
            for _ in 0..2 {
                if self.gate.enter(light) {
                    self.change();
                    self.gate.leave();
                }
            }
        }

        fn keep(&self, heavy: fn()) {
            self.gate.request();
            heavy();
            if self.gate.is_idle() {
                self.change();
            }
            self.gate.hand_back();
        }
    }

    fn meet(owner: fn(&World), keeper: fn(&World)) -> Model<World> {
        let end = |world: World| {
            assert_eq!(world.count.load(Ordering::Relaxed), world.changes.into_inner(), "two were inside");
        };
        Model { begin: World::default, parts: vec![owner, keeper], end }
    }

    fn full() {
        fence(Ordering::SeqCst);
    }

    #[test]
    fn loom_the_owner_and_the_keeper_are_never_both_inside() {
        meet(|world| world.own(full), |world| world.keep(full)).explore();
    }

    #[test]
    fn loom_rejects_an_owner_without_a_fence() {
        meet(|world| world.own(|| ()), |world| world.keep(full)).must_fail("two were inside");
    }

    #[test]
    fn loom_rejects_a_keeper_without_a_fence() {
        meet(|world| world.own(full), |world| world.keep(|| ())).must_fail("two were inside");
    }
}
