//! Errors: of the object, and of tests that already fail.

/// Why an object has no mutants, or they cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object cannot be read or linked.
    #[error("{0}")]
    Object(#[from] skep_elf::Error),
    /// The object cannot be parsed.
    #[error("{0}")]
    Parse(#[from] skep::Error),
    /// It has no program of that name.
    #[error("there is no program {name:?}; the object has {known}")]
    UnknownProgram {
        /// The name.
        name: String,
        /// Those that it has.
        known: String,
    },
    /// There is nothing to change.
    #[error(
        "the object has no instruction that can be changed, {refused} programs that the verifier refuses left out"
    )]
    Nothing {
        /// Programs that the verifier refuses.
        refused: usize,
    },
    /// There is no mutant of that number.
    #[error("there is no change {number}: they are numbered 1 to {last}")]
    UnknownNumber {
        /// The number.
        number: usize,
        /// The last one.
        last: usize,
    },
    /// A test fails on the unchanged object.
    #[error(
        "{file}: {name:?} does not pass on the unchanged object: mend it first (skep test shows how it fails)"
    )]
    AlreadyFails {
        /// The test's file.
        file: String,
        /// The test's name.
        name: String,
    },
}
