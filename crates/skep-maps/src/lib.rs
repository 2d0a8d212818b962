//! BPF maps: data that programs and their host share.
//!
//! A [`Map`] holds keys and values of fixed sizes. Programs reach it through helpers and compiled code with plain
//! addresses; the host reads and writes it through safe methods with byte slices. Kinds, flags, errors and corner
//! cases are those that Linux documents for user space, so programs written for Linux work unchanged.
//!
//! | kind | keys | properties |
//! |---|---|---|
//! | `array` | `u32` index | all elements exist from the start, zeroed; none can be deleted |
//! | `percpu_array` | `u32` index | one value for each virtual CPU |
//! | `hash` | 1 to 4194240 bytes | full at `max_entries`; an update replaces the element as a whole |
//! | `percpu_hash` | 1 to 4194240 bytes | one value for each virtual CPU, updated in place |
//! | `lru_hash`, `lru_percpu_hash` | 1 to 4194240 bytes | never full: elements not used for long make room |
//! | `lpm_trie` | `u32` prefix length and 1 to 256 bytes | look-ups find the longest prefix; needs `BPF_F_NO_PREALLOC` |
//! | `queue`, `stack` | none | first in, first out, or last in, first out ([`Map::push`]); one short lock |
//! | `bloom_filter` | none | tells whether a value was pushed, with few false positives ([`Map::contains`]); no locks |
//! | `ringbuf` | none | records of any length from programs to a host that may sleep ([`RingBuffer`]); no locks |
//! | `devmap`, `cpumap`, `xskmap` | `u32` index | targets of redirections: devices, CPUs, AF_XDP sockets ([`Target`]) |
//! | `perf_event_array` | `u32` index | samples from programs to a host that may sleep ([`PerfReader`]); no locks |
//! | `devmap_hash` | `u32` | devices by any number |
//! | `prog_array` | `u32` index | holds programs, as addresses that the caller keeps alive ([`Map::programs`]) |
//! | `array_of_maps` | `u32` index | holds maps with one template, likewise ([`Map::references`]) |
//! | `hash_of_maps` | 1 to 4194240 bytes | the same, with keys of any kind |
//! | `sockmap`, `reuseport_sockarray` | `u32` index | sockets of the host ([`Map::set_member`]) |
//! | `sockhash` | 1 to 512 bytes | the same, with keys of any kind |
//! | `user_ringbuf` | none | records of any length from a host to programs ([`UserRingBuffer`]) |
//! | `arena` | none | pages of memory that programs and the host allocate and link by pointers ([`Map::arena`]) |
//! | `cgroup_array` | `u32` index | control groups of the host, likewise |
//!
//! # Example
//!
//! ```
//! use skep_abi::{MapDef, MapKind};
//! use skep_maps::{Map, MapError, Options, UpdateFlags};
//!
//! # fn main() -> Result<(), MapError> {
//! let def = MapDef::new("ports", MapKind::Hash, 2, 8, 100);
//! let ports = Map::create(&def, &Options { cpus: 4, limit: 1 << 20 })?;
//! ports.update(&80_u16.to_be_bytes(), &7_u64.to_ne_bytes(), UpdateFlags::Any)?;
//! assert_eq!(ports.lookup(&80_u16.to_be_bytes())?, Some(7_u64.to_ne_bytes().to_vec()));
//! assert_eq!(ports.lookup(&81_u16.to_be_bytes())?, None);
//!
//! let error = ports.delete(&81_u16.to_be_bytes()).unwrap_err();
//! assert_eq!(error.to_string(), "map `ports`: there is no key 00 51");
//! assert_eq!(error.errno(), 2); // ENOENT
//! # Ok(())
//! # }
//! ```
//!
//! # Concurrency
//!
//! Look-ups in arrays, hash tables and tries take no locks; changes lock a bucket or a trie for a moment. In the rare
//! case that changes disturb a look-up eight times in a row, it tries to take the lock as well.
//!
//! - A key that stays in the map is found by every look-up, also while its value is updated.
//! - A host that reads an element of a hash table or trie gets a value that one update wrote as a whole, unless
//!   programs write to the value through its address. Arrays and per-CPU kinds are updated in place: there, and where
//!   programs write, each aligned 8 bytes are whole, but different words may be from different writes (a torn read).
//! - Where values have a `struct bpf_spin_lock`, changes that a program makes under it are seen as a whole by other
//!   programs that take it, by [`Map::lookup_locked`], and by updates [with the lock](UpdateFlags::locked): see
//!   [`lock`].
//! - An element that a program has looked up stays that element until the program's section ends, even if it is
//!   deleted or replaced meanwhile; afterwards its memory may be reused. ([`Policy`] decides; with
//!   [`Policy::Immediate`] it may be reused at once, as in Linux's hash tables.) The address stays valid memory as
//!   long as the map lives.
//!
//! # In signal handlers
//!
//! Programs may run in handlers, whatever code these interrupt. Look-ups work, even in the middle of a change of the
//! same map by the same thread. A change of the same bucket of a hash table, or of the same trie, queue or stack, is
//! refused with `-EBUSY`, as in Linux, because it would wait for its own thread. With [`Policy::None`] changes of
//! hash tables and tries call the system's allocator, which is not for handlers. The safe methods are not for
//! handlers either: they allocate.

mod arena;
mod array;
mod bloom;
mod caller;
mod create;
mod cursor;
mod elements;
mod error;
mod hash;
mod host_lock;
mod leaf_lock;
pub mod lock;
mod map;
mod members;
pub mod objects;
mod op_error;
mod options;
mod perf;
mod perf_event;
mod perf_reader;
mod prefix;
mod queue;
mod racy;
mod references;
mod ring;
mod ring_buffer;
mod seed;
mod table;
mod targets;
mod trie;
mod update;
mod user_ring;
mod user_ring_buffer;
mod values;
mod version;

pub use elements::Reclamation;
pub use error::{Key, MapError};
pub use hash::SharedTable;
pub use map::{
    Arena, BatchCursor, BatchError, Entries, Map, MapStats, SharedValues, StackMode, Storage, Target,
    Unfrozen,
};
pub use members::{MakeMember, Member, Object};
pub use options::Options;
pub use perf_event::{PerfEvent, PerfMapError, PerfSettings, PerfWakeup, SampleFields};
pub use perf_reader::{PerfReader, Sample};
pub use references::References;
pub use ring_buffer::{Record, RingBuffer};
pub use skep_mem::{Account, Charge, Error as MemoryError, Policy};
pub use update::UpdateFlags;
pub use user_ring_buffer::{UserRingBuffer, UserSample};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
