//! The C library. What its users read comes first, then a chapter for those who change it.
//!
#![doc = include_str!("../README.md")]
//!
//! # For those who change this crate
//!
//! ```text
//!   C  --pointers, sizes-->  argument, options  --references-->  skep  --Error-->  status  --int, words-->  C
//! ```
//!
//! - Handles are what they are in Rust: a `skep_runtime` is a boxed [`skep::Runtime`], a `skep_program` is one of
//!   the module's own. Nothing is kept in tables, so a call costs what it costs in Rust, and a null check.
//! - Every function that can fail runs inside `status::guard`; no panic reaches C.
//! - `include/skep.h` is written by hand, for its documentation is for other readers than that of the Rust side. The
//!   tests redeclare every function as the Rust sources have it and let a C compiler compare the two.
//! - Functions and structures only ever grow: a field is added at the end of an options structure and means its default
//!   when it is 0.

mod argument;
mod load;
mod map;
mod options;
mod run;
mod status;

pub use load::*;
pub use map::*;
pub use options::{LoadOptions, RuntimeOptions};
pub use run::*;
pub use status::{Status, skep_error_message};

/// The header promises that these may be used from several threads at once.
const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<skep::Runtime>();
    shareable::<skep::Object>();
    shareable::<skep::Module>();
    shareable::<skep::Program>();
    shareable::<skep::Map>();
    // A packet is used by one thread at a time, but by any.
    const fn movable<T: Send>() {}
    movable::<skep::Packet>();
};
