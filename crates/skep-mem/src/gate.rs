//! Who may touch the lists of a virtual CPU: its thread, not interrupted; or the keeper, while the thread is elsewhere.
//!
//! ```text
//!   owner:   busy = 1 | light fence | wanted? ──no──> its lists ... busy = 0          two stores and a load
//!                                       └──yes─> busy = 0, the way aside (lock-free, slower)
//!   keeper:  wanted = 1 | heavy fence | busy? ──no──> its lists ... wanted = 0
//!                                       └──yes─> wanted = 0, another time
//! ```
//!
//! The fences are the two halves that `skep-rcu` has for read sections: one of the two sees the other's store. A signal handler
//! that interrupts the owner inside finds `busy` set and goes aside as well; one that interrupts it at any other moment is gone
//! again before the owner goes on, and leaves everything in order.
//!
//! What would break it: a store that is moved over the fence; an owner that takes `busy` for a lock and waits; two keepers.

use crate::sync::{AtomicU32, Ordering};

/// The gate of one virtual CPU. All zeroes are an open one.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Gate {
    busy: AtomicU32,
    wanted: AtomicU32,
}

impl Gate {
    /// Enters as the owner. `false`: interrupted, or the keeper is there; then nothing was entered.
    #[inline(always)]
    pub(crate) fn enter(&self, light_fence: impl FnOnce()) -> bool {
        // Relaxed, both: only this thread stores to it, and a handler that does puts back what it found.
        if self.busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        light_fence();
        // Acquire: pairs with the Release in `hand_back`, for what the keeper has done with the lists.
        if self.wanted.load(Ordering::Acquire) != 0 {
            self.leave();
            return false;
        }
        true
    }

    /// Leaves as the owner.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: pairs with the Acquire in `is_idle`, for what the owner has done with the lists.
        self.busy.store(0, Ordering::Release);
    }

    /// The keeper asks for the lists. It has them once it has executed a heavy fence and found the gate idle.
    pub(crate) fn request(&self) {
        // Relaxed: the heavy fence orders it before the look at `busy`.
        self.wanted.store(1, Ordering::Relaxed);
    }

    /// Whether the keeper has asked.
    pub(crate) fn is_requested(&self) -> bool {
        // Relaxed: the keeper's own store.
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Whether the owner is elsewhere; if so, and after the fence, the lists are the keeper's.
    pub(crate) fn is_idle(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.busy.load(Ordering::Acquire) == 0
    }

    /// The keeper gives the lists back, or gives up.
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

    /// Owner and keeper each change what only one of them may change at a time.
    #[derive(Default)]
    struct World {
        gate: Gate,
        count: AtomicU64,
        /// How often they were inside. Not part of the model.
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
    fn loom_finds_the_fault_in_an_owner_without_a_fence() {
        meet(|world| world.own(|| ()), |world| world.keep(full)).must_fail("two were inside");
    }

    #[test]
    fn loom_finds_the_fault_in_a_keeper_without_a_fence() {
        meet(|world| world.own(full), |world| world.keep(|| ())).must_fail("two were inside");
    }
}
