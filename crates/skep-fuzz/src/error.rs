//! Errors.

use thiserror::Error;

/// Why nothing was fuzzed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An object cannot be loaded.
    #[error("{source}")]
    Load {
        /// The reason.
        source: Box<skep::Error>,
    },
    /// The object has no such program.
    #[error("the object has no program {program:?}")]
    NoProgram {
        /// Its name.
        program: String,
    },
    /// Programs of that type take something else.
    #[error(
        "programs of type {program_type} run neither on packets nor on buffers: their inputs cannot be made up"
    )]
    NotBytes {
        /// The type.
        program_type: &'static str,
    },
    /// An unwanted verdict that the program's type does not have.
    #[error("programs of type {program_type} have no verdict {verdict:?}; they have {known}")]
    NoVerdict {
        /// The type.
        program_type: &'static str,
        /// The verdict.
        verdict: String,
        /// Those that it has.
        known: String,
    },
}
