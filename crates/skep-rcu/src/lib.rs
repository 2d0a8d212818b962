//! Who is reading right now, and when nobody does any more.
//!
//! A program that changes shared data under running readers has two questions. *May I free what I took away?* And, for
//! data that is kept once for each thread: *which of them is mine?* This crate answers both.
//!
//! A [`Domain`] has numbered slots. Each thread that enters claims one, the lowest that is free, and keeps it: a small
//! dense number that no other thread has at the same moment, as a kernel has its CPU number. Being inside is a
//! *read section*. Who has unlinked something waits for a *grace period*: until every section that was there before has
//! ended. Then nobody can hold it any more.
//!
//! - **Sections cost next to nothing**: two plain stores, no atomic read-modify-write, no fence; the fence is executed
//!   by the kernel on the readers' behalf, but only when somebody waits (membarrier(2)).
//! - **Two flavours**: normal sections, which are short, and sleepable ones, which may block for as long as they like. Each
//!   grace period says which it waits for; neither holds up the other.
//! - **Nobody need wait**: [`Domain::call`] runs a callback after a grace period, on the one background thread of the
//!   domain, its *keeper*; [`Domain::cookie`] and [`Domain::try_pass`] poll, any number at once.
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
//! // A reader: what it finds inside stays alive until it leaves.
//! let reader = domain.reader()?;
//! let length = reader.read(|| {
//!     // SAFETY: never null, and freed only after a grace period.
//!     let text = unsafe { &*current.load(Ordering::Acquire) };
//!     text.len()
//! });
//! assert_eq!(length, 5);
//!
//! // An updater: unlink first, then let the grace period pass, then free.
//! let old = current.swap(Box::into_raw(Box::new("second".to_owned())), Ordering::AcqRel);
//! // SAFETY: unlinked, and freed once only.
//! let old = unsafe { Box::from_raw(old) };
//! domain.call(Grace::Normal, move || drop(old)); // returns at once
//!
//! domain.barrier()?; // until all callbacks so far have run
//! assert_eq!(domain.stats().waiting, 0);
//! # // SAFETY: the only pointer left.
//! # drop(unsafe { Box::from_raw(current.into_inner()) });
//! # Ok(())
//! # }
//! ```
//!
//! Numbers for data of each thread's own:
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
//! - When a grace period that began after an unlinking has ended, no section that could have found the unlinked thing
//!   is left, and all that such sections did has happened before.
//! - Sections nest, in any number and in either flavour, and may end in any order. A nested section protects what
//!   the outermost one of its flavour does.
//! - A callback runs exactly once, whether or not others panic, and also when the last handle of the domain is dropped
//!   before its turn. Callbacks of the same [`Grace`] run in order.
//! - `call`, `defer`, `cookie`, `passed`, `try_pass` and dropping a handle never wait. What waits is an error where it would
//!   wait for itself.
//! - While a [`Section`] lives, no other thread has a section of the same domain with the same number. What a thread wrote
//!   before it gave a slot back is visible to the next thread that claims that slot.
//! - Domains are independent: a thread may be inside several at once, each with its own numbers, and a domain may be
//!   dropped while threads that used it live on.
//!
//! # What is not
//!
//! - A reader that stays inside holds up every later grace period of its flavour, for ever if need be: memory that waits
//!   is what is freed per second times the seconds a section lasts.
//! - A section that is forgotten (`mem::forget`) never ends while its domain has a handle.
//! - A slot comes back when the thread has run its thread-local destructors. `JoinHandle::join` waits for
//!   that; the end of a [`std::thread::scope`] alone does not.
//! - After `fork` the child has one thread, but the slots of its parent's other threads stay taken in the
//!   child's copy of the domain, and the keeper stayed behind: sections work, nothing passes, callbacks do not run
//!   ([`Domain::is_original`]).
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
mod chores;
#[cfg(not(loom))]
mod claim;
#[cfg(not(loom))]
mod domain;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod horizons;
#[cfg(not(loom))]
mod keeper;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod signals;
#[cfg(not(loom))]
mod stats;

#[cfg(not(loom))]
pub use chores::{Chore, ChoreHandle};
#[cfg(not(loom))]
pub use domain::{Builder, Cookie, Domain, Grace, MAX_SLOTS};
#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
pub use horizons::Horizons;
#[cfg(not(loom))]
pub use section::{Reader, Section, SleepableSection};
#[cfg(not(loom))]
pub use stats::{KeeperState, Stats};
