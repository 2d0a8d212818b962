//! Statistics of a domain.

/// Who runs a domain's callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeeperState {
    /// Nothing has been queued or waited for, so there is no thread.
    NotNeededYet,
    /// The thread "skep-keeper".
    Running,
    /// The system refused a thread: the threads that call `call`, `defer`, `try_pass`, `synchronize` and `barrier`
    /// run callbacks that are due. They retry to start the keeper from time to time.
    Refused,
    /// As `Refused`, but by choice: [`Builder::keeper`](crate::Builder::keeper).
    Unwanted,
    /// This process is a forked child: no thread runs callbacks.
    Forked,
}

/// A snapshot of a domain. Counters start at its creation, unless they say otherwise, and were not read at one
/// moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Whether readers leave their fence to membarrier(2). If not, every outermost section costs a fence instruction.
    pub membarrier: bool,
    /// Which threads run callbacks.
    pub keeper: KeeperState,
    /// Callbacks and deferred work that are queued or running now.
    pub waiting: u64,
    /// Callbacks and deferred work that have run, with or without a panic.
    pub finished: u64,
    /// How many of these panicked.
    pub panicked: u64,
    /// Cookies given out, to callers and to batches of callbacks.
    pub cookies: u64,
    /// Scans after which at least one more cookie had passed.
    pub grace_periods: u64,
    /// All scans.
    pub scans: u64,
    /// How often the sleeping keeper was woken.
    pub wakes: u64,
    /// How often membarrier(2) failed although it had worked when the domain was made.
    pub membarrier_failures: u64,
}
