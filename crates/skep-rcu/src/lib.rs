//! Who is running right now: a registry of threads.
//!
//! Code that runs on many threads at once often wants what a kernel gets from its CPU number: a small dense
//! number that no other thread has at the same moment, to index private counters, caches and statistics
//! without atomics. User space has no such number, because the scheduler moves a thread between two
//! instructions. [`Domain`] makes one: every thread that enters claims a *slot* for itself, the lowest that is
//! free, and keeps it until it ends. To find its own slot again costs a thread about a nanosecond.
//!
//! Today this crate is that registry and nothing more; read sections, grace periods of two flavours (normal
//! and sleepable), callbacks and barriers will stand on it and are not here yet.
//!
//! # Example
//!
//! ```
//! use skep_rcu::{Error, Domain};
//!
//! # fn main() -> Result<(), Error> {
//! let slots = Domain::new(2)?;
//!
//! let here = slots.enter()?; // the lowest free slot
//! assert_eq!(here.number(), 0);
//! assert_eq!(slots.enter()?.number(), 0); // nested: the same thread, the same slot
//!
//! std::thread::scope(|scope| {
//!     let other = scope.spawn(|| slots.enter().map(|here| here.number()));
//!     assert_eq!(other.join().unwrap(), Ok(1));
//! }); // the thread was joined: slot 1 is free again
//!
//! drop(here);
//! assert!(slots.release()); // an idle thread may give its slot back before it ends
//! assert_eq!(slots.in_use(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - While a [`Section`] lives, no other thread has a guard of the same instance with the same number.
//! - What a thread wrote before it gave a slot back is visible to the next thread that claims that slot: data
//!   indexed by slot needs no other synchronisation between its successive owners.
//! - Instances are independent: a thread may be inside several at once, each with its own numbers, and an
//!   instance may be dropped while threads that used it live on.
//!
//! # What is not
//!
//! - A slot comes back when the thread has run its thread-local destructors. `JoinHandle::join` waits for
//!   that; the end of a [`std::thread::scope`] alone does not.
//! - After `fork` the child has one thread, but the slots of its parent's other threads stay taken in the
//!   child's copy of the registry.
//! - The *first* entry of a thread allocates and is not for signal handlers; later entries are plain loads and
//!   stores and nest properly when a handler interrupts them.

// With `--cfg loom` there are only the parts that have models, and not all of these is used.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod barrier;
mod bitmap;
mod inbox;
#[cfg(all(test, loom))]
mod model;
mod readers;
mod sync;

#[cfg(not(loom))]
mod claim;
#[cfg(not(loom))]
mod domain;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod keeper;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod signals;
#[cfg(not(loom))]
mod stats;

#[cfg(not(loom))]
pub use domain::{Builder, Cookie, Domain, Grace, MAX_SLOTS};
#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
pub use section::{Reader, Section, SleepableSection};
#[cfg(not(loom))]
pub use stats::{KeeperState, Stats};
