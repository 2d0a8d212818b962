//! The crate's error.

mod words;

use std::fmt;

use skep_abi::MapKind;
use skep_mem::Account;

use crate::op_error::{OpError, errno};
use words::{holders, list, maker, methods, per_cpu, push_flags, target, undeletable};

/// The longest key of a hash table in bytes, a little less than the longest memory of Linux's allocator. A definition
/// with a longer one is too big rather than invalid.
pub(crate) const MAX_KEY_SIZE: u32 = (4 << 20) - 64;

/// Why a map cannot be made or an operation on it failed. Every variant names the map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The kind exists in Linux but is not provided.
    #[error("map `{map}`: maps of kind {kind} are not provided yet; {} are", list(.provided))]
    KindNotProvided {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The provided kinds.
        provided: &'static [MapKind],
    },

    /// The key size does not fit the kind.
    #[error("map `{map}`: key size {key_size} is invalid: kind {kind} requires {wanted}")]
    KeySize {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The key size of the definition, in bytes.
        key_size: u32,
        /// The allowed sizes, in words.
        wanted: &'static str,
    },

    /// The value size does not fit the kind.
    #[error("map `{map}`: value size {value_size} is invalid: kind {kind} requires {wanted}")]
    ValueSize {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The value size in bytes.
        value_size: u32,
        /// The allowed sizes, in words.
        wanted: &'static str,
    },

    /// The map has no room for elements.
    #[error("map `{map}`: max_entries is 0: set it to the most elements that the map may hold")]
    NoEntries {
        /// The map's name.
        map: String,
    },

    /// A storage with a number of elements: it has one for each owner.
    #[error("map `{map}`: max_entries is {max_entries}: leave it at 0, as kind {kind} demands")]
    Entries {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// What was given.
        max_entries: u32,
    },

    /// The kind does not provide some of the creation flags.
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
        /// The flags among them that the kind does not provide.
        unknown: u32,
        /// All flags that it provides.
        provided: u32,
    },

    /// Programs could neither read nor write the map.
    #[error(
        "map `{map}`: the flags BPF_F_RDONLY_PROG (0x80) and BPF_F_WRONLY_PROG (0x100) exclude each other: \
         leave one out"
    )]
    NeitherReadNorWrite {
        /// The map's name.
        map: String,
    },

    /// A trie or a storage without the flag that it allocates elements on demand.
    #[error(
        "map `{map}`: an {kind} needs the flag BPF_F_NO_PREALLOC: add __uint(map_flags, BPF_F_NO_PREALLOC)"
    )]
    NeedsNoPrealloc {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// An arena without the flag that the host can see its memory.
    #[error("map `{map}`: an arena needs the flag BPF_F_MMAPABLE: add __uint(map_flags, BPF_F_MMAPABLE)")]
    NeedsMmapable {
        /// The map's name.
        map: String,
    },

    /// An arena of more pages than addresses of 32 bits reach.
    #[error(
        "map `{map}`: an arena has at most 1048576 pages (4 GiB), found {max_entries}: lower max_entries, its number of pages"
    )]
    ArenaPages {
        /// The map's name.
        map: String,
        /// The number of pages.
        max_entries: u32,
    },

    /// Bytes that are not in the arena.
    #[error(
        "map `{map}`: the {len} bytes at {address:#x} are not all in the arena, which is {start:#x} to {end:#x}"
    )]
    OutsideArena {
        /// The map's name.
        map: String,
        /// The address passed.
        address: u64,
        /// The number of bytes.
        len: usize,
        /// The arena's first address.
        start: u64,
        /// The address after its last byte.
        end: u64,
    },

    /// An access to a page that is not there, in an arena with the flag `BPF_F_SEGV_ON_FAULT`.
    #[error(
        "map `{map}`: there is no page at {address:#x}: allocate it first, or leave BPF_F_SEGV_ON_FAULT out"
    )]
    NoPage {
        /// The map's name.
        map: String,
        /// The page's address.
        address: u64,
    },

    /// No room for pages.
    #[error(
        "map `{map}`: no room for {pages} pages: {used} of at most {max_entries} are there; free some, or raise \
         max_entries or the limit of memory"
    )]
    ArenaFull {
        /// The map's name.
        map: String,
        /// The number of pages requested.
        pages: u32,
        /// The number of pages that are there.
        used: u32,
        /// The most that the arena may have.
        max_entries: u32,
    },

    /// A map for 0 virtual CPUs.
    #[error("map `{map}`: 0 virtual CPUs: request at least 1")]
    NoCpus {
        /// The map's name.
        map: String,
    },

    /// The number of virtual CPUs differs from the domain's slots.
    #[error(
        "map `{map}`: {cpus} virtual CPUs do not match the domain's {slots} slots: request the same number, or 0"
    )]
    CpuCount {
        /// The map's name.
        map: String,
        /// The number in the options.
        cpus: u32,
        /// The number of slots of the domain.
        slots: u32,
    },

    /// The map's own domain of readers cannot be made.
    #[error("map `{map}`: {source}")]
    NoReaders {
        /// The map's name.
        map: String,
        /// The cause.
        source: skep_rcu::Error,
    },

    /// The map would need more memory than its limit.
    #[error(
        "map `{map}`: {max_entries} elements need {bytes} bytes, more than the limit of {limit}: \
         lower max_entries or raise the limit"
    )]
    TooLarge {
        /// The map's name.
        map: String,
        /// The bytes that it would need; `u64::MAX` if the number overflows.
        bytes: u64,
        /// The number of elements.
        max_entries: u32,
        /// The limit in bytes.
        limit: u64,
    },

    /// No memory for a new element.
    #[error("map `{map}`: no memory: {source}")]
    NoMemory {
        /// The map's name.
        map: String,
        /// The cause.
        source: skep_mem::Error,
    },

    /// The map would exceed what its account may hold, which it shares with other maps.
    #[error(
        "map `{map}` of {account}: {used} of {limit} {what} are used, and {wanted} more would exceed the quota: free maps or \
         elements, wait until readers have left what was freed, or raise the quota"
    )]
    Quota {
        /// The map's name.
        map: String,
        /// The account's name.
        account: String,
        /// What it counts: bytes of maps, or maps.
        what: &'static str,
        /// What all that is charged to it takes.
        used: u64,
        /// What was asked for in addition.
        wanted: u64,
        /// The most.
        limit: u64,
    },

    /// A key of the wrong length.
    #[error("map `{map}`: the key has {given} bytes instead of {key_size}")]
    KeyLength {
        /// The map's name.
        map: String,
        /// Bytes in a key.
        key_size: u32,
        /// Bytes passed.
        given: usize,
    },

    /// A value of the wrong length.
    #[error("map `{map}`: the value has {given} bytes instead of {wanted}{}", per_cpu(.cpus, .value_size))]
    ValueLength {
        /// The map's name.
        map: String,
        /// The size of a value for the host, in bytes.
        wanted: usize,
        /// Bytes passed.
        given: usize,
        /// Bytes in the value of one CPU.
        value_size: u32,
        /// The number of CPUs, for a per-CPU kind.
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

    /// The map has its maximum of elements.
    #[error(
        "map `{map}`: no room for key {key}: the map is full ({max_entries} elements); delete some or raise max_entries"
    )]
    Full {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The key.
        key: Key,
        /// The maximum of elements.
        max_entries: u32,
    },

    /// The index is beyond the array's end.
    #[error("map `{map}`: index {index} is out of range ({max_entries} elements)")]
    OutOfRange {
        /// The map's name.
        map: String,
        /// The index.
        index: u32,
        /// The number of elements.
        max_entries: u32,
    },

    /// The prefix is longer than the address that follows it.
    #[error("map `{map}`: prefix length {len} exceeds the key's {max} bits of data")]
    PrefixTooLong {
        /// The map's name.
        map: String,
        /// The length passed, in bits.
        len: u32,
        /// The longest length, in bits.
        max: u32,
    },

    /// A special field in the value is out of place.
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

    /// A second special field of a kind that a value may have only once.
    #[error("map `{map}`: the value has a second {name} at offset {offset}: remove one of them")]
    FieldRepeated {
        /// The map's name.
        map: String,
        /// The field's C type.
        name: &'static str,
        /// Bytes from the value's start to the second.
        offset: u32,
    },

    /// A map of maps whose inner maps are maps of maps.
    #[error(
        "map `{map}`: its inner maps are maps of maps: use inner maps of another kind, such as array or hash"
    )]
    NestedMaps {
        /// The map's name.
        map: String,
    },

    /// Frozen contents that this definition does not allow.
    #[error(
        "map `{map}`: frozen contents of {given} bytes do not fit kind {kind} with values of {value_size} bytes: only an \
         array without special fields can be created frozen, with one value"
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

    /// A special field in values of a kind that does not allow it.
    #[error("map `{map}`: values of kind {kind} cannot hold a {field}, as in Linux; {}", holders(allowed))]
    FieldNotAllowed {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The field's C type.
        field: &'static str,
        /// The provided kinds whose values may have it.
        allowed: Vec<MapKind>,
    },

    /// An operation under the value's lock, in a map without locks.
    #[error(
        "map `{map}`: values have no lock: leave BPF_F_LOCK out, or declare a struct bpf_spin_lock in their type"
    )]
    NoLock {
        /// The map's name.
        map: String,
    },

    /// An operation under a value's lock, in a signal handler that interrupted this thread while it held one.
    #[error("map `{map}`: this thread already holds a value's lock")]
    LockHeld {
        /// The map's name.
        map: String,
    },

    /// The kind does not have this operation.
    #[error("map `{map}`: elements of a map of kind {kind} cannot be {what}")]
    NotForKind {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// What the operation does to an element, as a participle.
        what: &'static str,
    },

    /// A batch is smaller than a bucket of a hash table.
    #[error("map `{map}`: a bucket has {needed} elements, but the batch has room for {count}: request more")]
    BucketLarger {
        /// The map's name.
        map: String,
        /// The most elements that the caller accepts.
        count: usize,
        /// The number of elements in the bucket.
        needed: usize,
    },

    /// Deletion from an array, or from a storage of control groups.
    #[error("map `{map}`: elements of {} cannot be deleted: write zeroes instead", undeletable(*.kind))]
    CannotDelete {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// Bytes of an element were read or written in a map that holds programs or maps.
    #[error("map `{map}` holds {what}, not bytes: insert {what} instead")]
    HoldsReferences {
        /// The map's name.
        map: String,
        /// `programs` or `maps`.
        what: &'static str,
    },

    /// The host made an element that only calls of programs make.
    #[error("map `{map}`: elements of kind {kind} are made by programs alone ({}", maker(*.kind))]
    FilledByCalls {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// A map of sockets, control groups or targets does not take, give or remove that element.
    #[error("map `{map}`: key {key} of a map of kind {kind}: {why}")]
    Object {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The key.
        key: Key,
        /// What is wrong.
        why: &'static str,
        /// Linux's error number for it.
        errno: i32,
    },

    /// A value that names no target.
    #[error("map `{map}`: the value of key {key} is no target: {}", target(*.kind))]
    BadTarget {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The key.
        key: Key,
    },

    /// An operation with a key on a map without keys.
    #[error("map `{map}`: elements of kind {kind} have no keys: use {}", methods(*.kind))]
    NoKeys {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// A queue operation on another kind.
    #[error("map `{map}`: maps of kind {kind} have no `{operation}`")]
    NotAQueue {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The operation's name.
        operation: &'static str,
    },

    /// A queue or stack has its maximum of elements.
    #[error(
        "map `{map}`: the map is full ({max_entries} elements): pop some, push with BPF_EXIST to drop the oldest, \
         or raise max_entries"
    )]
    QueueFull {
        /// The map's name.
        map: String,
        /// The maximum of elements.
        max_entries: u32,
    },

    /// Flags that a push to this kind does not accept.
    #[error("map `{map}`: invalid flags for a push to kind {kind}: use {}", push_flags(*.kind))]
    PushFlags {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// A consumer for a map that is no ring buffer.
    #[error("map `{map}`: kind {kind} is not a ring buffer")]
    NotARing {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// A reader for a map that is no array of perf events.
    #[error("map `{map}`: kind {kind} is not an array of perf events")]
    NotPerfEvents {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// A second consumer of a ring buffer.
    #[error("map `{map}` already has a consumer: drop it first")]
    Consumed {
        /// The map's name.
        map: String,
    },

    /// The values cannot become constant.
    #[error("map `{map}`: {source}")]
    Mapped {
        /// The map's name.
        map: String,
        /// Why.
        source: skep_mem::Mapped,
    },

    /// An invalid size of a ring buffer.
    #[error(
        "map `{map}`: ring buffer size {bytes} is invalid: max_entries must be a power of two, at least 4096"
    )]
    RingSize {
        /// The map's name.
        map: String,
        /// The size in bytes.
        bytes: u32,
    },

    /// A program or map for a map that holds bytes.
    #[error("map `{map}`: maps of kind {kind} hold neither programs nor maps")]
    NoReferences {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
    },

    /// An attribute `map_extra` that the kind does not accept.
    #[error("map `{map}`: map_extra {extra:#x} is invalid: kind {kind} requires {wanted}")]
    Extra {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// The attribute's value.
        extra: u64,
        /// The allowed values, in words.
        wanted: &'static str,
    },

    /// Another operation has a lock and does not release it in time. Mostly it is an operation that this thread's
    /// signal handler interrupted; or another thread was stopped in the middle of a change, and a thread with a
    /// virtual CPU waits for it only a bounded time.
    #[error(
        "map `{map}` is locked by an operation that this one interrupted, or by one that does not finish: retry later"
    )]
    Busy {
        /// The map's name.
        map: String,
    },

    /// No descriptor to wait for records with.
    #[error(
        "map `{map}`: no event descriptor (eventfd(2)) can be made: error {errno}; raise the limit of open files (ulimit -n), or \
         allow the system call"
    )]
    NoDescriptor {
        /// The map's name.
        map: String,
        /// The system's error number.
        errno: i32,
    },

    /// Bytes that a value lacks, or that are not the host's: a lock, a timer.
    #[error(
        "map `{map}`: {len} bytes at offset {offset} are not plain data of its values, which have {value_size} bytes; locks and \
         other special fields are none"
    )]
    OutsideValue {
        /// The map's name.
        map: String,
        /// The offset in bytes.
        offset: usize,
        /// How many bytes.
        len: usize,
        /// The value size in bytes.
        value_size: u32,
    },

    /// The host changed a map that it froze.
    #[error("map `{map}` is frozen: the host can no longer change it")]
    Frozen {
        /// The map's name.
        map: String,
    },
}

/// A key in an error, displayed in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(
    /// The key's bytes.
    pub Vec<u8>,
);

impl MapError {
    /// There is no memory for it.
    pub(crate) fn no_memory(map: String, source: skep_mem::Error, account: Option<&Account>) -> Self {
        match (source, account) {
            (skep_mem::Error::Account { used, wanted, limit }, Some(account)) => Self::Quota {
                map,
                account: account.name().to_owned(),
                what: account.what(),
                used,
                wanted,
                limit,
            },
            _ => Self::NoMemory { map, source },
        }
    }

    /// Linux's error number, positive: `ENOENT` is 2.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Missing { .. } => errno::ENOENT,
            Self::Exists { .. } => errno::EEXIST,
            Self::Full { kind: MapKind::LpmTrie, .. } | Self::BucketLarger { .. } => errno::ENOSPC,
            Self::Full { .. } | Self::QueueFull { .. } | Self::OutOfRange { .. } | Self::TooLarge { .. } => {
                errno::E2BIG
            }
            Self::NoMemory { .. } | Self::Quota { .. } | Self::ArenaFull { .. } => errno::ENOMEM,
            Self::ArenaPages { .. } => errno::E2BIG,
            Self::KeySize { kind: MapKind::LpmTrie, .. } => errno::EINVAL,
            Self::KeySize { key_size, .. } if *key_size > MAX_KEY_SIZE => errno::E2BIG,
            Self::NoPage { .. } | Self::OutsideArena { .. } => errno::EFAULT,
            Self::FieldRepeated { .. } => errno::EEXIST,
            Self::Frozen { .. } => errno::EPERM,
            Self::Busy { .. } | Self::Consumed { .. } | Self::LockHeld { .. } | Self::Mapped { .. } => {
                errno::EBUSY
            }
            Self::NotAQueue { .. }
            | Self::NotARing { .. }
            | Self::NotPerfEvents { .. }
            | Self::FieldNotAllowed { .. } => errno::EOPNOTSUPP,
            Self::Object { errno, .. } => *errno,
            Self::NoDescriptor { errno, .. } => *errno,
            Self::NotForKind { .. } => errno::ENOTSUPP,
            Self::LockNotWritable { .. } => errno::EACCES,
            Self::NoKeys { kind, .. } => without_keys(*kind).errno(),
            Self::KindNotProvided { .. }
            | Self::KeySize { .. }
            | Self::ValueSize { .. }
            | Self::NoEntries { .. }
            | Self::Entries { .. }
            | Self::CreateFlags { .. }
            | Self::NeitherReadNorWrite { .. }
            | Self::NeedsNoPrealloc { .. }
            | Self::NeedsMmapable { .. }
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
            | Self::BadTarget { .. }
            | Self::HoldsReferences { .. }
            | Self::FilledByCalls { .. }
            | Self::PushFlags { .. }
            | Self::RingSize { .. }
            | Self::NoReferences { .. }
            | Self::OutsideValue { .. }
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

/// The error of an operation with a key on a kind without keys.
pub(crate) fn without_keys(kind: MapKind) -> OpError {
    match kind {
        MapKind::Queue | MapKind::Stack => OpError::NoKeys,
        _ => OpError::NoKeysAtAll,
    }
}
