//! The library that `skep exec` loads into applications, and what it says to the supervisor.
//!
//! A notified system call takes two switches between processes. Most calls of an application are look-ups and updates
//! in maps, and the values of arrays are memory that can be shared. So a library, loaded before the application's own
//! (`LD_PRELOAD`), takes the place of libc's `syscall()`, by which libbpf calls bpf(2):
//!
//! ```text
//!   application --syscall(__NR_bpf, ...)--> this library --arrays, hash tables--> memory shared with the supervisor
//!                                              |
//!                                              +--everything else--> kernel --notifies--> supervisor
//! ```
//!
//! # Rules
//!
//! - Of arrays it answers look-ups and updates; of hash tables, look-ups: it only reads their memory.
//! - It answers successes, and `ENOENT` for a key that is not in a hash table. Whatever may be another error, it passes
//!   on: the supervisor finds out which.
//! - It knows a map by what the kernel says of the descriptor in that very call ([`protocol::Token`]), never by the
//!   descriptor's number: closing and replacing descriptors, by whatever means, cannot make its answers stale.
//! - It waits for nobody and allocates nothing, so signal handlers and forks may interrupt it
//!   anywhere. A child that is forked while a thread makes a map known to the library gets no new maps from it.
//! - A process that installs a filter of system calls of its own is left to the supervisor: the filter may forbid the
//!   calls that the library makes.
//!
//! # What differs from a system call
//!
//! Memory that the application passes is looked at the first time that a page of it is passed. Who unmaps it, and
//! passes it again, gets SIGSEGV in place of `EFAULT`. And a look-up of a key that is deleted meanwhile may answer
//! `ENOENT`, and yet have written to the memory for the value.

#![cfg_attr(not(test), no_std)]

pub mod protocol;

// The library's own modules, here for its tests; `preloaded.rs` is its root.
#[cfg(test)]
mod arch;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod copy;
#[cfg(test)]
mod front;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod sync;
#[cfg(test)]
mod table;
#[cfg(test)]
mod version;

/// The shared library, for this target; `None` where there is none.
#[cfg(has_library)]
pub static LIBRARY: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/libskep_preload.so")));

/// The shared library, for this target; `None` where there is none.
#[cfg(not(has_library))]
pub static LIBRARY: Option<&[u8]> = None;
