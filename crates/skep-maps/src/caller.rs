//! The thread that an operation runs on.

/// The thread that changes or reads a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A thread with this slot, inside a section.
    Cpu(u32),
    /// A thread without a slot: a host's. No grace period waits for it.
    Host,
}
