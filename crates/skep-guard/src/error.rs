//! The error of this crate.

/// Why memory cannot be guarded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The processor or the kernel has no protection keys for processes.
    #[error(
        "memory cannot be guarded: this processor or kernel has no protection keys (pku in /proc/cpuinfo); keep secrets in another process"
    )]
    NotSupported,
    /// All keys of the process are in use.
    #[error(
        "memory cannot be guarded: the process uses all of its protection keys, free one with pkey_free(2)"
    )]
    NoKeyLeft,
    /// The system refuses memory.
    #[error("{call} of {bytes} bytes of guarded memory: {source}")]
    Memory {
        /// The system call.
        call: &'static str,
        /// How many bytes.
        bytes: usize,
        /// Why.
        source: std::io::Error,
    },
}
