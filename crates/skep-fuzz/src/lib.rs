//! Coverage-guided fuzzing of BPF programs: the library behind `skep fuzz`.
//!
//! ```text
//!   corpus --mutate--> packet --run--> counters --new places?--> corpus
//!      ^                  |      |
//!   seeds, maps'          |      +--> verdict: another than the old version's, unwanted, refused by a check?
//!   contents              |                |
//!                         +----again in a fresh runtime, then smaller and smaller----> Case --table--> skep test
//! ```
//!
//! Everything follows from the seed of [`Options`]: clocks stand still, random numbers are seeded, one thread runs.
#![forbid(unsafe_code)]

mod case;
mod error;
mod fuzzer;
mod minimise;
mod packets;
mod repair;
mod setup;
mod target;

pub use case::{Case, Why, table};
pub use error::Error;
pub use fuzzer::{Fuzzer, Options, Report};
pub use packets::seeds;
pub use setup::{Element, Setup};
