//! Executable memory for JIT compilers: many small pieces of code packed into few pages, never writable where they
//! are executed, traps wherever there is no code.
//!
//! A compiler that gives every function its own page wastes memory and address translation; one that flips pages
//! between writable and executable pays microseconds for every function, stops its neighbours, and splits huge pages.
//! This crate takes *packs* of 2 MiB from the system, maps each twice (readable and executable in one reserved range
//! address; writable at a secret address elsewhere), and hands out *chunks* of 32 bytes in a tenth of a microsecond.
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
//! drop(text); // retired, without waiting
//! arena.flush()?; // waits, to see it happen
//! assert_eq!(arena.occupancy().chunks_used, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # The life of a piece of code
//!
//! ```text
//!   Arena::draft ──> Draft ──finalize──> Text ──drop──> waits for readers ──> traps ──> chunks free
//!                      │                  │ ^
//!                      └─drop─> free      └─┘ Pokes: one branch, one store
//! ```
//!
//! [`Arena::draft`] reserves an address and returns ordinary memory to write into. The [`Draft`] knows the address
//! at which the code will run, so several functions can be placed before any is encoded. [`Draft::finalize`] copies
//! the code to its address and returns the [`Text`]; [`Draft::finalize_all`] does so for several drafts, all or
//! none. Dropping a draft discards it without a trace. Dropping a text retires it: after a grace period of
//! [`Arena::domain`] its memory is filled with traps and can be reused. Neither loading nor dropping waits for that.
//!
//! [`Pokes`] changes running code by single aligned stores, so a thread sees either the old instruction or the new
//! one; a batch needs one pass of cache maintenance and one synchronisation of all CPUs. [`Arena::stub`] makes the
//! small texts that poked branches jump to. [`Draft::probe`] declares a load that may fault, and [`Arena::loads`]
//! provides such loads as functions for interpreters.
//!
//! # Guarantees
//!
//! - No page is ever writable and executable at once, and no page that was writable becomes executable or the
//!   reverse. With the default backing it is impossible to make the executable view writable, to map the memory
//!   writable a second time, or to inherit the writable view by `fork`. [`Backing`] says what the other backings
//!   guarantee.
//! - Every byte of a pack that can be executed and is not finalized code is a trap.
//! - The memory of a text is not reused while a reader may run it.
//! - All code of an arena is in one range, within reach of every direct branch in it. The range is near the host's code
//!   if [`Config::near`] requested it and there was room.
//! - [`Config::limit`] bounds the memory for code, [`Config::waiting`] the memory that waits for readers. One empty
//!   pack is kept in reserve; others are returned to the system.
//! - Huge pages are made in the background. [`Occupancy`] reports what the kernel did, not what was requested.
//! - Every failure is an [`Error`] that says why it happened and what to change.
//!
//! # Profilers and debuggers
//!
//! Profilers and debuggers see addresses without names, unless the host enables [`Config::perf_map`],
//! [`Config::jitdump`] or [`Config::gdb`] and names its texts with [`Draft::set_name`].
//!
//! # After `fork`
//!
//! A child inherits the executable views, shared with the parent: it may run the texts it knows as long as the
//! *parent* keeps them. It inherits no writable view: dropping its handles has no effect, and new drafts are refused
//! ([`Error::Forked`]). A child that needs code of its own must make its own arena.
//!
//! # Requirements
//!
//! Linux 5.1 or later on x86-64 or aarch64, with `/proc` mounted. Packs grow in steps since Linux 5.14; before that
//! they are populated as a whole. Huge pages need 6.1. Where membarrier(2) is forbidden, pokes are refused and a
//! read section costs a fence; on aarch64 no arena can be made.

mod arch;
mod arena;
mod chunks;
mod config;
#[cfg(doctest)]
mod does_not_compile;
mod error;
mod fault;
mod growth;
mod loads;
mod occupancy;
mod pack;
mod place;
mod poke;
mod procfs;
mod promote;
mod range;
mod reclaim;
mod retirement;
mod seen;
mod shared;
mod sizes;
mod state;
mod sync_core;
mod sys;
#[cfg(test)]
mod tests;
mod text;

pub use arena::Arena;
pub use config::Config;
pub use error::{BadProbe, Error, SystemCall};
pub use fault::Probe;
pub use loads::Loads;
pub use occupancy::{Backing, Occupancy, Span, SpanState};
pub use poke::{BRANCH_BYTES, BRANCH_OFFSET, Branch, Pokes, WORD_BYTES};
pub use seen::{Missed, Tool};
pub use sizes::{CHUNK_BYTES, PACK_BYTES};
pub use text::{Draft, Text};
