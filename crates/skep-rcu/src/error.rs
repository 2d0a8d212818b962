//! What can go wrong when a thread asks for a slot.

/// Why a [`Slots`](crate::Slots) instance could not be made or a thread could not enter it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every slot is claimed by another thread that is still alive.
    #[error(
        "all {limit} thread slots are claimed: a thread keeps its slot until it ends or gives it back; \
         let idle threads call Slots::release, or make the instance with more slots"
    )]
    NoSlot {
        /// How many slots the instance has.
        limit: u32,
    },

    /// An instance was asked for with no slots at all, or with more than [`MAX_SLOTS`](crate::MAX_SLOTS).
    #[error("{wanted} thread slots were asked for; an instance has at least 1 and at most {max}")]
    SlotCount {
        /// The number asked for.
        wanted: u32,
        /// The largest number allowed.
        max: u32,
    },

    /// The thread is ending and has already given its slots back, or a signal handler interrupted the very
    /// moment in which this thread was claiming a slot.
    #[error(
        "this thread cannot claim a slot now: it is ending, or a signal handler interrupted its first claim; \
         enter before the thread's destructors run, and once before handlers that enter are installed"
    )]
    Unavailable,
}
