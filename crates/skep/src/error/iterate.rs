//! Why a program could not be run over objects.

use skep_abi::MapKind;
use skep_verifier::ElementUse;

/// Why a program could not be run over what an iterator shows ([`crate::Program::iterate`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IterateFault {
    /// It is of another type.
    #[error("it is not a program of an iterator; its section must be iter/TARGET")]
    NoIterator,
    /// It is for other objects.
    #[error("it is for objects {expected}, and was given {given}")]
    OtherObjects {
        /// What it is for.
        expected: &'static str,
        /// What it was given.
        given: &'static str,
    },
    /// Maps of that kind have no elements that can be shown.
    #[error("map {map} is a {kind}: only elements of hash tables and arrays can be shown, per CPU or not")]
    Kind {
        /// The map.
        map: String,
        /// Its kind.
        kind: MapKind,
    },
    /// The map belongs to another runtime.
    #[error(
        "map {map} was created in another runtime: its elements may be reused while this program reads them"
    )]
    OtherRuntime {
        /// The map.
        map: String,
    },
    /// It uses more than there is.
    #[error(
        "it uses {} bytes of keys and {} of values, and map {map} has keys of {key} bytes and values of {value}",
        used.key, used.value
    )]
    Size {
        /// The map.
        map: String,
        /// Bytes of its keys.
        key: u32,
        /// Bytes of its values, those of all CPUs.
        value: usize,
        /// What the program uses.
        used: ElementUse,
    },
    /// It reads or writes values that programs may not read or write.
    #[error(
        "it uses values of map {map}, which programs may not use so: they are read-only or write-only, or have locks, \
         timers or pointers in them"
    )]
    Rights {
        /// The map.
        map: String,
    },
    /// It wrote too much about one object.
    #[error("it wrote more than 32,768 bytes about one object")]
    ObjectTooLong,
    /// It wrote too much.
    #[error("it wrote more than 64 MiB; iterate over fewer objects, or write less about each")]
    TooLong,
    /// It asked for the same object again and again.
    #[error("it asked 16 times to be run again for the same object (result 1)")]
    Again,
}
