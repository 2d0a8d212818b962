//! BPF maps: what programs and their host share.
//!
//! A [`Map`] holds keys and values of fixed sizes. Programs reach it through helpers and compiled code with plain
//! addresses; the host reads and writes it through safe methods with byte slices. Kinds, flags, errors and corner
//! cases are those that Linux documents for user space, so that programs written for Linux find what they expect.
//!
//! | kind | keys | what is special |
//! |---|---|---|
//! | `array` | `u32` index | all elements exist from the start, zeroed; none can be deleted |
//! | `percpu_array` | `u32` index | one value for each virtual CPU |
//! | `hash` | 1 to 512 bytes | full at `max_entries`; an update replaces the element as a whole |
//! | `percpu_hash` | 1 to 512 bytes | one value for each virtual CPU, updated in place |
//! | `lpm_trie` | `u32` prefix length and 1 to 256 bytes | look-ups find the longest prefix; needs `BPF_F_NO_PREALLOC` |
//! | `prog_array` | `u32` index | holds programs, as addresses that whoever installs them keeps alive ([`Map::programs`]) |
//! | `array_of_maps` | `u32` index | holds maps of one shape, likewise ([`Map::references`]) |
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
//! # Many at once
//!
//! Look-ups take no locks, neither in arrays nor in hash tables nor in tries; changes lock a bucket or a trie for
//! a moment. In the rare case that changes disturb a look-up eight times in a row, it takes the lock as well.
//!
//! - A key that is in the map all the time is found every time, also while its value is updated.
//! - A host that reads an element of a hash table or trie gets a value that was set as a whole by one update,
//!   unless programs write to it in place through its address. In arrays and per-CPU kinds all updates are in
//!   place: there, and where programs write, every aligned 8 bytes are whole, and different words may be of
//!   different age.
//! - The address that a look-up gives a program stays valid memory as long as the map lives. In this version the
//!   element behind it may be reused at once when its key is deleted or updated: a program that goes on using the
//!   address then finds another element's value there, as with Linux's preallocated hash tables. Policies that
//!   wait until programs have left are to come.
//!
//! # What is not there yet
//!
//! Other kinds; `BPF_F_LOCK` and spin locks in values; batched operations; use from signal handlers that
//! interrupt an operation on the same map.

mod array;
mod create;
mod error;
mod hash;
mod map;
mod prefix;
mod racy;
mod references;
mod seed;
mod table;
mod trie;
mod update;
mod values;
mod version;

pub use error::{Key, MapError};
pub use map::{Entries, Map, Options};
pub use references::References;
pub use update::UpdateFlags;
