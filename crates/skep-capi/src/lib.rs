//! The C library. The documentation for users comes first, then a chapter for maintainers.
//!
#![doc = include_str!("../README.md")]
//!
//! # For maintainers
//!
//! ```text
//!   C  --pointers, sizes-->  argument, options  --references-->  skep  --Error-->  status  --int, message-->  C
//! ```
//!
//! - Handles are pointers to Rust objects: a `skep_runtime` is a boxed [`skep::Runtime`], a `skep_program` is one
//!   of the module's own. There are no handle tables, so a call costs as much as in Rust, plus a null check.
//! - Every function that can fail runs inside `status::guard`; no panic reaches C.
//! - `include/skep.h` is written by hand, since its documentation has other readers than the Rust documentation.
//!   The tests redeclare every function from the Rust sources and let a C compiler compare the declarations.
//! - Functions and structures only grow: a new field is added at the end of an options structure, and 0 means its
//!   default.

mod argument;
mod arrays;
mod batch;
mod builder;
mod context;
mod events;
mod helper;
mod hook;
mod json;
mod linker;
mod load;
mod map;
mod module;
mod options;
mod own_type;
mod packet;
mod refusal;
mod run;
mod stats;
mod status;
mod tenant;
mod text;
mod user;
mod user_ring;
mod world;

pub use arrays::*;
pub use batch::*;
pub use builder::*;
pub use context::*;
pub use events::*;
pub use helper::*;
pub use hook::*;
pub use json::*;
pub use linker::*;
pub use load::*;
pub use map::*;
pub use module::*;
pub use options::{LoadOptions, RuntimeOptions};
pub use own_type::*;
pub use packet::*;
pub use refusal::*;
pub use run::*;
pub use stats::*;
pub use status::{Status, skep_error_message};
pub use tenant::*;
pub use text::skep_text_free;
pub use user::DropFn;
pub use user_ring::*;
pub use world::*;

/// The header promises that several threads may use these at once.
const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<skep::Runtime>();
    shareable::<skep::Object>();
    shareable::<skep::Module>();
    shareable::<skep::Program>();
    shareable::<skep::Map>();
    shareable::<skep::Hook>();
    shareable::<skep::Link>();
    shareable::<skep::ProgramArray>();
    shareable::<skep::World>();
    shareable::<OuterMap>();
    shareable::<OwnType>();
    shareable::<Quotas>();
    // These are used by one thread at a time, but may move between threads.
    const fn movable<T: Send>() {}
    movable::<skep::Packet>();
    movable::<skep::Context>();
    movable::<Builder>();
    movable::<skep::BatchCursor>();
    movable::<skep::UserRingBuffer>();
    movable::<Events>();
    movable::<LinkerHandle>();
};
