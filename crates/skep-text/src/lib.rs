//! Executable memory for JIT compilers: many small pieces of code packed into few pages, never writable where they
//! are executed, traps wherever there is no code.
//!
//! A compiler that gives every function its own page wastes memory and address translation; one that flips pages
//! between writable and executable pays microseconds for every function, stops its neighbours, and splits huge pages.
//! This crate takes *packs* of 2 MiB from the system, maps each twice (readable and executable in one reserved range
//! of addresses; writable at a secret place elsewhere), and deals out *chunks* of 32 bytes in a tenth of a
//! microsecond.
//! It knows nothing about the code it holds.
//!
//! # Example
//!
//! A function that returns 42, from machine code to a call:
//!
//! ```
//! use skep_text::{Arena, Config};
//!
//! # fn main() -> Result<(), skep_text::Error> {
//! let code: &[u8] = if cfg!(target_arch = "x86_64") {
//!     &[0xb8, 42, 0, 0, 0, 0xc3] // mov eax, 42; ret
//! } else {
//!     &[0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6] // mov w0, #42; ret
//! };
//!
//! let arena = Arena::new(Config::new())?;
//! let mut draft = arena.draft(code.len())?;
//! // Relative branches would be computed from draft.address(), where the code is going to run.
//! draft.bytes_mut().copy_from_slice(code);
//! let text = draft.finalize()?;
//!
//! // SAFETY: the bytes are a function of this type, and `text` lives until it has returned.
//! let answer = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u32>(text.as_ptr()) };
//! assert_eq!(answer(), 42);
//!
//! drop(text); // retired: nobody waits
//! arena.flush()?; // for once we do, to see it happen
//! assert_eq!(arena.occupancy().chunks_used, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # The way of a piece of code
//!
//! ```text
//!   Arena::draft ──> Draft ──finalize──> Text ──drop──> waits for readers ──> traps ──> chunks free
//!                      │                  │ ^
//!                      └─drop─> free      └─┘ Pokes: one branch, one store
//! ```
//!
//! [`Arena::draft`] takes a place and gives ordinary memory to write into; the [`Draft`] knows the address at which the
//! code will run, so several functions can be placed before any is encoded. [`Draft::finalize`] copies it there and
//! returns the [`Text`]; [`Draft::finalize_all`] does so for several, all or none. A draft dropped instead leaves no
//! trace. Dropping the text retires it: its place becomes traps and is free for others when every thread that was in a
//! read section of [`Arena::domain`] has left it. Neither loading nor dropping waits for that.
//!
//! Code that runs is changed by [`Pokes`]: single aligned stores, so that a thread sees the old instruction or the new
//! one; one pass over the caches and one synchronisation of all CPUs for a whole batch. [`Arena::stub`] makes the small
//! texts that poked branches jump to. Loads that may fault are declared by [`Draft::probe`], and there are
//! functions of them for interpreters ([`Arena::loads`]).
//!
//! # What is promised
//!
//! - No page is ever writable and executable at once, and none that was writable becomes executable, or the other way
//!   round. With the default backing nobody can make the executable view writable, map the memory writable a second
//!   time, or inherit the writable view by `fork`; [`Backing`] says what the others promise.
//! - Every byte of a pack that can be executed and is not finalized code is a trap.
//! - The place of a text is not reused under a reader.
//! - All code of an arena lies within one range in which every direct branch reaches, near the host's code where
//!   [`Config::near`] asked for it and there was room.
//! - Memory is bounded by [`Config::limit`], what waits for readers by [`Config::waiting`]; one empty pack is kept as
//!   reserve, others are returned to the system.
//! - Huge pages are made in the background, and [`Occupancy`] says what the kernel made, not what it was asked for.
//! - What cannot be had is an [`Error`] that says why and what to change.
//!
//! # Profilers and debuggers
//!
//! They see addresses without names, unless the host asks for one of [`Config::perf_map`], [`Config::jitdump`] and
//! [`Config::gdb`] and gives its texts names by [`Draft::set_name`].
//!
//! # After `fork`
//!
//! A child inherits the executable views, shared with the parent: it may run the texts it knows as long as the *parent*
//! keeps them. It inherits no writable view; its handles can be dropped and do nothing, and new drafts are refused
//! ([`Error::Forked`]). A child that needs code of its own makes its own arena.
//!
//! # Requirements
//!
//! Linux 5.1 or later on x86-64 or aarch64, `/proc` mounted. Memory comes in steps since Linux 5.14, by whole packs
//! before; huge pages need 6.1. Where membarrier(2) is not allowed, pokes are refused and read sections cost a fence; on
//! aarch64 no arena can be made then.

mod arch;
mod arena;
mod chunks;
mod config;
#[cfg(doctest)]
mod does_not_compile;
mod error;
mod fault;
mod growth;
mod occupancy;
mod pack;
mod place;
mod poke;
mod procfs;
mod promote;
mod range;
mod reclaim;
mod seen;
mod sync_core;
mod sys;
#[cfg(test)]
mod tests;
mod text;

pub use arena::Arena;
pub use config::Config;
pub use error::{BadProbe, Error, Step};
pub use fault::{Loads, Probe};
pub use occupancy::{Backing, Occupancy, Span, SpanState};
pub use poke::{BRANCH_BYTES, BRANCH_OFFSET, Branch, Pokes, WORD_BYTES};
pub use seen::{Missed, Tool};
pub use text::{Draft, Text};

/// Bytes in a chunk, the unit that code memory is dealt out in, and the alignment of every text.
pub const CHUNK_BYTES: usize = 32;

/// Bytes in a pack, the unit that code memory is taken from the system in: a huge page where base pages are 4 KiB.
pub const PACK_BYTES: usize = 2 << 20;
