//! Memory for concurrent data structures whose readers take no locks.
//!
//! A reader that walks a list without a lock may hold an object while a writer unlinks and frees it. With a
//! general-purpose allocator the reader's next load would touch memory that has another owner or none. A [`Cache`]
//! allocates objects of one size, and its [`Policy`] decides when a freed object may be reused: at once, after a
//! grace period of the readers ([`skep_rcu`]), or only after the system had its memory.
//!
//! [`Block`] is the layer below: one piece of zeroed memory that the system commits as it is touched. [`Window`] is
//! 4 GiB of addresses for code that nobody has checked.
//!
//! # Example
//!
//! ```
//! use skep_mem::{Cache, CacheOptions, Policy};
//! use skep_rcu::Domain;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let domain = Domain::new(8)?; // at most eight threads at once
//! let cache = Cache::new(&domain, &CacheOptions::new(24, 1000).policy(Policy::ReuseAfterGp))?;
//!
//! let section = domain.enter()?;
//! // SAFETY: this thread's slot, inside a section; the object is freed once, and no other thread has it.
//! unsafe {
//!     let object = cache.alloc(section.number())?;
//!     assert_eq!(cache.stats().in_use, 1);
//!     cache.free(section.number(), object);
//! }
//! assert_eq!((cache.stats().in_use, cache.stats().in_flight), (0, 1));
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - [`Cache::alloc`] and [`Cache::free`] do not wait, lock, or allocate memory elsewhere. They may be called on any
//!   thread of the domain, also from a signal handler that interrupts another `alloc` or `free` of the same cache.
//!   ([`Policy::None`] is the exception: it calls the system's allocator, for comparison.)
//! - A freed object stays unchanged, byte for byte, until it is handed out again. With every policy except
//!   [`Policy::Immediate`] that is after each reader in a normal section that [holds](Cache::holds) it has left.
//! - A reader that stays in its section blocks the reuse of objects that were born before it last [announced an
//!   era](Cache::ensure_announced), and of no later ones.
//! - Returned memory stays mapped as long as the cache: a stale pointer into it reads zeroes and never faults
//!   ([`Policy::None`] has no memory of its own). Memory is returned after a grace period of sleepable readers.
//! - Memory is bounded by a number of objects and of bytes. At the bound the keeper reclaims all it can and `alloc`
//!   fails meanwhile, possibly for a moment even while other CPUs have ready objects.
//! - Objects that were freed on another CPU than they were allocated on move in batches.
//!
//! # What is not
//!
//! - Objects wait, and are reused, in batches of a slab. A CPU's last freed objects, fewer than a batch, wait for
//!   more, or until the CPU has been idle for some ten milliseconds.
//! - In a forked child there is no keeper, so waiting objects wait for ever. In a domain without a keeper the threads
//!   that call the domain do its work.

// With `--cfg loom` some items are unused, and the models replace the domain.
#![cfg_attr(loom, allow(dead_code, unused_imports, missing_docs, private_interfaces, unreachable_pub))]

mod account;
mod batch;
mod cache;
mod cpu;
mod depot;
mod eras;
mod error;
mod gate;
mod inner;
mod layout;
#[cfg(loom)]
mod model;
mod object;
mod options;
mod policy;
mod reclaim;
mod slow_path;
mod stack;
mod stats;
mod store;
mod sync;

#[cfg(not(loom))]
mod block;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod window;
#[cfg(loom)]
use model::memory::{self as region, self as system};

pub use account::{Account, Charge};
#[cfg(not(loom))]
pub use block::Block;
#[cfg(not(loom))]
pub use cache::SharedObjects;
pub use cache::{Cache, Era};
pub use error::Error;
#[cfg(not(loom))]
pub use file::{Mapped, memory_file};
pub use options::CacheOptions;
pub use policy::{Policy, UnknownPolicy};
pub use stats::CacheStats;
#[cfg(not(loom))]
pub use window::Window;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
