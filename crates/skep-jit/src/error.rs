//! Why a program cannot be compiled.

use thiserror::Error;

/// Why a program cannot be compiled. `slot` is the place in [`skep_verifier::Verified::insns`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no backend for this machine.
    #[error("programs cannot be compiled on this architecture ({0}); interpret them instead")]
    Architecture(&'static str),
    /// An instruction that this version has no code for.
    #[error("slot {slot}: {what} cannot be compiled")]
    Unsupported {
        /// Where.
        slot: usize,
        /// What it is.
        what: &'static str,
    },
    /// The linkage has no implementation of a helper that the program calls.
    #[error("slot {slot}: nothing implements helper {id}; add it to the linkage")]
    MissingHelper {
        /// Where it is called.
        slot: usize,
        /// Its number.
        id: u32,
    },
    /// The program names a map index that the linkage does not have.
    #[error("slot {slot}: the linkage has {maps} maps and none at index {map}")]
    MissingMap {
        /// Where it is named.
        slot: usize,
        /// The index.
        map: u32,
        /// How many there are.
        maps: usize,
    },
    /// The program takes the address of a map value, but the map's values have no fixed address.
    #[error("slot {slot}: values of map {map} cannot be addressed directly")]
    NoDirectValue {
        /// Where.
        slot: usize,
        /// Index of the map.
        map: u32,
    },
    /// The program reads an object that may be freed. That needs a fault handler, and there is none.
    #[error(
        "slot {slot}: the load reads an object of the host that may be gone, and must give 0 where it faults: {source}; \
         where the host's signals must be left alone, copy what is there with a helper in place of such loads"
    )]
    Probe {
        /// Where the first such load is.
        slot: usize,
        /// Why there is no handler.
        source: skep_text::Error,
    },
    /// Parts of the program contradict each other. This never happens with a program of [`skep_verifier::verify`].
    #[error("slot {slot}: {what}")]
    Malformed {
        /// Where.
        slot: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A helper within reach of the arena is out of reach of the code.
    #[error("a call does not reach its target from where the code was placed")]
    OutOfReach,
    /// There is no room for the code.
    #[error("no memory for the code: {0}")]
    Text(#[from] skep_text::Error),
    /// Constants are to be hidden, and the kernel gives no random numbers.
    #[error(
        "constants are to be hidden behind random numbers, and getrandom(2) gives none: allow the system call, or compile \
         without `blind_constants`"
    )]
    NoRandomness,
}
