//! The crate's error.

/// Why a [`Domain`](crate::Domain) cannot be made or entered, or cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every slot is claimed by another thread that is still alive.
    #[error(
        "all {limit} thread slots are claimed, and a thread keeps its slot until it ends: \
         call Domain::release on idle threads, or make the domain with more slots"
    )]
    NoSlot {
        /// The number of slots of the domain.
        limit: u32,
    },

    /// A domain with no slots or more than [`MAX_SLOTS`](crate::MAX_SLOTS) was requested.
    #[error("{wanted} thread slots requested: a domain has at least 1 and at most {max}")]
    SlotCount {
        /// The number requested.
        wanted: u32,
        /// The largest number allowed.
        max: u32,
    },

    /// The thread is ending and has already given its slots back, or a signal handler interrupted the thread while it
    /// was claiming a slot.
    #[error(
        "this thread cannot claim a slot now: it is ending, or a signal handler interrupted its first claim; \
         enter before the thread's destructors run, and once before installing handlers that enter"
    )]
    Unavailable,

    /// No memory to record that the thread has a slot.
    #[error("no memory for this thread's slot: enter again later, or once before memory is short")]
    NoMemory,

    /// The thread is inside a section that the grace period would wait for.
    #[error(
        "this thread is inside a section that the grace period waits for: \
         drop its sections first, or pass the work after the grace period to Domain::call"
    )]
    InsideSection,

    /// A callback or deferred work of the domain would wait for the domain's keeper, which is running it.
    #[error(
        "this thread runs the domain's callbacks and would wait for itself: \
         pass the work after the grace period to Domain::call"
    )]
    OnKeeper,

    /// The process is a forked child of the process that made the domain: the keeper and the other readers are in the
    /// parent.
    #[error(
        "this domain belongs to the parent process, where its keeper runs: make a new domain in the child"
    )]
    Forked,

    /// The system granted membarrier(2) when the domain was made, and refuses it now.
    #[error(
        "membarrier(2) worked when the domain was made and fails now ({}): allow it in seccomp filters that are \
         installed later, or make the domain with Builder::membarrier(false)",
        std::io::Error::from_raw_os_error(*errno)
    )]
    Membarrier {
        /// The error number.
        errno: i32,
    },

    /// The system refused the page that tells a forked child from its parent.
    #[error(
        "the system refused the page that tells forked children from the parent ({}): it needs Linux 4.14 or later, \
         one more mapping (vm.max_map_count) and memory for it",
        std::io::Error::from_raw_os_error(*errno)
    )]
    ForkWitness {
        /// The error number.
        errno: i32,
    },
}
