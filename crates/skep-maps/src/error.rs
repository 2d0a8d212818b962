//! What can go wrong with maps.

use std::fmt;

use skep_abi::MapKind;

use crate::op_error::{OpError, errno};

/// Why a map could not be made or an operation on it failed. Every variant names the map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The kind is known but not provided.
    #[error("map `{map}`: maps of kind {kind} are not provided yet; {} are", list(.provided))]
    KindNotProvided {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The kinds that are provided.
        provided: &'static [MapKind],
    },

    /// The size of keys does not suit the kind.
    #[error("map `{map}`: keys of {key_size} bytes, but those of kind {kind} have {wanted}")]
    KeySize {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// Bytes in a key, as defined.
        key_size: u32,
        /// What it may be, in words.
        wanted: &'static str,
    },

    /// A value size that the kind does not allow.
    #[error("map `{map}`: values of {value_size} bytes, but those of kind {kind} have {wanted}")]
    ValueSize {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The value size in bytes.
        value_size: u32,
        /// What it may be.
        wanted: &'static str,
    },

    /// A map without room.
    #[error("map `{map}`: max_entries is 0: give it the largest number of elements that the map is to hold")]
    NoEntries {
        /// The map's name.
        map: String,
    },

    /// Creation flags that the kind does not have.
    #[error(
        "map `{map}`: flags {flags:#x} contain {unknown:#x}, which kind {kind} does not provide; \
         it provides {provided:#x}"
    )]
    CreateFlags {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The flags of the definition.
        flags: u32,
        /// Those of them that are not provided.
        unknown: u32,
        /// All that are provided.
        provided: u32,
    },

    /// A map that programs may neither read nor write.
    #[error(
        "map `{map}`: the flags BPF_F_RDONLY_PROG (0x80) and BPF_F_WRONLY_PROG (0x100) exclude each other: \
         leave one out"
    )]
    NeitherReadNorWrite {
        /// The map's name.
        map: String,
    },

    /// A trie that does not say that its elements are allocated as they come.
    #[error(
        "map `{map}`: an lpm_trie needs the flag BPF_F_NO_PREALLOC: add __uint(map_flags, BPF_F_NO_PREALLOC)"
    )]
    NeedsNoPrealloc {
        /// The map's name.
        map: String,
    },

    /// A number of virtual CPUs that makes no sense.
    #[error("map `{map}`: made for 0 virtual CPUs, but programs run as at least 1")]
    NoCpus {
        /// The map's name.
        map: String,
    },

    /// A number of virtual CPUs that is not that of the domain.
    #[error(
        "map `{map}`: made for {cpus} virtual CPUs in a domain with {slots} slots: programs run as one of the slots, so say \
         the same number, or 0"
    )]
    CpuCount {
        /// The map's name.
        map: String,
        /// What the options say.
        cpus: u32,
        /// What the domain has.
        slots: u32,
    },

    /// The map's own domain of readers could not be made.
    #[error("map `{map}`: {source}")]
    NoReaders {
        /// The map's name.
        map: String,
        /// Why.
        source: skep_rcu::Error,
    },

    /// The map would take more memory than it may.
    #[error(
        "map `{map}`: {bytes} bytes for {max_entries} elements are more than the limit of {limit}: \
         lower max_entries or raise the limit"
    )]
    TooLarge {
        /// The map's name.
        map: String,
        /// The bytes that it would take; `u64::MAX` stands for more than can be counted.
        bytes: u64,
        /// The number of elements.
        max_entries: u32,
        /// The most bytes that a map may take.
        limit: u64,
    },

    /// A new element did not get memory.
    #[error("map `{map}`: no memory: {source}")]
    NoMemory {
        /// The map's name.
        map: String,
        /// Why not.
        source: skep_mem::Error,
    },

    /// A key of the wrong length.
    #[error("map `{map}`: a key of {given} bytes was given, but keys have {key_size}")]
    KeyLength {
        /// The map's name.
        map: String,
        /// Bytes in a key.
        key_size: u32,
        /// Bytes given.
        given: usize,
    },

    /// A value of the wrong length.
    #[error("map `{map}`: {given} bytes were given for a value of {wanted}{}", per_cpu(.cpus, .value_size))]
    ValueLength {
        /// The map's name.
        map: String,
        /// Bytes in a value as the host gives and takes it.
        wanted: usize,
        /// Bytes given.
        given: usize,
        /// Bytes in the value of one CPU.
        value_size: u32,
        /// The number of CPUs where each has a value.
        cpus: Option<u32>,
    },

    /// An update with [`NoExist`](crate::UpdateFlags::NoExist) of an element that exists.
    #[error("map `{map}`: key {key} exists already: update it with BPF_ANY or BPF_EXIST")]
    Exists {
        /// The map's name.
        map: String,
        /// The key.
        key: Key,
    },

    /// No such element.
    #[error("map `{map}`: there is no key {key}")]
    Missing {
        /// The map's name.
        map: String,
        /// The key.
        key: Key,
    },

    /// The map has all the elements it may have.
    #[error(
        "map `{map}`: no room for key {key}: it holds its {max_entries} elements; delete some or raise max_entries"
    )]
    Full {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The key.
        key: Key,
        /// The most elements that it may hold.
        max_entries: u32,
    },

    /// An index beyond an array's end.
    #[error("map `{map}`: index {index} is out of range: the array has {max_entries} elements, from 0")]
    OutOfRange {
        /// The map's name.
        map: String,
        /// The index.
        index: u32,
        /// The number of elements.
        max_entries: u32,
    },

    /// A prefix longer than the address that follows it.
    #[error("map `{map}`: a prefix length of {len} bits was given, but keys have {max} bits of data")]
    PrefixTooLong {
        /// The map's name.
        map: String,
        /// The length given, in bits.
        len: u32,
        /// The longest, in bits.
        max: u32,
    },

    /// A field of values that is more than its bytes, and does not lie where it may.
    #[error(
        "map `{map}`: values of {value_size} bytes cannot hold a special field of {size} bytes at {offset}: fields \
         ascend, begin and end at multiples of 4, and lie inside of the value; a lock has 4 bytes, and a kept pointer 8 at a \
         multiple of 8"
    )]
    Field {
        /// The map's name.
        map: String,
        /// The value size in bytes.
        value_size: u32,
        /// Bytes from the value's start.
        offset: u32,
        /// Its size in bytes.
        size: u32,
    },

    /// Two fields of values of which there may be one.
    #[error("map `{map}`: values hold a second {name} at {offset}; a value may have one: remove one of them")]
    FieldRepeated {
        /// The map's name.
        map: String,
        /// The field's C type.
        name: &'static str,
        /// Bytes from the value's start to the second.
        offset: u32,
    },

    /// A map of maps whose inner maps hold maps.
    #[error(
        "map `{map}`: the maps inside of it hold maps themselves; give it inner maps of another kind, such as array or hash"
    )]
    NestedMaps {
        /// The map's name.
        map: String,
    },

    /// Frozen contents that a map of this definition cannot have.
    #[error(
        "map `{map}`: the definition's frozen contents have {given} bytes, its kind is {kind} with values of {value_size} \
         bytes; only an array without special fields can be created frozen, with as many bytes as its values have"
    )]
    FrozenContents {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The value size in bytes.
        value_size: u32,
        /// Bytes of frozen contents.
        given: usize,
    },

    /// Locks in values that programs cannot both read and write.
    #[error(
        "map `{map}`: values with a struct bpf_spin_lock must be readable and writable by programs: leave BPF_F_RDONLY_PROG and \
         BPF_F_WRONLY_PROG out"
    )]
    LockNotWritable {
        /// The map's name.
        map: String,
    },

    /// A special field in the values of a kind that cannot have one.
    #[error("map `{map}`: values of kind {kind} cannot hold a {field}, as in Linux; {}", holders(allowed))]
    FieldNotAllowed {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The field as C has it.
        field: &'static str,
        /// The kinds whose values can hold one, of those that are provided.
        allowed: Vec<MapKind>,
    },

    /// An operation under the element's lock, of which there is none.
    #[error(
        "map `{map}`: values have no lock: leave BPF_F_LOCK out, or declare a struct bpf_spin_lock in their type"
    )]
    NoLock {
        /// The map's name.
        map: String,
    },

    /// An operation under an element's lock, in a handler of a signal that interrupted this thread while it held one.
    #[error("map `{map}`: this thread holds the lock of a value already")]
    LockHeld {
        /// The map's name.
        map: String,
    },

    /// An operation that maps of this kind do not have.
    #[error("map `{map}`: elements of a map of kind {kind} cannot be {what}")]
    NotForKind {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// What was to be done with an element.
        what: &'static str,
    },

    /// A batch that is too small for what a hash table keeps together.
    #[error("map `{map}`: a bucket has {needed} elements, and the batch room for {count}: ask for more")]
    BucketLarger {
        /// The map's name.
        map: String,
        /// The most elements that were asked for.
        count: usize,
        /// How many are in the bucket.
        needed: usize,
    },

    /// Deletion from an array.
    #[error("map `{map}`: elements of an array cannot be deleted: write zeroes instead")]
    CannotDelete {
        /// The map's name.
        map: String,
    },

    /// Bytes for, or of, an element of a map that holds programs or maps.
    #[error("map `{map}` holds {what}, not bytes: put them in as what they are")]
    HoldsReferences {
        /// The map's name.
        map: String,
        /// `programs` or `maps`.
        what: &'static str,
    },

    /// An operation with keys on a map whose elements have none.
    #[error("map `{map}`: elements of kind {kind} have no keys: use {}", methods(*.kind))]
    NoKeys {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// An operation of queues on a map that is none.
    #[error("map `{map}`: maps of kind {kind} have no `{operation}`")]
    NotAQueue {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// What was to be done.
        operation: &'static str,
    },

    /// A queue or stack has all the elements it may have.
    #[error(
        "map `{map}`: it holds its {max_entries} elements: pop some, push with BPF_EXIST to lose the oldest, \
         or raise max_entries"
    )]
    QueueFull {
        /// The map's name.
        map: String,
        /// The most elements that it may hold.
        max_entries: u32,
    },

    /// Flags that the kind does not have for a push.
    #[error("map `{map}`: values of kind {kind} are pushed with {}", push_flags(*.kind))]
    PushFlags {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// A consumer of a map that is no ring buffer.
    #[error("map `{map}`: a map of kind {kind} is no ring buffer")]
    NotARing {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// A second consumer.
    #[error("map `{map}` has a consumer already: drop that one first")]
    Consumed {
        /// The map's name.
        map: String,
    },

    /// A ring buffer of a size that it cannot have.
    #[error("map `{map}`: a ring buffer of {bytes} bytes: max_entries must be a power of two, at least 4096")]
    RingSize {
        /// The map's name.
        map: String,
        /// The size.
        bytes: u32,
    },

    /// A reference for a map that holds bytes.
    #[error("map `{map}`: maps of kind {kind} hold neither programs nor maps")]
    NoReferences {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// An attribute `map_extra` that the kind does not have.
    #[error("map `{map}`: map_extra is {extra:#x}, but for kind {kind} it is {wanted}")]
    Extra {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The attribute.
        extra: u64,
        /// What it may be, in words.
        wanted: &'static str,
    },

    /// Somebody uses it and does not let go: mostly this thread, which was interrupted by the signal in whose handler this was to be
    /// done; or another that stands still in the middle of a change, for which a thread with a virtual CPU does not wait for ever.
    #[error("map `{map}` is in use by an operation that this one interrupted, or by one that does not end")]
    Busy {
        /// The map's name.
        map: String,
    },

    /// A change by the host of a map that it froze.
    #[error("map `{map}` is frozen: its host may not change it any more")]
    Frozen {
        /// The map's name.
        map: String,
    },
}

/// A key in an error: written as bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(
    /// Its bytes.
    pub Vec<u8>,
);

impl MapError {
    /// The error number that Linux gives for it, positive: `ENOENT` is 2.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Missing { .. } => errno::ENOENT,
            Self::Exists { .. } => errno::EEXIST,
            Self::Full { kind: MapKind::LpmTrie, .. } | Self::BucketLarger { .. } => errno::ENOSPC,
            Self::Full { .. } | Self::QueueFull { .. } | Self::OutOfRange { .. } | Self::TooLarge { .. } => {
                errno::E2BIG
            }
            Self::NoMemory { .. } => errno::ENOMEM,
            Self::FieldRepeated { .. } => errno::EEXIST,
            Self::Frozen { .. } => errno::EPERM,
            Self::Busy { .. } | Self::Consumed { .. } | Self::LockHeld { .. } => errno::EBUSY,
            Self::NotAQueue { .. } | Self::NotARing { .. } | Self::FieldNotAllowed { .. } => {
                errno::EOPNOTSUPP
            }
            Self::NotForKind { .. } => errno::ENOTSUPP,
            Self::LockNotWritable { .. } => errno::EACCES,
            Self::NoKeys { kind, .. } => without_keys(*kind).errno(),
            Self::KindNotProvided { .. }
            | Self::KeySize { .. }
            | Self::ValueSize { .. }
            | Self::NoEntries { .. }
            | Self::CreateFlags { .. }
            | Self::NeitherReadNorWrite { .. }
            | Self::NeedsNoPrealloc { .. }
            | Self::NoCpus { .. }
            | Self::CpuCount { .. }
            | Self::NoReaders { .. }
            | Self::KeyLength { .. }
            | Self::ValueLength { .. }
            | Self::PrefixTooLong { .. }
            | Self::CannotDelete { .. }
            | Self::Field { .. }
            | Self::NestedMaps { .. }
            | Self::FrozenContents { .. }
            | Self::NoLock { .. }
            | Self::HoldsReferences { .. }
            | Self::PushFlags { .. }
            | Self::RingSize { .. }
            | Self::NoReferences { .. }
            | Self::Extra { .. } => errno::EINVAL,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 40;
        for (i, byte) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { " " })?;
        }
        if self.0.len() > SHOWN { write!(f, " ... ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

/// How an operation with a key fails on a kind without.
pub(crate) fn without_keys(kind: MapKind) -> OpError {
    match kind {
        MapKind::Queue | MapKind::Stack => OpError::NoKeys,
        _ => OpError::NoKeysAtAll,
    }
}

fn push_flags(kind: MapKind) -> &'static str {
    match kind {
        MapKind::BloomFilter => "BPF_ANY",
        _ => "BPF_ANY or BPF_EXIST",
    }
}

fn list(kinds: &[MapKind]) -> String {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

fn per_cpu(cpus: &Option<u32>, value_size: &u32) -> String {
    match cpus {
        Some(cpus) => format!(" ({cpus} CPUs with {value_size} bytes each, in whole words of 8)"),
        None => String::new(),
    }
}

/// Which kinds can hold a field, as the end of a sentence.
fn holders(kinds: &[MapKind]) -> String {
    match kinds {
        [] => "no kind that is provided can".to_owned(),
        [one] => format!("those of {one} can"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|kind| kind.name()).collect();
            format!("those of {} and {last} can", first.join(", "))
        }
    }
}

/// The methods that a kind has in the place of those that take keys.
fn methods(kind: MapKind) -> &'static str {
    match kind {
        MapKind::BloomFilter => "`push` and `contains`",
        MapKind::Ringbuf => "a `RingBuffer`",
        _ => "`push`, `pop` and `peek`",
    }
}
