//! What can go wrong.

/// Why a [`Domain`](crate::Domain) could not be made or entered, or could not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every slot is claimed by another thread that is still alive.
    #[error(
        "all {limit} thread slots are claimed: a thread keeps its slot until it ends or gives it back; \
         let idle threads call Domain::release, or make the domain with more slots"
    )]
    NoSlot {
        /// How many slots the domain has.
        limit: u32,
    },

    /// A domain was asked for with no slots at all, or with more than [`MAX_SLOTS`](crate::MAX_SLOTS).
    #[error("{wanted} thread slots were asked for; a domain has at least 1 and at most {max}")]
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

    /// There is no memory to remember that the thread has a slot.
    #[error("no memory for this thread's slot: enter again when there is, or once before memory is short")]
    NoMemory,

    /// The thread that would wait for a grace period is inside a section that the grace period waits for.
    #[error(
        "this thread is inside a read section that it would wait for: \
         drop its sections first, or let Domain::call do what must come after the grace period"
    )]
    InsideSection,

    /// A callback or deferred work of the domain would wait for the domain's keeper, which is running it.
    #[error(
        "this thread is the domain's keeper, or runs its callbacks, and would wait for itself: \
         use Domain::call for what must come after a grace period"
    )]
    OnKeeper,

    /// The process is a forked child of the one that made the domain: the keeper and the other readers stayed behind.
    #[error(
        "this domain belongs to the parent process, and its keeper stayed there: make a domain in the child"
    )]
    Forked,

    /// The system granted membarrier(2) when the domain was made and refuses it now.
    #[error(
        "membarrier was granted when the domain was made and is refused now ({}): let a seccomp filter that is \
         installed later allow it, or make the domain with Builder::membarrier(false)",
        std::io::Error::from_raw_os_error(*errno)
    )]
    Membarrier {
        /// The number of the error.
        errno: i32,
    },

    /// The page that tells a forked child from its parent could not be had.
    #[error(
        "the page that tells forked children from the parent was refused ({}): it takes Linux 4.14 or later, \
         a mapping more (vm.max_map_count) and memory for it",
        std::io::Error::from_raw_os_error(*errno)
    )]
    ForkWitness {
        /// The number of the error.
        errno: i32,
    },
}
