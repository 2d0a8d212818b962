//! Memory for concurrent data structures whose readers take no locks.
//!
//! A reader that walks a list without a lock may stand on an object while a writer unlinks and frees it. With
//! a general-purpose allocator the next load would touch memory that belongs to somebody else, or to nobody. A
//! [`Cache`] hands out objects of one size and takes them back, and its [`Policy`] says when an object that was freed may become
//! another: at once, after the readers inside have left ([`skep_rcu`] says when that is), or not before the system had it.
//!
//! [`Block`] is the layer below: one zeroed piece of memory that the system commits as it is touched.
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
//! // SAFETY: this thread's slot, inside a section; the object is freed once, and nobody else has it.
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
//! - [`Cache::alloc`] and [`Cache::free`] neither wait nor lock nor allocate memory elsewhere, from any thread that is in the domain, also
//!   from a signal handler that interrupts another `alloc` or `free` of the same cache. (Not so [`Policy::None`], which is there to
//!   be compared with: it calls the system's allocator.)
//! - An object that was freed stays as it was, byte for byte, until it is handed out again, and with all policies but
//!   [`Policy::Immediate`] that is not before every reader in a normal section that [holds](Cache::holds) it has left.
//! - A reader that is held up in its section holds up what was there when it last [looked](Cache::ensure_announced) for anything, and nothing
//!   that was made and freed since.
//! - Memory that went back to the system stays mapped as long as the cache: a stale pointer reads zeroes there, and never
//!   faults ([`Policy::None`] has no memory of its own). Sleepable readers are waited for before memory goes back.
//! - What is held is bounded, by a number of objects and of bytes. Beyond, the keeper collects what it can, and `alloc` fails
//!   meanwhile: also for a moment while what is left lies ready for other CPUs.
//! - Objects that were freed on another CPU than they were handed out on come home in batches.
//!
//! # What is not
//!
//! - Objects wait, and are reused, in batches of a slab: those that a CPU has freed last, fewer than that, wait for more, or until
//!   the CPU has been idle for some ten milliseconds.
//! - In a forked child the keeper is missing: what waits there waits for ever. In a domain without a keeper its work is done by
//!   those who call the domain.

// With `--cfg loom` what models do not reach is not used, and the domain is theirs.
#![cfg_attr(loom, allow(dead_code, unused_imports, missing_docs, private_interfaces, unreachable_pub))]

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
mod region;
#[cfg(not(loom))]
mod system;
#[cfg(loom)]
use model::memory::{self as region, self as system};

#[cfg(not(loom))]
pub use block::Block;
pub use cache::{Cache, Era};
pub use error::Error;
pub use options::CacheOptions;
pub use policy::{Policy, UnknownPolicy};
pub use stats::CacheStats;
