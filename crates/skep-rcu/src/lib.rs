//! Read-copy update (RCU) for user space: read-side critical sections, grace periods, and a number for each thread.
//!
//! A program that changes shared data under running readers has two questions. *When may I free what I unlinked?* And,
//! for data that exists once for each thread: *which copy is mine?* This crate answers both.
//!
//! A [`Domain`] has numbered slots. Each thread that enters claims the lowest free slot and keeps it, or shares the
//! last ones with others ([`Builder::shared`]): a small dense number that no other thread has at the same time, like a
//! kernel's CPU number. Between entering and leaving the thread is in a *read-side critical section*, or section for
//! short. An updater unlinks an object, waits for a *grace period*, in which every section that existed at its
//! beginning ends, and then frees it: no reader can hold it any more.
//!
//! - **Sections are cheap**: two plain stores, no atomic read-modify-write, no fence. The kernel executes the fence on
//!   the readers' behalf, and only when an updater scans (membarrier(2)).
//! - **Two flavours**: normal sections are short; sleepable ones may block for any time. Each grace period names the
//!   flavour that it waits for; neither delays the other.
//! - **Waiting is optional**: [`Domain::call`] runs a callback after a grace period, on the domain's one background
//!   thread, its *keeper*; [`Domain::cookie`] and [`Domain::try_pass`] poll, for any number of grace periods at once.
//!
//! Allocators and lock-free structures that need fences, eras or sections without guards find them in [`raw`].
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicPtr, Ordering};
//! use skep_rcu::{Domain, Error, Grace};
//!
//! # fn main() -> Result<(), Error> {
//! let domain = Domain::new(8)?; // at most eight threads at once
//! let current = AtomicPtr::new(Box::into_raw(Box::new("first".to_owned())));
//!
//! // A reader: an object that it finds inside stays alive until it leaves.
//! let reader = domain.reader()?;
//! let length = reader.read(|| {
//!     // SAFETY: never null, and freed only after a grace period.
//!     let text = unsafe { &*current.load(Ordering::Acquire) };
//!     text.len()
//! });
//! assert_eq!(length, 5);
//!
//! // An updater: unlink first, wait for a grace period, then free.
//! let old = current.swap(Box::into_raw(Box::new("second".to_owned())), Ordering::AcqRel);
//! // SAFETY: unlinked, and freed once only.
//! let old = unsafe { Box::from_raw(old) };
//! domain.call(Grace::Normal, move || drop(old)); // returns at once
//!
//! domain.barrier()?; // returns when all callbacks so far have run
//! assert_eq!(domain.stats().waiting, 0);
//! # // SAFETY: the only pointer left.
//! # drop(unsafe { Box::from_raw(current.into_inner()) });
//! # Ok(())
//! # }
//! ```
//!
//! Numbers for per-thread data:
//!
//! ```
//! # use skep_rcu::{Domain, Error};
//! # fn main() -> Result<(), Error> {
//! let domain = Domain::new(2)?;
//!
//! let here = domain.enter()?; // the lowest free slot
//! assert_eq!(here.number(), 0);
//! assert_eq!(domain.enter()?.number(), 0); // nested: the same thread, the same slot
//!
//! std::thread::scope(|scope| {
//!     let other = scope.spawn(|| domain.enter().map(|here| here.number()));
//!     assert_eq!(other.join().unwrap(), Ok(1));
//! }); // the thread was joined: slot 1 is free again
//!
//! drop(here);
//! assert!(domain.release()); // an idle thread may give its slot back before it ends
//! assert_eq!(domain.in_use(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - When a grace period that began after an unlinking has ended, every section that could have found the unlinked
//!   object has ended, and everything done in these sections happened before.
//! - Sections nest to any depth and in either flavour, and may end in any order. A nested section protects what
//!   the outermost one of its flavour protects.
//! - A callback runs exactly once, whether or not others panic, even if the last handle of the domain is dropped first.
//!   Callbacks of the same [`Grace`] run in order.
//! - `call`, `defer`, `cookie`, `passed`, `try_pass` and dropping a handle never wait. A call that would wait for its
//!   own thread returns an error.
//! - While a [`Section`] lives, no other thread has a section of the same domain with the same number. What a thread
//!   wrote before it gave a slot back is visible to the next thread that claims that slot.
//! - Domains are independent: a thread may be inside several at once, each with its own numbers, and a domain may be
//!   dropped while threads that used it live on.
//!
//! # What is not
//!
//! - A reader that stays inside blocks every later grace period of its flavour, without limit. The memory that waits is
//!   the rate of frees times the length of a section.
//! - A section that is forgotten (`mem::forget`) never ends while its domain has a handle.
//! - A slot is free again after the thread has run its thread-local destructors. `JoinHandle::join` waits for
//!   that; the end of a [`std::thread::scope`] alone does not.
//! - After `fork` the child has one thread and no keeper, and the slots of the parent's other threads stay claimed in
//!   its copy of the domain: sections work, no cookie passes, no callback runs ([`Domain::is_original`]).
//! - The *first* entry of a thread allocates, so it is not for signal handlers. Later entries are plain loads and
//!   stores, and nest properly when a handler interrupts them. A thread without a slot of its own claims a shared one
//!   in each outermost entry: a handler that interrupts the claim is refused ([`Error::Unavailable`]), and one that
//!   enters itself may wait.

// With `--cfg loom` only the parts that have models are compiled, and some of their items are unused.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod barrier;
mod bitmap;
mod inbox;
#[cfg(all(test, loom))]
mod model;
mod readers;
mod sync;
mod turns;

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
pub mod raw;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod signals;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod task_handle;
#[cfg(not(loom))]
mod tasks;

#[cfg(not(loom))]
pub use domain::{Builder, Cookie, Domain, Grace, MAX_SLOTS};
#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
pub use section::{Reader, Section, SleepableSection};
#[cfg(not(loom))]
pub use stats::{KeeperState, Stats};
#[cfg(not(loom))]
pub use task_handle::TaskHandle;
#[cfg(not(loom))]
pub use tasks::BackgroundTask;
