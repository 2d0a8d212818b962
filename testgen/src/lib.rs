//! Random BPF programs, and a host to run them in.
//!
//! Differential tests and fuzzers need many programs that a verifier accepts and that nevertheless use all of
//! the instruction set, and some that a verifier should refuse but might not. This crate makes both:
//!
//! ```text
//!   seed or bytes --Source--> structured(): mostly accepted    --+
//!                        +--> wild():       attacks the verifier +--> TestProgram --Unverified--> verifier
//!
//!   Host: a buffer or a packet, maps, helpers   --Linkage--> interpreter, compiler
//! ```
//!
//! Everything is a function of the source: the same seed makes the same program, the same bytes too, so that a
//! failure is reproduced by one number.
//!
//! Programs made by [`structured`] never let an address flow into a result: `r0`, the buffer and the maps hold
//! the same numbers wherever the stack lies, and may be compared between runs. Those of [`wild`] promise
//! nothing of the kind; the verifier does so for those that it accepts.

mod builder;
mod helpers;
mod host;
mod own;
mod program;
mod source;
mod structured;
mod thrown;
mod wild;

pub use helpers::helpers;
pub use host::{End, Host, State};
pub use program::{Flavour, TestProgram, maps};
pub use source::{EDGES, Source};
pub use structured::{Options, structured};
pub use thrown::with_throws;
pub use wild::{Question, Washed, decided, iterated, mutated, stale, washed, wild};
