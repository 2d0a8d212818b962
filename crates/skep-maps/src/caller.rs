//! The thread that an operation runs on.

/// Who changes or reads a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The thread that has this slot, inside a section.
    Cpu(u32),
    /// A thread without a slot. Nothing waits for it.
    Host,
}
